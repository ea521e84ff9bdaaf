//! The plan: from a sane memory map and a configuration to nodes, zones, watermarks, zonelists.
//!
//! Everything an allocator needs to know before the first frame is handed out is decided here,
//! without touching any memory. The rules:
//!
//! - a frame's zone type follows from its address ([`Config::dma_limit`],
//!   [`Config::dma32_limit`]) or from its place at the top of its node ([`Config::movable`]);
//! - zones are numbered by node, then type, then instance; only zones with frames are made;
//! - **a pageblock belongs to one zone.** Limits, movable starts and instance boundaries are
//!   rounded to pageblocks. Where two nodes share a pageblock, the node with more frames in it
//!   keeps it (the lower number, if equal), the other's frames become reserved
//!   ([`MapReport::foreign`](crate::boot::map::MapReport::foreign)); where CMA shares a pageblock with
//!   usable frames, these become CMA too, since a pageblock has one migrate type. Blocks larger
//!   than a pageblock may still meet a zone boundary in their middle;
//! - memory that may come later ([`RangeKind::Offline`](crate::boot::map::RangeKind::Offline)) is planned
//!   as if it were there: it has its zone, and zone types are cut into instances with it, so that
//!   no boundary moves when it comes. It counts in [`ZoneSpec::later`] only. It comes by
//!   pageblocks; what shares one with something else is reserved
//!   ([`MapReport::offline_cut`](crate::boot::map::MapReport::offline_cut));
//! - the span of a zone may contain holes, and frames of other nodes where nodes interleave:
//!   [`Plan::zone_at`] knows.
//!
//! ```
//! use zonal::map::{MemoryMap, PhysAddr, Region};
//! use zonal::plan::{Config, Plan};
//! use zonal::{NodeId, Pfn};
//!
//! let map = MemoryMap::from_regions(&[Region::usable(PhysAddr(0), 6 << 30)])?.sanitise()?;
//! let plan = Plan::new(map, Config::new(4), |_, _, _| 1)?;
//! let names = plan.zones().iter().map(|z| z.zone_type.name());
//! assert!(names.eq(["DMA", "DMA32", "Normal"]));
//! let normal = plan.zone_at(Pfn::new(5 << 18)).unwrap();
//! assert_eq!(plan.zonelist(NodeId(0))[0], normal);
//! # Ok::<(), zonal::plan::PlanError>(())
//! ```

mod build;
mod config;
mod draft;
#[cfg(test)]
mod draft_tests;
mod error;
#[cfg(test)]
mod later_tests;
mod split;
#[cfg(test)]
mod split_tests;
#[cfg(test)]
mod tests;

pub use config::{Config, MAX_CPUS, MAX_PCP_BATCH, MIN_PAGEBLOCK_ORDER, MovableShare};
pub use draft::Draft;
pub use error::PlanError;
pub use split::{MAX_INSTANCES, OnNode, SplitConfig, SplitError};

pub(crate) use build::Shares;

use crate::boot::map::{PfnRange, Range, SaneMap, round_down};
use crate::boot::watermark::Watermarks;
use crate::boot::zonelist::{MAX_NODES, MAX_ZONES, Zonelist};
use crate::types::units::{NodeId, NodeMask, Pfn, ZoneId};
use crate::types::zone_type::{NR_ZONE_TYPES, ZoneType};

/// What is planned for one zone instance. Counts are in frames; spanned ≥ present ≥ managed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ZoneSpec {
    /// Its place in [`Plan::zones`].
    pub id: ZoneId,
    /// Its node.
    pub node: NodeId,
    /// Its type.
    pub zone_type: ZoneType,
    /// Which instance of that type on that node it is, from 0.
    pub instance: u8,
    /// The first frame of its span, with the memory that may come later, at the start of a
    /// pageblock.
    pub start: Pfn,
    /// The frame after that span, at the end of a pageblock.
    pub end: Pfn,
    /// Frames that are memory from the start: managed, or reclaimed later.
    pub present: u64,
    /// Frames that the allocator gets at the start: usable and CMA.
    pub managed: u64,
    /// Frames that may come [online](crate::Allocator::online) later.
    pub later: u64,
    /// Its watermarks, not boosted.
    pub watermarks: Watermarks,
    /// What it keeps back from requests by the highest zone type that they may use. The
    /// instances of a type share what the type keeps back in proportion to their managed frames.
    pub lowmem_reserve: [u64; NR_ZONE_TYPES],
}

