//! The buddy allocator of one zone instance: split and merge.
//!
//! Everything here runs under the zone lock. Complexity: taking and giving a block are
//! O(number of orders).

use super::ListGuard;
use super::clusters::{Clusters, Cutting};
use super::free_area::{End, FreeArea};
use super::merge::Merge;
use super::untouched::Untouched;
use crate::frame::FrameState;
use crate::frame::links::FreeList;
use crate::platform::Platform;
use crate::trace::Trace;
use crate::types::counts::FreeCounts;
use crate::types::migrate_type::MigrateType;
use crate::types::units::{ORDERS, Order};
use crate::zone::{AllocFlags, FreePlace, Published, ZoneEvents};

/// What the zone lock guards.
pub struct Buddy<M: Merge, C: Clusters> {
    pub(crate) area: FreeArea<M, C>,
    pub(crate) untouched: Untouched,
    /// Pageblocks in the high-atomic reserve.
    pub(crate) high_atomic_pageblocks: u32,
    /// Most pageblocks the reserve may have.
    pub(crate) high_atomic_limit: u32,
    /// How many have disabled clusters, and with them the skipping of merges.
    disable_depth: u32,
    /// The pageblock that compaction is evacuating and keeps apart.
    pub(crate) apart: Option<u32>,
    pub(crate) events: ZoneEvents,
}

impl<M: Merge, C: Clusters> Buddy<M, C> {
    pub(crate) const fn new() -> Self {
        Self {
            area: FreeArea::EMPTY,
            untouched: Untouched::EMPTY,
            high_atomic_pageblocks: 0,
            high_atomic_limit: 0,
            disable_depth: 0,
            apart: None,
            events: ZoneEvents::NONE,
        }
    }

    /// Free frames, untouched ones included.
    #[inline]
    pub(crate) fn free_frames(&self) -> u64 {
        self.area.frames() + self.untouched.frames()
    }

    /// Free blocks by order and migrate type, untouched ones included.
    pub(crate) fn counts(&self) -> FreeCounts {
        let mut counts = self.area.counts();
        counts[Order::MAX.index()][MigrateType::Movable.index()] += self.untouched.blocks;
        counts
    }

    /// Books the work of the hold that ends.
    #[inline]
    pub(crate) fn end_hold(&mut self) -> Published {
        let work = self.area.take_work();
        self.events.hold(work);
        let special = [MigrateType::HighAtomic, MigrateType::Cma];
        Published {
            free: self.free_frames(),
            special: special.map(|migrate| self.area.frames_of(migrate)),
        }
    }

    /// Whether a free block of `order` or larger is there for some request; `cma`: one that may
    /// have CMA frames.
    pub(super) fn has_block(&self, order: Order, cma: bool) -> bool {
        let listed = |migrate: MigrateType| {
            (migrate.is_requestable() || (cma && migrate == MigrateType::Cma))
                && self.area.smallest(order, migrate).is_some()
        };
        self.untouched.frames() > 0 || MigrateType::ALL.into_iter().any(listed)
    }
}

