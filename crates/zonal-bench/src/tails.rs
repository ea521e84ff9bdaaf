//! `zonal bench tails`: how long single calls take, at the median and far out.
//!
//! Threads, each pinned to a CPU, fill the memory with blocks of orders 0, 3 and 9 (80, 15 and 5 % of the
//! frames), then free a random one and allocate another, each call timed by itself. At the end, while the
//! others wait, one asks for order 9 until it is refused, frees single frames here and there, and times
//! what a refused request takes. What reading the clock twice takes is measured and taken off; a thread that
//! loses its CPU in a call shows in the longest ones: rows of a stage in which one did say so
//! ([`Row::lost_cpu`]). Compare subjects within a run.
//!
//! ```
//! use zonal::preset::Zonal;
//! use zonal_bench::subjects::zonal::{Owned, Preset};
//! use zonal_bench::tails::{Spec, run};
//!
//! let spec = Spec { fill: 80, threads: 1, memory: 64 << 20, seed: 1, calls: 2000 };
//! let rows = run::<Preset<Zonal, Owned>>(&spec)?;
//! assert!(rows.iter().any(|row| row.call == "allocate" && row.order == 0 && row.p50 <= row.max));
//! # Ok::<(), zonal_bench::subject::SubjectError>(())
//! ```

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Barrier;
use std::thread;
use std::time::Instant;

use serde::Serialize;
use zonal::MigrateType::Movable;

use crate::machine::{self, Usage};
use crate::rng::Rng;
use crate::subject::{FrameThread, Setup, Subject, SubjectError};
use crate::team;

/// What is run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Spec {
    /// Per cent of the frames in use.
    pub fill: u8,
    /// Threads, each with its share of the memory.
    pub threads: usize,
    /// Bytes of frames.
    pub memory: usize,
    /// Of all that is drawn.
    pub seed: u64,
    /// Blocks that each thread frees and allocates.
    pub calls: usize,
}

/// One kind of call.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Row {
    /// `allocate`, `free`, or `refused` (an allocation).
    pub call: &'static str,
    /// The order.
    pub order: u8,
    /// How many were timed.
    pub times: usize,
    /// Nanoseconds that half of them took at most.
    pub p50: f64,
    /// 99 %.
    pub p99: f64,
    /// 99.9 %.
    pub p999: f64,
    /// The longest.
    pub max: f64,
    /// Whether a thread lost its CPU in the stage in which they were timed: allocations and frees come
    /// together, refusals after them. Then the longest may be the machine's.
    pub lost_cpu: bool,
    /// The most work that was done in one hold of a zone's lock, in frames: of all calls together, the same in
    /// each row. None if the subject does not count that.
    pub hold_max: Option<u32>,
}

/// Orders, and their shares of frames in per cent.
const ORDERS: [(u8, f64); 3] = [(0, 80.0), (3, 15.0), (9, 5.0)];
/// Refused requests that are timed.
const REFUSALS: usize = 1000;
/// Readings of the clock that its cost is found from.
const READINGS: usize = 10_000;

/// Nanoseconds by kind: allocations and frees of each order, then refusals.
type Times = [Vec<u32>; 7];

/// What a thread timed.
#[derive(Default)]
struct Timed {
    times: Times,
    /// Whether it lost its CPU while it allocated and freed.
    lost_in_turns: bool,
    /// The same while it was refused.
    lost_in_refusals: bool,
}

/// Runs a stage of the calling thread; whether it lost its CPU meanwhile.
fn loses_cpu(stage: impl FnOnce()) -> bool {
    let (before, start) = (Usage::now(), Instant::now());
    stage();
    before.lost_cpu(&Usage::now(), start.elapsed())
}

/// What the threads share.
struct Stage<'a, S> {
    subject: &'a S,
    spec: &'a Spec,
    /// Frames that each has in use.
    share: usize,
    meet: Barrier,
}

