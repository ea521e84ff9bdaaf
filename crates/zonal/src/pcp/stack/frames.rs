//! A stack of frames that its CPU's owner reaches without the CPU's slot.
//!
//! - Source: the THE protocol of Cilk-5's work-stealing deques (Frigo, Leiserson and Randall, 1998),
//!   with the asymmetric fence of [`Platform`].
//! - Mechanism: `top` is the owner's, `head` is the drain's. The owner pops by lowering `top`, a light
//!   fence, and a look at `head`, which is also how it sees that the stack is empty. A drain raises
//!   `head` beyond everything, makes a heavy fence and takes what is below `top`.
//! - State: who is in the slot has the stack to itself but for an owner's [`pop_owned`] and
//!   [`push_owned`]. A drain is in the slot, so there is one at a time.
//! - Conflicts: an owner that meets a drain puts `top` back and enters the slot, where it waits.
//!
//! **S-1**: a frame that is popped is not drained. The pop's store of `top` comes before its light
//! fence and the look at `head` after it; a drain's store of `head` comes before its heavy fence and the
//! look at `top` after it. So the drain sees the lowered `top`, or the owner sees the raised `head`.
//!
//! **S-2**: after its heavy fence a drain sees `top` at most one below what it is in truth (an owner
//! that met it and puts it back), and frames only come on top. The frame at that place stays.
//!
//! [`pop_owned`]: FrameStack::pop_owned
//! [`push_owned`]: FrameStack::push_owned

use super::Home;
use super::lists::Room;
use super::words::{Words, run_across};
use crate::platform::stay::Stay;
use crate::platform::{AtomicHalf, AtomicWord, Direction, Platform, StayOf};
use crate::zone::free_map::{AlreadyFree, Frame, WordIndex};
use core::ops::Range;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// The most frames that a stack of a preset holds. A power of two.
pub const MAX_HIGH: usize = 256;

/// Frames that are looked at together: whether they follow each other.
pub(super) const RUN: usize = 16;
/// The same of those that a word of the map has.
pub(super) const WORD: usize = 64;

/// What `head` is while a drain is at work: above every `top`, and not below zero as an `i32`.
const STOPPED: u32 = i32::MAX as u32;

/// What `limit` is after a drain: below every place, and never what it is otherwise where there is room.
const SHUT: u32 = 0;

/// The place above the newest frame, below this limit. Places go round: who is in the slot
/// [settles](FrameStack::settle) them before they go too far.
#[derive(Clone, Copy)]
pub(super) struct Place {
    top: u32,
    limit: u32,
}

/// Frames of one type, as indexes of the frame table, the oldest first.
pub(super) struct FrameStack<P: Platform, const N: usize> {
    /// One above the place of the newest. Release, with the Acquire of a drain: what is on the stack was
    /// written before. It is one below `head` for a moment when an owner looks into an empty stack.
    top: P::Half,
    /// The place of the oldest; [`STOPPED`] during a drain. Relaxed: the fences of S-1 order it.
    head: P::Half,
    /// The owner puts nothing at this place or above: at most `high` above where `head` was when the
    /// stack was last settled. [`SHUT`] from a drain until the owner comes by the slot. Relaxed: the fences of S-3 order it.
    limit: P::Half,
    /// Frames that it may hold, at most `N`. Relaxed: a size.
    high: P::Half,
    /// Frames that the owner freed outside the slot. Relaxed: a count of its own.
    freed: P::Word,
    /// How many frames from the start the edge is, with its pageblock; 0 before the first refill. Written in the
    /// slot. Relaxed: an owner who reads an older one keeps a frame that would have gone, or the other way round.
    edge: P::Half,
    frames: [P::Half; N],
}

