//! A run: which work, under which preset, on how many CPUs.

use crate::engine::Engine;
pub use crate::lru_lock::LruLock;
use crate::machine::{Machine, Violation};
use crate::outcome::{Outcome, Pace};
use crate::replay::Script;
use crate::schedule::Schedule;
use crate::workload::boot::Boot;
use crate::workload::highalloc::HighAlloc;
use crate::workload::kbuild::Kbuild;
use crate::workload::netperf::Netperf;
use crate::workload::page_cache::{Data, PageCache};
use crate::workload::page_fault::PageFault;
use crate::workload::parallel_free::ParallelFree;
use crate::workload::replay::Replay;
use crate::workload::truncate::Truncate;
use crate::workload::{self, thp_mix::ThpMix};
use core::fmt;
use core::num::NonZeroU32;
use zonal::policy::Policy;
pub use zonal_scenario::preset::{OnPreset, Preset};

/// What the virtual CPUs do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Workload {
    /// Each task a process: maps 128 MiB, touches every page, unmaps it, again and again.
    PageFault1,
    /// The same with threads of one process.
    PageFault1Threads,
    /// One address space with most of memory, freed by all tasks at once.
    ParallelFree,
    /// Half the tasks fault huge pages, half single ones, after memory was broken up.
    ThpMix,
    /// Compiler-like processes: page faults, file pages, page tables, exits.
    Kbuild,
    /// The same mix, once, on a machine that just started.
    Boot,
    /// Receive traffic: order-0 frames allocated on one CPU and freed on another.
    Netperf,
    /// Page cache fills memory, then order-9 requests, with compaction and reclaim.
    StressHighalloc,
    /// What the CPUs of a trace did: see [`replay`]. Not among [`ALL`](Self::ALL).
    Replay,
    /// Files of 4 MiB in the page cache are truncated: lists of 14 pages are freed.
    Truncate,
    /// Files twice as large as memory are written, read and deleted: reclaim never rests.
    PageCache,
    /// The same with files of four fifths of memory.
    PageCacheFits,
}

/// A run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Spec {
    /// What the CPUs do.
    pub workload: Workload,
    /// The allocator.
    pub preset: Preset,
    /// CPUs at work, each with one task; at most as many as the machine has.
    pub tasks: u32,
    /// The seed of every random choice.
    pub seed: u64,
    /// The lock of the LRU lists: [that of the preset](LruLock::of), or another.
    pub lru: LruLock,
    /// Pause between requests of [`Workload::StressHighalloc`], in ms; 0 for the others.
    pub delay_ms: u32,
    /// Measure a shorter stretch: less exact, several times faster.
    pub quick: bool,
    /// Millions of single pages before the measured stretch of [`Workload::ThpMix`]; where it is not
    /// said 2. The others do not look at it.
    pub after: Option<u32>,
    /// Regions of a zone, of presets that look for frames by them; by the number of CPUs if not said.
    pub regions: Option<NonZeroU32>,
}

/// Why a run could not be done.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SimError {
    /// The machine has a value that no machine can have.
    #[error("there is no such machine: {0}")]
    Machine(#[from] Violation),
    /// More tasks than CPUs, or none.
    #[error("{asked} tasks asked for, but the machine {machine} has CPUs for 1 to {cpus}")]
    Tasks {
        /// The machine.
        machine: String,
        /// Tasks asked for.
        asked: u32,
        /// What it has.
        cpus: u32,
    },
    /// All CPUs wait for each other.
    #[error("every CPU waits and none can go on, at cycle {cycle}")]
    Deadlock {
        /// The virtual time.
        cycle: u64,
    },
    /// The allocator could not be set up on that machine.
    #[error("the allocator could not be set up: {0}")]
    Build(String),
    /// The workload does not fit the machine.
    #[error("{workload} does not fit the machine {machine}: {reason}")]
    DoesNotFit {
        /// The workload.
        workload: Workload,
        /// The machine.
        machine: String,
        /// Why.
        reason: String,
    },
    /// Frames are neither free nor in use: a defect of the allocator or of the workload.
    #[error("after {workload} {known} of {managed} frames are accounted for")]
    FramesLost {
        /// The workload.
        workload: Workload,
        /// Frames of the machine.
        managed: u64,
        /// Frames that are free, or that the workload took and has not given back.
        known: u64,
    },
}

impl Workload {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::PageFault1,
        Self::PageFault1Threads,
        Self::ParallelFree,
        Self::ThpMix,
        Self::Kbuild,
        Self::Boot,
        Self::Netperf,
        Self::StressHighalloc,
        Self::Truncate,
        Self::PageCache,
        Self::PageCacheFits,
    ];

    /// Its name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::PageFault1 => "page-fault1",
            Self::PageFault1Threads => "page-fault1-threads",
            Self::ParallelFree => "parallel-free",
            Self::ThpMix => "thp-mix",
            Self::Kbuild => "kbuild",
            Self::Boot => "boot",
            Self::Netperf => "netperf",
            Self::StressHighalloc => "stress-highalloc",
            Self::Replay => "replay",
            Self::Truncate => "truncate",
            Self::PageCache => "page-cache",
            Self::PageCacheFits => "page-cache-fits",
        }
    }
}

