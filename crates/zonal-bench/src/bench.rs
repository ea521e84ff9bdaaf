//! `zonal bench` on the subjects that a program has.
//!
//! ```
//! use clap::Parser;
//! use zonal_bench::{args::BenchLine, bench, program::Quick, subjects};
//!
//! let line = "bench hot-pair --subjects free-list --threads 1 --samples 1 --json";
//! let line = BenchLine::parse_from(line.split(' '));
//! let mut out = Vec::new();
//! bench::run(&line.args, &subjects::references::<Quick>(), &mut out)?;
//! assert!(String::from_utf8_lossy(&out).contains(r#""subject":"free-list""#));
//! # Ok::<(), zonal_cli::error::LabError>(())
//! ```

use core::cmp::Reverse;
use core::time::Duration;
use std::collections::HashSet;
use std::io::{self, Write};
use std::time::Instant;

use crate::args::BenchArgs;
use crate::engine::{Outcome, Progress, Run};
use crate::headline;
use crate::options::Options;
use crate::plan::{self, Plan};
use crate::pool::Pool;
use crate::report::{self, Files};
use crate::subjects::Entry;
use crate::workload::Workload;
use zonal_cli::bar::Bar;
use zonal_cli::error::LabError;
use zonal_cli::interrupt;
use zonal_cli::size::human;
use zonal_cli::terminal;

/// How far all runs are, on one bar.
struct Shown {
    bar: Bar,
    /// Since when.
    start: Instant,
    /// What the runs to come are expected to take.
    to_come: Duration,
}

impl Shown {
    fn new(hidden: bool) -> Self {
        Self { bar: Bar::of_time(hidden), start: Instant::now(), to_come: Duration::ZERO }
    }
}

impl Progress for Shown {
    fn step(&mut self, _done: Duration, left: Duration, what: &str) {
        self.bar.time(self.start.elapsed(), left + self.to_come, what);
    }

    fn is_over(&self) -> bool {
        interrupt::is_requested()
    }
}

/// Runs what `args` ask for and prints the results to `out`, remarks to stderr.
///
/// # Errors
///
/// [`LabError`], before anything is measured where the arguments are at fault.
pub fn run(args: &BenchArgs, entries: &[Entry], out: &mut dyn Write) -> Result<(), LabError> {
    let plan = plan::plan(args, entries)?;
    let mut files = Files::open(args.out.as_deref(), args.csv.as_deref())?;
    let pool = start(&plan)?;
    let json = args.json;
    if !json {
        writeln!(out, "{}", machine_line(&plan, args))?;
    }
    warn_of_duration(&plan, args.duration)?;
    // Both only grow: what failed in one workload has failed, whatever others bring.
    let (mut measured, mut failed) = (HashSet::new(), HashSet::new());
    let mut shown = Shown::new(args.no_progress);
    for (at, run) in plan.runs.iter().enumerate() {
        shown.to_come = plan.runs[at + 1..].iter().map(Run::guess).sum();
        let outcome = measure(run, &pool, &mut shown)?;
        measured.extend(outcome.rows.iter().map(|row| row.subject));
        failed.extend(outcome.absent.iter().filter(|it| it.failed).map(|it| it.subject));
        let all = outcome.all();
        files.write(&all)?;
        if json {
            report::json_lines(&all, out)?;
        } else if !all.is_empty() {
            report::print(variant(run), run.touch, &all, true, out)?;
            report::details(run.workload, &outcome.rows, out)?;
        }
        if interrupt::is_requested() {
            return Err(LabError::Interrupted);
        }
    }
    if measured.is_empty() {
        return Err(LabError::NoResult { who: "any subject".into() });
    }
    let lacks = |name: &&str| failed.contains(name) || !measured.contains(name);
    let missing: Vec<&str> = plan.named.iter().map(String::as_str).filter(lacks).collect();
    if missing.is_empty() { Ok(()) } else { Err(LabError::NoResult { who: missing.join(", ") }) }
}

