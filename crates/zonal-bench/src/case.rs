//! One workload on one subject with one number of threads, sampled again and again.
//!
//! A [`Case`] is where the type of the subject is erased: the engine holds cases of all subjects
//! side by side and asks each for a sample in turn; inside [`Case::sample`] everything is
//! monomorphised.
//!
//! ```
//! use std::sync::Arc;
//! use zonal_bench::case::{Spec, open};
//! use zonal_bench::options::Options;
//! use zonal_bench::program::Every;
//! use zonal_bench::{machine, pool::Pool, subject::Setup, subjects::baseline::FreeList};
//! use zonal_bench::workload::Workload;
//!
//! let spec = Spec {
//!     workload: Workload::HotPair,
//!     setup: Setup { memory: 64 << 20, threads: 1, touch: false, regions: None },
//!     seed: 1,
//!     options: Options::default(),
//! };
//! let case = open::<FreeList, Every>(&spec)?;
//! let pool = Pool::new(&machine::cpus()?[..1])?;
//! let sample = Arc::clone(&case).sample(&pool, 10)?;
//! assert_eq!(sample.runs[0].frames, 10 * 1024);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use core::marker::PhantomData;
use core::time::Duration;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use rtrb::{Consumer, Producer, RingBuffer};

use crate::child::ChildError;
use crate::figures::{Figures, LockWork};
use crate::loops::{self, Halt, Step};
use crate::machine::Usage;
use crate::options::Options;
use crate::pool::{Pool, WorkerPanic};
use crate::program::{Part, Programs};
use crate::rendezvous::{AbortOnPanic, Rendezvous};
use crate::rng::Rng;
use crate::subject::{Setup, Subject, SubjectError};
use crate::workload::{
    FRAGMENT_FILL, MIXED_SLOTS, TASK_FRAMES, Turns, Workload, by_cpu, kbuild, parallel_free,
    thp_mix,
};

/// Slots of the ring of `producer-consumer`.
const RING_SLOTS: usize = 1024;

/// What to run.
#[derive(Clone, Copy, Debug)]
pub struct Spec {
    /// The workload.
    pub workload: Workload,
    /// What the subject is opened for.
    pub setup: Setup,
    /// Seed of every random order.
    pub seed: u64,
    /// The variant of the workload.
    pub options: Options,
}

/// What one thread did in one sample.
#[derive(Clone, Copy, Debug)]
pub struct ThreadRun {
    /// Blocks allocated and freed.
    pub frames: u64,
    /// When it began.
    pub start: Instant,
    /// Time it took.
    pub wall: Duration,
    /// Whether the thread lost its CPU meanwhile.
    pub lost_cpu: bool,
}

/// One sample.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Each thread's part.
    pub runs: Vec<ThreadRun>,
    /// Round trip of a cache line between the CPUs before and after, in ns; `None` on one CPU.
    pub round_trip: Option<(f64, f64)>,
    /// What the workload counted.
    pub figures: Figures,
}

impl Sample {
    /// Wall time per frame and thread, in ns: the threads' rates added up, then inverted, so that
    /// one slow thread counts by how much it slows the whole.
    #[must_use]
    pub fn ns_per_frame(&self) -> f64 {
        let rate: f64 =
            self.runs.iter().map(|run| run.frames as f64 / run.wall.as_nanos().max(1) as f64).sum();
        self.runs.len() as f64 / rate
    }

    /// Whether a thread was kept from starting with the others, for more than a twentieth of the
    /// time: then the others ran alone meanwhile, and it after them.
    #[must_use]
    pub fn started_apart(&self) -> bool {
        let starts = self.runs.iter().map(|run| run.start);
        let skew = match (starts.clone().min(), starts.max()) {
            (Some(first), Some(last)) => last - first,
            _ => Duration::ZERO,
        };
        self.runs.iter().any(|run| skew * 20 > run.wall)
    }

    /// The longest any thread took.
    #[must_use]
    pub fn wall(&self) -> Duration {
        self.runs.iter().map(|run| run.wall).max().unwrap_or_default()
    }
}

