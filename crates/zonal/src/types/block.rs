//! The token that stands for an allocated block.
//!
//! ```
//! fn give_away(block: zonal::Block) -> zonal::Pfn {
//!     block.into_raw().0
//! }
//! ```

use crate::types::units::{Order, Pfn};

/// An allocated block: its holder may use the frames. It moves and does not copy, so it
/// can be freed once; dropping it without freeing leaks the block.
///
/// Holding one does not say that the frames are mapped, nor which allocator they are from: another
/// one refuses it like any foreign pfn, unless it has allocated a block with the same numbers.
/// That block is freed then.
#[derive(PartialEq, Eq, Hash, Debug)]
#[must_use = "dropping a block leaks its frames"]
pub struct Block {
    pfn: Pfn,
    order: Order,
}

impl Block {
    #[inline]
    pub(crate) const fn new(pfn: Pfn, order: Order) -> Self {
        Self { pfn, order }
    }

    /// The first frame.
    #[must_use]
    #[inline]
    pub const fn pfn(&self) -> Pfn {
        self.pfn
    }

    /// The order it was allocated with.
    #[must_use]
    #[inline]
    pub const fn order(&self) -> Order {
        self.order
    }

    /// Gives the token up for its numbers; the block is then freed by
    /// [`free_raw`](crate::Allocator::free_raw).
    #[must_use = "the numbers are all that is left of the block"]
    #[inline]
    pub const fn into_raw(self) -> (Pfn, Order) {
        (self.pfn, self.order)
    }
}
