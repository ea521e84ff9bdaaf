//! The least that placement costs: what [`bits`](super::bits) does, with frames in pageblocks, the lowest of which goes
//! first, and with a stack a thread. It is measured when named, and is no part of `all`.
//!
//! A refill takes all that the lowest pageblock with free frames has, and then the next one's, until it has a stack full;
//! a frame that is freed goes on the stack, and a full stack gives its older half back. There are no types, no
//! orders and no zones, and nothing is counted, drained or checked but for a second free.
//!
//! ```
//! use zonal_bench::subject::{FrameThread, Setup, Subject};
//! use zonal_bench::subjects::placed::Placed;
//!
//! let setup = Setup { memory: 64 << 20, threads: 1, touch: false, regions: None };
//! let placed = Placed::open(&setup).unwrap();
//! let mut thread = placed.thread(0).unwrap();
//! let frame = thread.alloc(0).unwrap();
//! // SAFETY: it was just allocated, and is freed once.
//! unsafe { thread.free(frame, 0) };
//! ```

use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use core::sync::atomic::{AtomicU8, AtomicU64};
use std::collections::VecDeque;

use super::bits::{Line, touch};
use crate::memory::Region;
use crate::subject::{FrameThread, Group, Path, Profile, Setup, Subject, SubjectError};

/// Frames of a stack.
const STACK: usize = 256;
/// Frames of a pageblock, which is a line.
const PAGEBLOCK: usize = 512;

// What a state byte says.
const FREE: u8 = 0;
const CACHED: u8 = 1;
const ALLOCATED: u8 = 2;

/// Pageblocks of bits, with a hint for each that has a free frame.
#[derive(Debug)]
pub struct Placed {
    lines: Vec<Line>,
    hints: Vec<AtomicU64>,
    states: Vec<AtomicU8>,
    region: Option<Region>,
}

impl Placed {
    /// Lowers the hint of the lowest pageblock that has one; which.
    fn win(&self) -> Option<usize> {
        for (at, hints) in self.hints.iter().enumerate() {
            loop {
                let seen = hints.load(Relaxed);
                if seen == 0 {
                    break;
                }
                let bit = seen & seen.wrapping_neg();
                if hints.fetch_and(!bit, SeqCst) & bit != 0 {
                    return Some(at * 64 + bit.trailing_zeros() as usize);
                }
            }
        }
        None
    }

    fn raise(&self, pageblock: usize) {
        let (hints, bit) = (&self.hints[pageblock / 64], 1 << (pageblock % 64));
        if hints.load(SeqCst) & bit == 0 {
            hints.fetch_or(bit, SeqCst);
        }
    }

    /// Gives a frame of a stack back.
    fn put(&self, frame: u32) {
        let at = frame as usize;
        self.states[at].store(FREE, Relaxed);
        self.lines[at / PAGEBLOCK].0[at % PAGEBLOCK / 64].fetch_or(1 << (at % 64), SeqCst);
        self.raise(at / PAGEBLOCK);
    }
}

impl Subject for Placed {
    const PROFILE: Profile = Profile {
        name: "bits-placed",
        path: Path::Owned,
        group: Group::Reference,
        note: "no allocator: what bits does, from the lowest pageblock, with a stack a thread",
        max_order: 0,
        managed: true,
        bulk: false,
    };

    type Block = u32;
    type Thread<'a> = PlacedThread<'a>;

    fn open(setup: &Setup) -> Result<Self, SubjectError> {
        let lines = Line::all_of(setup)?;
        let pageblocks = lines.len();
        let hints = |at| match pageblocks - at * 64 {
            some @ ..64 => (1 << some) - 1,
            _ => u64::MAX,
        };
        Ok(Self {
            lines,
            hints: (0..pageblocks.div_ceil(64)).map(|at| AtomicU64::new(hints(at))).collect(),
            states: (0..pageblocks * PAGEBLOCK).map(|_| AtomicU8::new(FREE)).collect(),
            region: setup.touch.then(|| Region::reserve(setup.memory)).transpose()?,
        })
    }

    fn thread(&self, _index: usize) -> Result<Self::Thread<'_>, SubjectError> {
        Ok(PlacedThread { placed: self, stack: VecDeque::with_capacity(STACK) })
    }

    fn frames(&self) -> Option<usize> {
        Some(self.states.len())
    }
}

/// A thread, and the frames of its stack, the newest last.
#[derive(Debug)]
pub struct PlacedThread<'a> {
    placed: &'a Placed,
    stack: VecDeque<u32>,
}

