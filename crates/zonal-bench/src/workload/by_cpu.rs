//! `fragment --by-cpu`: can an allocator keep apart what different CPUs allocate?
//!
//! Two threads on two CPUs fill [`FRAGMENT_FILL`] % of memory, strictly in turns, one frame each;
//! then everything that thread 1 allocated is freed (by it, in the order it came), and thread 0
//! takes order-9 blocks until there is none. In memory of 4 GiB the free frames would make 1126
//! of the 2048. An allocator whose CPUs take turns at one list finds every other frame in use
//! all over the memory that was filled, and gets what was never filled.
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
use crate::loops::{Halt, count_blocks, settle};
use crate::machine::Usage;
use crate::rendezvous::Rendezvous;
use crate::subject::FrameThread;

/// Threads that take part.
pub const THREADS: usize = 2;

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
    turns: &Turns,
    (place, thread): (&Rendezvous, usize),
    managed: usize,
) -> Result<(ThreadRun, Figures), Halt> {
    turns.fill(handle, blocks, (place, thread), 1)?;
    // SAFETY: filled above with single frames.
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
    }
    // SAFETY: as above.
    unsafe { meet_or_free(place, handle, kept) }?;
    if thread == 0 {
        wall = free_all(handle, blocks);
    }
    let lost_cpu = before.lost_cpu(&Usage::now(), start.elapsed());
    Ok((ThreadRun { frames: blocks.len() as u64, start, wall, lost_cpu }, figures))
}