impl<P: Platform, M: Merge, C: Clusters> ListGuard<'_, P, M, C> {
    /// Takes a block of `order` for `migrate`: own lists, untouched memory, CMA for movable
    /// requests, then other migrate types. The block's first frame is left inner: the caller
    /// writes the state it needs.
    #[inline]
    pub(crate) fn take<T: Trace>(
        &mut self,
        order: Order,
        migrate: MigrateType,
        flags: AllocFlags,
    ) -> Option<u32> {
        let movable = migrate == MigrateType::Movable;
        let reserve = flags.high_atomic.then_some(MigrateType::HighAtomic);
        let sources = [reserve, Some(migrate), movable.then_some(MigrateType::Cma)];
        for migrate in sources.into_iter().flatten() {
            let listed = self.area.smallest(order, migrate);
            let found = listed.or_else(|| self.grown_for(migrate));
            if let Some((found, index)) = found.and_then(|order| self.area.first_of(order, migrate))
            {
                self.remove(index, found, migrate);
                self.expand(index, found, order, migrate);
                return Some(index);
            }
        }
        if flags.fallback { self.take_fallback::<T>(order, migrate) } else { None }
    }

    /// Brings untouched memory to the lists if `migrate` may have it; its order.
    fn grown_for(&mut self, migrate: MigrateType) -> Option<Order> {
        (migrate == MigrateType::Movable && self.grow()).then_some(Order::MAX)
    }

    /// Takes from the smallest block of `migrate` that is large enough.
    #[inline]
    pub(crate) fn take_smallest(&mut self, order: Order, migrate: MigrateType) -> Option<u32> {
        let found = self.area.smallest(order, migrate)?;
        let index = self.area.first(found, migrate)?;
        self.remove(index, found, migrate);
        self.expand(index, found, order, migrate);
        Some(index)
    }

    /// Puts all of a block of order `from`, on the list of `migrate`, back on the lists but its first
    /// `to` part. What lies beyond its first pageblock may be of another type.
    #[inline]
    pub(crate) fn expand(&mut self, index: u32, from: Order, to: Order, migrate: MigrateType) {
        for order in ORDERS[to.index()..from.index()].iter().rev().copied() {
            let rest = index + order.size();
            let inside = order < self.table.pageblock_order();
            let migrate = if inside { migrate } else { self.table.pageblock(rest).migrate() };
            self.add(rest, FrameState::free(order), migrate, End::Head);
        }
    }

    /// Frees a block in the policy's way: merged with every free buddy of its zone (I-5), or a
    /// single frame merge-skipped. The block's state must not be free; the caller has checked it.
    #[inline(always)]
    pub(crate) fn free_block(&mut self, index: u32, order: Order) {
        if order == Order::ZERO && self.skips_merging() {
            let migrate = self.table.pageblock(index).migrate();
            self.add(index, FrameState::MERGE_SKIPPED, migrate, End::Head);
        } else if order > self.table.pageblock_order() {
            self.free_block_in_parts(index, order);
        } else {
            let (index, order) = self.merge(index, order);
            let (migrate, end) =
                (self.table.pageblock(index).migrate(), self.end_for(index, order));
            self.add(index, FrameState::free(order), migrate, end);
        }
    }

    /// As [`free_block_merged`](Self::free_block_merged), for a block of any size: one larger than
    /// a pageblock goes back pageblock by pageblock if some of them were isolated while it was
    /// allocated.
    pub(crate) fn free_block_in_parts(&mut self, index: u32, order: Order) -> Order {
        let part = self.table.pageblock_order();
        let starts = || (index..index + order.size()).step_by(part.frames() as usize);
        let word = self.table.pageblock(index);
        if order <= part || starts().all(|at| self.table.pageblock(at) == word) {
            return self.free_block_merged(index, order);
        }
        starts().fold(Order::ZERO, |most, at| most.max(self.free_block_merged(at, part)))
    }

    /// Frees a block, merged whatever the policy; returns the order it has then.
    pub(crate) fn free_block_merged(&mut self, index: u32, order: Order) -> Order {
        let (index, order) = self.merge(index, order);
        let (migrate, end) = (self.table.pageblock(index).migrate(), self.end_for(index, order));
        self.add(index, FrameState::free(order), migrate, end);
        order
    }

    /// Takes every free buddy off its list that the block at `index` merges with; returns the
    /// block that they are together.
    #[inline(always)]
    fn merge(&mut self, mut index: u32, mut order: Order) -> (u32, Order) {
        let word = self.table.pageblock(index);
        if order == Order::ZERO {
            self.wait_for_cutters();
        }
        while let Some(up) = order.up() {
            let buddy = index ^ order.size();
            // Within a pageblock zone and migrate type are the same.
            let inside = order < self.table.pageblock_order();
            let state = self.table.get_state(buddy);
            let skipped =
                M::SKIPS && order == Order::ZERO && state == Some(FrameState::MERGE_SKIPPED);
            if !(skipped || state == Some(FrameState::free(order))) {
                break;
            }
            let own = if inside { word } else { self.table.pageblock(buddy) };
            if !own.merges_with(word) {
                break;
            }
            self.remove(buddy, order, own.migrate());
            self.table.set_state(index, FrameState::INNER);
            index &= buddy;
            order = up;
        }
        (index, order)
    }

    /// Whether a single frame goes on its list without a look at its buddy.
    #[inline(always)]
    pub(crate) fn skips_merging(&self) -> bool {
        M::SKIPS && self.disable_depth == 0 && !self.zone.compaction.is_considered()
    }

    /// Merges the frame at `index` if its merging was skipped and its buddy is free; `false` if
    /// there was nothing to do.
    pub(crate) fn merge_skipped(&mut self, index: u32) -> bool {
        self.wait_for_cutters();
        let buddy = self.table.get_state(index ^ 1);
        let both = self.table.state(index) == FrameState::MERGE_SKIPPED
            && buddy.is_some_and(FrameState::is_free_single);
        if both {
            let migrate = self.table.pageblock(index).migrate();
            self.remove(index, Order::ZERO, migrate);
            self.events.skip_merged += 1;
            self.free_block_merged(index, Order::ZERO);
        }
        both
    }

    /// Single frames that look free are free from now to the end of the hold: a CPU that cuts
    /// them off needs the lock to start. To be called before states of single frames are read
    /// by pfn.
    #[inline(always)]
    pub(crate) fn wait_for_cutters(&mut self) {
        if C::CUT {
            let waited = C::wait(&self.area.clusters, self.cluster_words());
            self.events.cluster_waits += u64::from(waited);
        }
    }

    /// No CPU cuts clusters off, and no merge is skipped, until
    /// [`enable_clusters`](Self::enable_clusters).
    pub(crate) fn disable_clusters(&mut self) {
        self.disable_depth = self.disable_depth.saturating_add(1);
        self.wait_for_cutters();
    }

    /// Takes back one [`disable_clusters`](Self::disable_clusters).
    pub(crate) fn enable_clusters(&mut self) {
        self.disable_depth = self.disable_depth.saturating_sub(1);
    }

    /// Cuts clusters off the order-0 list of `migrate` until there are `want` frames, taking at
    /// most `most`; this CPU is cutting from then on.
    pub(crate) fn cut_clusters(
        &mut self,
        migrate: MigrateType,
        want: u32,
        most: u64,
    ) -> Option<(FreeList, Cutting)> {
        if !C::CUT || !self.skips_merging() {
            return None;
        }
        let mut batch = FreeList::EMPTY;
        while batch.len() < want {
            let room = most - u64::from(batch.len());
            let Some(cut) = self.cut_cluster(migrate, room) else { break };
            self.events.cluster_cuts += 1;
            batch.append(self.links(), cut);
        }
        (!batch.is_empty()).then(|| (batch, self.begin_cutting()))
    }

    /// Frees single frames, whose states are inner and which are linked as `chain`, without
    /// touching their links, as one cluster. `false`, and nothing has changed, if merging is not
    /// skipped, a frame's pageblock is of another type than `migrate` (it may have changed since the
    /// frame was cached), or the array of clusters is full.
    pub(crate) fn free_chain(
        &mut self,
        chain: FreeList,
        frames: &[u32],
        migrate: MigrateType,
    ) -> bool {
        let of_type = |&index: &u32| self.table.pageblock(index).migrate() == migrate;
        let given = self.skips_merging()
            && frames.iter().all(of_type)
            && self.add_chain(chain, frames, migrate);
        self.events.cluster_joins += u64::from(given);
        given
    }

    /// Frees the start of `at..end` in the largest aligned blocks, at most `most` of them;
    /// returns where it stopped.
    pub(crate) fn free_range(&mut self, mut at: u32, end: u32, most: u32) -> u32 {
        for _ in 0..most {
            if at >= end {
                break;
            }
            let aligned = at.trailing_zeros().min((end - at).ilog2());
            let order = Order::new(aligned as u8).unwrap_or(Order::MAX);
            self.free_block(at, order);
            at += order.size();
        }
        at
    }

    /// A block whose parent could soon merge goes to the tail, to be handed out last.
    #[inline(always)]
    fn end_for(&self, index: u32, order: Order) -> End {
        let Some(up) = order.up() else { return End::Head };
        let uncle = (index & !order.size()) ^ up.size();
        let soon = order < self.table.pageblock_order()
            && self.table.get_state(uncle) == Some(FrameState::free(up));
        if soon { End::Tail } else { End::Head }
    }

    /// Moves one largest block from the untouched to the lists. O(1).
    pub(crate) fn grow(&mut self) -> bool {
        let Some(index) = self.take_untouched() else { return false };
        let migrate = self.table.pageblock(index).migrate();
        self.add(index, FrameState::free(Order::MAX), migrate, End::Head);
        true
    }

    /// Calls `visit` with every free block.
    pub(super) fn visit(&self, visit: &mut dyn FnMut(u32, FreePlace)) {
        for order in Order::all() {
            for migrate in MigrateType::ALL {
                let place = FreePlace::Block { order, migrate };
                let list = self.area.list(order, migrate);
                list.iter(self.links()).for_each(|index| visit(index, place));
            }
        }
        self.untouched.visit(self.links(), &mut |index| visit(index, FreePlace::Untouched));
    }
}
