//! The steps: what each runs.

use crate::{
    capi, deny, fsx, fuzz, golden, kernel, no_std, package, paths, programs, rooms, tools,
};
use anyhow::Result;
use cargo_metadata::MetadataCommand;
use clap::{Subcommand, ValueEnum};
use std::fmt;
use std::path::PathBuf;
use xshell::{Shell, cmd};

/// What runs models: optimised, though the models are not.
const EXPLORERS: [&str; 11] = [
    "loom",
    "generator",
    "shuttle",
    "shuttle-engine",
    "shuttle-schedulers",
    "shuttle-std",
    "corosensei",
    "bitvec",
    "scoped-tls",
    "tracing",
    "tracing-core",
];

/// Libraries with features that are off by default. Steps have these on, so that what they need is compiled once.
const WITH_FEATURES: [&str; 2] = ["zonal-host", "zonal-kernel"];

/// A check. They run in this order: what is cheap and often wrong comes first.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Subcommand)]
pub(crate) enum Step {
    /// Installs the tools that are missing
    Setup,
    /// Formatting
    Fmt,
    /// That imports inside the core run one way: see xtask/rooms.toml
    Rooms,
    /// That the core is `no_std` and has no unsafe code and no dependencies
    NoStd,
    /// That the cold paths are as ARCHITECTURE.md lists them
    Paths,
    /// Lints; warnings are errors
    Clippy,
    /// Tests, by nextest where it is installed
    Test,
    /// Examples in the documentation
    Doctest,
    /// Lints without the features that are off by default, which all other steps have
    Features,
    /// Documentation; warnings are errors
    Docs,
    /// Public items, compared with those of the last tag
    Semver,
    /// Licences, sources and duplicates of dependencies
    Deny,
    /// Models of the lock-free parts
    Loom,
    /// Every fuzz target for some seconds
    FuzzSmoke,
    /// Instruction counts of the fast paths, compared with golden.toml
    Golden,
    /// That the crates can be packaged, and libraries built from their packages
    Package,
    /// That a kernel on zonal boots in an emulator, and counts every frame
    Boot,
    /// Random operations of `fsx` on a mount whose bound is an eighth of the file
    Fsx,
    /// Random schedules of larger models
    Shuttle,
    /// That the C interface can be installed, its examples in C run under the sanitizers, and a kernel in C boots
    CExamples,
}

impl Step {
    /// What it checks.
    pub(crate) fn about(self) -> String {
        let help = self.to_possible_value().and_then(|value| value.get_help().cloned());
        help.map_or_else(String::new, |help| help.to_string())
    }

    /// Whether it leaves a CPU idle for much of its time: it runs examples package after package, links a program that is
    /// optimised as a whole, builds packages one by one, runs an emulator, or waits for its longest model; or it is short, and
    /// between such steps. Two of them run side by side: what they build lies in directories of their own, or is built before.
    pub(crate) const fn is_for_one_cpu(self) -> bool {
        !matches!(
            self,
            Self::Setup
                | Self::Fmt
                | Self::Rooms
                | Self::NoStd
                | Self::Paths
                | Self::Clippy
                | Self::Test
        )
    }

