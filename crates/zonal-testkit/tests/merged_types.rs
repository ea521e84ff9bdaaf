//! Free pageblocks of different migrate types are one block, and the high-atomic reserve keeps no
//! large block apart for good.

use zonal::plan::{Config, SplitConfig};
use zonal::policy::Policy;
use zonal::{MigrateType, Order, Pfn, Request, ZoneId};
use zonal_testkit::checkers::{Rules, check_lists, check_merged};
use zonal_testkit::probe::Probe;
use zonal_testkit::shape::{Shape, order, plan};
use zonal_testkit::snapshot::Snapshot;
use zonal_testkit::world::{World, with_plan};

type W<'m, S> = World<'m, Probe, S>;

/// One zone of the shape's memory with pageblocks of `pageblock`, whatever the preset.
fn one_zone<S: Policy>(shape: Shape, pageblock: Order, f: impl FnOnce(&W<'_, S>)) {
    let split = SplitConfig::default();
    let config = Config { split, pageblock_order: pageblock, ..shape.config() };
    let plan = plan::<S>(&shape.regions(), config);
    with_plan::<Probe, S, _>(shape, &plan, f);
}

/// Takes blocks until there is none.
fn exhaust<S: Policy>(world: &W<'_, S>, request: &Request) -> Vec<Pfn> {
    core::iter::from_fn(|| world.allocator.alloc_raw(request).ok()).collect()
}

/// Blocks of the largest order.
fn largest<S: Policy>(world: &W<'_, S>) -> u32 {
    world.allocator.zone_info(ZoneId(0)).unwrap().blocks[Order::MAX.index()].iter().sum()
}

/// Single frames of all types until memory is used up, so that pageblocks are of all types.
fn mixed_use<S: Policy>(world: &W<'_, S>) -> Vec<Pfn> {
    let types = [MigrateType::Unmovable, MigrateType::Movable, MigrateType::Reclaimable];
    let requests = types.map(|migrate| Request::frame().migrate(migrate));
    let turns = requests.iter().cycle();
    turns.map_while(|request| world.allocator.alloc_raw(request).ok()).collect()
}

fn everything_merges_after_mixed_use<S: Policy>() {
    for pageblock in [order(3), order(5), Order::HUGE] {
        one_zone::<S>(Shape::Flat, pageblock, |world| {
            let allocator = &world.allocator;
            let out = mixed_use(world);
            assert_eq!(out.len(), 2048);
            for pfn in out {
                allocator.free_raw(pfn, Order::ZERO).unwrap();
            }
            allocator.drain_all();
            let snapshot = Snapshot::of(allocator);
            let types = |migrate| snapshot.pageblocks.contains(&Some((ZoneId(0), migrate)));
            assert!(types(MigrateType::Unmovable) && types(MigrateType::Movable));
            assert_eq!(largest(world), 2, "pageblocks of {pageblock}");
            check_lists(&snapshot).unwrap();
            check_merged(&snapshot, &Rules::STRICT).unwrap();
            // Parts of a block that is of two types go by their own.
            let frame =
                allocator.alloc_raw(&Request::frame().migrate(MigrateType::Movable)).unwrap();
            let snapshot = Snapshot::of(allocator);
            check_lists(&snapshot).unwrap();
            allocator.free_raw(frame, Order::ZERO).unwrap();
            allocator.drain_all();
            assert_eq!(exhaust(world, &Request::new(Order::MAX)).len(), 2);
        });
    }
}

fn the_whole_reserve_is_opened<S: Policy>() {
    one_zone::<S>(Shape::Blocks3, order(3), |world| {
        let allocator = &world.allocator;
        let urgent = Request::new(order(3)).atomic();
        let held: Vec<_> = (0..5).map(|_| allocator.alloc_raw(&urgent).unwrap()).collect();
        let info = allocator.zone_info(ZoneId(0)).unwrap();
        assert_eq!(info.high_atomic_pageblocks, 5);
        for pfn in held {
            allocator.free_raw(pfn, order(3)).unwrap();
        }
        allocator.drain_all();
        let blocks = exhaust(world, &Request::new(Order::MAX).migrate(MigrateType::Movable));
        assert_eq!(blocks.len(), 4, "all memory is free");
    });
}

macro_rules! on_each {
    ($($name:ident: $preset:ty;)*) => {$(
        mod $name {
            #[test]
            fn everything_merges() { super::everything_merges_after_mixed_use::<$preset>(); }
            #[test]
            fn the_whole_reserve() { super::the_whole_reserve_is_opened::<$preset>(); }
        }
    )*};
}

with_presets!(on_each);