/// [`run`] for someone who sees it for the first time: a table, and what it says.
///
/// # Errors
///
/// [`LabError`].
pub fn first(args: &BenchArgs, entries: &[Entry], out: &mut dyn Write) -> Result<(), LabError> {
    let plan = plan::plan(args, entries)?;
    let pool = start(&plan)?;
    writeln!(out, "{}", machine_line(&plan, args))?;
    for run in &plan.runs {
        let outcome = measure(run, &pool, &mut Shown::new(args.no_progress))?;
        report::print(variant(run), false, &outcome.all(), false, out)?;
        writeln!(out)?;
        for sentence in headline::sentences(&outcome.rows) {
            writeln!(out, "{}", terminal::strong(&terminal::fold(&sentence)))?;
        }
    }
    if interrupt::is_requested() {
        return Err(LabError::Interrupted);
    }
    Ok(())
}

/// The workload, with a variant that stands for all of the run: they differ in a delay at most.
fn variant(run: &Run) -> (Workload, Options) {
    (run.workload, run.variants.first().copied().unwrap_or_default())
}

fn start(plan: &Plan) -> Result<Pool, LabError> {
    let most = plan.runs.iter().flat_map(|run| run.threads.iter().copied()).max().unwrap_or(1);
    Pool::new(&plan.cpus[..most.min(plan.cpus.len())])
        .map_err(|source| LabError::Machine { what: "start pinned threads", source })
}

/// Says so where `--duration` is too short for the samples that every case is given.
fn warn_of_duration(plan: &Plan, duration: Option<Duration>) -> io::Result<()> {
    let Some(asked) = duration else { return Ok(()) };
    let needed = plan.runs.iter().map(Run::guess).max().unwrap_or_default();
    if needed > asked + asked / 2 {
        let seconds = needed.as_secs_f64();
        writeln!(
            io::stderr(),
            "--duration: each subject and thread count has three samples at least, which takes \
             {seconds:.0} s or more a workload"
        )?;
    }
    Ok(())
}

fn measure(run: &Run, pool: &Pool, shown: &mut Shown) -> Result<Outcome, LabError> {
    let outcome = run.carry_out(pool, shown);
    shown.bar.hide_while(|| report::absences(run.workload, &outcome, &mut io::stderr()))?;
    Ok(outcome)
}

fn machine_line(plan: &Plan, args: &BenchArgs) -> String {
    let pages = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
    let chosen = |text: String| {
        text.split(['[', ']']).nth(1).map(|mode| format!(", transparent huge pages: {mode}"))
    };
    // `stress-highalloc` has its own.
    let mut memories: Vec<usize> = plan.runs.iter().map(|run| run.memory).collect();
    memories.sort_unstable_by_key(|&bytes| Reverse(bytes));
    memories.dedup();
    let memories: Vec<String> = memories.into_iter().map(|bytes| human(bytes as u64)).collect();
    terminal::fold(&format!(
        "{} CPUs, {} of frames a subject, seed {}{}",
        plan.cpus.len(),
        memories.join(" or "),
        args.seed,
        pages.ok().and_then(chosen).unwrap_or_default()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::BenchLine;
    use crate::program::Quick;
    use crate::subjects;
    use clap::Parser;

    #[test]
    fn the_heading_says_the_memory_that_the_workloads_use() {
        let heading = |line: &str| {
            let line = format!("bench --subjects free-list {line}");
            let args = BenchLine::parse_from(line.split(' ')).args;
            machine_line(&plan::plan(&args, &subjects::references::<Quick>()).expect("fine"), &args)
        };
        let line = heading("hot-pair --threads 1 --memory 320M");
        assert!(line.contains(", 320 MiB of frames"), "{line}");
        let line = heading("all --threads 1 --memory 320M --highalloc-memory 64M");
        assert!(line.contains(", 320 MiB or 64 MiB of frames"), "{line}");
        if crate::machine::cpus().expect("affinity").len() > 1 {
            let line = heading("stress-highalloc --threads 2 --highalloc-memory 64M");
            assert!(line.contains(", 64 MiB of frames"), "{line}");
        }
    }
}
