//! Memory that is for some requests only does not count for others; nor do frames behind a range that is wanted.

use zonal::map::{PhysAddr, Region, RegionKind};
use zonal::plan::Config;
use zonal::policy::Policy;
use zonal::watermark::{MinFree, WatermarkConfig};
use zonal::{CpuId, Order, Pfn, Request, ZoneId};
use zonal_testkit::host::TestHost;
use zonal_testkit::probe::Probe;
use zonal_testkit::shape::{Shape, plan};
use zonal_testkit::world::{with_plan, with_world};

const CPUS: usize = 3;
/// Bytes of each half.
const HALF: u64 = 32 << 20;
/// Behind DMA: memory in one zone.
const START: u64 = 16 << 20;

/// CPUs count late what they take, but not near the marks of what a request may use: here of half the memory, beside
/// another half that is free for others.
fn marks_hold_beside_cma<S: Policy>() {
    let cma = Region { kind: RegionKind::Cma, ..Region::usable(PhysAddr(START + HALF), HALF) };
    let regions = [Region::usable(PhysAddr(START), HALF), cma];
    let min_free = MinFree::Frames(1024);
    let watermarks = WatermarkConfig { min_free, ..WatermarkConfig::default() };
    let config = Config { watermarks, ..Config::new(CPUS as u32) };
    with_plan::<Probe, S, _>(Shape::Flat, &plan::<S>(&regions, config), |world| {
        let allocator = &world.allocator;
        let min = allocator.zone_info(ZoneId(0)).unwrap().watermarks.min;
        let ordinary = allocator.plan().managed() - HALF / 4096;
        let (mut taken, mut refused) = (0, [false; CPUS]);
        while refused.contains(&false) {
            for (cpu, refused) in refused.iter_mut().enumerate() {
                allocator.platform().switch_cpu(CpuId(cpu as u32));
                *refused = allocator.alloc_raw(&Request::frame()).is_err();
                taken += u64::from(!*refused);
            }
        }
        assert!(min > 0 && ordinary >= taken + min, "{taken} of {ordinary}, and {min} are to stay");
    });
}

/// Of the last pageblock that a range lies in the frames behind it may be in use, and may stay where they are.
fn what_is_behind_a_range_may_stay<S: Policy>() {
    with_world::<Probe, S, _>(Shape::Blocks3, |world| {
        let (allocator, request) = (&world.allocator, Request::frame());
        let all: Vec<Pfn> = std::iter::from_fn(|| allocator.alloc_raw(&request).ok()).collect();
        let first = all.iter().map(|pfn| pfn.get()).min().unwrap().next_multiple_of(1024);
        let wanted = first..first + 1025;
        for pfn in all.iter().filter(|pfn| wanted.contains(&pfn.get())) {
            allocator.free_raw(*pfn, Order::ZERO).unwrap();
        }
        allocator.drain_all();
        let range = allocator.alloc_contiguous(1025, &request.no_wait()).unwrap();
        assert_eq!(range.range(), Pfn::new(wanted.start)..Pfn::new(wanted.end));
    });
}

macro_rules! tests {
    ($($name:ident: $preset:ty;)*) => {$(
        mod $name {
            #[test]
            fn marks_hold() { super::marks_hold_beside_cma::<$preset>(); }
            #[test]
            fn frames_behind() { super::what_is_behind_a_range_may_stay::<$preset>(); }
        }
    )*};
}

tests! {
    linux416: zonal::preset::Linux416;
    default_preset: zonal::preset::Zonal;
}