    pub(crate) fn run(self, shell: &Shell) -> Result<()> {
        match self {
            Self::Setup => tools::install(shell),
            Self::Fmt => fmt(shell),
            Self::Rooms => rooms::run(shell, None),
            Self::NoStd => no_std::run(shell),
            Self::Paths => paths::run(shell),
            Self::Clippy => clippy(shell),
            Self::Test => test(shell),
            Self::Doctest => doctest(shell),
            Self::Features => features(shell),
            Self::Docs => docs(shell),
            Self::Package => package::run(shell),
            Self::Semver => package::semver(shell),
            Self::Deny => deny::run(shell),
            Self::Golden => golden::run(shell, false),
            Self::Boot => kernel::check(shell),
            Self::Fsx => fsx::run(shell, &fsx::Options::default()),
            Self::CExamples => capi::check(shell),
            Self::Loom => loom(shell, false),
            Self::Shuttle => shuttle(shell, false),
            Self::FuzzSmoke => fuzz::smoke(shell),
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value();
        f.write_str(value.as_ref().map_or("?", |value| value.get_name()))
    }
}

/// Where cargo builds; steps with other compiler flags have directories of their own inside,
/// or they would undo each other's builds.
pub(crate) fn target_dir(shell: &Shell) -> PathBuf {
    let dir = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
    shell.current_dir().join(dir)
}

fn fmt(shell: &Shell) -> Result<()> {
    Ok(cmd!(shell, "cargo fmt --all --check").run()?)
}

fn clippy(shell: &Shell) -> Result<()> {
    let all = ["--workspace", "--locked", "--features", &all_features(shell)?];
    Ok(cmd!(shell, "cargo clippy {all...} --all-targets -- -D warnings").run()?)
}

fn test(shell: &Shell) -> Result<()> {
    let all = ["--workspace", "--locked", "--features", &all_features(shell)?];
    if tools::have(shell, "cargo-nextest") {
        return Ok(cmd!(shell, "cargo nextest run {all...} --no-fail-fast").run()?);
    }
    programs::run(shell, &all)
}

/// All hosts and presets that the suites know.
pub(crate) fn matrix(shell: &Shell) -> Result<()> {
    let test = ["-p", "zonal-testkit", "--features", "matrix", "--test", "all", "--locked"];
    Ok(cmd!(shell, "cargo test {test...}").run()?)
}

fn doctest(shell: &Shell) -> Result<()> {
    let all = ["--workspace", "--locked", "--features", &all_features(shell)?];
    Ok(cmd!(shell, "cargo test {all...} --doc").run()?)
}

/// What all other steps have with these features.
fn features(shell: &Shell) -> Result<()> {
    let packages = WITH_FEATURES.iter().flat_map(|package| ["-p", package]);
    Ok(cmd!(shell, "cargo clippy {packages...} --all-targets --locked -- -D warnings").run()?)
}

/// The features of these crates, for `--features`.
pub(crate) fn all_features(shell: &Shell) -> Result<String> {
    let metadata = MetadataCommand::new()
        .current_dir(shell.current_dir())
        .other_options(["--locked".to_owned()])
        .no_deps()
        .exec()?;
    let packages =
        metadata.packages.iter().filter(|package| WITH_FEATURES.contains(&package.name.as_str()));
    let all: Vec<String> = packages
        .flat_map(|package| package.features.keys().map(|it| format!("{}/{it}", package.name)))
        .collect();
    Ok(all.join(","))
}

fn docs(shell: &Shell) -> Result<()> {
    let all = ["--workspace", "--locked", "--features", &all_features(shell)?];
    let doc = cmd!(shell, "cargo doc {all...} --no-deps");
    Ok(doc.env("RUSTDOCFLAGS", "-Dwarnings").run()?)
}

/// With `wide`, models that take long have all the preemptions that they were ever explored with.
pub(crate) fn loom(shell: &Shell, wide: bool) -> Result<()> {
    if wide {
        shell.set_var("ZONAL_LOOM_WIDE", "1");
    }
    let packages = ["zonal-testkit", "zonal-host", "zonal-kernel", "zonal-cache"];
    // Four fifths of the time of loom's models go to loom, and of a build's to them.
    models(shell, "loom", "0", &packages, &["loom_*", "models_*"])
}

/// With `wide`, four times as many schedules, for which optimising the models pays.
pub(crate) fn shuttle(shell: &Shell, wide: bool) -> Result<()> {
    if wide {
        shell.set_var("ZONAL_SHUTTLE_WIDE", "1");
    }
    let packages = ["zonal-testkit", "zonal-cache"];
    let tests = ["shuttle_threads", "shuttle_cache", "shuttle_reclaim", "shuttle_truncate"];
    models(shell, "shuttle", if wide { "1" } else { "0" }, &packages, &tests)
}

/// Runs the tests that are there with `--cfg CFG`, optimised at that level: side by side by nextest, program after program
/// without it.
fn models(shell: &Shell, cfg: &str, level: &str, packages: &[&str], tests: &[&str]) -> Result<()> {
    let packages = packages.iter().flat_map(|package| ["-p", package]);
    let tests = tests.iter().flat_map(|test| ["--test", test]);
    let all: Vec<_> = packages.chain(tests).collect();
    let run = match tools::have(shell, "cargo-nextest") {
        true => cmd!(shell, "cargo nextest run --release --locked --no-fail-fast {all...}"),
        false => cmd!(shell, "cargo test --release --locked --no-fail-fast {all...}"),
    };
    let of =
        |name: &str, level: u8| format!("profile.release.package.\"{name}\".opt-level={level}");
    let of_dependencies: Vec<_> =
        [of("*", 0)].into_iter().chain(EXPLORERS.map(|name| of(name, 3))).collect();
    Ok(run
        .args(of_dependencies.iter().flat_map(|setting| ["--config", setting]))
        .env("RUSTFLAGS", format!("--cfg {cfg}"))
        .env("CARGO_TARGET_DIR", target_dir(shell).join(cfg))
        .env("CARGO_PROFILE_RELEASE_LTO", "false")
        .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", level)
        .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "4")
        .env("CARGO_PROFILE_RELEASE_DEBUG", "false")
        .run()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn every_step_is_in_the_list_for_contributors() {
        let page = include_str!("../../CONTRIBUTING.md");
        let line = |step: &Step| page.find(&format!("\ncargo xtask {step} "));
        let lines: Vec<_> = Step::value_variants().iter().map(line).collect();
        assert!(!lines.contains(&None), "CONTRIBUTING.md lacks steps: {lines:?}");
        assert!(lines.is_sorted(), "CONTRIBUTING.md has another order: {lines:?}");
    }

    #[test]
    fn every_step_is_a_command_and_says_what_it_does() {
        let command = crate::Args::command();
        for &step in Step::value_variants() {
            assert!(!step.about().is_empty(), "{step}");
            assert!(command.find_subcommand(step.to_string()).is_some(), "no command `{step}`");
        }
    }
}
