//! Tests of how zone types are cut into instances.

extern crate std;

use super::*;
use crate::boot::map::{MemoryMap, PhysAddr, RangeKind, Region};
use crate::boot::watermark::{Mark, MinFree, WatermarkConfig};
use crate::policy::split::{ByCpu, BySize, Split, Whole};
use crate::policy::{Policy, split};
use crate::preset::{SplitZones, SplitZonesByCpu};
use crate::types::units::Order;
use std::string::ToString;
use std::vec::Vec;

use RangeKind::{Cma, ReclaimLater, Reserved, Usable};
use ZoneType::{Dma, Dma32, Normal};

const GIB: u64 = 1 << 18;
/// The least alignment.
const BLOCK: u64 = Order::MAX.frames();

fn small() -> Config {
    Config {
        pageblock_order: Order::new(4).unwrap(),
        dma_limit: Pfn::new(0),
        dma32_limit: Pfn::new(0),
        watermarks: WatermarkConfig { min_free: MinFree::None, ..Default::default() },
        split: SplitConfig {
            instance_frames: 2 * BLOCK,
            instance_cpus: 2,
            align: BLOCK,
            ..SplitConfig::default()
        },
        ..Config::new(1)
    }
}

/// First frame, frame after the last, kind, node.
type Frames = (u64, u64, RangeKind, u8);

fn plan<S: Split>(frames: &[Frames], config: Config) -> Plan {
    let mut map = MemoryMap::new();
    for &(start, end, kind, node) in frames {
        let (start, bytes) = (PhysAddr(start << 12), (end - start) << 12);
        map.add(Region { start, bytes, kind, node: NodeId(node) }).unwrap();
    }
    let plan = Plan::new(map.sanitise().unwrap(), config, S::instances).unwrap();
    check(&plan);
    plan
}

/// What holds for every cut: instances of a type ascend without overlap, meet at boundaries of
/// the largest block, and have all the memory between them, each what is in its span.
fn check(plan: &Plan) {
    for zone in plan.zones() {
        let own = || plan.ranges_of(zone.id);
        assert_eq!(zone.present, own().map(|r| r.frames()).sum::<u64>());
        let usable = own().filter(|r| r.kind.is_usable());
        assert_eq!(zone.managed, usable.map(|r| r.frames()).sum::<u64>());
        assert!(zone.managed <= zone.present && zone.present <= zone.span().frames());
        assert!(zone.present > 0, "no instance without memory");
        for range in own() {
            for pfn in [range.start, Pfn::new(range.end.get() - 1)] {
                assert_eq!(plan.zone_at(pfn), Some(zone.id));
            }
        }
    }
    for pair in plan.zones().windows(2).filter(|pair| pair[0].is_sibling(&pair[1])) {
        let (low, high) = (&pair[0], &pair[1]);
        assert_eq!(low.instance + 1, high.instance);
        assert!(low.end <= high.start);
        // Some multiple of the largest block is between the two.
        assert!(round_down(high.start, BLOCK) >= low.end, "{low:?} {high:?}");
    }
    let present: u64 = plan.zones().iter().map(|zone| zone.present).sum();
    assert_eq!(present, plan.map().present().map(|r| r.frames()).sum::<u64>());
}

/// Type, instance, start, end, present, in GiB.
fn in_gib(plan: &Plan) -> Vec<(ZoneType, u8, u64, u64, u64)> {
    let zone = |z: &ZoneSpec| {
        let gib = |frames: u64| frames / GIB;
        (z.zone_type, z.instance, gib(z.start.get()), gib(z.end.get()), gib(z.present))
    };
    plan.zones().iter().map(zone).collect()
}

#[test]
fn one_instance_for_254_gib_from_twice_that_up() {
    let counts = [507, 508, 761, 762, 1015, 1016, 4000].map(|gib| {
        plan::<BySize>(&[(4 * GIB, (4 + gib) * GIB, Usable, 0)], Config::new(1)).zones().len()
    });
    assert_eq!(counts, [1, 2, 2, 3, 3, 4, 4]);
    let one_less = plan::<BySize>(&[(4 * GIB, 512 * GIB - 1, Usable, 0)], Config::new(1));
    assert_eq!(one_less.zones().len(), 1);
}

