//! `zonal bench`, and the run of `zonal` alone.
//!
//! ```
//! use clap::Parser;
//! use zonal_lab::bench;
//! use zonal_lab::cli::{Cli, Command};
//!
//! let line = "zonal bench hot-pair --subjects free-list --threads 1 --samples 1 --json";
//! let Some(Command::Bench(args)) = Cli::parse_from(line.split(' ')).command else {
//!     unreachable!()
//! };
//! let mut out = Vec::new();
//! bench::run(&args, &mut out)?;
//! assert!(String::from_utf8_lossy(&out).contains(r#""subject":"free-list""#));
//! # Ok::<(), zonal_lab::error::LabError>(())
//! ```

use std::io::{self, Write};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::cli::{BenchArgs, PathArg};
use crate::engine::{Outcome, Progress, Run};
use crate::error::LabError;
use crate::memory::human;
use crate::options::Options;
use crate::plan::{self, Plan};
use crate::pool::Pool;
use crate::report::{self, Files};
use crate::subject::Group;
use crate::subjects;
use crate::workload::{Workload, highalloc};

/// The peer a newcomer sees zonal beside: the one most people have heard of, and one that scales.
const NEWCOMERS_PEER: &str = "mimalloc";

/// A bar on stderr; hidden where that is no terminal. Drawn between samples only: a ticking
/// thread would take a CPU from what is measured.
struct Bar(ProgressBar);

impl Bar {
    fn new(hidden: bool) -> Self {
        let target = if hidden {
            ProgressDrawTarget::hidden()
        } else {
            ProgressDrawTarget::stderr_with_hz(5)
        };
        let bar = ProgressBar::with_draw_target(Some(0), target);
        if let Ok(style) = ProgressStyle::with_template("{bar:30} {percent:>3} % {eta:>4}  {msg}") {
            bar.set_style(style);
        }
        Self(bar)
    }
}

impl Progress for Bar {
    fn step(&mut self, done: u64, all: u64, what: &str) {
        self.0.set_length(all);
        self.0.set_position(done);
        self.0.set_message(what.to_owned());
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// Runs what `args` ask for and prints the results to `out`, remarks to stderr.
///
/// # Errors
///
/// [`LabError`], before anything is measured where the arguments are at fault.
pub fn run(args: &BenchArgs, out: &mut dyn Write) -> Result<(), LabError> {
    let plan = plan::plan(args)?;
    let mut files = Files::open(args.out.as_deref(), args.csv.as_deref())?;
    let pool = start(&plan)?;
    let json = args.json;
    if !json {
        writeln!(out, "{}", machine_line(&plan, args))?;
    }
    let mut missing: Vec<String> = plan.named.clone();
    let mut rows = 0;
    for run in &plan.runs {
        let outcome = measure(run, &pool, args.no_progress)?;
        rows += outcome.rows.len();
        let failed = |name: &str| outcome.absent.iter().any(|it| it.failed && it.subject == name);
        missing.retain(|name| failed(name) || !outcome.rows.iter().any(|row| row.subject == *name));
        files.write(&outcome.rows)?;
        if json {
            report::json_lines(&outcome.rows, out)?;
        } else if !outcome.rows.is_empty() {
            report::print(variant(run), run.touch, &outcome.rows, out)?;
            report::details(run.workload, &outcome.rows, out)?;
        }
    }
    if rows == 0 {
        return Err(LabError::NoResult { who: "any subject".into() });
    }
    if missing.is_empty() { Ok(()) } else { Err(LabError::NoResult { who: missing.join(", ") }) }
}

/// What `zonal` does without arguments: `page-fault1`, zonal beside one peer.
///
/// # Errors
///
/// [`LabError`].
pub fn newcomer(out: &mut dyn Write) -> Result<(), LabError> {
    let entries = subjects::all();
    let built_in = |name: &&str| entries.iter().any(|entry| entry.profile.name == *name);
    let peer = [NEWCOMERS_PEER, "free-list"].into_iter().find(built_in).unwrap_or("free-list");
    // The default preset is the first.
    let preset = entries.iter().find(|entry| entry.profile.group == Group::Zonal);
    let args = BenchArgs {
        workload: Workload::PageFault1.name().into(),
        threads: Vec::new(),
        memory: 4 << 30,
        overcommit: true,
        preset: Vec::new(),
        subjects: preset
            .map(|it| it.profile.name)
            .into_iter()
            .chain([peer])
            .map(Into::into)
            .collect(),
        path: PathArg::All,
        duration: None,
        samples: 15,
        seed: 1,
        touch: false,
        by_cpu: false,
        compact: false,
        delay_ms: Vec::new(),
        highalloc_memory: highalloc::DEFAULT_MEMORY,
        json: false,
        csv: None,
        out: None,
        no_progress: false,
    };
    let plan = plan::plan(&args)?;
    let pool = start(&plan)?;
    writeln!(out, "{}", machine_line(&plan, &args))?;
    for run in &plan.runs {
        let outcome = measure(run, &pool, false)?;
        report::print(variant(run), false, &outcome.rows, out)?;
        writeln!(out)?;
        for verdict in report::verdicts(&outcome.rows) {
            writeln!(out, "{verdict}")?;
        }
    }
    writeln!(out, "More: zonal bench all, zonal bench --help")?;
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

fn measure(run: &Run, pool: &Pool, no_progress: bool) -> Result<Outcome, LabError> {
    let outcome = {
        let mut bar = Bar::new(no_progress);
        run.carry_out(pool, &mut bar)
    };
    report::absences(run.workload, &outcome, &mut io::stderr())?;
    Ok(outcome)
}

fn machine_line(plan: &Plan, args: &BenchArgs) -> String {
    let pages = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
    let chosen = |text: String| {
        text.split(['[', ']']).nth(1).map(|mode| format!(", transparent huge pages: {mode}"))
    };
    format!(
        "{} CPUs, {} of frames a subject, seed {}{}",
        plan.cpus.len(),
        human(args.memory as u64),
        args.seed,
        pages.ok().and_then(chosen).unwrap_or_default()
    )
}
