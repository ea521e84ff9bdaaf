//! Tests of the memory map.

extern crate std;

mod model;

use super::*;
use crate::types::units::{FRAME_SIZE, Order};
use std::string::ToString;
use std::vec;
use std::vec::Vec;

use RangeKind::{Cma, ReclaimLater, Reserved, Usable};

const FRAME: u64 = FRAME_SIZE as u64;

fn region(start: u64, end: u64, kind: RegionKind, node: u8) -> Region {
    Region { start: PhysAddr(start), bytes: end - start, kind, node: NodeId(node) }
}

/// A region in half frames.
fn halves((start, end, kind, node): (u64, u64, RegionKind, u8)) -> Region {
    region(start * FRAME / 2, end * FRAME / 2, kind, node)
}

fn shorten(map: &SaneMap) -> Vec<(u64, u64, RangeKind, u8)> {
    map.ranges().iter().map(|r| (r.start.get(), r.end.get(), r.kind, r.node.0)).collect()
}

fn sanitise(regions: &[Region]) -> Result<SaneMap, MapError> {
    MemoryMap::from_regions(regions)?.sanitise()
}

/// Regions in half frames, the ranges they make, what the report says of it.
type Row<'a> =
    (&'a str, &'a [(u64, u64, RegionKind, u8)], &'a [(u64, u64, RangeKind, u8)], MapReport);

const SAME: MapReport = MapReport {
    dropped: 0,
    merged: 0,
    trimmed: 0,
    grown: 0,
    overlaps: 0,
    carved: 0,
    foreign: 0,
    cma_widened: 0,
    offline_cut: 0,
};

const RULES: &[Row<'static>] = &[
    (
        "unsorted",
        &[(20, 30, Usable, 0), (0, 10, Usable, 0), (12, 14, Cma, 0)],
        &[(0, 5, Usable, 0), (6, 7, Cma, 0), (10, 15, Usable, 0)],
        SAME,
    ),
    (
        "empty ones are dropped",
        &[(4, 4, Reserved, 0), (0, 10, Usable, 0), (30, 30, Usable, 1)],
        &[(0, 5, Usable, 0)],
        MapReport { dropped: 2, ..SAME },
    ),
    (
        "memory shrinks inwards",
        &[(1, 11, Usable, 0), (21, 31, Cma, 0), (41, 51, ReclaimLater, 0)],
        &[(1, 5, Usable, 0), (11, 15, Cma, 0), (21, 25, ReclaimLater, 0)],
        MapReport { trimmed: 6, ..SAME },
    ),
    (
        "memory without a whole frame is dropped",
        &[(1, 3, Usable, 0), (5, 6, Cma, 0), (10, 20, Usable, 0)],
        &[(5, 10, Usable, 0)],
        MapReport { trimmed: 3, dropped: 2, ..SAME },
    ),
    (
        "reserved grows outwards",
        &[(0, 20, Usable, 0), (5, 7, Reserved, 0)],
        &[(0, 2, Usable, 0), (2, 4, Reserved, 0), (4, 10, Usable, 0)],
        MapReport { grown: 2, overlaps: 2, ..SAME },
    ),
    (
        "a reserved piece of one frame takes that frame",
        &[(0, 20, Usable, 0), (5, 6, Reserved, 0)],
        &[(0, 2, Usable, 0), (2, 3, Reserved, 0), (3, 10, Usable, 0)],
        MapReport { grown: 1, overlaps: 1, ..SAME },
    ),
    (
        "reserved over reclaim-later over CMA over usable",
        &[(0, 40, Usable, 0), (10, 34, Cma, 0), (14, 30, ReclaimLater, 0), (18, 26, Reserved, 0)],
        &[
            (0, 5, Usable, 0),
            (5, 7, Cma, 0),
            (7, 9, ReclaimLater, 0),
            (9, 13, Reserved, 0),
            (13, 15, ReclaimLater, 0),
            (15, 17, Cma, 0),
            (17, 20, Usable, 0),
        ],
        MapReport { overlaps: 12, ..SAME },
    ),
    (
        "memory that is in use in part is in use",
        &[(0, 20, Usable, 0), (20, 24, Cma, 0), (5, 9, ReclaimLater, 0), (13, 14, ReclaimLater, 0)],
        &[
            (0, 2, Usable, 0),
            (2, 5, ReclaimLater, 0),
            (5, 6, Usable, 0),
            (6, 7, ReclaimLater, 0),
            (7, 10, Usable, 0),
            (10, 12, Cma, 0),
        ],
        MapReport { trimmed: 3, overlaps: 1, ..SAME },
    ),
    (
        "what is in use in part, and no memory otherwise, is none",
        &[(0, 9, Usable, 0), (9, 11, ReclaimLater, 0), (12, 13, ReclaimLater, 0)],
        &[(0, 4, Usable, 0)],
        MapReport { trimmed: 4, ..SAME },
    ),
    (
        "overlaps of one kind and node are merged",
        &[(0, 10, Usable, 0), (6, 20, Usable, 0), (8, 12, Usable, 0)],
        &[(0, 10, Usable, 0)],
        MapReport { merged: 2, ..SAME },
    ),
    (
        "so are neighbours",
        &[(10, 20, Usable, 0), (0, 10, Usable, 0)],
        &[(0, 10, Usable, 0)],
        MapReport { merged: 1, ..SAME },
    ),
    (
        "neighbours that share a frame do not lose it",
        &[(0, 5, Usable, 0), (5, 10, Usable, 0)],
        &[(0, 5, Usable, 0)],
        MapReport { merged: 1, ..SAME },
    ),
    (
        "neighbours on different nodes stay apart, and a shared frame is lost",
        &[(0, 5, Usable, 0), (5, 10, Usable, 1)],
        &[(0, 2, Usable, 0), (3, 5, Usable, 1)],
        MapReport { trimmed: 2, ..SAME },
    ),
    (
        "neighbours of different kinds stay apart",
        &[(0, 4, Usable, 0), (4, 8, Cma, 0)],
        &[(0, 2, Usable, 0), (2, 4, Cma, 0)],
        SAME,
    ),
    (
        "an overlap of different kinds leaves usable pieces of the same kind apart",
        &[(0, 20, Usable, 0), (0, 4, Reserved, 3), (16, 20, Reserved, 2)],
        &[(0, 2, Reserved, 3), (2, 8, Usable, 0), (8, 10, Reserved, 2)],
        MapReport { overlaps: 4, ..SAME },
    ),
    (
        "two nodes may list what is reserved anyway",
        &[(0, 20, Usable, 0), (10, 40, Usable, 1), (10, 20, Reserved, 0)],
        &[(0, 5, Usable, 0), (5, 10, Reserved, 0), (10, 20, Usable, 1)],
        MapReport { overlaps: 5, ..SAME },
    ),
    (
        "two nodes may reserve the same; the lower is noted",
        &[(0, 20, Usable, 0), (10, 14, Reserved, 2), (12, 16, Reserved, 1)],
        &[(0, 5, Usable, 0), (5, 6, Reserved, 2), (6, 8, Reserved, 1), (8, 10, Usable, 0)],
        MapReport { overlaps: 3, ..SAME },
    ),
    (
        "reserved regions swallow memory whole",
        &[(0, 4, Usable, 0), (10, 14, Usable, 0), (8, 20, Reserved, 0)],
        &[(0, 2, Usable, 0), (4, 10, Reserved, 0)],
        MapReport { overlaps: 2, ..SAME },
    ),
];

#[test]
fn every_rule() {
    for &(name, regions, ranges, report) in RULES {
        let regions: Vec<Region> = regions.iter().copied().map(halves).collect();
        let map = sanitise(&regions).unwrap();
        assert_eq!(shorten(&map), ranges, "{name}");
        assert_eq!(map.report(), report, "{name}");
        let reversed: Vec<Region> = regions.into_iter().rev().collect();
        assert_eq!(sanitise(&reversed).unwrap(), map, "{name}, in reverse");
    }
}

#[test]
fn a_region_within_one_frame_touches_one_frame() {
    let usable = region(0x4000, 0x8000, Usable, 0);
    let map = sanitise(&[usable, region(0x1100, 0x1200, Usable, 0)]).unwrap();
    assert_eq!(map.report(), MapReport { dropped: 1, trimmed: 1, ..SAME });
    let map = sanitise(&[usable, region(0x1100, 0x1200, Reserved, 0)]).unwrap();
    assert_eq!(map.report(), MapReport { grown: 1, ..SAME });
    assert_eq!(shorten(&map), [(1, 2, Reserved, 0), (4, 8, Usable, 0)]);
}

#[test]
fn errors_say_where() {
    let full: Vec<Region> =
        (0..=MAX_RANGES as u64).map(|n| region(n * 8192, n * 8192 + 4096, Usable, 0)).collect();
    // 129 usable regions, 127 holes punched into the first: 127 + 128 + 128 ranges.
    let mut split = vec![region(0, 256 * FRAME, Usable, 0)];
    split.extend((0..127).map(|n| region((2 * n + 1) * FRAME, (2 * n + 2) * FRAME, Reserved, 0)));
    split.extend((0..128).map(|n| region((2 * n + 512) * FRAME, (2 * n + 513) * FRAME, Usable, 0)));
    let usable = region(0, 16 * FRAME, Usable, 0);
    let huge = Region::usable(PhysAddr(u64::MAX - 4094), 4096);
    let table: [(&[Region], MapError, &str); 8] = [
        (&full, MapError::TooManyRegions { start: PhysAddr(0x20_0000) }, "region at 0x200000"),
        (&split, MapError::TooManyRanges { start: Pfn::new(0x202) }, "range at 0x202000"),
        (
            &[usable, huge],
            MapError::AddressOverflow { start: huge.start, bytes: 4096 },
            "region at 0xfffffffffffff001 with 0x1000 bytes",
        ),
        (
            &[usable, region(0x5000, 0x6000, Reserved, 16)],
            MapError::NoSuchNode { node: NodeId(16), start: PhysAddr(0x5000) },
            "0x5000 is on node 16, but nodes go from 0 to 15",
        ),
        (
            &[usable, region(0x5000, 0x7000, Cma, 1)],
            MapError::NodeConflict {
                frames: PfnRange::new(Pfn::new(5), Pfn::new(7)),
                nodes: [NodeId(0), NodeId(1)],
            },
            "nodes 0 and 1 both list the memory from 0x5000 to 0x6fff",
        ),
        (&[], MapError::NothingUsable { regions: 0 }, "none of the 0 memory regions"),
        (
            &[usable, region(0, 32 * FRAME, Reserved, 0)],
            MapError::NothingUsable { regions: 2 },
            "none of the 2 memory regions",
        ),
        (
            &[region(0, 16 * FRAME, ReclaimLater, 0)],
            MapError::NothingUsable { regions: 1 },
            "whole usable frame of 4096 bytes",
        ),
    ];
    for (regions, error, message) in table {
        assert_eq!(sanitise(regions), Err(error));
        assert!(error.to_string().contains(message), "{error}");
    }
}

#[test]
fn a_region_may_end_where_the_address_space_does() {
    let top = Region::usable(PhysAddr(0_u64.wrapping_sub(8192)), 8192);
    let map = sanitise(&[top, Region::reserved(PhysAddr(u64::MAX), 1)]).unwrap();
    let last = (1 << 52) - 1;
    assert_eq!(shorten(&map), [(last - 1, last, Usable, 0), (last, last + 1, Reserved, 0)]);
    assert!(sanitise(&[Region { bytes: 8193, ..top }]).is_err());
}

#[test]
fn a_refused_region_changes_nothing() {
    let mut map = MemoryMap::from_regions(&[Region::usable(PhysAddr(0), 4096)]).unwrap();
    let before = map.clone();
    assert!(map.add(Region::usable(PhysAddr(0), 4096).on(NodeId(200))).is_err());
    assert!(map.add(Region::usable(PhysAddr(2), u64::MAX)).is_err());
    assert_eq!(map, before);
    for _ in 1..MAX_RANGES {
        map.add(Region::default()).unwrap();
    }
    let before = map.clone();
    assert!(matches!(map.add(Region::default()), Err(MapError::TooManyRegions { .. })));
    assert_eq!(map, before);
}

#[test]
fn questions() {
    let frames = |(start, end, kind, node)| region(start * FRAME, end * FRAME, kind, node);
    let map = [(4, 8, Reserved, 0), (8, 2000, Usable, 0), (2100, 2108, ReclaimLater, 1)];
    let mut map: Vec<Region> = map.into_iter().map(frames).collect();
    map.push(frames((2000, 2050, Cma, 0)));
    let map = sanitise(&map).unwrap();
    let kinds = [
        (0, None),
        (3, None),
        (4, Some(Reserved)),
        (7, Some(Reserved)),
        (8, Some(Usable)),
        (1999, Some(Usable)),
        (2000, Some(Cma)),
        (2050, None),
        (2107, Some(ReclaimLater)),
        (2108, None),
        (u64::MAX, None),
    ];
    for (pfn, kind) in kinds {
        assert_eq!(map.kind_at(Pfn::new(pfn)), kind, "{pfn}");
    }
    assert_eq!(map.frames_usable(), 2042);
    assert_eq!(map.usable().count(), 2);
    assert_eq!(map.span(), PfnRange::new(Pfn::new(8), Pfn::new(2108)));
    assert_eq!(map.table_span(Order::HUGE), PfnRange::new(Pfn::new(0), Pfn::new(2560)));
}

/// 0..100 and 200..300 on node 0, CMA 300..320, 400..500 on node 1.
fn for_carving() -> SaneMap {
    let frames =
        [(0, 100, Usable, 0), (200, 300, Usable, 0), (300, 320, Cma, 0), (400, 500, Usable, 1)];
    let regions = frames.map(|(s, e, kind, node)| region(s * FRAME, e * FRAME, kind, node));
    sanitise(&regions).unwrap()
}

#[test]
fn carving_takes_the_highest_that_fits() {
    // bytes, align, node, below, start, end
    let table = [
        (4096, 0, None, None, 499, 500),
        (4097, 0, None, None, 498, 500),
        (4096 * 100, 0, None, None, 400, 500),
        (4096 * 10, 4, None, None, 480, 490),
        (4096 * 10, 0, Some(0), None, 290, 300),
        (4096 * 10, 0, None, Some(295), 285, 295),
        (4096 * 10, 0, None, Some(205), 90, 100),
        (4096 * 60, 6, None, None, 0, 60),
        (4096 * 60, 5, None, None, 416, 476),
    ];
    for (bytes, align, node, below, start, end) in table {
        let mut map = for_carving();
        let align = Order::new(align).unwrap();
        let taken = map.carve(bytes, align, node.map(NodeId), below.map(Pfn::new)).unwrap();
        assert_eq!(taken, PfnRange::new(Pfn::new(start), Pfn::new(end)));
        assert_eq!(map.report().carved, end - start);
        assert_eq!(map.frames_usable(), for_carving().frames_usable() - (end - start));
        for pfn in [start, end - 1] {
            assert_eq!(map.kind_at(Pfn::new(pfn)), Some(Reserved));
        }
        for pfn in (0..600).filter(|pfn| !(start..end).contains(pfn)).map(Pfn::new) {
            assert_eq!(map.kind_at(pfn), for_carving().kind_at(pfn), "{pfn}");
        }
    }
}

#[test]
fn carvings_beside_each_other_are_one_range() {
    let mut map = for_carving();
    for n in 1..=10 {
        let taken = map.carve(4096, Order::ZERO, None, None).unwrap();
        assert_eq!(taken.start, Pfn::new(500 - n));
    }
    assert_eq!(map.ranges().len(), 5);
    assert_eq!(map.report().carved, 10);
}

/// Bytes, alignment, node, below.
type Wish = (u64, u8, Option<u8>, Option<u64>);

#[test]
fn carving_fails_without_a_trace() {
    let none = MapError::NoRoom {
        frames: 101,
        align: Order::ZERO,
        node: None,
        below: None,
        largest_frames: 100,
    };
    let far = MapError::NoRoom {
        frames: 2,
        align: Order::HUGE,
        node: Some(NodeId(1)),
        below: Some(Pfn::new(0x195)),
        largest_frames: 5,
    };
    let nowhere = MapError::NoRoom {
        frames: 1,
        align: Order::ZERO,
        node: Some(NodeId(9)),
        below: None,
        largest_frames: 0,
    };
    let table: [(Wish, MapError, &str); 4] = [
        ((0, 0, None, None), MapError::CarveNothing, "0 bytes"),
        ((101 << 12, 0, None, None), none, "range has room for 101 frames aligned to 0x1000"),
        (
            (8192, 9, Some(1), Some(0x195)),
            far,
            "on node 1 below 0x195000 has room for 2 frames aligned to 0x200000 bytes; the \
             largest has 5 frames",
        ),
        ((1, 0, Some(9), None), nowhere, "on node 9 has room for 1 frames"),
    ];
    let mut map = for_carving();
    for ((bytes, align, node, below), error, message) in table {
        let align = Order::new(align).unwrap();
        let result = map.carve(bytes, align, node.map(NodeId), below.map(Pfn::new));
        assert_eq!(result, Err(error));
        assert!(error.to_string().contains(message), "{error}");
        assert_eq!(map, for_carving());
    }
    assert!(map.carve(u64::MAX, Order::MAX, None, None).is_err());

    let many: Vec<Region> =
        (0..256).map(|n| region(n * 8 * FRAME, (n * 8 + 5) * FRAME, Usable, 0)).collect();
    let mut map = sanitise(&many).unwrap();
    let before = map.clone();
    let error = map.carve(FRAME, Order::ZERO, None, None).unwrap_err();
    assert!(matches!(error, MapError::TooManyRanges { .. }));
    assert_eq!(map, before);
    // A whole range can still change its kind.
    map.carve(5 * FRAME, Order::ZERO, None, None).unwrap();
}

#[test]
fn regions_can_be_a_constant() {
    const MAP: Result<MemoryMap, MapError> =
        MemoryMap::from_regions(&[Region::usable(PhysAddr(0), 8192).on(NodeId(2))]);
    assert_eq!(shorten(&MAP.unwrap().sanitise().unwrap()), [(0, 2, Usable, 2)]);
}
