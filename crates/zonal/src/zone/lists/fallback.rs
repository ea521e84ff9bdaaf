//! When a migrate type has run out: claim a pageblock of another type, or steal one block.
//!
//! The mechanism is Linux's: the largest block of another type is found first, because it is
//! the most likely to bring a whole pageblock with it; a pageblock at least half free changes
//! its type, from the others one block is stolen and the type stays.

use super::ListGuard;
use super::clusters::Clusters;
use super::free_area::End;
use super::merge::Merge;
use crate::frame::{FrameKind, FrameState, PageblockWord};
use crate::platform::Platform;
use crate::trace::Trace;
use crate::trace::{Event, Point};
use crate::types::migrate_type::MigrateType;
use crate::types::units::Order;

impl<P: Platform, M: Merge, C: Clusters> ListGuard<'_, P, M, C> {
    /// Takes a block of `order` from a pageblock of another type. Work: at most the frames of
    /// one pageblock.
    pub(crate) fn take_fallback<T: Trace>(
        &mut self,
        order: Order,
        migrate: MigrateType,
    ) -> Option<u32> {
        let others = migrate.fallbacks()?;
        let (found, index) = self.largest_of_others(order, migrate)?;
        let from = self.found_type::<T>(index);
        if self.claim(index, found, migrate) {
            self.trace_fallback::<T>((index, found, from), (order, migrate), true);
            return self.take_smallest(order, migrate);
        }
        // Nothing worth claiming: the smallest block does the least harm.
        others.iter().find_map(|&other| {
            let found = self.area.smallest(order, other)?;
            // Told while it is free, so that a sink that panics loses nothing.
            let index = self.area.first(found, other)?;
            self.trace_fallback::<T>((index, found, other), (order, migrate), false);
            let taken = self.take_smallest(order, other)?;
            self.events.stolen += 1;
            Some(taken)
        })
    }

    /// The largest free block of at least `order` of another type than `migrate`.
    fn largest_of_others(&mut self, order: Order, migrate: MigrateType) -> Option<(Order, u32)> {
        let others = migrate.fallbacks()?;
        if others.iter().all(|&other| self.area.first(Order::MAX, other).is_none()) {
            self.grow();
        }
        let area = &self.area;
        Order::all().skip(order.index()).rev().find_map(|at| {
            others.iter().find_map(|&other| area.first(at, other).map(|index| (at, index)))
        })
    }

    /// Gives the pageblock (or the pageblocks) of the free block at `index` to `migrate`, if
    /// enough of it is free.
    fn claim(&mut self, index: u32, order: Order, migrate: MigrateType) -> bool {
        let pageblock = self.table.pageblock_order();
        if order >= pageblock {
            self.remove(index, order, self.table.pageblock(index).migrate());
            let step = pageblock.frames() as usize;
            for at in (index..index + order.frames() as u32).step_by(step) {
                // A pageblock of the reserve stays that, whatever block it is in.
                if self.table.pageblock(at).migrate().is_requestable() {
                    self.table.set_migrate(at, migrate);
                }
            }
            self.add(index, FrameState::free(order), migrate, End::Head);
            self.events.claimed += 1;
            return true;
        }
        // A movable request that spoils another type's block can be moved out again later;
        // the other types cannot, so they claim from smaller pieces on.
        let worth = order.get() >= pageblock.get() / 2 || migrate != MigrateType::Movable;
        if !worth || self.free_in_pageblock(index) < pageblock.frames() as u32 / 2 {
            return false;
        }
        self.move_pageblock(index, migrate);
        self.events.claimed += 1;
        true
    }

    /// Free frames of this zone's lists in the pageblock of `index`. Scans the pageblock.
    pub(crate) fn free_in_pageblock(&mut self, index: u32) -> u32 {
        let mut free = 0;
        self.scan_pageblock(index, |_, _, state| free += state.order().frames() as u32);
        free
    }

    /// Changes the migrate type of the pageblock of `index` and moves its free blocks to the
    /// lists of that type. A free block larger than the pageblock is split first.
    pub(crate) fn move_pageblock(&mut self, index: u32, migrate: MigrateType) {
        let start = self.table.pageblock_start(index);
        self.cut_out_pageblock(start);
        let old: PageblockWord = self.table.pageblock(start);
        self.scan_pageblock(start, |buddy, at, state| {
            buddy.remove(at, state.order(), old.migrate());
            self.table.set_migrate(start, migrate);
            buddy.add(at, state, migrate, End::Head);
            self.table.set_pageblock(start, old);
        });
        self.table.set_migrate(start, migrate);
        let pageblock = self.table.pageblock_order();
        if self.table.state(start) == FrameState::free(pageblock) {
            // Free as a whole, it may be of its buddy's type now (I-5).
            self.remove(start, pageblock, migrate);
            self.free_block_merged(start, pageblock);
        }
    }

    /// Cuts the pageblock at `start` out of a free block that is larger.
    pub(crate) fn cut_out_pageblock(&mut self, start: u32) {
        let pageblock = self.table.pageblock_order();
        for order in Order::all().skip(pageblock.index() + 1) {
            let head = start & !(order.frames() as u32 - 1);
            let state = self.table.state(head);
            if state.kind() == FrameKind::Free && state.order() == order {
                self.remove(head, order, self.table.pageblock(head).migrate());
                let halves = Order::all().skip(pageblock.index()).take_while(|&half| half < order);
                for half in halves {
                    let other = (start & !(half.size() - 1)) ^ half.size();
                    self.add(
                        other,
                        FrameState::free(half),
                        self.table.pageblock(other).migrate(),
                        End::Head,
                    );
                }
                self.add(
                    start,
                    FrameState::free(pageblock),
                    self.table.pageblock(start).migrate(),
                    End::Head,
                );
                return;
            }
        }
    }

    /// Calls `visit` with every free block that starts in the pageblock of `index`, and its state.
    fn scan_pageblock(&mut self, index: u32, mut visit: impl FnMut(&mut Self, u32, FrameState)) {
        self.wait_for_cutters();
        let start = self.table.pageblock_start(index);
        let end = (start + self.table.pageblock_order().frames() as u32).min(self.table.frames());
        let mut at = start;
        while at < end {
            let state = self.table.state(at);
            self.area.count_work(1);
            if state.kind() == FrameKind::Free {
                visit(self, at, state);
            }
            at += state.step();
        }
    }

    /// The migrate type of a free block, if it will be told: a claim changes it.
    #[inline(always)]
    fn found_type<T: Trace>(&self, index: u32) -> MigrateType {
        let told = T::is_on(Point::AllocExtfrag);
        if told { self.table.pageblock(index).migrate() } else { MigrateType::default() }
    }

    /// Tells that memory of another type was taken: which free block was found, what is wanted, and
    /// whether its pageblock changed its type.
    #[inline(always)]
    fn trace_fallback<T: Trace>(
        &self,
        (index, fallback_order, fallback_migrate): (u32, Order, MigrateType),
        (alloc_order, alloc_migrate): (Order, MigrateType),
        change_ownership: bool,
    ) {
        T::emit(Point::AllocExtfrag, || Event::AllocExtfrag {
            pfn: self.table.pfn(index),
            alloc_order,
            fallback_order,
            alloc_migrate,
            fallback_migrate,
            change_ownership,
            pageblock_order: self.table.pageblock_order(),
        });
    }
}
