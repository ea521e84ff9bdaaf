//! Pages by their number: any count, any part, just these, within bounds; and memory that is released
//! in parts.

use std::collections::BTreeMap;
use std::ops::Range;
use zonal::error::{ContiguousError, FreeError, RangeError, ResizeError};
use zonal::info::ZoneInfo;
use zonal::map::{PhysAddr, Region};
use zonal::plan::Config;
use zonal::policy::Policy;
use zonal::units::FRAME_SIZE;
use zonal::watermark::Watermarks;
use zonal::zone_type::NR_ZONE_TYPES;
use zonal::{Bounds, MigrateType, Order, Pfn, Request, ZoneId};
use zonal_testkit::checkers::{Rules, check_all, check_faults};
use zonal_testkit::host::TestHost;
use zonal_testkit::model::Model;
use zonal_testkit::mover::Moving;
use zonal_testkit::probe::Probe;
use zonal_testkit::shape::{self, Shape};
use zonal_testkit::snapshot::Snapshot;
use zonal_testkit::world::{World, with_plan, with_world};

type W<'m, S> = World<'m, Probe, S>;
const FRAME: Request = Request::frame();

fn with<S: Policy>(shape: Shape, f: impl FnOnce(&W<'_, S>)) {
    with_world::<Probe, S, _>(shape, f);
}

fn pfns(start: u64, end: u64) -> Range<Pfn> {
    Pfn::new(start)..Pfn::new(end)
}

/// All invariants, with these single frames out and these released.
fn check<S: Policy>(world: &W<'_, S>, out: &[Range<u64>], released: &[Range<u64>]) -> Snapshot {
    let allocator = &world.allocator;
    let mut model = Model::new(allocator.plan());
    for pfn in released.iter().cloned().flatten().map(Pfn::new) {
        model.release(pfn, allocator.pageblock_of(pfn).expect("it is a zone's").0);
    }
    out.iter().cloned().flatten().for_each(|pfn| model.insert(Pfn::new(pfn), Order::ZERO));
    let snapshot = Snapshot::of(allocator);
    check_faults(&allocator.platform().faults()).unwrap();
    check_all(&snapshot, &model, &Rules::of::<S>()).unwrap();
    snapshot
}

fn lists(snapshot: &Snapshot) -> Vec<String> {
    let mut found: Vec<_> = snapshot.found.iter().map(|block| format!("{block:?}")).collect();
    found.sort_unstable();
    found
}

fn any_part_is_freed<S: Policy>() {
    with::<S>(Shape::Flat, |world| {
        let allocator = &world.allocator;
        for (count, align) in [(1, 1), (1, 8), (3, 1), (12, 4), (31, 32), (65, 64), (1030, 2)] {
            let bounds = Bounds::ANY.aligned(align);
            let start = allocator.alloc_pages(count, &FRAME, &bounds).unwrap().get();
            assert!(start.is_multiple_of(align), "{start:#x} by {align}");
            check(world, std::slice::from_ref(&(start..start + count)), &[]);
            // The middle, the end, then the start, frame by frame.
            let (third, end) = (start + count / 3, start + count);
            let two = start + 2 * count / 3;
            if two > third {
                allocator.free_pages(Pfn::new(third), two - third).unwrap();
            }
            check(world, &[start..third, two..end], &[]);
            allocator.free_pages(Pfn::new(two), end - two).unwrap();
            check(world, std::slice::from_ref(&(start..third)), &[]);
            for pfn in start..third {
                allocator.free_pages(Pfn::new(pfn), 1).unwrap();
            }
            allocator.drain_all();
            let zones = check(world, &[], &[]).zones;
            assert_eq!(zones.iter().map(|zone| zone.free).sum::<u64>(), 2048);
        }
    });
}

/// Of every order: the frames are allocated by themselves, any part is freed, and all merge again.
fn blocks_are_split<S: Policy>() {
    with::<S>(Shape::Flat, |world| {
        let allocator = &world.allocator;
        for order in Order::all() {
            let first = allocator.alloc_raw(&Request::new(order)).unwrap();
            let (start, end) = (first.get(), first.get() + order.frames());
            let before = Snapshot::of(allocator).without_holds();
            let next = Order::new(order.get().checked_sub(1).unwrap_or(1)).unwrap();
            let wrong = allocator.split(first, next).unwrap_err();
            assert!(matches!(wrong, FreeError::WrongOrder { .. }), "{wrong}");
            if order > Order::ZERO {
                let wrong = allocator.split(Pfn::new(start + 1), Order::ZERO).unwrap_err();
                assert!(matches!(wrong, FreeError::Inner { .. }), "{wrong}");
            }
            assert_eq!(Snapshot::of(allocator).without_holds(), before, "nothing has changed");
            allocator.split(first, order).unwrap();
            check(world, std::slice::from_ref(&(start..end)), &[]);
            if order > Order::ZERO {
                allocator.free_raw(first, order).expect_err("it is a block no more");
            }
            // Every third, as a list, then the others one by one.
            let (list, rest): (Vec<u64>, Vec<u64>) = (start..end).partition(|pfn| pfn % 3 == 1);
            let list: Vec<Pfn> = list.into_iter().map(Pfn::new).collect();
            assert_eq!(allocator.free_bulk(&list).refused, 0);
            let out: Vec<_> = rest.iter().map(|&pfn| pfn..pfn + 1).collect();
            check(world, &out, &[]);
            for pfn in rest.into_iter().map(Pfn::new) {
                allocator.free_raw(pfn, Order::ZERO).unwrap();
            }
            assert!(allocator.split(first, Order::ZERO).is_err(), "it is free");
            allocator.drain_all();
            let zones = check(world, &[], &[]).zones;
            assert_eq!(zones.iter().map(|zone| zone.free).sum::<u64>(), 2048);
        }
        let foreign = allocator.split(Pfn::new(u64::MAX >> 12), Order::ZERO).unwrap_err();
        assert!(matches!(foreign, FreeError::Foreign { .. }), "{foreign}");
    });
}

fn wrong_frees_change_nothing<S: Policy>() {
    with::<S>(Shape::Flat, |world| {
        let allocator = &world.allocator;
        let start = allocator.alloc_pages(20, &FRAME, &Bounds::ANY).unwrap();
        let block = allocator.alloc_raw(&Request::new(shape::order(2))).unwrap();
        let at = |n: u64| Pfn::new(start.get() + n);
        allocator.free_pages(at(7), 3).unwrap();
        let states = |world: &W<'_, S>| Snapshot::of(&world.allocator).without_holds();
        let before = states(world);
        let end = allocator.plan().base().get() + allocator.plan().frames();
        let table = [
            (at(0), 0, RangeError::Empty),
            (at(0), 20, RangeError::NotAllocated { pfn: at(7) }),
            (at(8), 1, RangeError::NotAllocated { pfn: at(8) }),
            (at(9), 2, RangeError::NotAllocated { pfn: at(9) }),
            (block, 4, RangeError::NotAllocated { pfn: block }),
            (block, 1, RangeError::NotAllocated { pfn: block }),
            (Pfn::new(end - 1), 2, RangeError::Frame(FreeError::Foreign { pfn: Pfn::new(end) })),
            (
                Pfn::new(u64::MAX),
                2,
                RangeError::Frame(FreeError::Foreign { pfn: Pfn::new(u64::MAX) }),
            ),
        ];
        for (pfn, count, error) in table {
            assert_eq!(allocator.free_pages(pfn, count), Err(error), "{pfn} {count}");
            assert_eq!(states(world), before, "{pfn} {count}");
        }
        allocator.free_pages(at(0), 7).unwrap();
        allocator.free_pages(at(10), 10).unwrap();
        allocator.free_raw(block, shape::order(2)).unwrap();
        check(world, &[], &[]);
    });
}

/// All that a bound leaves can be had, wherever the pageblocks begin, and nothing else.
fn bounds_are_kept_and_used<S: Policy>() {
    let config = Config { lowmem_ratio: [0; NR_ZONE_TYPES], ..Shape::Low.config() };
    let plan = shape::plan::<S>(&Shape::Low.regions(), config);
    with_plan::<Probe, S, _>(Shape::Low, &plan, |world| {
        let allocator = &world.allocator;
        for (limit, count) in [(0x9f, 3), (0x9f, 1), (0x101, 8), (0x3fd, 5), (0x7ff, 33)] {
            let bounds = Bounds::ANY.below(Pfn::new(limit));
            let mut out = Vec::new();
            while let Ok(start) = allocator.alloc_pages(count, &FRAME, &bounds) {
                assert!(start.get() + count <= limit, "{start} is beyond {limit:#x}");
                out.push(start.get()..start.get() + count);
            }
            check(world, &out, &[]);
            assert!(longest(world, limit) < count, "{count} frames in a row are free");
            for range in out {
                allocator.free_pages(Pfn::new(range.start), count).unwrap();
            }
            check(world, &[], &[]);
        }
        let odd = allocator.alloc_pages(2, &FRAME, &Bounds::ANY.aligned(3)).unwrap_err();
        assert_eq!(odd, ContiguousError::BadAlignment { frames: 3 });
        let none = allocator.alloc_pages(2, &FRAME, &Bounds::ANY.below(Pfn::new(1))).unwrap_err();
        assert_eq!(none, ContiguousError::NoRange { frames: 2, tried: 0, last: None });
        let giant = allocator.alloc_pages(2, &FRAME, &Bounds::ANY.aligned(1 << 40)).unwrap();
        assert_eq!(giant, Pfn::new(0));
        allocator.free_pages(giant, 2).unwrap();
        let giant = Bounds::ANY.aligned(1 << 63);
        let held = allocator.alloc_pages(1, &FRAME, &giant).unwrap();
        assert!(allocator.alloc_pages(1, &FRAME, &giant).is_err(), "there is one such frame");
        allocator.free_pages(held, 1).unwrap();
        check(world, &[], &[]);
    });
}

/// Which frames below a limit are free, after all caches are empty.
fn free_below<S: Policy>(world: &W<'_, S>, limit: u64) -> Vec<bool> {
    world.allocator.drain_all();
    let mut free = vec![false; limit as usize];
    for found in Snapshot::of(&world.allocator).found {
        let start = found.pfn.get();
        (start..start + found.place.order().frames())
            .filter(|&pfn| pfn < limit)
            .for_each(|pfn| free[pfn as usize] = true);
    }
    free
}

fn longest<S: Policy>(world: &W<'_, S>, limit: u64) -> u64 {
    let free = free_below(world, limit);
    free.split(|&free| !free).map(|run| run.len() as u64).max().unwrap_or(0)
}

fn just_these_frames<S: Policy>() {
    with::<S>(Shape::Flat, |world| {
        let allocator = &world.allocator;
        allocator.platform().movers().set(Moving::Obeys);
        let movable = FRAME.migrate(MigrateType::Movable);
        let used = allocator.alloc_raw(&movable).unwrap();
        allocator.platform().movers().adopt(used, Order::ZERO, 1);
        // Frames in caches are free.
        let cached: Vec<_> = (0..9).map(|_| allocator.alloc_raw(&FRAME).unwrap()).collect();
        cached.iter().for_each(|&pfn| allocator.free_raw(pfn, Order::ZERO).unwrap());
        let out = |pfn: Pfn| pfn.get()..pfn.get() + 1;
        check(world, &[out(used)], &[]);
        for &pfn in &cached {
            let token = allocator.alloc_at(pfn..Pfn::new(pfn.get() + 1)).unwrap();
            check(world, &[out(used), out(pfn)], &[]);
            allocator.free_contiguous(token).unwrap();
        }
        allocator.drain_all();
        let before = lists(&check(world, &[out(used)], &[]));
        for range in [pfns(used.get(), used.get() + 1), pfns(0x1000, 0x1800)] {
            let error = allocator.alloc_at(range).unwrap_err();
            assert_eq!(error, RangeError::InUse { pfn: used }, "nothing is moved");
            assert_eq!(lists(&check(world, &[out(used)], &[])), before);
        }
        // The same for a frame that could not be moved.
        let fixed = allocator.alloc_raw(&FRAME).unwrap();
        let error = allocator.alloc_at(fixed..Pfn::new(fixed.get() + 1)).unwrap_err();
        assert_eq!(error, RangeError::InUse { pfn: fixed });
        allocator.free_raw(fixed, Order::ZERO).unwrap();
        allocator.free_raw(used, Order::ZERO).unwrap();
        let all = allocator.alloc_at(pfns(0x1000, 0x1800)).unwrap();
        check(world, std::slice::from_ref(&(0x1000..0x1800)), &[]);
        allocator.free_contiguous(all).unwrap();
        check(world, &[], &[]);
    });
}

/// Usable frames 0x1000 to 0x1800 with an image in the middle and a hole, and a node that has nothing but
/// what is reclaimed later.
fn machine<S: Policy>(f: impl FnOnce(&W<'_, S>)) {
    let size = FRAME_SIZE as u64;
    let at = |start: u64, frames: u64| Region::usable(PhysAddr(start * size), frames * size);
    let regions = [
        at(0x1000, 0x400),
        Region { kind: zonal::map::RegionKind::Reserved, ..at(0x1123, 0x100) },
        at(0x1500, 0x300),
        Region { kind: zonal::map::RegionKind::ReclaimLater, ..at(0x1804, 0x40) }
            .on(zonal::NodeId(1)),
    ];
    let config: Config = Shape::TwoNodes.config();
    let plan = shape::plan::<S>(&regions, config);
    with_plan::<Probe, S, _>(Shape::TwoNodes, &plan, f);
}

fn memory_comes_back_in_parts<S: Policy>() {
    machine::<S>(|world| {
        let allocator = &world.allocator;
        let managed = || -> u64 {
            (0..allocator.zone_count() as u8)
                .map(|zone| allocator.zone_info(ZoneId(zone)).unwrap().managed)
                .sum()
        };
        let mut released: Vec<Range<u64>> = Vec::new();
        let before = managed();
        check(world, &[], &released);
        // Of the image: a part of a pageblock, several whole ones, and the rest; of the hole some; all of the
        // initial ramdisk.
        for range in [
            0x1123..0x1130,
            0x1140..0x11a1,
            0x1130..0x1140,
            0x11a1..0x1223,
            0x1410..0x1430,
            0x1804..0x1805,
            0x1805..0x1844,
        ] {
            let wanted = range.end - range.start;
            assert_eq!(allocator.release(pfns(range.start, range.end)), Ok(wanted), "{range:x?}");
            released.push(range.clone());
            check(world, &[], &released);
            let again = ResizeError::Online { pfn: Pfn::new(range.start) };
            assert_eq!(allocator.release(pfns(range.start, range.end)), Err(again));
        }
        assert_eq!(allocator.release_reclaim_later(), 0, "all of it was released");
        let gained: u64 = released.iter().map(|range| range.end - range.start).sum();
        assert_eq!(managed() - before, gained);
        // Every one of them is handed out, once.
        let mut out = BTreeMap::new();
        while let Ok(pfn) = allocator.alloc_raw(&FRAME) {
            assert_eq!(out.insert(pfn.get(), ()), None);
        }
        assert!(released.iter().cloned().flatten().all(|pfn| out.contains_key(&pfn)));
        assert_eq!(out.len() as u64, managed());
        out.into_keys().for_each(|pfn| allocator.free_raw(Pfn::new(pfn), Order::ZERO).unwrap());
        allocator.drain_all();
        let zones = check(world, &[], &released).zones;
        assert!(zones.iter().all(|zone| zone.merge_skipped == 0), "also in what was released");
    });
}

/// Memory that is released to a zone without any gives that zone its watermarks; those of others stay as
/// they were set.
fn watermarks_of_others_stay<S: Policy>() {
    machine::<S>(|world| {
        let allocator = &world.allocator;
        let marks = |zone: &ZoneInfo| zone.watermarks;
        let zones =
            || (0..allocator.zone_count() as u8).filter_map(|id| allocator.zone_info(ZoneId(id)));
        let (vacant, others): (Vec<_>, Vec<_>) = zones().partition(|zone| zone.managed == 0);
        assert!(vacant.len() == 1 && !others.is_empty());
        let set = Watermarks { min: 7, low: 8, high: 9 };
        for zone in zones() {
            assert!(allocator.set_watermarks(zone.zone, set));
        }
        assert_eq!(allocator.release(pfns(0x1804, 0x1844)), Ok(0x40));
        for zone in zones() {
            assert_eq!(marks(&zone) == set, zone.zone != vacant[0].zone, "{zone:?}");
        }
    });
}

/// A range that needs frames moved may end in a pageblock that the limit cuts, and not behind the limit.
fn ranges_end_where_the_limit_cuts<S: Policy>() {
    with::<S>(Shape::Flat, |world| {
        let (allocator, movers) = (&world.allocator, world.allocator.platform().movers());
        movers.set(Moving::Obeys);
        let movable = FRAME.migrate(MigrateType::Movable);
        let held: Vec<_> = std::iter::from_fn(|| allocator.alloc_raw(&movable).ok()).collect();
        for pfn in held {
            // Two pageblocks of 32 frames and the half of a third, with a page in each.
            if pfn.get() % 32 == 3 && pfn.get() < 0x1060 || (0x1060..0x1200).contains(&pfn.get()) {
                movers.adopt(pfn, Order::ZERO, pfn.get());
            } else {
                allocator.free_raw(pfn, Order::ZERO).unwrap();
            }
        }
        allocator.drain_all();
        let bounds = Bounds::ANY.below(Pfn::new(0x1050));
        let start = allocator.alloc_pages(80, &movable, &bounds).unwrap();
        assert_eq!(start, Pfn::new(0x1000));
        allocator.free_pages(start, 80).unwrap();
        let one_more = allocator.alloc_pages(81, &movable, &bounds);
        assert!(matches!(one_more, Err(ContiguousError::NoRange { .. })), "{one_more:?}");
        for (pfn, order, _) in movers.blocks() {
            allocator.free_raw(pfn, order).unwrap();
        }
        allocator.drain_all();
        check(world, &[], &[]);
    });
}

fn what_cannot_be_released<S: Policy>() {
    machine::<S>(|world| {
        let allocator = &world.allocator;
        let before = check(world, &[], &[]);
        let (base, end) = (
            allocator.plan().base().get(),
            allocator.plan().base().get() + allocator.plan().frames(),
        );
        let online = |pfn| ResizeError::Online { pfn: Pfn::new(pfn) };
        let range = |error| ResizeError::Range(error);
        let table = [
            (pfns(0x1100, 0x1100), range(RangeError::Empty)),
            (
                pfns(base - 1, base + 1),
                range(RangeError::Frame(FreeError::Foreign { pfn: Pfn::new(base - 1) })),
            ),
            (
                pfns(end - 1, end + 1),
                range(RangeError::Frame(FreeError::Foreign { pfn: Pfn::new(end) })),
            ),
            (pfns(0x1122, 0x1130), online(0x1122)),
            (pfns(0x1200, 0x1224), online(0x1223)),
            (pfns(0x13ff, 0x1410), online(0x13ff)),
            (pfns(0x14f0, 0x1501), online(0x1500)),
        ];
        for (range, error) in table {
            assert_eq!(allocator.release(range.clone()), Err(error), "{range:x?}");
            assert_eq!(check(world, &[], &[]).without_holds(), before.without_holds());
        }
        // Frees of what is withheld say what it is.
        let free = |pfn| allocator.free_raw(Pfn::new(pfn), Order::ZERO).unwrap_err();
        let pfn = Pfn::new;
        assert_eq!(free(0x1125), zonal::FreeError::Reserved { pfn: pfn(0x1125) });
        assert_eq!(free(0x1405), zonal::FreeError::Hole { pfn: pfn(0x1405) });
        assert_eq!(free(0x1804), zonal::FreeError::Reserved { pfn: pfn(0x1804) });
        assert_eq!(free(0x1802), zonal::FreeError::Hole { pfn: pfn(0x1802) });
        assert_eq!(allocator.release_reclaim_later(), 0x40);
        let double = zonal::FreeError::DoubleFree { pfn: pfn(0x1804), order: Order::ZERO };
        assert_eq!(free(0x1804), double, "it is free now");
    });
    with::<S>(Shape::Later, |world| {
        let offline = RangeError::Frame(FreeError::Offline { pfn: Pfn::new(0x1a00) }).into();
        assert_eq!(world.allocator.release(pfns(0x1a00, 0x1a20)), Err(offline));
    });
}

macro_rules! over_presets {
    ($($module:ident: $preset:ty;)*) => {$(
        mod $module {
            #[test]
            fn blocks_are_split_into_frames() {
                super::blocks_are_split::<$preset>();
            }
            #[test]
            fn any_part_of_what_was_allocated_is_freed() {
                super::any_part_is_freed::<$preset>();
            }
            #[test]
            fn wrong_frees_of_pages_change_nothing() {
                super::wrong_frees_change_nothing::<$preset>();
            }
            #[test]
            fn bounds_are_kept_and_used() {
                super::bounds_are_kept_and_used::<$preset>();
            }
            #[test]
            fn just_these_frames_or_none() {
                super::just_these_frames::<$preset>();
            }
            #[test]
            fn memory_comes_back_in_parts() {
                super::memory_comes_back_in_parts::<$preset>();
            }
            #[test]
            fn watermarks_of_others_stay() {
                super::watermarks_of_others_stay::<$preset>();
            }
            #[test]
            fn ranges_end_where_the_limit_cuts() {
                super::ranges_end_where_the_limit_cuts::<$preset>();
            }
            #[test]
            fn what_cannot_be_released() {
                super::what_cannot_be_released::<$preset>();
            }
        }
    )*};
}

with_presets!(over_presets);
