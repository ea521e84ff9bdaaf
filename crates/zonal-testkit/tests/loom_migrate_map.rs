//! Pages that move over a map while their owner frees them, as in `loom_migrate` over lists.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test --release -p zonal-testkit --test models_of_maps loom_migrate_map -- --nocapture
//! ```

use crate::loom_mover::{
    CACHED, DIRECT, FREES, FreesRefused, LooksFirst, MovesAndRefuses, Obeys, Owner, Refuses, Rule,
    SPREAD, Seen, compact, end, page, world,
};
use crate::loom_world::{MOVABLE, spawn_on};
use zonal::compact::CompactOutcome;
use zonal::pcp::Stacks;
use zonal::policy::dirty::Unlimited;
use zonal::preset::Zonal;
use zonal::{Order, Pfn};
use zonal_testkit::loom_platform::{Newest, bound, explore, small_plan};

zonal::preset! {
    /// The default preset with stacks of one frame and no dirty limits.
    Mapped = "Mapped", over Zonal { Pcp = Stacks<1, 4>, Dirty = Unlimited }
}

fn moved<R: Rule>(owner: Owner, bound: Option<usize>) -> Seen {
    page::<R, Mapped>(small_plan(16, 2), owner, bound)
}

/// The page goes to the map.
///
/// At most 2 preemptions: 1 400 runs, 1 s.
#[test]
fn a_page_of_the_map() {
    moved::<Obeys>(FREES, Some(2)).both();
}

/// The same, and a frame is taken then: the target, what the page left behind.
///
/// At most 2 preemptions, in a preflight at most 1: 2 400 runs, 1.5 s.
#[test]
fn a_page_and_a_frame_of_the_map() {
    moved::<Obeys>(DIRECT, bound(1, Some(2))).both();
}

/// The page goes on the owner's stack, and its place is held again, by another name.
///
/// At most 2 preemptions, in a preflight at most 1: 7 400 runs, 5 s.
#[test]
fn a_page_of_a_stack() {
    moved::<Obeys>(CACHED, bound(1, Some(2))).both();
}

/// The host refuses: the target goes back, the page is its owner's.
///
/// At most 1 preemption: 1 900 runs, 1.2 s.
#[test]
fn a_page_that_stays() {
    moved::<Refuses>(CACHED, Some(1)).both();
}

/// CPU 0 compacts, or has a request that does, while CPU 1 isolates the pageblock that starts at `start` and
/// looks how many of its frames are in use: afterwards no more of them are (M-5). At most `bound` preemptions: one is
/// enough to find a block that is taken without a second look at the type.
fn beside_an_isolation(start: u64, requested: bool, bound: Option<usize>) -> Seen {
    let (plan, seen) = (small_plan(16, 2), Seen::default());
    let note = seen.clone();
    explore("compaction beside an isolation", bound, move || {
        let (world, table, held) = world::<Obeys, Mapped, Newest>(plan, &[1], &SPREAD);
        let other = spawn_on(&world, 1, move |world| {
            let range = Pfn::new(start)..Pfn::new(start + 8);
            let isolated =
                world.allocator().isolate(range).expect("movable: nothing is in the way");
            let busy = world.allocator().busy_frames(&isolated);
            (isolated, busy)
        });
        let order = Order::new(2).expect("an order");
        let block = if requested {
            world.ask(&MOVABLE.with_order(order))
        } else {
            assert_ne!(compact(&world, order.get()), CompactOutcome::Contended);
            None
        };
        let (isolated, busy) = other.join().unwrap();
        world.allocator().drain_all();
        assert!(world.allocator().busy_frames(&isolated) <= busy, "taken from the isolated");
        world.allocator().undo_isolation(isolated).expect("its own");
        let zone = world.zone();
        assert_eq!((zone.counted_free, zone.isolated), (zone.free, 0), "I-2");
        note.note(table.answered.get() > 0);
        block.into_iter().for_each(|pfn| world.give_block(pfn, order));
        end(&world, &table, held);
    });
    seen
}

/// The pageblock is where there are places to move to.
///
/// At most 2 preemptions, in a preflight at most 1: 7 200 runs, 23 s on two busy CPUs.
#[test]
fn places_in_an_isolated_pageblock() {
    beside_an_isolation(8, false, bound(1, Some(2))).both();
}

/// The pageblock is where the block forms that the request takes.
///
/// At most 1 preemption: 0.6 s. With 2 (`LOOM_MAX_PREEMPTIONS=2`) it has 51 000 runs, over a minute beside other work.
#[test]
fn a_block_in_an_isolated_pageblock() {
    beside_an_isolation(0, true, Some(1));
}

/// Canary: the host says it has moved what the owner has freed.
#[test]
#[should_panic(expected = "the host's answers were true")]
fn canary_looks_first() {
    moved::<LooksFirst>(CACHED, bound(1, Some(2)));
}

/// Canary: the place of a page that stays is freed.
#[test]
#[should_panic(expected = "a held block can be freed: DoubleFree")]
fn canary_frees_refused() {
    moved::<FreesRefused>(CACHED, bound(1, Some(2)));
}

/// Canary: a page is moved to a place that goes back.
#[test]
#[should_panic(expected = "a held block can be freed: DoubleFree")]
fn canary_moves_and_refuses() {
    moved::<MovesAndRefuses>(CACHED, bound(1, Some(2)));
}
