//! Models of how a truncation takes a page out: by its key with the chain's lock
//! ([`Table::take_out`](zonal_cache::table::Table::take_out)), or by a hold where others are at it. Beside it one pins
//! the page, or looks for it, at the word of the slot or at a lane (invariant L-1 of the table's `lanes.rs`).
//!
//! Bounds, in preemptions: 4 for pins, 3 for looks and for pins by a lane; looks by a lane 2 in a preflight and 3 with `--wide`
//! (10 s), looks by two lanes 1 and 2 (21 s). All planted bugs are found with one.

use super::bugs::{ASKS, COMES, COMING, KEY, LEAVES, LEAVING, Recalls, Stays, TAKES};
use super::bugs::{Unasked, Unflagged, Weak};
use super::{A, B, Loaded, Once, Torn, World, finds};
use std::sync::Arc;
use zonal::platform::AtomicWord;
use zonal_cache::table::{Claimed, Reader, Settled, TakenOut};
use zonal_testkit::loom_platform::{Word, bound, explore, move_to, spawn};

/// Gets the page as `File::pin` does: without a lock, or by a hold where that does not find it.
fn pin<W: AtomicWord + 'static>(world: &World<W>) -> Option<Reader> {
    if let Some(reader) = world.look(A) {
        return Some(reader);
    }
    match world.table.read(&world.host, world.table.hold(A)?) {
        Settled::Done(reader) => Some(reader),
        Settled::Gone(free) => {
            world.release(free);
            None
        }
        other => panic!("{other:?}"),
    }
}

/// Takes the page out as `truncate` does: its slot, unless others are there, the last of whom has it then. If it `forgets`
/// them, the bytes are another's at once.
fn cut<W: AtomicWord + 'static>(world: &World<W>, forgets: bool) -> Option<Claimed> {
    match world.table.take_out(A, true) {
        TakenOut::Claimed(claimed, dirty) => {
            assert!(dirty, "it was");
            Some(claimed)
        }
        TakenOut::Kept => {
            let hold = world.table.hold(A).expect("no other takes it out");
            assert!(world.table.detach(&hold), "it was dirty");
            if forgets {
                world.write(&hold, 999);
            }
            world.table.leave_hold(hold)
        }
        TakenOut::NotThere => panic!("it is there"),
    }
}

/// One pins a page while another truncates it, and looks for it then.
fn pinned<W: AtomicWord + 'static>(world: &Arc<World<W>>, forgets: bool) {
    let theirs = world.clone();
    let cuts = spawn(1, move || {
        let free = cut(&theirs, forgets);
        theirs.release(free);
        assert!(pin(&theirs).is_none());
    });
    if let Some(reader) = pin(world) {
        assert_eq!(world.read_twice(&reader), A.index, "the bytes of another page");
        world.release(world.table.leave(reader));
    }
    cuts.join().unwrap();
    assert_eq!(world.unused(), 2, "the slot is freed once");
    assert!(pin(world).is_none());
}

/// One looks for a page while another truncates it and gives its slot to `B`.
fn looked_for<W: AtomicWord + 'static>(world: &Arc<World<W>>) {
    let theirs = world.clone();
    let cuts = spawn(1, move || {
        let free = cut(&theirs, false);
        free.map(|claimed| theirs.fill(claimed, B)).is_some()
    });
    for key in [A, B] {
        if let Some(reader) = world.look(key) {
            assert_eq!(world.read_twice(&reader), key.index, "the bytes of another page");
            world.release(world.table.leave(reader));
        }
    }
    let reused = cuts.join().unwrap();
    move_to(1);
    assert_eq!(world.unused(), 2 - usize::from(reused), "the slot is freed once");
    assert!(world.look(A).is_none());
    let there = world.look(B).map(|reader| world.table.leave(reader)).is_some();
    assert_eq!(there, reused, "what came after it stays");
}

/// Two look at a page at two lanes while it is truncated.
fn seen_by_two<W: AtomicWord + 'static>(world: &Arc<World<W>>) {
    let looks = [0, 1].map(|cpu| {
        let theirs = world.clone();
        spawn(cpu, move || {
            if let Some(reader) = theirs.look(A) {
                theirs.look_twice(reader);
            }
        })
    });
    world.release(cut(world, false));
    looks.into_iter().for_each(|it| it.join().unwrap());
    assert_eq!(world.unused(), 2, "the slot is freed once");
    assert!(world.look(A).is_none());
}