impl ZoneSpec {
    /// All zero.
    const NOTHING: Self = Self {
        id: ZoneId(0),
        node: NodeId(0),
        zone_type: ZoneType::Dma,
        instance: 0,
        start: Pfn::new(0),
        end: Pfn::new(0),
        present: 0,
        managed: 0,
        later: 0,
        watermarks: Watermarks { min: 0, low: 0, high: 0 },
        lowmem_reserve: [0; NR_ZONE_TYPES],
    };

    /// Its span: from its first frame to its last, holes and what may come later included.
    #[must_use]
    pub const fn span(&self) -> PfnRange {
        PfnRange { start: self.start, end: self.end }
    }

    /// Whether the two are instances of one zone type of a node.
    #[must_use]
    pub fn is_sibling(&self, other: &Self) -> bool {
        self.node == other.node && self.zone_type == other.zone_type
    }
}

/// What a zone keeps back.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Marks {
    pub(crate) watermarks: Watermarks,
    pub(crate) reserve: [u64; NR_ZONE_TYPES],
}

/// See the [module](self). About 15 KiB; a [`Draft`] has it where it is to stay.
#[derive(Clone, PartialEq, Debug)]
pub struct Plan {
    map: SaneMap,
    config: Config,
    span: PfnRange,
    zones: [ZoneSpec; MAX_ZONES],
    zone_count: u8,
    /// Bit `n`: zone `n` manages nothing from the start.
    vacant: u64,
    nodes: NodeMask,
    zonelists: [Zonelist; MAX_NODES],
}

impl Plan {
    /// A plan of nothing. All its bytes are zero.
    const EMPTY: Self = Self {
        map: SaneMap::EMPTY,
        config: Config::NOTHING,
        span: PfnRange::new(Pfn::new(0), Pfn::new(0)),
        zones: [ZoneSpec::NOTHING; MAX_ZONES],
        zone_count: 0,
        vacant: 0,
        nodes: NodeMask::NONE,
        zonelists: [Zonelist::EMPTY; MAX_NODES],
    };

    /// Plans an allocator for `map`. `split` says how many instances a zone type has on a node
    /// (a preset's is [`Split::instances`](crate::policy::Split::instances)): 0 counts as 1, and
    /// there are fewer where there is not one largest block of memory for each. Instances get
    /// equal parts of the type's memory, with what may come later and whatever holes are in its
    /// span, up to rounding: boundaries are at multiples of [`SplitConfig::align`] if each part is
    /// that large, else of the largest block.
    ///
    /// # Errors
    /// [`PlanError`]: the configuration is impossible, the span of the memory is too large for
    /// 32-bit frame indices, there are too many zones, or no memory is left that requests
    /// for other than movable frames could use.
    pub fn new(
        map: SaneMap,
        config: Config,
        split: impl Fn(&Config, ZoneType, &OnNode) -> u8,
    ) -> Result<Self, PlanError> {
        let mut plan = Self { map, ..Self::EMPTY };
        build::build(&mut plan, &config, split)?;
        Ok(plan)
    }

    /// The first frame that the frame table covers: a multiple of the largest block.
    #[must_use]
    #[inline]
    pub const fn base(&self) -> Pfn {
        self.span.start
    }

    /// How many frames the frame table covers, holes included: whole pageblocks, less than
    /// 2^32 − 1024.
    #[must_use]
    #[inline]
    pub const fn frames(&self) -> u64 {
        self.span.frames()
    }

    /// How many pageblocks the high-atomic reserve of a zone with `managed` frames may have:
    /// one per cent, or none where the configuration turns it off.
    pub(crate) fn high_atomic_limit(&self, managed: u64) -> u32 {
        let one_percent = managed / 100 / self.config.pageblock_order.frames();
        if self.config.highatomic { one_percent as u32 } else { 0 }
    }

