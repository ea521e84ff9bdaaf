//! The high-atomic reserve: pageblocks kept for high-order requests that cannot wait.
//!
//! After such a request was served, its pageblock joins the reserve, until the reserve has
//! one per cent of the zone; under pressure the slow path gives pageblocks back.

use super::ListGuard;
use super::clusters::Clusters;
use super::merge::Merge;
use crate::platform::Platform;
use crate::types::migrate_type::MigrateType;
use crate::types::units::Order;

impl<P: Platform, M: Merge, C: Clusters> ListGuard<'_, P, M, C> {
    /// Adds the pageblock of the allocated block at `index` (of a large block all of its
    /// pageblocks) to the reserve if there is room for it. Work: at most
    /// one pageblock, or the number of pageblocks.
    pub(crate) fn reserve_high_atomic(&mut self, index: u32, order: Order) {
        let pageblock = self.table.pageblock_order();
        let pageblocks = 1 << order.get().saturating_sub(pageblock.get());
        // Since it was taken another CPU may have isolated a part of it.
        let mut starts = (index..).step_by(pageblock.frames() as usize).take(pageblocks as usize);
        let requestable = starts.all(|at| self.table.pageblock(at).migrate().is_requestable());
        if !requestable || self.high_atomic_pageblocks + pageblocks > self.high_atomic_limit {
            return;
        }
        for at in (index..).step_by(pageblock.frames() as usize).take(pageblocks as usize) {
            self.move_pageblock(at, MigrateType::HighAtomic);
        }
        self.high_atomic_pageblocks += pageblocks;
    }

    /// Gives the pageblocks of the reserve in the largest block that starts at `group`, and below
    /// `end`, back to movable memory, if the reserve is larger than its limit, which follows from
    /// the size of the zone. `false` if it is not larger. Work: at most a largest block.
    pub(crate) fn shrink_reserve(&mut self, group: u32, end: u32) -> bool {
        if self.high_atomic_pageblocks <= self.high_atomic_limit {
            return false;
        }
        let end = end.min(group + Order::MAX.size());
        for at in (group..end).step_by(self.table.pageblock_order().size() as usize) {
            let word = self.table.pageblock(at);
            if word.zone() == Some(self.zone.id) && word.migrate() == MigrateType::HighAtomic {
                self.move_pageblock(at, MigrateType::Movable);
                self.high_atomic_pageblocks -= 1;
            }
        }
        true
    }

    /// Gives one pageblock of the reserve that has free frames to `migrate`; `false` if there is
    /// none. Work: at most one pageblock.
    pub(crate) fn unreserve_high_atomic(&mut self, migrate: MigrateType) -> bool {
        let found =
            Order::all().rev().find_map(|order| self.area.first(order, MigrateType::HighAtomic));
        let Some(index) = found else { return false };
        self.move_pageblock(index, migrate);
        self.high_atomic_pageblocks -= 1;
        true
    }
}
