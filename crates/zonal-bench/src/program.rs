//! Which workloads are compiled for a subject.
//!
//! Every workload is compiled for every subject that takes part, so that nothing inside a loop is
//! called through a pointer. A binary that shows two workloads does not compile twelve: it opens
//! its subjects with [`Quick`] where the full bench takes [`Every`].
//!
//! ```
//! use zonal_bench::program::{Every, Programs, Quick};
//! use zonal_bench::workload::Workload;
//!
//! assert!(Quick::has(Workload::PageFault1) && !Quick::has(Workload::Mixed));
//! assert!(Workload::ALL.into_iter().all(Every::has));
//! ```

use core::fmt;
use core::time::Duration;
use std::sync::PoisonError;
use std::time::Instant;

use crate::case::{Scratch, Shared, Spec, ThreadRun};
use crate::figures::{Figure, Figures};
use crate::loops::{self, Halt};
use crate::machine::Usage;
use crate::subject::{FrameThread, SubjectError};
use crate::workload::{Workload, by_cpu, parallel_free, thp_mix};

/// What one thread is to do in one sample.
pub struct Part<'a, B> {
    pub(crate) spec: &'a Spec,
    pub(crate) managed: usize,
    pub(crate) thread: usize,
    pub(crate) shared: &'a Shared<B>,
    pub(crate) scratch: &'a mut Scratch<B>,
}

impl<B> fmt::Debug for Part<'_, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Part").field("spec", self.spec).field("thread", &self.thread).finish()
    }
}

impl<B> Part<'_, B> {
    fn is_touched(&self) -> bool {
        self.spec.setup.touch && self.spec.workload.touches()
    }
}

/// A set of workloads.
pub trait Programs: Send + Sync + 'static {
    /// Whether it has `workload`, with frames written to or not.
    fn has(workload: Workload) -> bool;

    /// Does a thread's part of a sample.
    ///
    /// # Errors
    ///
    /// [`Halt`]: the subject or its memory gave out, or the set has no such workload.
    fn run<T: FrameThread>(
        part: Part<'_, T::Block>,
        handle: T,
    ) -> Result<(ThreadRun, Figures), Halt>;
}

/// All workloads.
#[derive(Clone, Copy, Debug)]
pub struct Every;

/// `hot-pair` and `page-fault1`.
#[derive(Clone, Copy, Debug)]
pub struct Quick;

/// `fragment`, the only workload that moves pages.
#[derive(Clone, Copy, Debug)]
pub struct Fragmenting;

impl Programs for Fragmenting {
    fn has(workload: Workload) -> bool {
        workload == Workload::Fragment
    }

    fn run<T: FrameThread>(
        part: Part<'_, T::Block>,
        mut handle: T,
    ) -> Result<(ThreadRun, Figures), Halt> {
        let Part { spec, managed, thread, shared, scratch: Scratch { blocks, slots, .. } } = part;
        match spec.workload {
            Workload::Fragment if spec.options.by_cpu => {
                let at = (&shared.place, thread);
                let churn = by_cpu::Churn { frames: spec.options.replace, seed: spec.seed };
                by_cpu::sample(&mut handle, blocks, (&shared.turns, churn), at, managed)
            }
            Workload::Fragment => fragment(&mut handle, blocks, slots, managed),
            other => Err(missing(other)),
        }
    }
}

/// That a program was asked for what it has not.
fn missing(workload: Workload) -> Halt {
    SubjectError::Init(format!("{} is not compiled for it", workload.name())).into()
}

impl Programs for Quick {
    fn has(workload: Workload) -> bool {
        matches!(workload, Workload::HotPair | Workload::PageFault1)
    }

    fn run<T: FrameThread>(
        part: Part<'_, T::Block>,
        mut handle: T,
    ) -> Result<(ThreadRun, Figures), Halt> {
        let touched = part.is_touched();
        let Part { spec, shared, scratch: Scratch { blocks, frames_per_rep, .. }, .. } = part;
        let frames = *frames_per_rep;
        let run = match (spec.workload, touched) {
            (Workload::HotPair, _) => shared.measure(frames, true, || loops::hot_pair(&mut handle)),
            (Workload::PageFault1, false) => {
                return frees(spec, shared, frames, || {
                    // SAFETY: nothing is touched.
                    unsafe { loops::page_fault::<_, false>(&mut handle, blocks) }
                });
            }
            (Workload::PageFault1, true) => {
                return frees(spec, shared, frames, || {
                    // SAFETY: the subject was opened with this very setup, `touch` included.
                    unsafe { loops::page_fault::<_, true>(&mut handle, blocks) }
                });
            }
            (other, _) => return Err(missing(other)),
        }?;
        Ok((run, Figures::default()))
    }
}

impl Programs for Every {
    fn has(_workload: Workload) -> bool {
        true
    }