impl<P: Platform, const N: usize> FrameStack<P, N> {
    /// An empty one that may hold nothing.
    // In line, or the four of a CPU are made twice, on a boot stack that may be small.
    #[inline(always)]
    pub(super) fn new() -> Self {
        const { assert!(N.is_power_of_two(), "places are found by masking") }
        Self {
            top: P::Half::new(0),
            head: P::Half::new(0),
            limit: P::Half::new(0),
            high: P::Half::new(0),
            freed: P::Word::new(0),
            edge: P::Half::new(0),
            frames: P::Half::zeros(),
        }
    }

    /// What is at a place.
    #[inline(always)]
    pub(super) fn index_at(&self, place: u32) -> u32 {
        self.at(place).load(Relaxed)
    }

    #[inline(always)]
    fn at(&self, place: u32) -> &P::Half {
        &self.frames[place as usize % N]
    }

    /// Takes the newest frame; `None` if there is none, or a drain is at work. For the owner, who may be
    /// outside the slot.
    #[inline(always)]
    pub(super) fn pop_owned(&self) -> Option<u32> {
        self.lower().map_err(|top| self.put_back(top)).ok()
    }

    /// The same with nothing out of line.
    #[inline(always)]
    pub(super) fn pop_owned_here(&self) -> Option<u32> {
        self.lower().map_err(|top| self.raise(top)).ok()
    }

    /// Takes the newest frame, or else says what `top` was lowered to and is to be [raised](Self::raise) from.
    #[inline(always)]
    fn lower(&self) -> Result<u32, u32> {
        let top = self.top.load(Relaxed).wrapping_sub(1);
        self.top.store(top, Release);
        // S-1, with the heavy one of `Drain::begin`.
        P::light_fence();
        // Signed: of an empty stack `top` is below 0.
        match (top as i32) < self.head.load(Relaxed) as i32 {
            true => Err(top),
            false => Ok(self.at(top).load(Relaxed)),
        }
    }

    #[inline(always)]
    fn raise(&self, top: u32) {
        self.top.store(top.wrapping_add(1), Release);
    }

    #[cold]
    #[inline(never)]
    fn put_back(&self, top: u32) {
        self.raise(top);
    }

    /// The place for one more, if the owner may push one.
    #[inline(always)]
    pub(super) fn room(&self) -> Option<Place> {
        let (top, limit) = (self.top.load(Relaxed), self.limit.load(Relaxed));
        (top < limit).then_some(Place { top, limit })
    }

    /// Whether no drain has come since that place was found, for the owner after a light fence: the frame there may stay
    /// (S-3).
    #[inline(always)]
    pub(super) fn is_open_still(&self, place: Place) -> bool {
        self.limit.load(Relaxed) == place.limit
    }

    /// Whether the owner may push one.
    #[inline(always)]
    pub(super) fn has_room(&self) -> bool {
        self.room().is_some()
    }

    /// Puts a frame on it, where there [is room](Self::has_room). For the owner, who may be outside the slot.
    #[inline(always)]
    pub(super) fn push_there(&self, index: u32) {
        self.put(self.top.load(Relaxed), index);
    }

    /// Puts a frame at the place that [was found](Self::room). For the owner, who may be outside the slot: it
    /// makes a light fence and looks whether the frame may be here after all.
    #[inline(always)]
    pub(super) fn push_owned(&self, place: Place, index: u32) {
        self.put(place.top, index);
    }

    #[inline(always)]
    fn put(&self, top: u32, index: u32) {
        self.at(top).store(index, Relaxed);
        self.top.store(top.wrapping_add(1), Release);
    }

    /// The newest frame, if there is one and no drain at work. For the owner, who may be outside the slot.
    #[inline(always)]
    pub(super) fn newest(&self) -> Option<u32> {
        let top = self.top.load(Relaxed);
        // Signed, as in `lower`.
        ((top as i32) > self.head.load(Relaxed) as i32)
            .then(|| self.at(top.wrapping_sub(1)).load(Relaxed))
    }

    /// Frames that the owner freed outside the slot.
    pub(super) fn freed(&self) -> u64 {
        self.freed.load(Relaxed)
    }