/// Does a part of a thread's work. If it panics, what it left is not looked at.
fn caught<R>(part: impl FnOnce() -> R) -> thread::Result<R> {
    catch_unwind(AssertUnwindSafe(part))
}

impl<S: Subject> Stage<'_, S> {
    /// What each thread does. A panic of it is kept until the others have met it for the last time, asleep: if it did
    /// not come, they would wait for ever.
    fn run(&self, index: usize) -> Result<Timed, SubjectError> {
        let (calls, seed) = (self.spec.calls, self.spec.seed.wrapping_add(index as u64));
        let mut timed = Timed::default();
        let new = |thread| Held::<S::Thread<'_>>::new(thread, seed);
        let mut held = caught(|| self.subject.thread(index).map(new));
        self.meet.wait();
        held = held.and_then(|held| {
            caught(|| {
                let mut held = held?;
                held.fill(self.share);
                let turns = || (0..calls).for_each(|_| held.turn(self.share, &mut timed.times));
                timed.lost_in_turns = loses_cpu(turns);
                Ok(held)
            })
        });
        // Until here all are at work; the refusals are one thread's, and the others wait.
        self.meet.wait();
        if index == 0 {
            held = held.and_then(|held| {
                caught(|| {
                    let mut held = held?;
                    let refusals = || held.refusals(&mut timed.times[6]);
                    timed.lost_in_refusals = loses_cpu(refusals);
                    Ok(held)
                })
            });
        }
        self.meet.wait();
        held.unwrap_or_else(|panic| resume_unwind(panic))?.empty();
        Ok(timed)
    }
}

/// Times calls of the subject `S`.
///
/// # Errors
///
/// What keeps it from being opened, or a thread from using it; that a thread panicked.
pub fn run<S: Subject>(spec: &Spec) -> Result<Vec<Row>, SubjectError> {
    let subject = S::open(&Setup {
        memory: spec.memory,
        threads: spec.threads,
        touch: false,
        regions: None,
    })?;
    let frames = match subject.frames() {
        Some(frames) if S::PROFILE.max_order >= 9 => frames,
        _ => return Err(SubjectError::Init("has no fixed set of frames, or no order 9".into())),
    };
    let cpus = machine::cpus().map_err(|error| SubjectError::Init(error.to_string()))?;
    let share = frames * usize::from(spec.fill) / 100 / spec.threads;
    let stage = Stage { subject: &subject, spec, share, meet: Barrier::new(spec.threads) };
    let all = team::run(vec![(); spec.threads], &cpus, |index, ()| stage.run(index));
    let all = all.map_err(|error| SubjectError::Init(error.to_string()))?;
    let mut sum = Timed::default();
    for timed in all {
        let Timed { times, lost_in_turns, lost_in_refusals } = timed?;
        sum.times.iter_mut().zip(times).for_each(|(sum, times)| sum.extend(times));
        sum.lost_in_turns |= lost_in_turns;
        sum.lost_in_refusals |= lost_in_refusals;
    }
    let hold_max = subject.lock_work().map(|work| work.hold_max);
    let clock = clock();
    let kinds = ORDERS
        .iter()
        .enumerate()
        .flat_map(|(at, &(order, _))| [("allocate", order, at), ("free", order, 3 + at)]);
    let kinds = kinds.chain([("refused", 9, 6)]);
    let rows = kinds.map(|(call, order, at)| {
        let lost_cpu = if at == 6 { sum.lost_in_refusals } else { sum.lost_in_turns };
        Row { lost_cpu, hold_max, ..row(call, order, &mut sum.times[at], clock) }
    });
    Ok(rows.filter(|row| row.times > 0).collect())
}

/// What it takes to read the clock twice.
fn clock() -> f64 {
    let mut times: Vec<u32> = (0..READINGS)
        .map(|_| {
            let start = Instant::now();
            start.elapsed().as_nanos() as u32
        })
        .collect();
    times.sort_unstable();
    f64::from(times[READINGS / 2])
}

