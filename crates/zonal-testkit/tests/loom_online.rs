//! Models of memory that comes and goes while others allocate and free: online and offline of a
//! pageblock on one CPU, requests and frees on the other, over a map and over lists. In every run each
//! frame ends in one place, none that is held has gone, and what came can be had.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test --release -p zonal-testkit --test models_of_maps loom_online -- --nocapture
//! ```

use crate::loom_broken_torn::Torn;
use crate::loom_world::{World, spawn_with_room_on};
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use zonal::pcp::Stacks;
use zonal::platform::AtomicWord;
use zonal::policy::Policy;
use zonal::policy::dirty::Unlimited;
use zonal::preset::{Linux416, Zonal};
use zonal::{Order, Pfn};
use zonal_testkit::loom_platform::{
    LoomPlatform, Newest, alone, bound, explore, later_plan, with_room,
};

zonal::preset! {
    /// The default preset with stacks of one frame and no dirty limits.
    Mapped = "Mapped", over Zonal { Pcp = Stacks<1, 4>, Dirty = Unlimited }
}

/// Frames that are there from the start, and those that come: a pageblock each.
const NOW: u64 = 8;
const LATER: Range<Pfn> = Pfn::new(NOW)..Pfn::new(2 * NOW);

const PAIR: Order = match Order::new(1) {
    Some(order) => order,
    None => Order::ZERO,
};
const PAGEBLOCK: Order = match Order::new(3) {
    Some(order) => order,
    None => Order::ZERO,
};

type Model<W, S> = World<LoomPlatform<W>, S>;

/// All is online.
fn online<W: AtomicWord + 'static, S: Policy>() -> Rc<Model<W, S>> {
    Model::with(later_plan(NOW, NOW, 2), |allocator| {
        assert!(allocator.online(LATER).is_ok_and(|onlined| onlined.frames == NOW));
    })
}

/// The same, and then the later part is gone.
fn offline<W: AtomicWord + 'static, S: Policy>() -> Rc<Model<W, S>> {
    let world = online();
    assert_eq!(world.allocator().offline(LATER), Ok(()));
    assert_eq!((world.zone().managed, world.zone().free), (NOW, NOW));
    world
}

/// All that was taken has been given back: brings what is not there, and looks at every frame.
fn finish<W: AtomicWord, S: Policy>(world: &Model<W, S>) {
    let managed = world.zone().managed;
    if managed == NOW {
        assert!(world.allocator().online(LATER).is_ok());
    }
    world.finish();
    assert_eq!(world.zone().managed, 2 * NOW);
    let zone = world.zone();
    assert_eq!((zone.counted_free, zone.isolated), (zone.free, 0), "I-2: what watermarks see");
}

/// [`explore`] with room on the stack for online and offline.
fn model(name: &str, bound: Option<usize>, body: impl Fn() + Clone + Send + Sync + 'static) {
    explore(name, bound, move || with_room(body.clone()));
}

/// In how many runs something happened, and in how many not: a model in which the order of things
/// is always the same shows nothing.
#[derive(Clone, Default)]
struct Seen(Arc<[AtomicUsize; 2]>);

impl Seen {
    fn note(&self, happened: bool) {
        self.0[usize::from(happened)].fetch_add(1, Relaxed);
    }
    fn both(&self) {
        let [not, yes] = [0, 1].map(|at| self.0[at].load(Relaxed));
        println!("    in {yes} runs, not in {not}");
        assert!(yes > 0 && not > 0, "the model has one side only");
    }
}

/// All that there is is taken, and a request is made while memory comes.
fn a_request_beside_online<S: Policy>(bound: usize) {
    let seen = Seen::default();
    let note = seen.clone();
    model("a request beside online", Some(bound), move || {
        let world: Rc<Model<Newest, S>> = offline();
        let held = world.take_block(PAGEBLOCK).expect("it is there");
        let other = spawn_with_room_on(&world, 1, |world| {
            assert!(world.allocator().online(LATER).is_ok());
        });
        let early = world.take();
        note.note(early.is_some());
        other.join().unwrap();
        alone();
        let late = world.take().expect("I-6: it has come");
        early.into_iter().chain([late]).for_each(|pfn| {
            assert!(LATER.contains(&pfn), "{pfn} was held");
            world.give(pfn);
        });
        world.give_block(held, PAGEBLOCK);
        finish(&world);
    });
    seen.both();
}