    /// The owner has freed one.
    #[inline(always)]
    pub(super) fn count_freed(&self) {
        self.freed.store(self.freed.load(Relaxed).wrapping_add(1), Relaxed);
    }

    /// The frames from the start up to the edge.
    #[inline(always)]
    pub(super) fn edge(&self) -> u32 {
        self.edge.load(Relaxed)
    }

    /// Sets them.
    pub(super) fn set_edge(&self, frames: u32) {
        self.edge.store(frames, Relaxed);
    }

    /// Sets how much the owner may keep. For who is in the slot.
    pub(super) fn set_high(&self, high: u32) {
        let high = high.min(N as u32);
        self.high.store(high, Relaxed);
        self.limit.store(self.head.load(Relaxed) + high, Relaxed);
    }

    /// Frames on it: a snapshot while an owner is about.
    #[inline(always)]
    pub(super) fn len(&self) -> u32 {
        let len = self.top.load(Relaxed).wrapping_sub(self.head.load(Relaxed));
        (len as i32).max(0) as u32
    }

    /// The frames, the oldest first; only while nothing else runs.
    pub(super) fn frames(&self) -> impl DoubleEndedIterator<Item = u32> {
        let head = self.head.load(Relaxed);
        (head..head + self.len()).map(|place| self.at(place).load(Relaxed))
    }

    /// Takes the newest frame, for who is in the slot, with no owner outside.
    #[inline(always)]
    pub(super) fn pop(&self) -> Option<u32> {
        let top = self.top.load(Relaxed);
        if top == self.head.load(Relaxed) {
            return None;
        }
        self.top.store(top - 1, Release);
        Some(self.at(top - 1).load(Relaxed))
    }

    /// Puts a frame on it if there is room; for its owner, or for who is in the slot with no owner outside.
    #[inline(always)]
    pub(super) fn push(&self, index: u32) -> bool {
        self.room().inspect(|&place| self.push_owned(place, index)).is_some()
    }

    /// The place above the newest, for a drain: `head` is the oldest's.
    pub(super) fn above(&self, head: u32) -> u32 {
        // Acquire: with the Release of pushes. S-2: at most one too few.
        let top = self.top.load(Acquire);
        if (top as i32) < head as i32 { head } else { top }
    }

    /// The place of the oldest; for who is in the slot.
    pub(super) fn head(&self) -> u32 {
        self.head.load(Relaxed)
    }

    /// An owner outside gets nothing from it, until it [goes on](Self::go_on).
    pub(super) fn stop(&self) {
        self.head.store(STOPPED, Relaxed);
    }

    /// An owner outside puts nothing on it, until it is [settled](Self::settle).
    pub(super) fn shut(&self) {
        self.limit.store(SHUT, Relaxed);
    }

    /// A drain is at its end: the owner goes on from here, and settles when it comes by.
    pub(super) fn go_on(&self, head: u32) {
        self.head.store(head, Relaxed);
    }

    /// Forgets what is on it; how many there were. For its owner in the slot.
    pub(super) fn clear(&self) -> u32 {
        let len = self.len();
        self.lies_at(0, 0);
        len
    }

    /// Makes room above, where drains have left it further up. For who is in the slot, with no owner
    /// outside.
    pub(super) fn settle(&self) {
        self.lies_at(self.head.load(Relaxed), self.top.load(Relaxed));
    }

    /// What is on it lies from `head` to `top`, in the first round.
    fn lies_at(&self, head: u32, top: u32) {
        let first = head % N as u32;
        self.head.store(first, Relaxed);
        self.top.store(first + (top - head), Release);
        self.limit.store(first + self.high.load(Relaxed), Relaxed);
    }