fn row(call: &'static str, order: u8, times: &mut [u32], clock: f64) -> Row {
    times.sort_unstable();
    // The nearest rank: the least time that at least this part took at most.
    let at = |per_mille: usize| {
        let place = (times.len() * per_mille).div_ceil(1000).saturating_sub(1);
        times.get(place).map_or(0.0, |&time| (f64::from(time) - clock).max(0.0))
    };
    let (p50, p99, p999, max) = (at(500), at(990), at(999), at(1000));
    Row { call, order, times: times.len(), p50, p99, p999, max, lost_cpu: false, hold_max: None }
}

/// What a thread holds.
struct Held<T: FrameThread> {
    thread: T,
    rng: Rng,
    blocks: [Vec<T::Block>; 3],
    frames: usize,
}

impl<T: FrameThread> Held<T> {
    fn new(thread: T, seed: u64) -> Self {
        Self { thread, rng: Rng::new(seed), blocks: Default::default(), frames: 0 }
    }

    /// An order, by its share of requests.
    fn draw(&mut self) -> usize {
        let weights = ORDERS.map(|(order, share)| share / f64::from(1 << order));
        let unit = (self.rng.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
        let mut place = unit * weights.iter().sum::<f64>();
        for (at, weight) in weights.into_iter().enumerate() {
            place -= weight;
            if place < 0.0 {
                return at;
            }
        }
        0
    }

    /// Allocates a block of a drawn order; the time, and whether there was one.
    fn allocate(&mut self, at: usize) -> (u32, bool) {
        let order = ORDERS[at].0;
        let start = Instant::now();
        let block = self.thread.alloc_as(order, Movable);
        let time = start.elapsed().as_nanos() as u32;
        if let Some(block) = block {
            self.blocks[at].push(block);
            self.frames += 1 << order;
        }
        (time, block.is_some())
    }

    /// Frees a random block of an order.
    fn free(&mut self, at: usize) -> Option<u32> {
        let order = ORDERS[at].0;
        let place = self.rng.below(self.blocks[at].len().max(1));
        let last = self.blocks[at].len().checked_sub(1)?;
        self.blocks[at].swap(place, last);
        let block = self.blocks[at].pop()?;
        self.frames -= 1 << order;
        let start = Instant::now();
        // SAFETY: it came from this subject with this order, and is struck from what is held.
        unsafe { self.thread.free(block, order) };
        Some(start.elapsed().as_nanos() as u32)
    }

    fn fill(&mut self, share: usize) {
        while self.frames < share {
            let at = self.draw();
            if !self.allocate(at).1 {
                break;
            }
        }
    }

    /// Frees what is in the way, and allocates.
    fn turn(&mut self, share: usize, times: &mut Times) {
        let at = self.draw();
        while self.frames + (1 << ORDERS[at].0) > share {
            // Of what there is most, by blocks.
            let blocks: usize = self.blocks.iter().map(Vec::len).sum();
            let mut place = self.rng.below(blocks.max(1));
            let Some(kind) = self.blocks.iter().position(|blocks| {
                let here = place < blocks.len();
                place = place.wrapping_sub(blocks.len());
                here
            }) else {
                break;
            };
            times[3 + kind].extend(self.free(kind));
        }
        let (time, served) = self.allocate(at);
        if served {
            times[at].push(time);
        }
    }

    /// Takes all of order 9, gives back single frames here and there, and times refusals.
    fn refusals(&mut self, times: &mut Vec<u32>) {
        while self.allocate(2).1 {}
        for _ in 0..self.blocks[0].len() / 4 {
            self.free(0);
        }
        for _ in 0..REFUSALS {
            let (time, served) = self.allocate(2);
            if !served {
                times.push(time);
            }
        }
    }

    fn empty(&mut self) {
        for at in 0..ORDERS.len() {
            while self.free(at).is_some() {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::on_a_crowded_cpu;
    use crate::subject::Profile;
    use crate::subjects::zonal::{Owned, Preset};
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    use zonal::preset::{Linux416, Zonal};

    #[test]
    fn a_percentile_is_the_nearest_rank() {
        let shown = |mut times: Vec<u32>| {
            let row = row("free", 0, &mut times, 0.0);
            [row.p50, row.p99, row.p999, row.max]
        };
        assert_eq!(shown((1..=1000).rev().collect()), [500.0, 990.0, 999.0, 1000.0]);
        assert_eq!(shown(vec![2, 1]), [1.0, 2.0, 2.0, 2.0]);
        assert_eq!(shown(vec![7]), [7.0; 4]);
        assert_eq!(shown(Vec::new()), [0.0; 4]);
    }

    #[test]
    fn every_kind_of_call_is_timed() {
        let spec = Spec { fill: 90, threads: 2, memory: 128 << 20, seed: 7, calls: 60_000 };
        for rows in [run::<Preset<Zonal, Owned>>(&spec), run::<Preset<Linux416, Owned>>(&spec)] {
            let rows = rows.expect("it opens");
            let kinds: Vec<_> = rows.iter().map(|row| (row.call, row.order)).collect();
            for order in [0, 3, 9] {
                assert!(kinds.contains(&("allocate", order)), "{kinds:?}");
                assert!(kinds.contains(&("free", order)), "{kinds:?}");
            }
            assert!(kinds.contains(&("refused", 9)), "{kinds:?}");
            let ordered =
                |row: &Row| row.p50 <= row.p99 && row.p99 <= row.p999 && row.p999 <= row.max;
            assert!(rows.iter().all(ordered), "{rows:?}");
            let holds: Vec<_> = rows.iter().map(|row| row.hold_max).collect();
            assert!(holds.iter().all(|&hold| hold == holds[0] && hold.is_some()), "{holds:?}");
            assert!(holds[0].is_some_and(|most| most <= zonal::HOLD_BOUND), "{holds:?}");
        }
    }

    type Inner = Preset<Zonal, Owned>;

    /// Counts calls, and says of each kind when it came.
    struct Watched(Inner);
    struct WatchedThread<'a>(<Inner as Subject>::Thread<'a>, usize);

    static CALLS: AtomicUsize = AtomicUsize::new(0);
    /// When thread 0 was refused last, and when thread 1 freed first after it had allocated last.
    static REFUSED: AtomicUsize = AtomicUsize::new(0);
    static EMPTIED: AtomicUsize = AtomicUsize::new(0);
    /// CPUs that each thread may use.
    static CPUS: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

    impl Subject for Watched {
        const PROFILE: Profile = Inner::PROFILE;
        type Block = <Inner as Subject>::Block;
        type Thread<'a> = WatchedThread<'a>;

        fn open(setup: &Setup) -> Result<Self, SubjectError> {
            Ok(Self(Inner::open(setup)?))
        }
        fn thread(&self, index: usize) -> Result<WatchedThread<'_>, SubjectError> {
            CPUS[index].store(machine::cpus().map_or(0, |cpus| cpus.len()), Relaxed);
            Ok(WatchedThread(self.0.thread(index)?, index))
        }
        fn frames(&self) -> Option<usize> {
            self.0.frames()
        }
    }

    impl FrameThread for WatchedThread<'_> {
        type Block = <Inner as Subject>::Block;

        fn alloc(&mut self, order: u8) -> Option<Self::Block> {
            let (block, call) = (self.0.alloc_as(order, Movable), CALLS.fetch_add(1, Relaxed));
            match self.1 {
                0 if block.is_none() => REFUSED.store(call, Relaxed),
                0 => {}
                _ => EMPTIED.store(usize::MAX, Relaxed),
            }
            block
        }
        unsafe fn free(&mut self, block: Self::Block, order: u8) {
            let call = CALLS.fetch_add(1, Relaxed);
            if self.1 == 1 {
                EMPTIED.fetch_min(call, Relaxed);
            }
            // SAFETY: the same contract.
            unsafe { self.0.free(block, order) };
        }
        unsafe fn touch(&mut self, block: Self::Block) {
            // SAFETY: the same contract.
            unsafe { self.0.touch(block) };
        }
    }

    #[test]
    fn refusals_are_of_one_thread_and_each_has_its_cpu() {
        let spec = Spec { fill: 90, threads: 2, memory: 128 << 20, seed: 7, calls: 1000 };
        let rows = run::<Watched>(&spec).expect("it opens");
        let refused = rows.iter().find(|row| row.call == "refused").expect("some are");
        assert_eq!(refused.times, REFUSALS, "nothing came back meanwhile");
        let (refused, emptied) = (REFUSED.load(Relaxed), EMPTIED.load(Relaxed));
        assert!(0 < refused && refused < emptied && emptied < usize::MAX, "{refused} {emptied}");
        assert_eq!(CPUS.each_ref().map(|cpus| cpus.load(Relaxed)), [1, 1]);
    }

    /// Its thread 1 panics at a call.
    struct Broken<const AT: usize>(Inner);
    struct BrokenThread<'a>(<Inner as Subject>::Thread<'a>, usize);

