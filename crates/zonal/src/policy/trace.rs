//! Whether events are recorded. With [`Off`] an event's arguments are not even computed.
//!
//! ```
//! use zonal::policy::trace::{Off, Trace};
//! Off::emit(|| unreachable!("never computed"));
//! ```

use crate::migrate::MigrateType;
use crate::units::{Order, Pfn};

/// Something that happened, with Linux's name for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Event {
    /// `mm_page_alloc`: a block was handed out.
    Alloc {
        /// Its first frame.
        pfn: Pfn,
        /// Its order.
        order: Order,
        /// What it was asked for.
        migrate: MigrateType,
    },
    /// `mm_page_free`: a block was given back.
    Free {
        /// Its first frame.
        pfn: Pfn,
        /// Its order.
        order: Order,
    },
    /// `mm_page_free_batched`: a single frame was given back as one of a list; comes with its
    /// [`Free`](Self::Free).
    FreeBatched {
        /// The frame.
        pfn: Pfn,
    },
}

/// A trace policy.
pub trait Trace: Send + Sync + 'static {
    /// Records what `event` computes, if events are recorded.
    fn emit(event: impl FnOnce() -> Event);
}

/// Nothing is recorded.
#[derive(Clone, Copy, Debug)]
pub struct Off;

impl Trace for Off {
    #[inline]
    fn emit(_: impl FnOnce() -> Event) {}
}
