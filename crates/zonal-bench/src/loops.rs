//! The measured loops, one function a repetition, generic over the subject's thread.
//!
//! After every call into the allocator the loops let its state escape (see `settle`), so that
//! the compiler cannot cancel an inlined allocation against the free that follows it, nor keep
//! the allocator's state in registers across calls, which no caller outside a benchmark gets.
//!
//! ```
//! use zonal_bench::loops::hot_pair;
//! use zonal_bench::subject::{Setup, Subject};
//! use zonal_bench::subjects::baseline::FreeList;
//!
//! let list = FreeList::open(&Setup { memory: 1 << 20, threads: 1, touch: false, regions: None })?;
//! hot_pair(&mut list.thread(0)?)?;
//! # Ok::<(), zonal_bench::loops::Halt>(())
//! ```

use core::hint::black_box;
use core::time::Duration;
use std::time::Instant;

use crate::rendezvous::Aborted;
use crate::rng::Rng;
use crate::subject::{FrameThread, SubjectError};
use crate::workload::{
    BULK_BATCH, HOT_PAIRS, HUGE_ORDER, MIXED_ORDERS, MIXED_SLOTS, MIXED_STEPS, ORDER3_PAIRS,
    ORDER9_PAIRS, SMALL_ORDER, TASK_FRAMES,
};

mod hand_over;

pub(crate) use hand_over::empty;
pub use hand_over::{consume, produce};

/// Why a sample came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum Halt {
    /// The allocator had no block left.
    #[error("ran out of memory: no order-{order} block after {held} blocks were allocated")]
    OutOfFrames {
        /// Order asked for.
        order: u8,
        /// Blocks this thread held.
        held: usize,
    },
    /// Another thread of the sample gave up; its own reason says why.
    #[error(transparent)]
    Aborted(#[from] Aborted),
    /// The allocator did what it must not; found by a workload that checks.
    #[error("memory was damaged: {0}")]
    Damaged(&'static str),
    /// Not all of a zone is free when all was given back.
    #[error(
        "memory was damaged: frames were lost: {free} free, {cached} cached and {isolated} isolated of {managed}"
    )]
    Lost {
        /// In the zone.
        free: u64,
        /// In the caches of CPUs.
        cached: u64,
        /// In pageblocks that are kept from requests.
        isolated: u64,
        /// All of them.
        managed: u64,
    },
    /// The thread could not use the subject at all.
    #[error(transparent)]
    Subject(#[from] SubjectError),
}

/// Makes the compiler assume that `thread` is seen and changed here. Costs one store and, as the
/// result is not used, no dependency.
#[inline(always)]
pub(crate) fn settle<T>(thread: &mut T) {
    let _ = black_box(thread);
}

/// Gives back what a failed repetition holds, so that the next subject or sample starts clean.
///
/// # Safety
///
/// Each of `blocks` was allocated with `order` and is not freed.
#[cold]
pub(crate) unsafe fn give_up<T: FrameThread>(
    thread: &mut T,
    blocks: impl Iterator<Item = T::Block>,
    order: u8,
) -> Halt {
    let mut held = 0;
    for block in blocks {
        // SAFETY: the caller promises it for each block.
        unsafe { thread.free(block, order) };
        held += 1;
    }
    Halt::OutOfFrames { order, held }
}

/// One repetition of pairs of `order`: allocate a block, free it.
///
/// # Errors
///
/// [`Halt::OutOfFrames`].
#[inline(always)]
fn pairs<T: FrameThread>(thread: &mut T, pairs: usize, order: u8) -> Result<(), Halt> {
    for _ in 0..pairs {
        let Some(block) = thread.alloc(order) else {
            return Err(Halt::OutOfFrames { order, held: 0 });
        };
        settle(thread);
        // SAFETY: allocated just above with this order, and freed only here.
        unsafe { thread.free(block, order) };
        settle(thread);
    }
    Ok(())
}

/// A repetition of `hot-pair`.
///
/// # Errors
///
/// [`Halt::OutOfFrames`].
pub fn hot_pair<T: FrameThread>(thread: &mut T) -> Result<(), Halt> {
    pairs(thread, HOT_PAIRS, 0)
}

