//! Which zones of a zonelist are tried, and in which order.
//!
//! ```
//! use zonal::policy::walk::{FirstFit, Walk};
//! assert_eq!(FirstFit::find(&[1, 2, 3], |&zone| (zone > 1).then_some(zone)), Some(2));
//! ```

/// A walk over the zones that a request may use, best first.
pub trait Walk: Send + Sync + 'static {
    /// The first answer that `attempt` gives.
    fn find<Z, R>(zones: &[Z], attempt: impl FnMut(&Z) -> Option<R>) -> Option<R>;
}

/// The first zone that has what is wanted (Linux 4.16).
#[derive(Clone, Copy, Debug)]
pub struct FirstFit;

impl Walk for FirstFit {
    #[inline]
    fn find<Z, R>(zones: &[Z], attempt: impl FnMut(&Z) -> Option<R>) -> Option<R> {
        zones.iter().find_map(attempt)
    }
}
