//! A reader with its slot at hand: what a hit does with a page, without a second look-up.

use super::lanes::leave;
use super::slot::Slot;
use super::word::{READER, Word};
use super::{Claimed, Reader, Table};
use crate::host::Host;
use core::sync::atomic::Ordering::{AcqRel, Relaxed};
use zonal::Pfn;
use zonal::platform::AtomicWord;

/// A [`Reader`] that knows its slot by place and not by number. As with all tokens, one that is dropped is a page that
/// stays as it is for ever.
pub(crate) struct Seen<'a, P: Host> {
    slot: &'a Slot<P>,
    /// Where it is counted, if not at the word of the slot.
    count: Option<&'a P::Word>,
}

impl<'a, P: Host> Seen<'a, P> {
    /// `slot` is one that the caller has counted itself in, at the word or at `count` of a lane.
    #[inline(always)]
    pub(super) const fn new(slot: &'a Slot<P>, count: Option<&'a P::Word>) -> Self {
        Self { slot, count }
    }

    /// The same with the slot by its number.
    pub(super) fn into_reader(self, table: &Table<P>) -> Reader {
        Reader { id: table.id_of(self.slot), lane: table.lanes.lane_of(self.count) }
    }

    /// The mark of the page, which is the eviction policy's.
    #[inline(always)]
    pub(crate) const fn mark(&self) -> &'a P::Byte {
        &self.slot.mark
    }

    /// The frame of the page.
    #[inline(always)]
    pub(crate) fn frame(&self) -> Pfn {
        // Relaxed: written while one thread had the slot; this one came after.
        Pfn::new(self.slot.frame.load(Relaxed))
    }

    /// Whether this reader is the first at a page that was filled with a marker.
    pub(crate) fn take_marker(&self) -> bool {
        let word = &self.slot.word;
        // Relaxed: a hint.
        Word(word.load(Relaxed)).has(Word::MARKER)
            && Word(word.fetch_and(!Word::MARKER, Relaxed)).has(Word::MARKER)
    }

    /// Ends the look at a page of `table`; one locked instruction. The slot, if it is the caller's to free now.
    #[inline(always)]
    #[must_use]
    pub(crate) fn leave(self, table: &Table<P>) -> Option<Claimed> {
        if let Some(count) = self.count {
            leave(count, self.slot.shift);
            // Relaxed: later than the counting out (L-1).
            let seen = Word(self.slot.word.load(Relaxed));
            return if seen.has(Word::DETACHED) {
                table.settle(table.id_of(self.slot))
            } else {
                None
            };
        }
        // Release: with the acquire of a writer or an eviction, which come after. Acquire: for `last`.
        let before = self.slot.word.fetch_add(READER.wrapping_neg(), AcqRel);
        if !Word(before).has(Word::DETACHED) {
            return None;
        }
        table.last(table.id_of(self.slot), before, READER)
    }
}
