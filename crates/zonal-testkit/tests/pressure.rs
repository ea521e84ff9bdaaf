//! Watermarks, the host's callbacks, and how long locks are held.

use zonal::map::{PhysAddr, Region, RegionKind};
use zonal::plan::Config;
use zonal::policy::{FreeMemory, PcpPolicy, Policy, Walk};
use zonal::watermark::{MinFree, WatermarkConfig, Watermarks};
use zonal::{CpuId, HOLD_BOUND, MigrateType, Order, Pfn, Request, ZoneId, ZoneType};
use zonal_testkit::host::TestHost;
use zonal_testkit::probe::Probe;
use zonal_testkit::shape::{Shape, order, plan};
use zonal_testkit::world::{World, with_plan, with_world};

type W<'m, S> = World<'m, Probe, S>;
const ZONE: ZoneId = ZoneId(0);

fn free<S: Policy>(world: &W<'_, S>) -> u64 {
    world.allocator.zone_info(ZONE).unwrap().free
}

/// Takes single frames, uncached: no frame is out of sight.
fn take_down_to<S: Policy>(world: &W<'_, S>, frames: u64) -> Vec<Pfn> {
    let mut out = Vec::new();
    loop {
        world.allocator.drain_all();
        if free(world) == frames {
            return out;
        }
        out.push(world.allocator.alloc_raw(&Request::frame()).unwrap());
    }
}

/// What is left free when `request` fails, and nothing is cached any more.
fn floor<S: Policy>(world: &W<'_, S>, request: &Request) -> u64 {
    loop {
        if world.allocator.alloc_raw(request).is_err() {
            return free(world);
        }
        world.allocator.drain_all();
    }
}

fn marks_hold_back<S: Policy>() {
    with_world::<Probe, S, _>(Shape::Whole, |world| {
        let marks = Watermarks { min: 160, low: 200, high: 240 };
        assert!(world.allocator.set_watermarks(ZONE, marks));
        let plain = Request::frame();
        assert_eq!(floor(world, &plain), 160);
        assert_eq!(floor(world, &plain.high()), 80, "half of it");
        assert_eq!(floor(world, &plain.atomic().high()), 60, "and a quarter of the rest");
        assert!(world.allocator.set_watermark_boost(ZONE, 40));
        assert!(world.allocator.alloc_raw(&plain.atomic().high()).is_err());
        assert!(world.allocator.set_watermarks(ZONE, Watermarks::default()));
        assert_eq!(floor(world, &plain), 40, "the boost");
        assert!(world.allocator.set_watermark_boost(ZONE, 0));
        assert_eq!(floor(world, &plain), 0);
    });
}

fn atomic_requests_go_lower<S: Policy>() {
    with_world::<Probe, S, _>(Shape::Whole, |world| {
        let marks = Watermarks { min: 160, low: 160, high: 160 };
        assert!(world.allocator.set_watermarks(ZONE, marks));
        assert_eq!(floor(world, &Request::frame()), 160);
        assert_eq!(floor(world, &Request::frame().atomic()), 120);
    });
}

fn low_wakes_reclaim<S: Policy>() {
    with_world::<Probe, S, _>(Shape::Whole, |world| {
        let allocator = &world.allocator;
        take_down_to(world, 500);
        assert!(allocator.platform().take_calls().woken.is_empty(), "there is plenty");
        assert!(allocator.set_watermarks(ZONE, Watermarks { min: 100, low: 500, high: 600 }));
        allocator.alloc_raw(&Request::frame()).expect("min is far");
        let calls = allocator.platform().take_calls();
        assert_eq!(calls.woken, [ZONE]);
        assert!(calls.reclaims.is_empty(), "no request waits for reclaim");
        assert!(allocator.platform().faults().is_empty());
    });
}

