//! Tests of plans with memory that comes later.

extern crate std;

use super::*;
use crate::boot::map::{MemoryMap, PhysAddr, RangeKind, Region};
use crate::policy::split::{BySize, Split};
use crate::types::units::Order;
use std::vec::Vec;

use RangeKind::{Offline, Reserved, Usable};

const GIB: u64 = 1 << 18;

/// First frame, frame after the last, kind, node.
type Frames = (u64, u64, RangeKind, u8);

fn plan(frames: &[Frames], config: Config) -> Result<Plan, PlanError> {
    let mut map = MemoryMap::new();
    for &(start, end, kind, node) in frames {
        let (start, bytes) = (PhysAddr(start << 12), (end - start) << 12);
        map.add(Region { start, bytes, kind, node: NodeId(node) }).unwrap();
    }
    Plan::new(map.sanitise().unwrap(), config, BySize::instances)
}

/// Type, start, end, present, later, in GiB.
fn in_gib(plan: &Plan) -> Vec<(ZoneType, u64, u64, u64, u64)> {
    let zones = plan.zones().iter();
    let gib = |z: &ZoneSpec| [z.start.get(), z.end.get(), z.present, z.later].map(|n| n / GIB);
    zones.map(|z| (z.zone_type, gib(z))).map(|(ty, [a, b, c, d])| (ty, a, b, c, d)).collect()
}

#[test]
fn a_server_with_one_module_of_four() {
    let config = Config { dma_limit: Pfn::new(0), ..Config::new(224) };
    let grows = [(0, 256 * GIB, Usable, 0), (256 * GIB, 1024 * GIB, Offline, 0)];
    let plan = plan(&grows, config).unwrap();
    let expected = [
        (ZoneType::Dma32, 0, 4, 4, 0),
        (ZoneType::Normal, 4, 259, 252, 3),
        (ZoneType::Normal, 259, 514, 0, 255),
        (ZoneType::Normal, 514, 769, 0, 255),
        (ZoneType::Normal, 769, 1024, 0, 255),
    ];
    assert_eq!(in_gib(&plan), expected);
    assert_eq!((plan.managed(), plan.later()), (256 * GIB, 768 * GIB));
    assert!(plan.has_vacant());
    let vacant: Vec<bool> = plan.zones().iter().map(|zone| plan.is_vacant(zone.id)).collect();
    assert_eq!(vacant, [false, false, true, true, true]);
    // What keeps back and what is kept back are as large as what is there.
    assert!(plan.zones()[2..].iter().all(|z| z.watermarks == Watermarks::default()));
    let reserve = plan.zones()[0].lowmem_reserve[ZoneType::Normal.index()];
    assert_eq!(reserve, 252 * GIB / 256);
    // With all of it: as if it had been there.
    let whole = self::plan(&[(0, 1024 * GIB, Usable, 0)], config).unwrap();
    let all = |at: usize| plan.zones()[at].managed + plan.zones()[at].later;
    let shares = plan.shares(all);
    for (at, zone) in whole.zones().iter().enumerate() {
        let marks = shares.marks(plan.config(), zone, all(at));
        assert_eq!((zone.watermarks, zone.lowmem_reserve), (marks.watermarks, marks.reserve));
        let same = &plan.zones()[usize::from(zone.id.0)];
        assert_eq!((zone.start, zone.end), (same.start, same.end));
    }
}

#[test]
fn what_is_there_wins_over_what_may_come() {
    let frames = [
        (0, 0x4000, Offline, 0),
        (0x400, 0x810, Usable, 0),
        (0x1000, 0x1001, Reserved, 0),
        (0x3ff0, 0x4100, Offline, 0),
    ];
    let config = Config { pageblock_order: Order::new(8).unwrap(), ..Config::new(1) };
    let plan = plan(&frames, config).unwrap();
    let ranges = plan.map().ranges().iter();
    let found: Vec<_> = ranges.map(|r| (r.start.get(), r.end.get(), r.kind)).collect();
    let expected = [
        (0, 0x400, Offline),
        (0x400, 0x810, Usable),
        (0x810, 0x900, Reserved),
        (0x900, 0x1000, Offline),
        (0x1000, 0x1100, Reserved),
        (0x1100, 0x4100, Offline),
    ];
    assert_eq!(found, expected);
    assert_eq!(plan.map().report().offline_cut, 0xf0 + 0xff);
    let sum: u64 = plan.ranges_of(ZoneId(0)).map(|range| range.frames()).sum();
    assert_eq!(sum, plan.zones()[0].present + plan.zones()[0].later);
    assert_eq!(plan.zone_at(Pfn::new(0x950)), Some(ZoneId(0)));
}

#[test]
fn something_has_to_be_there() {
    let map = MemoryMap::from_regions(&[Region::offline(PhysAddr(0), 1 << 30)]).unwrap();
    assert!(map.sanitise().is_err(), "nothing usable");
    // All of what is there would be in Movable zones.
    let frames = [(0x1000, 0x2000, Offline, 0), (0x2000, 0x3000, Usable, 0)];
    let config = Config { movable: MovableShare::Frames(0x1000), ..Config::new(1) };
    let error = plan(&frames, config).unwrap_err();
    assert_eq!(error, PlanError::AllMovable { managed: 0x1000 });
}
