//! Tests of planning.

extern crate std;

use super::*;
use crate::boot::map::{MapError, MapReport, MemoryMap, PhysAddr, RangeKind, Region};
use crate::boot::watermark::{MinFree, WatermarkConfig};
use crate::boot::zonelist::{DistanceMatrix, ZonelistOrder};
use crate::types::units::Order;
use std::string::ToString;
use std::vec::Vec;

use RangeKind::{Cma, ReclaimLater, Reserved, Usable};
use ZoneType::{Dma, Dma32, Movable, Normal};

const MIB: u64 = 256;
const GIB: u64 = 1024 * MIB;

/// First frame, frame after the last, kind, node.
type Frames = (u64, u64, RangeKind, u8);

fn sane(frames: &[Frames]) -> SaneMap {
    let mut map = MemoryMap::new();
    for &(start, end, kind, node) in frames {
        let start_at = PhysAddr(start << 12);
        let bytes = (end - start) << 12;
        map.add(Region { start: start_at, bytes, kind, node: NodeId(node) }).unwrap();
    }
    map.sanitise().unwrap()
}

fn plan(frames: &[Frames], config: Config) -> Result<Plan, PlanError> {
    Plan::new(sane(frames), config, |_, _, _| 1)
}

/// A pool: everything Normal, no watermarks, small pageblocks.
fn pool() -> Config {
    Config {
        pageblock_order: Order::new(4).unwrap(),
        dma_limit: Pfn::new(0),
        dma32_limit: Pfn::new(0),
        watermarks: WatermarkConfig { min_free: MinFree::None, ..Default::default() },
        ..Config::new(1)
    }
}

/// Node, type, instance, start, end, present, managed.
type Zone = (u8, ZoneType, u8, u64, u64, u64, u64);

fn zones(plan: &Plan) -> Vec<Zone> {
    let zone = |z: &ZoneSpec| {
        let (start, end) = (z.start.get(), z.end.get());
        (z.node.0, z.zone_type, z.instance, start, end, z.present, z.managed)
    };
    plan.zones().iter().map(zone).collect()
}

/// What must hold for every plan, looked at frame by frame near all edges.
fn check(plan: &Plan) {
    assert!(plan.base().is_aligned(Order::MAX));
    let order = plan.config().pageblock_order;
    assert_eq!(plan.frames(), plan.pageblocks() << order.get());
    for (n, zone) in plan.zones().iter().enumerate() {
        assert_eq!(usize::from(zone.id.0), n);
        assert!(zone.start.is_aligned(order) && zone.end.is_aligned(order));
        assert!(zone.span().frames() >= zone.present && zone.present >= zone.managed);
        assert!(zone.present > 0);
        let key = |z: &ZoneSpec| (z.node, z.zone_type, z.instance, z.start);
        assert!(n == 0 || key(&plan.zones()[n - 1]) < key(zone));
        let ranges: Vec<Range> = plan.ranges_of(zone.id).collect();
        assert_eq!(ranges.iter().map(Range::frames).sum::<u64>(), zone.present);
        for range in ranges {
            for pfn in [range.start, Pfn::new(range.end.get() - 1)] {
                assert_eq!(plan.zone_at(pfn), Some(zone.id), "{pfn}");
                let block = round_down(pfn, order.frames());
                assert_eq!(plan.zone_at(block), Some(zone.id), "the same for the pageblock");
                assert!(plan.base() <= pfn && pfn.get() - plan.base().get() < plan.frames());
            }
        }
    }
    let present: u64 = plan.zones().iter().map(|z| z.present).sum();
    assert_eq!(present, plan.map().present().map(|r| r.frames()).sum::<u64>());
    assert_eq!(plan.managed(), plan.map().frames_usable());
}