    /// How many pageblocks the frame table covers.
    #[must_use]
    pub const fn pageblocks(&self) -> u64 {
        self.frames() >> self.config.pageblock_order.get()
    }

    /// The zones, by their ids.
    #[must_use]
    pub fn zones(&self) -> &[ZoneSpec] {
        &self.zones[..usize::from(self.zone_count)]
    }

    /// The zone that the pageblock of `pfn` belongs to, or will when its memory comes; `None` if
    /// there is never any in it.
    /// The answer is the same for all frames of a pageblock. O(log ranges + zones).
    #[must_use]
    pub fn zone_at(&self, pfn: Pfn) -> Option<ZoneId> {
        let size = self.config.pageblock_order.frames();
        let start = round_down(pfn, size);
        let block = PfnRange { start, end: Pfn::new(start.get().saturating_add(size)) };
        let ranges = self.map.ranges();
        let first = ranges.partition_point(|r| r.end <= block.start);
        let memory = ranges[first..]
            .iter()
            .take_while(|r| r.start < block.end)
            .find(|r| r.kind.is_memory())?;
        let zone = self.zones().iter().find(|z| z.node == memory.node && z.span().contains(start));
        zone.map(|z| z.id)
    }

    /// The zone whose tables have room for a pageblock in which the map has no memory: one whose span it
    /// lies in, on the node of the memory before it if there is one.
    pub(crate) fn zone_with_room(&self, start: Pfn) -> Option<ZoneId> {
        let before = self.map.memory().take_while(|range| range.start < start).last();
        let around = || self.zones().iter().filter(|zone| zone.span().contains(start));
        let near = around().find(|zone| before.is_some_and(|range| range.node == zone.node));
        near.or_else(|| around().next()).map(|zone| zone.id)
    }

    /// The memory of a zone, now or later, by address: the map's ranges on its node, cut to its
    /// span, without the reserved ones. Nothing for a zone that does not exist.
    pub fn ranges_of(&self, zone: ZoneId) -> impl Iterator<Item = Range> + '_ {
        let zone = self.zones().get(usize::from(zone.0));
        zone.into_iter().flat_map(|zone| {
            let own = self.map.memory().filter(|r| r.node == zone.node);
            own.filter_map(|r| r.clip(zone.span()))
        })
    }

    /// The zones that a request starting at `node` tries, in order, whatever types it may use.
    /// Empty for a node beyond [`MAX_NODES`].
    #[must_use]
    #[inline]
    pub fn zonelist(&self, node: NodeId) -> &[ZoneId] {
        self.zonelists.get(usize::from(node.0)).map_or(&[], Zonelist::as_slice)
    }

    /// The map, with what planning reserved or made CMA.
    #[must_use]
    pub const fn map(&self) -> &SaneMap {
        &self.map
    }

    /// The configuration.
    #[must_use]
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// The nodes that have zones, with memory now or later.
    #[must_use]
    pub const fn nodes(&self) -> NodeMask {
        self.nodes
    }

    /// Frames managed from the start, over all zones.
    #[must_use]
    pub fn managed(&self) -> u64 {
        self.zones().iter().map(|z| z.managed).sum()
    }

    /// Frames that may come online later, over all zones.
    #[must_use]
    pub fn later(&self) -> u64 {
        self.zones().iter().map(|z| z.later).sum()
    }

    /// Whether some zone manages nothing from the start: its memory is all to come.
    pub(crate) const fn has_vacant(&self) -> bool {
        self.vacant != 0
    }

    /// Whether a zone manages nothing from the start.
    pub(crate) const fn is_vacant(&self, zone: ZoneId) -> bool {
        self.vacant >> zone.0 & 1 == 1
    }

    /// How the memory is shared out if zone `n` manages `managed(n)` frames.
    pub(crate) fn shares(&self, managed: impl Fn(usize) -> u64) -> Shares {
        Shares::new(self.zones(), managed)
    }
}
