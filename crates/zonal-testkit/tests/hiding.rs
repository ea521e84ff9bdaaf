//! Order 0 does not fail while a usable frame is free (I-6): one test for each place where the
//! last frame can hide, on every preset.

use zonal::inspect::Place;
use zonal::map::RangeKind;
use zonal::plan::{Config, SplitConfig};
use zonal::policy::FreeMemory;
use zonal::policy::Policy;
use zonal::{CpuId, MigrateType, Order, Pfn, Request, ZoneId, ZoneType};
use zonal_testkit::host::TestHost;
use zonal_testkit::probe::Probe;
use zonal_testkit::shape::{Shape, order};
use zonal_testkit::snapshot::Snapshot;
use zonal_testkit::suite::Dice;
use zonal_testkit::world::{World, with_world};

type Host0 = Probe;
type W<'m, S> = World<'m, Host0, S>;

fn movable() -> Request {
    Request::frame().migrate(MigrateType::Movable).zone_limit(ZoneType::Movable)
}

/// Hands all memory out as frames of `request`, on CPU 0.
fn exhaust<S: Policy>(world: &W<'_, S>, request: &Request) -> Vec<Pfn> {
    let mut out = Vec::new();
    while let Ok(pfn) = world.allocator.alloc_raw(request) {
        out.push(pfn);
    }
    out
}

/// A world with all memory handed out as frames of `request`.
fn exhausted<S: Policy>(shape: Shape, request: &Request, f: impl FnOnce(&W<'_, S>, Vec<Pfn>)) {
    with_world::<Host0, S, _>(shape, |world| {
        let out = exhaust(world, request);
        let found = Snapshot::of(&world.allocator).found;
        assert_eq!((out.len() as u64, found), (world.allocator.plan().managed(), vec![]));
        f(world, out);
    });
}

fn places<S: Policy>(world: &W<'_, S>) -> Vec<Place> {
    Snapshot::of(&world.allocator).found.iter().map(|found| found.place).collect()
}

fn on(cpu: u32, world: &W<'_, impl Policy>) {
    assert!(world.allocator.platform().switch_cpu(CpuId(cpu)));
}

/// Whether the only block that is left is in the cache of `wanted`.
fn is_cached_by<S: Policy>(world: &W<'_, S>, wanted: CpuId) -> bool {
    matches!(places(world)[..], [Place::Cached { cpu, .. }] if cpu == wanted)
}

/// Whether the CPU's share of the zone is large enough for a cache.
fn has_cache<S: Policy>(world: &W<'_, S>, cpu: CpuId) -> bool {
    world.allocator.cache_info(ZoneId(0), cpu).unwrap().high > 0
}

fn remote_cache<S: Policy>() {
    exhausted::<S>(Shape::Flat, &movable(), |world, out| {
        on(1, world);
        world.allocator.free_raw(out[0], Order::ZERO).unwrap();
        on(0, world);
        assert_eq!(is_cached_by(world, CpuId(1)), has_cache(world, CpuId(1)));
        assert_eq!(world.allocator.alloc_raw(&Request::frame()).unwrap(), out[0]);
    });
}

/// The CPU belongs to an owner, who is idle.
fn owned_cache<S: Policy>() {
    exhausted::<S>(Shape::Flat, &movable(), |world, out| {
        let mut owner = world.allocator.handle(CpuId(2)).unwrap();
        owner.free_raw(out[0], Order::ZERO).unwrap();
        assert_eq!(is_cached_by(world, CpuId(2)), has_cache(world, CpuId(2)));
        assert_eq!(world.allocator.alloc_raw(&Request::frame()).unwrap(), out[0]);
    });
}

/// The owner's own request finds what the owner caches as another migrate type.
fn own_cache_of_another_type<S: Policy>() {
    exhausted::<S>(Shape::Flat, &movable(), |world, out| {
        let mut owner = world.allocator.handle(CpuId(0)).unwrap();
        owner.free_raw(out[0], Order::ZERO).unwrap();
        assert_eq!(owner.alloc_raw(&Request::frame()).unwrap(), out[0]);
    });
}

/// All that another CPU freed, in its cache and elsewhere.
fn all_of_another_cpu<S: Policy>() {
    for request in [movable(), Request::frame()] {
        exhausted::<S>(Shape::Flat, &movable(), |world, out| {
            let free = |pfn: &Pfn| world.allocator.free_raw(*pfn, Order::ZERO).unwrap();
            on(1, world);
            let (now, later) = out.split_at(out.len() / 2);
            now.iter().for_each(free);
            on(0, world);
            let again: Vec<_> =
                (0..200).map(|_| world.allocator.alloc_raw(&request).unwrap()).collect();
            on(1, world);
            again.iter().chain(later).for_each(free);
            on(0, world);
            assert_eq!(exhaust(world, &request).len(), out.len());
        });
    }
}

/// Frames in all the places that freeing half of them on each CPU makes.
fn everywhere_at_once<S: Policy>() {
    for shape in [Shape::Flat, Shape::Blocks3, Shape::Whole, Shape::Huge] {
        exhausted::<S>(shape, &movable(), |world, out| {
            for (nth, &pfn) in out.iter().enumerate().filter(|(nth, _)| nth % 5 > 0) {
                on(nth as u32 / 7 % world.allocator.cpus(), world);
                world.allocator.free_raw(pfn, Order::ZERO).unwrap();
            }
            on(0, world);
            let free = out.len() - out.len().div_ceil(5);
            assert_eq!(exhaust(world, &Request::frame()).len(), free);
        });
    }
}

fn lists_of_other_types<S: Policy>() {
    for (held, wanted) in [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)] {
        let of = |ty: usize| Request::frame().migrate(MigrateType::ALL[ty]);
        exhausted::<S>(Shape::Flat, &of(held), |world, out| {
            // Every second frame: nothing merges, no pageblock is worth claiming.
            for &pfn in out.iter().filter(|pfn| pfn.get() % 4 == 0) {
                world.allocator.free_raw(pfn, Order::ZERO).unwrap();
            }
            world.allocator.drain_all();
            assert_eq!(exhaust(world, &of(wanted)).len(), out.len() / 4);
        });
    }
}

