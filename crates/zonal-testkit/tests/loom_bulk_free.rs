//! Lists that are freed in two passes: what was prepared is committed or taken back, whichever
//! thread is in the cache meanwhile, and whichever isolates. Modelled on the shipped core, with
//! policies that undo too little or too much, and with one that looks at the pageblock too early,
//! as canaries.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test --release -p zonal-testkit --test models_of_lists loom_bulk_free -- --nocapture
//! ```

use crate::loom_broken_bulk_free::{ForgetsUndo, UndoesAll};
use crate::loom_broken_slots::Open;
use crate::loom_world::{World, spawn_on};
use std::rc::Rc;
use zonal::policy::Policy;
use zonal::policy::bulk_free::{BulkFree, OneByOne, PrepareCommit};
use zonal::preset::Linux416;
use zonal::{CpuId, Order, Pfn};
use zonal_testkit::lists::FreedBy;
use zonal_testkit::loom_platform::{LoomPlatform, Newest, alone, batch_plan, bound, explore};

/// Words that return what was written last: states and slots are what is modelled here, not the
/// counts that are hints.
type Host = LoomPlatform<Newest>;
type Model<B> = World<Host, FreedBy<Linux416, B>>;

/// Frees a list on the current CPU.
fn give_list<P: zonal::Host, S: Policy>(world: &World<P, S>, list: &[Pfn]) {
    list.iter().for_each(|&pfn| world.giving(pfn, Order::ZERO));
    assert_eq!(world.allocator().free_bulk(list).freed, list.len());
}

/// One frees a list of three; the other, on the same CPU, allocates and frees.
fn busy<B: BulkFree>(bound: Option<usize>) {
    let plan = batch_plan(8, 2, 2);
    explore("busy", bound, move || {
        let world: Rc<Model<B>> = Model::new(plan);
        let list = world.take_on(0, 3);
        let other = spawn_on(&world, 0, |world| {
            let found = world.take().expect("I-6: five are free");
            world.give(found);
        });
        give_list(&world, &list);
        other.join().unwrap();
        world.finish();
    });
}

/// See [`busy`].
///
/// At most 6 preemptions, in a preflight at most 3: 17 500 runs, 4.8 s. All schedules take minutes; a larger
/// `LOOM_MAX_PREEMPTIONS` tries more of them.
#[test]
fn the_slot_is_busy() {
    busy::<PrepareCommit>(bound(3, Some(6)));
}

/// Canary: [`busy`] when what was prepared stays so.
#[test]
#[should_panic(expected = "I-1")]
fn canary_undoes_too_little() {
    busy::<ForgetsUndo>(Some(2));
}

/// Canary: [`busy`] when what is in the cache is freed once more.
#[test]
#[should_panic(expected = "I-1")]
fn canary_undoes_too_much() {
    busy::<UndoesAll>(Some(2));
}

/// Two free a list each, on the same CPU at once.
fn two_lists<B: BulkFree>() {
    let plan = batch_plan(8, 2, 2);
    explore("two lists", None, move || {
        let world: Rc<Model<B>> = Model::new(plan);
        let mut mine = world.take_on(0, 4);
        let theirs = mine.split_off(2);
        let other = spawn_on(&world, 0, move |world| give_list(world, &theirs));
        give_list(&world, &mine);
        other.join().unwrap();
        world.finish();
    });
}

/// All schedules: 2 700 runs, 0.4 s.
#[test]
fn two_lists_at_once() {
    two_lists::<PrepareCommit>();
}

/// Canary: what was committed is taken back.
#[test]
#[should_panic(expected = "I-1")]
fn canary_two_lists_undo_too_much() {
    two_lists::<UndoesAll>();
}

/// One frees a list while the other drains the CPU's caches.
fn drained<P: zonal::Host + Default + 'static>() {
    let plan = batch_plan(8, 2, 2);
    explore("drained", bound(3, Some(4)), move || {
        let world = World::<P, FreedBy<Linux416, PrepareCommit>>::new(plan);
        let list = world.take_on(0, 3);
        let other = spawn_on(&world, 1, |world| world.allocator().drain_cpu(CpuId(0)));
        give_list(&world, &list);
        other.join().unwrap();
        world.finish();
    });
}

/// At most 4 preemptions, in a preflight at most 3: 18 800 runs, 4 s.
#[test]
fn drained_meanwhile() {
    drained::<Host>();
}

/// Canary: the list and the drain are in the cache at once.
#[test]
#[should_panic(expected = "two are inside")]
fn canary_drained_inside() {
    drained::<Open>();
}

/// One frees a list while the other isolates its pageblock: whatever pass it comes in, the frames
/// are free in the isolated pageblock at the end, and in no cache.
fn isolate<B: BulkFree>(bound: Option<usize>) {
    let plan = batch_plan(8, 2, 2);
    explore("isolated", bound, move || {
        let world: Rc<Model<B>> = Model::new(plan);
        let list = world.take_on(0, 2);
        let other = spawn_on(&world, 1, |world| {
            let all = Pfn::new(0)..Pfn::new(8);
            world.allocator().isolate(all).expect("movable pageblocks can be isolated")
        });
        give_list(&world, &list);
        let isolated = other.join().unwrap();
        alone();
        let busy = world.allocator().busy_frames(&isolated);
        assert_eq!(busy, 0, "a frame of the isolated pageblock is in a cache");
        world.allocator().undo_isolation(isolated).expect("its own token");
        world.finish();
    });
}

/// See [`isolate`].
///
/// At most 3 preemptions, in a preflight at most 2: 16 600 runs, 2.9 s.
#[test]
fn isolated_meanwhile() {
    isolate::<PrepareCommit>(bound(2, Some(3)));
}

/// Canary: [`isolate`] by a policy that looks at the pageblock before it enters the slot, which
/// [`Allocator::isolate`](zonal::Allocator::isolate) allows for single frames.
#[test]
#[should_panic(expected = "is in a cache")]
fn canary_looks_too_early() {
    isolate::<OneByOne>(Some(2));
}
