//! Memory handed over after boot, and contiguous frames by count.

use zonal::error::ContiguousError;
use zonal::map::{PhysAddr, RangeKind, Region, RegionKind};
use zonal::plan::Config;
use zonal::policy::Policy;
use zonal::{MigrateType, Order, Request, ZoneId};
use zonal_testkit::probe::Probe;
use zonal_testkit::shape::{Shape, plan};
use zonal_testkit::world::{World, with_plan, with_world};

type W<'m, S> = World<'m, Probe, S>;

fn with<S: Policy>(shape: Shape, f: impl FnOnce(&W<'_, S>)) {
    with_world::<Probe, S, _>(shape, f);
}

fn totals<S: Policy>(world: &W<'_, S>) -> (u64, u64) {
    let zones = (0..world.allocator.zone_count() as u8).map(ZoneId);
    zones
        .filter_map(|zone| world.allocator.zone_info(zone))
        .fold((0, 0), |(managed, free), zone| {
            (managed + zone.managed, free + zone.free + zone.cached)
        })
}

fn released<S: Policy>() {
    with::<S>(Shape::Holes, |world| {
        let allocator = &world.allocator;
        let ranges = allocator.plan().map().ranges().iter();
        let later: Vec<_> = ranges.filter(|range| range.kind == RangeKind::ReclaimLater).collect();
        let frames: u64 = later.iter().map(|range| range.frames()).sum();
        assert!(frames > 0, "the shape has such memory");
        let before = totals(world);
        assert!(allocator.free_raw(later[0].start, Order::ZERO).is_err(), "not ours yet");

        assert_eq!(allocator.release_reclaim_later(), frames);
        assert_eq!(allocator.release_reclaim_later(), 0, "once");
        assert_eq!(totals(world), (before.0 + frames, before.1 + frames));

        let mut seen = 0;
        let mut held = Vec::new();
        while let Ok(pfn) = allocator.alloc_raw(&Request::frame()) {
            seen += u64::from(later.iter().any(|range| range.pfns().contains(pfn)));
            held.push(pfn);
        }
        assert_eq!(seen, frames, "every one of them is handed out, once");
        held.sort_unstable();
        held.dedup();
        assert_eq!(held.len() as u64, before.1 + frames);
        for pfn in held {
            allocator.free_raw(pfn, Order::ZERO).expect("allocated above");
        }
        allocator.drain_all();
        assert_eq!(totals(world), (before.0 + frames, before.1 + frames));
    });
}

fn contiguous<S: Policy>() {
    with::<S>(Shape::Huge, |world| {
        let (allocator, request) = (&world.allocator, Request::frame());
        let before = totals(world);
        for frames in [1, 2, 3, 512, 513, 1024, 1025, 5000] {
            let found = allocator.alloc_contiguous(frames, &request).expect("there is enough");
            assert_eq!(found.frames(), frames);
            let (managed, free) = totals(world);
            assert_eq!((managed, free), (before.0, before.1 - frames), "the rest was given back");
            allocator.free_contiguous(found).expect("allocated above");
        }
        let none = allocator.alloc_contiguous(0, &request).expect_err("impossible");
        assert_eq!(none, ContiguousError::Empty);
        for frames in [12801, u64::MAX] {
            let error = allocator.alloc_contiguous(frames, &request).expect_err("impossible");
            assert_eq!(error, ContiguousError::NoRange { frames, tried: 0, last: None });
        }
        assert_eq!(totals(world), before);
    });
}

/// A CMA pageblock with a hole in its middle comes in two pieces, and is counted once: all that is not CMA
/// is for unmovable requests.
fn cma_in_pieces<S: Policy>() {
    let at = |start: u64, frames: u64| Region::usable(PhysAddr(start << 12), frames << 12);
    let cma = |start, frames| Region { kind: RegionKind::Cma, ..at(start, frames) };
    let regions = [cma(0x1000, 200), cma(0x10d2, 302), at(0x1200, 512)];
    let config = Config { pageblock_order: Order::HUGE, ..Shape::Scrap.config() };
    with_plan::<Probe, S, _>(Shape::Scrap, &plan::<S>(&regions, config), |world| {
        let allocator = &world.allocator;
        let mut held = Vec::new();
        for (migrate, frames) in [(MigrateType::Unmovable, 512), (MigrateType::Movable, 502)] {
            let request = Request::frame().migrate(migrate);
            let before = held.len();
            held.extend(std::iter::from_fn(|| allocator.alloc_raw(&request).ok()));
            assert_eq!(held.len() - before, frames, "{migrate:?}");
        }
        held.into_iter().for_each(|pfn| allocator.free_raw(pfn, Order::ZERO).unwrap());
    });
}

macro_rules! over_presets {
    ($($module:ident: $preset:ty;)*) => {$(
        mod $module {
            #[test]
            fn memory_to_be_reclaimed_later_is_handed_over_once() {
                super::released::<$preset>();
            }
            #[test]
            fn contiguous_frames_come_by_any_number() {
                super::contiguous::<$preset>();
            }
            #[test]
            fn a_pageblock_in_pieces_is_counted_once() {
                super::cma_in_pieces::<$preset>();
            }
        }
    )*};
}

with_presets!(over_presets);
