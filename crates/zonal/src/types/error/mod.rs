//! Why an allocation or a free was refused, with what one needs to know to mend it.
//!
//! ```
//! use zonal::error::FreeError;
//! use zonal::{Order, Pfn};
//! let error = FreeError::DoubleFree { pfn: Pfn::new(0x80), order: Order::ZERO };
//! assert_eq!(error.to_string(), "double free: pfn 0x80 (order 0) is free already");
//! ```

mod online;
mod range;

pub use online::{OfflineError, OnlineError, ResizeError};
pub use range::{ContiguousError, RangeError, RefusedRange};

use crate::types::block::Block;
use crate::types::counts::FreeCounts;
use crate::types::mark::Mark;
use crate::types::migrate_type::MigrateType;
use crate::types::units::{NodeId, Order, Pfn, ZoneId};
use crate::types::zone_type::ZoneType;
use core::fmt;

/// How many zones an [`Explanation`] describes one by one.
pub const ZONES_EXPLAINED: usize = 8;

/// Why a free was refused. Nothing was changed (I-4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum FreeError {
    /// Outside the memory the allocator knows of, which ends with a whole pageblock: what is missing of the last one is a
    /// [hole](Self::Hole).
    Foreign {
        /// The frame given.
        pfn: Pfn,
    },
    /// In a hole of the memory map.
    Hole {
        /// The frame given.
        pfn: Pfn,
    },
    /// Reserved: never managed by the allocator.
    Reserved {
        /// The frame given.
        pfn: Pfn,
    },
    /// Memory that is not there: it has not come [online](crate::Allocator::online), or has gone.
    Offline {
        /// The frame given.
        pfn: Pfn,
    },
    /// The block is free, or in a cache, already.
    DoubleFree {
        /// The frame given.
        pfn: Pfn,
        /// The order given.
        order: Order,
    },
    /// Allocated with another order.
    WrongOrder {
        /// The frame given.
        pfn: Pfn,
        /// The order given.
        given: Order,
        /// The order it was allocated with.
        allocated: Order,
    },
    /// Inside an allocated block, not its first frame.
    Inner {
        /// The frame given.
        pfn: Pfn,
        /// The first frame of the block.
        head: Pfn,
        /// The order of the block.
        order: Order,
    },
    /// Withdrawn from allocation for compaction or for who takes a range. What is free in a pageblock that is isolated is
    /// free: that is a [`DoubleFree`](Self::DoubleFree).
    Isolated {
        /// The frame given.
        pfn: Pfn,
    },
    /// The frame table holds a value that the allocator never writes.
    Damaged {
        /// The frame given.
        pfn: Pfn,
    },
}

impl fmt::Display for FreeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Foreign { pfn } => {
                write!(f, "foreign frame: pfn {pfn} is outside the allocator's memory")
            }
            Self::Hole { pfn } => write!(f, "pfn {pfn} lies in a hole of the memory map"),
            Self::Reserved { pfn } => write!(f, "pfn {pfn} is reserved and was never allocated"),
            Self::Offline { pfn } => write!(f, "pfn {pfn} is offline"),
            Self::DoubleFree { pfn, order } => {
                write!(f, "double free: pfn {pfn} (order {order}) is free already")
            }
            Self::WrongOrder { pfn, given, allocated } => write!(
                f,
                "wrong order: pfn {pfn} was allocated with order {allocated}, freed with {given}"
            ),
            Self::Inner { pfn, head, order } => write!(
                f,
                "pfn {pfn} is inside the block of order {order} that starts at pfn {head}"
            ),
            Self::Isolated { pfn } => write!(f, "pfn {pfn} is isolated, not allocated"),
            Self::Damaged { pfn } => write!(f, "the frame table is damaged at pfn {pfn}"),
        }
    }
}

impl core::error::Error for FreeError {}

/// A block that could not be freed, given back to its holder, and why.
#[derive(Debug)]
#[must_use = "dropping it leaks the block"]
pub struct RefusedFree {
    /// The block.
    pub block: Block,
    /// Why.
    pub error: FreeError,
}

impl fmt::Display for RefusedFree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl core::error::Error for RefusedFree {}

/// Why an allocation failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum AllocReason {
    /// In no zone that the request may use such a block was found above the watermark. For single frames that may wait there is none;
    /// a larger block may be kept apart by what other CPUs have cached, which is [looked at now and then](crate::slow_path).
    Exhausted,
    /// No zone at all fits the request's nodes and zone limit.
    NoZone,
    /// The request names a migrate type that is a state of pageblocks.
    NotRequestable,
    /// The host cannot fill frames with zero bytes; the block was given back.
    CannotZero,
}

impl fmt::Display for AllocReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Exhausted => "no free block above the watermark",
            Self::NoZone => "no zone fits the nodes and zone limit of the request",
            Self::NotRequestable => "the migrate type is a state of pageblocks, not a request",
            Self::CannotZero => "this host cannot fill frames with zero bytes",
        })
    }
}

