//! The buddy allocator of one zone instance: split, merge, and the frontier of untouched memory.
//!
//! Everything here runs under the zone lock. Complexity: taking and giving a block are
//! O(number of orders).

use crate::frame::links::FreeList;
use crate::frame::links::NIL;
use crate::frame::{FrameState, FrameTable};
use crate::platform::Platform;
use crate::policy::{Clusters, Merge, Policy};
use crate::types::counts::FreeCounts;
use crate::types::migrate_type::{MigrateType, NR_CACHED_TYPES};
use crate::types::units::{ORDERS, Order, ZoneId};
use crate::zone::lists::clusters::Window;
use crate::zone::lists::free_area::{End, FreeArea};

/// What a request may use beyond the lists of its own migrate type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Reach {
    /// The high-atomic reserve.
    pub(crate) high_atomic: bool,
    /// Pageblocks of other migrate types.
    pub(crate) fallback: bool,
}

impl Reach {
    pub(crate) const NORMAL: Self = Self { high_atomic: false, fallback: true };
}

/// What the zone lock guards.
pub(crate) struct Buddy<S: Policy> {
    pub(crate) area: FreeArea<S>,
    pub(crate) frontier: Frontier,
    pub(crate) zone: ZoneId,
    /// Pageblocks in the high-atomic reserve.
    pub(crate) high_atomic_blocks: u32,
    /// Most pageblocks the reserve may have.
    pub(crate) high_atomic_limit: u32,
    /// How many have disabled clusters, and with them the skipping of merges.
    disable_depth: u32,
    /// Compaction failed in the zone and is deferred: merging is not skipped.
    pub(crate) compaction_deferred: bool,
    /// The pageblock that compaction is evacuating and keeps apart.
    pub(crate) apart: Option<u32>,
    pub(crate) events: BuddyEvents,
}

/// Counters kept under the zone lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BuddyEvents {
    /// Pageblocks claimed for another migrate type.
    pub claimed: u64,
    /// Blocks stolen from a pageblock that keeps its migrate type.
    pub stolen: u64,
    /// Frames handed out past the per-CPU caches.
    pub direct_alloc: u64,
    /// Frames given back past the per-CPU caches.
    pub direct_free: u64,
    /// Frames that a cache gave back but that were not in the cached state: copies left by
    /// two frees of one frame at the same instant.
    pub refused: u64,
    /// Clusters cut off an order-0 list (see [`policy::cluster`](crate::zone::lists::clusters)).
    pub cluster_cuts: u64,
    /// Batches that went in as one cluster.
    pub cluster_joins: u64,
    /// Times somebody waited, lock in hand, for frames that were being cut off.
    pub cluster_waits: u64,
    /// Merge-skipped frames that a scanner merged.
    pub skip_merged: u64,
    /// Batches that linked per-CPU lists gave back.
    pub free_batches: u64,
    /// Of those, the full ones of a single migrate type, by type.
    pub single_type: [u64; NR_CACHED_TYPES],
    /// Work per lock hold (list operations and frames scanned): how many holds had fewer
    /// than 1, 2, 4, … 2048 of it, or more.
    pub holds: [u64; 13],
    /// The most work in one hold.
    pub hold_max: u32,
}

impl<S: Policy> Buddy<S> {
    pub(crate) const fn new(zone: ZoneId) -> Self {
        Self {
            area: FreeArea::EMPTY,
            frontier: Frontier::EMPTY,
            zone,
            high_atomic_blocks: 0,
            high_atomic_limit: 0,
            disable_depth: 0,
            compaction_deferred: false,
            apart: None,
            events: BuddyEvents {
                claimed: 0,
                stolen: 0,
                direct_alloc: 0,
                direct_free: 0,
                refused: 0,
                cluster_cuts: 0,
                cluster_joins: 0,
                cluster_waits: 0,
                skip_merged: 0,
                free_batches: 0,
                single_type: [0; NR_CACHED_TYPES],
                holds: [0; 13],
                hold_max: 0,
            },
        }
    }

    /// Free frames, untouched ones included.
    #[inline]
    pub(crate) fn free_frames(&self) -> u64 {
        self.area.frames() + self.frontier.frames()
    }

