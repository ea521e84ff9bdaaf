//! One CPU's arrays in a [`Depot`](super::Depot) keeper.

use crate::frame::{FrameState, FrameTable};
use crate::migrate::NR_CACHED_TYPES;
use crate::platform::Platform;
use crate::units::{Order, Pfn};

/// Orders above 0 that are cached, with the most blocks of each.
const HIGH_ORDERS: [(Order, u32); 4] = [
    (crate::units::ORDERS[1], 32),
    (crate::units::ORDERS[2], 16),
    (crate::units::ORDERS[3], 8),
    (Order::HUGE, 8),
];
/// Room for blocks of one high order and type.
const HIGH_SLOTS: usize = 32;

/// Row of [`HIGH_ORDERS`] for `order`.
#[inline]
pub(super) fn high_row(order: Order) -> Option<usize> {
    HIGH_ORDERS.iter().position(|&(at, _)| at == order)
}

/// A stack of order-0 frames with room for two clusters.
#[derive(Debug)]
pub(super) struct FrameStack<const N: usize> {
    pub(super) len: u32,
    pub(super) slots: [[u32; N]; 2],
}

impl<const N: usize> FrameStack<N> {
    const EMPTY: Self = Self { len: 0, slots: [[0; N]; 2] };

    #[inline]
    pub(super) fn frames(&self) -> &[u32] {
        &self.slots.as_flattened()[..self.len as usize]
    }

    #[inline]
    pub(super) fn pop<P: Platform>(&mut self, table: &FrameTable<'_, P>) -> Option<u32> {
        loop {
            let top = self.len.checked_sub(1)?;
            let index = *self.slots.as_flattened().get(top as usize)?;
            self.len = top;
            if table.replace_state(index, CACHED, ALLOCATED) {
                return Some(index);
            }
            // A copy left by two frees of one frame at the same instant: never hand it out.
        }
    }

    /// Pops into `out` while there is room and there are frames; returns how many.
    #[inline]
    pub(super) fn pop_bulk<P: Platform>(
        &mut self,
        table: &FrameTable<'_, P>,
        out: &mut [Pfn],
    ) -> usize {
        let take = out.len().min(self.len as usize);
        let rest = self.len as usize - take;
        let mut done = 0;
        for &index in self.frames()[rest..].iter().rev() {
            if table.replace_state(index, CACHED, ALLOCATED) {
                out[done] = table.pfn(index);
                done += 1;
            }
        }
        self.len = rest as u32;
        done
    }

    /// Adds a frame; the caller keeps `len` below the room.
    #[inline]
    pub(super) fn push(&mut self, index: u32) {
        if let Some(slot) = self.slots.as_flattened_mut().get_mut(self.len as usize) {
            *slot = index;
            self.len += 1;
        }
    }

    /// Moves what lies above the lowest `gone` frames down.
    pub(super) fn close_gap(&mut self, gone: usize) {
        let len = self.len as usize;
        self.slots.as_flattened_mut().copy_within(gone..len, 0);
        self.len -= gone as u32;
    }
}

pub(super) const CACHED: FrameState = FrameState::cached(Order::ZERO);
const ALLOCATED: FrameState = FrameState::allocated(Order::ZERO);

/// Blocks of one high order and migrate type.
#[derive(Clone, Copy, Debug)]
pub(super) struct BlockStack {
    pub(super) len: u32,
    /// Blocks kept before a spill: doubled when the cache ran dry, halved by a drain.
    pub(super) high: u32,
    pub(super) slots: [u32; HIGH_SLOTS],
}

impl BlockStack {
    const EMPTY: Self = Self { len: 0, high: 0, slots: [0; HIGH_SLOTS] };

    #[inline]
    pub(super) fn pop<P: Platform>(
        &mut self,
        table: &FrameTable<'_, P>,
        order: Order,
    ) -> Option<u32> {
        loop {
            let top = self.len.checked_sub(1)?;
            let index = *self.slots.get(top as usize)?;
            self.len = top;
            if table.replace_state(index, FrameState::cached(order), FrameState::allocated(order)) {
                return Some(index);
            }
        }
    }

    #[inline]
    pub(super) fn push(&mut self, index: u32) {
        if let Some(slot) = self.slots.get_mut(self.len as usize) {
            *slot = index;
            self.len += 1;
        }
    }
}

/// One CPU's cache of one zone: a stack of two clusters for each of three migrate types, and
/// small stacks for orders 1 to 3 and 9.
///
/// Guarded by the CPU's slot. A frame in it is in state "cached" and on no list.
#[derive(Debug)]
pub struct DepotCpu<const N: usize> {
    pub(super) stacks: [FrameStack<N>; NR_CACHED_TYPES],
    pub(super) blocks: [[BlockStack; NR_CACHED_TYPES]; HIGH_ORDERS.len()],
    /// Frames moved at once between the cache and elsewhere: at most a cluster.
    pub(super) batch: u32,
    /// Frames of a type at which a batch is moved out: twice the batch.
    pub(super) high: u32,
    /// Clusters that this CPU's shard of the depot may hold, by type.
    pub(super) shard_high: [u32; NR_CACHED_TYPES],
    /// Times the shard had nothing when this CPU wanted a cluster, not yet answered by
    /// letting the shard hold one more. A CPU that only frees has none.
    pub(super) shard_missed: [u32; NR_CACHED_TYPES],
}

impl<const N: usize> DepotCpu<N> {
    pub(super) const EMPTY: Self = Self {
        stacks: [const { FrameStack::EMPTY }; NR_CACHED_TYPES],
        blocks: [[BlockStack::EMPTY; NR_CACHED_TYPES]; HIGH_ORDERS.len()],
        batch: 1,
        high: 2,
        shard_high: [0; NR_CACHED_TYPES],
        shard_missed: [0; NR_CACHED_TYPES],
    };

    /// The most blocks of the high order in `row`, in a zone of `managed` frames that `cpus`
    /// caches share: no more than 1/64 of a CPU's part may hide in one stack.
    pub(super) fn block_limit(row: usize, managed: u64, cpus: u32) -> u32 {
        let (order, most) = HIGH_ORDERS[row];
        let part = managed / u64::from(cpus.max(1)) / 64;
        (part >> order.get()).min(u64::from(most)) as u32
    }

    /// Every block in the cache.
    pub(super) fn visit(&self, visit: &mut dyn FnMut(u32, Order)) {
        for stack in &self.stacks {
            stack.frames().iter().for_each(|&index| visit(index, Order::ZERO));
        }
        for (&(order, _), stacks) in HIGH_ORDERS.iter().zip(&self.blocks) {
            for stack in stacks {
                stack.slots[..stack.len as usize].iter().for_each(|&index| visit(index, order));
            }
        }
    }
}

/// Empties the stacks of the orders above 0 into `give`.
pub(super) fn drain_blocks<const N: usize>(
    cpu: &mut DepotCpu<N>,
    mut give: impl FnMut(&[u32], Order),
) {
    for (&(order, _), stacks) in HIGH_ORDERS.iter().zip(&mut cpu.blocks) {
        for stack in stacks {
            let len = core::mem::take(&mut stack.len) as usize;
            give(&stack.slots[..len], order);
        }
    }
}
