//! `fragment --by-cpu`: can an allocator keep apart what different CPUs allocate?
//!
//! Two threads on two CPUs fill [`FRAGMENT_FILL`] % of memory, strictly in turns, one frame each;
//! then everything that thread 1 allocated is freed (by it, in the order it came), and thread 0
//! takes order-9 blocks until there is none. In memory of 4 GiB the free frames would make 1126
//! of the 2048. An allocator whose CPUs take turns at one list finds every other frame in use
//! all over the memory that was filled, and gets what was never filled.
//!
//! With `--replace N` the two replace N frames before, both at once, each half of them: a random batch of its own,
//! of 1 to [`BATCH`] frames from all over, is freed and allocated anew, again and again. What can be had
//! afterwards is what placement allows: the blocks in which thread 0 has no frame, which are printed, too.
//!
//! The time of a row is that of the frees.
//!
//! ```
//! // Of 4 GiB each of the two threads has 45 %.
//! assert_eq!(zonal_bench::workload::by_cpu::part(1 << 20), 471_859);
//! ```

use core::time::Duration;
use std::time::Instant;

use super::turns::{Turns, meet_or_free};
use super::{FRAGMENT_FILL, HUGE_ORDER};
use crate::case::ThreadRun;
use crate::figures::{Figure, Figures};
use crate::loops::{Halt, count_blocks, give_up, settle};
use crate::machine::Usage;
use crate::rendezvous::Rendezvous;
use crate::rng::Rng;
use crate::subject::FrameThread;

/// Threads that take part.
pub const THREADS: usize = 2;
/// Frames of the largest batch that is replaced at once.
pub const BATCH: usize = 512;

/// What is replaced before anything of one thread is freed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Churn {
    /// Frames, of both threads.
    pub(crate) frames: u32,
    /// Of the choice of batches.
    pub(crate) seed: u64,
}

impl Churn {
    /// Replaces a thread's part. If memory runs out, all of its frames are freed.
    ///
    /// # Safety
    ///
    /// `blocks` are allocated with order 0, and not freed.
    unsafe fn replace<T: FrameThread>(
        self,
        handle: &mut T,
        blocks: &mut [T::Block],
        thread: usize,
    ) -> Result<(), Halt> {
        let mut rng = Rng::new(self.seed.wrapping_mul(2).wrapping_add(thread as u64));
        let mut left = (self.frames as usize / THREADS).min(blocks.len() * 1000);
        while left > 0 {
            let batch = (rng.below(BATCH) + 1).min(left).min(blocks.len());
            // Those that were drawn are behind the others.
            let kept = blocks.len() - batch;
            for at in (kept..blocks.len()).rev() {
                blocks.swap(rng.below(at + 1), at);
            }
            for block in &blocks[kept..] {
                // SAFETY: allocated with order 0, and each is drawn once.
                unsafe { handle.free(*block, 0) };
                settle(handle);
            }
            for at in kept..blocks.len() {
                let Some(block) = handle.alloc(0) else {
                    // SAFETY: the kept ones were not freed, the new ones allocated just now.
                    return Err(unsafe { give_up(handle, blocks[..at].iter().copied(), 0) });
                };
                settle(handle);
                blocks[at] = block;
            }
            left -= batch;
        }
        Ok(())
    }
}

/// Aligned order-9 blocks of `managed` frames of which none is among `blocks`; `None` where blocks have no
/// numbers.
fn placed<T: FrameThread>(handle: &T, blocks: &[T::Block], managed: usize) -> Option<usize> {
    let mut used: Vec<u64> = blocks
        .iter()
        .map(|block| Some(handle.frame(*block)? >> HUGE_ORDER))
        .collect::<Option<_>>()?;
    used.sort_unstable();
    used.dedup();
    Some((managed >> HUGE_ORDER).saturating_sub(used.len()))
}

/// Frames of each thread, of `managed` in all.
#[must_use]
pub const fn part(managed: usize) -> usize {
    managed * FRAGMENT_FILL / 100 / THREADS
}

fn free_all<T: FrameThread>(handle: &mut T, blocks: &[T::Block]) -> Duration {
    let start = Instant::now();
    for block in blocks {
        // SAFETY: both callers free what they filled with single frames, once.
        unsafe { handle.free(*block, 0) };
        settle(handle);
    }
    start.elapsed()
}

/// A sample: always one repetition.
pub(crate) fn sample<T: FrameThread>(
    handle: &mut T,
    blocks: &mut [T::Block],
    (turns, churn): (&Turns, Churn),
    (place, thread): (&Rendezvous, usize),
    managed: usize,
) -> Result<(ThreadRun, Figures), Halt> {
    turns.fill(handle, blocks, (place, thread), 1)?;
    // SAFETY: filled above with single frames.
    unsafe { meet_or_free(place, handle, blocks) }?;
    // SAFETY: as above.
    unsafe { churn.replace(handle, blocks, thread) }.inspect_err(|_| place.abort())?;
    // SAFETY: each frame was replaced by another.
    unsafe { meet_or_free(place, handle, blocks) }?;
    let before = Usage::now();
    let start = Instant::now();
    let mut wall = Duration::ZERO;
    if thread == 1 {
        wall = free_all(handle, blocks);
    }
    let kept: &[T::Block] = if thread == 1 { &[] } else { blocks };
    // SAFETY: thread 1 has freed what it filled, the other has not.
    unsafe { meet_or_free(place, handle, kept) }?;
    let mut figures = Figures::default();
    if thread == 0 {
        let recovered = count_blocks(handle);
        let possible = managed.saturating_sub(blocks.len()) >> HUGE_ORDER;
        figures = Figures::of(Figure::BlocksRecovered, recovered as f64)
            .with(Figure::BlocksPossible, possible as f64);
        if let Some(placed) = placed(handle, blocks, managed) {
            figures = figures.with(Figure::BlocksPlaced, placed as f64);
        }
    }
    // SAFETY: as above.
    unsafe { meet_or_free(place, handle, kept) }?;
    if thread == 0 {
        wall = free_all(handle, blocks);
    }
    let lost_cpu = before.lost_cpu(&Usage::now(), start.elapsed());
    Ok((ThreadRun { frames: blocks.len() as u64, start, wall, lost_cpu }, figures))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subject::{Setup, Subject};
    use crate::subjects::baseline::FreeList;

    #[test]
    fn what_is_replaced_is_freed_and_had_again() {
        let setup = Setup { memory: 1000 << 12, threads: 1, touch: false, regions: None };
        let list = FreeList::open(&setup).expect("it is small");
        let mut handle = list.thread(0).expect("a thread");
        let mut blocks: Vec<u32> = (0..600).filter_map(|_| handle.alloc(0)).collect();
        let before = blocks.clone();
        let churn = Churn { frames: 5000, seed: 3 };
        // SAFETY: they were allocated just now.
        unsafe { churn.replace(&mut handle, &mut blocks, 0) }.expect("there is memory");
        assert_ne!(blocks, before, "in another order at least");
        let rest = core::iter::from_fn(|| handle.alloc(0));
        let mut all: Vec<u32> = blocks.into_iter().chain(rest).collect();
        all.sort_unstable();
        assert!(all.into_iter().eq(0..1000), "each frame once");
    }
}
