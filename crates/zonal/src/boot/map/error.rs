//! What can be wrong with a memory map.

use super::{MAX_RANGES, PfnRange, PhysAddr};
use crate::boot::zonelist::MAX_NODES;
use crate::types::units::{FRAME_SHIFT, FRAME_SIZE, NodeId, Order, Pfn};
use core::fmt;

/// Why a memory map cannot be used, or nothing can be carved from it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum MapError {
    /// More than [`MAX_RANGES`] regions were added.
    TooManyRegions {
        /// Where the region starts for which there was no room.
        start: PhysAddr,
    },
    /// More than [`MAX_RANGES`] ranges are left after sorting out the overlaps.
    TooManyRanges {
        /// The first frame of the range for which there was no room.
        start: Pfn,
    },
    /// A region reaches beyond the end of the address space.
    AddressOverflow {
        /// Where the region starts.
        start: PhysAddr,
        /// Its length.
        bytes: u64,
    },
    /// A region is on a node beyond [`MAX_NODES`].
    NoSuchNode {
        /// The node.
        node: NodeId,
        /// Where the region starts.
        start: PhysAddr,
    },
    /// Two nodes list the same frames.
    NodeConflict {
        /// The frames.
        frames: PfnRange,
        /// The nodes.
        nodes: [NodeId; 2],
    },
    /// No whole frame is usable.
    NothingUsable {
        /// How many regions the map had.
        regions: usize,
    },
    /// 0 bytes were to be carved.
    CarveNothing,
    /// No usable range has room for what was to be carved.
    NoRoom {
        /// Frames wanted.
        frames: u64,
        /// Alignment wanted.
        align: Order,
        /// The node they had to be on, if any.
        node: Option<NodeId>,
        /// The frame they had to be below, if any.
        below: Option<Pfn>,
        /// The largest usable range within these limits, frames.
        largest_frames: u64,
    },
}

/// The bytes of a range of frames, as firmware tools print them: the last byte included.
fn bytes_of(frames: PfnRange) -> (u64, u64) {
    (frames.start.address(), frames.end.address().wrapping_sub(1))
}

impl fmt::Display for MapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::TooManyRegions { start } => write!(
                f,
                "no room for the memory region at {start}: a map holds at most {MAX_RANGES} regions"
            ),
            Self::TooManyRanges { start } => write!(
                f,
                "no room for the memory range at {:#x}: sorted and without overlaps the map has \
                 more than {MAX_RANGES} ranges",
                start.address()
            ),
            Self::AddressOverflow { start, bytes } => write!(
                f,
                "the memory region at {start} with {bytes:#x} bytes reaches beyond the end of the \
                 64-bit address space"
            ),
            Self::NoSuchNode { node, start } => write!(
                f,
                "the memory region at {start} is on node {node}, but nodes go from 0 to {}",
                MAX_NODES - 1
            ),
            Self::NodeConflict { frames, nodes: [one, other] } => {
                let (first, last) = bytes_of(frames);
                write!(
                    f,
                    "nodes {one} and {other} both list the memory from {first:#x} to {last:#x}"
                )
            }
            Self::NothingUsable { regions } => write!(
                f,
                "none of the {regions} memory regions leaves a whole usable frame of {FRAME_SIZE} \
                 bytes"
            ),
            Self::CarveNothing => f.write_str("cannot carve 0 bytes from the memory map"),
            Self::NoRoom { frames, align, node, below, largest_frames } => {
                write!(f, "no usable memory range ")?;
                if let Some(node) = node {
                    write!(f, "on node {node} ")?;
                }
                if let Some(below) = below {
                    write!(f, "below {:#x} ", u128::from(below.get()) << FRAME_SHIFT)?;
                }
                write!(
                    f,
                    "has room for {frames} frames aligned to {:#x} bytes; the largest has \
                     {largest_frames} frames",
                    align.bytes()
                )
            }
        }
    }
}

impl core::error::Error for MapError {}