#[test]
fn a_pc_with_two_nodes() {
    let frames = [
        (1, 159, Usable, 0),
        (256, 3 * GIB, Usable, 0),
        (3 * GIB - 16, 3 * GIB - 8, ReclaimLater, 0),
        (4 * GIB, 6 * GIB, Usable, 0),
        (6 * GIB, 10 * GIB, Usable, 1),
    ];
    let plan = plan(&frames, Config::new(4)).unwrap();
    check(&plan);
    assert_eq!(
        zones(&plan),
        [
            (0, Dma, 0, 0, 4096, 3998, 3998),
            (0, Dma32, 0, 4096, 3 * GIB, 3 * GIB - 4096, 3 * GIB - 4096 - 8),
            (0, Normal, 0, 4 * GIB, 6 * GIB, 2 * GIB, 2 * GIB),
            (1, Normal, 0, 6 * GIB, 10 * GIB, 4 * GIB, 4 * GIB),
        ]
    );
    assert_eq!((plan.base(), plan.frames()), (Pfn::new(0), 10 * GIB));
    let list = |node| plan.zonelist(NodeId(node)).iter().map(|z| z.0).collect::<Vec<_>>();
    assert_eq!((list(0), list(1)), ([2, 1, 0, 3].into(), [3, 2, 1, 0].into()));
    assert!(plan.zonelist(NodeId(16)).is_empty());
    assert!(plan.nodes() == NodeMask::only(NodeId(0)).with(NodeId(1)));

    // lowmem 9 GiB less 98 + 8 frames: 9437184 - 424 KiB, of which 12287 is kept: 3071 frames
    let lowmem = plan.managed();
    assert_eq!(lowmem, 9 * GIB - 98 - 8);
    let normal = plan.zones()[3].watermarks;
    assert_eq!(normal.min, 3071 * 4 * GIB / lowmem);
    assert_eq!(normal.high - normal.min, 2 * (4 * GIB * 10 / 10000));
    assert_eq!(plan.zones()[0].watermarks.min, 3071 * 3998 / lowmem);
    // DMA is kept from DMA32 and Normal requests by what these have on the same node.
    let dma32 = 3 * GIB - 4096 - 8;
    assert_eq!(plan.zones()[0].lowmem_reserve[1..3], [dma32 / 256, (dma32 + 2 * GIB) / 256]);
    assert_eq!(plan.zones()[1].lowmem_reserve, [0, 0, 2 * GIB / 256, 2 * GIB / 256]);
    assert_eq!(plan.zones()[3].lowmem_reserve, [0; 4]);

    for (pfn, zone) in [(159, Some(0)), (3 * GIB - 1, Some(1)), (3 * GIB, None), (10 * GIB, None)] {
        assert_eq!(plan.zone_at(Pfn::new(pfn)), zone.map(ZoneId), "{pfn}");
    }
    assert_eq!(plan.zone_at(Pfn::new(u64::MAX)), None);
    assert_eq!(plan.ranges_of(ZoneId(9)).count(), 0);
}

#[test]
fn the_base_is_aligned_to_the_largest_block_and_the_end_to_a_pageblock() {
    let plan = plan(&[(5000, 5100, Usable, 3)], pool()).unwrap();
    check(&plan);
    assert_eq!((plan.base(), plan.frames()), (Pfn::new(4096), 1008));
    assert_eq!(zones(&plan), [(3, Normal, 0, 4992, 5104, 100, 100)]);
    assert_eq!(plan.zone_at(Pfn::new(4996)), Some(ZoneId(0)));
    assert_eq!(plan.zone_at(Pfn::new(4991)), None);
}

#[test]
fn limits_are_rounded_down_to_pageblocks() {
    let config = Config { dma_limit: Pfn::new(100), dma32_limit: Pfn::new(300), ..pool() };
    let plan = plan(&[(0, 1000, Usable, 0)], config).unwrap();
    check(&plan);
    assert_eq!(
        zones(&plan),
        [
            (0, Dma, 0, 0, 96, 96, 96),
            (0, Dma32, 0, 96, 288, 192, 192),
            (0, Normal, 0, 288, 1008, 712, 712),
        ]
    );
}

