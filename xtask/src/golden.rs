//! Instruction counts of the fast paths, compared with the ones in `golden.toml`.
//!
//! callgrind counts `zonal-golden` with n and with 2n iterations; the difference, over n, is
//! exact and the same on every run of one binary. So the tolerance is for other compilers' taste
//! and for changes too small to argue about, not for noise. A count that falls is reported too:
//! the gain is only kept if the file says so.

use crate::steps::target_dir;
use crate::tools;
use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use xshell::{Shell, cmd};

const FILE: &str = "golden.toml";
const HEADER: &str = "\
# Instructions for one block allocated and freed, counted by callgrind.
# `cargo xtask golden` compares, `cargo xtask golden --bless` writes this file.
# A changed number belongs to a commit that says why it changed.

";
/// The case with needless work added, and the one it is to be compared with.
const PLANTED: (&str, &str) = ("Zonal/owned/hot-pair+planted", "Zonal/owned/hot-pair");
/// Used where there is no file yet.
const TOLERANCE_PERCENT: f64 = 3.0;

pub(crate) type Counts = BTreeMap<String, f64>;

/// `golden.toml`.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Golden {
    /// The compiler that the counts are from.
    rustc: String,
    /// How far a count may be off, in either direction.
    tolerance_percent: f64,
    instructions: Counts,
}

/// Compares, or with `bless` writes.
pub(crate) fn run(shell: &Shell, bless: bool) -> Result<()> {
    tools::require(shell, "valgrind")?;
    let rustc = cmd!(shell, "rustc --version").quiet().read()?;
    let mut counts = count_all(shell)?;
    let planted = counts.remove(PLANTED.0).context("the planted case is gone")?;
    if bless {
        let tolerance_percent = read(shell).map_or(TOLERANCE_PERCENT, |old| old.tolerance_percent);
        let new = Golden { rustc, tolerance_percent, instructions: counts };
        shell.write_file(FILE, HEADER.to_owned() + &toml::to_string(&new)?)?;
        eprintln!("{}", table(&new, &new.instructions));
        eprintln!("written to {FILE}");
        return Ok(());
    }
    let golden = read(shell)?;
    eprintln!("{}", table(&golden, &counts));
    if rustc != golden.rustc {
        eprintln!("{FILE} is from {}, this is {rustc}: expect differences", golden.rustc);
    }
    let found = compare(&golden, &counts);
    ensure!(found.is_empty(), "instruction counts differ from {FILE}:\n{}", found.join("\n"));
    // The check itself is checked: it must reject the planted cost.
    counts.insert(PLANTED.1.to_owned(), planted);
    ensure!(compare(&golden, &counts).len() == 1, "a planted cost was not noticed: {planted}");
    eprintln!("the planted cost ({planted} instead of {}) is noticed", golden.of(PLANTED.1)?);
    Ok(())
}

impl Golden {
    fn of(&self, case: &str) -> Result<f64> {
        self.instructions.get(case).copied().with_context(|| format!("{FILE} lacks {case}"))
    }
}

fn read(shell: &Shell) -> Result<Golden> {
    let text = shell
        .read_file(FILE)
        .with_context(|| format!("no {FILE}; `cargo xtask golden --bless` writes one"))?;
    toml::from_str(&text).with_context(|| format!("{FILE} cannot be read"))
}

/// What is wrong with the counts; nothing if all is well.
fn compare(golden: &Golden, counts: &Counts) -> Vec<String> {
    let mut found = Vec::new();
    for (case, &expected) in &golden.instructions {
        let Some(&counted) = counts.get(case) else {
            found.push(format!("{case}: no longer counted"));
            continue;
        };
        let percent = (counted - expected) / expected * 100.0;
        let within = percent.abs() <= golden.tolerance_percent;
        // Written so that a value that is no number is a finding.
        if !within {
            let hint = if percent < 0.0 { "; if it stays, bless it" } else { "" };
            found.push(format!("{case}: {counted} instead of {expected} ({percent:+.1} %){hint}"));
        }
    }
    let new = counts.keys().filter(|case| !golden.instructions.contains_key(*case));
    found.extend(new.map(|case| format!("{case}: not in {FILE}")));
    found
}

fn table(golden: &Golden, counts: &Counts) -> String {
    let mut text = format!("{:<28} {:>10} {:>10}\n", "instructions a block", FILE, "counted");
    for (case, counted) in counts {
        let expected = golden.instructions.get(case).copied().unwrap_or(f64::NAN);
        let _ = writeln!(text, "{case:<28} {expected:>10.2} {counted:>10.2}");
    }
    text
}

/// Builds `zonal-golden` and counts every case.
fn count_all(shell: &Shell) -> Result<Counts> {
    let binary = build(shell)?;
    count_some(shell, &binary, |_| true)
}

