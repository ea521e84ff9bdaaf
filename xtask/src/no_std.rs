//! That the core stays what it says it is.

use crate::rooms::ROOT;
use crate::rooms::imports::attributes;
use crate::rooms::modules::{Crate, Sources, only_for_tests};
use anyhow::{Result, ensure};
use syn::visit::{self, Visit};
use syn::{Attribute, Item, Meta};
use xshell::{Shell, cmd};

/// A target without a standard library.
pub(crate) const BARE: &str = "x86_64-unknown-none";
/// Those of the other processors that `zonal-kernel` knows.
const OTHERS: [&str; 2] = ["aarch64-unknown-none", "riscv64gc-unknown-none-elf"];

pub(crate) fn run(shell: &Shell) -> Result<()> {
    let sources = Sources::read(&shell.current_dir().join(ROOT))?;
    let findings = check(&sources)?;
    ensure!(findings.is_empty(), "the core in {ROOT}:\n{}", findings.join("\n"));
    // Of every target: what only some have is a dependency as well.
    let tree = cmd!(
        shell,
        "cargo tree --locked -p zonal -e normal,build --prefix none --all-features --target all"
    );
    let tree = tree.read()?;
    ensure!(tree.lines().count() == 1, "the core has dependencies:\n{tree}");
    if is_installed(shell, BARE)? {
        cmd!(shell, "cargo build --locked -p zonal --all-features --target {BARE}").run()?;
        let kernel = ["-p", "zonal-kernel", "--all-features", "--lib", "--examples"];
        // Only checked: the kernel that boots is built of it.
        cmd!(shell, "cargo check --locked {kernel...} --target {BARE}").run()?;
    } else {
        eprintln!("target {BARE} is not installed: built for the host only");
        cmd!(shell, "cargo build --locked -p zonal --all-features").run()?;
    }
    for target in OTHERS {
        if is_installed(shell, target)? {
            cmd!(shell, "cargo check --locked -p zonal-kernel --features fdt --target {target}")
                .run()?;
        } else {
            eprintln!("target {target} is not installed: the code for it was not compiled");
        }
    }
    Ok(())
}

/// Whether the toolchain has the libraries of a target.
pub(crate) fn is_installed(shell: &Shell, target: &str) -> Result<bool> {
    let libraries = cmd!(shell, "rustc --print target-libdir --target {target}").quiet().read()?;
    Ok(shell.path_exists(libraries))
}

/// What the crate root does not say, and the crates that any file outside of tests links. The
/// bare target has `alloc`, so that building for it does not show that there is no heap.
fn check(sources: &Sources) -> Result<Vec<String>> {
    let root = sources.0.get("lib.rs").map(|text| syn::parse_file(text)).transpose()?;
    let attributes = root.map(|root| root.attrs).unwrap_or_default();
    let mut findings = Vec::new();
    if !attributes.iter().any(|attribute| attribute.path().is_ident("no_std")) {
        findings.push("lib.rs does not say #![no_std]".to_owned());
    }
    if !attributes.iter().any(forbids_unsafe) {
        findings.push("lib.rs does not say #![forbid(unsafe_code)]".to_owned());
    }
    for file in Crate::parse(sources)?.files {
        let mut linked = Linked(Vec::new());
        file.items.iter().for_each(|item| linked.visit_item(item));
        let linked = linked.0.into_iter();
        findings.extend(linked.map(|name| format!("{} links the crate `{name}`", file.name)));
    }
    Ok(findings)
}

fn forbids_unsafe(attribute: &Attribute) -> bool {
    let lint = |meta: Meta| meta.path().is_ident("unsafe_code");
    attribute.path().is_ident("forbid") && attribute.parse_args().is_ok_and(lint)
}

/// The names in `extern crate`, outside of tests.
struct Linked(Vec<String>);

impl<'ast> Visit<'ast> for Linked {
    fn visit_item(&mut self, item: &'ast Item) {
        if !only_for_tests(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_extern_crate(&mut self, item: &'ast syn::ItemExternCrate) {
        self.0.push(item.ident.to_string());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(root: &str, room: &str) -> Vec<String> {
        let files = [("lib.rs", root), ("zone/mod.rs", room)];
        check(&Sources(files.map(|(name, text)| (name.into(), text.into())).into())).unwrap()
    }

    const ROOT: &str = "#![no_std]\n#![forbid(unsafe_code)]\nmod zone;";

    #[test]
    fn finds_what_is_missing() {
        let test = "#[cfg(test)] extern crate std; #[cfg(test)] mod t { extern crate alloc; }";
        assert_eq!(found(ROOT, test), [""; 0]);
        let no_std = "lib.rs does not say #![no_std]";
        let forbid = "lib.rs does not say #![forbid(unsafe_code)]";
        for (says, finding) in [
            ("/*\n#![no_std]\n*/\n#![forbid(unsafe_code)]\nmod zone;", no_std),
            ("#![cfg_attr(not(test), no_std)]\n#![forbid(unsafe_code)]\nmod zone;", no_std),
            ("#![no_std]\n#![deny(unsafe_code)]\nmod zone;", forbid),
            ("#![no_std]\n#![forbid(unused)]\nmod zone;", forbid),
        ] {
            assert_eq!(found(says, ""), [finding]);
        }
    }

    #[test]
    fn finds_crates_that_are_linked_in_any_file() {
        let says = "zone/mod.rs links the crate `alloc`";
        assert_eq!(found(ROOT, "extern crate alloc;"), [says]);
        assert_eq!(found(ROOT, "mod inner { extern crate alloc as a; }"), [says]);
    }
}
