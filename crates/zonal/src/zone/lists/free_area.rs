//! The buddy lists of a zone, by order and migrate type: one way in, one way out.
//!
//! [`FreeArea::add`] and [`FreeArea::remove`] are the only code that moves a block onto or off
//! a list, and for clusters [`FreeArea::add_chain`] and [`FreeArea::cut_cluster`], so counts, state
//! bytes and lists cannot disagree (I-1, I-2).

use crate::frame::links::FreeList;
use crate::frame::{FrameState, FrameTable};
use crate::platform::Platform;
use crate::policy::{Clusters, Merge, Policy};
use crate::types::counts::FreeCounts;
use crate::types::migrate_type::{MigrateType, NR_MIGRATE_TYPES};
use crate::types::units::{NR_ORDERS, Order};
use crate::zone::lists::clusters::{Members, Window};

/// Which end of a list a block joins: the head is handed out next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    Head,
    Tail,
}

/// The lists. Invariant: a free block is on the list of its own order and of its first
/// pageblock's migrate type.
pub(crate) struct FreeArea<S: Policy> {
    lists: [[FreeList; NR_MIGRATE_TYPES]; NR_ORDERS],
    /// For each migrate type a bit an order: its list has members.
    filled: [u16; NR_MIGRATE_TYPES],
    /// Frames by migrate type.
    frames: [u64; NR_MIGRATE_TYPES],
    /// Single frames on the lists whose merging was skipped.
    merge_skipped: u32,
    pub(crate) clusters: <S::Clusters as Clusters>::Zone,
    /// List operations since the last [`take_work`](Self::take_work), for I-7.
    work: u32,
}

impl<S: Policy> FreeArea<S> {
    pub(crate) const EMPTY: Self = Self {
        lists: [[FreeList::EMPTY; NR_MIGRATE_TYPES]; NR_ORDERS],
        filled: [0; NR_MIGRATE_TYPES],
        frames: [0; NR_MIGRATE_TYPES],
        merge_skipped: 0,
        clusters: S::Clusters::VACANT,
        work: 0,
    };

    /// Puts the block at `index`, whose first pageblock has the type `migrate`, on its list and
    /// marks it free.
    #[inline(always)]
    pub(crate) fn add<P: Platform>(
        &mut self,
        table: &FrameTable<'_, P>,
        index: u32,
        order: Order,
        migrate: MigrateType,
        end: End,
    ) {
        self.put(table, index, (order, FrameState::free(order)), migrate, end);
    }

    /// As [`add`](Self::add), with the state that the block gets: free, or a single frame whose
    /// merging was skipped.
    pub(crate) fn add_as<P: Platform>(
        &mut self,
        table: &FrameTable<'_, P>,
        index: u32,
        state: FrameState,
        migrate: MigrateType,
        end: End,
    ) {
        self.put(table, index, (state.order(), state), migrate, end);
    }

    #[inline(always)]
    fn put<P: Platform>(
        &mut self,
        table: &FrameTable<'_, P>,
        index: u32,
        (order, state): (Order, FrameState),
        migrate: MigrateType,
        end: End,
    ) {
        let single = order == Order::ZERO;
        debug_assert_eq!(migrate, table.pageblock(index).migrate());
        self.filled[migrate.index()] |= 1 << order.get();
        table.set_state(index, state);
        if S::Merge::SKIPS && state == FrameState::MERGE_SKIPPED {
            self.merge_skipped += 1;
        }
        let list = &mut self.lists[order.index()][migrate.index()];
        if S::Clusters::CUT && single {
            let neighbour = if end == End::Head { list.head() } else { list.tail() };
            let skipped = state == FrameState::MERGE_SKIPPED;
            let last = end == End::Tail;
            S::Clusters::joined(&mut self.clusters, table, index, skipped, neighbour, last);
        }
        match end {
            End::Head => list.push_head(table, index),
            End::Tail => list.push_tail(table, index),
        }
        self.frames[migrate.index()] += order.frames();
        self.work += 1;
    }

    /// Cuts the cluster at the head of the order-0 list of `migrate` off, if there is one of at
    /// most `most` frames. O(1). The frames still say that they are free: see [`Window`].
    pub(crate) fn cut_cluster<P: Platform>(
        &mut self,
        table: &FrameTable<'_, P>,
        migrate: MigrateType,
        most: u64,
    ) -> Option<FreeList> {
        let list = &mut self.lists[0][migrate.index()];
        let members = S::Clusters::end(&mut self.clusters, table, list.head()?, most)?;
        let cut = list.cut(table, members.tail, members.count);
        self.merge_skipped -= members.skipped;
        if list.is_empty() {
            self.filled[migrate.index()] &= !1;
        }
        self.frames[migrate.index()] -= u64::from(members.count);
        self.work += 1;
        Some(cut)
    }

