//! Models of what goes wrong half-way (I-3): a bulk request that cannot be filled, a block that
//! cannot be zeroed, clusters and reservations that run out, while others go on.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test --release -p zonal-testkit --test loom_undo -- --nocapture
//! ```
#![cfg(loom)]

#[expect(dead_code, reason = "shared by several tests")]
mod loom_world;

use loom_world::{ALL_BUT_8, FRAMES, MOVABLE, Ones, World, spawn_on};
use std::rc::Rc;
use zonal::error::AllocReason;
use zonal::pcp::Depot;
use zonal::policy::{PcpPolicy, merge::Lazy};
use zonal::zone::lists::BuddyLists;
use zonal::{Order, Pfn};
use zonal_testkit::loom_platform::{LoomPlatform, Newest, explore, small_plan, spawn};

/// Six frames are asked for at once and four are free: what was taken goes back, while the
/// other CPU allocates and frees.
///
/// At most 2 preemptions: 21 000 runs, 6.5 s.
#[test]
fn bulk_fails_half_way() {
    let plan = small_plan(16, 2, 4);
    explore("bulk fails half-way", Some(2), move || {
        let world = World::<LoomPlatform<Newest>, Ones>::new(plan);
        let rest = world.occupy(&[3, 2]);
        let other = spawn_on(&world, 1, |world| {
            // The bulk request may hold all four at this moment.
            let found = world.take();
            found.into_iter().for_each(|pfn| world.give(pfn));
        });
        let error = world.allocator().alloc_bulk(&MOVABLE, &mut [Pfn::default(); 6]).unwrap_err();
        assert_eq!(error.reason, AllocReason::Exhausted);
        other.join().unwrap();
        world.vacate(&rest);
        world.finish();
    });
}

/// As [`bulk_fails_half_way`] on the same CPU, and three of the four are asked for: the other
/// takes up to two, so that it may or may not be filled.
///
/// At most 2 preemptions: 13 100 runs, 2.6 s.
#[test]
fn bulk_may_fail() {
    let plan = small_plan(FRAMES, 2, 12);
    explore("bulk may fail", Some(2), move || {
        let world: Rc<World> = World::new(plan);
        let rest = world.occupy(&[6, 4, 3, 2]);
        let other = spawn_on(&world, 0, |world| [world.take(), world.take()]);
        let mut out = [Pfn::default(); 3];
        let filled = world.allocator().alloc_bulk(&MOVABLE, &mut out).is_ok();
        if filled {
            out.iter().for_each(|&pfn| world.took(pfn, Order::ZERO));
        }
        let theirs = other.join().unwrap();
        theirs.into_iter().flatten().for_each(|pfn| world.give(pfn));
        if filled {
            out.iter().for_each(|&pfn| world.giving(pfn, Order::ZERO));
            assert_eq!(world.allocator().free_bulk(&out).freed, 3);
        }
        world.vacate(&rest);
        world.finish();
    });
}

/// The host cannot zero: the block is taken and goes back, while the other thread, on the same
/// CPU, allocates and frees.
///
/// At most 3 preemptions: 10 200 runs, 1.4 s.
#[test]
fn zeroing_fails() {
    let plan = small_plan(FRAMES, 2, 12);
    explore("zeroing fails", Some(3), move || {
        let world: Rc<World> = World::new(plan);
        let rest = world.occupy(&[6, 4, 3, 2]);
        let other = spawn_on(&world, 0, |world| {
            let pfn = world.take().expect("I-6: four are free");
            world.give(pfn);
        });
        let error = world.allocator().alloc(&MOVABLE.zero()).unwrap_err();
        assert_eq!(error.reason, AllocReason::CannotZero);
        other.join().unwrap();
        world.vacate(&rest);
        world.finish();
    });
}

/// One cluster in all, and both CPUs spill: one gets it, the other's frames go to the buddy
/// lists.
///
/// All schedules: 10 600 runs, 1.5 s.
#[test]
fn clusters_run_out() {
    let plan = small_plan(FRAMES, 2, 48);
    explore("clusters run out", None, move || {
        let world: Rc<World> = World::new(plan);
        let held = world.take_on(0, 8);
        world.give_on(0, &held[..3]);
        world.give_on(1, &held[3..6]);
        let last = held[7];
        let other = spawn_on(&world, 1, move |world| world.give(last));
        world.give(held[6]);
        other.join().unwrap();
        assert_eq!(world.zone().deferred, 2, "the cluster is in use");
        world.finish();
    });
}

