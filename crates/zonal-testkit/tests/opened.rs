//! A pageblock that a CPU's refill opened stays the CPU's, and is lost to none.

use std::collections::BTreeMap;
use zonal::map::{PhysAddr, Region};
use zonal::plan::Config;
use zonal::preset::Zonal;
use zonal::watermark::{MinFree, WatermarkConfig};
use zonal::{CpuId, MigrateType, Order, Pfn, Request};
use zonal_testkit::host::TestHost;
use zonal_testkit::probe::Probe;
use zonal_testkit::shape::{Shape, plan};
use zonal_testkit::world::{World, with_plan};

type W<'m> = World<'m, Probe, Zonal>;

/// 256 pageblocks of 512 frames.
fn with(cpus: u32, f: impl FnOnce(&W<'_>)) {
    let memory = [Region::usable(PhysAddr(0), 512 << 20)];
    let config = Config {
        dma_limit: Pfn::new(0),
        dma32_limit: Pfn::new(0),
        watermarks: WatermarkConfig { min_free: MinFree::None, ..WatermarkConfig::default() },
        ..Config::new(cpus)
    };
    let plan = plan::<Zonal>(&memory, config);
    with_plan::<Probe, Zonal, _>(Shape::Flat, &plan, f);
}

fn take(world: &W<'_>, cpu: u32) -> Option<Pfn> {
    world.allocator.platform().switch_cpu(CpuId(cpu));
    world.allocator.alloc_raw(&Request::frame().migrate(MigrateType::Movable)).ok()
}

/// Pageblocks in which both of two CPUs have frames, when they have filled most of memory in turns.
fn shared(cpus: u32) -> usize {
    let mut both = 0;
    with(cpus, |world| {
        let mut owners: BTreeMap<u64, u32> = BTreeMap::new();
        for nth in 0..100_000 {
            let cpu = nth % 2;
            let pfn = take(world, cpu).expect("there are 131,072");
            *owners.entry(pfn.get() / 512).or_default() |= 1 << cpu;
        }
        both = owners.values().filter(|&&owners| owners == 3).count();
    });
    both
}

#[test]
fn what_two_cpus_fill_in_turns_lies_apart() {
    assert_eq!(shared(2), 0);
    assert!(shared(8) > 50, "eight CPUs keep none here: the test can fail");
}

/// What a CPU has opened and not used goes back with a drain, and is found without one.
#[test]
fn what_was_opened_is_not_lost() {
    with(2, |world| {
        let first = take(world, 1).expect("all is free");
        let opened = first.get() / 512;
        assert_ne!(take(world, 0).map(|pfn| pfn.get() / 512), Some(opened));
        world.allocator.drain_all();
        assert_eq!(take(world, 1).map(|pfn| pfn.get() / 512), Some(opened), "it has hints again");
        let mut all = 3;
        while take(world, 0).is_some() {
            all += 1;
        }
        assert_eq!(all, 512 << 8, "every frame, also those of the pageblock that CPU 1 opened");
    });
}

/// The free that makes it whole finds it, though no hint led there.
#[test]
fn what_was_opened_becomes_whole_again() {
    with(2, |world| {
        let pfn = take(world, 1).expect("all is free");
        world.allocator.free_raw(pfn, Order::ZERO).expect("it is allocated");
        world.allocator.drain_all();
        for nth in 0..256 {
            assert!(world.allocator.alloc_raw(&Request::new(Order::HUGE)).is_ok(), "block {nth}");
        }
    });
}

/// Frames, pairs and blocks of eight come and go at random on two CPUs in turns, `held` frames of each at most: pageblocks in
/// which both have some, of those in which there are any.
fn mixed(held: usize) -> (usize, usize) {
    let mut counts = (0, 0);
    with(2, |world| {
        let mut live: [Vec<(Pfn, Order)>; 2] = [vec![], vec![]];
        let mut random = 1_u64;
        for nth in 0..200_000 {
            // Knuth's MMIX generator.
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let (cpu, at) = (nth % 2, (random >> 33) as usize);
            world.allocator.platform().switch_cpu(CpuId(cpu));
            let own = &mut live[cpu as usize];
            if own.len() >= held || (at % 5 < 2 && !own.is_empty()) {
                let (pfn, order) = own.swap_remove(at / 8 % own.len());
                world.allocator.free_raw(pfn, order).expect("it is allocated");
            } else {
                let order = Order::new([0, 0, 0, 1, 3][at / 8 % 5]).expect("an order");
                let request = Request::new(order).migrate(MigrateType::Movable);
                own.push((world.allocator.alloc_raw(&request).expect("there is memory"), order));
            }
        }
        let mut owners: BTreeMap<u64, u32> = BTreeMap::new();
        for (cpu, own) in live.iter().enumerate() {
            own.iter().for_each(|(pfn, _)| *owners.entry(pfn.get() / 512).or_default() |= 1 << cpu);
        }
        counts = (owners.values().filter(|&&owners| owners == 3).count(), owners.len());
    });
    counts
}

/// While most of memory is free each CPU works in a part of its own; where it is not, both pack the same pageblocks.
#[test]
fn cpus_keep_apart_while_there_is_much() {
    let (both, any) = mixed(4000);
    assert!(both == 0 && any > 8, "{both} of {any}");
    let (both, any) = mixed(25_000);
    assert!(both > any / 4, "{both} of {any}");
}