/// A zone that was tried.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ZoneTried {
    /// The zone instance.
    pub zone: ZoneId,
    /// Its node.
    pub node: NodeId,
    /// Its type.
    pub zone_type: ZoneType,
    /// Free frames on its buddy lists.
    pub free: u64,
    /// Free frames it must keep for this request's watermark and lowmem reserve.
    pub keep: u64,
    /// Frames in per-CPU caches.
    pub cached: u64,
    /// Largest free order for each of unmovable, movable, reclaimable.
    pub largest: [Option<Order>; 3],
}

/// A failed allocation. What the zones have is a call of its own: see
/// [`Allocator::explain`](crate::Allocator::explain).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AllocError {
    /// Why.
    pub reason: AllocReason,
    /// The order asked for.
    pub order: Order,
    /// The migrate type asked for.
    pub migrate: MigrateType,
    /// The watermark that the last attempt kept.
    pub mark: Mark,
    /// How many zones were tried.
    pub tried: u8,
    /// The first of them; where several requests are interleaved at the same time perhaps that of another.
    pub zone: Option<ZoneId>,
}

impl fmt::Display for AllocError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { order, migrate, mark, tried, .. } = self;
        let name = migrate.name();
        match self.reason {
            AllocReason::NotRequestable => {
                return write!(f, "migrate type {name} is a state of pageblocks, not a request");
            }
            reason @ (AllocReason::NoZone | AllocReason::CannotZero) => return reason.fmt(f),
            AllocReason::Exhausted => {}
        }
        write!(f, "no free block of order {order} ({name}) above the {mark:?} watermark; ")?;
        write!(f, "{tried} zone(s) tried")?;
        self.zone.map_or(Ok(()), |zone| write!(f, ", zone {zone} first"))
    }
}

impl core::error::Error for AllocError {}

/// What the zones of a request have at a moment: why it is refused, or was. Large, because there is
/// no heap to put it in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Explanation {
    /// The order asked for.
    pub order: Order,
    /// The migrate type asked for.
    pub migrate: MigrateType,
    /// How many zones the request may use.
    pub tried: usize,
    /// The first of them, in the order in which they are tried.
    pub zones: [Option<ZoneTried>; ZONES_EXPLAINED],
    /// Free blocks by order and migrate type over all of them.
    pub free: FreeCounts,
}

impl Explanation {
    /// Free frames over the zones described.
    #[must_use]
    pub fn free_frames(&self) -> u64 {
        self.zones.iter().flatten().map(|zone| zone.free).sum()
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { order, migrate, tried, .. } = self;
        write!(f, "order {order} ({}): {tried} zone(s)", migrate.name())?;
        for zone in self.zones.iter().flatten() {
            write!(
                f,
                "; zone {} (node {} {}): {} frames free, {} to be kept, {} cached, largest free order",
                zone.zone,
                zone.node,
                zone.zone_type.name(),
                zone.free,
                zone.keep,
                zone.cached
            )?;
            for (migrate, largest) in MigrateType::ALL.iter().zip(zone.largest) {
                match largest {
                    Some(order) => write!(f, " {} {order}", migrate.name())?,
                    None => write!(f, " {} none", migrate.name())?,
                }
            }
        }
        Ok(())
    }
}

/// What a bulk free did: every frame, or block, that could be freed was.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[must_use]
pub struct BulkFreed {
    /// Frames freed.
    pub freed: usize,
    /// Frames refused.
    pub refused: usize,
    /// Position of the first refused frame in the slice, and why.
    pub first_refused: Option<(usize, FreeError)>,
}

impl BulkFreed {
    /// What comes of freeing each of `blocks` by itself.
    pub(crate) fn one_by_one(
        blocks: &[Pfn],
        mut free: impl FnMut(Pfn) -> Result<(), FreeError>,
    ) -> Self {
        let mut done = Self::default();
        for (at, &pfn) in blocks.iter().enumerate() {
            match free(pfn) {
                Ok(()) => done.freed += 1,
                Err(error) => {
                    done.refused += 1;
                    done.first_refused.get_or_insert((at, error));
                }
            }
        }
        done
    }
}

/// Why an [`Allocator`](crate::Allocator) could not be built.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum BuildError {
    /// A slice of the storage has another length than [`TableSize`](crate::TableSize) says.
    WrongLength {
        /// Which one.
        what: &'static str,
        /// Elements given.
        given: u64,
        /// Elements wanted.
        wanted: u64,
    },
    /// The frame table's memory was not zeroed.
    NotZeroed,
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WrongLength { what, given, wanted } => {
                write!(f, "the storage for {what} has {given} elements, {wanted} are wanted")
            }
            Self::NotZeroed => f.write_str("the frame table's memory must be zeroed first"),
        }
    }
}

impl core::error::Error for BuildError {}
