//! What can be wrong with a configuration for a map.

use super::build::MOST_FRAMES;
use super::{MAX_CPUS, MAX_PCP_BATCH, MIN_PAGEBLOCK_ORDER, SplitError};
use crate::boot::map::{MapError, PfnRange};
use crate::boot::watermark::SCALE_FACTOR_MAX;
use crate::boot::zonelist::{DistanceError, MAX_ZONES};
use crate::types::units::{Order, Pfn};
use core::fmt;

/// Why no allocator can be planned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum PlanError {
    /// The number of CPUs is 0 or above [`MAX_CPUS`].
    Cpus {
        /// CPUs wanted.
        cpus: u32,
    },
    /// The pageblock is smaller than [`MIN_PAGEBLOCK_ORDER`].
    PageblockOrder {
        /// Order wanted.
        order: Order,
    },
    /// DMA zones would end above DMA32 zones.
    Limits {
        /// Where DMA ends.
        dma: Pfn,
        /// Where DMA32 ends.
        dma32: Pfn,
    },
    /// The watermark scale factor is above [`SCALE_FACTOR_MAX`].
    ScaleFactor {
        /// Factor wanted.
        scale_factor: u16,
    },
    /// The batch of the per-CPU lists is 0 or above [`MAX_PCP_BATCH`].
    PcpBatch {
        /// Frames wanted.
        batch: u32,
    },
    /// The dirty limit is not 1 to 100 per cent.
    DirtyLimit {
        /// Per cent wanted.
        percent: u8,
    },
    /// More is to be kept free than there is.
    MinFree {
        /// Frames to be kept free.
        frames: u64,
        /// Managed frames outside Movable zones.
        lowmem: u64,
    },
    /// The memory spans too many frames, holes included, for 32-bit frame indices.
    TooLarge {
        /// The span.
        span: PfnRange,
    },
    /// More than [`MAX_ZONES`] zone instances would be needed.
    TooManyZones {
        /// How many.
        zones: usize,
    },
    /// All managed memory is in Movable zones.
    AllMovable {
        /// Managed frames, all of them in Movable zones.
        managed: u64,
    },
    /// The map cannot be used.
    Map(MapError),
    /// The distances between the nodes are wrong.
    Distance(DistanceError),
    /// The sizes of zone instances are impossible.
    Split(SplitError),
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Cpus { cpus } => {
                write!(f, "an allocator serves 1 to {MAX_CPUS} CPUs, not {cpus}")
            }
            Self::PageblockOrder { order } => write!(
                f,
                "pageblocks are of order {MIN_PAGEBLOCK_ORDER} to {}, not {order}",
                Order::MAX
            ),
            Self::Limits { dma, dma32 } => write!(
                f,
                "DMA zones would end at {:#x}, above the end of DMA32 zones at {:#x}",
                dma.address(),
                dma32.address()
            ),
            Self::ScaleFactor { scale_factor } => write!(
                f,
                "the watermark scale factor is at most {SCALE_FACTOR_MAX} (1/10000 of a zone), \
                 not {scale_factor}"
            ),
            Self::DirtyLimit { percent } => {
                write!(f, "1 to 100 per cent of memory may be dirty, not {percent}")
            }
            Self::PcpBatch { batch } => {
                write!(f, "per-CPU lists move 1 to {MAX_PCP_BATCH} frames at once, not {batch}")
            }
            Self::MinFree { frames, lowmem } => write!(
                f,
                "{frames} frames are to be kept free, but only {lowmem} are managed outside \
                 Movable zones"
            ),
            Self::TooLarge { span } => write!(
                f,
                "the memory from {:#x} to {:#x} spans {} frames, holes included; at most {} can \
                 be managed",
                span.start.address(),
                span.end.address().wrapping_sub(1),
                span.frames(),
                MOST_FRAMES
            ),
            Self::TooManyZones { zones } => {
                write!(f, "{zones} zone instances are needed, at most {MAX_ZONES} are possible")
            }
            Self::AllMovable { managed } => write!(
                f,
                "all {managed} managed frames would be in Movable zones, none is left for other \
                 requests"
            ),
            Self::Map(error) => error.fmt(f),
            Self::Distance(error) => error.fmt(f),
            Self::Split(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for PlanError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Map(error) => Some(error),
            Self::Distance(error) => Some(error),
            Self::Split(error) => Some(error),
            _ => None,
        }
    }
}

impl From<MapError> for PlanError {
    fn from(error: MapError) -> Self {
        Self::Map(error)
    }
}

impl From<DistanceError> for PlanError {
    fn from(error: DistanceError) -> Self {
        Self::Distance(error)
    }
}