impl PlacedThread<'_> {
    #[cold]
    #[inline(never)]
    fn refill(&mut self) {
        while self.stack.len() < STACK {
            let Some(pageblock) = self.placed.win() else { return };
            self.harvest(pageblock);
        }
    }

    /// Takes what is free in a pageblock whose hint was lowered, as far as there is room for it.
    fn harvest(&mut self, pageblock: usize) {
        for (at, word) in self.placed.lines[pageblock].0.iter().enumerate() {
            let seen = word.load(SeqCst);
            if seen == 0 {
                continue;
            }
            let mut wanted = seen;
            while wanted.count_ones() as usize > STACK - self.stack.len() {
                wanted ^= 1 << wanted.ilog2();
            }
            let before = word.fetch_and(!wanted, SeqCst);
            let mut taken = before & wanted;
            while taken != 0 {
                let bit = taken.trailing_zeros();
                taken &= taken - 1;
                // The lowest goes first.
                self.stack.push_front((pageblock * PAGEBLOCK + at * 64) as u32 + bit);
            }
            if before & !wanted != 0 {
                self.placed.raise(pageblock);
                return;
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn spill(&mut self) {
        let placed = self.placed;
        self.stack.drain(..STACK / 2).for_each(|frame| placed.put(frame));
    }
}

impl Drop for PlacedThread<'_> {
    fn drop(&mut self) {
        let placed = self.placed;
        self.stack.drain(..).for_each(|frame| placed.put(frame));
    }
}

impl FrameThread for PlacedThread<'_> {
    type Block = u32;

    #[inline]
    fn alloc(&mut self, order: u8) -> Option<u32> {
        if order != 0 {
            return None;
        }
        if self.stack.is_empty() {
            self.refill();
        }
        let frame = self.stack.pop_back()?;
        self.placed.states[frame as usize].store(ALLOCATED, Relaxed);
        Some(frame)
    }

    #[inline]
    unsafe fn free(&mut self, block: u32, _order: u8) {
        let was = self.placed.states[block as usize].swap(CACHED, Relaxed);
        assert!(was == ALLOCATED, "frame {block} is free already");
        if self.stack.len() == STACK {
            self.spill();
        }
        self.stack.push_back(block);
    }

    #[inline]
    unsafe fn touch(&mut self, block: u32) {
        // SAFETY: `block` is a frame below those that the region was reserved for, and it is
        // allocated to this thread.
        unsafe { touch(self.placed.region.as_ref(), block) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placed(frames: usize) -> Placed {
        let setup = Setup { memory: frames << 12, threads: 2, touch: false, regions: None };
        Placed::open(&setup).expect("it is small")
    }

    #[test]
    fn each_frame_goes_out_once_and_comes_back() {
        let placed = placed(3 * PAGEBLOCK);
        for _ in 0..3 {
            let (mut one, mut other) =
                (placed.thread(0).expect("one"), placed.thread(1).expect("two"));
            let mut all: Vec<u32> = core::iter::from_fn(|| one.alloc(0)).collect();
            assert_eq!(all.len(), 3 * PAGEBLOCK);
            assert!(all.is_sorted(), "the lowest goes first");
            assert!(other.alloc(0).is_none() && one.alloc(9).is_none());
            all.reverse();
            // SAFETY: each was allocated, and is freed once.
            all.into_iter().for_each(|frame| unsafe { other.free(frame, 0) });
        }
    }

    #[test]
    fn a_full_stack_gives_its_older_half_back() {
        let placed = placed(4 * PAGEBLOCK);
        let (mut one, mut other) = (placed.thread(0).expect("one"), placed.thread(1).expect("two"));
        let all: Vec<u32> = core::iter::from_fn(|| one.alloc(0)).collect();
        // SAFETY: each was allocated, and is freed once.
        all[..=STACK].iter().for_each(|&frame| unsafe { one.free(frame, 0) });
        let back: Vec<u32> = core::iter::from_fn(|| other.alloc(0)).collect();
        assert_eq!(back, all[..STACK / 2]);
    }

    #[test]
    #[should_panic(expected = "is free already")]
    fn a_second_free_is_noticed() {
        let placed = placed(PAGEBLOCK);
        let mut thread = placed.thread(0).expect("a thread");
        let frame = thread.alloc(0).expect("all are free");
        for _ in 0..2 {
            // SAFETY: none: the second is what is tested, and it is refused before anything changes.
            unsafe { thread.free(frame, 0) };
        }
    }
}
