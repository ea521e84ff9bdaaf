//! Isolation of one pageblock of an allocated block that is larger: pageblocks are smaller here
//! than the blocks that requests get.

use super::panics::sink::{Fuse, PAUSE};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::mpsc::channel;
use zonal::error::{FreeError, RangeError};
use zonal::map::{PhysAddr, Region};
use zonal::plan::Config;
use zonal::policy::Policy;
use zonal::preset::{Linux416, Traced, Zonal};
use zonal::{CpuId, Isolated, MigrateType, Order, Pfn, Request};
use zonal_testkit::checkers::{Rules, check_all, check_faults};
use zonal_testkit::host::TestHost;
use zonal_testkit::model::Model;
use zonal_testkit::mover::Moving;
use zonal_testkit::probe::Probe;
use zonal_testkit::shape::{Shape, order, plan};
use zonal_testkit::snapshot::Snapshot;
use zonal_testkit::world::{World, with_plan, with_world};

type W<'m, S> = World<'m, Probe, S>;
type Out = BTreeMap<Pfn, Order>;
const MOVABLE: Request = Request::frame().migrate(MigrateType::Movable);

/// On shapes with pageblocks of 8, 16 and 32 frames, a block of every order above that, of each
/// of its pageblocks the first, one in the middle, and the last.
fn each<S: Policy>(request: &Request, f: impl Fn(&W<'_, S>, (Pfn, Order), Range<Pfn>)) {
    for shape in [Shape::Flat, Shape::Blocks3, Shape::Cma] {
        let pageblock = shape.config().pageblock_order;
        for order in Order::all().filter(|&order| order > pageblock) {
            let last = (order.frames() / pageblock.frames()) - 1;
            for nth in [0, last / 2, last] {
                with_world::<Probe, S, _>(shape, |world| {
                    let block = world.allocator.alloc_raw(&request.with_order(order)).unwrap();
                    let start = block.get() + nth * pageblock.frames();
                    f(world, (block, order), pfns(start, start + pageblock.frames()));
                });
            }
        }
    }
}

fn pfns(start: u64, end: u64) -> Range<Pfn> {
    Pfn::new(start)..Pfn::new(end)
}

fn frames_of(range: &Range<Pfn>) -> u64 {
    range.end.get() - range.start.get()
}

/// All invariants, with these blocks out; and how many free frames are isolated.
fn check<S: Policy>(world: &W<'_, S>, out: &Out) -> (Snapshot, u64) {
    let mut model = Model::new(world.allocator.plan());
    out.iter().for_each(|(&pfn, &order)| model.insert(pfn, order));
    let snapshot = Snapshot::of(&world.allocator);
    check_faults(&world.allocator.platform().faults()).unwrap();
    check_all(&snapshot, &model, &Rules::of::<S>()).unwrap();
    let isolated = snapshot.zones.iter().map(|zone| zone.isolated).sum();
    (snapshot, isolated)
}

/// The blocks of every list as a set: what a refusal may not change.
fn lists<S: Policy>(world: &W<'_, S>, out: &Out) -> Vec<String> {
    let found = check(world, out).0.found;
    let mut found: Vec<_> = found.iter().map(|block| format!("{block:?}")).collect();
    found.sort_unstable();
    found
}

/// Frees the block, the shared way or as the owner of a CPU.
fn free<S: Policy>(world: &W<'_, S>, (pfn, order): (Pfn, Order), owned: bool) {
    if owned {
        world.allocator.handle(CpuId(0)).unwrap().free_raw(pfn, order).unwrap();
    } else {
        world.allocator.free_raw(pfn, order).unwrap();
    }
}

/// Nothing is out: every frame outside of `isolated` can be had, with blocks of `order` first,
/// and none of it; then all goes back.
fn all_but<S: Policy>(world: &W<'_, S>, order: Order, isolated: &[&Range<Pfn>]) {
    let allocator = &world.allocator;
    let mut out = Out::new();
    for request in [MOVABLE.with_order(order), MOVABLE, Request::frame()] {
        out.extend(std::iter::from_fn(|| {
            allocator.alloc_raw(&request).ok().map(|pfn| (pfn, request.order()))
        }));
    }
    check(world, &out);
    let frames: u64 = out.values().map(|order| order.frames()).sum();
    let apart: u64 = isolated.iter().map(|range| frames_of(range)).sum();
    assert_eq!(frames, allocator.plan().managed() - apart);
    for (&pfn, &order) in &out {
        let end = pfn.get() + order.frames();
        let apart = isolated.iter().all(|range| range.end <= pfn || range.start.get() >= end);
        assert!(apart, "{pfn:?} with {order:?} reaches into {isolated:?}");
        allocator.free_raw(pfn, order).unwrap();
    }
    allocator.drain_all();
    check(world, &Out::new());
}

fn undo<S: Policy>(world: &W<'_, S>, isolated: Isolated, out: &Out) {
    world.allocator.undo_isolation(isolated).unwrap();
    assert_eq!(check(world, out).1, 0);
}

/// The block stays its owner's; of what he frees the pageblock stays isolated and the rest is
/// for everybody.
fn freed_while_isolated<S: Policy>() {
    for owned in [false, true] {
        each::<S>(&MOVABLE, |world, block, range| {
            let allocator = &world.allocator;
            let out = Out::from([block]);
            let isolated = allocator.isolate(range.clone()).unwrap();
            assert_eq!(check(world, &out).1, 0, "none of it is free");
            assert_eq!(allocator.busy_frames(&isolated), frames_of(&range));
            let error = allocator.isolate(range.clone()).unwrap_err();
            assert_eq!(error, RangeError::Isolated { pfn: range.start });
            free(world, block, owned);
            check(world, &Out::new());
            assert_eq!(allocator.busy_frames(&isolated), 0, "{block:?} with {range:?} isolated");
            assert_eq!(check(world, &Out::new()).1, frames_of(&range));
            all_but(world, block.1, &[&range]);
            undo(world, isolated, &Out::new());
            all_but(world, block.1, &[]);
        });
    }
}

/// Where the zone is large enough for caches of huge blocks: one that reaches into an isolated
/// pageblock must not wait there for the next request. So none are cached that are larger than
/// a pageblock.
fn freed_to_a_cache<S: Policy>() {
    let region = Region::usable(PhysAddr(0x10000 << 12), 0x10000 << 12);
    let config = Config { pageblock_order: order(5), pcp_batch: None, ..Shape::Scrap.config() };
    let plan = plan::<S>(&[region], config);
    with_plan::<Probe, S, _>(Shape::Scrap, &plan, |world| {
        let (allocator, request) = (&world.allocator, MOVABLE.with_order(Order::HUGE));
        for owned in [false, true] {
            for nth in [0, 1, 15] {
                let block = allocator.alloc_raw(&request).unwrap();
                let start = block.get() + nth * 32;
                let isolated = allocator.isolate(pfns(start, start + 32)).unwrap();
                // Isolation has emptied the cache; a miss gives it room again.
                let miss = allocator.alloc_raw(&request).unwrap();
                free(world, (block, Order::HUGE), owned);
                let again = allocator.alloc_raw(&request).unwrap();
                assert_ne!(again, block, "{:?} is isolated", isolated.range());
                assert_eq!(allocator.busy_frames(&isolated), 0);
                for pfn in [miss, again] {
                    allocator.free_raw(pfn, Order::HUGE).unwrap();
                }
                allocator.undo_isolation(isolated).unwrap();
                allocator.drain_all();
            }
        }
        check(world, &Out::new());
    });
}

/// The isolation ends first: the block is freed as if there had been none.
fn freed_afterwards<S: Policy>() {
    each::<S>(&MOVABLE, |world, block, range| {
        let out = Out::from([block]);
        let isolated = world.allocator.isolate(range).unwrap();
        undo(world, isolated, &out);
        free(world, block, false);
        world.allocator.drain_all();
        check(world, &Out::new());
        all_but(world, block.1, &[]);
    });
}

/// Two pageblocks of the block are isolated by two callers, whichever is done first.
fn isolated_by_two<S: Policy>() {
    for first_out in [false, true] {
        each::<S>(&MOVABLE, |world, block, range| {
            let (allocator, size) = (&world.allocator, frames_of(&range));
            // The other half of two pageblocks: of the same block, which is larger than one.
            let other = range.start.get() ^ size;
            let other = pfns(other, other + size);
            let one = allocator.isolate(range.clone()).unwrap();
            let two = allocator.isolate(other.clone()).unwrap();
            free(world, block, false);
            allocator.drain_all();
            assert_eq!(check(world, &Out::new()).1, 2 * size);
            all_but(world, block.1, &[&range, &other]);
            let ((first, left), (second, _)) =
                if first_out { ((one, other), (two, range)) } else { ((two, range), (one, other)) };
            allocator.undo_isolation(first).unwrap();
            assert_eq!(check(world, &Out::new()).1, size);
            all_but(world, block.1, &[&left]);
            undo(world, second, &Out::new());
            all_but(world, block.1, &[]);
        });
    }
}

/// Of an unmovable block not one pageblock can be isolated, nor any with it.
fn unmovable_blocks_stop_it<S: Policy>() {
    each::<S>(&Request::frame(), |world, block, range| {
        let (allocator, out) = (&world.allocator, Out::from([block]));
        let before = lists(world, &out);
        let error = allocator.isolate(range.clone()).unwrap_err();
        assert_eq!(error, RangeError::Unmovable { pfn: range.start });
        assert_eq!(lists(world, &out), before, "nothing has changed");
        // Together with the pageblock behind the block, or the one before it.
        let (start, end) = (block.0.get(), block.0.get() + block.1.frames());
        let size = frames_of(&range);
        for (wider, first) in
            [(pfns(start - size, start + size), start), (pfns(end - size, end + size), end - size)]
        {
            let error = allocator.isolate(wider).unwrap_err();
            let stops = RangeError::Unmovable { pfn: Pfn::new(first) };
            let outside = matches!(
                error,
                RangeError::Frame(FreeError::Foreign { .. })
                    | RangeError::Frame(FreeError::Hole { .. })
            );
            assert!(error == stops || outside, "{error:?}, not {stops:?}");
            assert_eq!(lists(world, &out), before, "nothing has changed");
        }
        free(world, block, false);
        allocator.drain_all();
        let isolated =
            allocator.isolate(range.clone()).expect("no unmovable block is in it any more");
        assert_eq!(check(world, &Out::new()).1, frames_of(&range));
        undo(world, isolated, &Out::new());
    });
}

/// The pageblock is no block of its own, isolated or not.
fn wrong_frees<S: Policy>() {
    each::<S>(&MOVABLE, |world, block, range| {
        let (allocator, out) = (&world.allocator, Out::from([block]));
        let isolated = allocator.isolate(range.clone()).unwrap();
        let before = lists(world, &out);
        for order in [Order::ZERO, allocator.plan().config().pageblock_order] {
            let error = allocator.free_raw(range.start, order).unwrap_err();
            let expected = matches!(error, FreeError::WrongOrder { .. } | FreeError::Inner { .. });
            assert!(expected, "{error:?}");
            assert_eq!(lists(world, &out), before, "nothing has changed");
        }
        undo(world, isolated, &out);
        free(world, block, false);
        allocator.drain_all();
        check(world, &Out::new());
    });
}

/// Exactly the frames of one of its pageblocks: the block moves as a whole, or stays.
fn a_pageblock_of_it_is_taken<S: Policy>() {
    for moving in [Moving::Cannot, Moving::Obeys] {
        each::<S>(&MOVABLE, |world, block, range| {
            let allocator = &world.allocator;
            let movers = allocator.platform().movers();
            movers.adopt(block.0, block.1, 1);
            movers.set(moving);
            let mut out = Out::from([block]);
            match allocator.alloc_range(range.clone()) {
                Ok(token) => {
                    assert_eq!(moving, Moving::Obeys);
                    assert_eq!(token.range(), range);
                    let moved = movers.blocks()[0].0;
                    assert_eq!(movers.owner(moved), Some((block.1, 1)));
                    let frames = range.start.get()..range.end.get();
                    out = frames.map(|pfn| (Pfn::new(pfn), Order::ZERO)).collect();
                    assert_eq!(out.insert(moved, block.1), None);
                    assert_eq!(check(world, &out).1, 0, "the rest is free for requests");
                    allocator.free_contiguous(token).unwrap();
                    free(world, (moved, block.1), false);
                }
                Err(error) => {
                    let (pfn, order) = block;
                    // There may be no other block of the largest order.
                    let nowhere = RangeError::NoTarget { pfn, order };
                    if order < Order::MAX || error != nowhere {
                        assert_eq!(moving, Moving::Cannot);
                        assert_eq!(error, RangeError::Refused { pfn, order });
                    }
                    assert_eq!(check(world, &out).1, 0, "the isolation is undone");
                    free(world, block, false);
                }
            }
            allocator.drain_all();
            check(world, &Out::new());
        });
    }
}

/// A pageblock of the high-atomic reserve stays in it if the isolation that it was to be part of is refused,
/// and leaves it otherwise.
fn the_reserve_outlives_refusals<S: Policy>() {
    with_world::<Probe, S, _>(Shape::Blocks3, |world| {
        let allocator = &world.allocator;
        let urgent = Request::new(order(3)).atomic();
        let block = allocator.alloc_raw(&urgent).unwrap();
        allocator.free_raw(block, order(3)).unwrap();
        allocator.drain_all();
        let reserved = || check(world, &Out::new()).0.zones[0].high_atomic_pageblocks;
        let kind = || allocator.pageblock_of(block).map(|found| found.1);
        assert_eq!((reserved(), kind()), (1, Some(MigrateType::HighAtomic)));
        let (start, end) = (block.get(), block.get() + 16);
        let other = allocator.isolate(pfns(start + 8, end)).unwrap();
        let refusal = RangeError::Isolated { pfn: Pfn::new(start + 8) };
        assert_eq!(allocator.isolate(pfns(start, end)).unwrap_err(), refusal);
        assert_eq!((reserved(), kind()), (1, Some(MigrateType::HighAtomic)));
        assert_eq!(allocator.alloc_at(pfns(start + 7, start + 9)).unwrap_err(), refusal);
        assert_eq!((reserved(), kind()), (1, Some(MigrateType::HighAtomic)));
        undo(world, other, &Out::new());
        let both = allocator.isolate(pfns(start, end)).unwrap();
        assert_eq!(reserved(), 0);
        undo(world, both, &Out::new());
        assert_eq!((reserved(), kind()), (0, Some(MigrateType::Movable)));
        all_but(world, order(3), &[]);
    });
}

/// After an urgent request took its block, and before the pageblocks of that join the high-atomic reserve, one of
/// them is isolated: it stays so, and none joins.
fn isolated_before_it_joins_the_reserve<S: Policy>() {
    with_world::<Probe, Traced<S, Fuse>, _>(Shape::Blocks3, |world| {
        let allocator = &world.allocator;
        let urgent = MOVABLE.with_order(order(4)).atomic();
        let reserved = |out: &Out| check(world, out).0.zones[0].high_atomic_pageblocks;
        // The next block is as large, and begins where the one before ends.
        let before = allocator.alloc_raw(&urgent).unwrap();
        let mut out = Out::from([(before, order(4))]);
        assert_eq!(reserved(&out), 2, "there is room for more");
        let (here, is_there) = channel();
        let (tell, go_on) = channel();
        let (block, isolated) = std::thread::scope(|scope| {
            let asking = scope.spawn(|| {
                allocator.platform().switch_cpu(CpuId(1));
                PAUSE.set(Some((here, go_on)));
                allocator.alloc_raw(&urgent)
            });
            is_there.recv().unwrap();
            let start = before.get() + order(4).frames();
            let isolated = allocator.isolate(pfns(start + 8, start + 16)).unwrap();
            tell.send(()).unwrap();
            (asking.join().unwrap().unwrap(), isolated)
        });
        assert_eq!(block.get(), before.get() + order(4).frames());
        out.insert(block, order(4));
        let kind = |pfn: u64| allocator.pageblock_of(Pfn::new(pfn)).map(|found| found.1);
        assert_eq!(kind(block.get() + 8), Some(MigrateType::Isolate));
        assert_eq!(kind(block.get()), Some(MigrateType::Movable));
        assert_eq!(reserved(&out), 2);
        undo(world, isolated, &out);
        out.keys().for_each(|&pfn| free(world, (pfn, order(4)), false));
        allocator.drain_all();
        assert_eq!(reserved(&Out::new()), 2);
        all_but(world, order(3), &[]);
    });
}

#[test]
fn isolated_before_it_joins_the_reserve_of_lists() {
    isolated_before_it_joins_the_reserve::<Linux416>();
}

#[test]
fn isolated_before_it_joins_the_reserve_of_a_map() {
    isolated_before_it_joins_the_reserve::<Zonal>();
}

macro_rules! on_presets {
    ($($module:ident: $preset:ty;)*) => {$(
        mod $module {
            use super::*;
            #[test]
            fn freed_inside() { freed_while_isolated::<$preset>(); }
            #[test]
            fn freed_cached() { freed_to_a_cache::<$preset>(); }
            #[test]
            fn freed_after() { freed_afterwards::<$preset>(); }
            #[test]
            fn by_two() { isolated_by_two::<$preset>(); }
            #[test]
            fn unmovable() { unmovable_blocks_stop_it::<$preset>(); }
            #[test]
            fn frees() { wrong_frees::<$preset>(); }
            #[test]
            fn taken() { a_pageblock_of_it_is_taken::<$preset>(); }
            #[test]
            fn reserved() { the_reserve_outlives_refusals::<$preset>(); }
        }
    )*};
}

with_presets!(on_presets);
