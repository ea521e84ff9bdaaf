//! What can be wrong with memory that is to come or to go.

use super::RangeError;
use crate::types::units::Pfn;
use core::fmt;

/// Why memory could not be brought online or taken offline. No frame was lost or gained then, but
/// pages that stood in the way of taking it may have been moved elsewhere.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ResizeError {
    /// The range is wrong: empty, not of whole pageblocks, outside the memory map; or, if it is to
    /// go, something in it stays.
    Range(RangeError),
    /// Frames are in it that the memory map does not call offline: they were there from the
    /// start, or are reserved.
    NotOffline {
        /// The first of them.
        pfn: Pfn,
    },
    /// It is to come, and a part of it is online already.
    Online {
        /// The first frame of that.
        pfn: Pfn,
    },
    /// Another caller brings memory online or takes it offline at this moment: try again.
    Busy,
}

/// Why memory could not be brought [online](crate::Allocator::online).
pub type OnlineError = ResizeError;
/// Why memory could not be taken [offline](crate::Allocator::offline).
pub type OfflineError = ResizeError;

impl fmt::Display for ResizeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Range(error) => error.fmt(f),
            Self::NotOffline { pfn } => {
                write!(f, "pfn {pfn} is no memory that comes and goes: the map does not say so")
            }
            Self::Online { pfn } => write!(f, "pfn {pfn} is online already"),
            Self::Busy => f.write_str("other memory is coming or going at this moment"),
        }
    }
}

impl core::error::Error for ResizeError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Range(error) => Some(error),
            _ => None,
        }
    }
}

impl From<RangeError> for ResizeError {
    fn from(error: RangeError) -> Self {
        Self::Range(error)
    }
}