/// A frame of the memory that goes is freed, and one is taken, which may be of it.
fn beside_offline<W: AtomicWord + 'static, S: Policy>(
    name: &str,
    bound: Option<usize>,
    order: Order,
) -> Seen {
    let seen = Seen::default();
    let note = seen.clone();
    model(name, bound, move || {
        let world: Rc<Model<W, S>> = online();
        let first = world.take_block(PAGEBLOCK).expect("one is free");
        let held = world.take_block(order).expect("one is free");
        assert!(LATER.contains(&held), "the model is about what goes");
        let other = spawn_with_room_on(&world, 1, |world| world.allocator().offline(LATER).is_ok());
        world.give_block(held, order);
        let taken = world.take_block(order);
        let gone = other.join().unwrap();
        alone();
        note.note(gone);
        assert_eq!(world.zone().managed, if gone { NOW } else { 2 * NOW });
        if let Some(pfn) = taken {
            assert!(!gone || !LATER.contains(&pfn), "{pfn} is held, and has gone");
            world.give_block(pfn, order);
        }
        world.give_block(first, PAGEBLOCK);
        finish(&world);
    });
    seen
}

/// At most 2 preemptions: 800 runs, 1 s.
#[test]
fn a_request_beside_online_of_a_map() {
    a_request_beside_online::<Mapped>(2);
}

/// At most 2 preemptions: 900 runs, 0.5 s.
#[test]
fn a_request_beside_online_of_lists() {
    a_request_beside_online::<Linux416>(2);
}

/// At most 2 preemptions, in a preflight at most 1: 2 900 runs, 2 s.
#[test]
fn frames_beside_offline_of_a_map() {
    beside_offline::<Newest, Mapped>("frames, map", bound(1, Some(2)), Order::ZERO).both();
}

/// At most 2 preemptions, in a preflight at most 1: 3 000 runs, 1 s.
#[test]
fn pairs_beside_offline_of_a_map() {
    beside_offline::<Newest, Mapped>("pairs, map", bound(1, Some(2)), PAIR).both();
}

/// At most 1 preemption: 30 runs; with 2 it does not end in minutes.
#[test]
fn frames_beside_offline_of_lists() {
    beside_offline::<Newest, Linux416>("frames, lists", Some(1), Order::ZERO).both();
}

/// At most 1 preemption: 12 runs; with 2 it does not end in minutes.
#[test]
fn pairs_beside_offline_of_lists() {
    beside_offline::<Newest, Linux416>("pairs, lists", Some(1), PAIR).both();
}

/// Canary: [`beside_offline`] where an update of a map's word is a load and a store.
#[test]
#[should_panic(expected = "I-1: places of each frame")]
fn canary_torn_words() {
    beside_offline::<Torn, Mapped>("pairs, torn words", bound(1, Some(2)), PAIR);
}

/// A frame is freed, and freed again while its memory goes: the second is refused, and is not taken for a
/// free of one of the frames that `offline` has in hand, as it once was.
///
/// At most 2 preemptions: 600 runs, 1 s.
#[test]
fn a_second_free_beside_offline() {
    model("freed again", Some(2), || {
        let world: Rc<Model<Newest, Mapped>> = online();
        let first = world.take_block(PAGEBLOCK).expect("one is free");
        let held = world.take().expect("one is free");
        world.give(held);
        let other = spawn_with_room_on(&world, 1, |world| world.allocator().offline(LATER).is_ok());
        let again = world.allocator().free_raw(held, Order::ZERO);
        assert!(again.is_err(), "it is freed already");
        assert!(other.join().unwrap(), "nothing was in the way");
        alone();
        world.give_block(first, PAGEBLOCK);
        finish(&world);
    });
}

/// One part is asked for by two at once: one of them brings it, whatever the other is told.
fn twice<W: AtomicWord + 'static>() {
    model("online twice", None, || {
        let world: Rc<Model<W, Mapped>> = offline();
        let other = spawn_with_room_on(&world, 1, |world| world.allocator().online(LATER).is_ok());
        let mine = world.allocator().online(LATER).is_ok();
        assert!(mine != other.join().unwrap(), "both have brought it, or neither");
        finish(&world);
    });
}

/// All orders: 14 runs.
#[test]
fn one_of_two_brings_it() {
    twice::<Newest>();
}

/// Canary: the right to change sizes is looked at, then taken.
#[test]
#[should_panic(expected = "both have brought it, or neither")]
fn canary_two_change_sizes() {
    twice::<Torn>();
}
