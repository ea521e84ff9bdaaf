//! The tools that steps need beyond the toolchain, and where they come from.

use crate::no_std::BARE;
use crate::package::last_tag;
use crate::steps::target_dir;
use anyhow::{Context, Result, bail};
use std::path::PathBuf;
use xshell::{Shell, cmd};

/// Something that cargo can install.
struct Tool {
    command: &'static str,
    /// Pinned, so that a release elsewhere does not change what is checked here.
    version: &'static str,
    wanted: fn(&Shell) -> bool,
}

/// `cargo-nextest` is used where it is and not installed where it is not: `cargo test` does the
/// same tests, and building it takes longer than it saves.
const TOOLS: [Tool; 1] = [
    // In vain without a release to compare with.
    Tool {
        command: "cargo-semver-checks",
        version: "0.51.0",
        wanted: |shell| last_tag(shell).is_some(),
    },
];

/// The version of `fsx`, pinned likewise.
const FSX: &str = "0.3.2";

/// Puts what [`install`] installed on the path of everything that is run.
pub(crate) fn use_installed(shell: &Shell) -> Result<()> {
    let own = root(shell).join("bin");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let dirs = std::iter::once(own).chain(std::env::split_paths(&path));
    shell.set_var("PATH", std::env::join_paths(dirs).context("PATH cannot be extended")?);
    Ok(())
}

/// Tools are kept with the build, out of the user's own directories.
fn root(shell: &Shell) -> PathBuf {
    target_dir(shell).join("tools")
}

/// Whether there is such a command.
pub(crate) fn have(shell: &Shell, command: &str) -> bool {
    cmd!(shell, "{command} --version").quiet().ignore_stdout().ignore_stderr().run().is_ok()
}

/// Refuses to go on without a command.
pub(crate) fn require(shell: &Shell, command: &str) -> Result<()> {
    if have(shell, command) {
        return Ok(());
    }
    bail!("`{command}` is not installed; `cargo xtask setup` installs it")
}

/// Installs what is missing.
pub(crate) fn install(shell: &Shell) -> Result<()> {
    debian(shell, "valgrind", "valgrind")?;
    debian(shell, "qemu-system-x86_64", "qemu-system-x86")?;
    bare_target(shell);
    for Tool { command, version, wanted } in TOOLS {
        if !wanted(shell) {
            continue;
        }
        if have(shell, command) {
            eprintln!("{command}: there");
            continue;
        }
        build(shell, command, version)?;
    }
    Ok(())
}

/// The program `fsx`, built if it is not there: by the step that needs it, which runs beside others, as `setup` does not.
/// Where it is; on the path may be the program in C, which takes other arguments.
pub(crate) fn fsx(shell: &Shell) -> Result<PathBuf> {
    let path = root(shell).join("bin/fsx");
    let version = cmd!(shell, "{path} --version").quiet().ignore_stderr().read();
    if version.is_ok_and(|version| version.trim() == format!("fsx {FSX}")) {
        eprintln!("fsx: there");
    } else {
        build(shell, "fsx", FSX)?;
    }
    Ok(path)
}

fn build(shell: &Shell, command: &str, version: &str) -> Result<()> {
    eprintln!("{command}: building it, which takes minutes");
    let root = root(shell);
    // Unoptimised: a third of the time to build, and they have little to do here. In a directory of its own, which goes
    // again: other steps are not kept from theirs.
    cmd!(shell, "cargo install --debug --locked --quiet {command} --version {version}")
        .args(["--root".as_ref(), root.as_os_str()])
        .env("CARGO_PROFILE_DEV_DEBUG", "false")
        .env_remove("CARGO_TARGET_DIR")
        .run()?;
    Ok(())
}

/// Adds the target that proves the core needs no standard library. Without rustup, or without
/// its server, the core is built for the host only, and the step that does so says so.
fn bare_target(shell: &Shell) {
    if have(shell, "rustup") && cmd!(shell, "rustup target add {BARE}").run().is_err() {
        eprintln!("rustup cannot add the target {BARE}: going on without");
    }
}

/// A command that is not Rust's, by the package that has it.
fn debian(shell: &Shell, command: &str, package: &str) -> Result<()> {
    if have(shell, command) {
        eprintln!("{command}: there");
        return Ok(());
    }
    let is_root = cmd!(shell, "id -u").quiet().read().is_ok_and(|id| id == "0");
    if !is_root || !have(shell, "apt-get") {
        bail!("`{command}` is not installed; install it with the system's package manager");
    }
    eprintln!("{command}: installing it with apt");
    cmd!(shell, "apt-get -q update").run()?;
    Ok(cmd!(shell, "apt-get -q install -y --no-install-recommends {package}").run()?)
}