    /// Fills an empty one with up to `most` frames: what comes ascending leaves ascending. `first` is the
    /// index of the zone's frame 0. For who is in the slot, with no owner outside.
    pub(super) fn fill(&self, first: u32, most: u32) -> Filling<'_, P, N> {
        debug_assert_eq!(self.len(), 0, "only an empty stack is filled");
        let most = most.min(N as u32);
        Filling { stack: self, first, most, empty: most }
    }

    /// Gives the oldest `count` frames to `home`, and forgets them. Where that is a small part, those of the last one's
    /// word that follow go with them, up to as many again: the next that are shed then begin with a word. For who is
    /// in the slot, with no owner outside.
    ///
    /// # Errors
    /// As [`give`](Self::give).
    #[inline]
    pub(super) fn shed(
        &self,
        home: &impl Home,
        first: u32,
        count: u32,
    ) -> Result<u32, AlreadyFree> {
        let (head, top) = (self.head.load(Relaxed), self.top.load(Relaxed));
        let count = count.min(top - head);
        let mut end = head + count;
        // Half a stack has words enough to lose a part of one.
        if StayOf::<P>::SPILT > 2 && count > 0 {
            let word = |place| Frame(self.at(place).load(Relaxed).wrapping_sub(first)).word().0;
            let (last, most) = (word(end - 1), end + count.min(top - end));
            while end < most && word(end) == last {
                end += 1;
            }
        }
        let given = self.give(home, first, head..end);
        self.lies_at(end, top);
        given
    }

    /// Gives the frames at some places to `home`, neighbours that follow each other in one word at once; how
    /// many. For those who shed some and those who drain all: the code is long.
    ///
    /// # Errors
    /// The last [`AlreadyFree`]; all that can be freed is.
    #[inline(never)]
    pub(super) fn give(
        &self,
        home: &impl Home,
        first: u32,
        places: Range<u32>,
    ) -> Result<u32, AlreadyFree> {
        let mut words = Words::to(home);
        let mut place = places.start;
        while place < places.end {
            if let Some((index, direction)) = self.run_from::<WORD>(place, places.end) {
                words.add_run::<WORD>(Frame(index.wrapping_sub(first)), direction);
                place += WORD as u32;
                continue;
            }
            let end = places.end.min(place + RUN as u32);
            if let Some((index, direction)) =
                StayOf::<P>::COPIES.then(|| self.run_from::<RUN>(place, end)).flatten()
            {
                words.add_run::<RUN>(Frame(index.wrapping_sub(first)), direction);
            } else {
                for place in place..end {
                    words.add_one(Frame(self.at(place).load(Relaxed).wrapping_sub(first)));
                }
            }
            place = end;
        }
        words.finish().map(|()| places.end - places.start)
    }

    /// The frame at `place` if it and those that follow, before `end`, are `LEN` that follow each other, and which
    /// way.
    #[inline(always)]
    fn run_from<const LEN: usize>(&self, place: u32, end: u32) -> Option<(u32, Direction)> {
        if end - place < LEN as u32 {
            return None;
        }
        let Some(places) = self.frames.get(place as usize % N..)?.first_chunk::<LEN>() else {
            let (rest, places) = self.frames.split_at(place as usize % N);
            return if LEN == WORD { run_across::<P>(places, rest) } else { None };
        };
        let (first, last) = (places.first()?.load(Relaxed), places.last()?.load(Relaxed));
        // One call for each way: a host's code for it is a few instructions, if it knows which. Most that are no run
        // are told by their last.
        let ends = |direction: Direction| direction.after(first, LEN as u32 - 1) == last;
        if ends(Direction::Up) {
            P::is_run(places, Direction::Up).then_some((first, Direction::Up))
        } else if ends(Direction::Down) {
            P::is_run(places, Direction::Down).then_some((first, Direction::Down))
        } else {
            None
        }
    }

    /// Takes up to `most` frames, the newest first: calls `take` with the first of those that follow each
    /// other, how many they are and which way they go; returns how many in all. For who is in the slot,
    /// with no owner outside.
    #[inline(always)]
    pub(super) fn pop_bulk(
        &self,
        most: usize,
        mut take: impl FnMut(u32, usize, Direction),
    ) -> usize {
        let (head, top) = (self.head.load(Relaxed), self.top.load(Relaxed));
        let count = (top - head).min(most.min(N) as u32);
        let (mut end, rest) = (top, top - count);
        while end > rest {
            // From the newest on a run goes the other way.
            if StayOf::<P>::COPIES
                && let Some(place) = end.checked_sub(WORD as u32).filter(|&place| place >= rest)
                && let Some((oldest, direction)) = self.run_from::<WORD>(place, end)
            {
                let newest = direction.after(oldest, WORD as u32 - 1);
                take(newest, WORD, direction.turned());
                end = place;
                continue;
            }
            let place = end.saturating_sub(RUN as u32).max(rest);
            match self.run_from::<RUN>(place, end) {
                Some((oldest, direction)) => {
                    take(direction.after(oldest, RUN as u32 - 1), RUN, direction.turned());
                }
                None => {
                    for place in (place..end).rev() {
                        take(self.at(place).load(Relaxed), 1, Direction::Up);
                    }
                }
            }
            end = place;
        }
        self.top.store(rest, Release);
        count as usize
    }

    /// The room for `LEN` frames, for which there [is some](Self::has_room_for), if it lies side by side.
    #[inline(always)]
    pub(super) fn room_for_run<const LEN: usize>(&self) -> Option<Room<'_, P, LEN>> {
        let top = self.top.load(Relaxed);
        let places = self.frames.get(top as usize % N..)?.first_chunk::<LEN>()?;
        Some(Room { places, top: &self.top, at: top })
    }

    /// Whether there is room for `len` frames; for who is in the slot, with no owner outside.
    #[inline(always)]
    pub(super) fn has_room_for(&self, len: u32) -> bool {
        self.limit.load(Relaxed).wrapping_sub(self.top.load(Relaxed)) as i32 >= len as i32
    }

    /// Puts `len` frames from `index` on on it, for which there [is room](Self::has_room_for).
    #[inline(never)]
    pub(super) fn push_some(&self, index: u32, len: u32, direction: Direction) {
        let top = self.top.load(Relaxed);
        let (rest, places) = self.frames.split_at(top as usize % N);
        let here = places.len().min(len as usize);
        P::write_run(places.get(..here).unwrap_or_default(), index, direction);
        let rest = rest.get(..len as usize - here).unwrap_or_default();
        P::write_run(rest, direction.after(index, here as u32), direction);
        self.top.store(top + len, Release);
    }

    /// Whether there is room for `len` frames once a full one has [shed](Self::shed) some.
    #[inline(always)]
    pub(super) fn sheds(&self, len: u32) -> bool {
        len <= self.high.load(Relaxed) / StayOf::<P>::SPILT
    }
}

