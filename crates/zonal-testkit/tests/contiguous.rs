//! Isolation of pageblocks, and contiguous frames by range and by number.

use std::collections::BTreeMap;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use zonal::error::{AllocReason, ContiguousError, FreeError, RangeError};
use zonal::info::ZoneInfo;
use zonal::policy::Policy;
use zonal::{Contiguous, CpuId, MigrateType, Order, Pfn, Request, ZoneId, ZoneType};
use zonal_testkit::checkers::{Rules, check_all, check_faults};
use zonal_testkit::host::TestHost;
use zonal_testkit::model::Model;
use zonal_testkit::mover::Moving;
use zonal_testkit::probe::Probe;
use zonal_testkit::shape::{Shape, order};
use zonal_testkit::snapshot::Snapshot;
use zonal_testkit::world::{World, with_world};

type W<'m, S> = World<'m, Probe, S>;
const ZONE: ZoneId = ZoneId(0);
const MOVABLE: Request = Request::frame().migrate(MigrateType::Movable);

fn with<S: Policy>(shape: Shape, f: impl FnOnce(&W<'_, S>)) {
    with_world::<Probe, S, _>(shape, f);
}

fn pfns(start: u64, end: u64) -> Range<Pfn> {
    Pfn::new(start)..Pfn::new(end)
}

/// All invariants, with these single frames and blocks out.
fn check<S: Policy>(world: &W<'_, S>, out: &BTreeMap<Pfn, Order>) -> Snapshot {
    let mut model = Model::new(world.allocator.plan());
    out.iter().for_each(|(&pfn, &order)| model.insert(pfn, order));
    let snapshot = Snapshot::of(&world.allocator);
    check_faults(&world.allocator.platform().faults()).unwrap();
    check_all(&snapshot, &model, &Rules::of::<S>()).unwrap();
    snapshot
}

fn all_of(token: &Contiguous, out: &mut BTreeMap<Pfn, Order>) {
    let frames = token.range().start.get()..token.range().end.get();
    frames.for_each(|pfn| assert_eq!(out.insert(Pfn::new(pfn), Order::ZERO), None));
}

/// Allocates until nothing is left; keeps every `keep`th frame, movable by the host.
fn fill<S: Policy>(world: &W<'_, S>, request: &Request, keep: usize) -> BTreeMap<Pfn, Order> {
    let (allocator, mut out) = (&world.allocator, BTreeMap::new());
    let taken: Vec<_> = std::iter::from_fn(|| allocator.alloc_raw(request).ok()).collect();
    for (nth, pfn) in taken.into_iter().enumerate() {
        if nth % keep == 0 {
            allocator.platform().movers().adopt(pfn, request.order(), nth as u64);
            out.insert(pfn, request.order());
        } else {
            allocator.free_raw(pfn, request.order()).unwrap();
        }
    }
    out
}

/// Where the movable pages are now.
fn moved<S: Policy>(world: &W<'_, S>) -> BTreeMap<Pfn, Order> {
    let blocks = world.allocator.platform().movers().blocks();
    blocks.into_iter().map(|(pfn, order, _)| (pfn, order)).collect()
}

/// The blocks of every list as a set: what a failure may not change.
fn lists(snapshot: &Snapshot) -> Vec<String> {
    let mut found: Vec<_> = snapshot.found.iter().map(|block| format!("{block:?}")).collect();
    found.sort_unstable();
    found
}

fn isolation_is_undone<S: Policy>() {
    for shape in [Shape::Flat, Shape::Blocks3, Shape::Whole, Shape::Huge] {
        with::<S>(shape, |world| {
            let allocator = &world.allocator;
            let (mut out, size) =
                (BTreeMap::new(), allocator.plan().config().pageblock_order.frames());
            let base = allocator.plan().base().get();
            let fresh = check(world, &out);
            let range = pfns(base + size, base + 2 * size);
            if shape == Shape::Whole {
                assert_eq!(fresh.found.len(), 2, "untouched");
            }
            let isolated = allocator.isolate(range.clone()).unwrap();
            let zones = check(world, &out).zones;
            let sum = |of: fn(&ZoneInfo) -> u64| zones.iter().map(of).sum::<u64>();
            let managed = allocator.plan().managed();
            assert_eq!(sum(|zone| zone.isolated), size);
            assert_eq!(sum(|zone| zone.free), managed - size);
            assert_eq!(allocator.busy_frames(&isolated), 0);
            // Everything else can be had, and nothing of it.
            let frames = fill(world, &MOVABLE, 1);
            assert_eq!(frames.len() as u64, managed - size);
            assert!(frames.keys().all(|pfn| !range.contains(pfn)));
            out.extend(frames);
            check(world, &out);
            let error = allocator.isolate(range.clone()).unwrap_err();
            assert_eq!(error, RangeError::Isolated { pfn: range.start });
            allocator.undo_isolation(isolated).unwrap();
            let more = fill(world, &Request::frame(), 1);
            assert_eq!(more.len() as u64, size, "it is back");
            out.extend(more);
            check(world, &out);
            for &pfn in out.keys() {
                allocator.free_raw(pfn, Order::ZERO).unwrap();
            }
            allocator.drain_all();
            check(world, &BTreeMap::new());
        });
    }
}

fn what_is_freed_stays_isolated<S: Policy>() {
    with::<S>(Shape::Flat, |world| {
        let allocator = &world.allocator;
        let out = fill(world, &MOVABLE, 3);
        let isolated = allocator.isolate(pfns(0x1100, 0x1180)).unwrap();
        let before = check(world, &out);
        let (mine, others): (BTreeMap<_, _>, BTreeMap<_, _>) =
            out.into_iter().partition(|(pfn, _)| isolated.range().contains(pfn));
        assert_eq!(allocator.busy_frames(&isolated), mine.len() as u64);
        for (nth, &pfn) in mine.keys().enumerate() {
            allocator.platform().switch_cpu(CpuId(nth as u32 % 3));
            allocator.free_raw(pfn, Order::ZERO).unwrap();
        }
        let after = check(world, &others);
        assert_eq!(after.zones[0].free, before.zones[0].free);
        assert_eq!(after.zones[0].isolated, 0x80);
        assert_eq!(allocator.busy_frames(&isolated), 0);
        allocator.undo_isolation(isolated).unwrap();
        assert_eq!(check(world, &others).zones[0].isolated, 0);
    });
}

/// Ranges that cannot be isolated, and what is said of them; nothing changes.
fn bad_ranges<S: Policy>() {
    with::<S>(Shape::Holes, |world| {
        let allocator = &world.allocator;
        let before = lists(&check(world, &BTreeMap::new()));
        let (base, end) = (
            allocator.plan().base().get(),
            allocator.plan().base().get() + allocator.plan().frames(),
        );
        let pageblock = order(4);
        let pfn = Pfn::new;
        let table = [
            (pfns(0x1400, 0x1400), RangeError::Empty),
            (pfn(0x1420)..pfn(0x1410), RangeError::Empty),
            (pfns(0x1408, 0x1410), RangeError::NotAligned { pfn: pfn(0x1408), pageblock }),
            (pfns(0x1400, 0x1418), RangeError::NotAligned { pfn: pfn(0x1418), pageblock }),
            (
                pfns(base - 16, base + 16),
                RangeError::Frame(FreeError::Foreign { pfn: pfn(base - 16) }),
            ),
            (pfns(end - 16, end + 16), RangeError::Frame(FreeError::Foreign { pfn: pfn(end) })),
            (pfns(0, !15), RangeError::Frame(FreeError::Foreign { pfn: pfn(0) })),
            (pfns(0x1000, 0x1010), RangeError::Frame(FreeError::Hole { pfn: pfn(0x1000) })),
            (pfns(0x11f0, 0x1220), RangeError::Frame(FreeError::Hole { pfn: pfn(0x1200) })),
            (pfns(0x1480, 0x14a0), RangeError::Frame(FreeError::Reserved { pfn: pfn(0x1490) })),
            (pfns(0x15f0, 0x1610), RangeError::Frame(FreeError::Reserved { pfn: pfn(0x1600) })),
        ];
        for (range, expected) in table {
            assert_eq!(allocator.isolate(range.clone()).unwrap_err(), expected, "{range:?}");
            assert!(expected.to_string().len() > 10);
            if !matches!(expected, RangeError::NotAligned { .. }) {
                assert_eq!(allocator.alloc_range(range).unwrap_err(), expected);
            }
            assert_eq!(lists(&check(world, &BTreeMap::new())), before, "nothing has changed");
        }
        assert_eq!(allocator.release_reclaim_later(), 64);
        let later = allocator.isolate(pfns(0x1600, 0x1610)).expect("handed over now");
        allocator.undo_isolation(later).unwrap();
    });
    with::<S>(Shape::TwoNodes, |world| {
        let error = RangeError::CrossesZones { pfn: Pfn::new(0x14e0) };
        let (allocator, before) = (&world.allocator, check(world, &BTreeMap::new()));
        assert_eq!(allocator.isolate(pfns(0x14c0, 0x1500)).unwrap_err(), error);
        assert_eq!(allocator.alloc_range(pfns(0x14d1, 0x14e1)).unwrap_err(), error);
        assert_eq!(lists(&check(world, &BTreeMap::new())), lists(&before));
    });
}

fn unmovable_frames_stop_it<S: Policy>() {
    with::<S>(Shape::Flat, |world| {
        let allocator = &world.allocator;
        let mut out = BTreeMap::new();
        let pfn = allocator.alloc_raw(&Request::frame()).unwrap();
        out.insert(pfn, Order::ZERO);
        allocator.drain_all();
        let (block, before) = (pfn.get() & !31, lists(&check(world, &out)));
        // Two pageblocks, of which the second has the frame in it: both or none.
        let range = pfns(block.max(0x1020) - 32, block + 32);
        assert_eq!(allocator.isolate(range.clone()).unwrap_err(), RangeError::Unmovable { pfn });
        assert_eq!(lists(&check(world, &out)), before);
        let error = allocator.alloc_range(pfn..Pfn::new(pfn.get() + 1)).unwrap_err();
        assert_eq!(error, RangeError::Unmovable { pfn });
        assert_eq!(lists(&check(world, &out)), before);
        // Beside it the pageblock's frames can be had.
        let beside = if pfn.get() % 32 < 16 { block + 16 } else { block };
        let token = allocator.alloc_range(pfns(beside, beside + 16)).unwrap();
        all_of(&token, &mut out);
        check(world, &out);
        allocator.free_contiguous(token).unwrap();
        allocator.free_raw(pfn, Order::ZERO).unwrap();
        allocator.drain_all();
        let isolated = allocator.isolate(range).expect("no unmovable block is in it any more");
        allocator.undo_isolation(isolated).unwrap();
        check(world, &BTreeMap::new());
    });
}

fn a_range_is_cleared<S: Policy>() {
    for (shape, range) in [
        (Shape::Flat, pfns(0x1123, 0x1234)),
        (Shape::Blocks3, pfns(0x1001, 0x1011)),
        (Shape::Whole, pfns(0x1000, 0x1400)),
        (Shape::Huge, pfns(0x4801, 0x4fff)),
        (Shape::Cma, pfns(0x1100, 0x1300)),
    ] {
        for block in [Order::ZERO, order(2)] {
            with::<S>(shape, |world| {
                let allocator = &world.allocator;
                fill(world, &MOVABLE.with_order(block), 3);
                allocator.platform().movers().set(Moving::Obeys);
                let token = allocator
                    .alloc_range(range.clone())
                    .unwrap_or_else(|e| panic!("{shape:?}: {e}"));
                assert_eq!(token.range(), range);
                let mut out = moved(world);
                assert!(out.keys().all(|pfn| !range.contains(pfn)));
                all_of(&token, &mut out);
                let snapshot = check(world, &out);
                assert_eq!(snapshot.zones[0].isolated, 0, "the rest is free for requests again");
                assert!(snapshot.zones[0].compaction.migrate_success > 0);
                let error = allocator.alloc_range(range.clone()).unwrap_err();
                assert!(matches!(error, RangeError::Refused { .. }), "it is taken");
                check(world, &out);
                allocator.free_contiguous(token).unwrap();
                check(world, &moved(world));
                for (pfn, order) in moved(world) {
                    allocator.free_raw(pfn, order).unwrap();
                }
                allocator.drain_all();
                check(world, &BTreeMap::new());
            });
        }
    }
}

fn hosts_that_do_not_move<S: Policy>() {
    for moving in
        [Moving::Cannot, Moving::Refuses, Moving::Panics, Moving::FreesNew, Moving::FreesOld]
    {
        with::<S>(Shape::Flat, |world| {
            let allocator = &world.allocator;
            let mut out = fill(world, &MOVABLE, 2);
            let movers = allocator.platform().movers();
            movers.set(moving);
            let range = pfns(0x1123, 0x1234);
            let take = || allocator.alloc_range(range.clone());
            match catch_unwind(AssertUnwindSafe(take)) {
                Err(_) => assert_eq!(moving, Moving::Panics),
                Ok(Ok(token)) => {
                    // It freed the old blocks itself, and kept the new ones.
                    assert_eq!(moving, Moving::FreesOld);
                    for page in allocator.platform().take_calls().migrations {
                        out.remove(&page.from);
                        out.insert(page.to, page.order);
                    }
                    all_of(&token, &mut out);
                    let (_, frames) = token.into_raw();
                    assert_eq!(frames, 0x111);
                }
                Ok(Err(error)) => assert!(matches!(error, RangeError::Refused { .. }), "{error}"),
            }
            let snapshot = check(world, &out);
            assert_eq!(snapshot.zones[0].isolated, 0, "the isolation is undone");
            let mismatches = snapshot.zones[0].compaction.migrate_mismatches;
            assert_eq!(mismatches > 0, matches!(moving, Moving::FreesNew | Moving::FreesOld));
        });
    }
}

fn nowhere_to_move_to<S: Policy>() {
    with::<S>(Shape::Flat, |world| {
        let allocator = &world.allocator;
        let out = fill(world, &MOVABLE, 1);
        allocator.platform().movers().set(Moving::Obeys);
        let error = allocator.alloc_range(pfns(0x1200, 0x1210)).unwrap_err();
        let first = RangeError::NoTarget { pfn: Pfn::new(0x1200), order: Order::ZERO };
        assert_eq!(error, first);
        check(world, &out);
    });
}

fn tokens_of_others_come_back<S: Policy>() {
    with::<S>(Shape::Flat, |world| {
        with::<S>(Shape::Flat, |other| {
            let token = other.allocator.alloc_contiguous(100, &MOVABLE).unwrap();
            let refused = world.allocator.free_contiguous(token).unwrap_err();
            let pfn = refused.token.start();
            assert_eq!(refused.error, RangeError::NotAllocated { pfn });
            other.allocator.free_contiguous(refused.token).expect("its own");
            let isolated = other.allocator.isolate(pfns(0x1100, 0x1120)).unwrap();
            let refused = world.allocator.undo_isolation(isolated).unwrap_err();
            assert_eq!(refused.error, RangeError::NotIsolated { pfn: Pfn::new(0x1100) });
            assert_eq!(world.allocator.busy_frames(&refused.token), 0);
            other.allocator.undo_isolation(refused.token).expect("its own");
            // A frame freed by itself: the rest is not freed either.
            let token = world.allocator.alloc_contiguous(5, &MOVABLE).unwrap();
            let third = Pfn::new(token.start().get() + 2);
            world.allocator.free_raw(third, Order::ZERO).unwrap();
            let refused = world.allocator.free_contiguous(token).unwrap_err();
            assert_eq!(refused.error, RangeError::NotAllocated { pfn: third });
            let (start, frames) = refused.token.into_raw();
            for pfn in (start.get()..start.get() + frames).map(Pfn::new).filter(|&pfn| pfn != third)
            {
                world.allocator.free_raw(pfn, Order::ZERO).unwrap();
            }
            check(world, &BTreeMap::new());
            check(other, &BTreeMap::new());
        });
    });
}

/// More than a largest block, and less where there is no block.
fn by_number<S: Policy>() {
    with::<S>(Shape::Huge, |world| {
        let allocator = &world.allocator;
        let mut out = BTreeMap::new();
        let whole = allocator.alloc_contiguous(12800 - 512, &Request::frame()).expect("untouched");
        all_of(&whole, &mut out);
        check(world, &out);
        allocator.free_contiguous(whole).unwrap();
        allocator.drain_all();
        fill(world, &MOVABLE, 3);
        allocator.drain_all();
        let request = MOVABLE.no_wait();
        let error = allocator.alloc_contiguous(2000, &request).unwrap_err();
        assert_eq!(error, ContiguousError::NoRange { frames: 2000, tried: 0, last: None });
        let error = allocator.alloc_contiguous(2000, &MOVABLE).unwrap_err();
        assert!(matches!(
            error,
            ContiguousError::NoRange { tried: 1.., last: Some(RangeError::Refused { .. }), .. }
        ));
        check(world, &moved(world));
        // One page stays: the range is found elsewhere.
        let movers = allocator.platform().movers();
        movers.set(Moving::Obeys);
        let (pinned, ..) = movers.blocks()[10];
        let (one, name) = movers.drop_block(pinned).unwrap();
        for frames in [600, 2000, 5000] {
            let token = allocator.alloc_contiguous(frames, &MOVABLE).unwrap();
            let mut out = moved(world);
            out.insert(pinned, one);
            all_of(&token, &mut out);
            check(world, &out);
            allocator.free_contiguous(token).unwrap();
            out = moved(world);
            out.insert(pinned, one);
            check(world, &out);
        }
        movers.adopt(pinned, one, name);
    });
}

fn requests_are_heeded<S: Policy>() {
    with::<S>(Shape::Low, |world| {
        let allocator = &world.allocator;
        let dma = MOVABLE.zone_limit(ZoneType::Dma);
        let token = allocator.alloc_contiguous(100, &dma).unwrap();
        assert!(token.range().end <= Pfn::new(256));
        allocator.free_contiguous(token).unwrap();
        let error = allocator.alloc_contiguous(300, &dma).unwrap_err();
        assert!(matches!(error, ContiguousError::NoRange { frames: 300, .. }), "{error}");
        for frames in [100, 3000] {
            let of_pageblocks = Request::frame().migrate(MigrateType::Isolate);
            let error = allocator.alloc_contiguous(frames, &of_pageblocks).unwrap_err();
            assert_eq!(error, ContiguousError::Request(AllocReason::NotRequestable));
            let elsewhere = MOVABLE.nodes(zonal::NodePolicy::Bind(zonal::NodeMask::NONE));
            let error = allocator.alloc_contiguous(frames, &elsewhere).unwrap_err();
            assert_eq!(error, ContiguousError::Request(AllocReason::NoZone));
        }
        allocator.platform().set_can_zero(false);
        for frames in [100, 1024] {
            let error = allocator.alloc_contiguous(frames, &MOVABLE.zero()).unwrap_err();
            assert_eq!(error, ContiguousError::Request(AllocReason::CannotZero));
        }
        allocator.drain_all();
        check(world, &BTreeMap::new());
    });
}

/// Isolations, ranges and frees at random, on memory in which pages move.
fn random_ranges<S: Policy>(shape: Shape) {
    for seed in 1..10_u64 {
        with::<S>(shape, |world| {
            let allocator = &world.allocator;
            let mut state = seed;
            let mut dice = |n: u64| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99);
                (state >> 33) % n
            };
            fill(world, &MOVABLE, 1 + dice(4) as usize);
            let movers = allocator.platform().movers();
            movers.set(Moving::Obeys);
            let (base, frames) = (allocator.plan().base().get(), allocator.plan().frames());
            let (mut tokens, mut isolated): (Vec<Contiguous>, Vec<_>) = (Vec::new(), Vec::new());
            for step in 0..40 {
                let start = base + dice(frames);
                let end = start + 1 + dice(100);
                match dice(5) {
                    0 | 1 => tokens.extend(allocator.alloc_range(pfns(start, end))),
                    2 => isolated.extend(allocator.isolate(pfns(start & !63, (start & !63) + 64))),
                    3 if dice(2) == 0 => {
                        if let Some(token) = tokens.pop() {
                            allocator.free_contiguous(token).unwrap();
                        }
                    }
                    3 => {
                        if let Some(token) = isolated.pop() {
                            allocator.undo_isolation(token).unwrap();
                        }
                    }
                    _ => {
                        if let Some((pfn, order, _)) = movers.blocks().get(step * 5) {
                            movers.drop_block(*pfn);
                            allocator.free_raw(*pfn, *order).unwrap();
                        }
                    }
                }
                let mut out = moved(world);
                tokens.iter().for_each(|token| all_of(token, &mut out));
                check(world, &out);
            }
            for token in tokens {
                allocator.free_contiguous(token).unwrap();
            }
            for token in isolated {
                allocator.undo_isolation(token).unwrap();
            }
            for (pfn, order) in moved(world) {
                allocator.free_raw(pfn, order).unwrap();
            }
            allocator.drain_all();
            let info = check(world, &BTreeMap::new()).zones[ZONE.0 as usize];
            assert_eq!((info.free, info.isolated), (info.managed, 0));
        });
    }
}

macro_rules! on_presets {
    ($($module:ident: $preset:ty;)*) => {$(
        mod $module {
            use super::*;
            #[test]
            fn isolation() { isolation_is_undone::<$preset>(); }
            #[test]
            fn frees() { what_is_freed_stays_isolated::<$preset>(); }
            #[test]
            fn bad_input() { bad_ranges::<$preset>(); }
            #[test]
            fn unmovable() { unmovable_frames_stop_it::<$preset>(); }
            #[test]
            fn ranges() { a_range_is_cleared::<$preset>(); }
            #[test]
            fn hosts() { hosts_that_do_not_move::<$preset>(); }
            #[test]
            fn no_target() { nowhere_to_move_to::<$preset>(); }
            #[test]
            fn tokens() { tokens_of_others_come_back::<$preset>(); }
            #[test]
            fn numbers() { by_number::<$preset>(); }
            #[test]
            fn requests() { requests_are_heeded::<$preset>(); }
            #[test]
            fn random() { random_ranges::<$preset>(Shape::Flat); }
            #[test]
            fn random_with_small_pageblocks() { random_ranges::<$preset>(Shape::Blocks3); }
        }
    )*};
}

with_presets!(on_presets);