    /// Free blocks by order and migrate type, untouched ones included.
    pub(crate) fn counts(&self) -> FreeCounts {
        let mut counts = self.area.counts();
        counts[Order::MAX.index()][MigrateType::Movable.index()] += self.frontier.blocks;
        counts
    }

    /// Books the work of the hold that ends.
    #[inline]
    pub(crate) fn end_hold(&mut self) {
        let work = self.area.take_work();
        let bucket = (u32::BITS - work.leading_zeros()).min(12);
        self.events.holds[bucket as usize] += 1;
        self.events.hold_max = self.events.hold_max.max(work);
    }

    /// Takes a block of `order` for `migrate`: own lists, untouched memory, CMA for movable
    /// requests, then other migrate types. The block's first frame is left inner: the caller
    /// writes the state it needs.
    pub(crate) fn take<P: Platform>(
        &mut self,
        table: &FrameTable<'_, P>,
        order: Order,
        migrate: MigrateType,
        reach: Reach,
    ) -> Option<u32> {
        if reach.high_atomic
            && let Some(index) = self.take_smallest(table, order, MigrateType::HighAtomic)
        {
            return Some(index);
        }
        if let Some(index) = self.take_own(table, order, migrate) {
            return Some(index);
        }
        if migrate == MigrateType::Movable
            && let Some(index) = self.take_smallest(table, order, MigrateType::Cma)
        {
            return Some(index);
        }
        if reach.fallback { self.take_fallback(table, order, migrate) } else { None }
    }

    /// Takes a block of `order` from what is `migrate`'s own: its lists, and for movable
    /// requests untouched memory.
    #[inline(always)]
    pub(crate) fn take_own<P: Platform>(
        &mut self,
        table: &FrameTable<'_, P>,
        order: Order,
        migrate: MigrateType,
    ) -> Option<u32> {
        if let Some(index) = self.take_smallest(table, order, migrate) {
            return Some(index);
        }
        if migrate == MigrateType::Movable && self.grow(table) {
            return self.take_smallest(table, order, migrate);
        }
        None
    }

    /// Takes from the smallest block of `migrate` that is large enough.
    #[inline]
    pub(crate) fn take_smallest<P: Platform>(
        &mut self,
        table: &FrameTable<'_, P>,
        order: Order,
        migrate: MigrateType,
    ) -> Option<u32> {
        let found = self.area.smallest(order, migrate)?;
        let index = self.area.first(found, migrate)?;
        self.area.remove(table, index, found, migrate);
        self.split(table, index, found, order, migrate);
        Some(index)
    }

    /// Puts all of a block of order `from` back on the lists but its first `to` part.
    #[inline]
    pub(crate) fn split<P: Platform>(
        &mut self,
        table: &FrameTable<'_, P>,
        index: u32,
        from: Order,
        to: Order,
        migrate: MigrateType,
    ) {
        for order in ORDERS[to.index()..from.index()].iter().rev().copied() {
            self.area.add(table, index + order.frames() as u32, order, migrate, End::Head);
        }
    }

    /// Frees a block in the policy's way: merged, or a single frame merge-skipped. The block's
    /// state must not be free; the caller has checked it.
    #[inline(always)]
    pub(crate) fn give<P: Platform>(
        &mut self,
        table: &FrameTable<'_, P>,
        index: u32,
        order: Order,
    ) {
        if order == Order::ZERO && self.skips_merging() {
            let migrate = table.pageblock(index).migrate();
            self.area.add_as(table, index, FrameState::MERGE_SKIPPED, migrate, End::Head);
        } else if order > table.pageblock_order() {
            self.give_parts(table, index, order);
        } else {
            self.give_merged(table, index, order);
        }
    }

    /// As [`give_merged`](Self::give_merged), for a block of any size: one larger than a pageblock
    /// goes back pageblock by pageblock if some of them were isolated while it was allocated.
    pub(crate) fn give_parts<P: Platform>(
        &mut self,
        table: &FrameTable<'_, P>,
        index: u32,
        order: Order,
    ) -> Order {
        let part = table.pageblock_order();
        let starts = || (index..index + order.size()).step_by(part.frames() as usize);
        let word = table.pageblock(index);
        if order <= part || starts().all(|at| table.pageblock(at) == word) {
            return self.give_merged(table, index, order);
        }
        starts().fold(Order::ZERO, |most, at| most.max(self.give_merged(table, at, part)))
    }

