//! What a host chooses before planning.

use super::{PlanError, SplitConfig};
use crate::boot::dirty_limit::DirtyLimit;
use crate::boot::watermark::{LOWMEM_RATIO, MinFree, SCALE_FACTOR_MAX, WatermarkConfig};
use crate::boot::zonelist::{DistanceMatrix, ZonelistOrder};
use crate::types::units::{Order, Pfn};
use crate::types::zone_type::NR_ZONE_TYPES;
use core::num::NonZeroU32;

/// The most CPUs an allocator serves.
pub const MAX_CPUS: u32 = 4096;
/// The smallest pageblock: with 8 frames its 8-byte word costs one byte a frame, which is what
/// is left of the 10 bytes a frame that the frame table may take.
pub const MIN_PAGEBLOCK_ORDER: u8 = 3;

/// The most frames that per-CPU lists can be asked to move at once: what Linux 4.16 uses for large zones.
pub const MAX_PCP_BATCH: u32 = 31;

/// How much memory is set aside for movable requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum MovableShare {
    /// None: no Movable zones.
    #[default]
    None,
    /// This many frames at the top of each node, rounded down to pageblocks. Taken from the
    /// highest zone type that the node has and from no other, so that memory for devices stays
    /// what it is; a node with less gives all of that type.
    Frames(u64),
}

/// The configuration of an allocator. Start from [`Config::new`] and change what differs.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Config {
    /// CPUs that get a per-CPU cache: 1 to [`MAX_CPUS`].
    pub cpus: u32,
    /// The size of a pageblock; at least [`MIN_PAGEBLOCK_ORDER`]. Default: a huge page, order 9.
    pub pageblock_order: Order,
    /// Frames below belong to DMA zones. Default 16 MiB; 0 for no such zones. Rounded down to a
    /// pageblock.
    pub dma_limit: Pfn,
    /// Frames below, and not below [`dma_limit`](Self::dma_limit), belong to DMA32 zones.
    /// Default 4 GiB; equal to `dma_limit` for no such zones. Rounded down to a pageblock.
    pub dma32_limit: Pfn,
    /// Memory set aside for movable requests, per node. Default none.
    pub movable: MovableShare,
    /// How far the nodes are apart.
    pub distances: DistanceMatrix,
    /// How the zonelists are ordered. Default by node.
    pub zonelist_order: ZonelistOrder,
    /// What the watermarks are computed from.
    pub watermarks: WatermarkConfig,
    /// Linux's `lowmem_reserve_ratio` by zone type; 0 turns a type's reserve off.
    pub lowmem_ratio: [u32; NR_ZONE_TYPES],
    /// Frames that per-CPU lists move at once, and the most that a cluster on the order-0 lists
    /// has: 1 to [`MAX_PCP_BATCH`]. With 1 there are no such clusters. Default: by
    /// the size of the zone, as Linux 4.16 does, or, under presets with its lists, Linux 6.3, which
    /// moves up to 63. Without effect under presets with stacks.
    pub pcp_batch: Option<u32>,
    /// Frames that a per-CPU list may hold before a batch goes back to the zone. Default: six
    /// batches, as Linux 4.16 does, or as 6.3 by the low watermark; never less than one. Without effect where
    /// [`pcp_batch`](Self::pcp_batch) is.
    pub pcp_high: Option<u32>,
    /// Regions of a zone: the CPUs of one, 14 after the other in turn, begin to look for frames at the same place.
    /// Default: one for each 14 CPUs, at most four. Without effect under presets with lists, and while three quarters of a
    /// zone are free, where each CPU begins in a part of its own if that is 64 pageblocks at least.
    pub regions: Option<NonZeroU32>,
    /// Whether pageblocks are set aside for high-order requests that cannot wait. Default yes.
    pub highatomic: bool,
    /// How many pages may be dirty, for presets with dirty limits. Default 20 %.
    pub dirty_limit: DirtyLimit,
    /// Sizes of zone instances, for presets that split zone types.
    pub split: SplitConfig,
}

impl Config {
    /// Of nothing: all zero, and refused.
    pub(super) const NOTHING: Self = Self {
        cpus: 0,
        pageblock_order: Order::ZERO,
        dma_limit: Pfn::new(0),
        dma32_limit: Pfn::new(0),
        movable: MovableShare::None,
        distances: DistanceMatrix::NOTHING,
        zonelist_order: ZonelistOrder::Node,
        watermarks: WatermarkConfig {
            min_free: MinFree::Computed,
            scale_factor: 0,
            boost_factor: 0,
        },
        lowmem_ratio: [0; NR_ZONE_TYPES],
        pcp_batch: None,
        pcp_high: None,
        regions: None,
        highatomic: false,
        dirty_limit: DirtyLimit::Percent(0),
        split: SplitConfig::NOTHING,
    };

    /// What a Linux machine with `cpus` CPUs would use.
    #[must_use]
    pub fn new(cpus: u32) -> Self {
        Self {
            cpus,
            pageblock_order: Order::HUGE,
            dma_limit: Pfn::containing(16 << 20),
            dma32_limit: Pfn::containing(4 << 30),
            movable: MovableShare::None,
            distances: DistanceMatrix::default(),
            zonelist_order: ZonelistOrder::Node,
            watermarks: WatermarkConfig::default(),
            lowmem_ratio: LOWMEM_RATIO,
            pcp_batch: None,
            pcp_high: None,
            regions: None,
            highatomic: true,
            dirty_limit: DirtyLimit::default(),
            split: SplitConfig::default(),
        }
    }

    /// Checks what does not depend on the map.
    ///
    /// # Errors
    /// The first thing that is wrong, in the order of the fields.
    pub const fn check(&self) -> Result<(), PlanError> {
        if self.cpus == 0 || self.cpus > MAX_CPUS {
            return Err(PlanError::Cpus { cpus: self.cpus });
        }
        if self.pageblock_order.get() < MIN_PAGEBLOCK_ORDER {
            return Err(PlanError::PageblockOrder { order: self.pageblock_order });
        }
        if self.dma_limit.get() > self.dma32_limit.get() {
            return Err(PlanError::Limits { dma: self.dma_limit, dma32: self.dma32_limit });
        }
        if self.watermarks.scale_factor > SCALE_FACTOR_MAX {
            return Err(PlanError::ScaleFactor { scale_factor: self.watermarks.scale_factor });
        }
        if let Some(batch) = self.pcp_batch
            && (batch == 0 || batch > MAX_PCP_BATCH)
        {
            return Err(PlanError::PcpBatch { batch });
        }
        if let DirtyLimit::Percent(percent @ (0 | 101..)) = self.dirty_limit {
            return Err(PlanError::DirtyLimit { percent });
        }
        if let Err(error) = self.split.check() {
            return Err(PlanError::Split(error));
        }
        Ok(())
    }
}
