//! That the core stays what it says it is.

use anyhow::{Result, ensure};
use xshell::{Shell, cmd};

/// What the core's crate root must say.
const ATTRIBUTES: [&str; 2] = ["#![no_std]", "#![forbid(unsafe_code)]"];
/// A target without a standard library.
pub(crate) const BARE: &str = "x86_64-unknown-none";

pub(crate) fn run(shell: &Shell) -> Result<()> {
    let source = shell.read_file("crates/zonal/src/lib.rs")?;
    let lacks = missing(&source).next();
    ensure!(lacks.is_none(), "crates/zonal/src/lib.rs does not say {}", lacks.unwrap_or_default());
    let tree =
        cmd!(shell, "cargo tree --locked -p zonal -e normal,build --prefix none --all-features");
    let tree = tree.read()?;
    ensure!(tree.lines().count() == 1, "the core has dependencies:\n{tree}");
    cmd!(shell, "cargo build --locked -p zonal").run()?;
    let installed = cmd!(shell, "rustc --print target-libdir --target {BARE}").read()?;
    if shell.path_exists(installed) {
        cmd!(shell, "cargo build --locked -p zonal --target {BARE}").run()?;
    } else {
        eprintln!("target {BARE} is not installed: built for the host only");
    }
    Ok(())
}

/// The attributes that no line of `source` is.
fn missing(source: &str) -> impl Iterator<Item = &'static str> {
    ATTRIBUTES.into_iter().filter(|attribute| !source.lines().any(|line| line.trim() == *attribute))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_is_missing() {
        assert_eq!(missing("#![no_std]\n#![forbid(unsafe_code)]\n").count(), 0);
        let commented: Vec<_> = missing("// #![no_std]\n#![forbid(unsafe_code)]\n").collect();
        assert_eq!(commented, ["#![no_std]"]);
        assert_eq!(missing("").count(), 2);
    }
}