    impl<const AT: usize> Subject for Broken<AT> {
        const PROFILE: Profile = Inner::PROFILE;
        type Block = <Inner as Subject>::Block;
        type Thread<'a> = BrokenThread<'a>;

        fn open(setup: &Setup) -> Result<Self, SubjectError> {
            Ok(Self(Inner::open(setup)?))
        }
        fn thread(&self, index: usize) -> Result<BrokenThread<'_>, SubjectError> {
            assert!(index != 1 || AT > 0, "planted");
            Ok(BrokenThread(self.0.thread(index)?, if index == 1 { AT } else { usize::MAX }))
        }
        fn frames(&self) -> Option<usize> {
            self.0.frames()
        }
    }

    impl FrameThread for BrokenThread<'_> {
        type Block = <Inner as Subject>::Block;

        fn alloc(&mut self, order: u8) -> Option<Self::Block> {
            self.1 -= 1;
            assert!(self.1 > 0, "planted");
            self.0.alloc_as(order, Movable)
        }
        unsafe fn free(&mut self, block: Self::Block, order: u8) {
            // SAFETY: the same contract.
            unsafe { self.0.free(block, order) };
        }
        unsafe fn touch(&mut self, block: Self::Block) {
            // SAFETY: the same contract.
            unsafe { self.0.touch(block) };
        }
    }

    /// When it begins, while it fills its share, and later: of a share of 14,400 frames.
    #[test]
    fn a_thread_that_panics_is_an_error_and_not_waited_for() {
        let spec = Spec { fill: 90, threads: 2, memory: 128 << 20, seed: 7, calls: 20_000 };
        for done in [run::<Broken<0>>(&spec), run::<Broken<9>>(&spec), run::<Broken<15_000>>(&spec)]
        {
            let error = done.expect_err("a thread panicked");
            assert!(error.to_string().contains("a thread panicked"), "{error}");
        }
    }

    /// Two threads on one CPU take it from each other; short runs are left alone now and then.
    #[test]
    fn a_lost_cpu_is_told() {
        let long = Spec { fill: 80, threads: 2, memory: 64 << 20, seed: 1, calls: 400_000 };
        let lost = |spec: &Spec| {
            let rows = run::<Preset<Zonal, Owned>>(spec).expect("it opens");
            let lost: Vec<bool> =
                rows.iter().filter(|row| row.call != "refused").map(|row| row.lost_cpu).collect();
            assert!(lost.iter().all(|one| *one == lost[0]), "one stage: {rows:?}");
            lost[0]
        };
        assert!(on_a_crowded_cpu(|| lost(&long)));
        let short = Spec { threads: 1, memory: 16 << 20, calls: 2000, ..long };
        assert!((0..200).any(|_| !lost(&short)), "a short run is left alone");
    }
}