    /// Frees a block, merging it with every free buddy of its zone (I-5); returns the order it
    /// has then. The block's state must not be free; the caller has checked it.
    #[inline(always)]
    pub(crate) fn give_merged<P: Platform>(
        &mut self,
        table: &FrameTable<'_, P>,
        mut index: u32,
        mut order: Order,
    ) -> Order {
        let word = table.pageblock(index);
        if order == Order::ZERO {
            self.wait_for_window(table);
        }
        let migrate = word.migrate();
        while let Some(up) = order.up() {
            let buddy = index ^ order.size();
            // Within a pageblock zone and migrate type are the same.
            let inside = order < table.pageblock_order();
            let state = table.get_state(buddy);
            let skipped =
                S::Merge::SKIPS && order == Order::ZERO && state == Some(FrameState::MERGE_SKIPPED);
            if !(skipped || state == Some(FrameState::free(order)))
                || !(inside || table.pageblock(buddy) == word)
            {
                break;
            }
            self.area.remove(table, buddy, order, migrate);
            table.set_state(index, FrameState::INNER);
            index &= buddy;
            order = up;
        }
        let end = self.end_for(table, index, order);
        self.area.add(table, index, order, migrate, end);
        order
    }

    /// Whether a single frame goes on its list without a look at its buddy.
    #[inline(always)]
    pub(crate) fn skips_merging(&self) -> bool {
        S::Merge::SKIPS && self.disable_depth == 0 && !self.compaction_deferred
    }

    /// Merges the frame at `index` if its merging was skipped and its buddy is free; `false` if
    /// there was nothing to do.
    pub(crate) fn merge_skipped<P: Platform>(
        &mut self,
        table: &FrameTable<'_, P>,
        index: u32,
    ) -> bool {
        self.wait_for_window(table);
        let buddy = table.get_state(index ^ 1);
        let both = table.state(index) == FrameState::MERGE_SKIPPED
            && buddy.is_some_and(FrameState::is_free_single);
        if both {
            let migrate = table.pageblock(index).migrate();
            self.area.remove(table, index, Order::ZERO, migrate);
            self.events.skip_merged += 1;
            self.give_merged(table, index, Order::ZERO);
        }
        both
    }

    /// Single frames that look free are free from here to the end of the hold: whoever cuts
    /// them off needs the lock to start. To be called before states of single frames are read
    /// by pfn.
    #[inline(always)]
    pub(crate) fn wait_for_window<P: Platform>(&mut self, table: &FrameTable<'_, P>) {
        if S::Clusters::CUT {
            self.events.cluster_waits += u64::from(S::Clusters::wait(&self.area.clusters, table));
        }
    }

    /// Nobody cuts clusters off, and no merge is skipped, until
    /// [`enable_clusters`](Self::enable_clusters).
    pub(crate) fn disable_clusters<P: Platform>(&mut self, table: &FrameTable<'_, P>) {
        self.disable_depth = self.disable_depth.saturating_add(1);
        self.wait_for_window(table);
    }

    /// Takes back one [`disable_clusters`](Self::disable_clusters).
    pub(crate) fn enable_clusters(&mut self) {
        self.disable_depth = self.disable_depth.saturating_sub(1);
    }

    /// Cuts clusters off the order-0 list of `migrate` until there are `want` frames, taking at
    /// most `most`; enters the window.
    pub(crate) fn cut_clusters<P: Platform>(
        &mut self,
        table: &FrameTable<'_, P>,
        migrate: MigrateType,
        want: u32,
        most: u64,
    ) -> Option<(FreeList, Window)> {
        if !S::Clusters::CUT || !self.skips_merging() {
            return None;
        }
        let mut batch = FreeList::EMPTY;
        while batch.len() < want {
            let room = most - u64::from(batch.len());
            let Some(cut) = self.area.cut_cluster(table, migrate, room) else { break };
            self.events.cluster_cuts += 1;
            batch.append(table, cut);
        }
        (!batch.is_empty()).then(|| (batch, self.area.open_window(table)))
    }

