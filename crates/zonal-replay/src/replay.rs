//! `zonal replay`: what a trace asked of the allocator, asked of presets, on real threads or on a
//! simulated machine.
//!
//! A trace is text: what `cat /sys/kernel/tracing/trace`, `trace-cmd report` or `perf script`
//! print of Linux's `kmem:mm_page_alloc` and `kmem:mm_page_free`, or what `zonal record` writes.
//! Each CPU of the trace gets a thread, which does that CPU's allocations and frees in order, as
//! fast as it can; a free waits until its block was allocated, on whatever thread. A request that
//! is refused is made again when all that comes before it is done. Time between events and
//! zeroing are left out; requests for low memory are made for any.
//!
//! What of a trace could not be replayed is counted and told: events that were lost, frees of
//! blocks allocated before it began, allocations that had failed.
//!
//! | figure | |
//! |---|---|
//! | operations | allocations and frees that were replayed |
//! | ns (cycles) an operation | wall time (simulated cycles) times the CPUs at work, by operations |
//! | failures | requests that no memory was found for |
//! | peak frames | the most in use at once; on threads: in the order of the trace |
//! | hold max | the most work in one hold of a zone lock |
//! | zone lock spin | waiting for zone locks, in % of the cycles (simulated only) |
//! | blocks by zone | allocated blocks in each zone instance |
//!
//! ```
//! use clap::Parser;
//! use zonal_replay::{Cli, Command};
//! let line = "zonal replay build.txt --preset zonal,linux416 --machine skylake_2s_112cpu";
//! let Command::Replay(args) = Cli::parse_from(line.split(' ')).command else {
//!     unreachable!()
//! };
//! assert_eq!(args.preset.len(), 2);
//! ```

pub mod parse;
mod real;
pub mod trace;

use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::path::PathBuf;

use clap::Args;
use serde::Serialize;
use zonal::policy::Sound;
use zonal_sim::machine::Machine;
use zonal_sim::outcome::Outcome;
use zonal_sim::replay::Script;
use zonal_sim::run::{OnPreset, Preset};

use crate::error::ReplayError;
use trace::{Counts, STEP_BYTES, Trace};
use zonal_bench::memory::MachineMemory;
use zonal_cli::bar::Bar;
use zonal_cli::error::LabError;
use zonal_cli::interrupt;
use zonal_cli::provenance::Provenance;
use zonal_cli::size::parse_size;
use zonal_cli::table::Table;
use zonal_scenario::preset::{preset_called, with_preset};
use zonal_simulate::runs::{Simulator, machine_called};

/// The most threads: a trace can name any number of CPUs.
const MOST_THREADS: i64 = 4096;

/// Arguments of `zonal replay`.
#[derive(Clone, Debug, Args)]
pub struct ReplayArgs {
    /// The trace
    #[arg(value_name = "FILE")]
    pub trace: PathBuf,
    /// Presets, separated by commas
    #[arg(long, value_delimiter = ',', value_name = "NAME", value_parser = preset_called,
          default_value = "zonal,linux416")]
    pub preset: Vec<Preset>,
    /// Threads; one for each CPU of the trace if not given. Fewer share its CPUs among them
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=MOST_THREADS),
          conflicts_with = "machine")]
    pub threads: Option<u32>,
    /// Frames to manage, in bytes
    #[arg(long, value_parser = parse_size, default_value = "4G", value_name = "SIZE")]
    pub memory: usize,
    /// Simulate it on this machine: the name of one that is built in, or a file
    #[arg(long)]
    pub machine: Option<String>,
    /// Print JSON, one object a preset and line, instead of a table
    #[arg(long)]
    pub json: bool,
    /// Show no progress bar
    #[arg(long)]
    pub no_progress: bool,
}

