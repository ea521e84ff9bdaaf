//! Models of blocks that are taken several at once, by one exchange for each word: what is freed in their pageblock
//! meanwhile is found (M-2, M-4), and of a pageblock that is isolated meanwhile none is kept (M-5).
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test --release -p zonal-testkit --test models_of_maps loom_fitting -- --nocapture
//! ```

use crate::loom_free_map_world::{Deaf, NoFence, Rule, Sound, World, order, refill, start};
use zonal::MigrateType::{Isolate, Movable};
use zonal::zone::free_map::Pageblock;
use zonal_testkit::loom_platform::{explore, spawn};

/// Blocks of two frames of the first pageblock, and such that are half of a run of four.
fn fit<R: Rule>(world: &World<R>, larger: bool) -> usize {
    let wanted = (Movable, order(1), larger);
    world.map.take_fitting(Pageblock(1), wanted, (start(), 8)).frames().len()
}

/// All of a pageblock is taken while a block is freed there.
fn free_against_fitting<R: Rule>(larger: bool, freed: u32) {
    let world = World::<R>::new(7, 2);
    world.free(0, if larger { 2 } else { 1 });
    if !larger {
        world.free(4, 1);
    }
    let other = world.clone();
    let freeing = spawn(1, move || other.free(freed, 1));
    R::plant();
    let taken = fit(&world, larger);
    R::lift();
    freeing.join().unwrap();
    assert!(taken > 0, "two were free all the time");
    // Both halves of the larger one, or what came beside it.
    let later = fit(&world, larger);
    assert_eq!(taken + later + fit(&world, larger), 3, "a hint was lost");
}

#[test]
fn a_free_beside_a_take_of_several() {
    // In the same word and in another, which the exchange does not see.
    for (larger, freed) in [(false, 8), (false, 64), (true, 8), (true, 64)] {
        explore("free against fitting", Some(3), move || {
            free_against_fitting::<Sound>(larger, freed);
        });
    }
}

#[test]
#[should_panic(expected = "a hint was lost")]
fn canary_a_free_beside_a_take_of_several_without_fences() {
    explore("free against fitting, no fences", Some(3), || {
        free_against_fitting::<NoFence>(false, 64);
    });
}

#[test]
#[should_panic(expected = "a hint was lost")]
fn canary_a_take_of_several_does_not_look_again() {
    explore("free against fitting, no second look", Some(3), || {
        free_against_fitting::<Deaf>(false, 64);
    });
}

/// A pageblock is isolated while blocks are taken of two of its words, and put back.
fn isolate_against_fitting<R: Rule>() {
    let world = World::<R>::new(7, 2);
    world.free(0, 1);
    world.free(64, 1);
    let other = world.clone();
    let isolating = spawn(1, move || {
        other.map.set_type(Pageblock(0), Isolate);
        other.map.free_in(Pageblock(0)) as usize / 2
    });
    let taken = fit(&world, false);
    let seen = isolating.join().unwrap();
    assert!(taken + seen <= 2, "a block was isolated and handed out");
    assert_eq!(taken + world.map.free_in(Pageblock(0)) as usize / 2, 2, "a block was lost");
    assert_eq!(fit(&world, false), 0, "isolated, and handed out");
    world.map.set_type(Pageblock(0), Movable);
    assert_eq!(taken + refill(&world, Movable).len() / 2, 2, "a hint was lost");
}

#[test]
fn isolation_beside_a_take_of_several() {
    explore("isolation against fitting", Some(3), isolate_against_fitting::<Sound>);
}

#[test]
#[should_panic(expected = "isolated and handed out")]
fn canary_isolation_beside_a_take_of_several_without_fences() {
    explore("isolation against fitting, no fences", Some(3), isolate_against_fitting::<NoFence>);
}