#[test]
fn a_server_with_a_tebibyte_a_node() {
    let plan = plan::<BySize>(
        &[
            (0, 3 * GIB, Usable, 0),
            (4 * GIB, 1025 * GIB, Usable, 0),
            (1025 * GIB, 2049 * GIB, Usable, 1),
        ],
        Config::new(224),
    );
    let zones = in_gib(&plan);
    assert_eq!(zones[0], (Dma, 0, 0, 0, 0));
    assert_eq!(zones[1].0, Dma32);
    // 1021 GiB by 4 are 255.25 GiB; ends are rounded up to GiB, each from where the one before is.
    let first = [(0, 4, 260, 256), (1, 260, 516, 256), (2, 516, 772, 256), (3, 772, 1025, 253)];
    let normal: Vec<_> = zones[2..6].iter().map(|z| (z.1, z.2, z.3, z.4)).collect();
    assert_eq!(normal, first);
    let normal: Vec<_> = zones[6..].iter().map(|z| (z.1, z.2, z.3, z.4)).collect();
    let second =
        [(0, 1025, 1281, 256), (1, 1281, 1537, 256), (2, 1537, 1793, 256), (3, 1793, 2049, 256)];
    assert_eq!(normal, second);
    // Watermarks and reserves of the instances add up to those of the whole type, up to
    // rounding.
    let whole = self::plan::<Whole>(
        &[(0, 3 * GIB, Usable, 0), (4 * GIB, 1025 * GIB, Usable, 0)],
        Config::new(224),
    );
    let split = self::plan::<BySize>(
        &[(0, 3 * GIB, Usable, 0), (4 * GIB, 1025 * GIB, Usable, 0)],
        Config::new(224),
    );
    let sum = |plan: &Plan, of: &dyn Fn(&ZoneSpec) -> u64| {
        plan.zones().iter().filter(|z| z.zone_type == Normal).map(of).sum::<u64>()
    };
    for mark in [Mark::Min, Mark::Low, Mark::High] {
        let of = |z: &ZoneSpec| z.watermarks.get(mark);
        assert!(sum(&whole, &of).abs_diff(sum(&split, &of)) <= 8);
    }
    for (one, other) in whole.zones()[..2].iter().zip(split.zones()) {
        assert_eq!(one.lowmem_reserve, other.lowmem_reserve, "for all of Normal");
    }
}

#[test]
fn a_span_is_cut_evenly_whatever_holes_are_in_it() {
    // A hole of 12 blocks after the first block: the boundary lies in it.
    let holey = [(0, BLOCK, Usable, 0), (13 * BLOCK, 16 * BLOCK, Usable, 0)];
    let zones = |plan: &Plan| -> Vec<_> {
        plan.zones().iter().map(|z| (z.start.get(), z.end.get(), z.present)).collect()
    };
    let two = plan::<BySize>(&holey, small());
    assert_eq!(
        zones(&two),
        [(0, BLOCK, BLOCK), (13 * BLOCK, 16 * BLOCK, 3 * BLOCK)],
        "equal parts of the span, as in the source, not of what is there"
    );
    // A part that is all hole is no instance.
    let low = [(0, 3 * BLOCK, Usable, 0), (15 * BLOCK, 18 * BLOCK, Usable, 0)];
    assert_eq!(
        zones(&plan::<BySize>(&low, small())),
        [(0, 3 * BLOCK, 3 * BLOCK), (15 * BLOCK, 18 * BLOCK, 3 * BLOCK)]
    );
    let in_hole = [(0, 2 * BLOCK, Usable, 0), (9 * BLOCK, 11 * BLOCK, Usable, 0)];
    assert_eq!(
        zones(&plan::<BySize>(&in_hole, small())),
        [(0, 2 * BLOCK, 2 * BLOCK), (9 * BLOCK, 11 * BLOCK, 2 * BLOCK)]
    );
    // Kinds: present counts what is reclaimed later, managed does not; reserved is neither.
    let kinds = [
        (0, 2 * BLOCK, Usable, 0),
        (2 * BLOCK, 3 * BLOCK, Reserved, 0),
        (3 * BLOCK, 4 * BLOCK, ReclaimLater, 0),
        (4 * BLOCK, 5 * BLOCK, Cma, 0),
    ];
    let counts: Vec<_> =
        plan::<BySize>(&kinds, small()).zones().iter().map(|z| (z.present, z.managed)).collect();
    // The span is of 5 blocks: 2.5 are rounded up to 3.
    assert_eq!(counts, [(2 * BLOCK, 2 * BLOCK), (2 * BLOCK, BLOCK)]);
}