/// A lowmem reserve keeps low zones for those who have no other.
fn lowmem_reserve<S: Policy>() {
    let config = Config { lowmem_ratio: [16, 16, 0, 0], ..Shape::Low.config() };
    let plan = plan::<S>(&Shape::Low.regions(), config);
    let reserve: u64 = plan.zones()[0].lowmem_reserve[ZoneType::Normal.index()];
    assert_eq!(reserve, (768 + 1024) / 16);
    with_plan::<Probe, S, _>(Shape::Low, &plan, |world| {
        assert_eq!(floor(world, &Request::frame()), reserve);
        assert_eq!(floor(world, &Request::frame().zone_limit(ZoneType::Dma)), 0);
    });
}

fn reclaim_is_called_and_believed<S: Policy>() {
    with_world::<Probe, S, _>(Shape::Flat, |world| {
        let allocator = &world.allocator;
        let out = take_down_to(world, 0);
        let request = Request::frame();
        allocator.platform().take_calls();
        for waits in [request.no_wait(), request.atomic()] {
            assert!(allocator.alloc_raw(&waits).is_err());
            assert!(allocator.platform().take_calls().reclaims.is_empty(), "it cannot wait");
        }
        assert!(allocator.alloc_raw(&request).is_err());
        let calls = allocator.platform().take_calls();
        assert_eq!(calls.reclaims.len(), 1, "no progress: not again");
        assert_eq!((calls.reclaims[0].request, calls.reclaims[0].attempt), (request, 0));

        allocator.platform().pledge(out[5], Order::ZERO);
        assert_eq!(allocator.alloc_raw(&request).unwrap(), out[5], "what reclaim freed is found");
        // Other migrate types and owners find it too.
        allocator.platform().pledge(out[9], Order::ZERO);
        let mut owner = allocator.handle(zonal::CpuId(1)).unwrap();
        let movable = request.migrate(MigrateType::Movable);
        assert_eq!(owner.alloc_raw(&movable).unwrap(), out[9]);
        assert_eq!(allocator.platform().faults(), [""; 0]);
    });
}

/// A request that may not wait asks no other CPU for a fence, also when it empties its own cache; who
/// empties an owner's does.
fn who_may_not_wait_makes_no_heavy_fence<S: Policy>() {
    with_world::<Probe, S, _>(Shape::Flat, |world| {
        let allocator = &world.allocator;
        let mut owner = allocator.handle(CpuId(0)).unwrap();
        let request = Request::frame().migrate(MigrateType::Movable);
        let mut out = Vec::new();
        while let Ok(pfn) = owner.alloc_raw(&request.no_wait()) {
            out.push(pfn);
        }
        // What the owner has freed is cached for movable requests.
        owner.free_raw(out.pop().unwrap(), Order::ZERO).unwrap();
        let _ = <Probe>::take_heavy_fences();
        for wanted in [order(1), Order::HUGE, Order::ZERO] {
            for waits in [request.no_wait(), request.atomic()] {
                let _ = owner.alloc_raw(&waits.with_order(wanted));
            }
        }
        assert_eq!(<Probe>::take_heavy_fences(), 0, "others would have to answer it");
        allocator.drain_all();
        let drained = <Probe>::take_heavy_fences();
        assert_eq!(drained > 0, S::Pcp::OUTSIDE && S::Walk::FIRST, "{drained} fences");
    });
}

/// Reclaim frees single frames until a block of the wanted order has formed.
fn blocks_form_from_what_is_reclaimed<S: Policy>() {
    with_world::<Probe, S, _>(Shape::Flat, |world| {
        let allocator = &world.allocator;
        let mut out = take_down_to(world, 0);
        out.sort_unstable();
        for &pfn in &out[64..96] {
            allocator.platform().pledge(pfn, Order::ZERO);
        }
        let request = Request::new(order(5));
        // Where merges are skipped, what is freed after a compaction was put off anew stays apart, as in
        // the source, and may be all that is missing: a drain merges it.
        let block = allocator.alloc_raw(&request).or_else(|error| {
            if !S::Free::SKIPS_MERGES {
                return Err(error);
            }
            allocator.drain_all();
            allocator.alloc_raw(&request)
        });
        assert_eq!(block.unwrap(), out[64]);
        assert_eq!(allocator.platform().faults(), [""; 0]);
    });
}

