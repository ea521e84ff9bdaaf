//! Models of free memory as a map: the shipped source on loom, small pageblocks.
//!
//! In every run: no frame is handed out twice, a frame's former holder has happened before its
//! next, nothing is lost, and once all calls have returned the hints lead to all that is free (M-1
//! to M-6). Each model has canaries: the same with an ordering or a second look left out.
//!
//! Loom takes sequentially consistent accesses for acquire and release; [`Planted`] puts a fence
//! behind such an update and before such a load, which is what they are on the machines we know.
//! So the canary without fences is the map with all its accesses acquire and release only.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test --release -p zonal-testkit --test models_of_maps loom_free_map -- --nocapture
//! ```

use crate::loom_free_map_world::{
    Blind, Deaf, NoFence, NoOrder, NoTransit, Rule, Sound, Torn, World, order, refill, start,
};
use std::rc::Rc;
use zonal::MigrateType::{Isolate, Movable, Unmovable};
use zonal::zone::free_map::{Current, LastLook, Pageblock, WholeClass};
use zonal_testkit::loom_platform::{bound, explore, spawn};

/// A free while a CPU takes all that the pageblock has and has lowered its hint: either that CPU
/// sees the bit, or the free sees the hint missing.
fn free_against_refill<R: Rule>() {
    let world = World::<R>::new(3, 2);
    world.free(0, 0);
    let other = world.clone();
    let freeing = spawn(1, move || {
        other.free(3, 0);
    });
    let mut taken = refill(&world, Movable);
    freeing.join().unwrap();
    taken.extend(refill(&world, Movable));
    taken.sort_unstable();
    assert_eq!(taken, [0, 3], "a hint was lost");
}

#[test]
fn a_free_beside_a_refill() {
    explore("free against refill", None, free_against_refill::<Sound>);
}

#[test]
#[should_panic(expected = "a hint was lost")]
fn canary_a_free_beside_a_refill_without_fences() {
    explore("free against refill, no fences", None, free_against_refill::<NoFence>);
}

/// What a frame's former holder did has happened before the next one has it.
fn handed_on<R: Rule>() {
    let world = World::<R>::new(3, 2);
    let other = world.clone();
    let freeing = spawn(1, move || {
        other.own(3);
        other.free(3, 0);
    });
    let taken = refill(&world, Movable);
    taken.iter().for_each(|&frame| world.own(frame));
    freeing.join().unwrap();
}

