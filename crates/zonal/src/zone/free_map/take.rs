//! Taking a block for a request: own lines and whole pageblocks, CMA, other types.

use super::mapped::MapView;
use super::shape::{Frame, Pageblock};
use super::{Current, FreeMap, Start, WholeClass};
use crate::platform::stay::{OWN, Stay, cost};
use crate::platform::{AtomicWord, Platform};
use crate::trace::{Event, Point, Trace, or_undo};
use crate::types::migrate_type::MigrateType;
use crate::types::units::Order;
use crate::zone::AllocFlags;
use core::sync::atomic::Ordering::Relaxed;

/// A fallback, for those who are told of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fallback {
    /// The first frame that was found free, of a run that led there.
    pub frame: Frame,
    /// The order of that run.
    pub order: Order,
    /// The type that the pageblock had.
    pub from: MigrateType,
    /// Whether the pageblock changed its type.
    pub claimed: bool,
}

impl<P: Platform> FreeMap<'_, P> {
    /// Takes a block of any order of a type's own: below the pageblock order from `current`, another
    /// line or a whole pageblock; from the pageblock order up whole pageblocks, which get the type.
    /// `None`: the hints lead to none.
    #[must_use]
    pub fn take_own(
        &self,
        migrate: MigrateType,
        order: Order,
        start: Start,
        mut current: Option<&mut Current>,
    ) -> Option<Frame> {
        let shape = self.shape();
        if order < shape.order() {
            let taken = self.take_block(migrate, order, start, current.as_deref_mut());
            let taken =
                taken.or_else(|| self.split_whole(migrate, order, start, current.as_deref_mut()));
            if taken.is_some() || !start.has_part() {
                return taken;
            }
            return self.take_elsewhere(migrate, order, start, current);
        }
        let start = start.anywhere();
        if order == shape.order() {
            let opened = self.open_whole(migrate, start, Pageblock(0));
            return opened.map(|pageblock| pageblock.first_frame(shape));
        }
        let class = WholeClass::of(migrate);
        let first = self.take_large_of(class, order, start)?;
        self.claim_block(first, order, migrate);
        Some(first.first_frame(shape))
    }

    /// Gives the pageblocks of a block of the pageblock order or above, which the caller owns, the type of who gets it.
    pub(super) fn claim_block(&self, first: Pageblock, order: Order, to: MigrateType) {
        for pageblock in first.0..first.0 + order.size() / self.shape().pageblock_frames() {
            // One that was isolated since belongs to the holder of the block all the same, and is
            // isolated when it is freed.
            let _claimed = self.claim_owned(Pageblock(pageblock), to);
        }
    }

    /// No whole pageblock is left: takes a block from lines outside the CPU's own part.
    #[cold]
    #[inline(never)]
    fn take_elsewhere(
        &self,
        migrate: MigrateType,
        order: Order,
        start: Start,
        current: Option<&mut Current>,
    ) -> Option<Frame> {
        self.take_block(migrate, order, start.anywhere(), current)
    }

    /// Takes a block below the pageblock order from lines of other types: claims a pageblock that is
    /// half free, or else takes from one that keeps its type. No block with it: it claimed one, for the next
    /// [piece](crate::platform::stay) to take from.
    #[must_use]
    pub fn take_other(
        &self,
        migrate: MigrateType,
        order: Order,
        start: Start,
    ) -> Option<(Option<Frame>, Fallback)> {
        self.stay.spend(cost::OTHERS[1]);
        let start = start.anywhere();
        migrate.fallbacks()?.iter().find_map(|&from| {
            let claimed = self.claim_other(from, migrate, order.get().into(), start);
            if let Some((pageblock, order)) = claimed.filter(|_| self.stay.ends()) {
                let frame = pageblock.first_frame(self.shape());
                return Some((None, Fallback { frame, order, from, claimed: true }));
            }
            let own = if claimed.is_some() { migrate } else { from };
            let frame = self.take_block(own, order, start, None)?;
            let (claimed, order) = claimed.map_or((false, order), |(_, order)| (true, order));
            Some((Some(frame), Fallback { frame, order, from, claimed }))
        })
    }
}

impl<P: Platform> MapView<'_, P> {
    /// Takes a block of `order` for `migrate`: own memory, CMA for movable requests, then other types.
    /// The block's state, and counting it, is the caller's.
    pub(crate) fn take<T: Trace>(
        &self,
        map: &FreeMap<'_, P>,
        (order, migrate): (Order, MigrateType),
        flags: AllocFlags,
        start: Start,
        current: Option<&mut Current>,
    ) -> Option<Frame> {
        if !map.knows_none(OWN) {
            if flags.high_atomic
                && let Some(frame) = map.take_own(MigrateType::HighAtomic, order, start, None)
            {
                return Some(frame);
            }
            if let Some(frame) = map.take_own(migrate, order, start, current) {
                return Some(frame);
            }
            if migrate == MigrateType::Movable
                && let Some(frame) = map.take_own(MigrateType::Cma, order, start, None)
            {
                return Some(frame);
            }
            // Whole pageblocks are of no type: those of others were looked at.
            if !flags.fallback || map.is_over() || order >= map.shape().order() {
                return None;
            }
            map.found_none(OWN);
        }
        let (frame, fallback) = map.take_other(migrate, order, start)?;
        or_undo(
            || self.fell_back::<T>(fallback, order, migrate),
            || _ = frame.map(|frame| map.free_block(frame, order)),
        );
        frame
    }

    /// Counts a fallback, and tells of it.
    pub(crate) fn fell_back<T: Trace>(
        &self,
        fallback: Fallback,
        alloc_order: Order,
        alloc_migrate: MigrateType,
    ) {
        let Fallback { frame, order: fallback_order, from, claimed } = fallback;
        let events = &self.zone.part.events;
        let counter = if claimed { &events.claimed } else { &events.stolen };
        counter.fetch_add(1, Relaxed);
        T::emit(Point::AllocExtfrag, || Event::AllocExtfrag {
            pfn: self.table.pfn(self.index(frame)),
            alloc_order,
            fallback_order,
            alloc_migrate,
            fallback_migrate: from,
            change_ownership: claimed,
            pageblock_order: self.table.pageblock_order(),
        });
    }
}
