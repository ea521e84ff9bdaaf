//! S3-FIFO. Source: Yang, Zhang, Qiu, Yue, Rashmi, "FIFO queues are all you need for cache eviction"
//! (SOSP 2023), and how its authors' libCacheSim fills an empty cache since December 2024.
//!
//! Mechanism: pages come to a small queue, a tenth of all. At its end those that were used at least
//! twice go on to the main queue, the others leave and become ghosts. Who comes back while it is a ghost
//! comes to the main queue at once. There a page that was used since is put back to the new end with a
//! use less, another goes. So pages that are used once pass through a tenth of the cache only. Until the first page
//! went, pages that the small queue has no room for come to the main one: otherwise all that filled the cache
//! would be in the small one, and leave it before anything that comes later.
//!
//! State: queues and ghosts under the cache's lock; the uses, up to 3, in the page's mark. Conflicts
//! with nothing. The ghosts are [`Ghosts`], which forgets some.
//!
//! ```
//! use zonal_cache::evict::{Evict, S3Fifo};
//! assert_eq!((S3Fifo::NAME, S3Fifo::MOST), ("S3-FIFO", 3));
//! ```

use super::ghost::Ghosts;
use super::queue::Queues;
use super::{Evict, Told, Verdict, block_at, hits};
use crate::table::SlotId;
use core::sync::atomic::Ordering::Relaxed;
use zonal::platform::AtomicByte;

const SMALL: u8 = 0;
const MAIN: u8 = 1;
/// Uses that take a page from the small queue to the main one.
const TO_MAIN: u8 = 2;

/// The policy: see its file.
#[derive(Debug)]
pub struct S3Fifo {
    queues: Queues<2>,
    ghosts: Ghosts,
    /// A tenth of the pages that there may be to begin with: what the small queue has room for while the cache fills.
    tenth: usize,
    /// Whether no page went yet.
    fills: bool,
}

impl S3Fifo {
    fn with_queues(queues: Queues<2>, pages: usize) -> Self {
        Self { queues, ghosts: Ghosts::new(pages), tenth: pages.div_ceil(10), fills: true }
    }

    /// Looks at the oldest page of the small queue: it went, stays, or is two.
    fn small<'m, B: AtomicByte + 'm>(
        &mut self,
        id: SlotId,
        mark: &impl Fn(SlotId) -> &'m B,
        take: &mut impl FnMut(SlotId) -> Verdict,
    ) -> Verdict {
        if hits(mark(id)) >= TO_MAIN {
            mark(id).store(0, Relaxed);
            self.queues.renew(MAIN, id);
            return Verdict::Kept;
        }
        self.offer(id, take)
    }

    /// Offers the oldest page of the small queue.
    fn offer(&mut self, id: SlotId, take: &mut impl FnMut(SlotId) -> Verdict) -> Verdict {
        let verdict = take(id);
        match verdict {
            Verdict::Taken => {
                self.queues.block(id).for_each(|id| self.ghosts.insert(self.queues.key(id), 0));
                self.queues.remove(id);
            }
            Verdict::Kept => self.queues.renew(SMALL, id),
            Verdict::Split => self.queues.halve(id),
        }
        verdict
    }

    /// Looks at the oldest page of the main queue.
    fn main<'m, B: AtomicByte + 'm>(
        &mut self,
        id: SlotId,
        mark: &impl Fn(SlotId) -> &'m B,
        take: &mut impl FnMut(SlotId) -> Verdict,
    ) -> Verdict {
        let uses = hits(mark(id));
        let verdict = if uses > 0 { Verdict::Kept } else { take(id) };
        match verdict {
            Verdict::Taken => self.queues.remove(id),
            Verdict::Kept => {
                if uses > 0 {
                    mark(id).store(uses - 1, Relaxed);
                }
                self.queues.renew(MAIN, id);
            }
            Verdict::Split => self.queues.halve(id),
        }
        verdict
    }
}

impl Evict for S3Fifo {
    const NAME: &'static str = "S3-FIFO";
    const MOST: u8 = 3;
    const BLOCKS: bool = true;

    fn new(slots: usize) -> Self {
        Self::with_queues(Queues::new(slots), slots)
    }

    fn beside(&self, _: usize, pages: usize) -> Self {
        Self::with_queues(self.queues.beside(), pages)
    }

    fn begin_with(&mut self, pages: usize) {
        self.tenth = pages.div_ceil(10);
    }