/// Why a case has no sample.
#[derive(Debug, thiserror::Error)]
pub enum CaseError {
    /// The subject or its memory gave out.
    #[error(transparent)]
    Halt(#[from] Halt),
    /// It panicked.
    #[error(transparent)]
    Panic(#[from] WorkerPanic),
    /// Its process has no sample.
    #[error(transparent)]
    Child(#[from] ChildError),
}

/// A workload on a subject, ready to be sampled.
pub trait Case: Send + Sync {
    /// Takes a sample of `reps` repetitions after one that warms up. Several threads start
    /// together and stop when the first is done, so that none is measured running alone.
    ///
    /// # Errors
    ///
    /// [`CaseError`]; the case is not to be sampled again after one.
    fn sample(self: Arc<Self>, pool: &Pool, reps: u64) -> Result<Sample, CaseError>;

    /// What was done under the subject's zone locks so far, if it counts that.
    fn lock_work(&self) -> Option<LockWork> {
        None
    }
}

/// Opens `S` for `spec`, with those workloads compiled that `P` has.
///
/// # Errors
///
/// What the subject says.
pub fn open<S: Subject, P: Programs>(spec: &Spec) -> Result<Arc<dyn Case>, SubjectError> {
    let subject = S::open(&spec.setup)?;
    let managed = subject.frames().unwrap_or(0);
    let scratch = (0..spec.setup.threads)
        .map(|thread| Mutex::new(Scratch::new(spec, thread, managed)))
        .collect();
    Ok(Arc::new(Bench::<S, P> { subject, spec: *spec, managed, scratch, programs: PhantomData }))
}

/// What a thread works with, made once per case: making it per sample would be measured as
/// cache misses.
pub(crate) struct Scratch<B> {
    pub(crate) blocks: Vec<B>,
    pub(crate) slots: Vec<u32>,
    pub(crate) steps: Vec<Step>,
    pub(crate) build: kbuild::Plan,
    pub(crate) frames_per_rep: usize,
}

impl<B: Copy + Default> Scratch<B> {
    fn new(spec: &Spec, thread: usize, managed: usize) -> Self {
        let mut rng = Rng::new(spec.seed.wrapping_add((thread as u64) << 32));
        let mut scratch = Self {
            blocks: Vec::new(),
            slots: Vec::new(),
            steps: Vec::new(),
            build: kbuild::Plan::default(),
            frames_per_rep: spec.workload.frames_per_rep(),
        };
        let blocks = match spec.workload {
            Workload::HotPair
            | Workload::Order3
            | Workload::Order9
            | Workload::ProducerConsumer => 0,
            Workload::PageFault1 | Workload::RandomFree | Workload::Bulk => TASK_FRAMES,
            Workload::Mixed => MIXED_SLOTS,
            Workload::Fragment if spec.options.by_cpu => by_cpu::part(managed),
            Workload::Fragment => managed * FRAGMENT_FILL / 100,
            Workload::ParallelFree => parallel_free::part(managed, &spec.setup),
            Workload::ThpMix => thp_mix::blocks(managed, thread),
            Workload::KbuildMix => {
                scratch.build = kbuild::Plan::new(&mut rng);
                scratch.frames_per_rep = scratch.build.allocated();
                scratch.build.slots()
            }
            // It has cases of its own: `highalloc::open`.
            Workload::StressHighalloc => 0,
        };
        scratch.blocks.resize(blocks, B::default());
        match spec.workload {
            Workload::Fragment if spec.options.by_cpu => {}
            Workload::RandomFree | Workload::Fragment => scratch.slots = rng.permutation(blocks),
            Workload::Mixed => (scratch.steps, scratch.frames_per_rep) = loops::plan(&mut rng),
            _ => {}
        }
        scratch
    }
}

/// What the threads of one sample share.
pub(crate) struct Shared<B> {
    pub(crate) place: Rendezvous,
    reps: u64,
    pub(crate) rings: Vec<Ring<B>>,
    pub(crate) turns: Turns,
}

pub(crate) struct Ring<B> {
    pub(crate) producer: Mutex<Option<Producer<B>>>,
    pub(crate) consumer: Mutex<Option<Consumer<B>>>,
}

impl<B> Shared<B> {
    pub(crate) fn new(threads: usize, reps: u64, pairs: usize) -> Self {
        let ring = || {
            let (producer, consumer) = RingBuffer::new(RING_SLOTS);
            Ring { producer: Mutex::new(Some(producer)), consumer: Mutex::new(Some(consumer)) }
        };
        let rings = (0..pairs).map(|_| ring()).collect();
        Self { place: Rendezvous::new(threads), reps, rings, turns: Turns::default() }
    }

    /// Warms up with one repetition and times the others; `frames` is what one of them allocates.
    /// With `together`, ends when the first thread is done.
    pub(crate) fn measure(
        &self,
        frames: usize,
        together: bool,
        mut rep: impl FnMut() -> Result<(), Halt>,
    ) -> Result<ThreadRun, Halt> {
        rep()?;
        self.place.meet()?;
        let before = Usage::now();
        let start = Instant::now();
        let mut done = 0;
        while done < self.reps {
            rep()?;
            done += 1;
            if together && self.place.is_stopped() {
                break;
            }
        }
        let wall = start.elapsed();
        self.place.stop();
        let lost_cpu = before.lost_cpu(&Usage::now(), wall);
        Ok(ThreadRun { frames: done * frames as u64, start, wall, lost_cpu })
    }
}

/// What a thread brings home from a sample.
pub(crate) struct Share {
    run: ThreadRun,
    before: Option<f64>,
    after: Option<f64>,
    figures: Figures,
}

/// Runs `body` between the probes; a thread that fails tells the others.
pub(crate) fn take_part(
    place: &Rendezvous,
    thread: usize,
    body: impl FnOnce() -> Result<(ThreadRun, Figures), Halt>,
) -> Result<Share, Halt> {
    let _guard = AbortOnPanic(place);
    let work = || {
        let before = place.probe(0, thread)?;
        let (run, figures) = body()?;
        let after = place.probe(1, thread)?;
        Ok(Share { run, before, after, figures })
    };
    work().inspect_err(|_: &Halt| place.abort())
}

/// Puts the threads' parts together; of several errors, the one that is a cause is told.
pub(crate) fn assemble(parts: Vec<Result<Share, Halt>>) -> Result<Sample, CaseError> {
    let mut sample = Sample { runs: Vec::new(), round_trip: None, figures: Figures::default() };
    let mut failed = None;
    for part in parts {
        match part {
            Ok(part) => {
                sample.runs.push(part.run);
                sample.round_trip = sample.round_trip.or(part.before.zip(part.after));
                sample.figures.add(&part.figures);
            }
            Err(halt) if matches!(failed, None | Some(Halt::Aborted(_))) => failed = Some(halt),
            Err(_) => {}
        }
    }
    match failed {
        Some(halt) => Err(halt.into()),
        None => Ok(sample),
    }
}

struct Bench<S: Subject, P> {
    subject: S,
    spec: Spec,
    managed: usize,
    scratch: Vec<Mutex<Scratch<S::Block>>>,
    programs: PhantomData<fn() -> P>,
}

impl<S: Subject, P: Programs> Case for Bench<S, P> {
    fn sample(self: Arc<Self>, pool: &Pool, reps: u64) -> Result<Sample, CaseError> {
        let threads = self.spec.setup.threads;
        let pairs = if self.spec.workload == Workload::ProducerConsumer { threads / 2 } else { 0 };
        let shared = Shared::new(threads, reps, pairs);
        let parts = pool.run(threads, move |thread| {
            take_part(&shared.place, thread, || {
                let handle = self.subject.thread(thread)?;
                let scratch = self.scratch[thread].lock();
                let mut scratch = scratch.unwrap_or_else(PoisonError::into_inner);
                let (spec, managed) = (&self.spec, self.managed);
                P::run(
                    Part { spec, managed, thread, shared: &shared, scratch: &mut scratch },
                    handle,
                )
            })
        })?;
        assemble(parts)
    }

    fn lock_work(&self) -> Option<LockWork> {
        self.subject.lock_work()
    }
}