    /// Puts single frames, all in pageblocks of the type `migrate` and linked as `chain`, on their
    /// list as they are, merge-skipped: each in the cluster of its neighbour, or all as one
    /// cluster. `false`, and nothing has changed, if there is no slot for that.
    pub(crate) fn add_chain<P: Platform>(
        &mut self,
        table: &FrameTable<'_, P>,
        chain: FreeList,
        frames: &[u32],
        migrate: MigrateType,
        as_one: bool,
    ) -> bool {
        let Some(&tail) = frames.first() else { return true };
        let count = frames.len() as u32;
        let list = &mut self.lists[0][migrate.index()];
        if as_one {
            let members = Members { tail, count, skipped: count };
            let slot = S::Clusters::begin(&mut self.clusters, table, members);
            if slot.is_none() {
                return false;
            }
            frames.iter().for_each(|&index| table.set_cluster_of(index, slot));
        } else {
            S::Clusters::joined_run(&mut self.clusters, table, frames, list.head());
        }
        frames.iter().for_each(|&index| table.set_state(index, FrameState::MERGE_SKIPPED));
        list.prepend(table, chain);
        self.filled[migrate.index()] |= 1;
        self.frames[migrate.index()] += u64::from(count);
        self.merge_skipped += count;
        self.work += count;
        true
    }

    /// Single frames that were cut off are being made what they should be: enters the window.
    pub(crate) fn open_window<P: Platform>(&self, table: &FrameTable<'_, P>) -> Window {
        S::Clusters::open(&self.clusters, table)
    }

    /// Single frames whose merging was skipped.
    pub(crate) fn merge_skipped(&self) -> u32 {
        self.merge_skipped
    }

    /// Takes the block at `index`, free with `order` in a pageblock of the type `migrate`, off
    /// its list and marks it inner.
    #[inline(always)]
    pub(crate) fn remove<P: Platform>(
        &mut self,
        table: &FrameTable<'_, P>,
        index: u32,
        order: Order,
        migrate: MigrateType,
    ) {
        debug_assert_eq!(migrate, table.pageblock(index).migrate());
        let skipped = S::Merge::SKIPS && table.state(index) == FrameState::MERGE_SKIPPED;
        if skipped {
            self.merge_skipped -= 1;
        }
        table.set_state(index, FrameState::INNER);
        if S::Clusters::CUT && order == Order::ZERO {
            let before = FreeList::before(table, index);
            S::Clusters::leaving(&mut self.clusters, table, index, skipped, before);
        }
        let list = &mut self.lists[order.index()][migrate.index()];
        list.remove(table, index);
        if list.is_empty() {
            self.filled[migrate.index()] &= !(1 << order.get());
        }
        self.frames[migrate.index()] -= order.frames();
        self.work += 1;
    }

    /// The block that is next to be handed out from a list.
    #[inline]
    pub(crate) fn first(&self, order: Order, migrate: MigrateType) -> Option<u32> {
        self.lists[order.index()][migrate.index()].head()
    }

    /// The smallest order from `order` on whose list for `migrate` has members.
    #[inline(always)]
    pub(crate) fn smallest(&self, order: Order, migrate: MigrateType) -> Option<Order> {
        let larger = self.filled[migrate.index()] >> order.get() << order.get();
        // No bit at all reads as order 16, which is none.
        Order::new(larger.trailing_zeros() as u8)
    }

    pub(crate) fn list(&self, order: Order, migrate: MigrateType) -> &FreeList {
        &self.lists[order.index()][migrate.index()]
    }

    /// Free frames of one migrate type.
    pub(crate) fn frames_of(&self, migrate: MigrateType) -> u64 {
        self.frames[migrate.index()]
    }

    /// Free frames that requests may have: all but the isolated.
    pub(crate) fn frames(&self) -> u64 {
        self.frames.iter().sum::<u64>() - self.frames_of(MigrateType::Isolate)
    }

    pub(crate) fn counts(&self) -> FreeCounts {
        self.lists.map(|by_type| by_type.map(|list| list.len()))
    }

    /// Counts work that is not a list operation: a frame looked at while scanning.
    pub(crate) fn count_work(&mut self, frames: u32) {
        self.work += frames;
    }

    pub(crate) fn take_work(&mut self) -> u32 {
        core::mem::take(&mut self.work)
    }
}
