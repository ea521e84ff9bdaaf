//! What can go wrong.
//!
//! ```
//! use zonal_cache::error::CacheError;
//! let error = CacheError::BoundTooSmall { asked: 3, least: 16 };
//! assert_eq!(error.to_string(), "a bound of 3 pages: at least 16 are needed");
//! ```

use crate::store::StoreError;
use core::fmt;

/// Why a call was refused or stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum CacheError {
    /// What the store of this file said of the range asked for.
    Store(StoreError),
    /// All pages are pinned or cannot be written back.
    NoRoom {
        /// Pages that the cache may have.
        bound: usize,
    },
    /// There is no frame, though the bound allows more: other users of the arena have them.
    NoFrames,
    /// A million readers have the page already.
    Crowded,
    /// The range ends beyond the largest offset, 2⁶³ − 1.
    OffsetTooLarge {
        /// Where it begins.
        offset: u64,
    },
    /// The range begins at the end or beyond it, and the store's length is [fixed](crate::store::Store::has_fixed_len).
    BeyondStore {
        /// Where it begins.
        offset: u64,
        /// Bytes in the store.
        len: u64,
    },
    /// Another length than a store has whose length is [fixed](crate::store::Store::has_fixed_len); of a region a larger one.
    FixedLen {
        /// Bytes.
        asked: u64,
        /// Bytes in the store.
        len: u64,
    },
    /// The range ends beyond the end of a region.
    BeyondRegion {
        /// Where it begins.
        offset: u64,
        /// Bytes in the region.
        len: u64,
    },
    /// A bound that is too small to work with.
    BoundTooSmall {
        /// In pages.
        asked: usize,
        /// In pages.
        least: usize,
    },
    /// A bound beyond what the cache was made for.
    BoundTooLarge {
        /// In pages.
        asked: usize,
        /// In pages.
        most: usize,
    },
    /// The bound cannot be lowered so far now. It is what is in use.
    InUse {
        /// In pages.
        asked: usize,
        /// The bound now, in pages.
        bound: usize,
    },
}

impl From<StoreError> for CacheError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl fmt::Display for CacheError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store(error) => error.fmt(f),
            Self::NoRoom { bound } => {
                write!(f, "all {bound} pages are pinned or cannot be written back")
            }
            Self::NoFrames => f.write_str("the arena has no frame left"),
            Self::Crowded => f.write_str("too many readers have pinned the page"),
            Self::OffsetTooLarge { offset } => {
                write!(f, "offset {offset}: the range ends beyond 2^63 - 1")
            }
            Self::BeyondStore { offset, len } => {
                write!(f, "offset {offset}: the store ends with its {len} bytes, and cannot grow")
            }
            Self::FixedLen { asked, len } => {
                write!(f, "a length of {asked} bytes: the store has {len}, and cannot have others")
            }
            Self::BeyondRegion { offset, len } => {
                write!(f, "offset {offset}: the range ends beyond the region's {len} bytes")
            }
            Self::BoundTooSmall { asked, least } => {
                write!(f, "a bound of {asked} pages: at least {least} are needed")
            }
            Self::BoundTooLarge { asked, most } => {
                write!(f, "a bound of {asked} pages: the cache was made for at most {most}")
            }
            Self::InUse { asked, bound } => {
                write!(f, "a bound of {asked} pages: {bound} are pinned, or cannot be written back")
            }
        }
    }
}

impl core::error::Error for CacheError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Store(error) => Some(error),
            _ => None,
        }
    }
}
