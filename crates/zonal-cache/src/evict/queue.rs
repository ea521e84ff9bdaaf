//! Queues of slots that share their links: a slot is in one of them, or in none. Slots in a row may be in a queue as one, a
//! block of a power of two, of which the first has the links.
//!
//! Several sets of queues may have the same links, each under a lock of its own, as the lists of a kernel run
//! through the pages that they have. Which set a slot is in the cache knows: links are read and written with that
//! set's lock held, and are atomics only so that this needs no unsafe code; all accesses are relaxed.

use super::block_at;
use crate::table::SlotId;
use alloc::sync::Arc;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicU32, AtomicU64};

const NONE: u32 = u32::MAX;
/// The queue of a slot that is in none, or in a block whose first slot is in one.
const NOWHERE: u8 = 15;
/// Above the queue the order of the block that begins with the slot.
const ORDER: u32 = 4;
/// The bits of a key that a queue keeps.
pub(super) const KEY: u64 = u64::MAX >> u8::BITS;

#[derive(Debug)]
struct Link {
    /// What the policy knows a page by when it comes again, below order and queue in the high byte: 16 bytes a slot are four to
    /// a line, and these are asked for together.
    key: AtomicU64,
    newer: AtomicU32,
    older: AtomicU32,
}

impl Link {
    /// The high byte: the queue, and the order.
    fn place(&self) -> (u8, u32) {
        let high = (self.key.load(Relaxed) >> KEY.count_ones()) as u8;
        (high & NOWHERE, u32::from(high >> ORDER))
    }

    fn set(&self, queue: u8, order: u32, key: u64) {
        let high = u64::from(queue) | u64::from(order) << ORDER;
        self.key.store(high << KEY.count_ones() | key & KEY, Relaxed);
    }
}

#[derive(Clone, Copy, Debug)]
struct Ends {
    newest: u32,
    oldest: u32,
    /// Slots, of blocks all.
    len: usize,
}

impl Ends {
    const EMPTY: Self = Self { newest: NONE, oldest: NONE, len: 0 };
}

/// `N` queues over the slots.
#[derive(Debug)]
pub(super) struct Queues<const N: usize> {
    links: Arc<[Link]>,
    ends: [Ends; N],
}

impl<const N: usize> Queues<N> {
    pub(super) fn new(slots: usize) -> Self {
        let link = || Link {
            key: AtomicU64::new(u64::from(NOWHERE) << KEY.count_ones()),
            newer: AtomicU32::new(NONE),
            older: AtomicU32::new(NONE),
        };
        Self { links: (0..slots).map(|_| link()).collect(), ends: [Ends::EMPTY; N] }
    }

    /// Bytes of the links of that many slots.
    pub(super) const fn bytes(slots: usize) -> usize {
        slots * size_of::<Link>()
    }

    /// More queues over the same slots.
    pub(super) fn beside(&self) -> Self {
        Self { links: self.links.clone(), ends: [Ends::EMPTY; N] }
    }

    pub(super) const fn len(&self, queue: u8) -> usize {
        self.ends[queue as usize].len
    }

    fn link(&self, id: SlotId) -> &Link {
        &self.links[id.0 as usize]
    }

    /// The key that a slot was pushed with, but for the bits above [`KEY`].
    pub(super) fn key(&self, id: SlotId) -> u64 {
        self.link(id).key.load(Relaxed) & KEY
    }

    pub(super) fn queue_of(&self, id: SlotId) -> Option<u8> {
        Some(self.link(id).place().0).filter(|&queue| queue != NOWHERE)
    }

    /// The slots that are in a queue as one with this, the first of them.
    pub(super) fn block(&self, id: SlotId) -> impl Iterator<Item = SlotId> + use<N> {
        block_at(id, self.link(id).place().1)
    }

    /// How many these are.
    pub(super) fn slots(&self, id: SlotId) -> usize {
        1 << self.link(id).place().1
    }

    pub(super) fn oldest(&self, queue: u8) -> Option<SlotId> {
        Some(self.ends[queue as usize].oldest).filter(|&slot| slot != NONE).map(SlotId)
    }

