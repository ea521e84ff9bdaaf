//! Several compactions of a zone. Side by side they look at the same pageblocks without a lock, ask
//! the host for the same pages and reach for the same places to move to; what keeps them apart is
//! that a page is won from the host's table, and that a place is looked at again under the zone
//! lock or taken with its bits. In turns one waits for the other. Modelled on the shipped core, with
//! hosts that break this as canaries.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test --release -p zonal-testkit --test models_of_maps loom_compactions -- --nocapture
//! ```
//!
//! 16 frames, at most 2 or 3 preemptions a run, in a preflight 1 where two are side by side. Every model of two side by side says in how many
//! runs both moved a page, and in how many they met at one, and fails without either.

use crate::loom_broken_torn::Torn;
use crate::loom_mover::{LooksFirst, Obeys, Rule, Seen, Table, WAITED, compact, end, world};
use crate::loom_world::{MOVABLE, spawn_on};
use zonal::compact::CompactOutcome;
use zonal::pcp::Stacks;
use zonal::plan::Plan;
use zonal::platform::AtomicWord;
use zonal::policy::dirty::Unlimited;
use zonal::policy::{Policy, compact as policy};
use zonal::preset::{ClusterFree, Linux416, Zonal};
use zonal::{CpuId, Order, Pfn};
use zonal_testkit::loom_platform::{Newest, batch_plan, bound, explore};

zonal::preset! {
    /// Scanners side by side over the map.
    Mapped = "Mapped", over Zonal {
        Pcp = Stacks<1, 1>, Dirty = Unlimited, Compact = policy::InOrder
    }
}
zonal::preset! {
    /// Turns over lists.
    Turns = "Turns", over Linux416 { Compact = policy::Cheapest }
}
zonal::preset! {
    /// Turns over lists with clusters.
    ClusterTurns = "ClusterTurns", over ClusterFree { Compact = policy::Cheapest }
}

/// Each in the way of a block of four of the first pageblock.
const PAGES: [u64; 2] = [1, 5];
/// In the way of those of the second, for good.
const HELD: [u64; 2] = [9, 13];

/// What happened in some runs of a model and not in others.
#[derive(Clone, Default)]
struct Together {
    /// Both CPUs moved a page.
    both: Seen,
    /// Both asked for the page in one frame.
    met: Seen,
}

impl Together {
    fn note(&self, table: &Table) {
        let answers = table.answers.borrow();
        let moved = |cpu| answers.iter().any(|&(by, _, moved)| by == CpuId(cpu) && moved);
        self.both.note(moved(0) && moved(1));
        let asked = |cpu, pfn| answers.iter().any(|&(by, of, _)| (by, of) == (CpuId(cpu), pfn));
        self.met.note(PAGES.map(Pfn::new).iter().any(|&pfn| asked(0, pfn) && asked(1, pfn)));
    }

    fn check(&self) {
        self.both.both();
        self.met.both();
    }
}

/// Two compact one zone at once: each page is moved once at most from where it is, all frames are
/// there and merged at the end, and one of them at least has its block.
fn two_compactions<R: Rule, S: Policy, W: AtomicWord + 'static>() -> Together {
    let (seen, plan) = (Together::default(), batch_plan(16, 2, 2));
    let note = seen.clone();
    explore("two compactions", bound(1, Some(2)), move || {
        let (world, table, held) = world::<R, S, W>(plan, &PAGES, &HELD);
        let other = spawn_on(&world, 1, |world| compact(world, 2));
        let outcomes = [compact(&world, 2), other.join().unwrap()];
        assert!(outcomes.contains(&CompactOutcome::Success), "{outcomes:?}");
        assert!(!outcomes.contains(&CompactOutcome::Contended), "{outcomes:?}");
        note.note(&table);
        end(&world, &table, held);
    });
    seen
}

/// At most 2 preemptions, in a preflight at most 1: 20 000 runs, 10 s.
#[test]
fn side_by_side() {
    two_compactions::<Obeys, Linux416, Newest>().check();
}

