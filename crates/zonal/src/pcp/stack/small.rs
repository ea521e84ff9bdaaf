//! Blocks of a few frames that stay with their CPU: one stack for each order and type.
//!
//! - Source: the lists of Linux 5.13 for orders up to three (what it calls not costly), as stacks under
//!   the protocol of [`frames`](super::frames).
//! - Mechanism: a request for such a block takes the newest, and one that is freed goes on top, if it lies in the
//!   pageblock that the CPU takes larger blocks of the type from, where the next would come from anyway. All else goes into
//!   the map, so that other pageblocks become whole again. What [fits](super::fitting) elsewhere comes several at once.
//! - State: the stacks under S-1, S-2 and S-3. The head of a block that is on one has the state cached, with its order.
//! - Conflicts: as of the stacks of frames.

use super::frames::FrameStack;
use super::{Home, StackOutside};
use crate::frame::FrameState;
use crate::platform::stay::{SMALL_ORDERS as ORDERS, Stay};
use crate::platform::{Platform, StayOf};
use crate::policy::pcp::Pushed;
use crate::trace::or_undo;
use crate::types::migrate_type::{MigrateType, NR_CACHED_TYPES};
use crate::types::units::Order;
use crate::zone::free_map::{AlreadyFree, Frame};
use crate::zone::tables::ZoneTables;
use core::ops::Range;

/// The largest order of blocks that stay.
pub(super) const LARGEST: u8 = ORDERS as u8;
/// Blocks of one order and type, at most. A power of two.
const MOST: usize = 8;
/// Frames of one block of each.
const FRAMES: u64 = (2 << LARGEST) - 2;

/// A home that no pageblock is: a table has fewer frames.
const NONE: u32 = u32::MAX;

/// One stack for each type and order.
pub(super) struct SmallStacks<P: Platform> {
    /// The orders of a type side by side. Where the smallest has its edge is the first frame of the pageblock of which
    /// blocks stay, or [`NONE`].
    stacks: <StayOf<P> as Stay>::Kinds<FrameStack<P, MOST>>,
}

/// How many blocks of each order a CPU may keep of a type, in about as many frames: one at least.
pub(super) fn most_for(frames: u64) -> u32 {
    (frames / FRAMES).clamp(1, MOST as u64) as u32
}

/// Of which types a CPU has kept blocks, as bits: stacks of other types are empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Types(u8);

impl Types {
    pub(super) const NONE: Self = Self(0);

    pub(super) const fn add(&mut self, migrate: MigrateType) {
        self.0 |= 1 << migrate.index();
    }

    const fn has(self, kind: usize) -> bool {
        self.0 >> (kind / ORDERS) & 1 != 0
    }

    pub(super) const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// The order of the blocks on a stack.
const fn order_of(kind: usize) -> Order {
    crate::types::units::ORDERS[kind % ORDERS + 1]
}

impl<P: Platform> SmallStacks<P> {
    #[inline(always)]
    pub(super) fn new() -> Self {
        Self { stacks: <StayOf<P> as Stay>::kinds(|_| FrameStack::new()) }
    }

    /// That of an order and type, if there is one.
    #[inline(always)]
    pub(super) fn stack(&self, order: Order, migrate: MigrateType) -> Option<&FrameStack<P, MOST>> {
        let at = usize::from(order.get()).wrapping_sub(1);
        if at >= ORDERS || migrate.index() >= NR_CACHED_TYPES {
            return None;
        }
        self.all().get(migrate.index() * ORDERS + at)
    }

    /// The first frame of the pageblock of which blocks of a type stay.
    #[inline(always)]
    fn home(&self, migrate: MigrateType) -> u32 {
        self.all().get(migrate.index() * ORDERS).map_or(NONE, FrameStack::edge)
    }

    #[inline(always)]
    pub(super) fn set_home(&self, migrate: MigrateType, index: u32) {
        if let Some(stack) = self.all().get(migrate.index() * ORDERS) {
            stack.set_edge(index);
        }
    }

    #[inline(always)]
    pub(super) fn forget_homes(&self) {
        self.all().iter().for_each(|stack| stack.set_edge(NONE));
    }

    /// Sets how many blocks the owner may keep on each of those whose blocks are no pageblock, which have this order.
    #[inline(always)]
    pub(super) fn set_high(&self, high: u32, pageblock: Order) {
        for (order, stack) in self.each() {
            stack.set_high(if order < pageblock { high } else { 0 });
        }
    }

    #[inline(always)]
    pub(super) fn settle(&self) {
        self.all().iter().for_each(FrameStack::settle);
    }

    #[inline(always)]
    fn all(&self) -> &[FrameStack<P, MOST>] {
        self.stacks.as_ref()
    }

    /// All with their orders.
    #[inline(always)]
    fn each(&self) -> impl Iterator<Item = (Order, &FrameStack<P, MOST>)> {
        self.all().iter().enumerate().map(|(kind, stack)| (order_of(kind), stack))
    }

    /// Frames of the blocks on them: a snapshot while an owner is about.
    #[inline(always)]
    pub(super) fn frames(&self) -> u32 {
        self.each().map(|(order, stack)| stack.len() << order.get()).sum()
    }

    /// Frames that the owner freed outside the slot.
    #[inline(always)]
    pub(super) fn freed(&self) -> u64 {
        self.each().map(|(order, stack)| stack.freed() << order.get()).sum()
    }

