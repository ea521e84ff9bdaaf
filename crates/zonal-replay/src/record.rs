//! `zonal record`: a workload on real threads, and what it asked of the allocator as a trace that
//! [`replay`](crate::replay) and Linux's users read.
//!
//! The CPU of each thread has a [ring](zonal_trace::ring) of its own; when the workload is
//! done, the rings are read and merged by time. If one was too small, its oldest events are lost,
//! and the trace says so. A line is what ftrace prints, with nanoseconds:
//!
//! ```text
//!  page-fault1-4711 [000] .....     0.000012345: mm_page_alloc: page=... pfn=0x... order=0 ...
//! ```
//!
//! Recording costs some tens of nanoseconds an event: what is recorded is what was asked for, not
//! how long it took.
//!
//! After Ctrl-C the trace is what was recorded until then, and says so in its first lines.
//!
//! ```
//! use clap::Parser;
//! use zonal_replay::{Cli, Command};
//! let line = "zonal record order9 --threads 1 -o trace.txt";
//! let Command::Record(args) = Cli::parse_from(line.split(' ')).command else {
//!     unreachable!()
//! };
//! assert_eq!((args.threads, args.iterations), (Some(1), 1));
//! ```

mod rings;

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use zonal::CpuId;
use zonal::policy::Sound;
use zonal::policy::trace::Point;
use zonal::preset::Traced;
use zonal_host::cpu;
use zonal_sim::run::{OnPreset, Preset};

use self::rings::Rings;
use crate::error::ReplayError;
use zonal_bench::case::{Case, Spec};
use zonal_bench::machine;
use zonal_bench::memory::MachineMemory;
use zonal_bench::options::Options;
use zonal_bench::pool::Pool;
use zonal_bench::subject::{Setup, SubjectError};
use zonal_bench::subjects::zonal::{Owned, open};
use zonal_bench::workload::Workload;
use zonal_cli::bar::Bar;
use zonal_cli::error::LabError;
use zonal_cli::interrupt;
use zonal_cli::outfile::OutFile;
use zonal_cli::size::parse_size;
use zonal_scenario::preset::{preset_called, with_preset};
use zonal_trace::ring::{Reader, Record, Ring, Sink, ToRing};
use zonal_trace::text::Text;

/// Arguments of `zonal record`.
#[derive(Clone, Debug, Args)]
pub struct RecordArgs {
    /// The workload
    #[arg(value_parser = workload_parser())]
    pub workload: Workload,
    /// The file the trace goes to
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    /// The preset it runs on
    #[arg(long, default_value = "zonal", value_name = "NAME", value_parser = preset_called)]
    pub preset: Preset,
    /// Threads, each on a CPU of its own; one for each CPU if not given
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
    /// Frames to manage, in bytes
    #[arg(long, value_parser = parse_size, default_value = "4G", value_name = "SIZE")]
    pub memory: usize,
    /// Repetitions of the workload, after one that is recorded, too
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub iterations: u64,
    /// Events kept for each thread's CPU: 32 bytes each
    #[arg(long, default_value_t = 1 << 20, value_name = "N",
          value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=1 << 30))]
    pub events: usize,
    /// Seed of every random order
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Show no progress bar
    #[arg(long)]
    pub no_progress: bool,
}

/// All workloads but the one whose samples have arenas of their own.
fn workload_parser() -> impl TypedValueParser<Value = Workload> {
    let fits = |workload: &Workload| *workload != Workload::StressHighalloc;
    let names = Workload::ALL.iter().copied().filter(fits).map(Workload::name);
    PossibleValuesParser::new(names)
        .map(|name| Workload::from_name(&name).unwrap_or(Workload::PageFault1))
}

static RINGS: Rings = Rings::new();
/// One recording at a time.
static RECORDING: Mutex<()> = Mutex::new(());
static START: OnceLock<Instant> = OnceLock::new();

/// Events written between two steps of the bar.
const STEP: usize = 1 << 16;
/// How often a recording looks whether Ctrl-C was pressed.
const LOOK: Duration = Duration::from_millis(50);

/// The lab's rings.
struct Lab;

impl Sink for Lab {
    type Word = AtomicU64;

    fn ring() -> Option<&'static Ring<'static, AtomicU64>> {
        RINGS.of(cpu::current().0 as usize)
    }

    fn now() -> u64 {
        // 584 years fit.
        START.get().map_or(0, |start| start.elapsed().as_nanos() as u64)
    }

    fn cpu() -> CpuId {
        cpu::current()
    }
}