/// What a replay on one preset showed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The preset.
    pub preset: String,
    /// The simulated machine; none on real threads.
    pub machine: Option<String>,
    /// Threads, or virtual CPUs at work.
    pub threads: u32,
    /// Allocations and frees.
    pub operations: u64,
    /// The time it took, virtual if simulated.
    pub seconds: f64,
    /// Time an operation, times the CPUs at work.
    pub ns_per_op: Option<f64>,
    /// The same in simulated cycles.
    pub cycles_per_op: Option<f64>,
    /// Requests that were refused.
    pub failures: u64,
    /// The most frames in use at once.
    pub peak_frames: u64,
    /// The most work in one hold of a zone lock.
    pub hold_max: u32,
    /// Waiting for zone locks, in percent of the cycles.
    pub zone_lock_spin: Option<f64>,
    /// Blocks allocated in each zone instance.
    pub zones: Vec<u64>,
}

/// Replays what `args` ask for and prints the results to `out`.
///
/// # Errors
///
/// [`ReplayError`]: the trace cannot be read or needs more memory, a preset or machine is unknown.
pub fn run(args: &ReplayArgs, out: &mut dyn Write) -> Result<(), ReplayError> {
    let path = &args.trace;
    let file = File::open(path);
    let file = file.map_err(|source| ReplayError::Unreadable { path: path.clone(), source })?;
    let room = MachineMemory::read().map_or(u64::MAX, |memory| memory.available / STEP_BYTES);
    let trace = {
        let all = file.metadata().map_or(0, |it| it.len());
        let bar = Bar::new(all, args.no_progress);
        let watched = BufReader::new(Watched { file, bar, read: 0, all });
        Trace::read_up_to(usize::try_from(room).unwrap_or(usize::MAX), watched)
    };
    if interrupt::is_requested() {
        return Err(LabError::Interrupted.into());
    }
    let trace = trace.map_err(|source| ReplayError::Trace { path: path.clone(), source })?;
    // What is only needed to read on is not kept.
    let Trace { script, counts, .. } = trace;
    let machine = args.machine.as_deref().map(|name| machine_called(&Simulator, name));
    let machine = machine.transpose()?;
    let mut rows = Vec::new();
    let bar = Bar::new(args.preset.len() as u64, args.no_progress);
    for (done, preset) in args.preset.iter().enumerate() {
        if interrupt::is_requested() {
            break;
        }
        bar.at(done as u64, args.preset.len() as u64, preset.name());
        rows.push(match &machine {
            Some(machine) => simulated(machine, *preset, &script, args.memory)?,
            None => threaded(*preset, &script, args)?,
        });
    }
    drop(bar);
    if args.json {
        json(args, &counts, &rows, out)?;
    } else {
        print(args, &counts, &rows, out)?;
    }
    out.flush()?;
    Ok(interrupt::outcome()?)
}

/// A trace that is being read, and the bar that says how much of it was.
struct Watched {
    file: File,
    bar: Bar,
    read: u64,
    all: u64,
}

impl Read for Watched {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if interrupt::is_requested() {
            // It may have no end. Of this kind because readers try again after `Interrupted`.
            return Err(io::Error::other("interrupted"));
        }
        let read = self.file.read(buffer)?;
        self.read += read as u64;
        self.bar.at(self.read, self.all.max(self.read), "reading the trace");
        Ok(read)
    }
}

/// A script on real threads.
struct Threaded<'a> {
    script: &'a Script,
    memory: usize,
    threads: usize,
}

impl OnPreset for Threaded<'_> {
    type Output = Result<Row, ReplayError>;

    fn run<S: Sound>(self) -> Self::Output {
        real::run::<S>(self.script, self.memory, self.threads)
    }
}

fn threaded(preset: Preset, script: &Script, args: &ReplayArgs) -> Result<Row, ReplayError> {
    let most = MOST_THREADS as usize;
    let threads = args.threads.map_or(script.cpus().min(most), |threads| threads as usize);
    with_preset(preset, Threaded { script, memory: args.memory, threads })?
}

fn simulated(
    machine: &Machine,
    preset: Preset,
    script: &Script,
    memory: usize,
) -> Result<Row, ReplayError> {
    let (given, needed) = (memory as u64, script.peak_frames() * 4096);
    if needed > given {
        return Err(ReplayError::TraceNeedsMore { given, needed });
    }
    let outcome = zonal_sim::replay::run(machine, preset, script, given)?;
    Ok(row_of(&outcome))
}