    fn table_bytes(slots: usize, lists: usize) -> usize {
        Queues::<2>::bytes(slots) + lists * Ghosts::bytes(slots.div_ceil(lists))
    }

    fn insert(&mut self, id: SlotId, key: u64) {
        self.insert_block(id, 0, &|_| key);
    }

    fn insert_block(&mut self, first: SlotId, order: u32, key: &dyn Fn(SlotId) -> u64) {
        // As many ghosts as the main queue has pages.
        self.ghosts.keep((self.queues.len(SMALL) + self.queues.len(MAIN)) * 9 / 10);
        let mut back = 0;
        for id in block_at(first, order) {
            back += usize::from(self.ghosts.take(key(id)).is_some());
            self.queues.note(id, key(id));
        }
        // Where most of them would go.
        let come_back = back * 2 > 1 << order;
        let full = self.fills && self.queues.len(SMALL) >= self.tenth;
        let queue = if come_back || full { MAIN } else { SMALL };
        self.queues.push(queue, first, order, key(first));
    }

    fn halve(&mut self, first: SlotId) {
        self.queues.halve(first);
    }

    fn remove(&mut self, id: SlotId) {
        self.queues.remove(id);
    }

    fn replace(&mut self, old: SlotId, new: SlotId) {
        self.queues.replace(old, new);
    }

    fn refaults(&self) -> u64 {
        self.ghosts.back()
    }

    fn scan_told<'m, B: AtomicByte + 'm>(
        &mut self,
        mark: &impl Fn(SlotId) -> &'m B,
        take: &mut impl FnMut(SlotId) -> Verdict,
        _: &mut impl FnMut(Told, SlotId),
    ) -> bool {
        let all = self.queues.len(SMALL) + self.queues.len(MAIN);
        self.fills = false;
        // What stays in the small queue is offered once, before the main one is asked in any case.
        let mut offers = self.queues.len(SMALL);
        // Each page goes to the main queue once, and round it with up to three uses.
        let mut looks = 6 * all;
        while looks > 0 {
            let tenth = self.queues.len(SMALL) * 10 >= all;
            let asked = (tenth || self.queues.len(MAIN) == 0) && offers > 0;
            let (id, is_small) = match (asked, self.queues.oldest(SMALL), self.queues.oldest(MAIN))
            {
                (true, Some(id), _) | (_, Some(id), None) => (id, true),
                (_, _, Some(id)) => (id, false),
                _ => return false,
            };
            let pages = self.queues.slots(id);
            let verdict =
                if is_small { self.small(id, mark, take) } else { self.main(id, mark, take) };
            match verdict {
                Verdict::Taken => return true,
                Verdict::Split => continue,
                Verdict::Kept => looks = looks.saturating_sub(pages),
            }
            if is_small && asked {
                offers = offers.saturating_sub(pages);
            }
        }
        // Those of a small queue that was not asked because it is small: used or not, as no other can go.
        let mut looks = self.queues.len(SMALL);
        while looks > 0
            && let Some(id) = self.queues.oldest(SMALL)
        {
            let pages = self.queues.slots(id);
            match self.offer(id, take) {
                Verdict::Taken => return true,
                Verdict::Split => {}
                Verdict::Kept => looks = looks.saturating_sub(pages),
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::super::touch;
    use super::*;
    use alloc::vec::Vec;
    use core::sync::atomic::AtomicU8;

    #[test]
    fn a_used_page_of_a_small_queue_goes_where_no_other_can() {
        let marks: Vec<AtomicU8> = (0..30).map(|_| AtomicU8::new(0)).collect();
        let mut policy = S3Fifo::new(30);
        (0..30).for_each(|slot| policy.insert(SlotId(slot), slot.into()));
        assert_eq!((policy.queues.len(SMALL), policy.queues.len(MAIN)), (3, 27), "it fills");
        policy.remove(SlotId(0));
        policy.remove(SlotId(2));
        (0..2).for_each(|_| touch::<S3Fifo, _>(&marks[1]));
        let mut gone = None;
        let mut take = |id: SlotId| {
            gone = (id == SlotId(1)).then_some(id);
            if gone.is_some() { Verdict::Taken } else { Verdict::Kept }
        };
        assert!(policy.scan(&|id: SlotId| &marks[id.0 as usize], &mut take));
        assert_eq!(gone, Some(SlotId(1)));
    }
}
