//! Blocks that are known by their address.
//!
//! ```
//! assert_eq!(zonal_bench::subjects::page::layout(9).size(), 2 << 20);
//! ```

use core::alloc::Layout;

use crate::subject::FRAME_BYTES;

/// The memory of an order-`order` block: page-aligned whatever the order.
#[inline]
#[must_use]
pub fn layout(order: u8) -> Layout {
    // SAFETY: the alignment is a power of two and not zero, and `4096 << order` stays far below
    // `isize::MAX` for the orders up to 10 that subjects are asked for.
    unsafe { Layout::from_size_align_unchecked(FRAME_BYTES << order, FRAME_BYTES) }
}

/// A block by its address.
#[derive(Clone, Copy, Debug)]
pub struct Page(pub *mut u8);

impl Default for Page {
    fn default() -> Self {
        Self(core::ptr::null_mut())
    }
}

// SAFETY: a `Page` is an allocated block's address; who holds it owns the block, and every
// allocator here lets any thread free it.
unsafe impl Send for Page {}