    /// The next towards the newest.
    pub(super) fn newer(&self, id: SlotId) -> Option<SlotId> {
        Some(self.link(id).newer.load(Relaxed)).filter(|&slot| slot != NONE).map(SlotId)
    }

    /// The slots before and behind one.
    pub(super) fn neighbours(&self, id: SlotId) -> [Option<SlotId>; 2] {
        let older = Some(self.link(id).older.load(Relaxed)).filter(|&slot| slot != NONE);
        [older.map(SlotId), self.newer(id)]
    }

    /// Where the links of a slot are in memory.
    pub(super) fn address(&self, id: SlotId) -> usize {
        core::ptr::from_ref(self.link(id)).addr()
    }

    /// Puts slots that are in no queue at the new end of one: 2 to the power of `order` in a row, which are one from now on. `key` is
    /// that of the first; the others have theirs by [`note`](Self::note).
    pub(super) fn push(&mut self, queue: u8, id: SlotId, order: u32, key: u64) {
        debug_assert_eq!(self.queue_of(id), None, "a slot is in one queue");
        let older = self.ends[queue as usize].newest;
        let link = self.link(id);
        link.newer.store(NONE, Relaxed);
        link.older.store(older, Relaxed);
        link.set(queue, order, key);
        match self.links.get(older as usize) {
            Some(link) => link.newer.store(id.0, Relaxed),
            None => self.ends[queue as usize].oldest = id.0,
        }
        let ends = &mut self.ends[queue as usize];
        ends.newest = id.0;
        ends.len += 1 << order;
    }

    /// Notes the key of a slot that is in no queue, or in a block and not its first.
    pub(super) fn note(&mut self, id: SlotId, key: u64) {
        debug_assert_eq!(self.queue_of(id), None, "it has a key");
        self.link(id).set(NOWHERE, 0, key);
    }

    /// Has the second half of a block be one of its own, behind the first: newer by one place. What is no block stays as it is.
    pub(super) fn halve(&mut self, id: SlotId) {
        let (queue, order) = self.link(id).place();
        // After a policy around this one has panicked.
        if queue == NOWHERE || order == 0 {
            return;
        }
        let (order, second) = (order - 1, SlotId(id.0 + (1 << (order - 1))));
        let newer = self.link(id).newer.load(Relaxed);
        self.link(id).set(queue, order, self.key(id));
        self.link(second).set(queue, order, self.key(second));
        self.join(queue, id.0, second.0);
        self.join(queue, second.0, newer);
    }

    /// Takes a slot, or a block by its first slot, out of its queue, if it is in one.
    pub(super) fn remove(&mut self, id: SlotId) {
        let (queue, order) = self.link(id).place();
        if queue == NOWHERE {
            return;
        }
        let (newer, older) = (self.link(id).newer.load(Relaxed), self.link(id).older.load(Relaxed));
        self.join(queue, older, newer);
        self.ends[queue as usize].len -= 1 << order;
        self.link(id).set(NOWHERE, 0, self.key(id));
    }

    /// Has two be neighbours in a queue; `NONE` for its ends.
    fn join(&mut self, queue: u8, older: u32, newer: u32) {
        let ends = &mut self.ends[queue as usize];
        match self.links.get(newer as usize) {
            Some(link) => link.older.store(older, Relaxed),
            None => ends.newest = older,
        }
        match self.links.get(older as usize) {
            Some(link) => link.newer.store(newer, Relaxed),
            None => ends.oldest = newer,
        }
    }

    /// Moves a slot, or a block, to the new end of a queue.
    pub(super) fn renew(&mut self, queue: u8, id: SlotId) {
        let (key, order) = (self.key(id), self.link(id).place().1);
        self.remove(id);
        self.push(queue, id, order, key);
    }