    /// The blocks; only while nothing else runs.
    #[inline(always)]
    pub(super) fn blocks(&self) -> impl Iterator<Item = (u32, Order)> {
        self.each().flat_map(|(order, stack)| stack.frames().map(move |index| (index, order)))
    }

    /// Takes a block off the stack that it is the newest of; for the owner in the slot.
    #[inline(always)]
    pub(super) fn take_back(&self, index: u32, order: Order) -> bool {
        let newest = |stack: &FrameStack<P, MOST>| stack.frames().next_back() == Some(index);
        self.each().any(|(of, stack)| of == order && newest(stack) && stack.pop().is_some())
    }
}

impl<P: Platform, const N: usize> StackOutside<P, N> {
    /// Where a block that is freed is kept, of a pageblock of the type, which has this order; `None` if it is not. For the owner, who may be
    /// outside the slot, and for who is in it.
    #[inline(always)]
    pub(super) fn small_for(
        &self,
        (order, migrate): (Order, MigrateType),
        index: u32,
        pageblock: Order,
    ) -> Option<&FrameStack<P, MOST>> {
        let stack = self.small().stack(order, migrate)?;
        ((self.small().home(migrate) ^ index) >> pageblock.get() == 0).then_some(stack)
    }

    /// Frees a block of a pageblock of the type, outside the slot. `told` says so before another can have it.
    #[inline(always)]
    pub(super) fn push_small(
        &self,
        table: &ZoneTables<'_, P>,
        (order, migrate): (Order, MigrateType),
        offset: usize,
        told: impl FnOnce(),
    ) -> Pushed {
        // No truncation: of a pageblock of the table.
        let index = offset as u32;
        let stack = self.small_for((order, migrate), index, table.pageblock_order());
        let Some(stack) = stack else { return Pushed::No };
        let Some(place) = stack.room() else { return Pushed::No };
        let (from, to) = (FrameState::allocated(order), FrameState::cached(order));
        if !table.exchange_state_at(offset, from, to) {
            return Pushed::No;
        }
        or_undo(told, || _ = table.replace_state_at(offset, to, from));
        stack.push_owned(place, index);
        // S-3, with the heavy one of `Drain::begin`.
        P::light_fence();
        if !stack.is_open_still(place) {
            return Pushed::Elsewhere(index);
        }
        stack.count_freed();
        Pushed::Yes
    }
}

/// The drain's side: stacks of some types, stopped.
pub(super) struct SmallDrain<'a, P: Platform> {
    stacks: &'a SmallStacks<P>,
    types: Types,
    heads: <StayOf<P> as Stay>::Kinds<u32>,
}

impl<'a, P: Platform> SmallDrain<'a, P> {
    /// Remembers where they are, and if there is an owner stops and shuts them, before the drain's heavy fence.
    #[inline(always)]
    pub(super) fn begin(stacks: &'a SmallStacks<P>, types: Types, owned: bool) -> Self {
        let all = stacks.all();
        // Of others nothing is read: most CPUs that are drained have kept none.
        let heads = <StayOf<P> as Stay>::kinds(|kind| {
            all.get(kind).filter(|_| types.has(kind)).map_or(0, FrameStack::head)
        });
        for (_, stack) in all.iter().enumerate().filter(|(kind, _)| owned && types.has(*kind)) {
            stack.stop();
            stack.shut();
        }
        Self { stacks, types, heads }
    }

    /// Those that it has, with what their heads were.
    fn each(&self) -> impl Iterator<Item = (Order, &FrameStack<P, MOST>, u32)> {
        let all = self.stacks.all().iter().zip(self.heads.as_ref()).enumerate();
        all.filter(|(kind, _)| self.types.has(*kind))
            .map(|(kind, (stack, head))| (order_of(kind), stack, *head))
    }

    /// There was no fence: they are as before, but shut.
    #[inline(always)]
    pub(super) fn leave(self) {
        self.each().for_each(|(_, stack, head)| stack.go_on(head));
    }

    /// Gives what is on them to `home`, and lets them go on; how many frames.
    #[inline(always)]
    pub(super) fn take(self, home: &impl Home, first: u32) -> Result<u32, AlreadyFree> {
        let mut outcome = Ok(0);
        for (order, stack, head) in self.each() {
            let top = stack.above(head);
            let given = stack.give_blocks(home, (first, order), head..top);
            outcome = given.and_then(|frames| Ok(outcome? + frames));
            stack.go_on(top);
        }
        outcome
    }
}

impl<P: Platform, const N: usize> FrameStack<P, N> {
    /// Takes the oldest `count`, for who is in the slot, with no owner outside.
    pub(super) fn take_oldest(&self, count: u32, mut take: impl FnMut(u32)) {
        let head = self.head();
        let end = head + count.min(self.len());
        (head..end).for_each(|place| take(self.index_at(place)));
        self.go_on(end);
        self.settle();
    }

    /// Gives the blocks at some places to `home`; how many frames.
    fn give_blocks(
        &self,
        home: &impl Home,
        (first, order): (u32, Order),
        places: Range<u32>,
    ) -> Result<u32, AlreadyFree> {
        let mut outcome = Ok(0);
        for place in places {
            let frame = Frame(self.index_at(place).wrapping_sub(first));
            let given = home.put_block(frame, order);
            outcome = given.and_then(|()| Ok(outcome? + order.size()));
        }
        outcome
    }
}

#[cfg(test)]
mod tests;
