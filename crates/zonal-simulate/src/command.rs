//! `zonal sim`: a workload on a simulated machine.
//!
//! The result of a run is its figures (what was done, by name and unit) and its spins (waiting
//! for each class of locks, in percent of the cycles of all CPUs at work, by what the CPU was
//! doing). `--profile` adds where the cycles went: lock by lock, and by class of cache lines.
//!
//! In JSON a run is one object. Its figures and spins are members of it, called as in the tables
//! of published numbers: `faults_per_s`, `zone_lock_spin`, `zone_lock_spin_alloc`. They are also in
//! its `rows`, with their units, called as in the rows of `zonal reproduce`: `metric`, `simulated`,
//! `unit`; as there, `kernel` is the preset. Locks and lines are in `locks` and `lines`.
//!
//! In CSV each number is a line of its own: `machine,workload,kernel,metric,value,unit` and what
//! else tells runs apart. With `--profile` there are `locks.zone.0.waited`, `lines.frames.near` and
//! so on.
//!
//! ```
//! use clap::Parser;
//! use zonal_simulate::{Cli, Command};
//!
//! let line = "zonal sim skylake_2s_112cpu page-fault1 --preset skip-merge,zonal --tasks 56,112";
//! let Command::Sim(args) = Cli::parse_from(line.split(' ')).command;
//! assert_eq!(args.counts(), [56, 112]);
//! ```

use core::num::NonZeroU32;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;

use clap::builder::PossibleValue;
use clap::{Args, ValueEnum};
use zonal_sim::machine::{Machine, TEMPLATE};
use zonal_sim::run::{LruLock, Preset, Spec, Workload};

use crate::error::SimulateError;
use crate::runs::{Job, Pool, RunError, Runner, Simulator, machine_called};
use crate::tasks::Tasks;
use crate::{list, records, tables};
use zonal_cli::error::LabError;
use zonal_cli::outfile::OutFile;
use zonal_scenario::preset::preset_called;

/// Arguments of `zonal sim`.
#[derive(Clone, Debug, Args)]
pub struct SimArgs {
    /// The machine: the name of one that is built in, or a file
    #[arg(required_unless_present_any = ["list", "template"])]
    pub machine: Option<String>,
    /// What its CPUs do
    #[arg(value_parser = workload_parser(), required_unless_present_any = ["list", "template"])]
    pub workload: Option<Workload>,
    /// List machines, workloads and presets
    #[arg(long, conflicts_with_all = ["machine", "template"])]
    pub list: bool,
    /// Print a machine file to begin with, every field of which is described
    #[arg(long, conflicts_with = "machine")]
    pub template: bool,
    /// Presets, separated by commas; every one if not given
    #[arg(long, value_delimiter = ',', value_name = "NAME", value_parser = preset_called)]
    pub preset: Vec<Preset>,
    /// Tasks, each on a CPU of its own, separated by commas; one for each CPU if not given. A..B is
    /// both ends and the powers of two between, A..B:STEP every STEP
    #[arg(long, value_delimiter = ',', value_name = "N")]
    pub tasks: Vec<Tasks>,
    /// Seed of every random choice
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// The lock of the LRU lists, or several separated by commas; that of the preset's kernel if not given
    #[arg(long, value_delimiter = ',')]
    pub lru: Vec<LruArg>,
    /// stress-highalloc: pause between requests, in ms
    #[arg(long, default_value_t = 0, value_name = "N",
          value_parser = clap::value_parser!(u32).range(0..=60_000))]
    pub delay_ms: u32,
    /// thp-mix: millions of single pages before the measured stretch; 2 if not given
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=1000))]
    pub after: Option<u32>,
    /// Regions of a zone in which CPUs begin to look, of presets that have such; by CPUs if not given
    #[arg(long, value_name = "N")]
    pub regions: Option<NonZeroU32>,
    /// Measure a shorter stretch: less exact, several times faster
    #[arg(long)]
    pub quick: bool,
    /// Print JSON, one object a run and line, instead of tables
    #[arg(long)]
    pub json: bool,
    /// Also write the results to this file as CSV
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Also print where the cycles go, by lock and by class of cache lines, and write it to --csv
    #[arg(long)]
    pub profile: bool,
    /// Runs at a time; one for each CPU of this machine if not given
    #[arg(long, default_value_t = 0, hide_default_value = true, value_name = "N")]
    pub jobs: usize,
    /// Show no progress bar
    #[arg(long)]
    pub no_progress: bool,
}

impl SimArgs {
    /// The numbers of tasks, each once, in their order.
    #[must_use]
    pub fn counts(&self) -> Vec<u32> {
        let mut counts = Vec::new();
        for tasks in self.tasks.iter().flat_map(|tasks| &tasks.0) {
            if !counts.contains(tasks) {
                counts.push(*tasks);
            }
        }
        counts
    }
}

/// The workload that `--delay-ms` is for.
pub(crate) const PAUSES: Workload = Workload::StressHighalloc;

/// What `--lru` takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LruArg {
    /// One lock for all
    Whole,
    /// One for each zone, as in Linux 3.16 and the presets built on it
    Zone,
    /// One for each node, as in Linux 4.13, 4.16 and the presets built on it
    Node,
    /// One for each owner, as in Linux 5.11 and later, and for what is zonal's own; each CPU's task is one
    Split,
    /// None: each CPU lists its own pages, and no CPU takes or waits for a lock
    None,
}

