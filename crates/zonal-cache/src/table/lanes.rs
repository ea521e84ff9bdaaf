//! Counts of readers by CPU, for pages that several CPUs look at at once.
//!
//! At the word of its slot a reader comes and goes by one locked instruction each, on a line that it has at hand anyway.
//! Two CPUs that look at the same page take that line from each other twice a look. So a page where two met gets
//! [`SPREAD`](super::word::Word::SPREAD): from then on its readers count themselves in at a *lane*, a count beside those
//! of other pages of the same CPU, and only read the slot. The page keeps the flag until its slot is given to another.
//!
//! Who wants the page for itself sets a flag in the word by an exchange, and then asks all lanes by [`none`](Lanes::none).
//! A reader counts itself in, and then looks at the word again. Both are exchanges of the same count: the
//! reader's is the later of the two, and then it sees the flag, or the other sees the reader (invariant L-1). The same
//! holds for one that leaves and then looks whether the page has left the index.
//!
//! Source of the idea: counts of readers apart from the word of who writes, as in the distributed reader-writer locks of
//! kernels and of `BRAVO` (Dice and Kogan 2019), which also begin at one word and spread when that is worth it.

use super::slot::SlotId;
use crate::host::Host;
use alloc::boxed::Box;
use core::ptr;
use core::sync::atomic::Ordering::{AcqRel, Relaxed};
use zonal::CpuId;
use zonal::platform::AtomicWord;

/// Counts in a word.
const IN_WORD: usize = 2;
/// Words on a line.
const ON_LINE: usize = 8;
/// Bits of a count.
const BITS: usize = 32;
/// More are not let in: what is above is for readers that are about to see that they may not stay.
const MOST: u32 = 1 << 30;

/// Which lane, or that a reader is counted at the word of the slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Lane(u32);

impl Lane {
    /// At the word.
    pub(super) const WORD: Self = Self(u32::MAX);
}

#[repr(align(64))]
struct Line<P: Host>([P::Word; ON_LINE]);

/// The bits of a slot's count in its word.
#[inline(always)]
pub(super) const fn shift_of(id: SlotId) -> u8 {
    (id.0 as usize % IN_WORD * BITS) as u8
}

/// Counts a reader out at `count`, who has to look at the word of the slot then. `shift` is of the slot.
#[inline(always)]
pub(super) fn leave<W: AtomicWord>(count: &W, shift: u8) {
    // Release: with `none`, for what the reader did before. Acquire: as in `enter`.
    let _ = count.fetch_add((1_u64 << shift).wrapping_neg(), AcqRel);
}

/// The lanes of a table; there may be none.
pub(super) struct Lanes<P: Host> {
    /// One lane after the other.
    lines: Box<[Line<P>]>,
    /// Lines of one.
    each: usize,
    /// How many lanes there are: 0 or a power of 2.
    count: u32,
}

impl<P: Host> Lanes<P> {
    /// `count` is rounded up to a power of 2.
    pub(super) fn new(count: u32, slots: usize) -> Self {
        let (count, each) = Self::sizes(count, slots);
        let line = |_| Line(core::array::from_fn(|_| P::Word::new(0)));
        Self { lines: (0..each * count as usize).map(line).collect(), each, count }
    }

    /// How many lanes there are, and lines of one.
    const fn sizes(count: u32, slots: usize) -> (u32, usize) {
        let count = if count == 0 { 0 } else { count.next_power_of_two() };
        (count, slots.div_ceil(IN_WORD * ON_LINE))
    }

