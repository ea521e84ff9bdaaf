//! Models of what goes wrong half-way (I-3): a bulk request that cannot be filled, a block that
//! cannot be zeroed, while others go on.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test --release -p zonal-testkit --test loom_undo -- --nocapture
//! ```
#![cfg(loom)]

#[expect(dead_code, reason = "shared by several tests")]
mod loom_world;

use loom_world::{MOVABLE, World, spawn_on};
use std::rc::Rc;
use zonal::error::AllocReason;
use zonal::preset::Linux416;
use zonal::{Order, Pfn};
use zonal_testkit::loom_platform::{LoomPlatform, Newest, explore, small_plan};

/// Six frames are asked for at once and four are free: what was taken goes back, while the
/// other CPU allocates and frees.
///
/// At most 2 preemptions: 3 800 runs, 1.2 s.
#[test]
fn bulk_fails_half_way() {
    let plan = small_plan(16, 2);
    explore("bulk fails half-way", Some(2), move || {
        let world = World::<LoomPlatform<Newest>, Linux416>::new(plan);
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
/// At most 2 preemptions: 19 300 runs, 6.5 s.
#[test]
fn bulk_may_fail() {
    let plan = small_plan(32, 2);
    explore("bulk may fail", Some(2), move || {
        let world: Rc<World> = World::new(plan);
        let rest = world.occupy(&[4, 3, 2]);
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
/// At most 3 preemptions: 7 300 runs, 2.0 s.
#[test]
fn zeroing_fails() {
    let plan = small_plan(32, 2);
    explore("zeroing fails", Some(3), move || {
        let world: Rc<World> = World::new(plan);
        let rest = world.occupy(&[4, 3, 2]);
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
