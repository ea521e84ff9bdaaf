//! Two lists with second chance. Source: the page cache of Linux (2.6.28 and later; refault distance since
//! 3.15), whose way this is, not its code.
//!
//! Mechanism: pages come to the inactive list. When the oldest is to go and was used again, it becomes
//! active instead. While the active list is the longer one, its oldest page goes to the inactive list,
//! unless it was used since: then it has a second chance. A page that comes back after no more pages went
//! than the active list has would have stayed, had that list been shorter: it becomes active at once. Active pages
//! go where no others can, and are remembered as those.
//!
//! State: lists and ghosts under the cache's lock; a bit in the page's mark. Conflicts with nothing.
//! Unlike the source, a page becomes active when it would have to go and not at its second use: so a
//! hit takes no lock.
//!
//! ```
//! use zonal_cache::evict::{Evict, TwoLists};
//! assert_eq!((TwoLists::NAME, TwoLists::MOST), ("two-lists", 1));
//! ```

use super::ghost::Ghosts;
use super::queue::Queues;
use super::{Evict, Told, Verdict, block_at, hits};
use crate::table::SlotId;
use core::sync::atomic::Ordering::Relaxed;
use zonal::platform::AtomicByte;

const INACTIVE: u8 = 0;
const ACTIVE: u8 = 1;

/// The policy: see its file.
#[derive(Debug)]
pub struct TwoLists {
    lists: Queues<2>,
    ghosts: Ghosts,
}

impl TwoLists {
    /// The policy for that many slots, which remembers about `ghosts` of the pages that went: 0 where none
    /// ever goes by [`scan`](Evict::scan).
    #[must_use]
    pub fn with_ghosts(slots: usize, ghosts: usize) -> Self {
        Self { lists: Queues::new(slots), ghosts: Ghosts::new(ghosts) }
    }

    /// Where the links of a slot are in this computer's memory: for a host that has them fetched ahead. O(1).
    #[must_use]
    pub fn address(&self, id: SlotId) -> usize {
        self.lists.address(id)
    }

    /// The pages beside one on its list, the older one first; of one that is on none, those that were. For a host that
    /// charges for what a kernel does to them. O(1).
    #[must_use]
    pub fn neighbours(&self, id: SlotId) -> [Option<SlotId>; 2] {
        self.lists.neighbours(id)
    }

    /// What was taken, from whichever list, is remembered: how far another page is that went says how many went since.
    fn gone(&mut self, id: SlotId) {
        let left = self.lists.block(id);
        left.for_each(|id| self.ghosts.insert(self.lists.key(id), 0));
        self.lists.remove(id);
    }

    /// Has the active list be no longer than the other.
    fn balance<'m, B: AtomicByte + 'm>(
        &mut self,
        mark: &impl Fn(SlotId) -> &'m B,
        told: &mut impl FnMut(Told, SlotId),
    ) {
        let mut chances = self.lists.len(ACTIVE);
        while self.lists.len(ACTIVE) > self.lists.len(INACTIVE) {
            let Some(id) = self.lists.oldest(ACTIVE) else { return };
            let used = hits(mark(id)) > 0;
            mark(id).store(0, Relaxed);
            if used && chances > 0 {
                chances = chances.saturating_sub(self.lists.slots(id));
                self.lists.renew(ACTIVE, id);
                told(Told::StaysActive, id);
            } else {
                self.lists.renew(INACTIVE, id);
                told(Told::Deactivated, id);
            }
        }
    }
}

impl Evict for TwoLists {
    const NAME: &'static str = "two-lists";
    const MOST: u8 = 1;
    const BLOCKS: bool = true;

    fn new(slots: usize) -> Self {
        Self::with_ghosts(slots, slots)
    }

    fn beside(&self, _: usize, pages: usize) -> Self {
        Self { lists: self.lists.beside(), ghosts: Ghosts::new(pages) }
    }

    fn table_bytes(slots: usize, lists: usize) -> usize {
        Queues::<2>::bytes(slots) + lists * Ghosts::bytes(slots.div_ceil(lists))
    }

    fn insert(&mut self, id: SlotId, key: u64) {
        self.insert_block(id, 0, &|_| key);
    }

    fn insert_block(&mut self, first: SlotId, order: u32, key: &dyn Fn(SlotId) -> u64) {
        let (active, mut would_have_stayed) = (self.lists.len(ACTIVE), 0);
        for id in block_at(first, order) {
            let stays = self.ghosts.take(key(id)).is_some_and(|(age, _)| age <= active);
            would_have_stayed += usize::from(stays);
            self.lists.note(id, key(id));
        }
        // What most of them would have done.
        let list = if would_have_stayed * 2 > 1 << order { ACTIVE } else { INACTIVE };
        self.lists.push(list, first, order, key(first));
    }

    fn halve(&mut self, first: SlotId) {
        self.lists.halve(first);
    }

    fn remove(&mut self, id: SlotId) {
        self.lists.remove(id);
    }

