//! Pages that are spread: how readers come to a [lane](super::lanes) and go, and how a page becomes one thread's that they
//! may be at.

use super::slot::Slot;
use super::word::Word;
use super::{Claimed, Seen, SlotId, Table, Token};
use crate::host::Host;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use zonal::platform::AtomicWord;

/// What a page looks like to one who would have its slot: as [`Taken`](super::Taken), but for certain nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Seems {
    Free,
    InUse,
    Moving,
    Dirty,
}

impl<P: Host> Table<P> {
    /// From now on readers of this page count themselves in by CPU. [`enter`](Self::enter) has it done where two met; without
    /// lanes nothing changes.
    pub fn spread(&self, token: &impl Token) {
        if !self.lanes.is_empty() {
            // Relaxed: what readers do by it they decide by an exchange.
            let _ = self.slot(token.id()).word.fetch_or(Word::SPREAD, Relaxed);
        }
    }

    /// A reader came where another is, by the word as it was `seen`: CPUs take this page from each other, and it is spread.
    /// False if there are no lanes; else `seen` is what the word is then.
    #[cold]
    #[inline(never)]
    pub(super) fn spread_word(&self, slot: &Slot<P>, seen: &mut u64) -> bool {
        if self.lanes.is_empty() {
            return false;
        }
        // Acquire and release, as for all exchanges of a word.
        let spread = *seen | Word::SPREAD;
        *seen = slot
            .word
            .compare_exchange(*seen, spread, AcqRel, Relaxed)
            .map_or_else(|now| now, |_| spread);
        true
    }

    /// Looks at a page that was spread a moment ago. As [`see`](Self::see), with the word as it was.
    #[inline(always)]
    pub(super) fn enter_lane<'a>(
        &'a self,
        host: &P,
        slot: &'a Slot<P>,
    ) -> Result<(Seen<'a, P>, Word), Option<Claimed>> {
        let count = self.lanes.enter(host.cpu(), self.id_of(slot)).ok_or(None)?;
        let reader = Seen::new(slot, Some(count));
        // Acquire: as where it is counted in at the word. Later than the counting in (L-1).
        let seen = Word(slot.word.load(Acquire));
        if seen.is_readable() && seen.has(Word::SPREAD) {
            Ok((reader, seen))
        } else {
            Err(reader.leave(self))
        }
    }

    /// After `less` were counted out of the word of a slot, which was `before`: the slot, if it has left the index and that
    /// was the last.
    pub(super) fn last(&self, id: SlotId, before: u64, less: u64) -> Option<Claimed> {
        if !Word(before).has(Word::DETACHED) || !Word(before - less).is_alone() {
            return None;
        }
        if Word(before).has(Word::SPREAD) {
            return self.settle(id);
        }
        // Neither readers nor holds come to what is detached, so this thread is alone. The counting
        // out has acquired what those before it did.
        self.slot(id).word.store(Word::CLAIMED, Release);
        Some(Claimed(id))
    }

    /// A page that is spread and has left the index: its slot, if no thread is there any more. All who leave ask.
    #[cold]
    #[inline(never)]
    pub(super) fn settle(&self, id: SlotId) -> Option<Claimed> {
        let word = &self.slot(id).word;
        loop {
            let seen = word.load(Relaxed);
            let is = Word(seen);
            // One that is claimed is being settled by another thread, which looks again after that.
            let settled = is.has(Word::CLAIMED) || !is.has(Word::DETACHED) || !is.has(Word::SPREAD);
            if settled || !is.is_alone() {
                return None;
            }
            if self.claim_spread(id, seen) {
                return Some(Claimed(id));
            }
            // One that left meanwhile saw the claim and went away.
            if !self.lanes.none(id) {
                return None;
            }
        }
    }

    /// Claims a slot whose word is `seen` and in which no thread is but, if the page is spread, at the lanes; whether none was
    /// there. No thread counts itself in at the word meanwhile, or the exchange fails.
    pub(super) fn claim_word(&self, id: SlotId, seen: u64) -> bool {
        if Word(seen).has(Word::SPREAD) {
            return self.lanes.seem_empty(id) && self.claim_spread(id, seen);
        }
        // Acquire: with the release of those who left. A failure is another who came.
        self.slot(id).word.compare_exchange(seen, Word::CLAIMED, Acquire, Relaxed).is_ok()
    }

    /// Whether the page of a slot could be [claimed](Self::claim), as it looks just now.
    pub(crate) fn may_leave(&self, id: SlotId) -> bool {
        self.seems(id) == Seems::Free
    }

    /// What an attempt to [claim](Self::claim) the page of a slot would find, as it looks just now.
    pub(crate) fn seems(&self, id: SlotId) -> Seems {
        // Relaxed: a guess.
        let seen = Word(self.slot(id).word.load(Relaxed));
        if seen.has(Word::WRITER | Word::WRITEBACK | Word::CLAIMED) {
            Seems::Moving
        } else if !seen.is_alone() || seen.has(Word::DETACHED) {
            Seems::InUse
        } else if seen.has(Word::DIRTY) {
            Seems::Dirty
        } else if seen.has(Word::SPREAD) && !self.lanes.seem_empty(id) {
            Seems::InUse
        } else {
            Seems::Free
        }
    }

    fn claim_spread(&self, id: SlotId, seen: u64) -> bool {
        let word = &self.slot(id).word;
        // Acquire, here and in `none`: with the release of those who left. Before the lanes are asked (L-1).
        if word.compare_exchange(seen, seen | Word::CLAIMED, AcqRel, Relaxed).is_err() {
            return false;
        }
        if self.lanes.none(id) {
            // Readers and marks come by an exchange or not at all, and this thread is alone.
            word.store(Word::CLAIMED, Release);
            return true;
        }
        // Not a store: a reader at a lane may take the marker.
        let _ = word.fetch_and(!Word::CLAIMED, AcqRel);
        false
    }

    /// Whether readers are at a page that no more come to.
    pub(super) fn is_read(&self, id: SlotId) -> bool {
        // Acquire: with the release of readers that left.
        let seen = Word(self.slot(id).word.load(Acquire));
        seen.readers() > 0 || seen.has(Word::SPREAD) && !self.lanes.none(id)
    }
}
