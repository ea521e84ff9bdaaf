//! What is planned in place is what is planned by value.

use super::{Config, Draft, MovableShare, Plan, PlanError};
use crate::boot::map::{MapError, MemoryMap, PfnRange, PhysAddr, Range, Region, RegionKind};
use crate::types::units::{NodeId, Order, Pfn};
use crate::types::zone_type::ZoneType;

const MIB: u64 = 1 << 20;

/// A machine of two nodes, with firmware in the middle of it.
fn machine() -> MemoryMap {
    let usable = |start, end, node| Region::usable(PhysAddr(start), end - start).on(NodeId(node));
    MemoryMap::from_regions(&[
        usable(4096 * MIB, 8192 * MIB, 1),
        usable(0, 2048 * MIB, 0),
        Region::reserved(PhysAddr(0x9_fc00), 0x6_0400),
        Region { kind: RegionKind::Cma, ..usable(64 * MIB + 4096, 96 * MIB, 0) },
        usable(2048 * MIB, 3072 * MIB + 4096, 1),
    ])
    .unwrap()
}

fn draft_of(map: &MemoryMap, config: &Config) -> Draft {
    let mut draft = Draft::new();
    // What was planned before leaves nothing behind.
    for map in [&machine(), map] {
        map.regions().iter().for_each(|&region| draft.regions().add(region).unwrap());
        assert_eq!(*draft.sanitise().unwrap(), map.sanitise().unwrap());
        draft.plan(config, |_, _, _| 2).unwrap();
    }
    draft
}

#[test]
fn in_place_is_by_value() {
    let small = MemoryMap::from_regions(&[Region::usable(PhysAddr(0), 64 * MIB)]).unwrap();
    let config = Config::new(3);
    for map in [machine(), small] {
        let plan = Plan::new(map.sanitise().unwrap(), config, |_, _, _| 2).unwrap();
        assert_eq!(*draft_of(&map, &config).planned(), plan);
        let mut copied = Draft::new();
        copied.set_map(map.sanitise().unwrap());
        assert_eq!(*copied.plan(&config, |_, _, _| 2).unwrap(), plan);
    }
}

/// Carving after planning leaves each zone what planning after carving would, whichever zones lose.
#[test]
fn carved_afterwards_is_carved_before() {
    let config = Config::new(3);
    let (node, below) = (Some(NodeId(0)), Some(Pfn::containing(1000 * MIB)));
    let high = Some(Pfn::containing(16 * MIB + 4096));
    for (bytes, node, below) in
        [(MIB, None, None), (5 * MIB - 1, node, below), (1, node, None), (9 * MIB, None, high)]
    {
        let mut map = machine().sanitise().unwrap();
        let before = map.carve(bytes, Order::ZERO, node, below).unwrap();
        let wanted = Plan::new(map, config, |_, _, _| 1).unwrap();
        let mut draft = Draft::new();
        draft.set_map(machine().sanitise().unwrap());
        draft.plan(&config, |_, _, _| 1).unwrap();
        assert_eq!(draft.carve(bytes, node, below).unwrap(), before);
        let plan = draft.planned();
        assert_eq!(plan.map(), wanted.map());
        assert_eq!(plan.zones().len(), wanted.zones().len());
        for (zone, wanted) in plan.zones().iter().zip(wanted.zones()) {
            assert_eq!((zone.present, zone.managed), (wanted.present, wanted.managed));
            assert_eq!(zone.watermarks, wanted.watermarks);
            assert_eq!(zone.lowmem_reserve, wanted.lowmem_reserve);
            assert!(zone.start <= wanted.start && zone.end >= wanted.end);
            let frames: u64 = plan.ranges_of(zone.id).map(|range| range.frames()).sum();
            assert_eq!(frames, zone.present + zone.later);
        }
    }
}

/// Tables cannot move: they lie beside the Movable zone, which keeps what was asked for; in it only
/// where there is nothing else.
#[test]
fn movable_zones_are_spared() {
    let map = MemoryMap::from_regions(&[Region::usable(PhysAddr(0), 64 * MIB)]).unwrap();
    let config = |frames| Config { movable: MovableShare::Frames(frames), ..Config::new(1) };
    let managed = |draft: &Draft| {
        let zones = draft.planned().zones().iter();
        zones.clone().find(|zone| zone.zone_type == ZoneType::Movable).unwrap().managed
    };
    let mut draft = Draft::new();
    draft.set_map(map.sanitise().unwrap());
    draft.plan(&config(4096), |_, _, _| 1).unwrap();
    let tables = draft.carve(MIB, None, None).unwrap();
    assert_eq!((tables.end, managed(&draft)), (Pfn::containing(48 * MIB), 4096));
    let tables = draft.carve(48 * MIB, None, None);
    assert!(matches!(tables, Err(PlanError::Map(MapError::NoRoom { .. }))), "{tables:?}");
    draft.set_map(map.sanitise().unwrap());
    draft.plan(&config(12 << 10), |_, _, _| 1).unwrap();
    let tables = draft.carve(17 * MIB, None, None).unwrap();
    assert_eq!(tables.end, Pfn::containing(64 * MIB));
    assert_eq!(managed(&draft), (12 << 10) - tables.frames());
}

#[test]
fn nothing_is_no_plan() {
    let mut draft = Draft::new();
    assert_eq!(draft.planned().zones(), []);
    assert_eq!(draft.sanitise().unwrap_err(), MapError::NothingUsable { regions: 0 });
    assert!(draft.plan(&Config::new(1), |_, _, _| 1).is_err());
    assert!(draft.carve(1, None, None).is_err());
    assert_eq!(draft.planned().map().range_at(Pfn::new(0)), None::<Range>);
    assert_eq!(draft.planned().map().span(), PfnRange::default());
}
