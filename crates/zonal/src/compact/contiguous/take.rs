//! Taking the frames of a range whose pageblocks are isolated.

use super::largest_piece;
use crate::alloc::allocator::Allocator;
use crate::compact::Count;
use crate::compact::isolate::locate;
use crate::frame::ALLOCATED;
use crate::frame::{FrameKind, FrameState, FrameTable};
use crate::platform::{Migration, Platform};
use crate::policy::Policy;
use crate::types::error::RangeError;
use crate::types::migrate_type::MigrateType;
use crate::types::request::{NodePolicy, Request};
use crate::types::units::{Order, Pfn};
use crate::zone::instance::Zone;
use crate::zone::lists::buddy::Buddy;
use crate::zone::lists::free_area::End;
use core::ops::Range;

/// How often caches are emptied because a frame of the range was in one.
const ROUNDS: u32 = 16;
/// Blocks given back in one hold.
const BLOCKS_PER_HOLD: u32 = 64;

/// A block to move something to; freed when dropped.
struct Target<'a, 'm, P: Platform, S: Policy> {
    allocator: &'a Allocator<'m, P, S>,
    zone: &'m Zone<P, S>,
    pfn: Pfn,
    order: Order,
}

impl<P: Platform, S: Policy> Drop for Target<'_, '_, P, S> {
    fn drop(&mut self) {
        let freed = self.allocator.free_raw(self.pfn, self.order);
        // Given to somebody after all, who has freed it.
        self.zone.compaction.count(Count::Lies, u64::from(freed.is_err()));
    }
}

impl<'m, P: Platform, S: Policy> Allocator<'m, P, S> {
    /// Takes `frames`, whose pageblocks are isolated, instance by instance: all, or none.
    pub(super) fn take_parts(&self, frames: &Range<u32>) -> Result<(), RangeError> {
        for (zone, part) in self.parts(frames.clone()) {
            if let Err(error) = self.take_frames_of(zone, &part) {
                let taken = self.parts(frames.start..part.start);
                taken.for_each(|(zone, part)| self.give_frames_of(zone, part));
                return Err(error);
            }
        }
        Ok(())
    }

    /// Moves what is in `frames` elsewhere and marks them allocated one by one.
    fn take_frames_of(&self, zone: &'m Zone<P, S>, frames: &Range<u32>) -> Result<(), RangeError> {
        let mut busy = frames.start;
        for _ in 0..ROUNDS {
            self.empty_caches(zone);
            let not_free = self.vacate(zone, frames)?;
            match not_free.map_or_else(|| self.take_all(zone, frames), Err) {
                Ok(()) => return Ok(()),
                Err(at) => busy = at,
            }
        }
        Err(RangeError::Busy { pfn: self.table.pfn(busy) })
    }

    /// Moves every allocated block out of `frames`; returns a frame that is neither free nor
    /// allocated.
    fn vacate(&self, zone: &'m Zone<P, S>, frames: &Range<u32>) -> Result<Option<u32>, RangeError> {
        let (mut at, mut busy) = (frames.start, None);
        while at < frames.end {
            let Some((head, state)) = locate(&self.table, at) else {
                busy = Some(at);
                at += 1;
                continue;
            };
            match state.kind() {
                FrameKind::Allocated => self.move_out(zone, head, state.order())?,
                FrameKind::Free => {}
                _ => busy = Some(at),
            }
            at = head + state.order().size();
        }
        Ok(busy)
    }

    /// Has the host move the block at `head` elsewhere.
    fn move_out(&self, zone: &'m Zone<P, S>, head: u32, order: Order) -> Result<(), RangeError> {
        let from = self.table.pfn(head);
        let request = Request::new(order).migrate(MigrateType::Movable).no_wait();
        let request = request.zone_limit(zone.zone_type).nodes(NodePolicy::Preferred(zone.node));
        let no_target = RangeError::NoTarget { pfn: from, order };
        let target = (0..ROUNDS).find_map(|_| {
            let Ok(pfn) = self.alloc_raw(&request) else { return Some(Err(no_target)) };
            let target = Target { allocator: self, zone, pfn, order };
            // Out of a cache that was filled by a free at the moment of the isolation.
            let isolated = self.pageblock_of(pfn).map(|(_, migrate)| migrate);
            (isolated != Some(MigrateType::Isolate)).then_some(Ok(target))
        });
        let target = target.unwrap_or(Err(no_target))?;
        let page = Migration { from, to: target.pfn, order, may_wait: true };
        zone.compaction.count(Count::Isolated, 2 * order.frames());
        if self.platform.migrate(self, &page).is_err() {
            zone.compaction.count(Count::MigrateFail, order.frames());
            return Err(RangeError::Refused { pfn: from, order });
        }
        core::mem::forget(target);
        match self.free_direct(from, order) {
            Ok(()) => zone.compaction.count(Count::MigrateSuccess, order.frames()),
            Err(_) => zone.compaction.count(Count::Lies, 1),
        }
        Ok(())
    }

    /// Takes all of `frames`, or none and says which was not free.
    fn take_all(&self, zone: &Zone<P, S>, frames: &Range<u32>) -> Result<(), u32> {
        let mut at = frames.start;
        while at < frames.end {
            let taken = zone.with_buddy(|buddy| buddy.take_isolated(&self.table, at..frames.end));
            let Some(next) = taken else {
                self.give_frames_of(zone, frames.start..at);
                return Err(at);
            };
            at = next;
        }
        Ok(())
    }

    /// Frees single frames, merged, in blocks of at most a pageblock.
    pub(super) fn give_frames_of(&self, zone: &Zone<P, S>, frames: Range<u32>) {
        let (table, most) = (&self.table, self.table.pageblock_order());
        let mut at = frames.start;
        while at < frames.end {
            at = zone.with_buddy(|buddy| {
                let (mut at, mut work) = (at, 0);
                while at < frames.end && work < most.size() {
                    let order = largest_piece(at, frames.end, most);
                    let piece = at..at + order.size();
                    piece.clone().for_each(|at| table.set_state(at, FrameState::INNER));
                    buddy.give_merged(table, at, order);
                    buddy.events.direct_free += order.frames();
                    work += order.size() + most.size() / BLOCKS_PER_HOLD;
                    at = piece.end;
                }
                buddy.area.count_work(work);
                at
            });
        }
    }
}

impl<S: Policy> Buddy<S> {
    /// Takes what `frames` begins with of the free block there, in an isolated pageblock, and
    /// marks it allocated frame by frame; the rest of the block stays free. Returns where it
    /// stopped. Work: the frames of one block.
    fn take_isolated<P: Platform>(
        &mut self,
        table: &FrameTable<'_, P>,
        frames: Range<u32>,
    ) -> Option<u32> {
        let (head, state) = locate(table, frames.start)?;
        let migrate = table.pageblock(head).migrate();
        if state.kind() != FrameKind::Free || migrate != MigrateType::Isolate {
            return None;
        }
        self.area.remove(table, head, state.order(), migrate);
        let end = head + state.order().size();
        let taken = frames.start..end.min(frames.end);
        for rest in [head..taken.start, taken.end..end] {
            let mut at = rest.start;
            while at < rest.end {
                let order = largest_piece(at, rest.end, Order::MAX);
                self.area.add(table, at, order, migrate, End::Head);
                at += order.size();
            }
        }
        taken.clone().for_each(|at| table.set_state(at, ALLOCATED));
        self.area.count_work(taken.len() as u32);
        self.events.direct_alloc += taken.len() as u64;
        Some(taken.end)
    }
}
