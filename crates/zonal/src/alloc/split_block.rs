//! A block that was handed out becomes single frames. Source of the idea: `split_page` of Linux.

use crate::alloc::allocator::Allocator;
use crate::frame::{ALLOCATED, FrameState};
use crate::platform::Platform;
use crate::policy::{FreeMemory, Policy};
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
}
