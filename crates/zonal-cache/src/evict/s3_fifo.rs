//! S3-FIFO. Source: Yang, Zhang, Qiu, Yue, Rashmi, "FIFO queues are all you need for cache eviction"
//! (SOSP 2023).
//!
//! Mechanism: pages come to a small queue, a tenth of all. At its end those that were used at least
//! twice go on to the main queue, the others leave and become ghosts. Who comes back while it is a ghost
//! comes to the main queue at once. There a page that was used since is put back to the new end with a
//! use less, another goes. So pages that are used once pass through a tenth of the cache only.
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
use super::{Evict, Verdict, hits};
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
}

impl S3Fifo {
    /// Looks at the oldest page of the small queue; whether it went.
    fn small<'m, B: AtomicByte + 'm>(
        &mut self,
        id: SlotId,
        mark: &impl Fn(SlotId) -> &'m B,
        take: &mut impl FnMut(SlotId) -> Verdict,
    ) -> bool {
        if hits(mark(id)) >= TO_MAIN {
            mark(id).store(0, Relaxed);
            self.queues.renew(MAIN, id);
        } else if take(id) == Verdict::Taken {
            self.ghosts.insert(self.queues.key(id));
            self.queues.remove(id);
            return true;
        } else {
            self.queues.renew(SMALL, id);
        }
        false
    }

    /// Looks at the oldest page of the main queue; whether it went.
    fn main<'m, B: AtomicByte + 'm>(
        &mut self,
        id: SlotId,
        mark: &impl Fn(SlotId) -> &'m B,
        take: &mut impl FnMut(SlotId) -> Verdict,
    ) -> bool {
        let uses = hits(mark(id));
        if uses > 0 {
            mark(id).store(uses - 1, Relaxed);
        } else if take(id) == Verdict::Taken {
            self.queues.remove(id);
            return true;
        }
        self.queues.renew(MAIN, id);
        false
    }
}

impl Evict for S3Fifo {
    const NAME: &'static str = "S3-FIFO";
    const MOST: u8 = 3;

    fn new(slots: usize) -> Self {
        Self { queues: Queues::new(slots), ghosts: Ghosts::new(slots) }
    }

    fn insert(&mut self, id: SlotId, key: u64) {
        // As many ghosts as the main queue has pages.
        let most = self.queues.len(SMALL) + self.queues.len(MAIN);
        let comes_back = self.ghosts.take(key).is_some_and(|age| age <= most * 9 / 10);
        self.queues.push(if comes_back { MAIN } else { SMALL }, id, key);
    }

    fn remove(&mut self, id: SlotId) {
        self.queues.remove(id);
    }

    fn replace(&mut self, old: SlotId, new: SlotId) {
        self.queues.replace(old, new);
    }

    fn scan<'m, B: AtomicByte + 'm>(
        &mut self,
        mark: &impl Fn(SlotId) -> &'m B,
        take: &mut impl FnMut(SlotId) -> Verdict,
    ) -> bool {
        let all = self.queues.len(SMALL) + self.queues.len(MAIN);
        // What stays in the small queue is offered once, before the main one is asked in any case.
        let mut offers = self.queues.len(SMALL);
        // Each page goes to the main queue once, and round it with up to three uses.
        for _ in 0..6 * all {
            let tenth = self.queues.len(SMALL) * 10 >= all;
            let asked = (tenth || self.queues.len(MAIN) == 0) && offers > 0;
            let gone = match (asked, self.queues.oldest(SMALL), self.queues.oldest(MAIN)) {
                (true, Some(id), _) => {
                    offers -= 1;
                    self.small(id, mark, take)
                }
                (_, _, Some(id)) => self.main(id, mark, take),
                (_, Some(id), None) => self.small(id, mark, take),
                _ => return false,
            };
            if gone {
                return true;
            }
        }
        // Those of a small queue that was not asked because it is small.
        for _ in 0..self.queues.len(SMALL) {
            let Some(id) = self.queues.oldest(SMALL) else { break };
            if self.small(id, mark, take) {
                return true;
            }
        }
        false
    }
}
