//! The buddy lists of a zone, by order and migrate type: one way in, one way out.
//!
//! [`FreeArea::add`] and [`FreeArea::remove`] are the only code that moves a block onto or off
//! a list, so counts, state bytes and lists cannot disagree (I-1, I-2).

use crate::frame::{FrameState, FrameTable};
use crate::free_list::FreeList;
use crate::migrate::{MigrateType, NR_MIGRATE_TYPES};
use crate::platform::Platform;
use crate::units::{NR_ORDERS, Order};

/// Which end of a list a block joins: the head is handed out next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    Head,
    Tail,
}

/// Free blocks counted by order and migrate type.
pub type FreeCounts = [[u32; NR_MIGRATE_TYPES]; NR_ORDERS];

/// The lists. Invariant: a free block is on the list of its own order and of its first
/// pageblock's migrate type.
#[derive(Debug)]
pub(crate) struct FreeArea {
    lists: [[FreeList; NR_MIGRATE_TYPES]; NR_ORDERS],
    /// For each migrate type a bit an order: its list has members.
    filled: [u16; NR_MIGRATE_TYPES],
    /// Frames by migrate type.
    frames: [u64; NR_MIGRATE_TYPES],
    /// List operations since the last [`take_work`](Self::take_work), for I-7.
    work: u32,
}

impl FreeArea {
    pub(crate) const EMPTY: Self = Self {
        lists: [[FreeList::EMPTY; NR_MIGRATE_TYPES]; NR_ORDERS],
        filled: [0; NR_MIGRATE_TYPES],
        frames: [0; NR_MIGRATE_TYPES],
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
        debug_assert_eq!(migrate, table.block(index).migrate());
        self.filled[migrate.index()] |= 1 << order.get();
        table.set_state(index, FrameState::free(order));
        let list = &mut self.lists[order.index()][migrate.index()];
        match end {
            End::Head => list.push_head(table, index),
            End::Tail => list.push_tail(table, index),
        }
        self.frames[migrate.index()] += order.frames();
        self.work += 1;
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
        debug_assert_eq!(migrate, table.block(index).migrate());
        table.set_state(index, FrameState::INNER);
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
