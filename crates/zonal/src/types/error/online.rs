//! What can be wrong with memory that is to come or to go.

use super::RangeError;
use crate::types::units::{Order, Pfn};
use core::fmt;

/// Why memory could not be brought online. Nothing has changed then.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum OnlineError {
    /// There is no frame in it.
    Empty,
    /// It does not begin and end between pageblocks.
    NotAligned {
        /// The end of it that does not.
        pfn: Pfn,
        /// The order of a pageblock.
        pageblock: Order,
    },
    /// It reaches outside the memory the allocator knows of: the memory map has to say what may
    /// come.
    Foreign {
        /// The first frame outside.
        pfn: Pfn,
    },
    /// A hole of the memory map is in it.
    Hole {
        /// The first frame of the hole.
        pfn: Pfn,
    },
    /// Frames are in it that the memory map does not call offline: they were there from the
    /// start, or are reserved.
    NotOffline {
        /// The first of them.
        pfn: Pfn,
    },
    /// A part of it is online already.
    Online {
        /// The first frame of that.
        pfn: Pfn,
    },
    /// Somebody else brings memory online or takes it offline at this moment: try again.
    Busy,
}

impl fmt::Display for OnlineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("a range without frames"),
            Self::NotAligned { pfn, pageblock } => {
                write!(f, "pfn {pfn} is not where a pageblock of order {pageblock} begins")
            }
            Self::Foreign { pfn } => write!(f, "pfn {pfn} is outside the allocator's memory"),
            Self::Hole { pfn } => write!(f, "pfn {pfn} lies in a hole of the memory map"),
            Self::NotOffline { pfn } => {
                write!(f, "pfn {pfn} is no memory that comes and goes: the map does not say so")
            }
            Self::Online { pfn } => write!(f, "pfn {pfn} is online already"),
            Self::Busy => f.write_str("other memory is coming or going at this moment"),
        }
    }
}

impl core::error::Error for OnlineError {}

/// Why memory could not be taken offline. No frame was lost or gained then, but pages may have
/// been moved elsewhere.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum OfflineError {
    /// The range cannot be had: it is not aligned, not online, or something in it stays.
    Range(RangeError),
    /// Frames are in it that the memory map does not call offline: they are there for good.
    NotOffline {
        /// The first of them.
        pfn: Pfn,
    },
    /// Somebody else brings memory online or takes it offline at this moment: try again.
    Busy,
}

impl fmt::Display for OfflineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Range(error) => error.fmt(f),
            Self::NotOffline { pfn } => {
                write!(f, "pfn {pfn} is no memory that comes and goes: the map does not say so")
            }
            Self::Busy => f.write_str("other memory is coming or going at this moment"),
        }
    }
}

impl core::error::Error for OfflineError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Range(error) => Some(error),
            _ => None,
        }
    }
}

impl From<RangeError> for OfflineError {
    fn from(error: RangeError) -> Self {
        Self::Range(error)
    }
}
