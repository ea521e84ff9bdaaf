//! Taking the frames of a range whose pageblocks are isolated.

use super::Moves;
use crate::alloc::allocator::Allocator;
use crate::alloc::host::Host;
use crate::compact::Count;
use crate::frame::{FrameKind, FrameState};
use crate::policy::FreeMemory;
use crate::policy::Policy;
use crate::policy::zone::Zone;
use crate::trace::or_undo;
use crate::types::error::RangeError;
use crate::types::migrate_type::MigrateType;
use crate::types::migration::Migration;
use crate::types::request::{NodePolicy, Request};
use crate::types::units::{Order, Pfn};
use core::ops::Range;

/// How often caches are emptied because a frame of the range was in one.
const ROUNDS: u32 = 16;

/// A block to move something to; freed when dropped.
struct Target<'a, 'm, P: Host, S: Policy> {
    allocator: &'a Allocator<'m, P, S>,
    zone: &'m Zone<P, S>,
    pfn: Pfn,
    order: Order,
}

impl<P: Host, S: Policy> Drop for Target<'_, '_, P, S> {
    fn drop(&mut self) {
        let freed = self.allocator.free_raw(self.pfn, self.order);
        // The host gave it to an owner after all, who has freed it.
        self.zone.compaction.count(Count::MigrateMismatches, u64::from(freed.is_err()));
    }
}

/// Parts of a range that were taken, until all of it is: dropped before, they are freed, whether the
/// next part could not be had or the host panicked (I-3).
struct PartsInHand<'a, 'm, P: Host, S: Policy> {
    allocator: &'a Allocator<'m, P, S>,
    taken: Range<u32>,
}

impl<P: Host, S: Policy> Drop for PartsInHand<'_, '_, P, S> {
    fn drop(&mut self) {
        let allocator = self.allocator;
        let parts = allocator.parts(self.taken.clone());
        parts.for_each(|(zone, part)| allocator.free_frames_of(zone, part));
    }
}

impl<'m, P: Host, S: Policy> Allocator<'m, P, S> {
    /// Whether no frame is allocated at this moment: what has no chance leaves everything as it is.
    pub(super) fn check_unused(&self, frames: &Range<u32>) -> Result<(), RangeError> {
        for (zone, part) in self.parts(frames.clone()) {
            let mut at = part.start;
            while at < part.end {
                match S::Free::locate(self.view(zone), at) {
                    Some((_, state)) if state.kind() == FrameKind::Allocated => {
                        return Err(RangeError::InUse { pfn: self.table.pfn(at) });
                    }
                    Some((head, state)) => at = head + state.order().size(),
                    None => at += 1,
                }
            }
        }
        Ok(())
    }

    /// Takes `frames`, whose pageblocks are isolated, instance by instance: all, or none. Each is
    /// marked.
    pub(super) fn take_parts(
        &self,
        frames: &Range<u32>,
        moves: Moves,
        mark: FrameState,
    ) -> Result<(), RangeError> {
        let mut parts = PartsInHand { allocator: self, taken: frames.start..frames.start };
        for (zone, part) in self.parts(frames.clone()) {
            self.take_frames_of(zone, &part, moves, mark)?;
            parts.taken.end = part.end;
        }
        parts.taken.end = parts.taken.start;
        Ok(())
    }

    /// Moves what is in `frames` elsewhere and marks them one by one.
    fn take_frames_of(
        &self,
        zone: &'m Zone<P, S>,
        frames: &Range<u32>,
        moves: Moves,
        mark: FrameState,
    ) -> Result<(), RangeError> {
        let mut busy = frames.start;
        for _ in 0..ROUNDS {
            self.drain_zone(zone);
            let not_free = self.vacate(zone, frames, moves)?;
            match not_free.map_or_else(|| self.take_all(zone, frames, mark), Err) {
                Ok(()) => return Ok(()),
                Err(at) => busy = at,
            }
        }
        Err(RangeError::Busy { pfn: self.table.pfn(busy) })
    }

    /// Moves every allocated block out of `frames`; returns a frame that is neither free nor
    /// allocated.
    fn vacate(
        &self,
        zone: &'m Zone<P, S>,
        frames: &Range<u32>,
        moves: Moves,
    ) -> Result<Option<u32>, RangeError> {
        let (mut at, mut busy) = (frames.start, None);
        while at < frames.end {
            let Some((head, state)) = S::Free::locate(self.view(zone), at) else {
                busy = Some(at);
                at += 1;
                continue;
            };
            match state.kind() {
                FrameKind::Allocated if moves == Moves::No => {
                    return Err(RangeError::InUse { pfn: self.table.pfn(at) });
                }
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
        let mut freed = Ok(());
        or_undo(|| freed = self.free_direct(from, order, false), || self.free_untold(from, order));
        match freed {
            Ok(()) => zone.compaction.count(Count::MigrateSuccess, order.frames()),
            Err(_) => zone.compaction.count(Count::MigrateMismatches, 1),
        }
        Ok(())
    }

    /// Takes all of `frames`, or none and says which was not free.
    fn take_all(
        &self,
        zone: &Zone<P, S>,
        frames: &Range<u32>,
        mark: FrameState,
    ) -> Result<(), u32> {
        let mut at = frames.start;
        while at < frames.end {
            let taken = S::Free::take_isolated(self.view(zone), at..frames.end, mark);
            let Some(next) = taken else {
                self.free_frames_of(zone, frames.start..at);
                return Err(at);
            };
            at = next;
        }
        Ok(())
    }

    /// Frees single frames, merged, in blocks of at most a pageblock.
    pub(super) fn free_frames_of(&self, zone: &Zone<P, S>, frames: Range<u32>) {
        S::Free::free_frames(self.view(zone), frames);
    }
}
