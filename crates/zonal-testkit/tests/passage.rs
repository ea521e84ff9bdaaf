//! Whole pageblocks that an owner frees outside its slot keep their class, and are counted.

use std::panic::{AssertUnwindSafe, catch_unwind};
use zonal::map::{PhysAddr, RangeKind, Region, RegionKind};
use zonal::plan::Config;
use zonal::preset::Zonal;
use zonal::watermark::{MinFree, WatermarkConfig};
use zonal::{CpuId, MigrateType, Order, Pfn, Request, ZoneId};
use zonal_testkit::probe::Probe;
use zonal_testkit::shape::{Shape, plan};
use zonal_testkit::world::{World, with_plan};

type W<'m> = World<'m, Probe, Zonal>;

const HUGE: Request = Request::new(Order::HUGE);
const MOVABLE: Request = HUGE.migrate(MigrateType::Movable);

/// 128 pageblocks of 512 frames, in two sections; 16 of the first are CMA.
fn with(f: impl FnOnce(&W<'_>)) {
    let cma = Region { kind: RegionKind::Cma, ..Region::usable(PhysAddr(96 << 20), 32 << 20) };
    let memory = [Region::usable(PhysAddr(0), 256 << 20), cma];
    let config = Config {
        dma_limit: Pfn::new(0),
        dma32_limit: Pfn::new(0),
        watermarks: WatermarkConfig { min_free: MinFree::None, ..WatermarkConfig::default() },
        ..Config::new(1)
    };
    let plan = plan::<Zonal>(&memory, config);
    with_plan::<Probe, Zonal, _>(Shape::Flat, &plan, f);
}

fn is_cma(world: &W<'_>, pfn: Pfn) -> bool {
    world.allocator.plan().map().kind_at(pfn) == Some(RangeKind::Cma)
}

/// A CMA pageblock is lent to movable requests and lies in a section whose others pass.
#[test]
fn what_is_lent_does_not_pass_as_ordinary() {
    with(|world| {
        let mut owner = world.allocator.handle(CpuId(0)).expect("no other owner");
        let mut held = Vec::new();
        while let Ok(pfn) = owner.alloc_raw(&MOVABLE) {
            held.push(pfn);
        }
        assert_eq!(held.len(), 128, "movable requests may have all of it");
        let (lent, own): (Vec<_>, Vec<_>) = held.into_iter().partition(|&pfn| is_cma(world, pfn));
        assert_eq!(lent.len(), 16);
        // The second time it passes, or the test shows nothing.
        for _ in 0..3 {
            owner.free_raw(own[0], Order::HUGE).expect("allocated");
            assert_eq!(owner.alloc_raw(&MOVABLE), Ok(own[0]), "there is no other");
        }
        owner.free_raw(lent[0], Order::HUGE).expect("allocated");
        assert!(owner.alloc_raw(&HUGE).is_err(), "unmovable requests leave CMA alone");
        assert_eq!(owner.alloc_raw(&MOVABLE), Ok(lent[0]));
        drop(owner);
    });
}

/// What passed is in no count, and in all of them after a drain; a wrong or second free is refused there.
#[test]
fn what_passes_is_counted_by_a_drain() {
    with(|world| {
        let mut owner = world.allocator.handle(CpuId(0)).expect("no other owner");
        let counted = || world.allocator.zone_info(ZoneId(0)).expect("a zone").counted_free;
        let all = counted();
        let [other, pfn] = [(); 2].map(|()| owner.alloc_raw(&MOVABLE).expect("all is free"));
        owner.free_raw(pfn, Order::HUGE).expect("allocated");
        assert_eq!(counted(), all - 1024, "both, of which one has passed");
        assert!(owner.free_raw(pfn, Order::HUGE).is_err(), "a second time");
        assert!(owner.free_raw(other, Order::MAX).is_err(), "another order");
        assert!(owner.free_raw(Pfn::new(other.get() + 1), Order::HUGE).is_err(), "inside");
        assert!(owner.free_raw(Pfn::new(1 << 30), Order::HUGE).is_err(), "foreign");
        world.allocator.drain_cpu(CpuId(0));
        assert_eq!(counted(), all - 512);
        assert_eq!(owner.alloc_raw(&MOVABLE), Ok(pfn));
        owner.free_raw(pfn, Order::HUGE).expect("allocated");
        owner.free_raw(other, Order::HUGE).expect("allocated");
        drop(owner);
        world.allocator.drain_all();
        assert_eq!(counted(), all);
    });
}

/// What passes was in use before: a request for zeros does not get it as it is.
#[test]
fn what_is_to_be_zero_does_not_pass() {
    with(|world| {
        let mut owner = world.allocator.handle(CpuId(0)).expect("no other owner");
        let zeroed = MOVABLE.zero();
        for wanted in [zeroed, zeroed, MOVABLE, MOVABLE, zeroed, zeroed] {
            let pfn = owner.alloc_raw(&wanted).expect("all is free");
            owner.free_raw(pfn, Order::HUGE).expect("allocated");
        }
        let mut frames = [Pfn::new(0); 2];
        owner.alloc_bulk(&zeroed, &mut frames).expect("all is free");
        assert_eq!(world.allocator.platform().take_calls().zeroed.len(), 4 + 2);
    });
}

/// A host that panics when it is asked whether it can move pages: what was to pass is free again (I-3).
#[test]
fn what_passes_goes_back_if_the_host_panics() {
    with(|world| {
        let (allocator, host) = (&world.allocator, world.allocator.platform());
        let free = || allocator.zone_info(ZoneId(0)).expect("a zone").free;
        let all = free();
        let mut owner = allocator.handle(CpuId(0)).expect("no other owner");
        for _ in 0..4 {
            let pfn = owner.alloc_raw(&MOVABLE).expect("all is free");
            owner.free_raw(pfn, Order::HUGE).expect("allocated");
            host.panic_at(1);
            let call = catch_unwind(AssertUnwindSafe(|| owner.alloc_raw(&MOVABLE)));
            assert!(call.is_err() && !host.is_to_panic(), "it was asked");
            assert_eq!(free(), all);
        }
        drop(owner);
        allocator.drain_all();
        let zone = allocator.zone_info(ZoneId(0)).expect("a zone");
        assert_eq!((zone.free, zone.counted_free), (all, all));
    });
}
