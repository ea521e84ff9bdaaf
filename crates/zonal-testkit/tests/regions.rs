//! Where the CPUs of a zone begin to look for frames, and that all of the zone is found from anywhere.

use core::num::NonZeroU32;
use zonal::plan::Config;
use zonal::preset::Zonal;
use zonal::{CpuId, MigrateType, Order, Pfn, Request, ZoneId};
use zonal_testkit::host::TestHost;
use zonal_testkit::probe::Probe;
use zonal_testkit::shape::{Shape, plan};
use zonal_testkit::world::{World, with_plan};

type W<'m> = World<'m, Probe, Zonal>;

fn with(regions: Option<u32>, f: impl FnOnce(&W<'_>)) {
    let regions = regions.map(|regions| NonZeroU32::new(regions).expect("one at least"));
    // As many CPUs as have stacks in so little memory.
    let config = Config { cpus: 15, regions, ..Shape::Huge.config() };
    let plan = plan::<Zonal>(&Shape::Huge.regions(), config);
    with_plan::<Probe, Zonal, _>(Shape::Huge, &plan, f);
}

/// The first frames that some CPUs get, one after the other, from a zone in which each pageblock has free
/// frames and none is whole.
fn first_frames(world: &W<'_>, cpus: [u32; 3]) -> [Pfn; 3] {
    let allocator = &world.allocator;
    let request = Request::frame().migrate(MigrateType::Movable);
    let all: Vec<Pfn> = std::iter::from_fn(|| allocator.alloc_raw(&request).ok()).collect();
    assert!(all.len() > 10_000, "all of the zone, from one region");
    let freed = all.iter().filter(|pfn| !(pfn.get() + 1).is_multiple_of(512));
    freed.for_each(|&pfn| allocator.free_raw(pfn, Order::ZERO).expect("it is allocated"));
    allocator.drain_all();
    cpus.map(|cpu| {
        allocator.platform().switch_cpu(CpuId(cpu));
        let pfn = allocator.alloc_raw(&request).expect("all is free");
        allocator.platform().switch_cpu(CpuId(0));
        pfn
    })
}

/// Which of CPUs 0, 13 and 14 begin in the upper half.
fn begin_above(regions: Option<u32>) -> [bool; 3] {
    let mut above = [false; 3];
    with(regions, |world| {
        let zone = world.allocator.zone_info(ZoneId(0)).expect("there is one");
        let half = zone.start.get() + zone.spanned / 2 / 512 * 512;
        above = first_frames(world, [0, 13, 14]).map(|pfn| pfn.get() >= half);
    });
    above
}

#[test]
fn fourteen_cpus_begin_together_and_the_next_elsewhere() {
    assert_eq!(begin_above(None), [false; 3], "so few CPUs have one region");
    assert_eq!(begin_above(Some(1)), [false; 3]);
    assert_eq!(begin_above(Some(2)), [false, false, true]);
}
