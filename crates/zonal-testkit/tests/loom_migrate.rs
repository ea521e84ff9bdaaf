//! Pages that move while their owner frees them. One CPU compacts; the owner of the page that
//! is moved, on another CPU, frees it, or the page beside it. Who moves a page and who frees it
//! must first win it from the host's table: the host by trying its lock, the owner by taking it
//! out. Modelled on the shipped core, with hosts that break this as canaries.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test --release -p zonal-testkit --test models_of_lists loom_migrate -- --nocapture
//! ```
//!
//! All together 25 s on two busy CPUs: 16 or 24 frames, at most 2 or 3 preemptions a run. Every
//! model says in how many runs the page moved, or the owner was first, and fails without either.

use crate::loom_mover::{
    CACHED, DIRECT, FREES, FreesRefused, LooksFirst, MovesAndRefuses, Obeys, Owner, Refuses, Rule,
    SPREAD, Seen, beside, compact, end, page, world,
};
use crate::loom_world::MOVABLE;
use zonal::Order;
use zonal::preset::Linux416;
use zonal_testkit::loom_platform::{Newest, batch_plan, bound, explore};

/// [`page`] to the lists, where it merges.
///
/// At most 2 preemptions: 1 800 runs, 0.9 s.
#[test]
fn a_page_of_the_lists() {
    page::<Obeys, Linux416>(batch_plan(16, 2, 2), FREES, Some(2)).both();
}

/// [`page`] into the cache, and the place of the page is held again, by another name; scanners meet
/// in the middle.
///
/// At most 3 preemptions: 4 200 runs, 2.5 s.
#[test]
fn a_page_of_the_cache() {
    page::<Obeys, Linux416>(batch_plan(16, 2, 2), CACHED, Some(3)).both();
}

/// As [`a_page_of_the_lists`], and a frame is taken from the lists.
///
/// At most 2 preemptions: 2 800 runs, 1.8 s.
#[test]
fn a_page_and_a_frame_of_the_lists() {
    page::<Obeys, Linux416>(batch_plan(16, 2, 2), DIRECT, Some(2)).both();
}

/// [`page`] with a host that refuses: the target goes back, the page is its owner's.
///
/// At most 3 preemptions: 4 200 runs, 1.9 s.
#[test]
fn a_page_that_stays() {
    page::<Refuses, Linux416>(batch_plan(16, 2, 2), CACHED, Some(3)).both();
}

/// As [`a_page_that_stays`], past the cache.
///
/// At most 2 preemptions: 3 100 runs, 1.7 s.
#[test]
fn a_page_that_stays_past_the_cache() {
    page::<Refuses, Linux416>(batch_plan(16, 2, 2), DIRECT, Some(2)).both();
}

/// Canary: [`page`] with a host that says it has moved what the owner has freed.
#[test]
#[should_panic(expected = "a held block can be freed: DoubleFree")]
fn canary_looks_first() {
    page::<LooksFirst, Linux416>(batch_plan(16, 2, 2), CACHED, Some(2));
}

/// Canary: [`page`] when the place of a page that stays is freed.
#[test]
#[should_panic(expected = "a held block can be freed: DoubleFree")]
fn canary_frees_refused() {
    page::<FreesRefused, Linux416>(batch_plan(16, 2, 2), CACHED, Some(2));
}

/// Canary: [`page`] when a page is moved to a place that goes back.
#[test]
#[should_panic(expected = "a held block can be freed: DoubleFree")]
fn canary_moves_and_refuses() {
    page::<MovesAndRefuses, Linux416>(batch_plan(16, 2, 2), CACHED, Some(2));
}

/// One compacts; the other frees the page beside the one that is to be moved, which merges with
/// what becomes free there.
fn neighbour<R: Rule>() -> Seen {
    let (plan, seen) = (batch_plan(16, 2, 2), Seen::default());
    let note = seen.clone();
    let owner = Owner { page: 1, ..DIRECT };
    explore("neighbour", bound(2, Some(3)), move || {
        let (world, table, held) = world::<R, Linux416, Newest>(plan, &[1, 0], &SPREAD);
        let (taken, _) = beside((&world, &table), owner, || compact(&world, 2));
        note.note(table.answered.get() > 1);
        end(&world, &table, held.into_iter().chain(taken));
    });
    seen
}

/// At most 3 preemptions, in a preflight at most 2: 16 400 runs, 10 s.
#[test]
fn the_page_beside_it() {
    neighbour::<Obeys>().both();
}

/// Canary: [`the_page_beside_it`] with the host of [`canary_frees_refused`].
#[test]
#[should_panic(expected = "a held block can be freed: DoubleFree")]
fn canary_neighbour() {
    neighbour::<FreesRefused>();
}

/// A whole pageblock is wanted, so the one that is evacuated is set apart: what the owner frees
/// there goes to lists of its own, until it has the type back that it had.
fn set_apart<R: Rule>() -> Seen {
    let (plan, seen) = (batch_plan(24, 2, 2), Seen::default());
    let note = seen.clone();
    let owner = Owner { page: 1, ..FREES };
    explore("set apart", Some(2), move || {
        let (world, table, held) = world::<R, Linux416, Newest>(plan, &[1, 6], &[10, 12, 18, 20]);
        let (taken, _) = beside((&world, &table), owner, || compact(&world, 3));
        note.note(table.answered.get() > 1);
        end(&world, &table, held.into_iter().chain(taken));
    });
    seen
}

/// At most 2 preemptions: 2 300 runs, 1.9 s.
#[test]
fn a_pageblock_is_set_apart() {
    set_apart::<Obeys>().both();
}

/// Canary: [`a_pageblock_is_set_apart`] with the host of [`canary_frees_refused`].
#[test]
#[should_panic(expected = "a held block can be freed: DoubleFree")]
fn canary_set_apart() {
    set_apart::<FreesRefused>();
}

/// A request compacts, and takes the block in the hold in which it forms; the page is freed
/// meanwhile.
fn request<R: Rule>() -> Seen {
    let (plan, seen) = (batch_plan(16, 2, 2), Seen::default());
    let note = seen.clone();
    explore("request", Some(2), move || {
        let (world, table, held) = world::<R, Linux416, Newest>(plan, &[1], &SPREAD);
        let order = Order::new(2).expect("an order");
        let ask = || world.ask(&MOVABLE.with_order(order));
        let (taken, block) = beside((&world, &table), FREES, ask);
        note.note(table.answered.get() > 0);
        // None if the owner was slow to free what he had taken out.
        block.into_iter().for_each(|pfn| world.give_block(pfn, order));
        end(&world, &table, held.into_iter().chain(taken));
    });
    seen
}

/// At most 2 preemptions: 2 700 runs, 1.6 s.
#[test]
fn a_request_takes_the_block() {
    request::<Obeys>().both();
}

/// Canary: [`a_request_takes_the_block`] with the host of [`canary_looks_first`].
#[test]
#[should_panic(expected = "the host's answers were true")]
fn canary_request() {
    request::<LooksFirst>();
}