#[test]
fn movable_is_at_the_top_of_each_node() {
    let low = Config { dma_limit: Pfn::new(96), dma32_limit: Pfn::new(96), ..pool() };
    let whole = [(0, 1024, Usable, 0)];
    let holes = [(0, 512, Usable, 0), (600, 640, Usable, 0), (700, 720, Usable, 0)];
    // Frames wanted, map, zones
    let table: [(u64, &[Frames], &[Zone]); 7] = [
        (
            256,
            &whole,
            &[
                (0, Dma, 0, 0, 96, 96, 96),
                (0, Normal, 0, 96, 768, 672, 672),
                (0, Movable, 0, 768, 1024, 256, 256),
            ],
        ),
        // Rounded down to pageblocks, down to nothing.
        (
            250,
            &whole,
            &[
                (0, Dma, 0, 0, 96, 96, 96),
                (0, Normal, 0, 96, 784, 688, 688),
                (0, Movable, 0, 784, 1024, 240, 240),
            ],
        ),
        (15, &whole, &[(0, Dma, 0, 0, 96, 96, 96), (0, Normal, 0, 96, 1024, 928, 928)]),
        (0, &whole, &[(0, Dma, 0, 0, 96, 96, 96), (0, Normal, 0, 96, 1024, 928, 928)]),
        // Never from the type below.
        (1000, &whole, &[(0, Dma, 0, 0, 96, 96, 96), (0, Movable, 0, 96, 1024, 928, 928)]),
        (
            u64::MAX,
            &[(0, 1024, Usable, 0), (2048, 2080, Usable, 1)],
            &[
                (0, Dma, 0, 0, 96, 96, 96),
                (0, Movable, 0, 96, 1024, 928, 928),
                (1, Movable, 0, 2048, 2080, 32, 32),
            ],
        ),
        // Over holes: 20 + 40 + 4 frames.
        (
            64,
            &holes,
            &[
                (0, Dma, 0, 0, 96, 96, 96),
                (0, Normal, 0, 96, 512, 416, 416),
                (0, Movable, 0, 592, 720, 60, 60),
            ],
        ),
    ];
    for (wanted, frames, expected) in table {
        let config = Config { movable: MovableShare::Frames(wanted), ..low };
        let plan = plan(frames, config).unwrap();
        check(&plan);
        assert_eq!(zones(&plan), expected, "{wanted}");
    }
}

#[test]
fn a_pageblock_shared_by_nodes_goes_to_the_one_with_more_of_it() {
    // Pageblock 1 is 16..32.
    let table: [(&[Frames], &[Frames], u64); 4] = [
        (
            &[(0, 26, Usable, 0), (26, 48, Usable, 1)],
            &[(0, 26, Usable, 0), (26, 32, Reserved, 1), (32, 48, Usable, 1)],
            6,
        ),
        (
            &[(0, 20, Usable, 0), (20, 48, Usable, 1)],
            &[(0, 16, Usable, 0), (16, 20, Reserved, 0), (20, 48, Usable, 1)],
            4,
        ),
        // A draw: the lower number.
        (
            &[(0, 24, Usable, 1), (24, 48, Usable, 0)],
            &[(0, 16, Usable, 1), (16, 24, Reserved, 1), (24, 48, Usable, 0)],
            8,
        ),
        // Three nodes, and frames for later.
        (
            &[(16, 19, Usable, 2), (19, 24, ReclaimLater, 1), (25, 32, Cma, 0)],
            &[(16, 19, Reserved, 2), (19, 24, Reserved, 1), (25, 32, Cma, 0)],
            8,
        ),
    ];
    for (frames, expected, foreign) in table {
        let plan = plan(frames, pool()).unwrap();
        check(&plan);
        assert_eq!(plan.map().ranges(), sane(expected).ranges());
        assert_eq!(plan.map().report(), MapReport { foreign, ..MapReport::default() });
    }
}

#[test]
fn cma_takes_the_usable_rest_of_its_pageblocks() {
    let frames =
        [(0, 80, Usable, 0), (20, 40, Cma, 0), (40, 44, ReclaimLater, 0), (64, 80, Cma, 0)];
    let plan = plan(&frames, pool()).unwrap();
    check(&plan);
    let expected =
        [(0, 16, Usable, 0), (16, 40, Cma, 0), (40, 44, ReclaimLater, 0), (44, 48, Cma, 0)];
    let rest = [(48, 64, Usable, 0), (64, 80, Cma, 0)];
    assert_eq!(plan.map().ranges(), sane(&[&expected[..], &rest].concat()).ranges());
    assert_eq!(plan.map().report().cma_widened, 8);
    assert_eq!(zones(&plan), [(0, Normal, 0, 0, 80, 80, 76)]);
}

