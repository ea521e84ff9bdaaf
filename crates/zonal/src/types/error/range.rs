//! What can be wrong with a range of frames.

use super::{AllocReason, FreeError};
use crate::types::units::{Order, Pfn};
use core::fmt;

/// Why a range could not be isolated, taken or given back. Then everything is as it was
/// before, but for pages that were moved elsewhere already.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum RangeError {
    /// There is no frame in it.
    Empty,
    /// It does not begin and end between pageblocks.
    NotAligned {
        /// The end of it that does not.
        pfn: Pfn,
        /// The order of a pageblock.
        pageblock: Order,
    },
    /// A frame of it, the first such, is not the allocator's: [foreign](FreeError::Foreign), in a
    /// [hole](FreeError::Hole), [reserved](FreeError::Reserved) or to be reclaimed later, or
    /// [offline](FreeError::Offline). What a free of it would be refused for.
    Frame(FreeError),
    /// It does not lie in one zone type of one node.
    CrossesZones {
        /// The first frame of another type or node than those of the range's first.
        pfn: Pfn,
    },
    /// A block is allocated in a pageblock of a type whose frames cannot be moved.
    Unmovable {
        /// A frame of the block.
        pfn: Pfn,
    },
    /// A part of it is isolated already, for the holder of another token.
    Isolated {
        /// The first frame of an isolated pageblock.
        pfn: Pfn,
    },
    /// It is not isolated: the token is from another allocator.
    NotIsolated {
        /// The first frame of a pageblock that is not.
        pfn: Pfn,
    },
    /// The host did not move a block that is in it.
    Refused {
        /// The first frame of the block.
        pfn: Pfn,
        /// Its order.
        order: Order,
    },
    /// There is no memory that a block in it could be moved to.
    NoTarget {
        /// The first frame of the block.
        pfn: Pfn,
        /// Its order.
        order: Order,
    },
    /// A block in it is allocated, and nothing is to be moved.
    InUse {
        /// A frame of the block.
        pfn: Pfn,
    },
    /// A frame of it did not come out of a per-CPU cache in time.
    Busy {
        /// The frame.
        pfn: Pfn,
    },
    /// A frame of it is not allocated by itself, with order 0: it is free, or in a block, or the token is
    /// from another allocator.
    NotAllocated {
        /// The frame.
        pfn: Pfn,
    },
}

impl fmt::Display for RangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("a range without frames"),
            Self::NotAligned { pfn, pageblock } => {
                write!(f, "pfn {pfn} is not where a pageblock of order {pageblock} begins")
            }
            Self::Frame(error) => error.fmt(f),
            Self::CrossesZones { pfn } => write!(f, "pfn {pfn} is of another zone type or node"),
            Self::Unmovable { pfn } => {
                write!(f, "pfn {pfn} is allocated in a pageblock that is not movable")
            }
            Self::Isolated { pfn } => write!(f, "the pageblock at pfn {pfn} is isolated already"),
            Self::NotIsolated { pfn } => write!(f, "the pageblock at pfn {pfn} is not isolated"),
            Self::Refused { pfn, order } => {
                write!(f, "the host does not move the block of order {order} at pfn {pfn}")
            }
            Self::NoTarget { pfn, order } => {
                write!(f, "no memory to move the block of order {order} at pfn {pfn} to")
            }
            Self::InUse { pfn } => write!(f, "pfn {pfn} is in use"),
            Self::Busy { pfn } => write!(f, "pfn {pfn} stays in a per-CPU cache"),
            Self::NotAllocated { pfn } => write!(f, "pfn {pfn} is not allocated with order 0"),
        }
    }
}

impl core::error::Error for RangeError {}

/// A token that could not be given back, and why.
#[derive(Debug)]
#[must_use = "dropping it leaks the frames"]
pub struct RefusedRange<T> {
    /// The token.
    pub token: T,
    /// Why.
    pub error: RangeError,
}

impl<T> fmt::Display for RefusedRange<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<T: fmt::Debug> core::error::Error for RefusedRange<T> {}

/// Why contiguous frames, as many as wanted, could not be had.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ContiguousError {
    /// None were asked for.
    Empty,
    /// They were to begin at a multiple of a number that is not a power of two.
    BadAlignment {
        /// The number.
        frames: u64,
    },
    /// The request itself cannot be served: no zone fits it, its migrate type is a state of
    /// pageblocks, or the host cannot fill frames with zero bytes; then the frames were given back.
    Request(AllocReason),
    /// In no zone that the request may use is there a range of that size that could be had.
    NoRange {
        /// Frames asked for.
        frames: u64,
        /// Ranges that looked as if they could be had.
        tried: u32,
        /// What was wrong with the last of them.
        last: Option<RangeError>,
    },
}

impl fmt::Display for ContiguousError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("no contiguous frames were asked for"),
            Self::BadAlignment { frames } => {
                write!(f, "frames are aligned to a power of two, not to {frames}")
            }
            Self::Request(reason) => reason.fmt(f),
            Self::NoRange { frames, tried, last } => {
                write!(f, "no {frames} contiguous frames can be had; {tried} range(s) tried")?;
                last.map_or(Ok(()), |error| write!(f, ", the last: {error}"))
            }
        }
    }
}

impl core::error::Error for ContiguousError {}