#[test]
fn a_frame_is_handed_on() {
    explore("handed on", None, handed_on::<Sound>);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn canary_a_frame_is_handed_on_without_order() {
    explore("handed on, no order", None, handed_on::<NoOrder>);
}

/// A search finds a stale hint and lowers it while a free makes the run that it speaks of.
fn free_against_search<R: Rule>() {
    let world = World::<R>::new(3, 2);
    // Leaves the hint of order 1 behind.
    world.free(0, 1);
    let _one = world.map.take_block(Movable, order(0), start(), None).expect("it is free");
    let other = world.clone();
    let freeing = spawn(1, move || other.free(0, 0));
    R::plant();
    let taken = world.map.take_block(Movable, order(1), start(), None);
    R::lift();
    freeing.join().unwrap();
    let later = world.map.take_block(Movable, order(1), start(), None);
    assert!(taken.is_some() != later.is_some(), "a hint was lost");
}

#[test]
fn a_free_beside_a_search() {
    explore("free against search", None, free_against_search::<Sound>);
}

#[test]
#[should_panic(expected = "a hint was lost")]
fn canary_a_free_beside_a_search_without_fences() {
    explore("free against search, no fences", None, free_against_search::<NoFence>);
}

#[test]
#[should_panic(expected = "a hint was lost")]
fn canary_a_search_that_does_not_look_again() {
    explore("free against search, no second look", None, free_against_search::<Deaf>);
}

/// Two frees, each of which fills a word of a line of two; `taker` at the same time takes the
/// pageblock as a whole.
fn two_complete<R: Rule>(taker: bool) {
    let world = World::<R>::new(7, 1);
    world.free_all_but(0, &[5, 70]);
    let other = world.clone();
    let freeing = spawn(1, move || other.free(70, 0));
    let other = world.clone();
    let taking = taker.then(|| {
        spawn(2, move || {
            if let Some(pageblock) = other.map.take_large(order(7), start()) {
                assert_eq!(other.map.free_in(pageblock), 0, "whole, and in its line");
                other.free(0, 7);
            }
        })
    });
    world.free(5, 0);
    freeing.join().unwrap();
    taking.into_iter().for_each(|taking| taking.join().unwrap());
    assert!(world.map.is_whole(Pageblock(0)), "full, and not whole");
    assert_eq!(world.line(0), 0, "whole, and in its line");
}

#[test]
fn two_frees_complete_a_pageblock() {
    explore("two frees complete", Some(4), || two_complete::<Sound>(false));
}

#[test]
fn frees_that_complete_beside_an_order_that_takes_it() {
    explore("two frees complete against order p", Some(2), || two_complete::<Sound>(true));
}

#[test]
#[should_panic(expected = "full, and not whole")]
fn canary_two_frees_complete_without_fences() {
    explore("two frees complete, no fences", Some(4), || two_complete::<NoFence>(false));
}

/// A free completes the line while a word is taken from it, and freed again: the CPU that wanted
/// all words puts the first one back, and looks again. With `look` the taken word is kept, and a
/// third CPU looks at the bits meanwhile: there is something free all the time.
fn complete_against_take<R: Rule>(look: bool) {
    let world = World::<R>::new(7, 1);
    world.free_all_but(0, &[5, 70]);
    world.free(70, 0);
    let (first, second) = (world.clone(), world.clone());
    let taking = spawn(1, move || {
        let taken = first.map.take_block(Movable, order(6), start(), None);
        if let Some(frame) = taken.filter(|_| !look) {
            first.free(frame.0, 6);
        }
    });
    let looking = look
        .then(|| spawn(2, move || second.map.last_look(|migrate| migrate == Movable, order(0))));
    R::plant();
    world.free(5, 0);
    R::lift();
    taking.join().unwrap();
    if let Some(looking) = looking {
        let saw = looking.join().unwrap();
        assert_ne!(saw, LastLook::Nothing, "something was free all the time");
        return;
    }
    assert!(world.map.is_whole(Pageblock(0)), "full, and not whole");
    assert_eq!(world.line(0), 0, "whole, and in its line");
}

#[test]
fn a_free_that_completes_beside_a_take() {
    explore("complete against take", Some(3), || complete_against_take::<Sound>(false));
}

#[test]
fn a_last_look_beside_an_undo() {
    explore("complete, take and a last look", Some(2), || complete_against_take::<Sound>(true));
}

#[test]
#[should_panic(expected = "something was free all the time")]
fn canary_a_last_look_beside_an_undo_that_does_not_count() {
    explore("complete, take and a last look, not counted", Some(2), || {
        complete_against_take::<NoTransit>(true);
    });
}

#[test]
#[should_panic(expected = "full, and not whole")]
fn canary_an_undo_that_does_not_look_again() {
    explore("complete against take, no look after the undo", Some(3), || {
        complete_against_take::<Blind>(false);
    });
}

/// A pageblock is isolated while one CPU takes from it and another frees into it: what the
/// isolation has seen free stays, and no hint of the old type is needed to find what is in it.
fn isolate_against_refill<R: Rule>() {
    let world = World::<R>::new(3, 2);
    world.free(0, 0);
    let (first, second) = (world.clone(), world.clone());
    let freeing = spawn(1, move || first.free(3, 0));
    let isolating = spawn(2, move || {
        second.map.set_type(Pageblock(0), Isolate);
        second.map.free_in(Pageblock(0)) as usize
    });
    let taken = refill(&world, Movable).len();
    freeing.join().unwrap();
    let seen = isolating.join().unwrap();
    assert!(taken + seen <= 2, "a frame was isolated and handed out");
    assert_eq!(taken + world.map.free_in(Pageblock(0)) as usize, 2, "a frame was lost");
    assert_eq!(refill(&world, Movable), [], "isolated, and handed out");
    world.map.set_type(Pageblock(0), Unmovable);
    assert_eq!(taken + refill(&world, Unmovable).len(), 2, "a hint was lost");
}

#[test]
fn isolation_beside_a_free_and_a_refill() {
    explore("isolation", Some(3), isolate_against_refill::<Sound>);
}

#[test]
#[should_panic(expected = "isolated and handed out")]
fn canary_isolation_without_fences() {
    explore("isolation, no fences", Some(3), isolate_against_refill::<NoFence>);
}

/// The same where the CPU takes by what it remembers of its current pageblock; another CPU takes there
/// meanwhile, so that what is remembered is wrong.
fn isolate_against_beside<R: Rule>() {
    let world = World::<R>::new(6, 1);
    world.free(0, 1);
    world.free(4, 0);
    world.free(8, 0);
    let mut held = Current::NONE;
    let take = |world: &World<R>, held: &mut Current| {
        world.map.take_block(Movable, order(0), start(), Some(held)).is_some()
    };
    assert!(take(&world, &mut held) && take(&world, &mut held), "there are four");
    let (first, second) = (world.clone(), world.clone());
    let taking = spawn(1, move || first.map.take_block(Movable, order(0), start(), None).is_some());
    let isolating = spawn(2, move || {
        second.map.set_type(Pageblock(0), Isolate);
        second.map.free_in(Pageblock(0)) as usize
    });
    let own = world.map.take_beside(&mut held, Movable, order(0)).is_some();
    let taken = usize::from(taking.join().unwrap()) + usize::from(own);
    let seen = isolating.join().unwrap();
    assert!(taken + seen <= 2, "a frame was isolated and handed out");
    assert_eq!(taken + world.map.free_in(Pageblock(0)) as usize, 2, "a frame was lost");
    assert!(!take(&world, &mut held), "isolated, and handed out");
}

#[test]
fn isolation_beside_takes_by_what_is_remembered() {
    explore("isolation against beside", Some(3), isolate_against_beside::<Sound>);
}

#[test]
#[should_panic(expected = "isolated and handed out")]
fn canary_isolation_beside_takes_by_what_is_remembered_without_fences() {
    explore("isolation against beside, no fences", Some(3), isolate_against_beside::<NoFence>);
}

/// The last frame of a pageblock is freed while it is isolated, and then it is wanted as a whole.
/// Fences are not what this takes: each update of a bitmap sees the one before, and with it the type.
fn isolate_against_complete<R: Rule>() {
    let world = World::<R>::new(3, 1);
    world.free_all_but(0, &[5]);
    let (first, second) = (world.clone(), world.clone());
    let isolating = spawn(1, move || {
        first.map.set_type(Pageblock(0), Isolate);
        first.map.whole_class(Pageblock(0)) == Some(WholeClass::Isolated)
    });
    let taking = spawn(2, move || second.map.take_large(order(3), start()).is_some());
    world.free(5, 0);
    let isolated = isolating.join().unwrap();
    let taken = taking.join().unwrap();
    assert!(!(taken && isolated), "isolated, and handed out");
    let class = world.map.whole_class(Pageblock(0));
    let wanted = (!taken).then_some(WholeClass::Isolated);
    assert_eq!(class, wanted, "in the wrong bitmap");
}

#[test]
fn isolation_beside_a_free_that_completes() {
    explore("isolation against complete", bound(2, Some(3)), isolate_against_complete::<Sound>);
}

#[test]
#[should_panic(expected = "in the wrong bitmap")]
fn canary_isolation_beside_a_free_that_completes_without_order() {
    explore("isolation against complete, no order", Some(2), || {
        isolate_against_complete::<NoOrder>();
    });
}

/// Two CPUs want the same pageblock's frames: each frame goes to one of them.
fn two_refill<R: Rule>() {
    let world = World::<R>::new(3, 1);
    world.free(0, 1);
    world.free(4, 0);
    let other = world.clone();
    let taking = spawn(1, move || refill(&other, Movable));
    let mut taken = refill(&world, Movable);
    taken.extend(taking.join().unwrap());
    taken.extend(refill(&world, Movable));
    taken.sort_unstable();
    assert_eq!(taken, [0, 1, 4], "not each frame once");
}

#[test]
fn two_refills_of_one_pageblock() {
    explore("two refills", None, two_refill::<Sound>);
}

#[test]
#[should_panic(expected = "not each frame once")]
fn canary_two_refills_with_torn_updates() {
    explore("two refills, torn", None, two_refill::<Torn>);
}

/// Two CPUs want the same whole pageblock: one gets it.
fn two_take_whole<R: Rule>() {
    let world = World::<R>::new(3, 2);
    world.free(0, 3);
    let other = world.clone();
    let taking = spawn(1, move || other.map.take_large(order(3), start()).is_some());
    let taken = world.map.take_large(order(3), start()).is_some();
    assert!(taken != taking.join().unwrap(), "not one of the two");
}

#[test]
fn two_want_one_whole_pageblock() {
    explore("two want one whole", None, two_take_whole::<Sound>);
}

#[test]
#[should_panic(expected = "not one of the two")]
fn canary_two_want_one_whole_pageblock_with_torn_updates() {
    explore("two want one whole, torn", None, two_take_whole::<Torn>);
}

/// An order of two words beside orders that take each of them and free them again.
fn two_words<R: Rule>() {
    let world = World::<R>::new(8, 1);
    world.free(0, 7);
    let other = world.clone();
    let taking = spawn(1, move || {
        let take = || other.map.take_block(Movable, order(6), start(), None);
        let taken = [take(), take()];
        taken.into_iter().flatten().for_each(|frame| other.free(frame.0, 6));
    });
    R::plant();
    let large = world.map.take_block(Movable, order(7), start(), None);
    R::lift();
    taking.join().unwrap();
    let later = world.map.take_block(Movable, order(7), start(), None);
    assert!(large.is_some() != later.is_some(), "a run was lost");
}

#[test]
fn orders_of_two_words() {
    explore("two words", Some(3), two_words::<Sound>);
}

#[test]
#[should_panic(expected = "a run was lost")]
fn canary_orders_of_two_words_whose_undo_does_not_look_again() {
    explore("two words, no look after the undo", Some(3), two_words::<Blind>);
}

/// The type of a pageblock changes while a frame is freed into it: the frame is found under the
/// new one.
fn type_against_free<R: Rule>() {
    let world = World::<R>::new(3, 2);
    let other = world.clone();
    let changing = spawn(1, move || other.map.set_type(Pageblock(0), Unmovable));
    world.free(3, 0);
    changing.join().unwrap();
    // In this order: a search that finds it by the hint of the wrong type files it.
    assert_eq!(refill(&world, Unmovable), [3], "a hint was lost");
    assert_eq!(refill(&world, Movable), [], "of the wrong type");
}

#[test]
fn a_type_changes_beside_a_free() {
    explore("type against free", None, type_against_free::<Sound>);
}

#[test]
#[should_panic(expected = "a hint was lost")]
fn canary_a_type_changes_beside_a_free_without_fences() {
    explore("type against free, no fences", None, type_against_free::<NoFence>);
}

/// Over two levels: a bit is set below while a search lowers the bit above.
fn levels<R: Rule>() {
    let world = World::<R>::new(3, 129);
    world.free(64 * 8, 3);
    let taken = world.map.take_large(order(3), start());
    assert_eq!(taken, Some(Pageblock(64)), "it is free");
    let other = Rc::clone(&world);
    let freeing = spawn(1, move || other.free(65 * 8, 3));
    let taken = world.map.take_large(order(3), start());
    freeing.join().unwrap();
    let later = world.map.take_large(order(3), start());
    assert!(taken.is_some() != later.is_some(), "a hint above was lost");
}

#[test]
fn a_free_beside_a_search_over_two_levels() {
    explore("two levels", Some(3), levels::<Sound>);
}

#[test]
#[should_panic(expected = "a hint above was lost")]
fn canary_a_free_beside_a_search_over_two_levels_without_fences() {
    explore("two levels, no fences", Some(3), levels::<NoFence>);
}