    /// Puts `new` where `old` is, which is no block.
    pub(super) fn replace(&mut self, old: SlotId, new: SlotId) {
        let Some(queue) = self.queue_of(old) else { return };
        let (newer, older) =
            (self.link(old).newer.load(Relaxed), self.link(old).older.load(Relaxed));
        self.join(queue, older, new.0);
        self.join(queue, new.0, newer);
        self.link(new).set(queue, 0, self.key(old));
        self.link(old).set(NOWHERE, 0, self.key(old));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    #[test]
    fn a_key_goes_with_its_page_from_queue_to_queue() {
        let mut queues = Queues::<2>::new(2);
        let there =
            |queues: &Queues<2>, slot| (queues.key(SlotId(slot)), queues.queue_of(SlotId(slot)));
        queues.push(1, SlotId(0), 0, u64::MAX);
        assert_eq!(there(&queues, 0), (KEY, Some(1)));
        queues.renew(0, SlotId(0));
        assert_eq!(there(&queues, 0), (KEY, Some(0)));
        queues.replace(SlotId(0), SlotId(1));
        assert_eq!((there(&queues, 0).1, there(&queues, 1)), (None, (KEY, Some(0))));
        queues.remove(SlotId(1));
        assert_eq!(there(&queues, 1), (KEY, None));
        assert_eq!(size_of::<Link>(), 16);
    }

    /// The slots of a queue, and their pieces by first slot and order.
    fn listed(queues: &Queues<2>, queue: u8) -> (Vec<u32>, Vec<(u32, u32)>) {
        let (mut list, mut pieces) = (Vec::new(), Vec::new());
        let mut at = queues.oldest(queue);
        while let Some(id) = at {
            assert_eq!(queues.queue_of(id), Some(queue));
            list.extend(queues.block(id).map(|id| id.0));
            pieces.push((id.0, queues.slots(id).ilog2()));
            at = queues.newer(id);
        }
        assert_eq!(list.len(), queues.len(queue));
        (list, pieces)
    }

    proptest! {
        #[test]
        fn they_are_what_two_deques_are(
            steps in prop::collection::vec((0_u8..6, 0_u32..8, 0_u8..2, 0_u32..8), 0..60),
        ) {
            let mut queues = Queues::<2>::new(8);
            // Pieces, as above.
            let mut model = [Vec::<(u32, u32)>::new(), Vec::new()];
            for (what, slot, queue, other) in steps {
                let (id, other) = (SlotId(slot), SlotId(other));
                let there = |id: SlotId| {
                    let mut pieces = model.iter().flatten();
                    pieces.any(|&(first, order)| (first..first + (1 << order)).contains(&id.0))
                };
                let held = model.iter().flatten().find(|piece| piece.0 == slot).copied();
                prop_assert_eq!(queues.queue_of(id).is_some(), held.is_some());
                match (what, held) {
                    (0, None) if !there(id) => {
                        queues.push(queue, id, 0, u64::from(slot));
                        model[usize::from(queue)].push((slot, 0));
                    }
                    (1, Some(_)) | (1, None) => {
                        queues.remove(id);
                        model.iter_mut().for_each(|list| list.retain(|it| it.0 != slot));
                    }
                    (2, Some(piece)) => {
                        queues.renew(queue, id);
                        model.iter_mut().for_each(|list| list.retain(|it| it.0 != slot));
                        model[usize::from(queue)].push(piece);
                    }
                    (3, Some((_, 0))) if !there(other) => {
                        queues.replace(id, other);
                        let all = model.iter_mut().flatten();
                        all.filter(|it| it.0 == slot).for_each(|it| it.0 = other.0);
                    }
                    (4, None) => {
                        let order = 1 + other.0 % 3;
                        let block = slot..slot + (1 << order);
                        if block.end <= 8 && !block.clone().any(|it| there(SlotId(it))) {
                            block.skip(1).for_each(|it| queues.note(SlotId(it), u64::from(it)));
                            queues.push(queue, id, order, u64::from(slot));
                            model[usize::from(queue)].push((slot, order));
                        }
                    }
                    (5, Some((_, order @ 1..))) => {
                        queues.halve(id);
                        for list in &mut model {
                            if let Some(at) = list.iter().position(|it| it.0 == slot) {
                                list[at].1 = order - 1;
                                list.insert(at + 1, (slot + (1 << (order - 1)), order - 1));
                            }
                        }
                    }
                    _ => {}
                }
                for queue in 0..2 {
                    let (list, pieces) = listed(&queues, queue);
                    prop_assert_eq!(&pieces, &model[usize::from(queue)]);
                    let mut slots = list.clone();
                    slots.sort_unstable();
                    slots.dedup();
                    prop_assert_eq!(slots.len(), list.len());
                }
            }
        }
    }
}
