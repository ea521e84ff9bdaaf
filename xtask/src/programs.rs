//! The programs that have the tests, run two at a time where there is no nextest. `cargo test` runs one after the other, and
//! many have one long test at their end, or wait.

use crate::beside;
use anyhow::{Context, Result, ensure};
use cargo_metadata::{Artifact, Message};
use std::path::PathBuf;
use std::process::Command;
use xshell::{Shell, cmd};

/// Those that take longest, which begin first: the last ones are to be short, or one CPU would be idle at the end.
const LONGEST: [(&str, &str); 10] = [
    ("zonal-testkit", "all"),
    ("zonal-bench-all", "cli"),
    ("zonal-sim", "workloads"),
    ("zonal-bench-all", "workloads"),
    ("zonal-cache", "all"),
    ("zonal-calibrate", "calibrate"),
    ("zonal-cache", "refused"),
    ("zonal-lab", "front"),
    ("zonal-mount", "mounts"),
    ("zonal-sim", "engine"),
];

/// A program with tests.
#[derive(PartialEq, Eq, Debug)]
struct Program {
    file: PathBuf,
    /// Its package's directory, in which cargo runs it.
    folder: PathBuf,
    package: String,
    target: String,
}

impl Program {
    /// What cargo built, if it has tests.
    fn of(artifact: Artifact) -> Option<Self> {
        let file = artifact.executable.filter(|_| artifact.profile.test)?.into_std_path_buf();
        let folder = artifact.manifest_path.parent()?.as_std_path().to_owned();
        let package = folder.file_name()?.to_str()?.to_owned();
        Some(Self { file, folder, package, target: artifact.target.name })
    }

    fn name(&self) -> String {
        format!("{} {}", self.package, self.target)
    }

    /// Its place in the order.
    fn place(&self) -> usize {
        let is_it = |&(package, target): &_| self.package == package && self.target == target;
        LONGEST.iter().position(is_it).unwrap_or(LONGEST.len())
    }

    /// As cargo runs it.
    fn command(&self) -> Command {
        let mut command = Command::new(&self.file);
        command.current_dir(&self.folder).env("CARGO_MANIFEST_DIR", &self.folder);
        command
    }
}

/// Builds what these arguments of cargo say, and runs all of it.
pub(crate) fn run(shell: &Shell, which: &[&str]) -> Result<()> {
    let mut programs = build(shell, which)?;
    ensure!(!programs.is_empty(), "cargo built no tests");
    programs.sort_by_key(Program::place);
    let (count, mut failed) = (programs.len(), Vec::new());
    let programs = programs.into_iter().map(|program| {
        // What does not come to its end is among those that have none.
        eprintln!("--- {} begins", program.name());
        (program.name(), program.command())
    });
    beside::two_at_a_time(programs, |name, ended| {
        eprintln!("\n--- {name} took {:.1} s", ended.time.as_secs_f64());
        eprint!("{}", ended.said);
        if !ended.status.success() {
            failed.push(format!("{name}: {}", ended.status));
        }
        Ok(())
    })?;
    ensure!(
        failed.is_empty(),
        "{} of {count} programs failed:\n{}",
        failed.len(),
        failed.join("\n")
    );
    Ok(())
}

fn build(shell: &Shell, which: &[&str]) -> Result<Vec<Program>> {
    // What has tests, by its manifest: with `--lib`, `--bins` and `--examples` cargo builds the others as tests too.
    let build = cmd!(shell, "cargo test {which...} --tests --no-run");
    let said = build.arg("--message-format=json-render-diagnostics").read()?;
    let mut programs = Vec::new();
    for message in Message::parse_stream(said.as_bytes()) {
        if let Message::CompilerArtifact(artifact) = message.context("what cargo built")? {
            programs.extend(Program::of(artifact));
        }
    }
    Ok(programs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn program(package: &str, target: &str) -> Program {
        let text = |text: &str| text.to_owned();
        let folder = Path::new("/crates").join(package);
        Program { file: "/bin/true".into(), folder, package: text(package), target: text(target) }
    }

    #[test]
    fn the_longest_begin_first_and_the_others_stay_in_their_order() {
        let (first, second) = (LONGEST[0], LONGEST[1]);
        let all = [("zonal", "b"), second, ("zonal", "a"), first];
        let mut programs = all.map(|(package, target)| program(package, target));
        programs.sort_by_key(Program::place);
        let wanted = [first, second, ("zonal", "b"), ("zonal", "a")];
        assert_eq!(programs, wanted.map(|(package, target)| program(package, target)));
    }

    /// A test that is moved elsewhere would begin late, and nothing else would say so.
    #[test]
    fn the_longest_are_there() {
        let crates = crate::root().unwrap().join("crates");
        for (package, target) in LONGEST {
            let tests = crates.join(package).join("tests");
            let file = tests.join(target).with_extension("rs");
            assert!(file.is_file() || tests.join(target).is_dir(), "{package} {target}");
        }
    }
}
