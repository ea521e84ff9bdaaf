//! Blocks larger than a frame: from current pageblocks, other lines, whole pageblocks.

use super::CpuStack;
use super::refill::FALLBACKS;
use crate::platform::Platform;
use crate::types::migrate_type::{MigrateType, NR_CACHED_TYPES};
use crate::types::units::Order;
use crate::zone::free_map::{Frame, FreeMap};

impl CpuStack {
    /// Takes a block of any order for a request of the type: below the pageblock order from the
    /// CPU's current pageblock, another line, a whole pageblock, or a pageblock of another type;
    /// from the pageblock order up whole pageblocks, which get the type. Types without a stack
    /// (high-atomic, CMA) get lines and whole pageblocks of their own only. `None`: the hints lead
    /// to none.
    pub fn take_block<P: Platform>(
        &mut self,
        map: &FreeMap<'_, P>,
        migrate: MigrateType,
        order: Order,
    ) -> Option<Frame> {
        let (start, at, shape) = (self.start, migrate.index(), map.shape());
        if order >= shape.order() {
            return self.take_large(map, migrate, order);
        }
        let held = self.current.iter().filter(|held| held.block().is_some()).count();
        let room = held < self.size.currents as usize;
        let own = self.current.get_mut(at);
        let mut current = own.filter(|own| (room || own.block().is_some()) && order > Order::ZERO);
        let taken = map
            .take_block(migrate, order, start, current.as_deref_mut())
            .or_else(|| map.split_whole(migrate, order, start, current));
        if taken.is_some() || at >= NR_CACHED_TYPES {
            return taken;
        }
        FALLBACKS[at].into_iter().find_map(|other| {
            let claimed = map.claim_other(other, migrate, start).is_some();
            let from = if claimed { migrate } else { other };
            map.take_block(from, order, start, None)
        })
    }

    /// Takes whole pageblocks.
    fn take_large<P: Platform>(
        &mut self,
        map: &FreeMap<'_, P>,
        migrate: MigrateType,
        order: Order,
    ) -> Option<Frame> {
        let (start, shape) = (self.start, map.shape());
        if order == shape.order() {
            return map.open_whole(migrate, start).map(|block| block.first_frame(shape));
        }
        if migrate.index() >= NR_CACHED_TYPES {
            return None;
        }
        let first = map.take_large(order, start)?;
        let count = order.size() / shape.block_frames();
        for block in first.0..first.0 + count {
            // One that was isolated since belongs to the holder of the block all the same, and is
            // isolated when it is freed.
            let _claimed = map.claim_owned(crate::zone::free_map::Pageblock(block), migrate);
        }
        Some(first.first_frame(shape))
    }
}
