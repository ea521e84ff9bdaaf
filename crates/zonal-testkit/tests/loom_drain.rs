//! Models of a cache that is emptied from outside while its own CPU uses it, and of requests
//! that can only be served from another CPU's cache (I-6); with slots that let two in, and drains that do
//! not wait, as canaries.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test --release -p zonal-testkit --test models_of_lists loom_drain -- --nocapture
//! ```

use crate::loom_broken_slots::{Hasty, Open};
use crate::loom_world::{ALL_BUT_8, MOVABLE, World, spawn_on};
use std::rc::Rc;
use zonal::{CpuId, Host, Order};
use zonal_testkit::loom_platform::{LoomPlatform, bound, explore, small_plan};

/// CPU 1 empties CPU 0's cache while CPU 0 allocates and frees; while the drain is inside,
/// CPU 0 goes past its cache.
fn its_cpu<P: Host + Default + 'static>() {
    let plan = small_plan(32, 2);
    explore("drain against its CPU", Some(4), move || {
        let world: Rc<World<P>> = World::new(plan);
        let held = world.take_on(0, 3);
        world.give_on(0, &held[1..]);
        let other = spawn_on(&world, 1, |world| world.allocator().drain_cpu(CpuId(0)));
        let pfn = world.take().unwrap();
        world.give(held[0]);
        world.give(pfn);
        other.join().unwrap();
        world.finish();
    });
}

/// At most 4 preemptions: 5 800 runs, 1.4 s.
#[test]
fn drain_against_its_cpu() {
    its_cpu::<LoomPlatform>();
}

/// Canary: the drain and its CPU are in the cache at once.
#[test]
#[should_panic(expected = "two are inside")]
fn canary_a_drain_and_its_cpu_inside() {
    its_cpu::<Open>();
}

/// As [`its_cpu`] by an owner, who waits for the drain.
fn the_owner<P: Host + Default + 'static>() {
    let plan = small_plan(32, 2);
    explore("drain against the owner", None, move || {
        let world: Rc<World<P>> = World::new(plan);
        let held = world.take_on(0, 3);
        world.give_on(0, &held[1..]);
        let mut owner = world.allocator().handle(CpuId(0)).unwrap();
        let other = spawn_on(&world, 1, |world| world.allocator().drain_cpu(CpuId(0)));
        let pfn = owner.alloc_raw(&MOVABLE).unwrap();
        world.took(pfn, Order::ZERO);
        for pfn in [held[0], pfn] {
            world.giving(pfn, Order::ZERO);
            owner.free_raw(pfn, Order::ZERO).unwrap();
        }
        other.join().unwrap();
        drop(owner);
        world.finish();
    });
}

/// All schedules: 1 200 runs, 0.3 s.
#[test]
fn drain_against_the_owner() {
    the_owner::<LoomPlatform>();
}

/// Canary: the drain and the owner are in the cache at once.
#[test]
#[should_panic(expected = "two are inside")]
fn canary_a_drain_and_the_owner_inside() {
    the_owner::<Open>();
}

/// A claim comes and goes while another thread is on the same CPU by the shared way.
fn claim<P: Host + Default + 'static>() {
    let plan = small_plan(32, 2);
    explore("claim against the shared way", Some(3), move || {
        let world: Rc<World<P>> = World::new(plan);
        let other = spawn_on(&world, 0, |world| {
            let pfn = world.take().unwrap();
            world.give(pfn);
        });
        let mut owner = world.allocator().handle(CpuId(0)).unwrap();
        let pfn = owner.alloc_raw(&MOVABLE).unwrap();
        world.took(pfn, Order::ZERO);
        drop(owner);
        world.give(pfn);
        other.join().unwrap();
        world.finish();
    });
}

/// At most 3 preemptions: 10 700 runs, 2.5 s.
#[test]
fn claim_against_the_shared_way() {
    claim::<LoomPlatform>();
}

/// Canary: the owner does not keep others out.
#[test]
#[should_panic(expected = "two are inside")]
fn canary_a_claim_and_another_inside() {
    claim::<Open>();
}

/// The last two frames are in CPU 0's cache; CPU 1 wants one while CPU 0 takes one and gives
/// it back. One is always free, so neither may be refused.
fn last_frames<P: Host + Default + 'static>() {
    let plan = small_plan(32, 2);
    explore("last frames in the other cache", bound(2, Some(3)), move || {
        let world: Rc<World<P>> = World::new(plan);
        let rest = world.occupy(&ALL_BUT_8);
        let held = world.take_on(0, 8);
        world.give_on(0, &held[..2]);
        let other = spawn_on(&world, 1, |world| {
            let pfn = world.take().expect("I-6: one is free");
            world.give(pfn);
        });
        let pfn = world.take().expect("I-6: one is free");
        world.give(pfn);
        other.join().unwrap();
        world.give_on(0, &held[2..]);
        world.vacate(&rest);
        world.finish();
    });
}

/// At most 3 preemptions, in a preflight at most 2: 26 000 runs, 5 s.
#[test]
fn last_frames_in_the_other_cache() {
    last_frames::<LoomPlatform>();
}

/// Canary: a cache that another is in is passed over, and with it the last frames.
#[test]
#[should_panic(expected = "I-6: one is free")]
fn canary_last_frames_are_passed_over() {
    last_frames::<Hasty>();
}

/// CPU 1 looks for a frame when all free ones are on the move: into CPU 0's cache and out of it. Two are free all the time.
fn on_the_move<P: Host + Default + 'static>() {
    let plan = small_plan(32, 2);
    explore("frames on the move", Some(2), move || {
        let world: Rc<World<P>> = World::new(plan);
        let rest = world.occupy(&ALL_BUT_8);
        let held = world.take_on(0, 8);
        world.give_on(0, &held[..3]);
        let other = spawn_on(&world, 1, |world| {
            let pfn = world.take().expect("I-6: two are free");
            world.give(pfn);
        });
        world.give(held[3]);
        let taken =
            [world.take().expect("I-6: three are free"), world.take().expect("I-6: two are free")];
        other.join().unwrap();
        world.give_on(0, &taken);
        world.give_on(0, &held[4..]);
        world.vacate(&rest);
        world.finish();
    });
}

/// At most 2 preemptions: 2 700 runs, 1 s; with 3 it is 297 000 runs and 149 s.
#[test]
fn frames_on_the_move() {
    on_the_move::<LoomPlatform>();
}

/// Canary: the same with frames on the move.
#[test]
#[should_panic(expected = "I-6: ")]
fn canary_frames_on_the_move_are_passed_over() {
    on_the_move::<Hasty>();
}
