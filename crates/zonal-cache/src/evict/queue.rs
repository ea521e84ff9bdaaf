//! Queues of slots that share their links: a slot is in one of them, or in none.
//!
//! Several sets of queues may have the same links, each under a lock of its own, as the lists of a kernel run
//! through the pages that they have. Which set a slot is in the cache knows: links are read and written with that
//! set's lock held, and are atomics only so that this needs no unsafe code; all accesses are relaxed.

use crate::table::SlotId;
use alloc::sync::Arc;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicU32, AtomicU64};

const NONE: u32 = u32::MAX;
/// The queue of a slot that is in none.
const NOWHERE: u8 = u8::MAX;
/// The bits of a key that a queue keeps.
pub(super) const KEY: u64 = u64::MAX >> u8::BITS;

#[derive(Debug)]
struct Link {
    /// What the policy knows a page by when it comes again, below the queue in the high byte: 16 bytes a slot are four to a
    /// line, and the two are asked for together.
    key: AtomicU64,
    newer: AtomicU32,
    older: AtomicU32,
}

impl Link {
    fn queue(&self) -> u8 {
        (self.key.load(Relaxed) >> KEY.count_ones()) as u8
    }

    fn set(&self, queue: u8, key: u64) {
        self.key.store(u64::from(queue) << KEY.count_ones() | key & KEY, Relaxed);
    }
}

#[derive(Clone, Copy, Debug)]
struct Ends {
    newest: u32,
    oldest: u32,
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
            key: AtomicU64::new(!KEY),
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
        Some(self.link(id).queue()).filter(|&queue| queue != NOWHERE)
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

    /// Puts a slot that is in no queue at the new end of one.
    pub(super) fn push(&mut self, queue: u8, id: SlotId, key: u64) {
        debug_assert_eq!(self.queue_of(id), None, "a slot is in one queue");
        let older = self.ends[queue as usize].newest;
        let link = self.link(id);
        link.newer.store(NONE, Relaxed);
        link.older.store(older, Relaxed);
        link.set(queue, key);
        match self.links.get(older as usize) {
            Some(link) => link.newer.store(id.0, Relaxed),
            None => self.ends[queue as usize].oldest = id.0,
        }
        let ends = &mut self.ends[queue as usize];
        ends.newest = id.0;
        ends.len += 1;
    }

    /// Takes a slot out of its queue, if it is in one.
    pub(super) fn remove(&mut self, id: SlotId) {
        let Some(queue) = self.queue_of(id) else { return };
        let (newer, older) = (self.link(id).newer.load(Relaxed), self.link(id).older.load(Relaxed));
        self.join(queue, older, newer);
        self.ends[queue as usize].len -= 1;
        self.link(id).set(NOWHERE, self.key(id));
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

    /// Moves a slot to the new end of a queue.
    pub(super) fn renew(&mut self, queue: u8, id: SlotId) {
        let key = self.key(id);
        self.remove(id);
        self.push(queue, id, key);
    }

    /// Puts `new` where `old` is.
    pub(super) fn replace(&mut self, old: SlotId, new: SlotId) {
        let Some(queue) = self.queue_of(old) else { return };
        let (newer, older) =
            (self.link(old).newer.load(Relaxed), self.link(old).older.load(Relaxed));
        self.join(queue, older, new.0);
        self.join(queue, new.0, newer);
        self.link(new).set(queue, self.key(old));
        self.link(old).set(NOWHERE, self.key(old));
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
        queues.push(1, SlotId(0), u64::MAX);
        assert_eq!(there(&queues, 0), (KEY, Some(1)));
        queues.renew(0, SlotId(0));
        assert_eq!(there(&queues, 0), (KEY, Some(0)));
        queues.replace(SlotId(0), SlotId(1));
        assert_eq!((there(&queues, 0).1, there(&queues, 1)), (None, (KEY, Some(0))));
        queues.remove(SlotId(1));
        assert_eq!(there(&queues, 1), (KEY, None));
        assert_eq!(size_of::<Link>(), 16);
    }

    fn listed(queues: &Queues<2>, queue: u8) -> Vec<u32> {
        let mut list = Vec::new();
        let mut at = queues.oldest(queue);
        while let Some(id) = at {
            assert_eq!(queues.queue_of(id), Some(queue));
            list.push(id.0);
            at = queues.newer(id);
        }
        assert_eq!(list.len(), queues.len(queue));
        list
    }

    proptest! {
        #[test]
        fn they_are_what_two_deques_are(
            steps in prop::collection::vec((0_u8..4, 0_u32..8, 0_u8..2, 0_u32..8), 0..60),
        ) {
            let mut queues = Queues::<2>::new(8);
            let mut model = [Vec::new(), Vec::new()];
            for (what, slot, queue, other) in steps {
                let (id, other) = (SlotId(slot), SlotId(other));
                let held = queues.queue_of(id);
                prop_assert_eq!(held.is_some(), model.iter().any(|list| list.contains(&slot)));
                match what {
                    0 if held.is_none() => {
                        queues.push(queue, id, u64::from(slot));
                        model[usize::from(queue)].push(slot);
                    }
                    1 => {
                        queues.remove(id);
                        model.iter_mut().for_each(|list| list.retain(|&it| it != slot));
                    }
                    2 if held.is_some() => {
                        queues.renew(queue, id);
                        model.iter_mut().for_each(|list| list.retain(|&it| it != slot));
                        model[usize::from(queue)].push(slot);
                    }
                    3 if held.is_some() && queues.queue_of(other).is_none() => {
                        queues.replace(id, other);
                        let all = model.iter_mut().flatten();
                        all.filter(|it| **it == slot).for_each(|it| *it = other.0);
                    }
                    _ => {}
                }
                for queue in 0..2 {
                    prop_assert_eq!(&listed(&queues, queue), &model[usize::from(queue)]);
                }
            }
        }
    }
}
