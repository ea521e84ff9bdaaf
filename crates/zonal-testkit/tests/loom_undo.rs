//! Models of what goes wrong half-way (I-3): a bulk request that cannot be filled, a block that
//! cannot be zeroed, while others go on. Torn words and slots that let two in are the canaries.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test --release -p zonal-testkit --test models_of_maps loom_undo -- --nocapture
//! ```

use crate::loom_broken_slots::Open;
use crate::loom_broken_torn::Torn;
use crate::loom_world::{MOVABLE, World, spawn_on};
use std::rc::Rc;
use zonal::error::AllocReason;
use zonal::pcp::Stacks;
use zonal::platform::AtomicWord;
use zonal::policy::{Policy, dirty::Unlimited};
use zonal::preset::{Linux416, Zonal};
use zonal::{Host, Order, Pfn};
use zonal_testkit::loom_platform::{LoomPlatform, Newest, bound, explore, small_plan};

zonal::preset! {
    /// The default preset with stacks of one frame and no dirty limits.
    Mapped = "Mapped", over Zonal { Pcp = Stacks<1, 4>, Dirty = Unlimited }
}

/// Six frames are asked for at once and four are free: what was taken goes back, while the
/// other CPU allocates and frees.
fn half_way<W: AtomicWord + 'static, S: Policy>() {
    let plan = small_plan(16, 2);
    explore("bulk fails half-way", bound(1, Some(2)), move || {
        let world = World::<LoomPlatform<W>, S>::new(plan);
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

/// At most 2 preemptions, in a preflight at most 1: 4 100 runs, 1.3 s.
#[test]
fn bulk_fails_half_way() {
    half_way::<Newest, Linux416>();
}

/// At most 2 preemptions, in a preflight at most 1: 7 200 runs, 6 s.
#[test]
fn bulk_fails_half_way_over_the_map() {
    half_way::<Newest, Mapped>();
}

/// Canary: what goes back into the map is a load and a store.
#[test]
#[should_panic(expected = "I-1: places of each frame")]
fn canary_what_goes_back_is_torn() {
    half_way::<Torn, Mapped>();
}

/// As [`half_way`] on the same CPU, and three of the four are asked for: the other
/// takes up to two, so that it may or may not be filled.
fn may_fail<P: Host + Default + 'static>() {
    let plan = small_plan(32, 2);
    explore("bulk may fail", bound(1, Some(2)), move || {
        let world: Rc<World<P>> = World::new(plan);
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

/// At most 2 preemptions, in a preflight at most 1: 11 800 runs, 4 s.
#[test]
fn bulk_may_fail() {
    may_fail::<LoomPlatform>();
}

/// Canary: two are in the cache from which it takes.
#[test]
#[should_panic(expected = "two are inside")]
fn canary_two_take_from_one_cache() {
    may_fail::<Open>();
}

/// The host cannot zero: the block is taken and goes back, while the other thread, on the same
/// CPU, allocates and frees.
fn cannot_zero<P: Host + Default + 'static>() {
    let plan = small_plan(32, 2);
    explore("zeroing fails", Some(3), move || {
        let world: Rc<World<P>> = World::new(plan);
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

/// At most 3 preemptions: 7 300 runs, 2.0 s.
#[test]
fn zeroing_fails() {
    cannot_zero::<LoomPlatform>();
}

/// Canary: what goes back and what is taken meet in the cache.
#[test]
#[should_panic(expected = "two are inside")]
fn canary_what_goes_back_meets_a_request() {
    cannot_zero::<Open>();
}
