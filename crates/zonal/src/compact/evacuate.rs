//! Moving pages: one block at a time, with the host's help.

use super::CompactMode;
use super::Count;
use super::apart::Apart;
use super::scan::{Part, Scan, block_end};
use super::target::Found;
use super::target::is_target;
use crate::alloc::host::Host;
use crate::frame::FrameKind;
use crate::platform::Platform;
use crate::policy::FreeMemory;
use crate::policy::zone::Zone;
use crate::policy::{Compact, Policy};
use crate::types::migration::Migration;
use crate::types::units::Order;
use crate::zone::Vacated;
use crate::zone::tables::ZoneTables;
use core::ops::Range;

/// How often a place to move to is looked for while others take them away.
const TRIES: u32 = 16;

/// What came of one block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Moved {
    /// It is elsewhere; a block of the wanted order has formed, or not yet.
    Yes { formed: bool },
    /// It stays where it is.
    No,
    /// There is no place for it at all.
    NoTarget,
}

/// A block that was taken to move something to, until the host has answered. If the host
/// panics it goes back.
struct Target<'a, P: Platform, S: Policy> {
    zone: &'a Zone<P, S>,
    table: &'a ZoneTables<'a, P>,
    index: u32,
    order: Order,
}

impl<P: Platform, S: Policy> Target<'_, P, S> {
    /// The host gave it to its new owner.
    fn handed_over(self) {
        core::mem::forget(self);
    }
}

impl<P: Platform, S: Policy> Drop for Target<'_, P, S> {
    fn drop(&mut self) {
        let view = self.zone.view(self.table);
        let back = S::Free::free_block_merged(view, self.index, self.order);
        // The host gave it to an owner after all, who has freed it: not ours to touch.
        self.zone.compaction.count(Count::MigrateMismatches, u64::from(!back));
    }
}

impl<P: Host, S: Policy> Scan<'_, '_, P, S> {
    /// Moves everything in `part` elsewhere, until a block of the wanted order has formed.
    pub(super) fn evacuate(&mut self, part: &Range<u32>) -> Part {
        let table = &self.allocator.table;
        let presses_on = S::Compact::PRESSES_ON && self.task.mode == CompactMode::Sync;
        let wanted = self.task.order;
        let whole = part.end - part.start == table.pageblock_order().size();
        let _apart = (S::Compact::SETS_APART && whole)
            .then(|| Apart::new(self.allocator, self.zone, part.start));
        let mut at = part.start;
        let (mut stays, mut cached) = (false, false);
        while at < part.end {
            let state = S::Free::state(self.allocator.view(self.zone), at);
            let order = state.order();
            if state.kind() != FrameKind::Allocated || order >= wanted {
                cached |= state.kind() == FrameKind::Cached;
                at += state.step();
                continue;
            }
            if !S::Compact::SIDE_BY_SIDE && self.zone.compaction.is_called_off() {
                self.task.effort.call_off();
            }
            if self.task.effort.is_spent() {
                return Part::OutOfBudget;
            }
            self.task.effort.offers(order.size());
            match self.move_block(at, order, part) {
                Moved::Yes { formed: true } => return Part::Formed,
                Moved::NoTarget => return Part::NoTarget,
                Moved::Yes { formed: false } => at += order.size(),
                Moved::No => {
                    stays = true;
                    // The aligned block of the wanted order cannot form any more.
                    at = if presses_on { at + order.size() } else { block_end(at, wanted) };
                }
            }
        }
        if cached && whole && !stays && self.drain_into(part) { Part::Formed } else { Part::Stays }
    }

    /// Empties the zone's caches, which are all that keeps `part` from being free; whether the
    /// block of the wanted order has formed in it.
    fn drain_into(&mut self, part: &Range<u32>) -> bool {
        let (allocator, zone, _table) = (self.allocator, self.zone, &self.allocator.table);
        allocator.drain_zone(zone);
        // What came out of them may have been skipped.
        self.merge_in(part.clone());
        let (wanted, request) = (self.task.order, self.task.request);
        let Vacated { formed, taken } =
            S::Free::formed_at(allocator.view(zone), part.start, wanted, request);
        if formed {
            self.taken = taken;
        }
        formed
    }

    fn move_block(&mut self, from: u32, order: Order, part: &Range<u32>) -> Moved {
        let (allocator, zone, table) = (self.allocator, self.zone, &self.allocator.table);
        let mut tries = TRIES;
        let to = loop {
            let floor = if S::Compact::GOES_ROUND { zone.span().0 } else { part.end };
            let index = match self.targets.find(allocator, zone, self.task, order, part, floor) {
                Found::At(index) => index,
                Found::TooSmall => return Moved::No,
                Found::Nothing => return Moved::NoTarget,
            };
            let wanted = self.task.order;
            let fits = || is_target::<S>(table.pageblock(index), zone.id);
            if S::Free::take_target(allocator.view(zone), index, order, wanted, fits) {
                break index;
            }
            self.targets.pass(index);
            tries -= 1;
            if tries == 0 {
                return Moved::No;
            }
        };
        self.asked = true;
        zone.compaction.count(Count::Isolated, 2 * order.frames());
        let target = Target { zone, table, index: to, order };
        let page = Migration {
            from: table.pfn(from),
            to: table.pfn(to),
            order,
            may_wait: self.task.mode == CompactMode::Sync,
        };
        if allocator.platform.migrate(allocator, &page).is_err() {
            drop(target);
            self.targets.pass(to);
            zone.compaction.count(Count::MigrateFail, order.frames());
            return Moved::No;
        }
        target.handed_over();
        let (wanted, request) = (self.task.order, self.task.request);
        let vacated = S::Free::vacate_block(allocator.view(zone), from, order, wanted, request);
        let Some(Vacated { formed, taken }) = vacated else {
            zone.compaction.count(Count::MigrateMismatches, 1);
            return Moved::No;
        };
        zone.compaction.count(Count::MigrateSuccess, order.frames());
        self.moved = true;
        self.taken = taken;
        Moved::Yes { formed }
    }
}