/// Every second frame of each pageblock of 512 frames is free, as another type. With one frame
/// less than half the pageblock free it is looked at in vain, with half it is claimed.
fn holds_are_bounded_in_fragments<S: Policy>(urgent: bool) {
    let memory = [Region::usable(PhysAddr(0), 512 << 20)];
    let config = Config {
        dma_limit: Pfn::new(0),
        dma32_limit: Pfn::new(0),
        watermarks: WatermarkConfig { min_free: MinFree::None, ..WatermarkConfig::default() },
        ..Config::new(1)
    };
    let plan = plan::<S>(&memory, config);
    let movable = Request::frame().migrate(MigrateType::Movable);
    for half in [false, true] {
        with_plan::<Probe, S, _>(Shape::Flat, &plan, |world| {
            let allocator = &world.allocator;
            let mut out = vec![Pfn::default(); plan.managed() as usize];
            allocator.alloc_bulk(&movable, &mut out).unwrap();
            for &pfn in &out {
                let free = match pfn.get() % 512 {
                    1 => urgent, // a block of order 1
                    2 => !urgent && half,
                    4 => !urgent || half,
                    at => at % 2 == 0,
                };
                if free {
                    allocator.free_raw(pfn, Order::ZERO).unwrap();
                }
            }
            allocator.drain_all();
            let request = if urgent { Request::new(order(1)).atomic() } else { Request::frame() };
            for _ in 0..2000 {
                if allocator.alloc_raw(&request).is_err() {
                    break;
                }
            }
            let events = allocator.zone_info(ZONE).unwrap().events;
            assert_eq!((events.claimed > 0, events.stolen > 0), (half, !half), "{events:?}");
            let looked = "a pageblock was looked at, if that takes the lock";
            assert_eq!(events.hold_max > 500, S::Free::LOCKED, "{looked}: {events:?}");
            // Half of `HOLD_BOUND`, which allows for pageblocks of twice the size.
            assert!(events.hold_max <= HOLD_BOUND / 2, "I-7: {events:?}");
        });
    }
}

/// Setting up ragged memory is no lock hold.
fn set_up_is_no_hold<S: Policy>() {
    let regions: Vec<_> = (0..250)
        .map(|nth| {
            let start = PhysAddr(nth * 5000 * 4096 + 4096);
            let kind = RegionKind::Usable;
            Region { start, bytes: 4094 * 4096, kind, ..Region::usable(start, 0) }
        })
        .collect();
    let config = Config { dma_limit: Pfn::new(0), dma32_limit: Pfn::new(0), ..Config::new(1) };
    with_plan::<Probe, S, _>(Shape::Flat, &plan::<S>(&regions, config), |world| {
        assert_eq!(world.allocator.zone_info(ZONE).unwrap().events.hold_max, 0);
    });
}

macro_rules! on_presets {
    ($($module:ident: $preset:ty;)*) => {$(
        mod $module {
            use super::*;
            #[test]
            fn watermarks_hold_back() { marks_hold_back::<$preset>(); }
            #[test]
            fn atomic_goes_lower() { atomic_requests_go_lower::<$preset>(); }
            #[test]
            fn below_low_reclaim_is_woken() { low_wakes_reclaim::<$preset>(); }
            #[test]
            fn low_zones_are_reserved() { lowmem_reserve::<$preset>(); }
            #[test]
            fn reclaim() { reclaim_is_called_and_believed::<$preset>(); }
            #[test]
            fn fences() { who_may_not_wait_makes_no_heavy_fence::<$preset>(); }
            #[test]
            fn reclaim_of_blocks() { blocks_form_from_what_is_reclaimed::<$preset>(); }
            #[test]
            fn holds_in_fragments() { holds_are_bounded_in_fragments::<$preset>(false); }
            #[test]
            fn holds_of_urgent_requests() { holds_are_bounded_in_fragments::<$preset>(true); }
            #[test]
            fn set_up() { set_up_is_no_hold::<$preset>(); }
        }
    )*};
}

with_presets_of_one_zone!(on_presets);
