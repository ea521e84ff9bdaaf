//! Models of whole pageblocks that an owner frees and takes again outside its slot: beside a drain, which counts
//! them (S-1), beside a CPU that takes one of them, and beside an isolation (M-5); and what each says when a fence is
//! left out, or updates of words are torn.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test --release -p zonal-testkit --test models_of_maps loom_passage -- --nocapture
//! ```

use crate::loom_broken_fences::Fences;
use crate::loom_broken_torn::Torn;
use crate::loom_world::{World, spawn_on};
use std::rc::Rc;
use zonal::MigrateType::Movable;
use zonal::pcp::Stacks;
use zonal::platform::AtomicWord;
use zonal::policy::Policy;
use zonal::policy::dirty::Unlimited;
use zonal::preset::Zonal;
use zonal::{CpuHandle, CpuId, Host, Order, Pfn, Request};
use zonal_testkit::loom_platform::{Word, bound, explore, small_plan};

zonal::preset! {
    /// The default preset with stacks of one frame and no dirty limits.
    Mapped = "Mapped", over Zonal { Pcp = Stacks<1, 4>, Dirty = Unlimited }
}

type PassageWorld<const LIGHT: bool, const HEAVY: bool, W> = World<Fences<LIGHT, HEAVY, W>, Mapped>;

/// The pageblocks of these plans.
const PAGEBLOCK: Order = match Order::new(3) {
    Some(order) => order,
    None => Order::ZERO,
};

const REQUEST: Request = Request::new(PAGEBLOCK).migrate(Movable);

/// Frames of a plan for one CPU with caches, enough that no mark is near: near one nothing passes outside.
const FRAMES: u64 = 96;

/// The end of a model: and all that is free is counted, exactly.
fn finish<P: Host, S: Policy>(world: &World<P, S>) {
    world.finish();
    let zone = world.zone();
    assert_eq!((zone.counted_free, zone.isolated), (zone.free, 0), "I-2: what watermarks see");
}

/// An owner with a passage that has freed a pageblock there, the first.
fn passed<P: Host, S: Policy>(owner: &mut CpuHandle<'_, '_, P, S>) {
    let pfn = owner.alloc_raw(&REQUEST).unwrap();
    assert_eq!(pfn, Pfn::new(0), "the first");
    owner.free_raw(pfn, PAGEBLOCK).unwrap();
}

/// An owner takes a pageblock and frees it again while another CPU counts what passes.
fn drained<const LIGHT: bool, const HEAVY: bool>() {
    let plan = small_plan(FRAMES, 1);
    explore("a passage beside a drain", Some(3), move || {
        let world: Rc<PassageWorld<LIGHT, HEAVY, Word>> = World::new(plan);
        let mut owner = world.allocator().handle(CpuId(0)).unwrap();
        passed(&mut owner);
        let other = spawn_on(&world, 1, |world| world.allocator().drain_cpu(CpuId(0)));
        let pfn = owner.alloc_raw(&REQUEST).unwrap();
        other.join().unwrap();
        drop(owner);
        // By the slot: the stack would make good what it counted wrongly.
        world.allocator().free_raw(pfn, PAGEBLOCK).unwrap();
        finish(&world);
    });
}

/// S-1.
///
/// At most 3 preemptions: 150 runs, 0.2 s.
#[test]
fn a_passage_beside_a_drain() {
    drained::<true, true>();
}

/// Canary: a pageblock is taken off the stack and counted.
#[test]
#[should_panic(expected = "booked out as back")]
fn no_light_fence_is_found() {
    drained::<false, true>();
}

/// Canary: the same, seen from the drain.
#[test]
#[should_panic(expected = "booked out as back")]
fn no_heavy_fence_is_found() {
    drained::<true, false>();
}

/// An owner takes a pageblock that it has freed while another CPU takes the same place.
fn taken<W: AtomicWord + 'static>() {
    let plan = small_plan(2 * FRAMES, 2);
    explore("a passage beside another CPU", bound(2, Some(3)), move || {
        let world: Rc<PassageWorld<true, true, W>> = World::new(plan);
        let mut owner = world.allocator().handle(CpuId(0)).unwrap();
        passed(&mut owner);
        // The only one that was ever used is what it takes first.
        let other = spawn_on(&world, 1, |world| {
            let block = world.take_block(PAGEBLOCK).expect("there are more");
            world.give_block(block, PAGEBLOCK);
        });
        let pfn = owner.alloc_raw(&REQUEST).unwrap();
        owner.free_raw(pfn, PAGEBLOCK).unwrap();
        other.join().unwrap();
        drop(owner);
        finish(&world);
    });
}

/// The pageblock is whose bit it was.
///
/// At most 3 preemptions, in a preflight at most 2.
#[test]
fn a_passage_beside_another_cpu() {
    taken::<Word>();
}

/// Canary: both have it.
#[test]
#[should_panic(expected = "I-")]
fn canary_two_have_what_passed() {
    taken::<Torn>();
}

/// An owner frees a pageblock outside its slot, or takes it there, while another CPU isolates it and undoes that.
fn isolated<W: AtomicWord + 'static>(takes: bool) {
    let plan = small_plan(FRAMES, 1);
    explore("a passage beside an isolation", Some(1), move || {
        let world: Rc<PassageWorld<true, true, W>> = World::new(plan);
        let mut owner = world.allocator().handle(CpuId(0)).unwrap();
        passed(&mut owner);
        let held = (!takes).then(|| owner.alloc_raw(&REQUEST).unwrap());
        let other = spawn_on(&world, 1, |world| {
            let isolated = world.allocator().isolate(Pfn::new(0)..Pfn::new(8));
            let isolated = isolated.expect("movable: nothing is in the way");
            world.allocator().undo_isolation(isolated).expect("its own");
        });
        let pfn = held.unwrap_or_else(|| owner.alloc_raw(&REQUEST).unwrap());
        owner.free_raw(pfn, PAGEBLOCK).unwrap();
        other.join().unwrap();
        drop(owner);
        finish(&world);
    });
}

/// M-5 for a free.
///
/// At most 1 preemption: 4 900 runs, 6 s. With 2 it is 188 000 runs, 4 min, and passed on 26 November.
#[test]
fn freed_beside_an_isolation() {
    isolated::<Word>(false);
}

/// M-5 for a request.
///
/// At most 1 preemption: 5 700 runs, 7 s.
#[test]
fn taken_beside_an_isolation() {
    isolated::<Word>(true);
}

/// Canary: the pageblock is in both classes, or in none.
#[test]
#[should_panic(expected = "I-")]
fn canary_torn_beside_an_isolation() {
    isolated::<Torn>(false);
}
