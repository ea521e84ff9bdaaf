//! Looking at the oldest pages of a zone: the clean ones are freed. What becomes of the others is
//! what 3.0 and 3.16 differ in.
//!
//! | page | 3.0 | 3.16 |
//! |---|---|---|
//! | dirty | reclaim writes it, by itself | marked, and left to the flusher, which is woken if all are |
//! | on its way to the disk | put back | marked; if it was marked before and the zone has nothing else, reclaim waits |
//! | being read | put back | put back |

use crate::kernel::Reclaim;

use super::pages::{ACTIVE_LIST, INACTIVE};
use super::{Memory, ZoneName};

/// What looking at pages came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shrunk {
    /// Pages looked at.
    pub scanned: u64,
    /// Pages freed.
    pub freed: u64,
    /// Pages on their way to the disk that were wanted before: the lists turn faster than the disk.
    pub immediate: u64,
}

impl Memory {
    /// Looks at the oldest `count` inactive pages of a zone.
    pub(super) fn shrink(&mut self, zone: ZoneName, count: u64) -> Shrunk {
        let rules = self.kernel.reclaim;
        let (mut dirty, mut writeback) = (0, 0);
        let mut shrunk = Shrunk::default();
        for _ in 0..count {
            let Some(page) = self.pages.oldest(zone, INACTIVE) else { break };
            shrunk.scanned += 1;
            let flags = self.pages.get(page);
            if flags.is_writeback() {
                writeback += 1;
                let is_stuck = self.zone(zone).is_all_writeback && flags.is_wanted();
                shrunk.immediate += u64::from(rules == Reclaim::V3_16 && is_stuck);
                self.pages.get_mut(page).set_wanted(true);
                self.pages.rotate(page);
            } else if flags.is_dirty() {
                dirty += 1;
                match rules {
                    Reclaim::V3_0 => self.pageouts.push(page),
                    Reclaim::V3_16 => self.pages.get_mut(page).set_wanted(true),
                }
                self.pages.rotate(page);
            } else if flags.is_locked() {
                self.pages.rotate(page);
            } else {
                self.pages.leave(page);
                shrunk.freed += 1;
            }
        }
        self.pressed |= dirty > 0 && dirty == shrunk.scanned;
        let zone = self.zone_mut(zone);
        zone.is_all_writeback = writeback > 0 && writeback == shrunk.scanned;
        zone.free += shrunk.freed;
        zone.scanned += shrunk.scanned;
        shrunk
    }

    /// Makes the oldest active pages inactive if there are more active ones, a part of them by
    /// priority; how many.
    pub(super) fn deactivate(&mut self, zone: ZoneName, priority: u32) -> u64 {
        let [inactive, active] = [INACTIVE, ACTIVE_LIST].map(|it| self.pages.list(zone, it).len());
        if active <= inactive {
            return 0;
        }
        let count = active >> priority;
        for _ in 0..count {
            let Some(page) = self.pages.oldest(zone, ACTIVE_LIST) else { break };
            self.pages.set_active(page, false);
        }
        count
    }

    /// Inactive pages of a zone.
    #[must_use]
    pub fn inactive(&self, zone: ZoneName) -> u64 {
        self.pages.list(zone, INACTIVE).len()
    }

    /// Active pages of a zone.
    #[must_use]
    pub fn active(&self, zone: ZoneName) -> u64 {
        self.pages.list(zone, ACTIVE_LIST).len()
    }

    /// A task that found no room looks for some by itself: in each zone, harder and harder, until 32
    /// pages are free.
    pub fn reclaim_directly(&mut self) -> Shrunk {
        let mut all = Shrunk::default();
        for priority in (0..=super::kswapd::PRIORITY).rev() {
            for zone in ZoneName::FROM_TOP {
                all.scanned += self.deactivate(zone, priority);
                let most = (self.inactive(zone) >> priority).min(super::kswapd::SWAP_CLUSTER);
                let shrunk = self.shrink(zone, most);
                all.scanned += shrunk.scanned;
                all.freed += shrunk.freed;
            }
            if all.freed >= super::kswapd::SWAP_CLUSTER {
                break;
            }
        }
        all
    }
}
