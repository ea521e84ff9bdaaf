//! What a linker makes of a kernel in C and the library: by link-time optimisation the functions that the kernel gives are
//! part of those that call them. `cargo xtask c-inline`.

use crate::no_std::BARE;
use crate::steps::target_dir;
use crate::tools::have;
use anyhow::{Context, Result, ensure};
use std::path::PathBuf;
use xshell::{Shell, cmd};

const EXAMPLE: &str = "crates/zonal-capi/examples/inlined.c";
const INCLUDE: &str = "crates/zonal-capi/include";
/// As the target has it: LLVM puts no function into one that has fewer instructions. And none that was compiled with
/// `-ffreestanding` into one that was not.
const LIKE_RUST: &str = "--target=x86_64-unknown-none-elf -mno-red-zone -mcmodel=kernel -mno-mmx -mno-sse \
     -mno-sse2 -mno-x87 -msoft-float -I/usr/include -I/usr/include/x86_64-linux-gnu -w";
/// The kernel's functions that are called where a frame is allocated or freed.
const HOT: [&str; 4] = ["cpu", "interrupts_off", "interrupts_restore", "address"];

pub(crate) fn run(shell: &Shell) -> Result<()> {
    for tool in ["clang", "objdump"] {
        ensure!(have(shell, tool), "`{tool}` is not installed, which only this check needs");
    }
    let linker = linker(shell)?;
    let library = library(shell)?;
    let folder = shell.create_temp_dir()?;
    let calls = |options: &[&str], name: &str| -> Result<usize> {
        let (object, program) =
            (folder.path().join(name), folder.path().join(format!("{name}.elf")));
        let like = LIKE_RUST.split_whitespace();
        cmd!(shell, "clang -O2 {options...} {like...} -I {INCLUDE} -c {EXAMPLE} -o {object}")
            .run()?;
        cmd!(shell, "{linker} -static --gc-sections -O2 --lto-O3 -e start {object} {library}")
            .args(["-o"])
            .arg(&program)
            .ignore_stderr()
            .run()?;
        let code = cmd!(shell, "objdump -d {program}").quiet().read()?;
        let is_call = |line: &&str| {
            line.contains("call")
                && HOT.iter().any(|it| line.ends_with(&format!("<zonal_host_{it}>")))
        };
        Ok(code.lines().filter(is_call).count())
    };
    let (inlined, called) = (calls(&["-flto=thin"], "inlined")?, calls(&[], "called")?);
    println!("calls of the kernel's functions: {called}, with link-time optimisation {inlined}");
    ensure!(called > 0, "the check finds no calls, not even where there are some");
    ensure!(inlined == 0, "{inlined} calls are left");
    Ok(())
}

/// The linker of the toolchain, which knows its bitcode.
fn linker(shell: &Shell) -> Result<PathBuf> {
    let root = cmd!(shell, "rustc --print target-libdir").quiet().read()?;
    let bin = PathBuf::from(root).parent().context("it has a parent")?.join("bin/gcc-ld/ld.lld");
    ensure!(shell.path_exists(&bin), "the toolchain has no {}", bin.display());
    Ok(bin)
}

/// The library as bitcode.
fn library(shell: &Shell) -> Result<PathBuf> {
    let dir = target_dir(shell).join("capi").join("bitcode");
    let kind = ["--release", "--locked", "--lib", "--crate-type", "staticlib"];
    cmd!(shell, "cargo rustc -p zonal-capi {kind...} --no-default-features --target {BARE}")
        .env("CARGO_TARGET_DIR", &dir)
        .env("CARGO_PROFILE_RELEASE_PANIC", "abort")
        .env("CARGO_PROFILE_RELEASE_LTO", "off")
        .env("RUSTFLAGS", "-Clinker-plugin-lto")
        .run()?;
    Ok(dir.join(BARE).join("release/libzonal_capi.a"))
}
