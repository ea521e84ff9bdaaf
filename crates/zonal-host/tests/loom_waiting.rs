//! Models of what waits in this crate: the park lock, the gate of give-backs, the compactor's alarm, its
//! start and its stop. The shipped files are part of this program, with loom's primitives in the place of
//! `parking_lot`'s and the standard library's (`loom_waiting/waiting.rs`), in which bugs are planted.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test --release -p zonal-host --test loom_waiting -- --nocapture
//! ```
//!
//! A ring that is lost is a deadlock, which loom reports.
#![cfg(loom)]

#[path = "../src/alarm.rs"]
mod alarm;
#[path = "../src/birth.rs"]
mod birth;
#[expect(dead_code, unreachable_pub, reason = "public in the crate that it is a part of")]
#[path = "../src/compactor.rs"]
mod compactor;
#[path = "../src/gate.rs"]
mod gate;
mod loom_explore;
#[expect(unreachable_pub, reason = "public in the crate that it is a part of")]
#[path = "../src/park_lock.rs"]
mod park_lock;
#[path = "loom_waiting/waiting.rs"]
mod waiting;

use alarm::{Alarm, Call};
use compactor::{Compactor, Settings, StartError};
use gate::Gate;
use loom::cell::UnsafeCell;
use loom::sync::atomic::AtomicBool as Block;
use loom::thread;
use loom_explore::explore;
use park_lock::ParkLock;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex as StdMutex};
use waiting::{Plant, be, plant, planted, provide};
use zonal::Order;
use zonal::compact::CompactOutcome;
use zonal::platform::Lock;

/// Two threads count in a lock, a third where it finds it free.
fn counts(bug: Plant) {
    explore("park lock", Some(3), move || {
        let lock = Arc::new(ParkLock::new(UnsafeCell::new(0_u32)));
        // SAFETY: the lock is held; loom says so if it is not.
        let add = |n: &mut UnsafeCell<u32>| n.with_mut(|n| unsafe { *n += 1 });
        let [theirs, tries] = [lock.clone(), lock.clone()];
        let other = thread::spawn(move || {
            plant(bug);
            theirs.with(add);
        });
        let trier = thread::spawn(move || tries.try_with(add).is_some());
        lock.with(add);
        other.join().unwrap();
        let added = 2 + u32::from(trier.join().unwrap());
        // SAFETY: the other threads have ended.
        assert_eq!(lock.with(|n| n.with(|n| unsafe { *n })), added);
    });
}

/// At most 3 preemptions: 270 runs.
#[test]
fn the_park_lock_excludes() {
    counts(Plant::Nothing);
}

/// Canary: a lock that is left without a release.
#[test]
#[should_panic(expected = "Causality violation")]
fn canary_a_lock_without_release() {
    counts(Plant::NoRelease);
}

const WORDS_OF_A_GATE: usize = 4;

/// A give-back holds the one block that is free, `times` times in a row, while a request wants it.
fn held_for_a_moment(times: usize, bug: Plant) {
    explore("gate", None, move || {
        provide(WORDS_OF_A_GATE);
        let gate = Arc::new(Gate::new());
        gate.ready();
        let block = Arc::new(Block::new(true));
        let (theirs, held) = (gate.clone(), block.clone());
        let giver = thread::spawn(move || {
            be(2);
            for _ in 0..times {
                theirs.hold(|| {
                    if held.swap(false, Ordering::SeqCst) {
                        theirs.hold(|| held.swap(true, Ordering::SeqCst));
                    }
                });
            }
        });
        plant(bug);
        let mut served = block.swap(false, Ordering::SeqCst);
        for attempt in 0..16 {
            if served || !gate.wait(attempt) {
                break;
            }
            served = block.swap(false, Ordering::SeqCst);
        }
        assert!(served, "refused, and the block is free but for a moment");
        plant(Plant::Nothing);
        giver.join().unwrap();
    });
}

/// All orders: 64 runs.
#[test]
fn a_request_waits_for_a_give_back() {
    held_for_a_moment(1, Plant::Nothing);
}

/// Found that a request that looked while the second held the block, and asked when it was done, was
/// refused.
///
/// All orders: 14 600 runs, 2 s.
#[test]
fn a_request_waits_for_one_give_back_after_the_other() {
    held_for_a_moment(2, Plant::Nothing);
}

