//! How much code an allocator adds to a kernel, and where that code can still panic. `cargo xtask kernel size`.
//!
//! The examples of `zonal-kernel` are kernels to compare: one without an allocator, one from its boot to its first frame,
//! one that calls all that `Global` has. They are built as a release, for speed, for size, and as small as can be.

use crate::no_std::BARE;
use crate::steps::target_dir;
use crate::tools;
use anyhow::{Context, Result, ensure};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use xshell::{Shell, cmd};

/// The kernels: what they are, and their examples. The first has no allocator.
const KERNELS: [(&str, &str); 3] = [
    ("without an allocator", "size_without"),
    ("from boot to a frame", "first_frame"),
    ("all that `Global` has", "size"),
];
/// How they are built: what for, the level of optimisation, where below the target directory.
const BUILDS: [(&str, &str, &str); 3] =
    [("speed", "3", "."), ("size", "s", "for-size"), ("smallest", "z", "smallest")];
/// The most that an allocator may add to the second kernel, as small as can be.
const LIMIT: u64 = 64 << 10;
/// What disassembles, and what knows lines: both of the binutils, which any linker of C brings with it.
const TOOLS: [&str; 2] = ["objdump", "addr2line"];

pub(crate) fn run(shell: &Shell) -> Result<()> {
    TOOLS.iter().try_for_each(|tool| tools::require(shell, tool))?;
    let mut rows = KERNELS.map(|(what, _)| (what, Vec::new()));
    let mut panics = Vec::new();
    for (_, level, folder) in BUILDS {
        let folder = build(shell, level, folder)?;
        for ((_, example), (_, sizes)) in KERNELS.iter().zip(&mut rows) {
            let program = folder.join(example);
            let sections = cmd!(shell, "objdump -h {program}").quiet().read()?;
            sizes.push(text_bytes(&sections).context("the kernel has no code")?);
        }
        let code = folder.join(KERNELS[2].1);
        panics.push(places(shell, &code)?);
    }
    print!("{}", table(&rows));
    for ((built_for, ..), places) in BUILDS.iter().zip(&panics) {
        let calls: usize = places.values().sum();
        println!("\npanics that remain in the last, built for {built_for}: {calls}, from {}", {
            format!("{} places", places.len())
        });
        // The places of the first are nearly those of the second.
        let shown = if *built_for == "speed" { places.iter() } else { Default::default() };
        shown.for_each(|((place, why), calls)| println!("{calls:4}  {place}  {why}"));
    }
    let [without, first, _] = rows.map(|(_, sizes)| sizes.last().copied().unwrap_or(u64::MAX));
    let added = first.saturating_sub(without);
    ensure!(added <= LIMIT, "an allocator adds {added} bytes of code, more than {LIMIT}");
    Ok(())
}

/// Builds the kernels, and says where they are.
fn build(shell: &Shell, level: &str, folder: &str) -> Result<PathBuf> {
    let target = target_dir(shell).join(folder);
    let examples = KERNELS.iter().flat_map(|(_, example)| ["--example", example]);
    cmd!(shell, "cargo build --release --locked -p zonal-kernel --target {BARE} {examples...}")
        .env("CARGO_TARGET_DIR", &target)
        .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", level)
        .run()?;
    Ok(target.join(BARE).join("release/examples"))
}

/// The bytes of `.text`, of what `objdump -h` printed.
fn text_bytes(sections: &str) -> Option<u64> {
    let mut sections = sections.lines().map(|line| line.split_whitespace().skip(1));
    let mut text = sections.find_map(|mut line| (line.next()? == ".text").then_some(line))?;
    u64::from_str_radix(text.next()?, 16).ok()
}

fn table(rows: &[(&str, Vec<u64>)]) -> String {
    let mut text = format!("{:24}", "bytes of .text, built for");
    text.extend(BUILDS.map(|(built_for, ..)| format!("{built_for:>10}")));
    text.extend(BUILDS.map(|_| format!("{:>10}", "over none")));
    for (what, sizes) in rows {
        text += &format!("\n{what:25}");
        text.extend(sizes.iter().map(|bytes| format!("{bytes:10}")));
        let over = sizes.iter().zip(&rows[0].1).map(|(own, none)| own - none);
        text.extend(over.map(|bytes| format!("{bytes:10}")));
    }
    text + "\n"
}

/// Where code can panic, and why: a line of the source, what is called, and how often.
type Places = BTreeMap<(String, String), usize>;

