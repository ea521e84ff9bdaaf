//! Small memory maps, each with something that the others do not have.
//!
//! ```
//! use zonal::preset::Zonal;
//! use zonal_testkit::shape::Shape;
//! let plan = Shape::TwoNodes.plan::<Zonal>();
//! assert_eq!(plan.zones().len(), 2);
//! ```

use zonal::map::{MemoryMap, PhysAddr, Region, RegionKind};
use zonal::plan::{Config, MovableShare, Plan, SplitConfig};
use zonal::policy::{Policy, Split};
use zonal::units::FRAME_SIZE;
use zonal::watermark::{MinFree, WatermarkConfig};
use zonal::{CpuId, NodeId, Order, Pfn};

/// A memory map with a configuration.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Shape {
    /// 96 frames, one CPU: runs out at once.
    Scrap,
    /// 2048 frames, one zone, three CPUs.
    Flat,
    /// Usable pieces with ragged ends, holes, reserved frames, frames to be reclaimed later.
    Holes,
    /// Two nodes of 1024 frames that meet inside a largest block, a CPU each.
    TwoNodes,
    /// DMA, DMA32 and Normal, with lowmem reserves.
    Low,
    /// A quarter is CMA.
    Cma,
    /// Half is a Movable zone.
    Movable,
    /// Pageblocks of 8 frames, a high-atomic reserve of up to five of them.
    Blocks3,
    /// Watermarks, three zones, two nodes.
    Marked,
    /// Two nodes and two types, each with enough memory for two or four instances, and holes
    /// across boundaries between instances; two CPUs a node.
    Instances,
    /// Memory that comes later: below, behind and between what is there, so that of node 0's
    /// zone instances two have a part of their memory from the start, the one its end and the other
    /// its beginning, and one none; and all that node 1 has.
    Later,
    /// Pageblocks of 512 frames and enough memory for clusters of 256.
    Huge,
    /// Pageblocks of the largest order: everything merges with everything.
    Whole,
}

/// A region of `frames` frames from frame `start` on.
fn region(start: u64, frames: u64) -> Region {
    let size = FRAME_SIZE as u64;
    Region::usable(PhysAddr(start * size), frames * size)
}

fn of_kind(start: u64, frames: u64, kind: RegionKind) -> Region {
    Region { kind, ..region(start, frames) }
}

impl Shape {
    /// All of them.
    pub const ALL: [Self; 13] = [
        Self::Scrap,
        Self::Flat,
        Self::Holes,
        Self::TwoNodes,
        Self::Low,
        Self::Cma,
        Self::Movable,
        Self::Blocks3,
        Self::Marked,
        Self::Whole,
        Self::Instances,
        Self::Later,
        Self::Huge,
    ];

    /// Those of at most 4096 frames.
    pub const SMALL: [Self; 10] = {
        let [small @ .., _, _, _] = Self::ALL;
        small
    };

    /// The memory map.
    #[must_use]
    pub fn regions(self) -> Vec<Region> {
        match self {
            Self::Scrap => vec![region(0x1000, 96)],
            Self::Flat | Self::Whole => vec![region(0x1000, 2048)],
            Self::Holes => vec![
                region(0x1003, 509),
                region(0x1300, 1),
                region(0x1400, 1024),
                of_kind(0x1490, 37, RegionKind::Reserved),
                of_kind(0x1600, 64, RegionKind::ReclaimLater),
                region(0x2005, 300),
            ],
            Self::TwoNodes => vec![region(0x1000, 1248), region(0x14e0, 800).on(NodeId(1))],
            Self::Low => vec![region(0, 2048)],
            Self::Cma => vec![region(0x1000, 2048), of_kind(0x1100, 512, RegionKind::Cma)],
            Self::Movable => vec![region(0x1000, 2048)],
            Self::Blocks3 => vec![region(0x1000, 4096)],
            Self::Marked => vec![region(0, 1536), region(0x800, 768).on(NodeId(1))],
            // On node 0 two instances of DMA32 and four of Normal, which is all that a node may
            // have: the latter meet at 0x1000 and 0x2000, in holes, and at 0x1800. On node 1 two, which
            // meet at 0x2c00.
            Self::Instances => vec![
                region(0, 0xf00),
                region(0x1100, 0xb00),
                region(0x2100, 0x300),
                region(0x2400, 0xb80).on(NodeId(1)),
            ],
            // Instances on node 0 meet at 0x1400 and 0x1c00.
            Self::Later => vec![
                of_kind(0xc00, 0x400, RegionKind::Offline),
                region(0x1000, 0x900),
                of_kind(0x1900, 0xb00, RegionKind::Offline),
                of_kind(0x2800, 0x400, RegionKind::Offline).on(NodeId(1)),
            ],
            Self::Huge => vec![region(0x4000, 12800)],
        }
    }