/// Any ragged memory: equal spans up to a unit of rounding, no frame is lost, and no part is empty.
#[test]
fn equal_spans_of_ragged_memory() {
    let mut seed = 1_u64;
    let mut below = |bound: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % bound
    };
    let mut fewer = 0;
    for _ in 0..300 {
        let mut frames = Vec::new();
        let mut at = below(3000);
        for _ in 0..=below(5) {
            let end = at + 1 + below(5000);
            // The nodes in turns, so that their spans overlap.
            frames.push((at, end, Usable, below(2) as u8));
            at = end + below(3) * below(4000);
        }
        let wanted = 1 + below(16) as u8;
        let split = small().split.with_instances(Normal, wanted);
        let plan = plan::<BySize>(&frames, Config { split, ..small() });
        for node in 0..2 {
            let zones: Vec<_> = plan.zones().iter().filter(|z| z.node.0 == node).collect();
            let present: u64 = zones.iter().map(|z| z.present).sum();
            let count = u64::from(wanted).min(present / BLOCK).max(1);
            assert!(zones.len() as u64 <= count, "{frames:?}");
            let [Some(first), Some(last)] = [zones.first(), zones.last()] else { continue };
            // One after the other, each from where the one before ends.
            let mut bounds = std::vec![first.start.get()];
            while bounds.len() < count as usize {
                let step = (last.end.get() - first.start.get()) / count;
                bounds.push((bounds[bounds.len() - 1] + step).next_multiple_of(BLOCK));
            }
            bounds.push(u64::MAX);
            // Each part that has memory is an instance, and no other is.
            let within = |part: &[u64]| {
                let part = PfnRange { start: Pfn::new(part[0]), end: Pfn::new(part[1]) };
                let own = plan.map().present().filter(|r| r.node.0 == node);
                own.filter_map(|r| r.clip(part)).map(|r| r.frames()).sum::<u64>()
            };
            let parts: Vec<_> = bounds.windows(2).map(within).filter(|&n| n > 0).collect();
            let had: Vec<_> = zones.iter().map(|z| z.present).collect();
            assert_eq!(had, parts, "{frames:?}");
            fewer += usize::from(zones.len() < wanted.into());
        }
    }
    assert!(fewer > 100, "only {fewer} had fewer than asked for");
}

/// Four more zones a node, over all its types: the lower types are served first.
#[test]
fn a_node_has_four_more_zones_than_types() {
    let counts = |more_zones, instances| {
        let split = SplitConfig { more_zones, instances, ..small().split };
        let config = Config { split, dma_limit: Pfn::new(4 * BLOCK), ..small() };
        // Types that would have 2, 4 and 4 instances, and a node that has one type.
        let config = Config { dma32_limit: Pfn::new(12 * BLOCK), ..config };
        let frames = [(0, 20 * BLOCK, Usable, 0), (20 * BLOCK, 28 * BLOCK, Usable, 1)];
        let plan = plan::<BySize>(&frames, config);
        let count = |node, ty| {
            plan.zones().iter().filter(|z| (z.node.0, z.zone_type) == (node, ty)).count()
        };
        [count(0, Dma), count(0, Dma32), count(0, Normal), count(1, Normal)]
    };
    let none = [None; 4];
    assert_eq!(counts(4, none), [2, 4, 1, 4]);
    assert_eq!(counts(3, none), [2, 3, 1, 4]);
    assert_eq!(counts(0, none), [1, 1, 1, 1]);
    assert_eq!(counts(9, none), [2, 4, 4, 4]);
    // What is asked for is had, and counts.
    let mut asked = none;
    asked[Dma.index()] = Some(4);
    assert_eq!(counts(4, asked), [4, 2, 1, 4]);
    asked[Normal.index()] = Some(3);
    assert_eq!(counts(0, asked), [4, 1, 3, 3]);
}

#[test]
fn by_cpu() {
    // 8 GiB a node, aligned to GiB: no instance is smaller than that.
    let count = |cpus, instance_cpus, frames: &[Frames]| {
        let split = SplitConfig { instance_cpus, most: 16, ..SplitConfig::default() };
        let config = Config { cpus, split, dma32_limit: Pfn::new(0), ..small() };
        plan::<ByCpu>(frames, config).zones().len()
    };
    let one = [(0, 8 * GIB, Usable, 0)];
    let two = [(0, 8 * GIB, Usable, 0), (8 * GIB, 16 * GIB, Usable, 1)];
    assert_eq!([1, 28, 29, 112].map(|cpus| count(cpus, 28, &one)), [1, 1, 2, 4]);
    assert_eq!([1, 56, 57, 224].map(|cpus| count(cpus, 28, &two)), [2, 2, 4, 8]);
    assert_eq!(count(64, 1, &one), 5, "four more zones");
    assert_eq!(count(64, 1, &[(0, GIB / 2, Usable, 0)]), 1);
    let defaults = Config { split: SplitConfig::default(), ..Config::new(224) };
    let there = split::OnNode { node: NodeId(1), nodes: 2, present: 64 * GIB, more_zones: 0 };
    assert_eq!(<SplitZonesByCpu as Policy>::Split::instances(&defaults, Normal, &there), 4);
    assert_eq!(<SplitZones as Policy>::Split::instances(&defaults, Normal, &there), 1);
}