impl Workload {
    /// What its tasks do, for a person.
    #[must_use]
    pub const fn about(self) -> &'static str {
        match self {
            Self::PageFault1 => "map 128 MiB, touch every page, unmap it; a process each",
            Self::PageFault1Threads => "the same as threads of one process",
            Self::ParallelFree => "free the memory of one address space, all at once",
            Self::ThpMix => "fault huge pages (half of them) and single ones",
            Self::Kbuild => "compile: page faults, file pages, page tables, exits",
            Self::Boot => "the same, once, on a machine that just started",
            Self::Netperf => "receive: frames are freed on another CPU",
            Self::StressHighalloc => "ask for huge pages from memory full of page cache",
            Self::Replay => "what the CPUs of a trace did: zonal replay",
            Self::Truncate => "truncate files of 4 MiB in the page cache",
            Self::PageCache => "write, read and delete files twice as large as memory",
            Self::PageCacheFits => "the same with files of four fifths of memory",
        }
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Runs the work and says what it showed.
///
/// # Errors
/// [`SimError`], before anything ran, if the machine cannot do it; [`SimError::Deadlock`] if
/// the CPUs wait for each other.
pub fn run(machine: &Machine, spec: &Spec) -> Result<Outcome, SimError> {
    timed(machine, spec).map(|(outcome, _)| outcome)
}

/// As [`run`], and says how fast this computer simulated it. That differs from run to run.
///
/// # Errors
/// As [`run`].
pub fn timed(machine: &Machine, spec: &Spec) -> Result<(Outcome, Pace), SimError> {
    let work = work_on(machine, spec)?;
    fits(&*work, machine, spec)?;
    on_preset(&*work, machine, spec)
}

/// Whether [`run`] can do that on the machine, without doing it.
///
/// # Errors
/// [`SimError::Machine`], [`SimError::Tasks`] and [`SimError::DoesNotFit`].
pub fn check(machine: &Machine, spec: &Spec) -> Result<(), SimError> {
    fits(&*work_on(machine, spec)?, machine, spec)
}

/// Whether the machine has the memory that the work takes.
fn fits(work: &dyn workload::Workload, machine: &Machine, spec: &Spec) -> Result<(), SimError> {
    let (needed, topology) = (work.needs(machine, spec)?.frames_a_socket, &machine.topology);
    if needed <= topology.frames_a_socket() {
        return Ok(());
    }
    let gib = (needed * u64::from(topology.sockets)) as f64 / f64::from(1u32 << 18);
    let gib = (gib * 100.0).ceil() / 100.0;
    Err(spec.misfit(machine, format!("it takes {gib} GiB of memory, of {}", topology.memory_gib)))
}

/// What the spec asks for, if the machine has CPUs for it.
fn work_on(machine: &Machine, spec: &Spec) -> Result<Box<dyn workload::Workload>, SimError> {
    // Whatever follows relies on what a machine can be: there are no more cores than bits of a set.
    machine.check()?;
    let cpus = machine.topology.cpus();
    if spec.tasks == 0 || spec.tasks > cpus {
        return Err(SimError::Tasks { machine: machine.name.clone(), asked: spec.tasks, cpus });
    }
    Ok(match spec.workload {
        Workload::PageFault1 => Box::new(PageFault::new(false)),
        Workload::PageFault1Threads => Box::new(PageFault::new(true)),
        Workload::ParallelFree => Box::new(ParallelFree),
        Workload::ThpMix => Box::new(ThpMix),
        Workload::Kbuild => Box::new(Kbuild::default()),
        Workload::Boot => Box::new(Boot),
        Workload::Netperf => Box::new(Netperf),
        Workload::StressHighalloc => Box::new(HighAlloc::default()),
        Workload::Replay => return Err(spec.misfit(machine, "it needs a trace")),
        Workload::Truncate => Box::new(Truncate::default()),
        Workload::PageCache => Box::new(PageCache::new(Data::TWICE)),
        Workload::PageCacheFits => Box::new(PageCache::new(Data::FITS)),
    })
}

/// Does on a machine what the CPUs of a trace did, with `memory` bytes. If the trace has more
/// CPUs than the machine, they share: see [`Script::folded`].
///
/// # Errors
/// As [`run`]; [`SimError::DoesNotFit`] if the trace needs more memory, or the machine has less.
pub fn replay(
    machine: &Machine,
    preset: Preset,
    script: &Script,
    memory: u64,
) -> Result<Outcome, SimError> {
    machine.check()?;
    let tasks = (script.cpus() as u32).clamp(1, machine.topology.cpus());
    let (lru, workload) = (LruLock::None, Workload::Replay);
    let spec = Spec {
        workload,
        preset,
        tasks,
        seed: 1,
        lru,
        delay_ms: 0,
        quick: false,
        after: None,
        regions: None,
    };
    let replay = Replay::new(script, memory >> 12, tasks);
    fits(&replay, machine, &spec)?;
    on_preset(&replay, machine, &spec).map(|(outcome, _)| outcome)
}

/// A workload, to be run on the preset that the spec names.
struct Measured<'a> {
    work: &'a dyn workload::Workload,
    machine: &'a Machine,
    spec: &'a Spec,
}

impl OnPreset for Measured<'_> {
    type Output = Result<(Outcome, Pace), SimError>;

    fn run<S: Policy>(self) -> Self::Output {
        let engine = Engine::new(self.machine, self.spec.tasks, Schedule::by_clock());
        workload::run::<S>(self.work, self.machine, self.spec, engine)
    }
}

/// Runs a workload on the preset that the spec names.
fn on_preset(
    work: &dyn workload::Workload,
    machine: &Machine,
    spec: &Spec,
) -> Result<(Outcome, Pace), SimError> {
    let (mut outcome, pace) = spec.preset.with(Measured { work, machine, spec })?;
    outcome.preset = spec.preset.name().to_owned();
    Ok((outcome, pace))
}

impl Spec {
    /// The error that the workload does not fit the machine.
    pub(crate) fn misfit(&self, machine: &Machine, reason: impl Into<String>) -> SimError {
        let machine = machine.name.clone();
        SimError::DoesNotFit { workload: self.workload, machine, reason: reason.into() }
    }
}