/// Both of two buddies, freed and drained to the list of the type that held them: presets that
/// skip merges leave them single there. Then the same as a block.
fn skipped_on_lists_of_other_types<S: Policy>() {
    for (held, wanted) in [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)] {
        let of = |ty: usize| Request::frame().migrate(MigrateType::ALL[ty]);
        exhausted::<S>(Shape::Flat, &of(held), |world, out| {
            let allocator = &world.allocator;
            let pairs = || out.iter().filter(|pfn| pfn.get() % 16 < 2);
            let free = || {
                pairs().for_each(|&pfn| allocator.free_raw(pfn, Order::ZERO).unwrap());
                allocator.drain_cpu(CpuId(0));
            };
            free();
            let skipped = allocator.zone_info(zonal::ZoneId(0)).unwrap().merge_skipped;
            assert_eq!(skipped > 0, S::Free::SKIPS_MERGES);
            assert_eq!(exhaust(world, &of(wanted)).len(), pairs().count());
            free();
            let blocks = exhaust(world, &of(wanted).with_order(order(1)));
            assert_eq!(blocks.len(), pairs().count() / 2);
        });
    }
}

/// A random half of all memory is freed frame by frame, and then the rest.
fn high_orders_in_singles<S: Policy>() {
    for seed in 0..4 {
        exhausted::<S>(Shape::Huge, &movable(), |world, out| {
            let mut dice = Dice::new(seed);
            let (now, later): (Vec<Pfn>, Vec<Pfn>) = out.iter().partition(|_| dice.below(2) == 0);
            for pfn in now.into_iter().chain(later) {
                on(dice.below(2) as u32, world);
                world.allocator.free_raw(pfn, Order::ZERO).unwrap();
            }
            let huge = exhaust(world, &Request::new(Order::HUGE).migrate(MigrateType::Movable));
            assert_eq!(huge.len(), 12800 / 512, "all memory is free");
        });
    }
}

fn high_atomic_reserve<S: Policy>() {
    // One instance whatever the preset: its reserve may be large enough for the block.
    let config = Config { split: SplitConfig::default(), ..Shape::Blocks3.config() };
    let plan = zonal_testkit::shape::plan::<S>(&Shape::Blocks3.regions(), config);
    zonal_testkit::world::with_plan::<Host0, S, _>(Shape::Blocks3, &plan, |world| {
        let allocator = &world.allocator;
        let urgent = Request::new(order(4)).atomic();
        let held = allocator.alloc_raw(&urgent).unwrap();
        let reserved = allocator.zone_info(zonal::ZoneId(0)).unwrap().high_atomic_pageblocks;
        assert_eq!(reserved, 2, "both pageblocks of the block");
        let out = exhaust(world, &movable());
        assert_eq!(out.len(), 4096 - 16);
        allocator.free_raw(held, order(4)).unwrap();
        let reserve = Place::Listed { order: order(4), migrate: MigrateType::HighAtomic };
        assert_eq!(places(world), [reserve]);
        assert_eq!(exhaust(world, &Request::frame()).len(), 16);
    });
}

/// The host frees into the reserve when it is asked to reclaim.
fn high_atomic_reserve_after_reclaim<S: Policy>() {
    with_world::<Host0, S, _>(Shape::Blocks3, |world| {
        let allocator = &world.allocator;
        let held = allocator.alloc_raw(&Request::new(order(4)).atomic()).unwrap();
        exhaust(world, &movable());
        assert!(allocator.platform().pledge(held, order(4)));
        allocator.alloc_raw(&Request::frame()).unwrap();
    });
}

