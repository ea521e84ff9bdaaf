//! Models of an allocator whose free memory is a map: counting beside a change of type, and frames
//! that another CPU's stack hides. The map by itself is in `loom_free_map`. Each model has torn words as its
//! canary.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test --release -p zonal-testkit --test models_of_maps loom_map -- --nocapture
//! ```

use crate::loom_broken_torn::{Torn, TornSums, WithoutNotes};
use crate::loom_world::{World, spawn_on};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use zonal::pcp::Stacks;
use zonal::platform::AtomicWord;
use zonal::policy::Policy;
use zonal::policy::dirty::Unlimited;
use zonal::preset::{Linux416, Zonal};
use zonal::{CpuId, Order, Pfn};
use zonal_testkit::loom_platform::{LoomPlatform, Word, bound, explore, small_plan};

zonal::preset! {
    /// The default preset with stacks of one frame and no dirty limits.
    Mapped = "Mapped", over Zonal { Pcp = Stacks<1, 4>, Dirty = Unlimited }
}

type MapWorld<W> = World<LoomPlatform<W>, Mapped>;

const PAIR: Order = match Order::new(1) {
    Some(order) => order,
    None => Order::ZERO,
};

/// The end of a model: and all that is free is counted, exactly.
fn finish<W: AtomicWord + 'static>(world: &MapWorld<W>) {
    world.finish();
    let zone = world.zone();
    assert_eq!((zone.counted_free, zone.isolated), (zone.free, 0), "I-2: what watermarks see");
}

/// Isolates the first pageblock, and undoes that.
fn isolate_and_undo<W: AtomicWord + 'static>(world: &MapWorld<W>) {
    let isolated = world.allocator().isolate(Pfn::new(0)..Pfn::new(8));
    let isolated = isolated.expect("movable: nothing is in the way");
    world.allocator().undo_isolation(isolated).expect("its own");
}

/// CPU 0 frees a block while CPU 1 isolates its pageblock and undoes that: the free counts it as
/// one type's or the other's, and who comes last makes good.
fn free_and_isolation<W: AtomicWord + 'static>() {
    let plan = small_plan(16, 2);
    explore("a free beside an isolation", bound(1, Some(2)), move || {
        let world: Rc<MapWorld<W>> = World::new(plan);
        let pair = world.take_block(PAIR).unwrap();
        let other = spawn_on(&world, 1, isolate_and_undo);
        world.give_block(pair, PAIR);
        other.join().unwrap();
        finish(&world);
    });
}

/// At most 2 preemptions, in a preflight at most 1: 14 000 runs, 9 s.
#[test]
fn a_free_beside_an_isolation() {
    free_and_isolation::<Word>();
}

/// Canary: a free and an isolation lose what the other has done.
#[test]
#[should_panic(expected = "I-")]
fn canary_a_torn_free_beside_an_isolation() {
    free_and_isolation::<Torn>();
}

/// CPU 0 takes a block while CPU 1 isolates the pageblock that it may come from.
fn request_and_isolation<W: AtomicWord + 'static>() {
    let plan = small_plan(16, 2);
    explore("a request beside an isolation", bound(1, Some(2)), move || {
        let world: Rc<MapWorld<W>> = World::new(plan);
        let other = spawn_on(&world, 1, isolate_and_undo);
        let pair = world.take_block(PAIR).expect("one pageblock is not isolated");
        other.join().unwrap();
        world.give_block(pair, PAIR);
        finish(&world);
    });
}

/// At most 2 preemptions, in a preflight at most 1: 5 000 runs, 4 s.
#[test]
fn a_request_beside_an_isolation() {
    request_and_isolation::<Word>();
}

/// Canary: a request and an isolation count the same frames.
#[test]
#[should_panic(expected = "I-")]
fn canary_a_torn_request_beside_an_isolation() {
    request_and_isolation::<TornSums>();
}

/// The pageblocks of these plans.
const PAGEBLOCK: Order = match Order::new(3) {
    Some(order) => order,
    None => Order::ZERO,
};

/// CPU 0 frees a whole pageblock while CPU 1 isolates it and undoes that: it ends in the class of its
/// type.
fn pageblock_and_isolation<W: AtomicWord + 'static>() {
    let plan = small_plan(16, 2);
    explore("a pageblock beside its isolation", bound(1, Some(2)), move || {
        let world: Rc<MapWorld<W>> = World::new(plan);
        let block = world.take_block(PAGEBLOCK).unwrap();
        let other = spawn_on(&world, 1, isolate_and_undo);
        world.give_block(block, PAGEBLOCK);
        other.join().unwrap();
        finish(&world);
    });
}

/// At most 2 preemptions, in a preflight at most 1: 32 000 runs, 14 s.
#[test]
fn a_pageblock_beside_its_isolation() {
    pageblock_and_isolation::<Word>();
}

/// Canary: the pageblock is in both classes, or in none.
#[test]
#[should_panic(expected = "I-")]
fn canary_a_torn_pageblock_beside_its_isolation() {
    pageblock_and_isolation::<Torn>();
}

