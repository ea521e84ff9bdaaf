//! What is in hand while the host is called: it goes back if the host panics (I-3).

use super::allocator::Allocator;
use crate::platform::Platform;
use crate::policy::{FreeMemory, Policy};
use crate::types::block::Block;
use crate::types::units::{Order, Pfn};
use core::mem;

/// A block that was taken for a caller that does not know of it yet. Dropped, it is freed.
pub(super) struct InHand<'a, 'm, P: Platform, S: Policy> {
    allocator: &'a Allocator<'m, P, S>,
    pfn: Pfn,
    order: Order,
}

impl<'a, 'm, P: Platform, S: Policy> InHand<'a, 'm, P, S> {
    pub(super) fn new(allocator: &'a Allocator<'m, P, S>, pfn: Pfn, order: Order) -> Self {
        Self { allocator, pfn, order }
    }

    /// Its first frame.
    pub(super) const fn pfn(&self) -> Pfn {
        self.pfn
    }

    /// The caller gets it.
    pub(super) fn hand_out(self) -> Block {
        let block = Block::new(self.pfn, self.order);
        mem::forget(self);
        block
    }
}

impl<P: Platform, S: Policy> Drop for InHand<'_, '_, P, S> {
    fn drop(&mut self) {
        self.allocator.free_untold(self.pfn, self.order);
    }
}

impl<P: Platform, S: Policy> Allocator<'_, P, S> {
    /// Frees a block that was taken and of which no sink was told.
    #[cold]
    #[inline(never)]
    pub(crate) fn free_untold(&self, pfn: Pfn, order: Order) {
        let Some(index) = self.table.index(pfn) else { return };
        let zone = self.table.get_pageblock(index).and_then(|word| self.zone(word.zone()?));
        let freed = zone
            .is_some_and(|zone| S::Free::free_block(zone.view(&self.table), index, order, || ()));
        debug_assert!(freed, "a block just allocated can be freed");
    }
}

/// The blocks of a bulk allocation so far. Dropped by a panic, they are freed.
pub(super) struct BulkInHand<'a, 'm, 'o, P: Platform, S: Policy> {
    allocator: &'a Allocator<'m, P, S>,
    order: Order,
    pub(super) out: &'o mut [Pfn],
    pub(super) done: usize,
}

impl<'a, 'm, 'o, P: Platform, S: Policy> BulkInHand<'a, 'm, 'o, P, S> {
    #[inline(always)]
    pub(super) fn new(
        allocator: &'a Allocator<'m, P, S>,
        order: Order,
        out: &'o mut [Pfn],
    ) -> Self {
        Self { allocator, order, out, done: 0 }
    }

    /// The caller gets them.
    #[inline(always)]
    pub(super) fn hand_out(mut self) {
        self.done = 0;
    }
}

impl<P: Platform, S: Policy> Drop for BulkInHand<'_, '_, '_, P, S> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.done > 0 {
            self.undo();
        }
    }
}

impl<P: Platform, S: Policy> BulkInHand<'_, '_, '_, P, S> {
    /// Not all could be had: frees those that were.
    #[cold]
    #[inline(never)]
    pub(super) fn give_up(mut self) {
        while let Some(last) = self.done.checked_sub(1) {
            let undone = self.allocator.free_raw(self.out[last], self.order);
            debug_assert!(undone.is_ok(), "a block just allocated can be freed");
            // After it: if a sink panics, this one is freed with the rest.
            self.done = last;
        }
    }

    /// A callback has panicked: no sink is called again.
    #[cold]
    #[inline(never)]
    fn undo(&mut self) {
        for &pfn in &self.out[..self.done] {
            self.allocator.free_untold(pfn, self.order);
        }
    }
}
