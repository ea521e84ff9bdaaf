//! Which watermark a request must stay above, and how far below it some may reach.
//!
//! ```
//! use zonal::types::mark::{Access, Mark};
//!
//! assert!(Mark::Min < Mark::Low && Mark::Low < Mark::High);
//! let atomic = Access { high: true, atomic: true };
//! assert_eq!((Access::default().lower(800), atomic.lower(800)), (800, 300));
//! ```

/// Names one of a zone's watermarks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Mark {
    /// Below it, only requests that cannot wait are served.
    Min,
    /// Below it, background reclaim is woken.
    Low,
    /// Above it, background reclaim rests.
    High,
}

/// How far below a watermark a request may reach.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Access {
    /// Important: takes the mark down by half.
    pub high: bool,
    /// Cannot wait: takes what is left of the mark down by a quarter.
    pub atomic: bool,
}

impl Access {
    /// What `mark` means for such a request, frames.
    #[must_use]
    #[inline]
    pub const fn lower(self, mark: u64) -> u64 {
        let mark = if self.high { mark - mark / 2 } else { mark };
        if self.atomic { mark - mark / 4 } else { mark }
    }
}