    /// Frees single frames, whose states are inner and which are linked as `chain`, without
    /// touching their links: as one cluster, if there is room for it and the preset does that, or
    /// each into its neighbour's. `false`, and nothing has changed, if merging is not skipped, a
    /// frame's pageblock is of another type than `migrate` (it may have changed since the frame
    /// was cached), or there is no slot.
    pub(crate) fn give_chain<P: Platform>(
        &mut self,
        table: &FrameTable<'_, P>,
        chain: FreeList,
        frames: &[u32],
        migrate: MigrateType,
        as_one: bool,
    ) -> bool {
        let of_type = |&index: &u32| table.pageblock(index).migrate() == migrate;
        if !self.skips_merging() || !frames.iter().all(of_type) {
            return false;
        }
        let as_one = S::Clusters::JOIN && as_one;
        let given = self.area.add_chain(table, chain, frames, migrate, as_one);
        self.events.cluster_joins += u64::from(given && as_one);
        given
    }

    /// Frees the start of `at..end` in the largest aligned blocks, at most `most` of them;
    /// returns where it stopped.
    pub(crate) fn give_range<P: Platform>(
        &mut self,
        table: &FrameTable<'_, P>,
        mut at: u32,
        end: u32,
        most: u32,
    ) -> u32 {
        for _ in 0..most {
            if at >= end {
                break;
            }
            let aligned = at.trailing_zeros().min((end - at).ilog2());
            let order = Order::new(aligned as u8).unwrap_or(Order::MAX);
            self.give(table, at, order);
            at += order.size();
        }
        at
    }

    /// A block whose parent could soon merge goes to the tail, to be handed out last.
    #[inline(always)]
    fn end_for<P: Platform>(&self, table: &FrameTable<'_, P>, index: u32, order: Order) -> End {
        let Some(up) = order.up() else { return End::Head };
        let uncle = (index & !order.size()) ^ up.size();
        let soon =
            order < table.pageblock_order() && table.get_state(uncle) == Some(FrameState::free(up));
        if soon { End::Tail } else { End::Head }
    }

    /// Moves one largest block from the frontier to the lists. O(1).
    pub(crate) fn grow<P: Platform>(&mut self, table: &FrameTable<'_, P>) -> bool {
        let Some(index) = self.frontier.take(table) else { return false };
        let migrate = table.pageblock(index).migrate();
        self.area.add(table, index, Order::MAX, migrate, End::Head);
        true
    }
}

/// Memory that has been free since boot and whose table entries have not been touched: runs
/// of whole largest blocks of movable pageblocks. A terabyte costs nothing until it is used.
///
/// A run's first frame carries, in its link word, the run's end and the first frame of the
/// next run.
#[derive(Debug)]
pub(crate) struct Frontier {
    pub(crate) first: u32,
    pub(crate) blocks: u32,
}

impl Frontier {
    const EMPTY: Self = Self { first: NIL, blocks: 0 };

    pub(crate) fn frames(&self) -> u64 {
        u64::from(self.blocks) * Order::MAX.frames()
    }

    /// Adds the run `start..end`, both multiples of the largest block.
    pub(crate) fn push<P: Platform>(&mut self, table: &FrameTable<'_, P>, start: u32, end: u32) {
        table.set_link(start, end, self.first);
        self.first = start;
        self.blocks += (end - start) / Order::MAX.frames() as u32;
    }

    /// Calls `visit` with every untouched largest block.
    pub(crate) fn visit<P: Platform>(&self, table: &FrameTable<'_, P>, visit: &mut dyn FnMut(u32)) {
        let mut start = self.first;
        while start != NIL {
            let (end, next) = table.link(start);
            (start..end).step_by(Order::MAX.frames() as usize).for_each(&mut *visit);
            start = next;
        }
    }

    fn take<P: Platform>(&mut self, table: &FrameTable<'_, P>) -> Option<u32> {
        let index = (self.first != NIL).then_some(self.first)?;
        let (end, next) = table.link(index);
        let after = index + Order::MAX.frames() as u32;
        self.first = if after == end {
            next
        } else {
            table.set_link(after, end, next);
            after
        };
        self.blocks -= 1;
        Some(index)
    }
}
