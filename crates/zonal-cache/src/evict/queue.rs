//! Queues of slots that share their links: a slot is in one of them, or in none.

use crate::table::SlotId;
use alloc::boxed::Box;

const NONE: u32 = u32::MAX;
/// The queue of a slot that is in none.
const NOWHERE: u8 = u8::MAX;

#[derive(Clone, Copy, Debug)]
struct Link {
    newer: u32,
    older: u32,
    queue: u8,
}

#[derive(Clone, Copy, Debug)]
struct Ends {
    newest: u32,
    oldest: u32,
    len: usize,
}

/// `N` queues over the slots.
#[derive(Debug)]
pub(super) struct Queues<const N: usize> {
    links: Box<[Link]>,
    ends: [Ends; N],
    /// What the policy knows a page by when it comes again.
    keys: Box<[u64]>,
}

impl<const N: usize> Queues<N> {
    pub(super) fn new(slots: usize) -> Self {
        let link = Link { newer: NONE, older: NONE, queue: NOWHERE };
        Self {
            links: (0..slots).map(|_| link).collect(),
            ends: [Ends { newest: NONE, oldest: NONE, len: 0 }; N],
            keys: (0..slots).map(|_| 0).collect(),
        }
    }

    pub(super) const fn len(&self, queue: u8) -> usize {
        self.ends[queue as usize].len
    }

    pub(super) fn key(&self, id: SlotId) -> u64 {
        self.keys[id.0 as usize]
    }

    pub(super) fn queue_of(&self, id: SlotId) -> Option<u8> {
        Some(self.links[id.0 as usize].queue).filter(|&queue| queue != NOWHERE)
    }

    pub(super) fn oldest(&self, queue: u8) -> Option<SlotId> {
        Some(self.ends[queue as usize].oldest).filter(|&slot| slot != NONE).map(SlotId)
    }

    /// The next towards the newest.
    pub(super) fn newer(&self, id: SlotId) -> Option<SlotId> {
        Some(self.links[id.0 as usize].newer).filter(|&slot| slot != NONE).map(SlotId)
    }

    /// Puts a slot that is in no queue at the new end of one.
    pub(super) fn push(&mut self, queue: u8, id: SlotId, key: u64) {
        debug_assert_eq!(self.queue_of(id), None, "a slot is in one queue");
        let ends = &mut self.ends[queue as usize];
        let older = ends.newest;
        self.links[id.0 as usize] = Link { newer: NONE, older, queue };
        self.keys[id.0 as usize] = key;
        ends.newest = id.0;
        ends.len += 1;
        match self.links.get_mut(older as usize) {
            Some(link) => link.newer = id.0,
            None => ends.oldest = id.0,
        }
    }

    /// Takes a slot out of its queue, if it is in one.
    pub(super) fn remove(&mut self, id: SlotId) {
        let Link { newer, older, queue } = self.links[id.0 as usize];
        if queue == NOWHERE {
            return;
        }
        let ends = &mut self.ends[queue as usize];
        ends.len -= 1;
        match self.links.get_mut(newer as usize) {
            Some(link) => link.older = older,
            None => ends.newest = older,
        }
        match self.links.get_mut(older as usize) {
            Some(link) => link.newer = newer,
            None => ends.oldest = newer,
        }
        self.links[id.0 as usize].queue = NOWHERE;
    }

    /// Moves a slot to the new end of a queue.
    pub(super) fn renew(&mut self, queue: u8, id: SlotId) {
        let key = self.key(id);
        self.remove(id);
        self.push(queue, id, key);
    }

    /// Puts `new` where `old` is.
    pub(super) fn replace(&mut self, old: SlotId, new: SlotId) {
        let link = self.links[old.0 as usize];
        if link.queue == NOWHERE {
            return;
        }
        let ends = &mut self.ends[link.queue as usize];
        match self.links.get_mut(link.newer as usize) {
            Some(newer) => newer.older = new.0,
            None => ends.newest = new.0,
        }
        match self.links.get_mut(link.older as usize) {
            Some(older) => older.newer = new.0,
            None => ends.oldest = new.0,
        }
        self.links[new.0 as usize] = link;
        self.keys[new.0 as usize] = self.keys[old.0 as usize];
        self.links[old.0 as usize].queue = NOWHERE;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

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