    fn replace(&mut self, old: SlotId, new: SlotId) {
        self.lists.replace(old, new);
    }

    fn is_active(&self, id: SlotId) -> bool {
        self.lists.queue_of(id) == Some(ACTIVE)
    }

    fn refaults(&self) -> u64 {
        self.ghosts.back()
    }

    fn scan_told<'m, B: AtomicByte + 'm>(
        &mut self,
        mark: &impl Fn(SlotId) -> &'m B,
        take: &mut impl FnMut(SlotId) -> Verdict,
        told: &mut impl FnMut(Told, SlotId),
    ) -> bool {
        let all = self.lists.len(INACTIVE) + self.lists.len(ACTIVE);
        // Each page may become active once, come back, and be offered.
        let mut looks = 3 * all;
        while looks > 0 {
            self.balance(mark, told);
            let Some(id) = self.lists.oldest(INACTIVE) else { return false };
            if hits(mark(id)) > 0 {
                mark(id).store(0, Relaxed);
                self.lists.renew(ACTIVE, id);
                told(Told::Activated, id);
            } else {
                match take(id) {
                    Verdict::Taken => {
                        self.gone(id);
                        return true;
                    }
                    Verdict::Kept => self.lists.renew(INACTIVE, id),
                    Verdict::Split => {
                        self.lists.halve(id);
                        continue;
                    }
                }
            }
            looks = looks.saturating_sub(self.lists.slots(id));
        }
        // The active ones, where all others are kept.
        let mut looks = self.lists.len(ACTIVE);
        while looks > 0
            && let Some(id) = self.lists.oldest(ACTIVE)
        {
            match take(id) {
                Verdict::Taken => {
                    self.gone(id);
                    return true;
                }
                Verdict::Kept => {
                    looks = looks.saturating_sub(self.lists.slots(id));
                    self.lists.renew(ACTIVE, id);
                }
                Verdict::Split => self.lists.halve(id),
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use core::sync::atomic::AtomicU8;

    /// What a scan takes where these alone may go.
    fn take_only(lists: &mut TwoLists, marks: &[AtomicU8], may_go: &[u32]) -> Vec<u32> {
        let mut gone = Vec::new();
        let mut take = |id: SlotId| {
            if !may_go.contains(&id.0) {
                return Verdict::Kept;
            }
            gone.extend(block(id));
            Verdict::Taken
        };
        let mark = |id: SlotId| &marks[id.0 as usize];
        lists.scan(&mark, &mut take);
        gone
    }

    /// A page by itself, and a block of four from slot 8 on.
    fn block(id: SlotId) -> Vec<u32> {
        let order = if id.0 == 8 { 2 } else { 0 };
        block_at(id, order).map(|id| id.0).collect()
    }

    /// Slots 0 to 7 and the block from 8 on, of which 0 to 3 and the block are active, and the key of a slot.
    fn active() -> (TwoLists, Vec<AtomicU8>) {
        let marks: Vec<AtomicU8> = (0..24).map(|_| AtomicU8::new(0)).collect();
        let mut lists = TwoLists::new(24);
        (0..8).chain(12..20).for_each(|slot| lists.insert(SlotId(slot), key(SlotId(slot))));
        lists.insert_block(SlotId(8), 2, &key);
        [0, 1, 2, 3, 8].iter().for_each(|&slot: &usize| marks[slot].store(1, Relaxed));
        assert_eq!(take_only(&mut lists, &marks, &[]), [0; 0]);
        assert_eq!((lists.lists.len(ACTIVE), lists.lists.len(INACTIVE)), (8, 12));
        (lists, marks)
    }

    fn key(id: SlotId) -> u64 {
        100 + u64::from(id.0)
    }

    #[test]
    fn active_pages_that_go_as_no_others_can_are_remembered() {
        let (mut lists, marks) = active();
        assert_eq!(take_only(&mut lists, &marks, &[2]), [2]);
        assert_eq!(take_only(&mut lists, &marks, &[8]), [8, 9, 10, 11]);
        assert_eq!(lists.lists.len(ACTIVE), 3);
        // The block's latest page went one page ago, and page 2 five pages ago: more than are active.
        lists.insert(SlotId(11), key(SlotId(11)));
        lists.insert(SlotId(2), key(SlotId(2)));
        assert_eq!((lists.is_active(SlotId(11)), lists.is_active(SlotId(2))), (true, false));
        assert_eq!(lists.refaults(), 2);
    }

    #[test]
    fn a_page_that_went_is_as_far_as_pages_went_since_whichever_list_they_were_on() {
        let (mut lists, marks) = active();
        assert_eq!(take_only(&mut lists, &marks, &[5]), [5]);
        for slot in 0..4 {
            assert_eq!(take_only(&mut lists, &marks, &[slot]), [slot]);
        }
        // Five went, itself included, and four are active.
        lists.insert(SlotId(5), key(SlotId(5)));
        assert_eq!((lists.lists.len(ACTIVE), lists.is_active(SlotId(5))), (4, false));
    }
}