/// Canary: the holder is not waited for.
#[test]
#[should_panic(expected = "refused, and the block is free but for a moment")]
fn canary_the_holder_is_not_waited_for() {
    held_for_a_moment(1, Plant::NoLock);
}

/// Two give-backs: one is inside at a time, and each recognises itself.
fn two_holders(numbers: [usize; 2]) {
    explore("two holders", Some(3), move || {
        provide(WORDS_OF_A_GATE);
        let gate = Arc::new(Gate::new());
        gate.ready();
        let inside = Arc::new(UnsafeCell::new(0_u32));
        let hold = move |gate: &Gate, inside: &UnsafeCell<u32>, number| {
            be(number);
            gate.hold(|| {
                // SAFETY: one is inside at a time; loom says so if not.
                gate.hold(|| inside.with_mut(|n| unsafe { *n += 1 }));
            });
        };
        let (theirs, same) = (gate.clone(), inside.clone());
        let other = thread::spawn(move || hold(&theirs, &same, numbers[1]));
        hold(&gate, &inside, numbers[0]);
        other.join().unwrap();
        // SAFETY: the other has ended.
        assert_eq!(inside.with(|n| unsafe { *n }), 2);
    });
}

/// At most 3 preemptions: 80 runs.
#[test]
fn give_backs_take_turns() {
    two_holders([1, 2]);
}

/// Canary: a thread takes another for itself.
#[test]
#[should_panic(expected = "Causality violation")]
fn canary_two_threads_with_one_number() {
    two_holders([1, 1]);
}

/// Two ring; who hears it goes on until it has heard the largest order.
fn rings(bug: Plant) {
    explore("alarm", Some(3), move || {
        let alarm = Arc::new(Alarm::default());
        assert!(alarm.attend());
        let ringers = [Order::ZERO, Order::HUGE].map(|order| {
            let alarm = alarm.clone();
            thread::spawn(move || {
                plant(bug);
                alarm.ring(order);
            })
        });
        while alarm.wait(None) != Call::For(Order::HUGE) {}
        for ringer in ringers {
            ringer.join().unwrap();
        }
        alarm.leave();
        assert!(alarm.attend(), "the place is free");
    });
}

/// At most 3 preemptions: 2 100 runs, 0.2 s.
#[test]
fn no_ring_is_lost() {
    rings(Plant::Nothing);
}

/// Canary: who rings does not pass through the lock.
#[test]
#[should_panic(expected = "deadlock")]
fn canary_a_bell_rung_before_it_is_heard() {
    rings(Plant::NoLock);
}

/// What a compactor compacts here.
#[derive(Debug)]
pub struct Arena<S = ()> {
    alarm: Arc<Alarm>,
    calls: AtomicUsize,
    /// Dropped in the next call, as a pager would.
    own: StdMutex<Option<Compactor<'static>>>,
    preset: PhantomData<fn() -> S>,
}

impl<S> Arena<S> {
    fn new() -> Arc<Self> {
        let (alarm, calls) = (Arc::default(), AtomicUsize::new(0));
        Arc::new(Self { alarm, calls, own: StdMutex::new(None), preset: PhantomData })
    }
    fn alarm(&self) -> Arc<Alarm> {
        self.alarm.clone()
    }
    const fn len(&self) -> usize {
        let Self { .. } = self;
        4096
    }
    const fn zone_count(&self) -> usize {
        let Self { .. } = self;
        1
    }
    fn compact_in_background(&self, order: Order) -> CompactOutcome {
        assert_eq!(order, Order::HUGE);
        self.calls.fetch_add(1, Ordering::Relaxed);
        if planted(Plant::LeavesEarly) {
            self.alarm.leave();
        }
        drop(self.own.lock().unwrap().take());
        CompactOutcome::Complete
    }
}

type Small = Arena<zonal::preset::Zonal>;
const NO_LOOKS: Settings = Settings { idle: None, order: Order::HUGE };

fn start(arena: &Arc<Small>) -> Result<Compactor<'static>, StartError> {
    Compactor::start(arena.clone(), NO_LOOKS)
}