/// A repetition of `order3`.
///
/// # Errors
///
/// [`Halt::OutOfFrames`].
pub fn order3<T: FrameThread>(thread: &mut T) -> Result<(), Halt> {
    pairs(thread, ORDER3_PAIRS, SMALL_ORDER)
}

/// A repetition of `order9`.
///
/// # Errors
///
/// [`Halt::OutOfFrames`].
pub fn order9<T: FrameThread>(thread: &mut T) -> Result<(), Halt> {
    pairs(thread, ORDER9_PAIRS, HUGE_ORDER)
}

/// A repetition of `page-fault1`: fills `blocks`, writing to each frame if `TOUCH`, and frees
/// them in order; how long that took.
///
/// # Safety
///
/// If `TOUCH`, the subject of `thread` was opened with `touch`.
///
/// # Errors
///
/// [`Halt::OutOfFrames`].
pub unsafe fn page_fault<T: FrameThread, const TOUCH: bool>(
    thread: &mut T,
    blocks: &mut [T::Block],
) -> Result<Duration, Halt> {
    for at in 0..blocks.len() {
        let Some(block) = thread.alloc(0) else {
            // SAFETY: the blocks before `at` were allocated by this loop with order 0.
            return Err(unsafe { give_up(thread, blocks[..at].iter().copied(), 0) });
        };
        if TOUCH {
            // SAFETY: `block` is allocated, and the caller promises that `touch` was asked for.
            unsafe { thread.touch(block) };
        }
        blocks[at] = block;
        settle(thread);
    }
    let start = Instant::now();
    for block in blocks.iter() {
        // SAFETY: every element was allocated above with order 0 and is freed once.
        unsafe { thread.free(*block, 0) };
        settle(thread);
    }
    Ok(start.elapsed())
}

/// A repetition of `random-free`: as [`page_fault`], but block `i` goes to `blocks[slots[i]]`, so
/// that freeing along `blocks` frees in the random order `slots` without the harness having to
/// wait for a random load. How long that took.
///
/// # Safety
///
/// `slots` is a permutation of the indices of `blocks`. If `TOUCH`, the subject of `thread` was
/// opened with `touch`.
///
/// # Errors
///
/// [`Halt::OutOfFrames`].
pub unsafe fn random_free<T: FrameThread, const TOUCH: bool>(
    thread: &mut T,
    blocks: &mut [T::Block],
    slots: &[u32],
) -> Result<Duration, Halt> {
    for (at, &slot) in slots.iter().enumerate() {
        let Some(block) = thread.alloc(0) else {
            let held = slots[..at].iter().map(|&slot| blocks[slot as usize]);
            // SAFETY: these slots were filled by this loop, each with its own block of order 0.
            return Err(unsafe { give_up(thread, held, 0) });
        };
        if TOUCH {
            // SAFETY: `block` is allocated, and the caller promises that `touch` was asked for.
            unsafe { thread.touch(block) };
        }
        blocks[slot as usize] = block;
        settle(thread);
    }
    let start = Instant::now();
    for block in blocks.iter() {
        // SAFETY: `slots` is a permutation, so every element was written above, with a block of
        // order 0 each, and is freed once.
        unsafe { thread.free(*block, 0) };
        settle(thread);
    }
    Ok(start.elapsed())
}

/// A repetition of `bulk`.
///
/// # Errors
///
/// [`Halt::OutOfFrames`].
pub fn bulk<T: FrameThread>(thread: &mut T, blocks: &mut [T::Block]) -> Result<(), Halt> {
    for _ in 0..TASK_FRAMES / BULK_BATCH {
        let batch = &mut blocks[..BULK_BATCH];
        let got = thread.alloc_bulk(batch);
        if got < BULK_BATCH {
            // SAFETY: the call filled that many from the start, with single frames.
            return Err(unsafe { give_up(thread, batch[..got].iter().copied(), 0) });
        }
        settle(thread);
        // SAFETY: the call filled the whole batch with single frames; freed once.
        unsafe { thread.free_bulk(batch) };
        settle(thread);
    }
    Ok(())
}