/// The one cluster is loaded by its CPU, merged by a request of the other, and wanted again.
///
/// At most 3 preemptions: 4 400 runs, 0.7 s.
#[test]
fn last_cluster_changes_hands() {
    let plan = small_plan(FRAMES, 2, 48);
    explore("last cluster changes hands", Some(3), move || {
        let world: Rc<World> = World::new(plan);
        let rest = world.occupy(&ALL_BUT_8);
        let held = world.take_on(0, 8);
        world.give_on(0, &held[..4]);
        world.give_on(1, &held[4..7]);
        let last = held[7];
        let other = spawn_on(&world, 1, move |world| world.give(last));
        let taken = [(); 3].map(|()| world.take().expect("I-6: more are free"));
        other.join().unwrap();
        world.give_on(0, &taken);
        world.vacate(&rest);
        world.finish();
    });
}

type DepotZone = <Depot<2> as PcpPolicy<BuddyLists<Lazy>>>::Zone<LoomPlatform>;

fn new_zone() -> DepotZone {
    <Depot<2> as PcpPolicy<BuddyLists<Lazy>>>::new_zone::<LoomPlatform>()
}

/// Three reserve at once and two may: never more, and what an overshoot added is taken back.
///
/// All schedules: 13 700 runs, 0.6 s.
#[test]
fn reservations_run_out() {
    explore("reservations run out", None, || {
        let zone = Rc::new(new_zone());
        let turn = |zone: &DepotZone| zone.reserve_one(2);
        let others = [zone.clone(), zone.clone()].map(|zone| spawn(0, move || turn(&zone)));
        let mine = turn(&zone);
        let theirs = others.map(|other| other.join().unwrap());
        let granted = [mine, theirs[0], theirs[1]].into_iter().filter(|&granted| granted).count();
        assert_eq!(granted, 2);
        zone.release(2);
        let again = (0..3).filter(|_| zone.reserve_one(2)).count();
        assert_eq!(again, 2, "as many as at the start");
    });
}

/// A reservation is given back while two others want one: it is not lost, and none is granted
/// twice.
///
/// All schedules: 672 runs, no time to speak of.
#[test]
fn reservation_comes_back() {
    explore("reservation comes back", None, || {
        let zone = Rc::new(new_zone());
        assert!(zone.reserve_one(1));
        let turn = |zone: &DepotZone| zone.reserve_one(1);
        let others = [zone.clone(), zone.clone()].map(|zone| spawn(0, move || turn(&zone)));
        zone.release(1);
        let theirs = others.map(|other| u64::from(other.join().unwrap()));
        let granted = theirs[0] + theirs[1];
        assert!(granted <= 1);
        zone.release(granted);
        assert!(zone.reserve_one(1));
        assert!(!zone.reserve_one(1));
    });
}

/// All clusters are in two CPUs' shards, which grew to hold them, and both CPUs spill again;
/// then a drain takes back what the shards had grown, and they can grow as far as before.
///
/// All schedules: 93 runs, 0.1 s.
#[test]
fn shards_grow_at_once() {
    let plan = small_plan(FRAMES, 2, 4);
    explore("shards grow at once", None, move || {
        let world: Rc<World> = World::new(plan);
        let held = [world.take_on(0, 16), world.take_on(1, 16)];
        world.give_on(0, &held[0][..14]);
        world.give_on(1, &held[1][..14]);
        assert_eq!(world.zone().deferred, 24, "all twelve clusters");
        let last = [held[1][14], held[1][15]];
        let other = spawn_on(&world, 1, move |world| {
            last.into_iter().for_each(|pfn| world.give(pfn));
        });
        world.give(held[0][14]);
        world.give(held[0][15]);
        other.join().unwrap();
        world.finish();
        let held = [world.take_on(0, 16), world.take_on(1, 16)];
        world.give_on(0, &held[0][..14]);
        world.give_on(1, &held[1][..14]);
        assert_eq!(world.zone().deferred, 24, "all twelve clusters again");
        world.give_on(0, &held[0][14..]);
        world.give_on(1, &held[1][14..]);
        world.finish();
    });
}
