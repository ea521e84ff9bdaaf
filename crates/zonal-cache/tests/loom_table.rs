//! Models of the table: every interleaving, and every stale value that the memory model allows, of the
//! shipped source on loom's atomics. The bytes of a frame are a cell that loom watches: to write one
//! while another thread reads it is found.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test --release -p zonal-cache --test loom_table -- --nocapture
//! ```
//!
//! Each model is run with bugs planted: atomics that order nothing, a compare-exchange in two steps, and
//! bugs of its own.
#![cfg(loom)]

mod loomed;

use loom::thread;
use loomed::{A, Torn, Unordered, World, finds, look_while_evicted};
use zonal::platform::AtomicWord;
use zonal_cache::table::Settled;
use zonal_testkit::loom_platform::{Word, explore, spawn};

#[test]
fn planted() {
    let Ok(bug) = std::env::var("ZONAL_PLANTED") else { return };
    let bound = Some(3);
    match &*bug {
        "lookup, unordered" => explore(&bug, bound, lookup_and_eviction::<Unordered>),
        "lookup, torn" => explore(&bug, bound, lookup_and_eviction::<Torn>),
        "guess, unordered" => explore(&bug, bound, guess_and_eviction::<Unordered>),
        "guess, torn" => explore(&bug, bound, guess_and_eviction::<Torn>),
        "pin, unordered" => explore(&bug, bound, pin_and_truncate::<Unordered, false>),
        "pin, torn" => explore(&bug, bound, pin_and_truncate::<Torn, false>),
        "pin, freed at once" => explore(&bug, bound, pin_and_truncate::<Word, true>),
        "writeback, unordered" => explore(&bug, bound, writeback_and_write::<Unordered, false>),
        "writeback, torn" => explore(&bug, bound, writeback_and_write::<Torn, false>),
        "writeback, forgotten" => explore(&bug, bound, writeback_and_write::<Word, true>),
        "wait, never woken" => explore(&bug, bound, || wait_for_load::<false>(true)),
        other => match other.strip_prefix("cut, ") {
            Some(bug) => loomed::truncations::planted(bug),
            None => loomed::lanes::planted(other),
        },
    }
}

/// A reader looks for `A` while its slot is given to `B`.
fn lookup_and_eviction<W: AtomicWord + 'static>() {
    look_while_evicted(&World::<W>::new(false));
}

#[test]
fn lookup_against_eviction() {
    explore("lookup against eviction", Some(3), lookup_and_eviction::<Word>);
}

#[test]
fn canaries_of_lookup_against_eviction() {
    finds(&["lookup, unordered", "lookup, torn"]);
}

/// The same where the slot is guessed, and not looked up.
fn guess_and_eviction<W: AtomicWord + 'static>() {
    look_while_evicted(&World::<W>::guessed());
}

#[test]
fn guess_against_eviction() {
    explore("guess against eviction", Some(3), guess_and_eviction::<Word>);
}

#[test]
fn canaries_of_guess_against_eviction() {
    finds(&["guess, unordered", "guess, torn"]);
}

/// One pins a page while another takes it out of the index. With `AT_ONCE` the other frees it without
/// asking who is there.
fn pin_and_truncate<W: AtomicWord + 'static, const AT_ONCE: bool>() {
    let world = World::<W>::new(true);
    let theirs = world.clone();
    let truncates = spawn(0, move || {
        let hold = theirs.table.hold(A).expect("it is there");
        assert!(theirs.table.detach(&hold), "it was dirty");
        if AT_ONCE {
            theirs.write(&hold, 999);
        }
        theirs.release(theirs.table.leave_hold(hold));
    });
    if let Some(reader) = world.look(A) {
        assert_eq!(world.read(&reader), A.index);
        thread::yield_now();
        assert_eq!(world.read(&reader), A.index, "what is pinned stays");
        world.release(world.table.leave(reader));
    }
    truncates.join().unwrap();
    assert_eq!(world.unused(), 2, "the slot is freed once");
    assert!(world.look(A).is_none());
    assert!(world.table.hold(A).is_none());
}

#[test]
fn pin_against_truncate() {
    explore("pin against truncate", Some(4), pin_and_truncate::<Word, false>);
}

#[test]
fn canaries_of_pin_against_truncate() {
    finds(&["pin, unordered", "pin, torn", "pin, freed at once"]);
}

/// One writes a dirty page back while another writes to it. With `FORGETS` the writer takes a page that
/// was dirty before it came for one that is dirty after.
fn writeback_and_write<W: AtomicWord + 'static, const FORGETS: bool>() {
    let world = World::<W>::new(true);
    let theirs = world.clone();
    let writes = spawn(0, move || {
        theirs.write_page(2, !FORGETS);
    });
    let mut store = 0;
    let mut write_back = || {
        let hold = world.table.hold(A).expect("it is there");
        match world.table.start_writeback(&world.host, hold) {
            Ok(page) => {
                store = world.read(&page);
                let (_, free) = world.table.written(page, true);
                world.release(free);
            }
            Err((_, free)) => {
                world.release(free);
            }
        }
        store
    };
    write_back();
    writes.join().unwrap();
    assert_eq!(write_back(), 2, "what was written last reaches the store");
}

#[test]
fn writeback_against_write() {
    explore("writeback against write", Some(3), writeback_and_write::<Word, false>);
}

#[test]
fn canaries_of_writeback_against_write() {
    finds(&["writeback, unordered", "writeback, torn", "writeback, forgotten"]);
}

/// Two wait for a page that a third reads from the store, well or not.
fn wait_for_load<const WAKES: bool>(well: bool) {
    let world = World::<Word, WAKES>::empty();
    let writer = world.table.insert(world.take(), A).unwrap();
    let theirs = world.clone();
    let waits = spawn(0, move || {
        // It may be gone, where the load has failed before.
        let Some(hold) = theirs.table.hold(A) else { return assert!(!well) };
        match theirs.table.read(&theirs.host, hold) {
            Settled::Done(reader) => {
                assert!(well);
                assert_eq!(theirs.read(&reader), A.index);
                assert!(theirs.table.leave(reader).is_none());
            }
            Settled::Failed(code, free) => {
                assert!(!well && code == 5);
                theirs.release(free);
            }
            other => panic!("{other:?}"),
        }
    });
    world.write(&writer, A.index);
    if well {
        let reader = world.table.filled(&world.host, writer, false);
        assert!(world.table.leave(reader).is_none());
    } else {
        world.release(world.table.fail(&world.host, writer, 5));
    }
    waits.join().unwrap();
    assert_eq!(world.unused(), if well { 1 } else { 2 }, "freed once");
}

#[test]
fn all_who_wait_for_a_page_are_woken() {
    explore("wait for a load", Some(3), || wait_for_load::<true>(true));
    explore("wait for a load that fails", Some(3), || wait_for_load::<true>(false));
}

#[test]
fn canary_of_waiting() {
    finds(&["wait, never woken"]);
}