fn places(shell: &Shell, program: &Path) -> Result<Places> {
    let code = cmd!(shell, "objdump -d -C --no-show-raw-insn {program}").quiet().read()?;
    let calls = calls(&code);
    let addresses = calls.iter().map(|(address, _)| format!("0x{address}"));
    let lines = cmd!(shell, "addr2line -a -i -e {program} {addresses...}").quiet().read()?;
    let root = shell.current_dir();
    let lines = own_lines(&lines, &root.display().to_string());
    ensure!(lines.len() == calls.len(), "{} calls, and lines of {}", calls.len(), lines.len());
    let mut places = Places::new();
    for (line, (_, why)) in lines.into_iter().zip(calls) {
        *places.entry((line, why)).or_default() += 1;
    }
    Ok(places)
}

/// The calls of what panics in what `objdump -d` printed: addresses, and what is called. Those of `core` among
/// themselves are left out.
fn calls(code: &str) -> Vec<(String, String)> {
    let mut calls = Vec::new();
    let mut in_core = false;
    for line in code.lines() {
        if let Some((_, name)) = line.strip_suffix(">:").and_then(|line| line.split_once('<')) {
            in_core = is_panic(name) || name.starts_with("core::fmt");
            continue;
        }
        let Some((address, instruction)) = line.trim_start().split_once(":\t") else { continue };
        let is_call = instruction.starts_with("call") || instruction.starts_with("jmp");
        let callee = instruction.split_once('<').and_then(|(_, rest)| rest.strip_suffix('>'));
        if let Some(name) = callee.filter(|name| is_call && !in_core && is_panic(name)) {
            let why = name.rsplit("::").find(|part| !part.starts_with('h')).unwrap_or(name);
            calls.push((address.to_owned(), why.to_owned()));
        }
    }
    calls
}

/// Whether it is a function of `core` that ends in a panic.
fn is_panic(name: &str) -> bool {
    let ends = ["_fail", "_failed", "_fail_rt"].iter().any(|end| name.ends_with(end));
    name.starts_with("core::panicking::") || name.starts_with("core::") && ends
}

/// For each address that `addr2line -a -i` printed: the innermost line of the project's own.
fn own_lines(printed: &str, root: &str) -> Vec<String> {
    let mut all: Vec<Vec<&str>> = Vec::new();
    for line in printed.lines() {
        match all.last_mut() {
            Some(frames) if !line.starts_with("0x") => frames.push(line),
            _ => all.push(Vec::new()),
        }
    }
    let own = |frames: &Vec<&str>| {
        let own = frames.iter().find_map(|line| line.strip_prefix(root));
        let line = own.map(|line| line.trim_start_matches('/')).or(frames.last().copied());
        let line = line.unwrap_or("?").split(" (").next().unwrap_or_default();
        line.to_owned()
    };
    all.iter().map(own).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_have_sizes() {
        let printed = "Idx Name  Size\n  0 .rodata 00000010 0\n  CONTENTS\n  1 .text 0001b91e 0\n";
        assert_eq!((text_bytes(printed), text_bytes("nothing")), (Some(0x1b91e), None));
    }

    #[test]
    fn calls_of_panics_are_found() {
        let code = "0000 <zonal::a>:\n  10:\tcall   99 <core::panicking::panic_bounds_check>\n  \
                    15:\tjne    99 <core::panicking::panic_fmt>\n  \
                    17:\tjmp    98 <core::slice::index::slice_index_fail>\n  \
                    19:\tcall   97 <zonal::b>\n\n\
                    0098 <core::slice::index::slice_index_fail>:\n  \
                    98:\tcall   99 <core::panicking::panic_fmt>\n";
        let wanted = [("10", "panic_bounds_check"), ("17", "slice_index_fail")];
        assert_eq!(calls(code), wanted.map(|(at, why)| (at.to_owned(), why.to_owned())));
    }

    #[test]
    fn the_innermost_line_of_the_project_counts() {
        let printed = "0x10\n/rustc/a/core.rs:1\n/root/crates/x.rs:7 (discriminator 2)\n\
                       /root/crates/y.rs:8\n0x17\n/rustc/b.rs:2\n";
        assert_eq!(own_lines(printed, "/root"), ["crates/x.rs:7", "/rustc/b.rs:2"]);
    }

    #[test]
    fn what_is_over_none_stands_beside() {
        let text = table(&[("none", vec![10, 20]), ("all", vec![110, 220])]);
        assert!(text.ends_with("110       220       100       200\n"), "{text}");
    }
}
