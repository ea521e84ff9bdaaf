//! Models of the exchange between caches, depot and zone, of the whole shipped allocator:
//! refills, spills, thefts, on the same CPU and on two.
//!
//! In every run: no frame is handed out twice, a frame's former holder has happened before
//! its next, nothing is lost (I-1 to I-3), and the zone merges back to what it was (I-5).
//! Where more frames are free than all threads want at once, none may be refused one (I-6).
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test --release -p zonal-testkit --test loom_depot -- --nocapture
//! ```
#![cfg(loom)]

mod loom_broken;
#[expect(dead_code, reason = "shared by several tests")]
mod loom_world;

use loom_broken::NoRelease;
use loom_world::{ALL_BUT_8, FRAMES, Ones, Pairs, World, spawn_on};
use std::rc::Rc;
use zonal::plan::Plan;
use zonal::preset::Linux416;
use zonal::{Host, Order};
use zonal_testkit::loom_platform::{LoomPlatform, Newest, explore, small_plan};

/// Both on one CPU: a thread that finds the cache taken goes past it to the buddy lists.
///
/// At most 4 preemptions: 2 000 runs, 0.2 s.
#[test]
fn same_cpu() {
    let plan = small_plan(FRAMES, 2, 12);
    explore("same CPU", Some(4), move || {
        let world: Rc<World> = World::new(plan);
        let first = world.take().unwrap();
        let other = spawn_on(&world, 0, |world| {
            let pfn = world.take().unwrap();
            world.give(pfn);
        });
        let pfn = world.take().unwrap();
        world.give(pfn);
        other.join().unwrap();
        world.give(first);
        world.finish();
    });
}

/// As [`same_cpu`] with per-CPU lists linked through the frame table.
///
/// At most 3 preemptions: 3 300 runs, 0.2 s.
#[test]
fn same_cpu_linked() {
    let plan = small_plan(32, 1, 8);
    explore("same CPU, linked", Some(3), move || {
        let world = World::<LoomPlatform, Linux416>::new(plan);
        let first = world.take().unwrap();
        let other = spawn_on(&world, 0, |world| {
            let pfn = world.take().unwrap();
            world.give(pfn);
        });
        let pfn = world.take().unwrap();
        world.give(pfn);
        other.join().unwrap();
        world.give(first);
        world.finish();
    });
}

/// CPU 0 gives more than its cache holds, so a cluster goes to its shard; CPU 1 finds the buddy
/// lists empty and takes it from there, or merges it, or empties the cache.
fn spill_against_theft<P: Host + Default + 'static>(plan: &'static Plan) {
    let world = World::<P, Pairs>::new(plan);
    let rest = world.occupy(&ALL_BUT_8);
    let held = world.take_on(0, 8);
    world.give_on(0, &held[..3]);
    let other = spawn_on(&world, 1, |world| {
        let pfn = world.take().expect("I-6: three are free");
        world.give(pfn);
    });
    world.give(held[3]);
    world.give(held[4]);
    other.join().unwrap();
    world.give_on(0, &held[5..]);
    world.vacate(&rest);
    world.finish();
}

/// At most 4 preemptions: 8 800 runs, 3.4 s.
#[test]
fn spill_and_theft() {
    let plan = small_plan(FRAMES, 2, 12);
    explore("spill against theft", Some(4), move || spill_against_theft::<LoomPlatform>(plan));
}

/// Planted bug: clusters change hands without a release, so the next owner may find what was
/// in the array before, and frames are lost.
#[test]
#[should_panic(expected = "I-1: places")]
fn canary_no_release() {
    let plan = small_plan(FRAMES, 2, 12);
    explore("canary: no release", Some(2), move || {
        spill_against_theft::<LoomPlatform<NoRelease>>(plan);
    });
}

/// CPU 0 frees what CPU 1 allocated; its shard may hold no more, so the next cluster goes to
/// the zone's shared part, where CPU 1 looks for one.
///
/// At most 3 preemptions: 2 200 runs, 0.3 s.
#[test]
fn shared_part() {
    let plan = small_plan(16, 2, 4);
    explore("shared part", Some(3), move || {
        let world = World::<LoomPlatform, Ones>::new(plan);
        let rest = world.occupy(&[3, 2]);
        let held = world.take_on(1, 4);
        world.give_on(0, &held[..3]);
        assert_eq!((world.zone().cached, world.zone().deferred), (1, 2), "the shard is full");
        let other = spawn_on(&world, 1, |world| {
            let pfn = world.take().expect("I-6: three are free");
            world.give(pfn);
        });
        world.give(held[3]);
        other.join().unwrap();
        world.vacate(&rest);
        world.finish();
    });
}

/// CPU 1 takes the one cluster of the shared part, and CPU 0 fills it again with other frames
/// as soon as it is empty.
///
/// At most 4 preemptions: 762 runs, 0.1 s.
#[test]
fn shared_cluster_is_filled_again() {
    let plan = small_plan(16, 2, 4);
    explore("shared cluster is filled again", Some(4), move || {
        let world = World::<LoomPlatform, Ones>::new(plan);
        let rest = world.occupy(&[3, 1]);
        let mut held = world.take_on(1, 5);
        held.extend(world.take_on(0, 1));
        world.give_on(0, &held[..5]);
        assert_eq!((world.zone().cached, world.zone().deferred), (1, 4), "all clusters");
        let other = spawn_on(&world, 1, |world| {
            let pfn = world.take().expect("I-6: five are free");
            world.give(pfn);
        });
        world.give(held[5]);
        other.join().unwrap();
        world.vacate(&rest);
        world.finish();
    });
}

