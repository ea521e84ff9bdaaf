//! The chains of the index: how a page's slot is found in them, put in and taken out.

use super::slot::{Key, Slot, SlotId};
use super::{HOPS, Table};
use crate::host::Host;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use zonal::platform::{AtomicHalf, AtomicWord};

impl<P: Host> Table<P> {
    /// The chain of a key.
    #[inline(always)]
    pub(super) fn chain(&self, key: Key) -> usize {
        key.chain(self.shift)
    }

    pub(super) fn shard(&self, chain: usize) -> &P::Mutex<()> {
        &self.shards[chain & (self.shards.len() - 1)]
    }

    /// The slot with `key`, as it looks just now: neither found nor missed for certain. `expect`: see
    /// [`see`](Self::see).
    #[inline(always)]
    pub(super) fn look(&self, key: Key, expect: impl Fn(u32)) -> Option<&Slot<P>> {
        // A guess: a look at any slot is allowed at any time, and that it has the key is asked again by who has counted in.
        if P::GUESSES
            && let Some((at, low)) = self.stretches.guess(key)
            && let Some(slot) = self.slots.get(at as usize)
        {
            // Relaxed: as in `is`. Before the bytes are asked for, which take all the places that lines on their way have.
            let index = slot.index.load(Relaxed);
            expect(low);
            if index == key.index && slot.file.load(Relaxed) == key.file {
                return Some(slot);
            }
        }
        self.look_in_chain(key, expect)
    }

    /// The slot that a look-up of this page tries before any chain, if there is one. It may have another page, or none. Always
    /// `None` where the host [does not guess](Host::GUESSES).
    #[must_use]
    pub fn guess(&self, key: Key) -> Option<SlotId> {
        let (slot, _) = if P::GUESSES { self.stretches.guess(key)? } else { return None };
        Some(SlotId(slot))
    }

    /// The same as `look` by the chain alone.
    #[inline(always)]
    fn look_in_chain(&self, key: Key, expect: impl Fn(u32)) -> Option<&Slot<P>> {
        let chain = self.chain(key);
        // Acquire, here and at the next: with the release of `link`, so that a slot found has the key
        // that it was linked with, or a later one.
        let at = self.heads[chain].load(Acquire);
        // Relaxed: a hint.
        let low = self.hints[chain].load(Relaxed);
        let mut slot = self.slots.get(at as usize)?;
        // Relaxed, and before the bytes are asked for: as in `look`.
        let mut index = slot.index.load(Relaxed);
        expect(low);
        for _ in 1..HOPS {
            if index == key.index && slot.file.load(Relaxed) == key.file {
                return Some(slot);
            }
            slot = self.slots.get(slot.next.load(Acquire) as usize)?;
            index = slot.index.load(Relaxed);
        }
        slot.is(key).then_some(slot)
    }

    /// The slot with `key`; the chain's lock is held, so this is certain.
    pub(super) fn find(&self, key: Key) -> Option<SlotId> {
        let mut at = self.heads[self.chain(key)].load(Relaxed);
        while let Some(slot) = self.slots.get(at as usize) {
            if slot.is(key) {
                return Some(SlotId(at));
            }
            at = slot.next.load(Relaxed);
        }
        None
    }

    /// Puts a slot into its chain. Under the chain's lock.
    pub(super) fn link(&self, id: SlotId, chain: usize) {
        self.slot(id).next.store(self.heads[chain].load(Relaxed), Release);
        self.set_head(chain, id.0);
        self.came(id);
    }

    /// A page is in this slot from now on.
    fn came(&self, id: SlotId) {
        if P::GUESSES {
            let key = self.slot(id).key();
            let low = |slot: u32| self.lows[slot as usize].load(Relaxed);
            // What another thread has of the slot before this one may change: it is for a guess.
            let beside = id.0 > 0
                && low(id.0 - 1) == low(id.0).wrapping_sub(1)
                && key.index > 0
                && self.slot(SlotId(id.0 - 1)).is(Key { index: key.index - 1, ..key });
            self.stretches.came(key, id.0, low(id.0), beside);
        }
    }

    /// Makes a slot the first of a chain, or none. Under the chain's lock.
    fn set_head(&self, chain: usize, slot: u32) {
        let low = self.lows.get(slot as usize).map_or(0, |low| low.load(Relaxed));
        // Relaxed: a hint.
        self.hints[chain].store(low, Relaxed);
        // Release: with the acquire of `look`.
        self.heads[chain].store(slot, Release);
    }

    /// Takes a slot out of its chain, or puts `other` into its place. Under the chain's lock.
    /// The slot's own `next` stays: a reader may stand on it.
    pub(super) fn unlink(&self, id: SlotId, chain: usize, other: Option<SlotId>) {
        let next = self.slot(id).next.load(Relaxed);
        let next = match other {
            Some(other) => {
                self.slot(other).next.store(next, Release);
                self.came(other);
                other.0
            }
            None => next,
        };
        if self.heads[chain].load(Relaxed) == id.0 {
            return self.set_head(chain, next);
        }
        let mut at = self.heads[chain].load(Relaxed);
        while let Some(slot) = self.slots.get(at as usize) {
            at = slot.next.load(Relaxed);
            if at == id.0 {
                return slot.next.store(next, Release);
            }
        }
        debug_assert!(false, "a slot is in its chain");
    }
}
