//! Physically contiguous frames by count.

use crate::allocator::Allocator;
use crate::block::Block;
use crate::entry::Entry;
use crate::error::{AllocError, AllocReason};
use crate::platform::Platform;
use crate::policy::Policy;
use crate::request::Request;
use crate::units::Order;

impl<P: Platform, S: Policy> Allocator<'_, P, S> {
    /// At least `frames` contiguous frames, in the smallest block that holds them; the order of
    /// `request` does not matter. Free the block with the order it says.
    ///
    /// # Errors
    /// [`AllocReason::NotContiguous`] for no frames, or for more than a largest block holds:
    /// that needs compaction. Otherwise as [`alloc`](Self::alloc).
    pub fn alloc_contiguous(&self, frames: u64, request: &Request) -> Result<Block, AllocError> {
        let Some(order) = Order::for_frames(frames) else {
            let cpu = self.shared_entry().cpu();
            return Err(self.explain(cpu, request, AllocReason::NotContiguous));
        };
        self.alloc(&request.with_order(order))
    }
}
