//! Random schedules of the explorer (`crates/zonal-explore`) for as long as wanted, over days and
//! restarts: what was run stands in a file, which the next run goes on with.

use crate::steps::target_dir;
use anyhow::{Context, Result, ensure};
use clap::Args;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use xshell::{Shell, cmd};

/// Seeds between two writes of the file: a minute or so.
const BATCH: u64 = 50_000;

#[derive(Args)]
pub(crate) struct Explore {
    /// How long.
    #[arg(long, default_value_t = 1.0)]
    hours: f64,
    /// What was run so far; made if it is not there [default: explore.toml in the target directory].
    /// Beside it, with the ending `log`, is a line for each batch.
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,
    /// On this preset only; otherwise each seed draws one of sixteen.
    #[arg(long)]
    preset: Option<String>,
}

/// What was run so far.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
struct State {
    /// The first seed that was not.
    next_seed: u64,
    /// For how long, all runs together.
    seconds: f64,
    /// First seeds of batches with a seed that failed; nothing of such a batch is counted.
    failed: Vec<u64>,
    /// Commits at which it was run.
    commits: Vec<String>,
    /// Checked steps by preset.
    steps: BTreeMap<String, u64>,
}

impl State {
    fn read(shell: &Shell, file: &Path) -> Result<Self> {
        if !shell.path_exists(file) {
            return Ok(Self::default());
        }
        let text = shell.read_file(file)?;
        toml::from_str(&text).with_context(|| format!("{} is no state of a run", file.display()))
    }

    fn all_steps(&self) -> u64 {
        self.steps.values().sum()
    }

    /// Adds what the explorer printed of a batch.
    fn add(&mut self, printed: &str) -> Result<()> {
        let mut lines = 0;
        for line in printed.lines() {
            let Some(rest) = line.trim().strip_prefix("steps ") else { continue };
            let (steps, preset) = rest.split_once(' ').context("a number and a preset")?;
            *self.steps.entry(preset.to_owned()).or_default() += steps.parse::<u64>()?;
            lines += 1;
        }
        ensure!(lines > 0, "the explorer said of no preset what it ran");
        Ok(())
    }
}

/// Whether the explorer failed for want of such a preset: no seed was run, and none would be. Whatever else it fails of,
/// and if it says nothing because it was killed, is found by a seed.
fn is_unknown(preset: Option<&str>, errors: &str) -> bool {
    preset.is_some_and(|preset| errors.contains(&format!("{preset} is none of [")))
}

/// What the log says of the batch that begins at the next seed; the commit is the last to be run.
fn line(
    state: &State,
    preset: Option<&str>,
    steps: u64,
    is_good: bool,
    elapsed: Duration,
) -> String {
    let (from, commit) = (state.next_seed, state.commits.last().map_or("unknown", String::as_str));
    let result = if is_good { "ok" } else { "FAILED" };
    let to = from + BATCH - 1;
    let on = preset.map_or_else(String::new, |preset| format!(" on {preset}"));
    format!(
        "seeds {from}..={to}{on} commit {commit} steps {steps} at {:.0} s {result}",
        elapsed.as_secs_f64()
    )
}

/// Adds a line to the log beside the state.
fn log(state: &Path, line: &str) -> Result<()> {
    let path = state.with_extension("log");
    let file = OpenOptions::new().create(true).append(true).open(&path);
    let mut file = file.with_context(|| format!("cannot open {}", path.display()))?;
    writeln!(file, "{line}").with_context(|| format!("cannot write {}", path.display()))
}

