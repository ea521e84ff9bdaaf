//! How the state of a single frame leaves "allocated" when it is freed to a stack.
//!
//! ```
//! use zonal::preset::{Trusting, Zonal};
//! use zonal::policy::{Policy, Sound};
//!
//! zonal::preset! {
//!     /// The default without compare-exchanges where single frames are freed: what [`Trusting`] is.
//!     Mine = "Mine", over Zonal {
//!         Pcp = zonal::pcp::Stacks<16, { zonal::pcp::stack::MAX_HIGH }, zonal::frame::ByStore>,
//!     }
//! }
//! fn pool<S: Sound>() {}
//! pool::<Mine>();
//! assert_eq!((Mine::NAME, Trusting::NAME), ("Mine", "Trusting"));
//! ```

use crate::platform::AtomicByte;
use core::fmt;
use core::sync::atomic::Ordering::Relaxed;

/// A way: [`ByExchange`] or [`ByStore`].
pub trait Release: sealed::Sealed + Copy + Send + Sync + fmt::Debug + 'static {
    /// Whether a frame is cached once at most, so that nothing is looked at when it goes back to the map.
    #[doc(hidden)]
    const ONCE: bool;
    /// Replaces `from` by `to`. `false`, and no change, for anything else.
    #[doc(hidden)]
    fn replace<B: AtomicByte>(state: &B, from: u8, to: u8) -> bool;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::ByExchange {}
    impl Sealed for super::ByStore {}
}

/// One atomic step: of two CPUs that free one frame at the same instant one is refused.
#[derive(Clone, Copy, Debug)]
pub struct ByExchange;

impl Release for ByExchange {
    const ONCE: bool = true;

    #[inline(always)]
    fn replace<B: AtomicByte>(state: &B, from: u8, to: u8) -> bool {
        // Relaxed: what comes with the frame came with the caller's right to it.
        state.compare_exchange(from, to, Relaxed, Relaxed).is_ok()
    }
}

/// A look and a store. Whatever one CPU does is refused as by an exchange, and what two do one after the other; but of two
/// that free one frame within some nanoseconds both may be told that they did. The frame is then cached twice. A copy goes back to
/// the map only if the frame still is cached: the second one is found there and counted (`refused`), also while an owner has the
/// first. If both are handed out before, the frame has two owners.
#[derive(Clone, Copy, Debug)]
pub struct ByStore;

impl Release for ByStore {
    const ONCE: bool = false;

    #[inline(always)]
    fn replace<B: AtomicByte>(state: &B, from: u8, to: u8) -> bool {
        // Relaxed: as above.
        let is_from = state.load(Relaxed) == from;
        if is_from {
            state.store(to, Relaxed);
        }
        is_from
    }
}
