//! Moving pages: one block at a time, with the host's help.

use super::apart::Apart;
use super::scan::{Part, Scan, block_end};
use super::state::Count;
use super::target::Found;
use super::{CompactMode, may_have_cma};
use crate::boot::watermark::{Mark, watermark_ok};
use crate::frame::{FrameKind, FrameState, FrameTable};
use crate::platform::{Migration, Platform};
use crate::policy::{Compact, Policy};
use crate::types::migrate_type::MigrateType;
use crate::types::request::Request;
use crate::types::units::Order;
use crate::zone::instance::Zone;
use crate::zone::lists::buddy::Buddy;
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
    table: &'a FrameTable<'a, P>,
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
        let back = self.zone.with_buddy(|buddy| {
            let allocated = FrameState::allocated(self.order);
            let back = self.table.replace_state(self.index, allocated, FrameState::INNER);
            if back {
                buddy.give_parts(self.table, self.index, self.order);
                buddy.events.direct_free += self.order.frames();
            }
            back
        });
        // Given to somebody after all, who has freed it: not ours to touch.
        self.zone.compaction.count(Count::Lies, u64::from(!back));
    }
}

impl<P: Platform, S: Policy> Scan<'_, '_, P, S> {
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
            let state = table.state(at);
            let order = state.order();
            if state.kind() != FrameKind::Allocated || order >= wanted {
                cached |= state.kind() == FrameKind::Cached;
                at += state.step();
                continue;
            }
            if self.zone.compaction.is_called_off() {
                self.budget = 0;
            }
            if self.budget == 0 {
                return Part::OutOfBudget;
            }
            self.budget = self.budget.saturating_sub(order.size());
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

    /// Empties the zone's caches and clusters, which are all that keeps `part` from being free;
    /// whether the block of the wanted order has formed in it.
    fn drain_into(&mut self, part: &Range<u32>) -> bool {
        let (allocator, zone, table) = (self.allocator, self.zone, &self.allocator.table);
        allocator.empty_caches(zone);
        // What came out of them may have been skipped.
        self.merge_in(part.clone());
        let (wanted, request) = (self.task.order, self.task.request);
        zone.with_buddy(|buddy| {
            let state = table.state(part.start);
            let formed = state.kind() == FrameKind::Free && state.order() >= wanted;
            if formed {
                buddy.rejoin(table);
                self.taken = request.and_then(|r| buddy.capture(table, part.start, r, zone));
            }
            formed
        })
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
            if zone.with_buddy(|buddy| buddy.take_target(table, index, order, wanted)) {
                break index;
            }
            self.targets.pass(index);
            tries -= 1;
            if tries == 0 {
                return Moved::No;
            }
        };
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
        let request = self.task.request;
        let freed = zone.with_buddy(|buddy| {
            let allocated = FrameState::allocated(order);
            if !table.replace_state(from, allocated, FrameState::INNER) {
                return None;
            }
            buddy.events.direct_free += order.frames();
            let formed = buddy.give_parts(table, from, order) >= self.task.order;
            if formed {
                buddy.rejoin(table);
            }
            let taken =
                request.filter(|_| formed).and_then(|r| buddy.capture(table, from, r, zone));
            Some((formed, taken))
        });
        let Some((formed, taken)) = freed else {
            zone.compaction.count(Count::Lies, 1);
            return Moved::No;
        };
        zone.compaction.count(Count::MigrateSuccess, order.frames());
        self.taken = taken;
        Moved::Yes { formed }
    }
}

impl<S: Policy> Buddy<S> {
    /// Takes the block that has just formed around `index` for the request it was made for, if
    /// its pageblock is of the request's type and the watermark allows it. In the hold in which
    /// it formed: nobody else had a chance to take a part of it.
    fn capture<P: Platform>(
        &mut self,
        table: &FrameTable<'_, P>,
        index: u32,
        request: &Request,
        zone: &Zone<P, S>,
    ) -> Option<u32> {
        let wanted = request.order();
        let (head, order) = Order::all().skip(wanted.index()).find_map(|order| {
            let head = index & !(order.size() - 1);
            (table.state(head) == FrameState::free(order)).then_some((head, order))
        })?;
        let (own, migrate) = (request.migrate_type(), table.pageblock(head).migrate());
        if migrate != own && !(migrate == MigrateType::Cma && may_have_cma(request)) {
            return None;
        }
        let mut free = self.free_frames() - self.area.frames_of(MigrateType::HighAtomic);
        if !may_have_cma(request) {
            free -= self.area.frames_of(MigrateType::Cma);
        }
        let (mark, reserve) = (zone.mark(Mark::Min), zone.reserve(request.limit()));
        if !watermark_ok(free, wanted, mark, reserve, request.access(), |_| true) {
            return None;
        }
        self.area.remove(table, head, order, migrate);
        self.split(table, head, order, wanted, migrate);
        table.set_state(head, FrameState::allocated(wanted));
        self.events.direct_alloc += wanted.frames();
        Some(head)
    }
}
