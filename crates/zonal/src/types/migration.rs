//! A page that moves, and what a host answers when it is asked for something that it cannot do.
//!
//! ```
//! use zonal::{Immovable, Migration, Order, Pfn};
//!
//! /// A host that moves pages of one order.
//! fn check(page: &Migration, own: Order) -> Result<(), Immovable> {
//!     if page.order == own { Ok(()) } else { Err(Immovable) }
//! }
//!
//! let page =
//!     Migration { from: Pfn::new(1), to: Pfn::new(9), order: Order::ZERO, may_wait: true };
//! assert_eq!(check(&page, Order::ZERO), Ok(()));
//! assert_eq!(check(&page, Order::HUGE), Err(Immovable));
//! ```

use super::units::{Order, Pfn};

/// The host cannot write frames, so a request with `zero` cannot be served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CannotZero;

/// A page that compaction wants moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Migration {
    /// Where it is.
    pub from: Pfn,
    /// Where it shall be.
    pub to: Pfn,
    /// The order of both blocks: what the allocator saw when it last looked, without a lock. By the
    /// time of the call the block may have been freed, and its first frame allocated again with
    /// another order. A host compares it with its own record of the block, under the lock without
    /// which that block is neither freed nor used, and answers [`Immovable`] if they differ.
    pub order: Order,
    /// Whether the host may wait for the users of the page (for a lock, for I/O).
    pub may_wait: bool,
}

/// The host does not move that page (now).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Immovable;
