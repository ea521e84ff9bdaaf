//! The block that a CPU freed last, where it does not stay on a [stack](super::small).
//!
//! - Source: zonal's own (ADR 118).
//! - Mechanism: where all that is freed goes into the map, a block that goes where the last one came from costs two
//!   searches of its place: its hints are raised, found and lowered. So the last one that was freed is not put there before
//!   another is, and is handed out where a search of the map would have found it: if no other pageblock that comes before
//!   its own has a block of its order, and if its neighbour is not free, with which it would be a larger one.
//! - State: the head of such a block has the state cached, with its order. In the slot.
//! - Conflicts: a CPU has at most one, of its stacks' size at most; a drain puts it into the map.

use super::cpu::StackCpu;
use super::small::LARGEST;
use crate::platform::Platform;
use crate::types::migrate_type::{MigrateType, NR_CACHED_TYPES};
use crate::types::units::Order;
use crate::zone::free_map::{FreeMap, MapView, Start};

/// A block that is kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kept {
    pub(super) index: u32,
    pub(super) order: Order,
    migrate: MigrateType,
}

impl Kept {
    const fn is(&self, order: Order, migrate: MigrateType) -> bool {
        self.order.get() == order.get() && self.migrate.index() == migrate.index()
    }

    /// Whether the block of an order at an index is its neighbour, with which it is one.
    const fn is_beside(&self, order: Order, index: u32) -> bool {
        self.order.get() == order.get() && self.index ^ order.size() == index
    }
}

impl StackCpu {
    /// Takes the block that is kept, if it is of this order and type.
    #[inline(always)]
    pub(super) fn take_kept(&mut self, order: Order, migrate: MigrateType) -> Option<u32> {
        self.kept.take_if(|kept| kept.is(order, migrate)).map(|kept| kept.index)
    }

    /// Takes the block that is kept where a search of the map from `start` on would have found it. Else it stays, as the next
    /// may.
    #[inline(always)]
    pub(super) fn take_apart<P: Platform>(
        &mut self,
        map: &FreeMap<'_, P>,
        view: MapView<'_, P>,
        (order, migrate): (Order, MigrateType),
        start: Start,
    ) -> Option<u32> {
        // In two steps: 25 instructions fewer than in one.
        let kept = self.kept.filter(|kept| kept.is(order, migrate))?;
        let best = map.is_best(migrate, order, start, view.frame(kept.index));
        self.kept.take_if(|_| best).map(|kept| kept.index)
    }

    /// Frees a block that is not of the pageblock of which blocks stay: it is kept, and the one before goes into the map.
    /// How many frames went there.
    pub(super) fn put_apart<P: Platform>(
        &mut self,
        view: MapView<'_, P>,
        (order, migrate): (Order, MigrateType),
        index: u32,
    ) -> u64 {
        if self.kept.is_some_and(|kept| kept.is_beside(order, index)) {
            // The two are one from now on.
            return self.drain_kept(view) + self.put_gone(view, index, order, migrate);
        }
        let may = migrate.index() < NR_CACHED_TYPES
            && order < self.whole_order
            && order.size() <= self.size.high
            && view.zone.slack() >= self.margin() + order.frames()
            && view.map().is_single(migrate, order, view.frame(index));
        match may {
            true => self.keep((order, migrate), index, view),
            false => self.put_gone(view, index, order, migrate),
        }
    }

    /// Frees a block where one of all orders and types stays: the last of the current pageblock.
    pub(super) fn put_kept<P: Platform>(
        &mut self,
        view: MapView<'_, P>,
        (order, migrate): (Order, MigrateType),
        index: u32,
    ) -> u64 {
        let (frame, shape) = (view.frame(index), view.extent().1);
        if order.get() > LARGEST || !self.stack.is_current(migrate, frame, shape) {
            return self.put_gone(view, index, order, migrate);
        }
        self.keep((order, migrate), index, view)
    }

    #[inline(always)]
    fn keep<P: Platform>(
        &mut self,
        (order, migrate): (Order, MigrateType),
        index: u32,
        view: MapView<'_, P>,
    ) -> u64 {
        let before = self.kept.replace(Kept { index, order, migrate });
        before.map_or(0, |gone| self.put_gone(view, gone.index, gone.order, gone.migrate))
    }

    /// Puts the block that was kept into the map; how many frames.
    #[inline(always)]
    pub(super) fn drain_kept<P: Platform>(&mut self, view: MapView<'_, P>) -> u64 {
        let Some(kept) = self.kept.take() else { return 0 };
        self.put_block(view, kept.index, kept.order);
        kept.order.frames()
    }
}
