//! The fuzz targets, built as `cargo fuzz` builds them: `cargo xtask fuzz-smoke` runs each for some seconds, `cargo xtask
//! fuzz` one for as long as is asked.
//!
//! What `cargo fuzz` adds for that are the compiler's flags below; to build it takes longer than what it is for here. It
//! runs the same targets on the same corpus.

use crate::steps::target_dir;
use anyhow::{Context, Result, ensure};
use cargo_metadata::MetadataCommand;
use clap::Args;
use std::path::{Path, PathBuf};
use xshell::{Shell, cmd};

const FOLDER: &str = "fuzz";
/// Counters on every edge, and the operands of comparisons, which libFuzzer follows. Without a sanitizer nothing is built
/// that is not on the machine.
const FLAGS: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares";

/// A target and how long.
#[derive(Args)]
pub(crate) struct Fuzz {
    /// Which: a file of `fuzz/fuzz_targets`
    target: String,
    /// For how many seconds; 0 is until it finds something or is stopped
    #[arg(long, default_value_t = 0)]
    seconds: u32,
}

/// How the targets are optimised.
#[derive(Clone, Copy)]
enum For {
    /// Seconds, for which every optimisation takes longer than it saves.
    Smoke,
    /// Hours.
    Search,
}

impl Fuzz {
    pub(crate) fn run(&self, shell: &Shell) -> Result<()> {
        let targets = targets(shell)?;
        ensure!(targets.contains(&self.target), "the targets are {}", targets.join(", "));
        let programs = build(shell, For::Search, &["--bin", &self.target])?;
        run_one(shell, &programs, &self.target, self.seconds)
    }
}

/// Every target for some seconds.
pub(crate) fn smoke(shell: &Shell) -> Result<()> {
    let targets = targets(shell)?;
    let programs = build(shell, For::Smoke, &["--bins"])?;
    targets.iter().try_for_each(|target| run_one(shell, &programs, target, seconds_of(target)))
}

/// How long a target is fuzzed: what it can find in little time it finds in this.
fn seconds_of(target: &str) -> u32 {
    match target {
        // A text is read in microseconds, a sequence of commands in milliseconds.
        "machine" | "trace" => 3,
        "online" => 6,
        _ => 8,
    }
}

fn targets(shell: &Shell) -> Result<Vec<String>> {
    let manifest = shell.current_dir().join(FOLDER).join("Cargo.toml");
    let metadata = MetadataCommand::new()
        .manifest_path(manifest)
        .no_deps()
        .other_options(["--locked".to_owned()])
        .exec()
        .context("what cargo metadata says of the fuzz targets")?;
    let targets = metadata.packages.into_iter().flat_map(|package| package.targets);
    let targets: Vec<String> = targets.map(|target| target.name).collect();
    ensure!(!targets.is_empty(), "there is no fuzz target");
    Ok(targets)
}

/// Builds programs; where they are.
fn build(shell: &Shell, what_for: For, which: &[&str]) -> Result<PathBuf> {
    let host = cmd!(shell, "rustc --print host-tuple").quiet().read()?;
    let (folder, level, pieces) = match what_for {
        For::Smoke => ("fuzz-smoke", "0", "4"),
        For::Search => ("fuzz", "3", "1"),
    };
    let target = target_dir(shell).join(folder);
    // With a target, or what runs while it is built had the flags too.
    cmd!(shell, "cargo build --release --locked --target {host} {which...}")
        .env("RUSTFLAGS", FLAGS)
        .env("CARGO_TARGET_DIR", &target)
        .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", level)
        .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", pieces)
        .args(["--manifest-path", &format!("{FOLDER}/Cargo.toml")])
        .run()?;
    Ok(target.join(host).join("release"))
}

fn run_one(shell: &Shell, programs: &Path, target: &str, seconds: u32) -> Result<()> {
    let program = programs.join(target);
    let corpus = format!("{FOLDER}/corpus/{target}");
    let found = format!("{FOLDER}/artifacts/{target}");
    shell.create_dir(&corpus)?;
    shell.create_dir(&found)?;
    let (seconds, found) = (seconds.to_string(), format!("-artifact_prefix={found}/"));
    Ok(cmd!(shell, "{program} -max_total_time={seconds} {found} {corpus}").run()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_the_files_that_are_there() {
        let shell = Shell::new().unwrap();
        shell.change_dir(crate::root().unwrap());
        let mut targets = targets(&shell).unwrap();
        targets.sort();
        let files = shell.read_dir(format!("{FOLDER}/fuzz_targets")).unwrap();
        let mut names: Vec<_> =
            files.iter().map(|file| file.file_stem().unwrap().to_string_lossy()).collect();
        names.sort();
        assert_eq!(targets, names);
    }
}