/// A stack that is being filled, from its top place down: the oldest comes last.
pub(super) struct Filling<'a, P: Platform, const N: usize> {
    stack: &'a FrameStack<P, N>,
    first: u32,
    most: u32,
    /// Places below this one are empty.
    empty: u32,
}

impl<P: Platform, const N: usize> Filling<'_, P, N> {
    /// Puts the frames `bits` of a word under those that came before; there must be room.
    #[inline]
    pub(super) fn put(&mut self, word: WordIndex, bits: u64) {
        let first = self.first.wrapping_add(word.first_frame().0);
        let places = &self.stack.frames[..self.empty as usize];
        if bits == u64::MAX
            && let Some(places) = places.last_chunk::<64>()
        {
            P::write_run(places, first + (u64::BITS - 1), Direction::Down);
            self.empty -= u64::BITS;
            return;
        }
        let mut rest = bits;
        for place in places.iter().rev().take(bits.count_ones() as usize) {
            place.store(first + rest.trailing_zeros(), Relaxed);
            rest &= rest.wrapping_sub(1);
        }
        debug_assert_eq!(rest, 0, "more frames came than there was room for");
        self.empty -= bits.count_ones();
    }

    /// All that came is there.
    pub(super) fn finish(self) {
        self.stack.lies_at(self.empty, self.most);
    }
}