/// A step of `mixed`: the block in `slot` is allocated or freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    slot: u16,
    order: u8,
    alloc: bool,
}

/// A plan for `mixed` that ends with everything freed, and the blocks it allocates.
#[must_use]
pub fn plan(rng: &mut Rng) -> (Vec<Step>, usize) {
    let mut live: Vec<Option<u8>> = vec![None; MIXED_SLOTS];
    let mut steps = Vec::with_capacity(MIXED_STEPS + MIXED_SLOTS);
    let mut allocated = 0;
    for _ in 0..MIXED_STEPS {
        let at = rng.below(MIXED_SLOTS);
        let alloc = live[at].is_none();
        let order = live[at].take().unwrap_or_else(|| pick_order(rng));
        if alloc {
            live[at] = Some(order);
            allocated += 1;
        }
        steps.push(Step { slot: at as u16, order, alloc });
    }
    let rest = live.into_iter().enumerate();
    steps.extend(rest.filter_map(|(at, order)| {
        order.map(|order| Step { slot: at as u16, order, alloc: false })
    }));
    (steps, allocated)
}

fn pick_order(rng: &mut Rng) -> u8 {
    let mut percent = rng.below(100);
    for (order, share) in MIXED_ORDERS {
        if percent < share {
            return order;
        }
        percent -= share;
    }
    0
}

/// A repetition of `mixed`.
///
/// # Safety
///
/// `steps` is a [`plan`], and `blocks` has [`MIXED_SLOTS`] elements.
///
/// # Errors
///
/// [`Halt::OutOfFrames`].
pub unsafe fn mixed<T: FrameThread>(
    thread: &mut T,
    blocks: &mut [T::Block],
    steps: &[Step],
) -> Result<(), Halt> {
    for (at, step) in steps.iter().enumerate() {
        let slot = usize::from(step.slot);
        if step.alloc {
            let Some(block) = thread.alloc(step.order) else {
                // SAFETY: the steps before `at` were carried out on `blocks`.
                unsafe { unwind_mixed(thread, blocks, &steps[..at]) };
                return Err(Halt::OutOfFrames { order: step.order, held: at });
            };
            blocks[slot] = block;
        } else {
            // SAFETY: a plan frees a slot only after it allocated into it, with that order, and
            // not twice.
            unsafe { thread.free(blocks[slot], step.order) };
        }
        settle(thread);
    }
    Ok(())
}

/// Frees what is alive after `done`.
///
/// # Safety
///
/// `done` is the start of a plan and was carried out on `blocks`.
#[cold]
unsafe fn unwind_mixed<T: FrameThread>(thread: &mut T, blocks: &[T::Block], done: &[Step]) {
    let mut live = vec![None; MIXED_SLOTS];
    for step in done {
        live[usize::from(step.slot)] = step.alloc.then_some(step.order);
    }
    for (slot, order) in live.into_iter().enumerate() {
        if let Some(order) = order {
            // SAFETY: the last step on this slot allocated it with this order.
            unsafe { thread.free(blocks[slot], order) };
        }
    }
}

/// What one `fragment` repetition found.
#[derive(Clone, Copy, Debug)]
pub struct Fragmented {
    /// Frames allocated and freed.
    pub frames: usize,
    /// Time spent allocating and freeing single frames.
    pub wall: Duration,
    /// Order-9 blocks that could be allocated with half the frames freed.
    pub recovered: usize,
    /// Order-9 blocks' worth of free frames there was then.
    pub possible: usize,
}

