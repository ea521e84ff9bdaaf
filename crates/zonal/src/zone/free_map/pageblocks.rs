//! What changes the type of a pageblock: isolation, the high-atomic reserve. Under the zone lock, one
//! after the other; those who take and free go on meanwhile.

use super::hints::Kind;
use super::mapped::{ANYWHERE, MapGuard, MapView};
use super::shape::Pageblock;
use super::{FreeMap, WholeClass};
use crate::platform::{AtomicWord, Platform};
use crate::types::error::RangeError;
use crate::types::migrate_type::MigrateType;
use crate::types::units::Order;
use crate::zone::FreeMemory;
use core::ops::Range;
use core::sync::atomic::Ordering::Relaxed;

/// Stale hints of the reserve that a call takes away before it gives up.
const STALE: u32 = 8;

impl<P: Platform> MapView<'_, P> {
    /// Work: the frames of the pageblock.
    pub(super) fn isolate_pageblock(
        &self,
        start: u32,
        frames: &Range<u32>,
    ) -> Result<(), RangeError> {
        self.lock(|guard| {
            if guard.apart == Some(start) {
                self.rejoin_in(guard);
            }
            loop {
                let before = guard.check_isolation(start, frames)?;
                // Another CPU may claim it at this moment, and allocate in it by its new type.
                if self.withdraw_pageblock(guard, start, before) {
                    return Ok(());
                }
            }
        })
    }

    /// Makes the pageblock that starts at `start` isolate, if it is of the type `before`, which it notes. Whether it was.
    fn withdraw_pageblock(
        &self,
        held: &mut MapGuard<'_, P>,
        start: u32,
        before: MigrateType,
    ) -> bool {
        super::Mapped::count_work(held, self.map().shape().words_a_line());
        if !self.change_type(held, self.pageblock(start), before, MigrateType::Isolate) {
            return false;
        }
        if before == MigrateType::HighAtomic {
            self.zone.part.reserve.fetch_add(u64::MAX, Relaxed);
        }
        self.table.note_type_before(start, before, false);
        true
    }

    pub(super) fn end_isolation(&self, start: u32, undo: bool) {
        let part = &self.zone.part;
        self.lock(|guard| {
            if self.table.type_before(start) == Some(MigrateType::HighAtomic) {
                if undo && part.reserve.load(Relaxed) < part.reserve_limit.load(Relaxed) {
                    // Before the type, as where a pageblock joins.
                    part.reserve.fetch_add(1, Relaxed);
                } else {
                    self.table.note_type_before(start, MigrateType::Movable, false);
                }
            }
            self.restore(guard, start);
        });
    }

    /// Gives the pageblock that starts at `start` its type back, if it is isolated.
    fn restore(&self, held: &mut MapGuard<'_, P>, start: u32) {
        if let Some(before) = self.table.type_before(start) {
            super::Mapped::count_work(held, self.map().shape().words_a_line());
            self.table.forget_type_before(start);
            self.set_type(held, self.pageblock(start), before);
        }
    }

    pub(super) fn set_apart(&self, start: u32) {
        self.lock(|guard| {
            let before = self.table.pageblock(start).migrate();
            let may = before.is_requestable() || before == MigrateType::Cma;
            if guard.apart.is_none() && may && self.withdraw_pageblock(guard, start, before) {
                guard.apart = Some(start);
            }
        });
    }

    pub(super) fn rejoin(&self) {
        self.lock(|guard| self.rejoin_in(guard));
    }

    fn rejoin_in(&self, held: &mut MapGuard<'_, P>) {
        if let Some(start) = held.apart.take() {
            self.restore(held, start);
        }
    }

    /// Adds the pageblock of the allocated block at `index`, or all of its pageblocks, to the reserve
    /// if there is room for it.
    pub(super) fn reserve_high_atomic(&self, index: u32, order: Order) {
        let (part, own) = (&self.zone.part, self.table.pageblock_order());
        let count = 1_u64 << order.get().saturating_sub(own.get());
        let first = self.pageblock(index).0;
        let pageblocks = || (first..first + count as u32).map(Pageblock);
        self.lock(|guard| {
            // Since it was taken another CPU may have isolated a part of it.
            let map = self.map_apart();
            let requestable = pageblocks().all(|pageblock| map.type_of(pageblock).is_requestable());
            let reserved = part.reserve.load(Relaxed) + count;
            if !requestable || reserved > part.reserve_limit.load(Relaxed) {
                return;
            }
            // Before the types, which release it: who finds a pageblock reserved finds it counted, and
            // waits for this hold to open it (I-6).
            part.reserve.store(reserved, Relaxed);
            for pageblock in pageblocks() {
                self.set_type(guard, pageblock, MigrateType::HighAtomic);
            }
        });
    }

    /// Gives one pageblock of the reserve that has free frames to `migrate`; `false` if there is none.
    pub(super) fn unreserve_high_atomic(&self, migrate: MigrateType) -> bool {
        let part = &self.zone.part;
        if part.reserve.load(Relaxed) == 0 {
            return false;
        }
        self.lock(|guard| {
            let Some(pageblock) = reserved_with_free(&self.map_apart()) else { return false };
            self.set_type(guard, pageblock, migrate);
            part.reserve.fetch_add(u64::MAX, Relaxed);
            true
        })
    }

    /// Gives the pageblocks of the reserve in the largest block that starts at `group`, and below
    /// `end`, back to movable memory, if the reserve is larger than its limit. `false` if it is not.
    pub(super) fn shrink_reserve(&self, group: u32, end: u32) -> bool {
        let part = &self.zone.part;
        let end = end.min(group + Order::MAX.size());
        self.lock(|guard| {
            if part.reserve.load(Relaxed) <= part.reserve_limit.load(Relaxed) {
                return false;
            }
            for at in (group..end).step_by(self.table.pageblock_order().size() as usize) {
                let word = self.table.pageblock(at);
                if word.zone() == Some(self.zone.id) && word.migrate() == MigrateType::HighAtomic {
                    self.set_type(guard, self.pageblock(at), MigrateType::Movable);
                    part.reserve.fetch_add(u64::MAX, Relaxed);
                }
            }
            true
        })
    }
}

/// A pageblock of the reserve with free frames: whole, or with the largest run.
fn reserved_with_free<P: Platform>(map: &FreeMap<'_, P>) -> Option<Pageblock> {
    let reserved = MigrateType::HighAtomic;
    // One that is isolated while it is freed has the bit for a moment.
    let whole = map.find(Kind::Whole(WholeClass::HighAtomic), ANYWHERE);
    if let Some(pageblock) = whole.filter(|&pageblock| map.type_of(pageblock) == reserved) {
        return Some(pageblock);
    }
    let runs = (1..map.shape().p()).rev().map(|order| Kind::Run(reserved, order));
    for kind in runs.chain([Kind::Free(reserved)]) {
        for _ in 0..STALE {
            let Some(pageblock) = map.find(kind, ANYWHERE) else { break };
            if map.type_of(pageblock) == reserved && map.free_in(pageblock) > 0 {
                return Some(pageblock);
            }
            // M-4.
            map.clear(kind, pageblock);
            map.settle(pageblock);
        }
    }
    None
}