/// CPU 0 takes a whole pageblock while CPU 1 isolates the first, which stays so: what it takes and puts back
/// is counted as no request's (M-7).
fn taken_and_isolated<W: AtomicWord + 'static>() {
    let plan = small_plan(16, 2);
    explore("a taken pageblock beside an isolation that stays", Some(2), move || {
        let world: Rc<MapWorld<W>> = World::new(plan);
        let other = spawn_on(&world, 1, |world| {
            let isolated = world.allocator().isolate(Pfn::new(0)..Pfn::new(8));
            isolated.expect("movable: nothing is in the way")
        });
        let block = world.take_block(PAGEBLOCK).expect("one pageblock is not isolated");
        let isolated = other.join().unwrap();
        world.give_block(block, PAGEBLOCK);
        world.allocator().drain_all();
        let zone = world.zone();
        assert_eq!((zone.free, zone.isolated), (8, 8));
        assert_eq!(zone.counted_free, zone.free, "I-2: what watermarks see");
        world.allocator().undo_isolation(isolated).expect("its own");
        finish(&world);
    });
}

/// At most 2 preemptions: 2 000 runs, 1 s.
#[test]
fn a_taken_pageblock_beside_an_isolation() {
    taken_and_isolated::<Word>();
}

/// Canary: no note is left of what was put back.
#[test]
#[should_panic(expected = "I-2")]
fn canary_put_back_without_a_note() {
    taken_and_isolated::<WithoutNotes>();
}

/// Two CPUs take and free whole pageblocks, of which there are two.
fn two_and_two<W: AtomicWord + 'static>() {
    let plan = small_plan(16, 2);
    explore("two CPUs and two pageblocks", bound(2, Some(3)), move || {
        let world: Rc<MapWorld<W>> = World::new(plan);
        let other = spawn_on(&world, 1, |world| {
            let block = world.take_block(PAGEBLOCK).expect("there are two");
            world.give_block(block, PAGEBLOCK);
        });
        let block = world.take_block(PAGEBLOCK).expect("there are two");
        world.give_block(block, PAGEBLOCK);
        other.join().unwrap();
        finish(&world);
    });
}

/// At most 3 preemptions, in a preflight at most 2: 58 000 runs, 11 s.
#[test]
fn two_cpus_and_two_pageblocks() {
    two_and_two::<Word>();
}

/// Canary: both have the same pageblock.
#[test]
#[should_panic(expected = "I-")]
fn canary_two_have_one_pageblock() {
    two_and_two::<Torn>();
}

/// CPUs 0 and 1 free one block at the same instant; whether both were told that they did, in any run.
///
/// At most 2 preemptions: 40 runs.
fn both_freed<S: Policy>(order: Order) -> bool {
    let plan = small_plan(16, 2);
    let both = Arc::new(AtomicBool::new(false));
    let found = Arc::clone(&both);
    explore("one block freed twice", Some(2), move || {
        let world: Rc<World<LoomPlatform, S>> = World::new(plan);
        let block = world.take_block(order).unwrap();
        world.giving(block, order);
        let free = move |world: &World<LoomPlatform, S>| {
            u32::from(world.allocator().free_raw(block, order).is_ok())
        };
        let other = spawn_on(&world, 1, free);
        let freed = free(&world) + other.join().unwrap();
        assert!(freed > 0, "it was allocated");
        if freed == 2 {
            found.store(true, SeqCst);
        } else {
            world.finish();
        }
    });
    both.load(SeqCst)
}

#[test]
fn one_of_two_frees_is_refused() {
    for order in [Order::ZERO, PAIR, PAGEBLOCK] {
        assert!(!both_freed::<Mapped>(order), "order {order}");
    }
}

/// Lists look and then write: the model finds that both frees succeed.
#[test]
fn canary_a_look_and_a_write() {
    assert!(both_freed::<Linux416>(Order::ZERO));
}

/// CPU 1 empties CPU 0's stack while CPU 0 allocates and frees.
fn its_cpu<W: AtomicWord + 'static>() {
    let plan = small_plan(96, 2);
    explore("drain against its CPU", Some(4), move || {
        let world: Rc<MapWorld<W>> = World::new(plan);
        let held = world.take_on(0, 2);
        world.give_on(0, &held[1..]);
        let other = spawn_on(&world, 1, |world| world.allocator().drain_cpu(CpuId(0)));
        let pfn = world.take().unwrap();
        world.give(held[0]);
        world.give(pfn);
        other.join().unwrap();
        finish(&world);
    });
}

/// At most 4 preemptions: 1 200 runs, 1 s.
#[test]
fn drain_against_its_cpu() {
    its_cpu::<Word>();
}

/// Canary: what is drained and what is freed lose each other's bits.
#[test]
#[should_panic(expected = "I-")]
fn canary_a_torn_drain() {
    its_cpu::<Torn>();
}

/// Both CPUs want a frame, of which there is one each, on the other's stack or in the map (I-6).
fn last_frames<W: AtomicWord + 'static>(bound: usize) {
    let plan = small_plan(96, 2);
    explore("the last frames", Some(bound), move || {
        let world: Rc<MapWorld<W>> = World::new(plan);
        let blocks = world.occupy(&[6, 4, 3]);
        let held = world.take_on(0, 8);
        world.give_on(1, &held[6..]);
        let other = spawn_on(&world, 1, |world| {
            let pfn = world.take().expect("I-6");
            world.give(pfn);
        });
        let pfn = world.take().expect("I-6");
        world.give(pfn);
        other.join().unwrap();
        world.give_on(0, &held[..6]);
        world.vacate(&blocks);
        finish(&world);
    });
}

/// At most 1 preemption: 1 400 runs, 2 s.
#[test]
fn the_last_frames_are_found() {
    last_frames::<Word>(1);
}

/// Canary: both have the same frame. Found where it comes back a second time, as a copy.
#[test]
#[should_panic(expected = "no copies without misuse")]
fn canary_two_have_the_last_frame() {
    last_frames::<Torn>(2);
}