/// It is started, woken by a request on another thread, and stopped at any moment.
fn started_and_stopped(bug: Plant) {
    explore("start and stop", Some(3), move || {
        let arena = Small::new();
        // The thread that it starts does the same wrong.
        plant(bug);
        let compactor = start(&arena).unwrap();
        plant(Plant::Nothing);
        let alarm = arena.alarm();
        let request = thread::spawn(move || alarm.ring(Order::HUGE));
        let done = compactor.stop();
        request.join().unwrap();
        let calls = arena.calls.load(Ordering::Relaxed) as u64;
        assert!(done.wakes >= calls && done.panics == 0, "{done:?} {calls}");
        let again = start(&arena).expect("the place is free once it has ended");
        drop(again);
    });
}

/// At most 3 preemptions: 5 600 runs, 0.6 s.
#[test]
fn a_compactor_starts_and_stops() {
    started_and_stopped(Plant::Nothing);
}

/// Canary: a compactor that ends keeps the place.
#[test]
#[should_panic(expected = "the place is free once it has ended")]
fn canary_a_place_that_is_not_left() {
    started_and_stopped(Plant::KeepsPlace);
}

/// Two want to start one: there are never two.
fn two_start(bug: Plant) {
    explore("two starts", Some(3), move || {
        let arena = Small::new();
        // From when one has started until it is told to stop.
        let running = Arc::new(AtomicUsize::new(0));
        let run = move |arena: &Arc<Small>, running: &AtomicUsize| {
            plant(bug);
            let Ok(compactor) = start(arena) else { return false };
            assert_eq!(running.fetch_add(1, Ordering::Relaxed), 0, "two at once");
            thread::yield_now();
            running.fetch_sub(1, Ordering::Relaxed);
            drop(compactor);
            true
        };
        let (theirs, same) = (arena.clone(), running.clone());
        let other = thread::spawn(move || run(&theirs, &same));
        let mine = run(&arena, &running);
        // The other may have come after this one had ended.
        assert!(other.join().unwrap() || mine, "one of them at least");
        plant(Plant::Nothing);
        assert!(start(&arena).is_ok(), "the place is free");
    });
}

/// At most 3 preemptions: 6 500 runs, 0.5 s.
#[test]
fn one_of_two_starts() {
    two_start(Plant::Nothing);
}

/// Canary: the place is looked at, and then taken.
#[test]
#[should_panic(expected = "two at once")]
fn canary_two_take_one_place() {
    two_start(Plant::LooksFirst);
}

/// It is dropped on its own thread; another can start when it has ended, and hears what is rung.
fn drops_itself(bug: Plant) -> [usize; 2] {
    let starts: Arc<[AtomicUsize; 2]> = Arc::default();
    let seen = starts.clone();
    explore("dropped by itself", Some(3), move || {
        let arena = Small::new();
        // The thread that it starts does the same wrong.
        plant(bug);
        let compactor = start(&arena).unwrap();
        plant(Plant::Nothing);
        *arena.own.lock().unwrap() = Some(compactor);
        arena.alarm().ring(Order::HUGE);
        let next = start(&arena);
        starts[usize::from(next.is_ok())].fetch_add(1, Ordering::Relaxed);
        match next {
            Ok(next) => {
                assert_eq!(arena.calls.load(Ordering::Relaxed), 1, "it was woken");
                next.wake(Order::HUGE);
                drop(next);
            }
            Err(error) => assert!(matches!(error, StartError::Running), "{error}"),
        }
    });
    [0, 1].map(|at| seen[at].load(Ordering::Relaxed))
}

/// At most 3 preemptions: 80 runs.
#[test]
fn dropped_by_itself() {
    let [refused, started] = drops_itself(Plant::Nothing);
    assert!(refused > 0 && started > 0, "{refused} {started}: the model has one side only");
}

/// Canary: it does not see that it would wait for itself.
#[test]
#[should_panic(expected = "deadlock")]
fn canary_one_that_waits_for_itself() {
    drops_itself(Plant::Mistaken);
}

/// Canary: its place is free while it still runs, and who starts takes its stop away.
#[test]
#[should_panic(expected = "deadlock")]
fn canary_a_place_that_is_left_too_soon() {
    drops_itself(Plant::LeavesEarly);
}