    fn run<T: FrameThread>(
        part: Part<'_, T::Block>,
        mut handle: T,
    ) -> Result<(ThreadRun, Figures), Halt> {
        let workload = part.spec.workload;
        if Quick::has(workload) {
            return Quick::run(part, handle);
        }
        if Fragmenting::has(workload) {
            return Fragmenting::run(part, handle);
        }
        let touched = part.is_touched();
        let Part { spec, managed, thread, shared, scratch } = part;
        let Scratch { blocks, slots, steps, build, frames_per_rep } = scratch;
        let frames = *frames_per_rep;
        let at = (&shared.place, thread);
        let run = match (workload, touched) {
            (Workload::RandomFree, false) => {
                return frees(spec, shared, frames, || {
                    // SAFETY: `Scratch::new` made `slots` a permutation; nothing is touched.
                    unsafe { loops::random_free::<_, false>(&mut handle, blocks, slots) }
                });
            }
            (Workload::RandomFree, true) => {
                return frees(spec, shared, frames, || {
                    // SAFETY: `Scratch::new` made `slots` a permutation; opened with `touch`.
                    unsafe { loops::random_free::<_, true>(&mut handle, blocks, slots) }
                });
            }
            (Workload::Bulk, _) => {
                shared.measure(frames, true, || loops::bulk(&mut handle, blocks))
            }
            (Workload::Order3, _) => shared.measure(frames, true, || loops::order3(&mut handle)),
            (Workload::Order9, _) => shared.measure(frames, true, || loops::order9(&mut handle)),
            (Workload::Mixed, _) => shared.measure(frames, true, || {
                // SAFETY: `Scratch::new` made the plan and the slots it needs.
                unsafe { loops::mixed(&mut handle, blocks, steps) }
            }),
            (Workload::ProducerConsumer, _) => pass(shared, thread, frames, &mut handle),
            (Workload::KbuildMix, _) => {
                shared.measure(frames, true, || build.carry_out(&mut handle, blocks))
            }
            (Workload::ParallelFree, _) => {
                return parallel_free::sample(&mut handle, blocks, &shared.turns, at);
            }
            (Workload::ThpMix, _) => return thp_mix::sample(&mut handle, blocks, at, managed),
            // The first three are above; the last has cases of its own: `highalloc::open`.
            (
                Workload::HotPair
                | Workload::PageFault1
                | Workload::Fragment
                | Workload::StressHighalloc,
                _,
            ) => return Err(missing(workload)),
        }?;
        Ok((run, Figures::default()))
    }
}

/// A sample of what first allocates and then frees, where `rep` says how long it freed.
fn frees<B>(
    spec: &Spec,
    shared: &Shared<B>,
    frames: usize,
    mut rep: impl FnMut() -> Result<Duration, Halt>,
) -> Result<(ThreadRun, Figures), Halt> {
    // The first repetition is not measured.
    let (mut reps, mut freeing) = (0, Duration::ZERO);
    let run = shared.measure(frames, true, || {
        let took = rep()?;
        freeing += if reps > 0 { took } else { Duration::ZERO };
        reps += 1;
        Ok(())
    })?;
    // Of several threads the figures are added: the mean.
    let each = freeing.as_nanos() as f64 / run.frames as f64 / spec.setup.threads as f64;
    Ok((run, Figures::of(Figure::FreeNs, each)))
}

/// One half of `producer-consumer`: even threads allocate, odd ones free.
fn pass<T: FrameThread>(
    shared: &Shared<T::Block>,
    thread: usize,
    frames: usize,
    handle: &mut T,
) -> Result<ThreadRun, Halt> {
    const TAKEN_ONCE: &str = "each end of a ring is taken by one thread, once";
    let ring = &shared.rings[thread / 2];
    let place = &shared.place;
    if thread.is_multiple_of(2) {
        let end = ring.producer.lock().unwrap_or_else(PoisonError::into_inner).take();
        let mut end = end.expect(TAKEN_ONCE);
        shared.measure(frames, false, || loops::produce(handle, &mut end, place))
    } else {
        let end = ring.consumer.lock().unwrap_or_else(PoisonError::into_inner).take();
        let mut end = end.expect(TAKEN_ONCE);
        let done = shared.measure(frames, false, || loops::consume(handle, &mut end, place));
        if done.is_err() {
            loops::empty(handle, &mut end);
        }
        done
    }
}

/// A sample of `fragment`: always one repetition, as long as it takes.
fn fragment<T: FrameThread>(
    handle: &mut T,
    blocks: &mut [T::Block],
    slots: &[u32],
    managed: usize,
) -> Result<(ThreadRun, Figures), Halt> {
    let before = Usage::now();
    let start = Instant::now();
    // SAFETY: `Scratch::new` made `slots` a permutation of the indices of `blocks`.
    let found = unsafe { loops::fragment(handle, blocks, slots, managed) }?;
    let lost_cpu = before.lost_cpu(&Usage::now(), start.elapsed());
    let run = ThreadRun { frames: found.frames as u64, start, wall: found.wall, lost_cpu };
    let figures = Figures::of(Figure::BlocksRecovered, found.recovered as f64);
    Ok((run, figures.with(Figure::BlocksPossible, found.possible as f64)))
}
