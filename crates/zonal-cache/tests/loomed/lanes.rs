//! Models of readers that are counted at lanes (invariant L-1 of the table's `lanes.rs`).

use super::{A, Loaded, Once, Torn, Unordered, World, finds, look_while_evicted};
use std::sync::Arc;
use zonal::platform::AtomicWord;
use zonal_cache::table::{Taken, Token};
use zonal_testkit::loom_platform::{Word, explore, spawn};

const BOUND: Option<usize> = Some(3);

/// Runs a planted bug.
pub(crate) fn planted(bug: &str) {
    match bug {
        "lanes, eviction, unordered" => explore(bug, BOUND, eviction::<Unordered>),
        "lanes, eviction, loaded" => explore(bug, BOUND, eviction::<Loaded>),
        "lanes, truncate, unordered" => explore(bug, BOUND, truncate::<Unordered>),
        "lanes, truncate, torn" => explore(bug, BOUND, truncate::<Torn>),
        "lanes, truncate, loaded" => explore(bug, BOUND, truncate::<Loaded>),
        "lanes, truncate, asked once" => explore(bug, BOUND, truncate::<Once>),
        "lanes, write, unordered" => explore(bug, BOUND, write::<Unordered>),
        "lanes, write, loaded" => explore(bug, BOUND, write::<Loaded>),
        other => panic!("no bug is called {other}"),
    }
}

/// A reader looks for `A`, which is spread, while its slot is given to `B`.
fn eviction<W: AtomicWord + 'static>() {
    look_while_evicted(&World::<W>::spread(false));
}

#[test]
fn lookup_by_a_lane_against_eviction() {
    explore("lookup by a lane against eviction", BOUND, eviction::<Word>);
}

/// Two look at a page, at two lanes, while a third takes it out of the index.
fn truncate<W: AtomicWord + 'static>() {
    let world = World::<W>::spread(true);
    let looks = |cpu| {
        let theirs: Arc<World<W>> = world.clone();
        spawn(cpu, move || {
            if let Some(reader) = theirs.look(A) {
                theirs.look_twice(reader);
            }
        })
    };
    let other = looks(1);
    if let Some(reader) = world.look(A) {
        let hold = world.table.hold(A).expect("it is there");
        assert!(world.table.detach(&hold), "it was dirty");
        world.release(world.table.leave_hold(hold));
        world.look_twice(reader);
    }
    other.join().unwrap();
    assert_eq!(world.unused(), 2, "the slot is freed once");
    assert!(world.look(A).is_none());
}

#[test]
fn looks_by_lanes_against_truncate() {
    // Three preemptions take 27 s and find nothing more.
    explore("looks by lanes against truncate", Some(2), truncate::<Word>);
}

/// One looks at a page that another writes to.
fn write<W: AtomicWord + 'static>() {
    let world = World::<W>::spread(false);
    let theirs = world.clone();
    let writes = spawn(1, move || {
        theirs.write_page(2, true);
    });
    for _ in 0..2 {
        if let Some(reader) = world.look(A) {
            world.look_twice(reader);
        }
    }
    writes.join().unwrap();
    let reader = world.look(A).expect("it is there");
    assert_eq!(world.read(&reader), 2);
    assert!(world.table.leave(reader).is_none());
    assert_eq!(world.unused(), 1, "freed once");
}

#[test]
fn a_look_by_a_lane_against_a_write() {
    explore("a look by a lane against a write", BOUND, write::<Word>);
}

/// Two look at a page for the first time, and may meet, while a third takes its slot.
fn meet<W: AtomicWord + 'static>() {
    let world = World::<W>::new(false);
    let reader = world.look(A).expect("it is there");
    let id = reader.id();
    assert!(world.table.leave(reader).is_none());
    let theirs = world.clone();
    let other = spawn(1, move || {
        if let Some(reader) = theirs.look(A) {
            theirs.look_twice(reader);
        }
    });
    if let Some(reader) = world.look(A) {
        world.look_twice(reader);
    }
    if let Taken::Claimed(claimed) = world.table.claim(id) {
        world.release(Some(claimed));
    }
    other.join().unwrap();
    let there = world.look(A).map(|reader| world.table.leave(reader)).is_some();
    assert_eq!(world.unused(), 1 + usize::from(!there), "it is there, or free");
}

#[test]
fn two_that_meet() {
    explore("two that meet", BOUND, meet::<Word>);
}

#[test]
fn canaries_of_lanes() {
    finds(&[
        "lanes, eviction, unordered",
        "lanes, eviction, loaded",
        "lanes, truncate, unordered",
        "lanes, truncate, torn",
        "lanes, truncate, loaded",
        "lanes, truncate, asked once",
        "lanes, write, unordered",
        "lanes, write, loaded",
    ]);
}
