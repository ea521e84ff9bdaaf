//! SIEVE. Source: Zhang, Yang, Yue, Vigfusson, Rashmi, "SIEVE is simpler than LRU" (NSDI 2024).
//!
//! Mechanism: one queue in the order in which pages came. A hand walks from the oldest to the newest
//! and begins anew; a page that was used since the hand came by loses its bit and stays where it is,
//! the first other one goes. New pages come in at the new end, far from the hand.
//!
//! State: queue and hand under the cache's lock; a bit in the page's mark. Conflicts with nothing.
//! A scan through the cache puts it in the order of its coming like any other page: SIEVE does not resist scans.
//!
//! ```
//! use zonal_cache::evict::{Evict, Sieve};
//! assert_eq!((Sieve::NAME, Sieve::MOST), ("SIEVE", 1));
//! ```

use super::queue::Queues;
use super::{Evict, Told, Verdict, hits};
use crate::table::SlotId;
use core::sync::atomic::Ordering::Relaxed;
use zonal::platform::AtomicByte;

/// The policy: see its file.
#[derive(Debug)]
pub struct Sieve {
    queue: Queues<1>,
    /// Where the hand looks next; `None` for the oldest.
    hand: Option<SlotId>,
}

impl Evict for Sieve {
    const NAME: &'static str = "SIEVE";
    const MOST: u8 = 1;
    const BLOCKS: bool = true;

    fn new(slots: usize) -> Self {
        Self { queue: Queues::new(slots), hand: None }
    }

    fn beside(&self, _: usize, _: usize) -> Self {
        Self { queue: self.queue.beside(), hand: None }
    }

    fn table_bytes(slots: usize, _: usize) -> usize {
        Queues::<1>::bytes(slots)
    }

    fn insert(&mut self, id: SlotId, key: u64) {
        self.insert_block(id, 0, &|_| key);
    }

    fn insert_block(&mut self, first: SlotId, order: u32, key: &dyn Fn(SlotId) -> u64) {
        self.queue.push(0, first, order, key(first));
    }

    fn halve(&mut self, first: SlotId) {
        // The hand, if it is here, comes to the second half next.
        self.queue.halve(first);
    }

    fn remove(&mut self, id: SlotId) {
        if self.hand == Some(id) {
            self.hand = self.queue.newer(id);
        }
        self.queue.remove(id);
    }

    fn replace(&mut self, old: SlotId, new: SlotId) {
        if self.hand == Some(old) {
            self.hand = Some(new);
        }
        self.queue.replace(old, new);
    }

    fn scan_told<'m, B: AtomicByte + 'm>(
        &mut self,
        mark: &impl Fn(SlotId) -> &'m B,
        take: &mut impl FnMut(SlotId) -> Verdict,
        _: &mut impl FnMut(Told, SlotId),
    ) -> bool {
        // Once round to clear the bits, and once more to offer what had one.
        let mut looks = 2 * self.queue.len(0);
        while looks > 0 {
            let Some(id) = self.hand.or_else(|| self.queue.oldest(0)) else { return false };
            self.hand = self.queue.newer(id);
            if hits(mark(id)) > 0 {
                mark(id).store(0, Relaxed);
            } else {
                match take(id) {
                    Verdict::Taken => {
                        self.queue.remove(id);
                        return true;
                    }
                    Verdict::Kept => {}
                    Verdict::Split => {
                        self.queue.halve(id);
                        self.hand = Some(id);
                        continue;
                    }
                }
            }
            looks = looks.saturating_sub(self.queue.slots(id));
        }
        false
    }
}
