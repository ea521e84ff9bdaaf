//! The buddy lists of a zone, by order and migrate type: one way in, one way out.
//!
//! [`ListGuard::add`] and [`ListGuard::remove`] are the only code that moves a block onto or off
//! a list, and for clusters [`ListGuard::add_chain`] and [`ListGuard::cut_cluster`], so counts,
//! state bytes and lists cannot disagree (I-1, I-2).

use super::ListGuard;
use super::clusters::{Clusters, Cutting, Members};
use super::merge::Merge;
use crate::frame::FrameState;
use crate::frame::links::FreeList;
use crate::platform::Platform;
use crate::types::counts::FreeCounts;
use crate::types::migrate_type::{MigrateType, NR_MIGRATE_TYPES};
use crate::types::units::{NR_ORDERS, Order};
use core::marker::PhantomData;

/// Which end of a list a block joins: the head is handed out next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    Head,
    Tail,
}

/// The lists. Invariant: a free block is on the list of its own order and of its first
/// pageblock's migrate type.
pub(crate) struct FreeArea<M: Merge, C: Clusters> {
    lists: [[FreeList; NR_MIGRATE_TYPES]; NR_ORDERS],
    /// For each migrate type a bit an order: its list has members.
    filled: [u16; NR_MIGRATE_TYPES],
    /// Frames by migrate type.
    frames: [u64; NR_MIGRATE_TYPES],
    /// Single frames on the lists whose merging was skipped.
    merge_skipped: u32,
    pub(crate) clusters: C::Zone,
    /// List operations since the last [`take_work`](Self::take_work), for I-7.
    work: u32,
    merge: PhantomData<M>,
}

impl<M: Merge, C: Clusters> FreeArea<M, C> {
    pub(crate) const EMPTY: Self = Self {
        lists: [[FreeList::EMPTY; NR_MIGRATE_TYPES]; NR_ORDERS],
        filled: [0; NR_MIGRATE_TYPES],
        frames: [0; NR_MIGRATE_TYPES],
        merge_skipped: 0,
        clusters: C::VACANT,
        work: 0,
        merge: PhantomData,
    };

    /// Single frames whose merging was skipped.
    pub(crate) fn merge_skipped(&self) -> u32 {
        self.merge_skipped
    }

    /// The block that is next to be handed out from a list.
    #[inline]
    pub(crate) fn first(&self, order: Order, migrate: MigrateType) -> Option<u32> {
        self.lists[order.index()][migrate.index()].head()
    }

    /// An order and the first block of its list.
    #[inline(always)]
    pub(crate) fn first_of(&self, order: Order, migrate: MigrateType) -> Option<(Order, u32)> {
        self.first(order, migrate).map(|index| (order, index))
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

impl<P: Platform, M: Merge, C: Clusters> ListGuard<'_, P, M, C> {
    /// Puts the block at `index`, whose first pageblock has the type `migrate`, on its list.
    /// `state` has its order, and is what the block gets: free, or a single frame whose merging was
    /// skipped.
    #[inline(always)]
    pub(crate) fn add(&mut self, index: u32, state: FrameState, migrate: MigrateType, end: End) {
        let order = state.order();
        let (table, links, words) = (self.table, self.links(), self.cluster_words());
        let area = &mut self.area;
        let single = order == Order::ZERO;
        debug_assert_eq!(migrate, table.pageblock(index).migrate());
        area.filled[migrate.index()] |= 1 << order.get();
        table.set_state(index, state);
        if M::SKIPS && state == FrameState::MERGE_SKIPPED {
            area.merge_skipped += 1;
        }
        let list = &mut area.lists[order.index()][migrate.index()];
        if C::CUT && single {
            let neighbour = if end == End::Head { list.head() } else { list.tail() };
            let skipped = state == FrameState::MERGE_SKIPPED;
            let last = end == End::Tail;
            C::joined(&mut area.clusters, words, index, skipped, neighbour, last);
        }
        match end {
            End::Head => list.push_head(links, index),
            End::Tail => list.push_tail(links, index),
        }
        area.frames[migrate.index()] += order.frames();
        area.work += 1;
    }

    /// Cuts the cluster at the head of the order-0 list of `migrate` off, if there is one of at
    /// most `most` frames. O(1). The frames still say that they are free: see [`Cutting`].
    pub(crate) fn cut_cluster(&mut self, migrate: MigrateType, most: u64) -> Option<FreeList> {
        let (links, words) = (self.links(), self.cluster_words());
        let area = &mut self.area;
        let list = &mut area.lists[0][migrate.index()];
        let members = C::end(&mut area.clusters, words, list.head()?, most)?;
        let cut = list.cut(links, members.tail, members.count);
        area.merge_skipped -= members.skipped;
        if list.is_empty() {
            area.filled[migrate.index()] &= !1;
        }
        area.frames[migrate.index()] -= u64::from(members.count);
        area.work += 1;
        Some(cut)
    }

    /// Puts single frames, all in pageblocks of the type `migrate` and linked as `chain`, on their
    /// list as they are, merge-skipped, all as one cluster. `false`, and nothing has changed, if the
    /// array of clusters is full.
    pub(crate) fn add_chain(
        &mut self,
        chain: FreeList,
        frames: &[u32],
        migrate: MigrateType,
    ) -> bool {
        let (table, links, words) = (self.table, self.links(), self.cluster_words());
        let area = &mut self.area;
        let Some(&tail) = frames.first() else { return true };
        let count = frames.len() as u32;
        let list = &mut area.lists[0][migrate.index()];
        let number = C::begin(&mut area.clusters, words, Members { tail, count, skipped: count });
        if number.is_none() {
            return false;
        }
        frames.iter().for_each(|&index| words.set_cluster_of(index, number));
        frames.iter().for_each(|&index| table.set_state(index, FrameState::MERGE_SKIPPED));
        list.prepend(links, chain);
        area.filled[migrate.index()] |= 1;
        area.frames[migrate.index()] += u64::from(count);
        area.merge_skipped += count;
        area.work += count;
        true
    }

    /// Single frames that were cut off are being made what they should be.
    pub(crate) fn begin_cutting(&self) -> Cutting {
        C::cut(&self.area.clusters, self.cluster_words())
    }

    /// Takes the block at `index`, free with `order` in a pageblock of the type `migrate`, off
    /// its list and marks it inner.
    #[inline(always)]
    pub(crate) fn remove(&mut self, index: u32, order: Order, migrate: MigrateType) {
        let (table, links, words) = (self.table, self.links(), self.cluster_words());
        let area = &mut self.area;
        debug_assert_eq!(migrate, table.pageblock(index).migrate());
        let skipped = M::SKIPS && table.state(index) == FrameState::MERGE_SKIPPED;
        if skipped {
            area.merge_skipped -= 1;
        }
        table.set_state(index, FrameState::INNER);
        if C::CUT && order == Order::ZERO {
            let before = FreeList::before(links, index);
            C::leaving(&mut area.clusters, words, index, skipped, before);
        }
        let list = &mut area.lists[order.index()][migrate.index()];
        list.remove(links, index);
        if list.is_empty() {
            area.filled[migrate.index()] &= !(1 << order.get());
        }
        area.frames[migrate.index()] -= order.frames();
        area.work += 1;
    }
}
