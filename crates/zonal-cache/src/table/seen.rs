//! A reader with its slot at hand: what a hit does with a page, without a second look-up.

use super::slot::Slot;
use super::word::{READER, Word};
use super::{Claimed, Table};
use crate::host::Host;
use core::sync::atomic::Ordering::{AcqRel, Relaxed, Release};
use zonal::Pfn;
use zonal::platform::AtomicWord;

/// A [`Reader`] that knows its slot by place and not by number. As with all tokens, one that is dropped is a page that
/// stays as it is for ever.
pub(crate) struct Seen<'a, P: Host> {
    slot: &'a Slot<P>,
}

impl<'a, P: Host> Seen<'a, P> {
    /// `slot` is one that the caller has counted itself in.
    #[inline(always)]
    pub(super) const fn new(slot: &'a Slot<P>) -> Self {
        Self { slot }
    }

    #[inline(always)]
    pub(super) const fn slot(&self) -> &'a Slot<P> {
        self.slot
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
        // Release: with the acquire of a writer or an eviction, which come after. Acquire: for `last`.
        let before = self.slot.word.fetch_add(READER.wrapping_neg(), AcqRel);
        last(self.slot, before, READER).then(|| Claimed(table.id_of(self.slot)))
    }
}

/// After `less` were counted out of a slot, whose word was `before`: whether it has left the index and that was
/// the last. Then it is claimed, and the caller's.
#[inline(always)]
pub(super) fn last<P: Host>(slot: &Slot<P>, before: u64, less: u64) -> bool {
    if !Word(before).has(Word::DETACHED) || !Word(before - less).is_alone() {
        return false;
    }
    // Neither readers nor holds come to what is detached, so this thread is alone. The counting
    // out has acquired what those before it did.
    slot.word.store(Word::CLAIMED, Release);
    true
}