    /// The configuration.
    #[must_use]
    pub fn config(self) -> Config {
        let none = WatermarkConfig { min_free: MinFree::None, ..WatermarkConfig::default() };
        // Every preset that splits types does so from 2048 frames up.
        let split = SplitConfig {
            instance_frames: 1024,
            instance_cpus: 1,
            align: Order::MAX.frames(),
            ..SplitConfig::default()
        };
        let base = Config {
            pageblock_order: order(5),
            dma_limit: Pfn::new(0),
            dma32_limit: Pfn::new(0),
            watermarks: none,
            split,
            ..Config::new(self.cpus())
        };
        match self {
            // Batches that the size of the zone would not give: clusters on the order-0 lists.
            Self::Scrap => Config { pageblock_order: order(3), pcp_batch: Some(3), ..base },
            Self::Blocks3 => Config { pageblock_order: order(3), ..base },
            Self::Holes | Self::Cma => {
                Config { pageblock_order: order(4), pcp_batch: Some(4), ..base }
            }
            Self::Flat => Config { pcp_batch: Some(7), ..base },
            Self::TwoNodes => base,
            Self::Later => Config { pcp_batch: Some(5), ..base },
            Self::Instances => Config { dma32_limit: Pfn::new(0x800), ..base },
            Self::Low => Config { dma_limit: Pfn::new(256), dma32_limit: Pfn::new(1024), ..base },
            Self::Movable => Config { movable: MovableShare::Frames(1024), ..base },
            Self::Marked => Config {
                dma_limit: Pfn::new(512),
                dma32_limit: Pfn::new(512),
                watermarks: WatermarkConfig { min_free: MinFree::Frames(200), ..none },
                ..base
            },
            Self::Huge => Config { pageblock_order: Order::HUGE, ..base },
            Self::Whole => Config { pageblock_order: Order::MAX, ..base },
        }
    }

    /// How many CPUs.
    #[must_use]
    pub const fn cpus(self) -> u32 {
        match self {
            Self::Scrap => 1,
            Self::Flat | Self::Blocks3 | Self::Whole => 3,
            Self::Instances | Self::Later => 4,
            _ => 2,
        }
    }

    /// The node of a CPU.
    #[must_use]
    pub const fn node_of(self, cpu: CpuId) -> NodeId {
        match self {
            Self::TwoNodes | Self::Marked | Self::Instances | Self::Later => {
                NodeId((cpu.0 % 2) as u8)
            }
            _ => NodeId(0),
        }
    }

    /// The plan under the preset `S`.
    ///
    /// # Panics
    /// If the plan is refused: the shapes are sane.
    #[must_use]
    #[inline(never)]
    pub fn plan<S: Policy>(self) -> Plan {
        plan::<S>(&self.regions(), self.config())
    }
}

/// A plan for any map and configuration.
///
/// # Panics
/// If the map or the configuration is refused.
#[must_use]
pub fn plan<S: Policy>(regions: &[Region], config: Config) -> Plan {
    let map = MemoryMap::from_regions(regions).and_then(|map| map.sanitise());
    let map = map.expect("a map that the tests mean to be sane");
    Plan::new(map, config, S::Split::instances).expect("a plan that the tests mean to be possible")
}

/// The order `n`.
///
/// # Panics
/// For an order beyond 10.
#[must_use]
pub fn order(n: u8) -> Order {
    Order::new(n).expect("an order of 0 to 10")
}