/// Builds `zonal-golden` and says where it is.
pub(crate) fn build(shell: &Shell) -> Result<PathBuf> {
    // The golden counts are those of the plain release profile. In a directory of its own, because in a preflight a
    // kernel is built at the same time.
    let target = target_dir(shell).join("golden");
    let build = cmd!(shell, "cargo build --release --locked -p zonal-golden");
    build.env_remove("RUSTFLAGS").env("CARGO_TARGET_DIR", &target).run()?;
    Ok(target.join("release/zonal-golden"))
}

/// Counts the cases that are wanted.
pub(crate) fn count_some(
    shell: &Shell,
    binary: &Path,
    wanted: impl Fn(&str) -> bool,
) -> Result<Counts> {
    let cases = cmd!(shell, "{binary} list").quiet().read()?;
    let mut counts = Counts::new();
    for case in cases.lines() {
        let [name, iterations, blocks] = case.split(' ').collect::<Vec<_>>()[..] else {
            bail!("zonal-golden list says `{case}`");
        };
        if !wanted(name) {
            continue;
        }
        let (iterations, blocks): (u64, u64) = (iterations.parse()?, blocks.parse()?);
        let once = count(shell, binary, name, iterations)?;
        let twice = count(shell, binary, name, 2 * iterations)?;
        let more = twice.checked_sub(once).with_context(|| format!("{name}: {once}, {twice}"))?;
        let a_block = more as f64 / (iterations * blocks) as f64;
        counts.insert(name.to_owned(), (a_block * 100.0).round() / 100.0);
    }
    Ok(counts)
}

/// Instructions of one run.
fn count(shell: &Shell, binary: &Path, case: &str, iterations: u64) -> Result<u64> {
    let iterations = iterations.to_string();
    let tool = ["--tool=callgrind", "--callgrind-out-file=/dev/null"];
    let run = cmd!(shell, "valgrind {tool...} {binary} {case} {iterations}").quiet();
    let output = run.ignore_status().output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{case} failed under valgrind:\n{said}");
    collected(&said).with_context(|| format!("no count in what valgrind says:\n{said}"))
}

/// The number in callgrind's line `==PID== Collected : 123`.
fn collected(said: &str) -> Option<u64> {
    let number = said.lines().find_map(|line| line.split_once("Collected : "))?.1;
    number.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(cases: &[(&str, f64)]) -> Counts {
        cases.iter().map(|&(case, count)| (case.to_owned(), count)).collect()
    }

    fn golden(cases: &[(&str, f64)]) -> Golden {
        Golden { rustc: String::new(), tolerance_percent: 3.0, instructions: counts(cases) }
    }

    #[test]
    fn within_the_tolerance_nothing_is_found() {
        let golden = golden(&[("a", 100.0), ("b", 7.5)]);
        for (a, b) in [(100.0, 7.5), (103.0, 7.3), (97.0, 7.7)] {
            let found = compare(&golden, &counts(&[("a", a), ("b", b)]));
            assert!(found.is_empty(), "{found:?}");
        }
    }

    #[test]
    fn beyond_the_tolerance_each_count_is_named() {
        let golden = golden(&[("a", 100.0), ("b", 7.5), ("c", 1.0)]);
        let found = compare(&golden, &counts(&[("a", 103.1), ("b", 7.2), ("c", 1.0)]));
        assert_eq!(
            found,
            [
                "a: 103.1 instead of 100 (+3.1 %)",
                "b: 7.2 instead of 7.5 (-4.0 %); if it stays, bless it"
            ]
        );
    }

    #[test]
    fn missing_new_and_nonsense_are_found() {
        let known = golden(&[("a", 100.0)]);
        assert_eq!(compare(&known, &counts(&[])), ["a: no longer counted"]);
        let more = counts(&[("a", 100.0), ("b", 1.0)]);
        assert_eq!(compare(&known, &more), ["b: not in golden.toml"]);
        assert_eq!(compare(&known, &counts(&[("a", f64::NAN)])).len(), 1);
        assert_eq!(compare(&golden(&[("a", 0.0)]), &counts(&[("a", 0.0)])).len(), 1);
    }

    #[test]
    fn callgrind_is_understood() {
        let said = "==7== Events    : Ir\n==7== Collected : 2941393\n==7==\n";
        assert_eq!(collected(said), Some(2_941_393));
        assert_eq!(collected("==7== Events    : Ir\n"), None);
    }

    #[test]
    fn the_file_survives_a_round_trip() {
        let text = HEADER.to_owned() + &toml::to_string(&golden(&[("a/b+c", 1.25)])).unwrap();
        let again: Golden = toml::from_str(&text).unwrap();
        assert_eq!(again.instructions, counts(&[("a/b+c", 1.25)]));
    }
}
