//! Pages that move over a map while their owner frees them, as in `loom_migrate` over lists.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test --release -p zonal-testkit --test models_of_maps loom_migrate_map -- --nocapture
//! ```

use crate::loom_mover::{
    CACHED, DIRECT, FREES, FreesRefused, LooksFirst, MovesAndRefuses, Obeys, Owner, Refuses, Rule,
    Seen, page,
};
use zonal::pcp::Stacks;
use zonal::policy::dirty::Unlimited;
use zonal::preset::Zonal;
use zonal_testkit::loom_platform::small_plan;

zonal::preset! {
    /// The default preset with stacks of one frame and no dirty limits.
    Mapped = "Mapped", over Zonal { Pcp = Stacks<1, 4>, Dirty = Unlimited }
}

fn moved<R: Rule>(owner: Owner, bound: usize) -> Seen {
    page::<R, Mapped>(small_plan(16, 2), owner, Some(bound))
}

/// The page goes to the map.
///
/// At most 2 preemptions: 1 400 runs, 1 s.
#[test]
fn a_page_of_the_map() {
    moved::<Obeys>(FREES, 2).both();
}

/// The same, and a frame is taken then: the target, what the page left behind.
///
/// At most 2 preemptions: 2 400 runs, 1.5 s.
#[test]
fn a_page_and_a_frame_of_the_map() {
    moved::<Obeys>(DIRECT, 2).both();
}

/// The page goes on the owner's stack, and its place is held again, by another name.
///
/// At most 2 preemptions: 7 400 runs, 5 s.
#[test]
fn a_page_of_a_stack() {
    moved::<Obeys>(CACHED, 2).both();
}

/// The host refuses: the target goes back, the page is its owner's.
///
/// At most 1 preemption: 1 900 runs, 1.2 s.
#[test]
fn a_page_that_stays() {
    moved::<Refuses>(CACHED, 1).both();
}

/// Canary: the host says it has moved what the owner has freed.
#[test]
#[should_panic(expected = "the host's answers were true")]
fn canary_looks_first() {
    moved::<LooksFirst>(CACHED, 2);
}

/// Canary: the place of a page that stays is freed.
#[test]
#[should_panic(expected = "a held block can be freed: DoubleFree")]
fn canary_frees_refused() {
    moved::<FreesRefused>(CACHED, 2);
}

/// Canary: a page is moved to a place that goes back.
#[test]
#[should_panic(expected = "a held block can be freed: DoubleFree")]
fn canary_moves_and_refuses() {
    moved::<MovesAndRefuses>(CACHED, 2);
}