/// Explores a model with this word. `bug` is what is planted, if anything.
fn run<W: AtomicWord + 'static>(model: &str, bug: &str) {
    let (name, forgets) = (format!("cut, {model}, {bug}"), bug == "freed at once");
    let (word, lane) = (|| World::<W>::new(true), || World::<W>::spread(true));
    match model {
        "pin" => explore(&name, Some(4), move || pinned(&word(), forgets)),
        "pin by a lane" => explore(&name, Some(3), move || pinned(&lane(), forgets)),
        "look" => explore(&name, Some(3), move || looked_for(&word())),
        "look by a lane" => explore(&name, bound(2, Some(3)), move || looked_for(&lane())),
        "two by lanes" => explore(&name, bound(1, Some(2)), move || seen_by_two(&lane())),
        other => panic!("no model is called {other}"),
    }
}

/// Runs a planted bug: `MODEL, BUG`.
pub(crate) fn planted(what: &str) {
    let (model, bug) = what.split_once(", ").expect("a model and a bug");
    match bug {
        "freed at once" => run::<Word>(model, bug),
        "torn" => run::<Torn>(model, bug),
        "readers not asked for" => run::<Unasked>(model, bug),
        "key not looked at again" => run::<Recalls<KEY>>(model, bug),
        "word not looked at on coming" => run::<Recalls<COMING>>(model, bug),
        "word not looked at on leaving" => run::<Recalls<LEAVING>>(model, bug),
        "lanes asked by a load" => run::<Loaded>(model, bug),
        "lanes asked once" => run::<Once>(model, bug),
        "claimed after the lanes were asked" => run::<Unflagged>(model, bug),
        "stays claimed" => run::<Stays>(model, bug),
        "coming orders nothing" => run::<Weak<COMES>>(model, bug),
        "leaving orders nothing" => run::<Weak<LEAVES>>(model, bug),
        "taking orders nothing" => run::<Weak<TAKES>>(model, bug),
        "asking orders nothing" => run::<Weak<ASKS>>(model, bug),
        other => panic!("no bug is called {other}"),
    }
}

/// Plants bugs in a model.
fn finds_in(model: &str, bugs: &[&str]) {
    let bugs: Vec<String> = bugs.iter().map(|bug| format!("cut, {model}, {bug}")).collect();
    finds(&bugs.iter().map(String::as_str).collect::<Vec<_>>());
}

const NONE: &str = "nothing planted";

#[test]
fn a_pin_against_a_truncation() {
    run::<Word>("pin", NONE);
    run::<Word>("pin by a lane", NONE);
}

#[test]
fn a_look_against_a_truncation() {
    run::<Word>("look", NONE);
    run::<Word>("look by a lane", NONE);
}

#[test]
fn looks_by_two_lanes_against_a_truncation() {
    run::<Word>("two by lanes", NONE);
}

/// What a reader at the word and one at a lane have in common.
const OF_BOTH: [&str; 3] = ["torn", "readers not asked for", "leaving orders nothing"];
const OF_LANES: [&str; 8] = [
    "lanes asked by a load",
    "lanes asked once",
    "claimed after the lanes were asked",
    "stays claimed",
    "word not looked at on coming",
    "word not looked at on leaving",
    "coming orders nothing",
    "asking orders nothing",
];
/// What shows when the slot is another page's.
const OF_LOOKS: [&str; 2] = ["key not looked at again", "taking orders nothing"];

#[test]
fn canaries_of_a_pin_against_a_truncation() {
    finds_in("pin", &OF_BOTH);
    finds_in("pin", &["freed at once", "taking orders nothing"]);
    finds_in("pin by a lane", &OF_BOTH);
    finds_in("pin by a lane", &OF_LANES);
    finds_in("pin by a lane", &["freed at once"]);
}

#[test]
fn canaries_of_a_look_against_a_truncation() {
    finds_in("look", &OF_BOTH);
    finds_in("look", &OF_LOOKS);
    finds_in("look", &["coming orders nothing"]);
    finds_in("look by a lane", &OF_BOTH);
    finds_in("look by a lane", &OF_LANES);
    finds_in("look by a lane", &OF_LOOKS);
}

#[test]
fn canaries_of_looks_by_two_lanes_against_a_truncation() {
    finds_in("two by lanes", &OF_BOTH[1..]);
    finds_in("two by lanes", &OF_LANES);
}