#[test]
fn cma_that_begins_where_other_cma_was_widened_is_widened_too() {
    // The second begins in the pageblock in which the first ends, so the two become one range.
    let frames = [(0, 96, Usable, 0), (18, 36, Cma, 0), (40, 52, Cma, 0)];
    let plan = plan(&frames, pool()).unwrap();
    check(&plan);
    let expected = [(0, 16, Usable, 0), (16, 64, Cma, 0), (64, 96, Usable, 0)];
    assert_eq!(plan.map().ranges(), sane(&expected).ranges());
    assert_eq!(plan.map().report().cma_widened, 2 + 4 + 12);
}

#[test]
fn nodes_may_interleave() {
    let frames = [(0, 1024, Usable, 0), (1024, 2048, Usable, 1), (2048, 3072, Usable, 0)];
    let plan = plan(&frames, pool()).unwrap();
    check(&plan);
    assert_eq!(
        zones(&plan),
        [(0, Normal, 0, 0, 3072, 2048, 2048), (1, Normal, 0, 1024, 2048, 1024, 1024)]
    );
}

#[test]
fn instances() {
    let split = |frames: &[Frames], count| {
        let plan = Plan::new(sane(frames), pool(), move |_, _, _| count).unwrap();
        check(&plan);
        zones(&plan).into_iter().map(|z| (z.2, z.3, z.4)).collect::<Vec<_>>()
    };
    // Large: at GiB boundaries.
    let large = [(GIB / 2, 5 * GIB, Usable, 0)];
    assert_eq!(
        split(&large, 3),
        [(0, GIB / 2, 2 * GIB), (1, 2 * GIB, 4 * GIB), (2, 4 * GIB, 5 * GIB)]
    );
    // Small: at boundaries of the largest block.
    assert_eq!(
        split(&[(16, 8192, Usable, 0)], 4),
        [(0, 16, 3072), (1, 3072, 5120), (2, 5120, 7168), (3, 7168, 8192)]
    );
    // 0 counts as 1; no more instances than largest blocks.
    assert_eq!(split(&[(0, 4096, Usable, 0)], 0), [(0, 0, 4096)]);
    assert_eq!(split(&[(0, 2500, Usable, 0)], 200), [(0, 0, 2048), (1, 2048, 2512)]);
    assert_eq!(split(&[(0, 100, Usable, 0)], 200), [(0, 0, 112)]);
    // No instance without memory, and numbers without gaps.
    assert_eq!(
        split(&[(0, 1024, Usable, 0), (7168, 8192, Usable, 0)], 8),
        [(0, 0, 1024), (1, 7168, 8192)]
    );
}

#[test]
fn instances_share_the_reserve_of_their_type() {
    let config = Config { dma32_limit: Pfn::new(4096), ..pool() };
    let split = |_: &Config, ty, there: &OnNode| {
        let present = there.present;
        assert_eq!(present, if ty == Dma32 { 4096 } else { 1 << 20 });
        if ty == Dma32 { 4 } else { 1 }
    };
    let map = sane(&[(0, 4096, Usable, 0), (1 << 20, 2 << 20, Usable, 0)]);
    let plan = Plan::new(map, config, split).unwrap();
    check(&plan);
    assert_eq!(plan.zones().len(), 5);
    for zone in &plan.zones()[..4] {
        assert_eq!(zone.lowmem_reserve, [0, 0, 1024, 1024]);
    }
}

#[test]
fn zone_order_and_distances_are_heeded() {
    let frames =
        [(0, 8 * GIB, Usable, 0), (8 * GIB, 9 * GIB, Usable, 1), (9 * GIB, 10 * GIB, Usable, 2)];
    let distances = DistanceMatrix::from_table(3, &[10, 30, 20, 30, 10, 20, 20, 20, 10]).unwrap();
    let config = Config { distances, zonelist_order: ZonelistOrder::Zone, ..Config::new(1) };
    let plan = plan(&frames, config).unwrap();
    check(&plan);
    let list: Vec<u8> = plan.zonelist(NodeId(0)).iter().map(|z| z.0).collect();
    assert_eq!(list, [2, 4, 3, 1, 0]);
}

