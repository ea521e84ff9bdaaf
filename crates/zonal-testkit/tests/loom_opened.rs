//! Models of the pageblock that a refill opened and keeps without hints ([ADR 79]): going on with it, and giving
//! it up, beside a CPU that frees into it and takes what hints lead to.
//!
//! In every run each free frame is taken once, and what is left has hints (M-1 to M-4). Bound: all
//! interleavings of the accesses of a refill or a release with those of a free and a harvest; in a preflight those of
//! three preemptions at most where a refill goes on.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test --release -p zonal-testkit --test models_of_maps loom_opened -- --nocapture
//! ```
//!
//! [ADR 79]: https://github.com/zonal-rs/zonal/blob/main/docs/adr/0079-a-refill-keeps-what-it-opened.md

use crate::loom_free_map_world::{Deaf, Rule, Sound, Torn, World, refill, start};
use zonal::MigrateType::Movable;
use zonal::zone::free_map::Current;
use zonal_testkit::loom_platform::{bound, explore, spawn};

/// Takes up to `want` frames as a CPU's stack does, and keeps what is left of a whole pageblock.
fn go_on<R: Rule>(world: &World<R>, want: u32, opened: &mut Current) -> Vec<u32> {
    let mut frames = Vec::new();
    world.map.refill(Movable, want, start(), Some(opened), &mut |word, mut bits| {
        while bits != 0 {
            frames.push(word.first_frame().0 + bits.trailing_zeros());
            bits &= bits - 1;
        }
    });
    frames
}

/// A pageblock of eight frames, of which a CPU has the first six, and keeps the rest.
fn opened<R: Rule>() -> (std::rc::Rc<World<R>>, Current) {
    let world = World::<R>::new(3, 1);
    world.free(0, 3);
    let mut opened = Current::NONE;
    assert_eq!(go_on(&world, 6, &mut opened), [0, 1, 2, 3, 4, 5]);
    assert!(opened.pageblock().is_some() && refill(&world, Movable).is_empty(), "it has no hints");
    (world, opened)
}

/// Another CPU frees a frame, which raises the hints, and harvests, while this one goes on.
fn goes_on<R: Rule>() {
    let (world, mut opened) = opened::<R>();
    let other = world.clone();
    let freeing = spawn(1, move || {
        other.free(0, 0);
        refill(&other, Movable)
    });
    let mut taken = go_on(&world, 8, &mut opened);
    taken.extend(freeing.join().unwrap());
    taken.extend(refill(&world, Movable));
    taken.sort_unstable();
    assert_eq!(taken, [0, 6, 7], "not each frame once");
}

/// Another CPU harvests while this one gives its pageblock up.
fn gives_up<R: Rule>() {
    let (world, mut opened) = opened::<R>();
    let other = world.clone();
    let harvesting = spawn(1, move || refill(&other, Movable));
    R::plant();
    world.map.release(&mut opened);
    R::lift();
    let mut taken = harvesting.join().unwrap();
    taken.extend(refill(&world, Movable));
    assert_eq!(taken, [6, 7], "a hint was lost");
}

#[test]
fn a_refill_goes_on_beside_a_free_and_a_harvest() {
    explore("opened: goes on", bound(3, None), goes_on::<Sound>);
}

#[test]
#[should_panic(expected = "not each frame once")]
fn canary_a_refill_goes_on_with_torn_updates() {
    explore("opened: goes on, torn", bound(3, None), goes_on::<Torn>);
}

#[test]
fn a_pageblock_is_given_up_beside_a_harvest() {
    explore("opened: given up", None, gives_up::<Sound>);
}

/// Who gives it up and raises no hints loses what is left.
#[test]
#[should_panic(expected = "a hint was lost")]
fn canary_a_pageblock_is_given_up_without_hints() {
    explore("opened: given up, deaf", None, gives_up::<Deaf>);
}
