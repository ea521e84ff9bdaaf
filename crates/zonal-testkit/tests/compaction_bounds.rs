//! What a compaction costs that finds nothing to move: a request stops at a bound, and the next ones
//! learn from it.

use zonal::map::{PhysAddr, Region};
use zonal::plan::Config;
use zonal::policy::Compact;
use zonal::policy::compact::Cheapest;
use zonal::preset::Zonal;
use zonal::units::FRAME_SIZE;
use zonal::{MigrateType, Order, Pfn, Request, ZoneId};
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