impl From<LruArg> for LruLock {
    fn from(arg: LruArg) -> Self {
        match arg {
            LruArg::Whole => Self::Whole,
            LruArg::Zone => Self::Zone,
            LruArg::Node => Self::Node,
            LruArg::Split => Self::Split,
            LruArg::None => Self::None,
        }
    }
}

/// Takes a workload's name; clap lists them all in the help and for one it does not know.
fn workload_parser() -> impl clap::builder::TypedValueParser<Value = Workload> {
    use clap::builder::{PossibleValuesParser, TypedValueParser};
    let names = Workload::ALL.iter().map(|workload| PossibleValue::new(workload.name()));
    PossibleValuesParser::new(names).map(|name| {
        let named = Workload::ALL.into_iter().find(|workload| workload.name() == name);
        named.unwrap_or(Workload::PageFault1)
    })
}

/// Runs what `args` ask for and prints the results to `out`, remarks to stderr.
///
/// # Errors
///
/// [`SimulateError`], before anything is run where the arguments are at fault.
pub fn run(args: &SimArgs, out: &mut dyn Write) -> Result<(), SimulateError> {
    run_on(&Simulator, args, out)
}

/// [`run`] on something else than the simulator.
///
/// # Errors
///
/// As [`run`].
pub fn run_on(
    runner: &impl Runner,
    args: &SimArgs,
    out: &mut dyn Write,
) -> Result<(), SimulateError> {
    if args.template {
        return Ok(out.write_all(TEMPLATE.as_bytes())?);
    }
    let (Some(machine), Some(workload)) = (&args.machine, args.workload) else {
        return Ok(list::print(runner, out)?);
    };
    let machine = Arc::new(machine_called(runner, machine)?);
    let specs = specs(args, workload, &machine)?;
    specs.iter().try_for_each(|spec| runner.check(&machine, spec))?;
    let csv = args.csv.as_deref().map(OutFile::open).transpose()?;
    let jobs: Vec<Job> =
        specs.iter().map(|spec| Job { machine: Arc::clone(&machine), spec: *spec }).collect();
    let results = Pool::new(args.jobs, args.no_progress).carry_out(runner, &jobs)?;
    let mut done = Vec::new();
    let mut failed = Vec::new();
    let mut interrupted = false;
    for (spec, result) in specs.iter().zip(results) {
        match result {
            Ok(outcome) => done.push((*spec, outcome)),
            Err(RunError::Interrupted) => interrupted = true,
            Err(error) => {
                let who = format!("{} on {} CPUs", spec.preset.name(), spec.tasks);
                writeln!(io::stderr(), "{who} failed in {}: {error}", spec.workload)?;
                failed.push(who);
            }
        }
    }
    if args.json {
        for (spec, outcome) in &done {
            serde_json::to_writer(&mut *out, &records::object(spec, outcome))
                .map_err(io::Error::from)?;
            writeln!(out)?;
        }
    } else if !done.is_empty() {
        tables::print(args, workload, &machine, &done, out)?;
    }
    if let Some(file) = csv.filter(|_| !done.is_empty()) {
        file.replace(&records::csv_of(args, &done)?)?;
    }
    if interrupted {
        return Err(LabError::Interrupted.into());
    }
    if failed.is_empty() {
        Ok(())
    } else {
        Err(LabError::NoResult { who: failed.join(", ") }.into())
    }
}

fn specs(
    args: &SimArgs,
    workload: Workload,
    machine: &Machine,
) -> Result<Vec<Spec>, SimulateError> {
    if args.delay_ms > 0 && workload != PAUSES {
        let (option, of) = ("--delay-ms", PAUSES.name());
        return Err(LabError::OptionDoesNotApply { option, workload: workload.name(), of }.into());
    }
    if args.after.is_some() && workload != Workload::ThpMix {
        let (option, of) = ("--after", Workload::ThpMix.name());
        return Err(LabError::OptionDoesNotApply { option, workload: workload.name(), of }.into());
    }
    let all = machine.topology.cpus();
    let counts = if args.tasks.is_empty() { vec![all] } else { args.counts() };
    let chosen = if args.preset.is_empty() { Preset::ALL.to_vec() } else { args.preset.clone() };
    let mut locks: Vec<LruLock> = Vec::new();
    for lru in args.lru.iter().map(|lru| (*lru).into()) {
        if !locks.contains(&lru) {
            locks.push(lru);
        }
    }
    let kinds = chosen.iter().flat_map(|preset| {
        let own = locks.is_empty().then(|| LruLock::of(*preset));
        locks.iter().copied().chain(own).map(|lru| (*preset, lru))
    });
    let each = kinds.flat_map(|(preset, lru)| {
        counts.iter().map(move |tasks| Spec {
            workload,
            preset,
            tasks: *tasks,
            seed: args.seed,
            lru,
            quick: args.quick,
            delay_ms: args.delay_ms,
            after: args.after,
            regions: args.regions,
        })
    });
    Ok(each.collect())
}
