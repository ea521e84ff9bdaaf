//! The least that a free into a map costs: a bit a frame, changed by one atomic update, and a state byte, won by
//! one exchange. A random free of an allocator that keeps its free memory in a map, and sees double frees, does
//! both and cannot be faster; what it does besides is read off against this. It is measured when named, and
//! is no part of `all`.
//!
//! `bits` takes words in turn, so that two threads keep their frames apart. `bits-lowest` takes the lowest that
//! have free frames, as placement asks for: then each thread gets what the other has just freed.
//!
//! ```
//! use zonal_bench::subject::{FrameThread, Setup, Subject};
//! use zonal_bench::subjects::bits::Bits;
//!
//! let bits = Bits::<false>::open(&Setup { memory: 2 << 20, threads: 2, touch: false, regions: None })?;
//! let mut thread = bits.thread(0)?;
//! let frame = thread.alloc(0).expect("all are free");
//! // SAFETY: it was allocated just now.
//! unsafe { thread.free(frame, 0) };
//! # Ok::<(), zonal_bench::subject::SubjectError>(())
//! ```

use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize};

use crate::memory::Region;
use crate::subject::{FrameThread, Group, Path, Profile, Setup, Subject, SubjectError};

/// Words that a thread takes at a time: 256 frames, as much as a CPU's stack has.
const REFILL: usize = 4;

/// A line of bits: a set one is a free frame.
#[repr(align(64))]
#[derive(Debug)]
pub(super) struct Line(pub(super) [AtomicU64; 8]);

impl Line {
    /// As many as a subject's memory has, all of whose frames are free.
    pub(super) fn all_of(setup: &Setup) -> Result<Vec<Self>, SubjectError> {
        let most = u32::MAX as usize;
        if setup.frames() > most {
            return Err(SubjectError::TooLarge { asked: setup.frames(), most });
        }
        let lines = setup.frames() / 512;
        if lines == 0 {
            return Err(SubjectError::Init("less than the 512 frames of a line".into()));
        }
        let free = |_| Self(core::array::from_fn(|_| AtomicU64::new(u64::MAX)));
        Ok((0..lines).map(free).collect())
    }
}

/// Writes to a frame, if there is memory behind frames.
///
/// # Safety
/// It is a frame of a [`Line`], of the memory that the region was reserved for, and allocated to the calling thread.
#[inline]
pub(super) unsafe fn touch(region: Option<&Region>, frame: u32) {
    if let Some(region) = region {
        // SAFETY: the region has it, and no other thread uses it.
        unsafe { region.frame(frame as usize).write_volatile(1) };
    }
}

/// Bits and state bytes, and nothing else: no orders, no types, no marks, no counts, no hints. `LOWEST`: a refill
/// begins at the first word.
#[derive(Debug)]
pub struct Bits<const LOWEST: bool> {
    lines: Vec<Line>,
    allocated: Vec<AtomicU8>,
    /// The word at which the next refill begins.
    next: AtomicUsize,
    region: Option<Region>,
}

impl<const LOWEST: bool> Bits<LOWEST> {
    fn word(&self, word: usize) -> &AtomicU64 {
        &self.lines[word / 8].0[word % 8]
    }
}

impl<const LOWEST: bool> Subject for Bits<LOWEST> {
    const PROFILE: Profile = Profile {
        name: if LOWEST { "bits-lowest" } else { "bits" },
        path: Path::Owned,
        group: Group::Reference,
        note: "no allocator: an exchange of a state byte and an update of a bit for each free",
        max_order: 0,
        managed: true,
        bulk: false,
    };

    type Block = u32;
    type Thread<'a> = BitsThread<'a, LOWEST>;

    fn open(setup: &Setup) -> Result<Self, SubjectError> {
        let lines = Line::all_of(setup)?;
        Ok(Self {
            allocated: (0..lines.len() * 512).map(|_| AtomicU8::new(0)).collect(),
            lines,
            next: AtomicUsize::new(0),
            region: setup.touch.then(|| Region::reserve(setup.memory)).transpose()?,
        })
    }

    fn thread(&self, _index: usize) -> Result<Self::Thread<'_>, SubjectError> {
        Ok(BitsThread { bits: self, stack: Vec::with_capacity(REFILL * 64) })
    }

    fn frames(&self) -> Option<usize> {
        Some(self.allocated.len())
    }
}

/// One thread's access to [`Bits`].
#[derive(Debug)]
pub struct BitsThread<'a, const LOWEST: bool> {
    bits: &'a Bits<LOWEST>,
    stack: Vec<u32>,
}

