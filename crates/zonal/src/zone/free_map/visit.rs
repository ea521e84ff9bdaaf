//! Free blocks as the buddy system has them: also those larger than a pageblock.

use super::WholeClass;
use super::mapped::MapView;
use super::shape::{Frame, Pageblock};
use crate::platform::Platform;
use crate::types::migrate_type::MigrateType;
use crate::types::units::Order;
use crate::zone::FreePlace;

impl<P: Platform> MapView<'_, P> {
    /// The free block that the frame at `index` is in: its first index and its order.
    pub(super) fn run_at(&self, index: u32) -> Option<(u32, Order)> {
        let map = self.map();
        if (index < self.extent().0) || self.pageblock(index).0 >= map.shape().pageblocks() {
            return None;
        }
        let (head, order) = map.run_at(self.frame(index))?;
        let (head, order) = self.beyond_pageblock(head, order);
        Some((self.index(head), order))
    }

    /// The order of the free block that begins at `index`.
    pub(super) fn run_from(&self, index: u32) -> Option<Order> {
        let frame = self.frame(index);
        let (_, order) = self.map().run_at(frame).filter(|&(head, _)| head == frame)?;
        let (head, order) = self.beyond_pageblock(frame, order);
        (head == frame).then_some(order)
    }

    /// The block that a free run is part of: itself, unless it is a whole pageblock.
    fn beyond_pageblock(&self, head: Frame, order: Order) -> (Frame, Order) {
        let (_, shape) = self.extent();
        if order < shape.order() {
            return (head, order);
        }
        let (first, order) = self.block_around(head.pageblock(shape));
        (first.first_frame(shape), order)
    }

    /// The largest block of whole pageblocks around this one, which is whole. The class decides what
    /// goes together, as it does for those who take such a block.
    fn block_around(&self, pageblock: Pageblock) -> (Pageblock, Order) {
        let (map, mut found) = (self.map(), (pageblock, self.map().shape().order()));
        let own = WholeClass::of(map.type_of(pageblock));
        while let Some(up) = found.1.up() {
            let Some(first) = self.whole_around(pageblock, up, &WholeClass::ALL) else { break };
            let end = first.0 + up.size() / map.shape().pageblock_frames();
            if !(first.0..end).all(|at| WholeClass::of(map.type_of(Pageblock(at))) == own) {
                break;
            }
            found = (first, up);
        }
        found
    }

    /// Whether the largest block around a pageblock is untouched since boot. To the outside it heads
    /// nothing then.
    pub(super) fn is_in_untouched(&self, pageblock: Pageblock) -> bool {
        self.whole_around(pageblock, Order::MAX, &[WholeClass::Untouched]).is_some()
    }

    /// The first pageblock of the aligned run of an order, from the pageblock order up, around this one, if it is in the
    /// map and whole in these classes.
    fn whole_around(
        &self,
        pageblock: Pageblock,
        order: Order,
        classes: &[WholeClass],
    ) -> Option<Pageblock> {
        let map = self.map();
        let above = u32::from(order.get() - map.shape().order().get());
        let first = Pageblock(pageblock.0 >> above << above);
        let inside = first.0 + (1 << above) <= map.shape().pageblocks();
        (inside && map.are_whole(classes, first, above)).then_some(first)
    }

    /// Calls `visit` with the first index of every free block, and what it is.
    pub(super) fn visit_blocks(&self, visit: &mut dyn FnMut(u32, FreePlace)) {
        let map = self.map();
        let size = map.shape().pageblock_frames();
        let mut at = Pageblock(0);
        while at.0 < map.shape().pageblocks() {
            if map.is_own(at) && map.is_whole(at) {
                let (first, order) = self.block_around(at);
                let migrate = map.type_of(first);
                let fresh = order == Order::MAX && self.is_in_untouched(at);
                let place = FreePlace::Block { order, migrate };
                let place = if fresh { FreePlace::Untouched } else { place };
                visit(self.index(first.first_frame(map.shape())), place);
                at.0 += order.size() / size;
                continue;
            }
            if map.is_own(at) {
                let migrate = map.type_of(at);
                map.visit_free(at, |frame, order| {
                    visit(self.index(frame), FreePlace::Block { order, migrate });
                });
            }
            at.0 += 1;
        }
    }

    /// Whether a free block of `order` is there for some request; `cma`: one that may have CMA frames.
    pub(super) fn has_block(&self, order: Order, cma: bool) -> bool {
        let (map, own) = (self.map(), self.map().shape().order());
        let usable =
            |migrate: MigrateType| migrate.is_requestable() || (cma && migrate == MigrateType::Cma);
        if order <= own {
            let mut types = MigrateType::ALL.into_iter().filter(|&migrate| usable(migrate));
            return types.any(|migrate| map.has_block(migrate, order));
        }
        let count = order.size() / map.shape().pageblock_frames();
        let mut heads = (0..map.shape().pageblocks()).step_by(count as usize).map(Pageblock);
        heads.any(|head| {
            usable(map.type_of(head)) && map.is_whole(head) && self.block_around(head).1 >= order
        })
    }
}
