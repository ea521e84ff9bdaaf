//! Freeing: the fast path, the direct path, and why a free is refused.

use crate::allocator::Allocator;
use crate::entry::Entry;
use crate::error::FreeError;
use crate::frame::{FrameKind, FrameState};
use crate::keeper::Keeper;
use crate::map::RangeKind;
use crate::migrate::MigrateType;
use crate::platform::Platform;
use crate::policy::trace::Event;
use crate::policy::{Policy, Trace};
use crate::units::{Order, Pfn};
use crate::zone::Zone;

/// The list of a cache that a pageblock's frames go to; `None`: not cached.
#[inline]
pub(crate) fn cached_as(migrate: MigrateType) -> Option<MigrateType> {
    match migrate {
        MigrateType::Unmovable | MigrateType::Movable | MigrateType::Reclaimable => Some(migrate),
        // Lent to movable requests again.
        MigrateType::Cma => Some(MigrateType::Movable),
        MigrateType::HighAtomic | MigrateType::Isolate => None,
    }
}

impl<'m, P: Platform, S: Policy> Allocator<'m, P, S> {
    /// Frees through `entry`.
    #[inline]
    pub(crate) fn free_through<E: Entry<P, S>>(
        &self,
        entry: &mut E,
        pfn: Pfn,
        order: Order,
    ) -> Result<(), FreeError> {
        let Some(index) = self.table.index(pfn) else { return Err(FreeError::Foreign { pfn }) };
        let Some(word) = self.table.get_block(index) else {
            return Err(FreeError::Foreign { pfn });
        };
        let Some(zone) = word.zone() else { return Err(self.refusal(pfn, index, order)) };
        let to = cached_as(word.migrate());
        if let (true, Some(migrate)) = (S::Keeper::caches(order), to) {
            let (from, to) = (FrameState::allocated(order), FrameState::cached(order));
            let cpu = entry.cpu();
            let freed = entry.enter(zone, |own| {
                if !self.table.replace_state(index, from, to) {
                    return false;
                }
                own.events.free += order.frames();
                if S::Keeper::push(&mut own.cache, &self.table, order, migrate, index) {
                    self.spill(own, zone, cpu, order, migrate);
                }
                true
            });
            match freed {
                Some(true) => {
                    S::Trace::emit(|| Event::Free { pfn, order });
                    return Ok(());
                }
                Some(false) => return Err(self.refusal(pfn, index, order)),
                None => {}
            }
        }
        self.free_direct(pfn, index, order)
    }

    #[cold]
    #[inline(never)]
    pub(crate) fn spill(
        &self,
        own: &mut crate::cpu_zone::CpuZone<S>,
        zone: crate::units::ZoneId,
        cpu: usize,
        order: Order,
        migrate: MigrateType,
    ) {
        if let Some(zone) = self.zone(zone) {
            own.events.spills += 1;
            S::Keeper::spill(&self.here(zone, cpu), &mut own.cache, order, migrate);
        }
    }

    /// Frees to the buddy lists, past the caches.
    #[cold]
    #[inline(never)]
    pub(crate) fn free_direct(&self, pfn: Pfn, index: u32, order: Order) -> Result<(), FreeError> {
        let zone: Option<&Zone<P, S>> =
            self.table.get_block(index).and_then(|word| self.zone(word.zone()?));
        let Some(zone) = zone else { return Err(self.refusal(pfn, index, order)) };
        let freed = zone.with_buddy(|buddy| {
            let allocated = FrameState::allocated(order);
            let mine = self.table.replace_state(index, allocated, FrameState::INNER);
            if mine {
                buddy.give(&self.table, index, order);
                buddy.events.direct_free += order.frames();
            }
            mine
        });
        if !freed {
            return Err(self.refusal(pfn, index, order));
        }
        S::Trace::emit(|| Event::Free { pfn, order });
        Ok(())
    }

    /// Why the frame at `index` cannot be freed with `given`. Looks at up to ten frames.
    #[cold]
    #[inline(never)]
    pub(crate) fn refusal(&self, pfn: Pfn, index: u32, given: Order) -> FreeError {
        match self.plan.map().kind_at(pfn) {
            None => return FreeError::Hole { pfn },
            Some(RangeKind::Reserved) => return FreeError::Reserved { pfn },
            Some(RangeKind::Usable | RangeKind::Cma | RangeKind::ReclaimLater) => {}
        }
        let state = self.table.state(index);
        match state.kind() {
            FrameKind::Free | FrameKind::Cached => FreeError::DoubleFree { pfn, order: given },
            FrameKind::Allocated => FreeError::WrongOrder { pfn, given, allocated: state.order() },
            FrameKind::Isolated => FreeError::Isolated { pfn },
            FrameKind::Damaged => FreeError::Damaged { pfn },
            FrameKind::Inner => self.refusal_inside(pfn, index, given),
        }
    }

    /// The frame heads nothing: find the block it is in, if any.
    fn refusal_inside(&self, pfn: Pfn, index: u32, given: Order) -> FreeError {
        for order in Order::all().skip(1) {
            let head = index & !(order.frames() as u32 - 1);
            let state = self.table.state(head);
            if state.order() < order {
                continue;
            }
            match state.kind() {
                FrameKind::Allocated => {
                    let head = self.table.pfn(head);
                    return FreeError::Inner { pfn, head, order: state.order() };
                }
                FrameKind::Isolated => return FreeError::Isolated { pfn },
                _ => {}
            }
        }
        // In a free or cached block, or never touched since boot; what is reclaimed later or
        // trimmed by the plan was never handed out either.
        match self.plan.map().kind_at(pfn) {
            Some(RangeKind::ReclaimLater) => FreeError::Reserved { pfn },
            _ => FreeError::DoubleFree { pfn, order: given },
        }
    }
}