#[test]
fn bad_configurations_are_refused() {
    let usable = [(0, 4 * GIB, Usable, 0)];
    let good = Config::new(1);
    assert!(plan(&usable, good).is_ok());
    assert!(plan(&usable, Config { cpus: 4096, ..good }).is_ok());
    let marks =
        |scale_factor, min_free| WatermarkConfig { min_free, scale_factor, ..good.watermarks };
    let order = Order::new(2).unwrap();
    let (dma, dma32) = (Pfn::new(2), Pfn::new(1));
    let table: [(Config, PlanError, &str); 10] = [
        (Config { cpus: 0, ..good }, PlanError::Cpus { cpus: 0 }, "1 to 4096 CPUs, not 0"),
        (Config { cpus: 4097, ..good }, PlanError::Cpus { cpus: 4097 }, "not 4097"),
        (
            Config { pageblock_order: order, ..good },
            PlanError::PageblockOrder { order },
            "order 3 to 10, not 2",
        ),
        (
            Config { dma_limit: dma, dma32_limit: dma32, ..good },
            PlanError::Limits { dma, dma32 },
            "end at 0x2000, above the end of DMA32 zones at 0x1000",
        ),
        (
            Config { watermarks: marks(3001, MinFree::Computed), ..good },
            PlanError::ScaleFactor { scale_factor: 3001 },
            "at most 3000",
        ),
        (Config { pcp_batch: Some(0), ..good }, PlanError::PcpBatch { batch: 0 }, "1 to 31"),
        (Config { pcp_batch: Some(32), ..good }, PlanError::PcpBatch { batch: 32 }, "not 32"),
        (
            Config { watermarks: marks(10, MinFree::Frames(4 * GIB)), ..good },
            PlanError::MinFree { frames: 4 * GIB, lowmem: 4 * GIB },
            "1048576 frames are to be kept free, but only 1048576 are managed",
        ),
        (
            Config { movable: MovableShare::Frames(4 * GIB), dma_limit: Pfn::new(0), ..good },
            PlanError::AllMovable { managed: 4 * GIB },
            "all 1048576 managed frames would be in Movable zones",
        ),
        (
            Config { movable: MovableShare::Frames(4 * GIB), ..pool() },
            PlanError::AllMovable { managed: 4 * GIB },
            "Movable",
        ),
    ];
    for (config, error, message) in table {
        assert_eq!(plan(&usable, config), Err(error));
        assert!(error.to_string().contains(message), "{error}");
    }
}

#[test]
fn bad_maps_are_refused() {
    // The most with which an index has room for a largest block behind it, and one pageblock more.
    let most = (1 << 32) - 1024 - 16;
    assert!(plan(&[(0, 16, Usable, 0), (most - 1, most, Usable, 0)], pool()).is_ok());
    let error = plan(&[(0, 16, Usable, 0), (most, most + 1, Usable, 0)], pool()).unwrap_err();
    let span = PfnRange::new(Pfn::new(0), Pfn::new(most + 16));
    assert_eq!(error, PlanError::TooLarge { span });
    assert!(error.to_string().contains("0x0 to 0xfffffbfffff spans 4294966272"), "{error}");

    let error = Plan::new(sane(&[(0, 65 * 1024, Usable, 0)]), pool(), |_, _, _| 65).unwrap_err();
    assert_eq!(error, PlanError::TooManyZones { zones: 65 });
    assert!(error.to_string().contains("65 zone instances are needed, at most 64"), "{error}");
    assert!(Plan::new(sane(&[(0, 64 * 1024, Usable, 0)]), pool(), |_, _, _| 64).is_ok());

    // All that is usable is in a pageblock that mostly belongs to another node.
    let error = plan(&[(0, 9, ReclaimLater, 0), (9, 16, Usable, 1)], pool()).unwrap_err();
    assert!(matches!(error, PlanError::Map(MapError::NothingUsable { .. })), "{error}");

    // More is kept free than so small a machine has.
    let error = plan(&[(0, 32, Usable, 0)], Config::new(1)).unwrap_err();
    assert_eq!(error, PlanError::MinFree { frames: 32, lowmem: 32 });
}

#[test]
fn at_the_end_of_the_address_space() {
    let top = 1 << 52;
    let plan = plan(&[(top - 100, top, Usable, 15)], pool()).unwrap();
    check(&plan);
    assert_eq!(zones(&plan), [(15, Normal, 0, top - 112, top, 100, 100)]);
}