/// A repetition of `fragment`: fills `blocks`, frees the half of them that `slots` names first,
/// allocates order-9 blocks until there is none, and frees everything. `managed` is the frames
/// the subject manages.
///
/// # Safety
///
/// `slots` is a permutation of the indices of `blocks`.
///
/// # Errors
///
/// [`Halt::OutOfFrames`] if `blocks` cannot be filled.
pub unsafe fn fragment<T: FrameThread>(
    thread: &mut T,
    blocks: &mut [T::Block],
    slots: &[u32],
    managed: usize,
) -> Result<Fragmented, Halt> {
    let fill = Instant::now();
    for at in 0..blocks.len() {
        let Some(block) = thread.alloc(0) else {
            // SAFETY: the blocks before `at` were allocated by this loop with order 0.
            return Err(unsafe { give_up(thread, blocks[..at].iter().copied(), 0) });
        };
        blocks[at] = block;
    }
    let (freed, kept) = slots.split_at(slots.len() / 2);
    // SAFETY: `freed` is the first half of a permutation: each block once, allocated above.
    unsafe { free_named(thread, blocks, freed) };
    let filled = fill.elapsed();
    let recovered = count_blocks(thread);
    let rest = Instant::now();
    // SAFETY: `kept` is the other half of the permutation.
    unsafe { free_named(thread, blocks, kept) };
    let possible = managed.saturating_sub(kept.len()) >> HUGE_ORDER;
    Ok(Fragmented { frames: blocks.len(), wall: filled + rest.elapsed(), recovered, possible })
}

/// Counts the order-9 blocks that can be had, by compaction too, if the subject does that.
pub(crate) fn count_blocks<T: FrameThread>(thread: &mut T) -> usize {
    let mut huge = Vec::new();
    loop {
        let block = thread.alloc(HUGE_ORDER);
        let block = block.or_else(|| thread.compact().then(|| thread.alloc(HUGE_ORDER))?);
        match block {
            Some(block) => huge.push(block),
            None => break,
        }
    }
    let count = huge.len();
    for block in huge {
        // SAFETY: allocated with this order just above; freed once.
        unsafe { thread.free(block, HUGE_ORDER) };
    }
    count
}

/// Frees the single frames `blocks[slots[..]]`.
///
/// # Safety
///
/// They are allocated with order 0, and no slot is named twice.
unsafe fn free_named<T: FrameThread>(thread: &mut T, blocks: &[T::Block], slots: &[u32]) {
    for &slot in slots {
        // SAFETY: the caller promises it.
        unsafe { thread.free(blocks[slot as usize], 0) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subject::{Setup, Subject};
    use crate::subjects::baseline::FreeList;

    #[test]
    fn a_plan_frees_what_it_allocates() {
        let (steps, allocated) = plan(&mut Rng::new(3));
        let mut live = vec![None; MIXED_SLOTS];
        let mut count = 0;
        for step in steps {
            let slot = &mut live[usize::from(step.slot)];
            if step.alloc {
                assert_eq!(slot.replace(step.order), None);
                count += 1;
            } else {
                assert_eq!(slot.take(), Some(step.order));
            }
        }
        assert_eq!(count, allocated);
        assert!(live.iter().all(Option::is_none));
    }

    #[test]
    fn running_out_gives_everything_back() {
        let setup = Setup { memory: 100 << 12, threads: 1, touch: false, regions: None };
        let list = FreeList::open(&setup).expect("opens");
        let mut thread = list.thread(0).expect("registers");
        let mut blocks = vec![0; BULK_BATCH];
        // SAFETY: nothing is touched.
        let halt = unsafe { page_fault::<_, false>(&mut thread, &mut blocks) };
        assert!(matches!(halt, Err(Halt::OutOfFrames { order: 0, held: 100 })), "{halt:?}");
        let slots = Rng::new(1).permutation(BULK_BATCH);
        // SAFETY: a permutation of as many, and nothing is touched.
        let halt = unsafe { random_free::<_, false>(&mut thread, &mut blocks, &slots) };
        assert!(matches!(halt, Err(Halt::OutOfFrames { order: 0, held: 100 })), "{halt:?}");
        let halt = bulk(&mut thread, &mut blocks);
        assert!(matches!(halt, Err(Halt::OutOfFrames { order: 0, held: 100 })), "{halt:?}");
        let (steps, _) = plan(&mut Rng::new(1));
        let mut slots = vec![0; MIXED_SLOTS];
        // SAFETY: a plan, and as many slots as it uses. The list has no order above 0.
        assert!(unsafe { mixed(&mut thread, &mut slots, &steps) }.is_err());
        // SAFETY: nothing is touched.
        let all = unsafe { page_fault::<_, false>(&mut thread, &mut blocks[..100]) };
        assert!(all.is_ok(), "all 100 frames are there again: {all:?}");
    }
}