fn row_of(outcome: &Outcome) -> Row {
    let count = |name: &str| outcome.figure(name).unwrap_or(0.0) as u64;
    let operations = count("operations");
    let zones = (0..).map_while(|id| outcome.figure(&format!("allocs_zone_{id}")));
    Row {
        preset: outcome.preset.clone(),
        machine: Some(outcome.machine.clone()),
        threads: outcome.tasks,
        operations,
        seconds: outcome.seconds,
        ns_per_op: None,
        cycles_per_op: Some(outcome.cycles as f64 / operations.max(1) as f64),
        failures: count("failures"),
        peak_frames: count("peak_frames"),
        hold_max: count("hold_max") as u32,
        zone_lock_spin: Some(outcome.spin_percent("zone")),
        zones: zones.map(|blocks| blocks as u64).collect(),
    }
}

fn json(args: &ReplayArgs, counts: &Counts, rows: &[Row], out: &mut dyn Write) -> io::Result<()> {
    /// A row with what was found in the trace.
    #[derive(Serialize)]
    struct Line<'a> {
        trace: String,
        #[serde(flatten)]
        row: &'a Row,
        found: &'a Counts,
        #[serde(flatten)]
        origin: &'a Provenance,
    }
    let origin = Provenance::of_this_run();
    for row in rows {
        let trace = args.trace.display().to_string();
        serde_json::to_writer(&mut *out, &Line { trace, row, found: counts, origin })?;
        writeln!(out)?;
    }
    Ok(())
}

fn print(args: &ReplayArgs, counts: &Counts, rows: &[Row], out: &mut dyn Write) -> io::Result<()> {
    let on = match rows.first().and_then(|row| row.machine.as_deref()) {
        Some(machine) => format!("simulated on {machine}"),
        None => "on threads".to_owned(),
    };
    writeln!(out, "{}: {} blocks, {on}", args.trace.display(), counts.allocs)?;
    writeln!(out, "{}", table(rows))?;
    let told = [
        (counts.lost, "events were lost by the tracer: what depends on them is missing"),
        (counts.foreign_frees, "frees of blocks that the trace does not allocate: left out"),
        (counts.implied_frees, "blocks allocated twice without a free between: freed just before"),
        (counts.other_order, "frees of a part of a block: all of it was freed"),
        (counts.failed, "allocations that had failed: left out"),
        (counts.raised_limits, "requests for low memory: made for any"),
        (counts.unknown_flags, "flags that mean nothing here: left out"),
        (counts.unknown_events, "events of something else: left out"),
    ];
    for (count, what) in told.into_iter().filter(|(count, _)| *count > 0) {
        writeln!(out, "{count} {what}")?;
    }
    Ok(())
}

fn table(rows: &[Row]) -> Table {
    let simulated = rows.iter().any(|row| row.machine.is_some());
    let mut table = Table::new(2);
    table.text("preset");
    table.number("threads", "");
    table.number("operations", "");
    table.number("time", "s");
    table.number("an op", if simulated { "cycles" } else { "ns" });
    table.number("failures", "");
    table.number("peak", "frames");
    table.number("longest hold", "frames");
    table.number("zone lock spin", "%");
    table.number("blocks by zone", "");
    for row in rows {
        let each = row.ns_per_op.or(row.cycles_per_op).unwrap_or_default();
        let zones: Vec<String> = row.zones.iter().map(u64::to_string).collect();
        table.row([
            row.preset.clone(),
            row.threads.to_string(),
            row.operations.to_string(),
            format!("{:.6}", row.seconds),
            format!("{each:.1}"),
            row.failures.to_string(),
            row.peak_frames.to_string(),
            row.hold_max.to_string(),
            row.zone_lock_spin.map_or(String::new(), |percent| format!("{percent:.2}")),
            zones.join(" "),
        ]);
    }
    table
}