fn cma<S: Policy>() {
    let is_cma = |world: &W<'_, S>, pfn: Pfn| {
        world.allocator.plan().map().kind_at(pfn) == Some(RangeKind::Cma)
    };
    with_world::<Host0, S, _>(Shape::Cma, |world| {
        let out = exhaust(world, &Request::frame());
        assert_eq!(out.len(), 2048 - 512, "unmovable requests leave CMA alone");
        assert!(out.iter().all(|&pfn| !is_cma(world, pfn)));
        let lent = exhaust(world, &movable());
        assert_eq!(lent.len(), 512, "movable requests get it");
        assert!(lent.iter().all(|&pfn| is_cma(world, pfn)));
        on(1, world);
        world.allocator.free_raw(lent[7], Order::ZERO).unwrap();
        on(0, world);
        assert!(world.allocator.alloc_raw(&Request::frame()).is_err(), "not even from a cache");
        assert_eq!(world.allocator.alloc_raw(&movable()).unwrap(), lent[7]);
    });
}

fn other_zones<S: Policy>() {
    // Without lowmem reserves the last frame of DMA goes to any request.
    let plan = zonal_testkit::shape::plan::<S>(
        &Shape::Low.regions(),
        Config { lowmem_ratio: [0; 4], ..Shape::Low.config() },
    );
    zonal_testkit::world::with_plan::<Host0, S, _>(Shape::Low, &plan, |world| {
        let out = exhaust(world, &Request::frame());
        assert_eq!(out.len(), 2048);
        for zone in 0..3 {
            let of_zone = |pfn: &&Pfn| plan.zone_at(**pfn) == Some(zonal::ZoneId(zone));
            let pfn = *out.iter().find(of_zone).unwrap();
            on(1, world);
            world.allocator.free_raw(pfn, Order::ZERO).unwrap();
            on(0, world);
            assert_eq!(world.allocator.alloc_raw(&Request::frame()).unwrap(), pfn);
        }
        let dma = Request::frame().zone_limit(ZoneType::Dma);
        world.allocator.free_raw(*out.iter().max().unwrap(), Order::ZERO).unwrap();
        assert!(world.allocator.alloc_raw(&dma).is_err(), "a Normal frame is no DMA frame");
    });
}

fn other_node<S: Policy>() {
    exhausted::<S>(Shape::TwoNodes, &movable(), |world, out| {
        let far = *out.iter().max().unwrap();
        assert_eq!(world.allocator.plan().zone_at(far), Some(zonal::ZoneId(1)));
        on(1, world);
        world.allocator.free_raw(far, Order::ZERO).unwrap();
        on(0, world);
        let here = Request::frame().this_node();
        assert!(world.allocator.alloc_raw(&here).is_err());
        assert_eq!(world.allocator.alloc_raw(&Request::frame()).unwrap(), far);
    });
}

fn untouched<S: Policy>() {
    for ty in 0..3 {
        with_world::<Host0, S, _>(Shape::Flat, |world| {
            assert_eq!(places(world), [Place::Untouched; 2]);
            let request = Request::frame().migrate(MigrateType::ALL[ty]);
            assert_eq!(exhaust(world, &request).len(), 2048);
        });
    }
}

/// A block of the largest order, of which every frame is somewhere else.
fn merges_not_made<S: Policy>() {
    exhausted::<S>(Shape::Whole, &movable(), |world, out| {
        for (nth, &pfn) in out.iter().enumerate() {
            on(nth as u32 % 3, world);
            world.allocator.free_raw(pfn, Order::ZERO).unwrap();
        }
        let whole = Request::new(Order::MAX);
        world.allocator.alloc_raw(&whole).expect("all memory is free");
        world.allocator.alloc_raw(&whole).expect("half the memory is free");
    });
}

macro_rules! on_presets {
    ($($module:ident: $preset:ty;)*) => {$(
        mod $module {
            use super::*;
            #[test]
            fn in_a_remote_cache() { remote_cache::<$preset>(); }
            #[test]
            fn in_an_owned_cache() { owned_cache::<$preset>(); }
            #[test]
            fn in_the_own_cache() { own_cache_of_another_type::<$preset>(); }
            #[test]
            fn with_another_cpu() { all_of_another_cpu::<$preset>(); }
            #[test]
            fn everywhere() { everywhere_at_once::<$preset>(); }
            #[test]
            fn on_lists_of_other_types() { lists_of_other_types::<$preset>(); }
            #[test]
            fn skipped_on_other_lists() { skipped_on_lists_of_other_types::<$preset>(); }
            #[test]
            fn in_single_frames() { high_orders_in_singles::<$preset>(); }
            #[test]
            fn in_the_high_atomic_reserve() { high_atomic_reserve::<$preset>(); }
            #[test]
            fn in_the_reserve_late() { high_atomic_reserve_after_reclaim::<$preset>(); }
            #[test]
            fn in_cma() { cma::<$preset>(); }
            #[test]
            fn in_other_zones() { other_zones::<$preset>(); }
            #[test]
            fn on_another_node() { other_node::<$preset>(); }
            #[test]
            fn in_untouched_memory() { untouched::<$preset>(); }
            #[test]
            fn in_merges_not_made() { merges_not_made::<$preset>(); }
        }
    )*};
}

with_presets!(on_presets);