    /// Bytes of that many.
    pub(super) const fn bytes(count: u32, slots: usize) -> usize {
        let (count, each) = Self::sizes(count, slots);
        each * count as usize * size_of::<Line<P>>()
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The word with the count of a slot.
    #[inline(always)]
    fn at(&self, lane: u32, id: SlotId) -> &P::Word {
        let word = id.0 as usize / IN_WORD;
        &self.lines[lane as usize * self.each + word / ON_LINE].0[word % ON_LINE]
    }

    /// Where a reader is counted; `None` at the word of the slot.
    pub(super) fn count(&self, lane: Lane, id: SlotId) -> Option<&P::Word> {
        (lane != Lane::WORD).then(|| self.at(lane.0, id))
    }

    /// The lane of a count.
    pub(super) fn lane_of(&self, count: Option<&P::Word>) -> Lane {
        count.map_or(Lane::WORD, |count| {
            let bytes = ptr::from_ref(count).addr() - self.lines.as_ptr().addr();
            Lane((bytes / size_of::<Line<P>>() / self.each) as u32)
        })
    }

    /// Counts a reader in; it has to look at the word of the slot then (L-1). `None` if that is one too many, or there is
    /// no lane.
    #[inline(always)]
    pub(super) fn enter(&self, cpu: CpuId, id: SlotId) -> Option<&P::Word> {
        let lane = cpu.0 & self.count.checked_sub(1)?;
        let (count, shift) = (self.at(lane, id), shift_of(id));
        // Release: with `none`, which then sees the count. Acquire: with `none` before, whose flag is then seen.
        let before = count.fetch_add(1 << shift, AcqRel) >> shift;
        if before as u32 >= MOST {
            leave(count, shift);
            return None;
        }
        Some(count)
    }

    fn all(&self, id: SlotId, read: impl Fn(&P::Word) -> u64) -> bool {
        (0..self.count).all(|lane| (read(self.at(lane, id)) >> shift_of(id)) as u32 == 0)
    }

    /// Whether no reader is there, for certain: who asks has kept others from coming by a flag in the word (L-1). One that
    /// is about to see the flag may count.
    pub(super) fn none(&self, id: SlotId) -> bool {
        // A load could give what was there before a reader came; an exchange gives what is there.
        self.all(id, |count| count.fetch_add(0, AcqRel))
    }

    /// Whether none seems to be there just now.
    pub(super) fn seem_empty(&self, id: SlotId) -> bool {
        self.all(id, |count| count.load(Relaxed))
    }
}

#[cfg(all(test, feature = "std"))]
mod tests {
    use super::*;
    use crate::Threads;

    #[test]
    fn counts_of_neighbours_and_lanes_are_apart() {
        let lanes = Lanes::<Threads>::new(3, 100);
        assert_eq!(lanes.count, 4, "rounded up");
        let slots = || (0..100).map(SlotId);
        for (cpu, id) in (0..7).flat_map(|cpu| slots().map(move |id| (CpuId(cpu), id))) {
            let count = lanes.enter(cpu, id);
            let lane = lanes.lane_of(count);
            assert_eq!(lane, Lane(cpu.0 % 4));
            assert!(!lanes.none(id) && !lanes.seem_empty(id));
            assert!(slots().filter(|other| *other != id).all(|other| lanes.none(other)));
            leave(lanes.count(lane, id).expect("a lane"), shift_of(id));
            assert!(lanes.none(id) && lanes.seem_empty(id));
        }
        assert_eq!(lanes.lane_of(None), Lane::WORD);
        assert!(lanes.count(Lane::WORD, SlotId(0)).is_none());
    }

    #[test]
    fn no_lane_lets_no_reader_in() {
        let lanes = Lanes::<Threads>::new(0, 100);
        assert!(lanes.is_empty() && lanes.enter(CpuId(1), SlotId(5)).is_none());
        assert!(lanes.none(SlotId(5)));
    }

    #[test]
    fn a_count_does_not_run_over_into_its_neighbour() {
        let lanes = Lanes::<Threads>::new(1, 2);
        let count = lanes.at(0, SlotId(0));
        let _ = count.fetch_add(u64::from(MOST) - 1, AcqRel);
        assert!(lanes.enter(CpuId(0), SlotId(0)).is_some());
        assert!(lanes.enter(CpuId(0), SlotId(0)).is_none(), "one too many");
        assert_eq!(count.load(Relaxed), u64::from(MOST));
        assert!(lanes.enter(CpuId(0), SlotId(1)).is_some() && !lanes.none(SlotId(1)));
    }
}
