//! A block that was handed out becomes single frames, or a smaller one. Source of the idea: `split_page` of Linux.

use crate::alloc::allocator::Allocator;
use crate::frame::{ALLOCATED, FrameState};
use crate::platform::Platform;
use crate::policy::{FreeMemory, Policy};
use crate::trace::or_undo;
use crate::types::error::FreeError;
use crate::types::units::{Order, Pfn};

impl<P: Platform, S: Policy> Allocator<'_, P, S> {
    /// Makes single frames of the block of `order` that starts at `pfn`: from now on each is allocated by
    /// itself, with order 0, and freed by itself, or with any others as a list. For callers that want neighbours
    /// and give them back one by one. O(frames), without a lock.
    ///
    /// # Errors
    /// [`FreeError`] if that is not what was allocated; then nothing has changed (I-4).
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example/mod.rs")); }
    /// use zonal::{Order, Pfn, Request};
    /// # example::with_small::<zonal::preset::Zonal>(|allocator| {
    /// let order = Order::new(3).unwrap();
    /// let first = allocator.alloc_raw(&Request::new(order)).unwrap();
    /// allocator.split(first, order).unwrap();
    /// assert!(allocator.free_raw(first, order).is_err(), "there is no such block any more");
    /// let frames: Vec<Pfn> = (0..8).map(|at| Pfn::new(first.get() + at)).collect();
    /// assert_eq!(allocator.free_bulk(&frames).freed, 8);
    /// # });
    /// ```
    pub fn split(&self, pfn: Pfn, order: Order) -> Result<(), FreeError> {
        let Some(index) = self.table.index(pfn) else { return Err(FreeError::Foreign { pfn }) };
        let block = FrameState::allocated(order);
        // Before the others: who walks over the blocks meets frames inside of none then, and no two blocks.
        if !self.is_managed_at(index)
            || !S::Free::release(&self.table, index as usize, block, ALLOCATED)
        {
            return Err(self.refusal(pfn, index, order));
        }
        let last = index + order.size();
        for first in (index..last).step_by(64) {
            let bits = if last - first < 64 { (1 << (last - first)) - 1 } else { u64::MAX };
            self.table.set_states(first, bits, ALLOCATED);
        }
        Ok(())
    }

    /// Makes the block of `order` that starts at `pfn` one of order `to`, its start, and frees the rest of it; nothing
    /// where `to` is not smaller. For callers that need less than they did, and would find no other block.
    /// O(orders).
    ///
    /// # Errors
    /// [`FreeError`] if that is not what was allocated; then nothing has changed (I-4).
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example/mod.rs")); }
    /// use zonal::{Order, Request};
    /// # example::with_small::<zonal::preset::Zonal>(|allocator| {
    /// let [one, three] = [1, 3].map(|order| Order::new(order).unwrap());
    /// let first = allocator.alloc_raw(&Request::new(three)).unwrap();
    /// allocator.cut(first, three, one).unwrap();
    /// assert!(allocator.free_raw(first, three).is_err(), "there is no such block any more");
    /// allocator.free_raw(first, one).unwrap();
    /// # });
    /// ```
    pub fn cut(&self, pfn: Pfn, order: Order, to: Order) -> Result<(), FreeError> {
        let Some(index) = self.table.index(pfn) else { return Err(FreeError::Foreign { pfn }) };
        let [block, start] = [order, to.min(order)].map(FrameState::allocated);
        // Before the others, as above.
        if !self.is_managed_at(index)
            || !S::Free::release(&self.table, index as usize, block, start)
        {
            return Err(self.refusal(pfn, index, order));
        }
        // The rest: behind the start, and behind each part of it, one as large as all before.
        let parts = || Order::all().skip(to.index()).take_while(move |&part| part < order);
        parts().for_each(|part| {
            self.table.set_state(index + part.size(), FrameState::allocated(part));
        });
        for part in parts() {
            let place = |part: Order| self.table.pfn(index + part.size());
            let mut freed = Ok(());
            or_undo(
                || freed = self.free_direct(place(part), part, false),
                || {
                    let rest = parts().skip_while(|&other| other < part);
                    rest.for_each(|other| self.free_untold(place(other), other));
                },
            );
            debug_assert!(freed.is_ok(), "a part of a block just allocated can be freed");
        }
        Ok(())
    }
}
