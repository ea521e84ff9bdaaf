//! Models of a take that a hint led to: the hint is lowered before the look at the line, or, by a CPU that has no current
//! pageblock, after the last block was taken. What is freed there meanwhile is found (M-2, M-4).
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test --release -p zonal-testkit --test models_of_maps loom_led -- --nocapture
//! ```

use crate::loom_free_map_world::{Deaf, NoFence, Rule, Sound, World, order, refill, start};
use std::rc::Rc;
use zonal::MigrateType::Movable;
use zonal::zone::free_map::{Current, Frame};
use zonal_testkit::loom_platform::{bound, explore, spawn};

/// Takes a block by its hint while another CPU frees one, and gives up the pageblock that may have become its current one
/// (`holds`).
fn take_beside_free<R: Rule>(
    world: &Rc<World<R>>,
    (number, holds): (u8, bool),
    (freed, freed_number): (u32, u8),
) -> Option<Frame> {
    let other = world.clone();
    let freeing = spawn(1, move || other.free(freed, freed_number));
    let mut held = Current::NONE;
    R::plant();
    let current = holds.then_some(&mut held);
    let taken = world.map.take_block(Movable, order(number), start(), current);
    R::lift();
    freeing.join().unwrap();
    world.map.release(&mut held);
    taken
}

/// A hint leads to the only block of a pageblock while another is freed there, of which the CPU makes its current one or not
/// (`holds`): who comes later finds what was not taken.
fn free_against_led<R: Rule>(holds: bool, number: u8) {
    // In another word, which the exchange does not see.
    let (p, far) = if number < 6 { (7, 64) } else { (8, 128) };
    let world = World::<R>::new(p, 1);
    world.free(0, number);
    let taken = take_beside_free(&world, (number, holds), (far, number));
    assert!(taken.is_some(), "it was free");
    let later = world.map.take_block(Movable, order(number), start(), None);
    assert!(later.is_some_and(|later| Some(later) != taken), "a hint was lost");
}

#[test]
fn a_free_beside_a_take_that_a_hint_led_to() {
    for (number, holds) in [(1, true), (1, false), (6, true), (6, false)] {
        explore("free against led", Some(3), move || free_against_led::<Sound>(holds, number));
    }
}

#[test]
#[should_panic(expected = "a hint was lost")]
fn canary_a_free_beside_a_take_that_a_hint_led_to_without_fences() {
    explore("free against led, no fences", Some(3), || free_against_led::<NoFence>(true, 1));
}

#[test]
#[should_panic(expected = "a hint was lost")]
fn canary_a_take_that_a_hint_led_to_does_not_look_again() {
    explore("free against led, no second look", Some(3), || free_against_led::<Deaf>(false, 1));
}

/// The same with the neighbour of the block: the two were one run for a moment, or not.
fn neighbour_against_led<R: Rule>(holds: bool, number: u8) {
    let world = World::<R>::new(number + 2, 1);
    world.free(0, number);
    let taken = take_beside_free(&world, (number, holds), (1 << number, number));
    let later = world.map.take_block(Movable, order(number), start(), None);
    assert!(taken.is_some() && later.is_some(), "a hint was lost");
}

#[test]
fn a_neighbour_beside_a_take_that_a_hint_led_to() {
    for (number, holds) in [(1, true), (1, false), (6, true), (6, false)] {
        explore("neighbour against led", Some(3), move || {
            neighbour_against_led::<Sound>(holds, number);
        });
    }
}

#[test]
#[should_panic(expected = "a hint was lost")]
fn canary_a_neighbour_beside_a_take_that_does_not_look_again() {
    explore("neighbour against led, no second look", Some(3), || {
        neighbour_against_led::<Deaf>(true, 6);
    });
}

/// A hint leads to all that is free of a pageblock, while a frame is freed there.
fn free_against_emptied<R: Rule>(holds: bool) {
    let world = World::<R>::new(3, 1);
    world.free(0, 1);
    let taken = take_beside_free(&world, (1, holds), (3, 0));
    assert!(taken.is_some(), "it was free");
    assert_eq!(refill(&world, Movable), [3], "a hint was lost");
}

#[test]
fn a_free_beside_a_take_of_all() {
    for holds in [true, false] {
        explore("free against all", None, move || free_against_emptied::<Sound>(holds));
    }
}

#[test]
#[should_panic(expected = "a hint was lost")]
fn canary_a_free_beside_a_take_of_all_without_fences() {
    explore("free against all, no fences", None, || free_against_emptied::<NoFence>(true));
}

#[test]
#[should_panic(expected = "a hint was lost")]
fn canary_a_take_of_all_does_not_look_again() {
    explore("free against all, no second look", None, || free_against_emptied::<Deaf>(true));
}

/// A CPU that has no current pageblock takes one of two words, while the word between is filled, which makes a run with the first,
/// and another CPU lowers the hint of single words, as there is none for a moment.
fn word_between<R: Rule>() {
    let world = World::<R>::new(8, 2);
    [0, 128, 256].into_iter().for_each(|word| world.free(word, 6));
    let take = |world: &World<R>| world.map.take_block(Movable, order(6), start(), None);
    let other = world.clone();
    let taking = spawn(1, move || {
        other.free(64, 6);
        [take(&other), take(&other)]
    });
    R::plant();
    let own = take(&world);
    R::lift();
    let taken = [[own].as_slice(), &taking.join().unwrap()].concat().into_iter().flatten();
    // One that is nowhere for a moment may be missed; not once all have returned.
    for _ in taken.count()..4 {
        assert!(take(&world).is_some(), "a hint was lost");
    }
    assert_eq!(take(&world), None, "there were four");
}

#[test]
fn a_word_between_two() {
    explore("word between", bound(3, Some(4)), word_between::<Sound>);
}

#[test]
#[should_panic(expected = "a hint was lost")]
fn canary_a_word_between_two_and_no_look_after_it() {
    explore("word between, no look after it", bound(3, Some(4)), word_between::<Deaf>);
}
