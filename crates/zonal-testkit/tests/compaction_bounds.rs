//! What a compaction costs that finds nothing to move: a request stops at a bound, and the next ones
//! learn from it.

use zonal::map::{PhysAddr, Region};
use zonal::plan::Config;
use zonal::policy::Compact;
use zonal::policy::compact::Cheapest;
use zonal::preset::Zonal;
use zonal::units::FRAME_SIZE;
use zonal::{CompactMode, CompactOutcome, MigrateType, Order, Pfn, Request, ZoneId};
use zonal_testkit::mover::Moving;
use zonal_testkit::probe::Probe;
use zonal_testkit::shape::{Shape, plan};
use zonal_testkit::world::{World, with_plan};

type W<'m> = World<'m, Probe, Zonal>;

/// Twice what a request may look at.
const FRAMES: u64 = 2 * Cheapest::SIGHT as u64;
/// A group on either side that was begun is looked at to its end.
const GROUPS: u64 = 2 * 32 * 512;

/// Memory of which every second frame is held, and a host that moves nothing.
fn with_every_second(f: impl FnOnce(&W<'_>)) {
    let memory = Region::usable(PhysAddr(1 << 32), FRAMES * FRAME_SIZE as u64);
    let config = Config { ..Shape::Huge.config() };
    let plan = plan::<Zonal>(&[memory], config);
    with_plan::<Probe, Zonal, _>(Shape::Huge, &plan, |world| {
        let allocator = &world.allocator;
        let request = Request::frame().migrate(MigrateType::Movable);
        let mut out = vec![Pfn::new(0); FRAMES as usize];
        allocator.alloc_bulk(&request, &mut out).expect("all memory");
        let every_second: Vec<Pfn> = out.into_iter().filter(|pfn| pfn.get() % 2 == 0).collect();
        assert_eq!(allocator.free_bulk(&every_second).freed, every_second.len());
        allocator.drain_all();
        allocator.platform().movers().set(Moving::Refuses);
        f(world);
    });
}

/// Frames that scanners looked at, and frames offered in vain.
fn cost(world: &W<'_>) -> (u64, u64) {
    let events = world.allocator.zone_info(ZoneId(0)).unwrap().compaction;
    (events.migrate_scanned + events.free_scanned, events.migrate_fail)
}

fn ask(world: &W<'_>) {
    let huge = Request::new(Order::HUGE).migrate(MigrateType::Movable);
    world.allocator.alloc_raw(&huge).expect_err("nothing moves");
}

#[test]
fn a_request_pays_no_more_than_the_bound_and_the_next_learn() {
    let bound = u64::from(Cheapest::SIGHT) + GROUPS;
    with_every_second(|world| {
        let (mut most, mut offered) = (0, 0);
        for _ in 0..201 {
            let before = cost(world);
            ask(world);
            let after = cost(world);
            most = most.max(after.0 - before.0);
            offered = offered.max(after.1 - before.1);
        }
        let (all, _) = cost(world);
        assert!(most > 1 << 16, "it looked: {most}");
        assert!(most <= bound, "{most} frames for one request, {bound} are the bound");
        assert!(offered <= u64::from(Cheapest::OFFERS), "{offered} frames offered");
        assert!(all <= 16 * bound, "{all} frames for 201 requests");
    });
}

/// A request that no pageblock of another type can serve leaves their types alone.
#[test]
fn a_refused_request_claims_nothing() {
    with_every_second(|world| {
        let counts = || world.allocator.pageblock_counts(ZoneId(0));
        let before = counts();
        for order in [1, 4, 9, 10].map(|order| Order::new(order).unwrap()) {
            for request in [Request::new(order), Request::new(order).no_wait()] {
                world.allocator.alloc_raw(&request).expect_err("each second frame is held");
                assert_eq!(counts(), before, "{order:?}");
            }
        }
        let frame = world.allocator.alloc_raw(&Request::frame()).expect("half is free");
        assert_ne!(counts(), before, "the test can fail");
        world.allocator.free_raw(frame, Order::ZERO).unwrap();
    });
}

/// A block that is isolated is there for no request.
#[test]
fn an_isolated_block_is_no_success() {
    let memory = Region::usable(PhysAddr(1 << 32), 4096 * FRAME_SIZE as u64);
    let plan = plan::<Zonal>(&[memory], Shape::Huge.config());
    with_plan::<Probe, Zonal, _>(Shape::Huge, &plan, |world: &W<'_>| {
        let (allocator, first) = (&world.allocator, plan.base().get());
        let movable = Request::new(Order::MAX).migrate(MigrateType::Movable);
        let held = allocator.isolate(Pfn::new(first)..Pfn::new(first + 1024)).expect("all is free");
        let taken: Vec<Pfn> = std::iter::from_fn(|| allocator.alloc_raw(&movable).ok()).collect();
        assert_eq!(taken.len(), 3);
        let outcome = allocator.compact_zone(ZoneId(0), Order::MAX, CompactMode::Sync);
        assert_ne!(outcome, CompactOutcome::Success);
        drop(held);
        taken.into_iter().for_each(|pfn| allocator.free_raw(pfn, Order::MAX).unwrap());
    });
}