/// Both CPUs spill and both look for frames.
///
/// At most 2 preemptions: 25 800 runs, 6.6 s.
#[test]
fn both_spill_and_take() {
    let plan = small_plan(16, 2, 4);
    explore("both spill and take", Some(2), move || {
        let world = World::<LoomPlatform<Newest>, Ones>::new(plan);
        let rest = world.occupy(&[3, 2]);
        let held = world.take_on(0, 4);
        world.give_on(0, &held[..1]);
        world.give_on(1, &held[1..2]);
        let last = held[3];
        let other = spawn_on(&world, 1, move |world| {
            world.give(last);
            let taken = [(); 2].map(|()| world.take().expect("I-6: four for the two of us"));
            taken.into_iter().for_each(|pfn| world.give(pfn));
        });
        world.give(held[2]);
        let taken = [(); 2].map(|()| world.take().expect("I-6: four for the two of us"));
        taken.into_iter().for_each(|pfn| world.give(pfn));
        other.join().unwrap();
        world.vacate(&rest);
        world.finish();
    });
}

/// CPU 0 keeps asking and takes a whole block for its shard, the last there is; CPU 1 wants one
/// frame of it.
///
/// At most 5 preemptions: 1 200 runs, 0.2 s.
#[test]
fn run_against_theft() {
    let plan = small_plan(32, 2, 2);
    explore("run against theft", Some(5), move || {
        let world = World::<LoomPlatform<Newest>, Ones>::new(plan);
        let rest = world.occupy(&[4, 3]);
        let held = world.take_on(0, 4);
        let other = spawn_on(&world, 1, |world| {
            let pfn = world.take().expect("I-6: four for the two of us");
            world.give(pfn);
        });
        let pfn = world.take().expect("I-6: four for the two of us");
        world.give(pfn);
        other.join().unwrap();
        world.give_on(0, &held);
        world.vacate(&rest);
        world.finish();
    });
}

/// The last two frames are in one cluster of CPU 0, and two threads of CPU 1 want one each:
/// while one merges the cluster, the frames in its hands must not be lost to the other.
///
/// At most 2 preemptions: 3 800 runs, 0.6 s.
#[test]
fn two_want_the_last_cluster() {
    let plan = small_plan(FRAMES, 2, 12);
    explore("two want the last cluster", Some(2), move || {
        let world = World::<LoomPlatform<Newest>, Pairs>::new(plan);
        let rest = world.occupy(&[6, 4, 3, 2]);
        let held = world.take_on(1, 4);
        world.give_on(0, &held);
        let mut held = world.take_on(0, 2);
        assert_eq!((world.zone().free, world.zone().cached, world.zone().deferred), (0, 0, 2));
        let turn = |world: &World<LoomPlatform<Newest>, Pairs>| {
            world.take().expect("I-6: two for the two of us")
        };
        let others = [spawn_on(&world, 1, turn), spawn_on(&world, 1, turn)];
        held.extend(others.map(|other| other.join().unwrap()));
        world.give_on(0, &held);
        world.vacate(&rest);
        world.finish();
    });
}

/// Three threads on two CPUs empty the lists and fill them again.
///
/// At most 2 preemptions: 21 200 runs, 2.5 s.
#[test]
fn three_on_two_cpus() {
    let plan = small_plan(16, 2, 4);
    explore("three on two CPUs", Some(2), move || {
        let world = World::<LoomPlatform<Newest>, Ones>::new(plan);
        let rest = world.occupy(&[3, 2]);
        let turn = |world: &World<LoomPlatform<Newest>, Ones>| {
            let pfn = world.take().expect("I-6: four are free");
            world.give(pfn);
        };
        let others = [spawn_on(&world, 0, turn), spawn_on(&world, 1, turn)];
        turn(&world);
        others.into_iter().for_each(|other| other.join().unwrap());
        world.vacate(&rest);
        world.finish();
    });
}

/// A block is asked for while its frames are in a cache and in clusters, and the last of them
/// is just being freed.
///
/// At most 3 preemptions: 1 900 runs, 0.3 s.
#[test]
fn block_out_of_clusters() {
    let plan = small_plan(16, 2, 4);
    explore("block out of clusters", Some(3), move || {
        let world = World::<LoomPlatform, Ones>::new(plan);
        let block = Order::new(2).unwrap();
        let rest = world.occupy(&[3, 2]);
        let held = world.take_on(0, 4);
        world.give_on(0, &held[..3]);
        let other = spawn_on(&world, 1, move |world| {
            let found = world.take_block(block);
            found.into_iter().for_each(|pfn| world.give_block(pfn, block));
        });
        world.give(held[3]);
        other.join().unwrap();
        let pfn = world.take_block(block).expect("all of it is free now");
        world.give_block(pfn, block);
        world.vacate(&rest);
        world.finish();
    });
}
