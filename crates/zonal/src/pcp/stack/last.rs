//! The block that a CPU freed last, on hosts where blocks do not stay on a [stack](super::small).
//!
//! - Source: zonal's own (ADR 117).
//! - Mechanism: the last block of the current pageblock is not put there before another is.
//! - State: the head of such a block has the state cached, with its order. In the slot.
//! - Conflicts: a CPU has at most one; a drain puts it into the map.

use super::cpu::StackCpu;
use super::small::LARGEST;
use crate::platform::Platform;
use crate::types::migrate_type::MigrateType;
use crate::types::units::Order;
use crate::zone::free_map::MapView;

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
}

impl StackCpu {
    /// Takes the block that is kept, if it is of this order and type.
    #[inline(always)]
    pub(super) fn take_kept(&mut self, order: Order, migrate: MigrateType) -> Option<u32> {
        self.kept.take_if(|kept| kept.is(order, migrate)).map(|kept| kept.index)
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
        let before = self.kept.replace(Kept { index, order, migrate });
        before.map_or(0, |gone| self.put_gone(view, gone.index, gone.order, gone.migrate))
    }

    /// Puts the block that was kept into the map; how many frames.
    #[inline(always)]
    pub(super) fn drain_last<P: Platform>(&mut self, view: MapView<'_, P>) -> u64 {
        let Some(kept) = self.kept.take() else { return 0 };
        self.put_block(view, kept.index, kept.order);
        kept.order.frames()
    }
}