/// [`side_by_side`], with clusters disabled by both, and enabled by the last.
///
/// At most 2 preemptions, in a preflight at most 1: 31 000 runs, 20 s.
#[test]
fn side_by_side_with_clusters_off() {
    two_compactions::<Obeys, ClusterFree, Newest>().check();
}

/// [`side_by_side`] without a lock: places to move to are taken by their bits.
///
/// At most 2 preemptions, in a preflight at most 1: 26 000 runs, 33 s.
#[test]
fn side_by_side_over_the_map() {
    two_compactions::<Obeys, Mapped, Newest>().check();
}

/// Canary: [`side_by_side`] with a host that looks where the page is and moves it without a second
/// look, so that each of two may move it.
#[test]
#[should_panic(expected = "not held")]
fn canary_moves_for_both() {
    two_compactions::<LooksFirst, Linux416, Newest>();
}

/// Canary: [`side_by_side_over_the_map`] with words that are torn, so that of two that take places to move to
/// and give up others one may undo what the other has done.
#[test]
#[should_panic(expected = "I-1: places of each frame")]
fn canary_a_place_is_lost() {
    two_compactions::<Obeys, Mapped, Torn>();
}

/// Two requests compact one zone at once, and each takes the block in the hold in which it forms.
fn two_requests<R: Rule>() -> Together {
    let (seen, plan) = (Together::default(), batch_plan(16, 2, 2));
    let note = seen.clone();
    explore("two requests", bound(1, Some(2)), move || {
        let (world, table, held) = world::<R, Linux416, Newest>(plan, &PAGES, &HELD);
        let order = Order::new(2).expect("an order");
        let other = spawn_on(&world, 1, move |world| world.ask(&MOVABLE.with_order(order)));
        let blocks = [world.ask(&MOVABLE.with_order(order)), other.join().unwrap()];
        assert!(blocks.iter().any(Option::is_some), "one of them has its block");
        note.note(&table);
        blocks.into_iter().flatten().for_each(|pfn| world.give_block(pfn, order));
        end(&world, &table, held);
    });
    seen
}

/// At most 2 preemptions, in a preflight at most 1: 48 000 runs, 30 s.
#[test]
fn requests_side_by_side() {
    two_requests::<Obeys>().check();
}

/// Canary: [`requests_side_by_side`] with the host of [`canary_moves_for_both`]: both write to the page.
#[test]
#[should_panic(expected = "Causality violation")]
fn canary_moves_for_both_requests() {
    two_requests::<LooksFirst>();
}

/// Two want blocks of one zone: one compacts it, the other waits for its turn, and neither is told
/// that the zone is taken.
fn two_in_turns<S: Policy, W: AtomicWord + 'static>(
    plan: &'static Plan,
    bound: Option<usize>,
) -> Seen {
    let seen = Seen::default();
    let note = seen.clone();
    explore("turns", bound, move || {
        let (world, table, held) = world::<Obeys, S, W>(plan, &[1], &[5, 9, 13]);
        WAITED.set(0);
        let other = spawn_on(&world, 1, |world| compact(world, 2));
        let outcomes = [compact(&world, 2), other.join().unwrap()];
        assert_eq!(outcomes, [CompactOutcome::Success; 2], "one block does for both");
        assert_eq!(table.answered.get(), 1, "the second finds what the first has made");
        note.note(WAITED.get() > 0);
        end(&world, &table, held);
    });
    seen
}

/// All orders: 36 runs, 0.02 s.
#[test]
fn requests_take_turns() {
    two_in_turns::<Turns, Newest>(batch_plan(16, 2, 2), None).both();
}

/// [`requests_take_turns`] where a request that waits has disabled clusters.
///
/// At most 3 preemptions: 1 400 runs, 0.9 s.
#[test]
fn requests_take_turns_with_clusters_off() {
    two_in_turns::<ClusterTurns, Newest>(batch_plan(16, 2, 2), Some(3)).both();
}

/// Canary: whose turn it is, is looked at and then written.
#[test]
#[should_panic(expected = "one block does for both")]
fn canary_two_have_the_turn() {
    two_in_turns::<Turns, Torn>(batch_plan(16, 2, 2), None);
}