/// Records what `args` ask for and says on `out` how much that was. After Ctrl-C, if it is
/// [watched](interrupt::watch), that is what was recorded until then, and the workload ends with
/// the process.
///
/// # Errors
///
/// [`ReplayError`]: the file cannot be written, the workload or its rings do not fit, or it gave
/// out; [`ReplayError::Interrupted`] after Ctrl-C.
pub fn run(args: &RecordArgs, out: &mut dyn Write) -> Result<(), ReplayError> {
    let learned = |source| LabError::Machine { what: "learn the CPUs there are", source };
    let cpus = machine::cpus().map_err(learned)?;
    let threads = threads(args, cpus.len())?;
    let file = OutFile::open(&args.output)?;
    let _alone = RECORDING.lock().unwrap_or_else(PoisonError::into_inner);
    if interrupt::is_requested() {
        return Err(ReplayError::Interrupted { empty: true });
    }
    START.get_or_init(Instant::now);
    let room = MachineMemory::read().map_or(u64::MAX, |memory| memory.available);
    RINGS.make(&cpus[..threads], args.events, room)?;
    let rings: Vec<_> = RINGS.all().collect();
    let pool = Pool::new(&cpus[..threads]);
    let pool = pool.map_err(|source| LabError::Machine { what: "start threads", source })?;
    let gave = |why: String| LabError::Gave { who: args.workload.name().into(), why };
    let setup = Setup { memory: args.memory, threads, touch: false, regions: None };
    let spec =
        Spec { workload: args.workload, setup, seed: args.seed, options: Options::default() };
    let case =
        with_preset(args.preset, Recorded(&spec))?.map_err(|error| gave(error.to_string()))?;
    // What earlier recordings left is theirs.
    let mut readers: Vec<_> = rings.iter().map(|(_, ring)| ring.reader()).collect();
    let before: Vec<u64> = readers.iter_mut().map(|reader| finish(reader, |_| ())).collect();
    rings.iter().for_each(|(_, ring)| ring.enable(&Point::ALL));
    let bar = Bar::new(0, args.no_progress);
    let whole = carry_out(case, pool, args.iterations, &bar);
    rings.iter().for_each(|(_, ring)| ring.enable(&[]));
    let whole = whole.map_err(gave)?;
    let mut records = Vec::new();
    let lost = readers.iter_mut().map(|reader| finish(reader, |record| records.push(record)));
    let lost = lost.zip(before).map(|(now, before)| now - before);
    let lost: Vec<(usize, u64)> = rings.iter().map(|(cpu, _)| *cpu).zip(lost).collect();
    // Each ring's are in order already; of one instant, they stay so.
    records.sort_by_key(|record| record.time);
    if !whole && records.is_empty() {
        return Err(ReplayError::Interrupted { empty: true });
    }
    file.replace(&text(args.workload.name(), whole, &records, &lost, &bar)?)?;
    drop(bar);
    let lost: u64 = lost.iter().map(|(_, lost)| lost).sum();
    writeln!(out, "{} events written to {}", records.len(), args.output.display())?;
    if lost > 0 {
        writeln!(out, "{lost} older ones were lost: repeat with a larger --events")?;
    }
    if whole { Ok(()) } else { Err(ReplayError::Interrupted { empty: false }) }
}

/// Runs the workload on threads of its own, so that this one can look whether Ctrl-C was pressed.
/// `false`: it was, and the workload goes on until the process ends. No other recording begins in
/// the process, so none has the events of this one.
///
/// # Errors
///
/// Why the workload gave out.
fn carry_out(case: Arc<dyn Case>, pool: Pool, iterations: u64, bar: &Bar) -> Result<bool, String> {
    let (done, sample) = mpsc::channel();
    let conductor = thread::Builder::new().spawn(move || {
        // The receiver is gone only after Ctrl-C, and then the sample is not looked at.
        let _ = done.send(case.sample(&pool, iterations));
    });
    conductor.map_err(|error| error.to_string())?;
    let began = Instant::now();
    loop {
        // How long a workload takes is not known before it has ended.
        bar.at(0, 0, &format!("recording for {} s", began.elapsed().as_secs()));
        match sample.recv_timeout(LOOK) {
            Ok(sample) => return sample.map(|_| true).map_err(|error| error.to_string()),
            Err(RecvTimeoutError::Timeout) if interrupt::is_requested() => return Ok(false),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Err("it panicked".into()),
        }
    }
}

fn threads(args: &RecordArgs, available: usize) -> Result<usize, LabError> {
    let fits = |threads: &usize| args.workload.runs_on(*threads, Options::default());
    let most = (1..=available).rev().find(fits).unwrap_or(1);
    let asked = args.threads.unwrap_or(most);
    if asked == 0 {
        return Err(LabError::ZeroThreads);
    }
    if asked > available {
        return Err(LabError::TooManyThreads { asked, available });
    }
    if !fits(&asked) {
        let (workload, wanted) =
            (args.workload.name(), args.workload.threads_wanted(Options::default()));
        return Err(LabError::ThreadsDoNotFit { workload, wanted, given: asked.to_string() });
    }
    Ok(asked)
}

/// Reads to the end; what a CPU is still writing after Ctrl-C counts as lost. Returns how many were
/// lost so far.
fn finish(reader: &mut Reader<'_, AtomicU64>, mut each: impl FnMut(Record)) -> u64 {
    loop {
        while let Some(record) = reader.read() {
            each(record);
        }
        if !reader.skip() {
            return reader.lost();
        }
    }
}

/// Opens a preset for what the spec asks of it, recorded.
struct Recorded<'a>(&'a Spec);

impl OnPreset for Recorded<'_> {
    type Output = Result<Arc<dyn Case>, SubjectError>;

    fn run<S: Sound>(self) -> Self::Output {
        open::<Traced<S, ToRing<Lab>>, Owned>(self.0)
    }
}

/// The trace as text. `lost` events of each CPU come first, as they are the oldest.
fn text(
    workload: &str,
    whole: bool,
    records: &[Record],
    lost: &[(usize, u64)],
    bar: &Bar,
) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    writeln!(text, "# tracer: zonal record {workload}")?;
    if !whole {
        writeln!(text, "# interrupted: the workload went on")?;
    }
    writeln!(text, "#")?;
    for (cpu, lost) in lost.iter().filter(|(_, lost)| *lost > 0) {
        writeln!(text, "CPU:{cpu} [LOST {lost} EVENTS]")?;
    }
    let pid = std::process::id();
    for (done, Record { time, cpu, event }) in records.iter().enumerate() {
        if done % STEP == 0 {
            bar.at(done as u64, records.len() as u64, "writing the trace");
        }
        let (seconds, nanos) = (time / 1_000_000_000, time % 1_000_000_000);
        write!(text, "{workload:>16}-{pid:<7} [{:03}] ..... {seconds:>5}.{nanos:09}: ", cpu.0)?;
        writeln!(text, "{}: {}", event.name(), Text(*event))?;
    }
    Ok(text)
}