pub(crate) fn run(shell: &Shell, args: &Explore) -> Result<()> {
    let file = args.state.clone().unwrap_or_else(|| target_dir(shell).join("explore.toml"));
    ensure!(args.hours > 0.0 && args.hours < 1e6, "--hours is more than 0 and less than a million");
    let (began, limit) = (Instant::now(), Duration::from_secs_f64(args.hours * 3600.0));
    let mut state = State::read(shell, &file)?;
    let commit = cmd!(shell, "git rev-parse --short HEAD").quiet().read().unwrap_or_default();
    // The last is the one that is run.
    state.commits.retain(|known| *known != commit);
    state.commits.push(commit);
    let (before, preset) = (state.seconds, args.preset.as_deref());
    let explorer = || cmd!(shell, "cargo test --release --locked -p zonal-explore --lib").quiet();
    // What cannot be built runs no seed.
    explorer().arg("--no-run").run()?;
    while began.elapsed() < limit {
        let from = state.next_seed.to_string();
        let runs = BATCH.to_string();
        let output = explorer()
            .args(["seeds", "--", "--exact", "--nocapture"])
            .env("ZONAL_EXPLORE_FROM", &from)
            .env("ZONAL_EXPLORE_RUNS", runs)
            .envs(preset.map(|preset| ("ZONAL_EXPLORE_PRESET", preset)))
            .ignore_status()
            .output()?;
        let printed = String::from_utf8_lossy(&output.stdout);
        let before_batch = state.all_steps();
        if output.status.success() {
            state.add(&printed)?;
        } else {
            let errors = String::from_utf8_lossy(&output.stderr);
            eprintln!("{printed}{errors}");
            let kept = file.display();
            ensure!(
                !is_unknown(preset, &errors),
                "no seed was run: see above; {kept} is as it was"
            );
            state.failed.push(state.next_seed);
        }
        // Before the counts: a batch that is counted is in the log.
        let steps = state.all_steps() - before_batch;
        log(&file, &line(&state, preset, steps, output.status.success(), began.elapsed()))?;
        state.next_seed += BATCH;
        state.seconds = before + began.elapsed().as_secs_f64();
        shell.write_file(&file, toml::to_string(&state)?)?;
        let steps = state.all_steps();
        eprintln!("{} seeds, {steps} steps, {:.0} s", state.next_seed, state.seconds);
    }
    for (preset, steps) in &state.steps {
        println!("{preset:20} {steps:>14} steps");
    }
    let failed = &state.failed;
    ensure!(failed.is_empty(), "batches that failed begin at seeds {failed:?}: see above");
    println!("written to {}", file.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_add_up_and_come_back() {
        let mut state = State::default();
        state.add("running 1 test\nsteps 30 Zonal\nsteps 12 Linux416\n5 runs\n").unwrap();
        state.add("steps 12 Zonal\ntest seeds ... ok\n").unwrap();
        assert_eq!((state.steps["Zonal"], state.steps["Linux416"]), (42, 12));
        let text = toml::to_string(&state).unwrap();
        assert_eq!(toml::from_str::<State>(&text).unwrap(), state);
        assert!(state.add("nothing of it\n").is_err());
    }

    #[test]
    fn a_batch_that_was_not_run_is_told_from_one_that_failed() {
        let failures = [
            "thread 'seeds' panicked at main.rs:1:\nseed 7: two have frame 3\n  on Zonal\n  \
             again: ZONAL_EXPLORE_SEED=7 cargo test -p zonal-sim\n",
            "some requests are refused\n",
            "process didn't exit successfully: `explore seeds` (signal: 9, SIGKILL: kill)\n",
            "thread 'main' has overflowed its stack\n",
            "",
        ];
        for errors in failures {
            assert!(!is_unknown(Some("Zonl"), errors) && !is_unknown(None, errors), "{errors}");
        }
        let unknown = "thread '<unnamed>' panicked at swarm.rs:1:\nZonl is none of [\"Zonal\"]\n";
        assert!(is_unknown(Some("Zonl"), unknown));
    }

    #[test]
    fn the_log_has_a_line_for_each_batch() {
        let commits = vec!["older".to_owned(), "newer".to_owned()];
        let state = State { next_seed: 5000, commits, ..State::default() };
        let dir = std::env::temp_dir().join(format!("explore-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let file = dir.join("explore.toml");
        for (preset, is_good) in [(None, true), (Some("Zonal"), false)] {
            let took = Duration::from_secs(60);
            log(&file, &line(&state, preset, 7, is_good, took)).unwrap();
        }
        let text = std::fs::read_to_string(dir.join("explore.log")).unwrap();
        std::fs::remove_dir_all(&dir).unwrap();
        let (seeds, rest) = ("seeds 5000..=54999", "commit newer steps 7 at 60 s");
        assert_eq!(text, format!("{seeds} {rest} ok\n{seeds} on Zonal {rest} FAILED\n"));
    }
}