impl<const LOWEST: bool> BitsThread<'_, LOWEST> {
    #[cold]
    fn refill(&mut self) {
        let words = self.bits.lines.len() * 8;
        let mut word = 0;
        for at in 0..words {
            // Relaxed, here and below: the harness hands frames over, nothing is ordered by them.
            if !LOWEST && at % REFILL == 0 {
                word = self.bits.next.fetch_add(REFILL, Relaxed) % words;
            }
            self.take(word);
            word += 1;
            let has = self.stack.len();
            // As much as a stack holds; or else what some words have.
            if has >= REFILL * 64 || (!LOWEST && has > 0 && word.is_multiple_of(REFILL)) {
                return;
            }
        }
    }

    /// Takes what is free in a word.
    fn take(&mut self, word: usize) {
        let bits = self.bits.word(word);
        // A first look: most words of memory that is in use have nothing.
        let mut free = if bits.load(Relaxed) == 0 { 0 } else { bits.swap(0, Relaxed) };
        while free != 0 {
            let bit = 63 - free.leading_zeros();
            free ^= 1 << bit;
            self.stack.push((word * 64) as u32 + bit);
        }
    }
}

impl<const LOWEST: bool> Drop for BitsThread<'_, LOWEST> {
    fn drop(&mut self) {
        for frame in self.stack.drain(..) {
            self.bits.word(frame as usize / 64).fetch_or(1 << (frame % 64), Relaxed);
        }
    }
}

impl<const LOWEST: bool> FrameThread for BitsThread<'_, LOWEST> {
    type Block = u32;

    #[inline]
    fn alloc(&mut self, order: u8) -> Option<u32> {
        if order != 0 {
            return None;
        }
        if self.stack.is_empty() {
            self.refill();
        }
        let frame = self.stack.pop()?;
        self.bits.allocated[frame as usize].store(1, Relaxed);
        Some(frame)
    }

    #[inline]
    unsafe fn free(&mut self, block: u32, _order: u8) {
        let was = self.bits.allocated[block as usize].swap(0, Relaxed);
        let bit = 1 << (block % 64);
        let before = self.bits.word(block as usize / 64).fetch_or(bit, Relaxed);
        assert!(was == 1 && before & bit == 0, "frame {block} is free already");
    }

    #[inline]
    unsafe fn touch(&mut self, block: u32) {
        // SAFETY: `block` is a frame below those that the region was reserved for, and it is
        // allocated to this thread.
        unsafe { touch(self.bits.region.as_ref(), block) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bits<const LOWEST: bool>() -> Bits<LOWEST> {
        let setup = Setup { memory: 1024 << 12, threads: 2, touch: false, regions: None };
        Bits::open(&setup).expect("it is small")
    }

    fn goes_round<const LOWEST: bool>() {
        let bits = bits::<LOWEST>();
        for _ in 0..3 {
            let (mut one, mut other) = (bits.thread(0).expect("one"), bits.thread(1).expect("two"));
            let mut all: Vec<u32> = core::iter::from_fn(|| one.alloc(0)).collect();
            assert_eq!(all.len(), 1024);
            assert!(other.alloc(0).is_none() && one.alloc(9).is_none());
            all.sort_unstable();
            assert!(all.iter().copied().eq(0..1024));
            // SAFETY: each was allocated, and is freed once.
            all.into_iter().for_each(|frame| unsafe { other.free(frame, 0) });
        }
    }

    #[test]
    fn each_frame_goes_out_once_and_comes_back() {
        goes_round::<false>();
        goes_round::<true>();
    }

    /// What was freed last comes next, if it is the lowest; in turns it does not.
    #[test]
    fn the_lowest_comes_first() {
        fn next<const LOWEST: bool>() -> bool {
            let bits = bits::<LOWEST>();
            let mut one = bits.thread(0).expect("one");
            let first: Vec<u32> = (0..REFILL * 64).filter_map(|_| one.alloc(0)).collect();
            // SAFETY: it is allocated, and freed once.
            unsafe { one.free(first[0], 0) };
            (0..(REFILL + 1) * 64).filter_map(|_| one.alloc(0)).any(|frame| frame == first[0])
        }
        assert!(next::<true>() && !next::<false>());
    }

    #[test]
    #[should_panic(expected = "is free already")]
    fn a_second_free_is_noticed() {
        let bits = bits::<false>();
        let mut thread = bits.thread(0).expect("a thread");
        let frame = thread.alloc(0).expect("all are free");
        for _ in 0..2 {
            // SAFETY: none: the second is what is tested, and it changes a bit of a map that nothing is
            // handed out from again.
            unsafe { thread.free(frame, 0) };
        }
    }
}