#[test]
fn numbers_asked_for() {
    let nodes = [(0, 64 * GIB, Usable, 0), (64 * GIB, 128 * GIB, Usable, 1)];
    let asked = |n| SplitConfig::default().with_instances(Normal, n);
    let zones = |n| plan::<BySize>(&nodes, Config { split: asked(n), ..Config::new(224) });
    assert_eq!(zones(1).zones(), plan::<Whole>(&nodes, Config::new(224)).zones());
    let four = in_gib(&zones(4));
    let starts: Vec<_> = four[2..].iter().map(|z| (z.1, z.2)).collect();
    assert_eq!(starts, [(0, 4), (1, 19), (2, 34), (3, 49), (0, 64), (1, 80), (2, 96), (3, 112)]);
    // Not of whole GiB, and rounding up to them would leave nothing for the last: largest blocks.
    let three = plan::<BySize>(
        &[(0, 7 * GIB / 2, Usable, 0)],
        Config { split: SplitConfig::default().with_instances(Normal, 3), ..small() },
    );
    assert_eq!(three.zones().len(), 3);
    // Whole does not look.
    assert_eq!(
        plan::<Whole>(&nodes, Config { split: asked(4), ..Config::new(224) }).zones().len(),
        4
    );
    // Below the alignment: at boundaries of the largest block, and fewer instances where there
    // are fewer of those.
    let tiny = |frames, n| {
        let split = asked(n);
        plan::<BySize>(&[(0, frames, Usable, 0)], Config { split, ..small() }).zones().len()
    };
    assert_eq!(tiny(GIB, 4), 4);
    assert_eq!(tiny(4 * BLOCK, 4), 4);
    assert_eq!(tiny(3 * BLOCK - 1, 3), 2);
    assert_eq!(tiny(4 * BLOCK - 1, 4), 2, "three of 4/3 blocks, rounded up: two have all");
    assert_eq!(tiny(BLOCK - 1, 4), 1);
    assert_eq!(tiny(1, 4), 1);
}

/// Not a closure in the test: rustc 1.95 fails on one that captures the array it copies.
fn aligned(align: u64) -> SplitConfig {
    SplitConfig { align, ..SplitConfig::default() }
}

#[test]
fn bad_sizes_are_refused() {
    let good = SplitConfig::default();
    let table: [(SplitConfig, SplitError, &str); 8] = [
        (
            SplitConfig { instance_frames: 0, ..good },
            SplitError::InstanceFrames,
            "at least 1 frame of memory, not 0",
        ),
        (
            SplitConfig { instance_cpus: 0, ..good },
            SplitError::InstanceCpus,
            "at least 1 CPU, not 0",
        ),
        (SplitConfig { most: 0, ..good }, SplitError::Most { most: 0 }, "at most, not 0"),
        (SplitConfig { most: 17, ..good }, SplitError::Most { most: 17 }, "1 to 16 instances"),
        (aligned(3 * BLOCK), SplitError::Align { frames: 3 * BLOCK }, "power of two"),
        (aligned(BLOCK / 2), SplitError::Align { frames: BLOCK / 2 }, "at least 1024"),
        (
            good.with_instances(Dma32, 0),
            SplitError::Instances { zone_type: Dma32, instances: 0 },
            "1 to 16 instances of DMA32 can be asked for, not 0",
        ),
        (
            good.with_instances(Normal, 17),
            SplitError::Instances { zone_type: Normal, instances: 17 },
            "not 17",
        ),
    ];
    for (split, error, message) in table {
        let refused = Config { split, ..Config::new(1) }.check().unwrap_err();
        assert_eq!(refused, PlanError::Split(error));
        assert!(refused.to_string().contains(message), "{refused}");
        assert!(core::error::Error::source(&refused).is_some());
    }
    let edge = SplitConfig { instance_frames: 1, instance_cpus: 1, most: 16, align: BLOCK, ..good };
    assert_eq!(edge.with_instances(Dma, 16).check(), Ok(()));
    assert_eq!(aligned(1 << 63).check(), Ok(()), "no type is that large: none is split");
}

#[test]
fn instances_of_a_type_stand_together_in_zonelists() {
    let nodes = [
        (0, 4 * BLOCK, Usable, 0),
        (4 * BLOCK, 8 * BLOCK, Usable, 0),
        (8 * BLOCK, 12 * BLOCK, Usable, 1),
    ];
    let config = Config { dma32_limit: Pfn::new(4 * BLOCK), ..small() };
    let plan = plan::<BySize>(&nodes, config);
    let list = |node| plan.zonelist(NodeId(node)).iter().map(|id| id.0).collect::<Vec<_>>();
    assert_eq!(list(0), [2, 3, 0, 1, 4, 5]);
    assert_eq!(list(1), [4, 5, 2, 3, 0, 1]);
}
