//! Planted bugs: each must be found within a number of runs, by the same seeds that find nothing on
//! sound parts; and what cannot go on must be told apart.

use crate::host::{Parts, Sound, Watched};
use crate::run::{Failure, run};
use crate::swarm::Swarm;
use std::cell::RefCell;
use std::panic::catch_unwind;
use std::sync::atomic::Ordering::{self, Relaxed};
use zonal::platform::shared_slot::{Guarded, SharedSlot};
use zonal::platform::{AtomicWord, Lock, Platform};
use zonal::policy::Policy;
use zonal::preset::Linux416;
use zonal_sim::explore::{ExploreError, Options, current, explore, stopped, yield_now};
use zonal_sim::lock::SimLock;
use zonal_sim::platform::{Sim, SimWord};
use zonal_testkit::canary::Lazybones;
use zonal_testkit::preset::TinyZonal;
use zonal_testkit::shape::Shape;

/// Index of `TinyZonal` in the table of presets.
const TINY: usize = 7;

/// Planted bug: a compare-exchange that is not atomic. A load, then a store: another CPU may go on in between.
#[derive(Debug)]
struct Torn(SimWord);

impl AtomicWord for Torn {
    fn new(value: u64) -> Self {
        Self(SimWord::new(value))
    }
    fn compare_exchange(
        &self,
        current: u64,
        new: u64,
        _: Ordering,
        _: Ordering,
    ) -> Result<u64, u64> {
        let there = self.0.load(Relaxed);
        if there != current {
            return Err(there);
        }
        self.0.store(new, Relaxed);
        Ok(there)
    }
    zonal::forward_atomic!(u64, 0: load store fetch_add fetch_or fetch_and swap);
}

/// Planted bug: a lock that lets everybody in. Two at once are noticed by the cell in it.
#[derive(Debug)]
struct Open<T>(RefCell<T>);

impl<T> Lock<T> for Open<T> {
    fn new(value: T) -> Self {
        Self(RefCell::new(value))
    }
    fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        f(&mut self.0.borrow_mut())
    }
    fn try_with<R>(&self, f: impl FnOnce(&mut T) -> R) -> Option<R> {
        Some(f(&mut self.0.borrow_mut()))
    }
    fn get_mut(&mut self) -> &mut T {
        self.0.get_mut()
    }
}

zonal::preset! {
    /// [`TinyZonal`] with that walk.
    OneZone = "OneZone", over TinyZonal { Walk = Lazybones }
}

/// Sound parts, but for one.
macro_rules! broken_parts {
    ($name:ident, $word:ty, $lock:ident) => {
        struct $name;
        impl Parts for $name {
            type Word = $word;
            type Lock<T: Send> = Watched<$lock<T>, 0>;
            type Slot<T: Send> = SharedSlot<T, Watched<SimLock<Guarded<T>>, 1>>;
        }
    };
}

broken_parts!(TornWords, Torn, SimLock);
broken_parts!(OpenLocks, SimWord, Open);

/// A bug in the parts `K` or in the preset `B` is found by one of the first `runs` seeds, again by
/// that seed, and not by it on sound parts and the preset `S`.
fn found_within<K: Parts, B: Policy, S: Policy>(runs: u64, swarm: fn(u64) -> Swarm) -> Failure {
    let fails = |seed| run::<K, B>(&swarm(seed), false).err();
    let found = (0..runs).find_map(|seed| Some((seed, fails(seed)?)));
    let Some((seed, failure)) = found else { panic!("not found by {runs} runs") };
    println!("found by run {}: {}", seed + 1, failure.violation);
    let again = fails(seed).expect("the seed finds it again");
    assert_eq!(again.violation, failure.violation);
    run::<Sound, S>(&swarm(seed), false).expect("nothing is wrong without the bug");
    failure
}

/// A run on `TinyZonal`: small stacks that change hands often.
fn tiny(seed: u64) -> Swarm {
    Swarm { preset: TINY, ..Swarm::new(seed) }
}

#[test]
fn a_torn_compare_exchange_is_found() {
    found_within::<TornWords, TinyZonal, TinyZonal>(100, tiny);
}

#[test]
fn a_lock_that_lets_two_in_is_found() {
    // A map takes no lock to allocate.
    found_within::<OpenLocks, Linux416, Linux416>(20, tiny);
}

/// A policy that looks no further than the first zone: single frames are refused that could be
/// had (I-6).
#[test]
fn a_zone_that_is_overlooked_is_found() {
    let failure = found_within::<Sound, OneZone, TinyZonal>(100, |seed| Swarm {
        preset: TINY,
        shape: Shape::TwoNodes,
        ..Swarm::single_frames(seed)
    });
    assert_eq!(failure.violation.rule, "I-6", "{failure}");
}

/// Two locks, taken in opposite orders.
#[test]
fn a_deadlock_is_found() {
    let found = (0..50).find(|&seed| {
        let locks = [(); 2].map(|()| <SimLock<u32> as Lock<u32>>::new(0));
        let word = SimWord::new(0);
        let both = |first: usize| {
            let (locks, word) = (&locks, &word);
            move || {
                locks[first].with(|_| {
                    word.fetch_add(1, Relaxed);
                    locks[1 - first].with(|value| *value += 1);
                });
            }
        };
        let explored =
            explore(Options::from_seed(seed), vec![Box::new(both(0)), Box::new(both(1))]);
        match explored {
            Ok(_) => {
                assert!(locks.iter().all(|lock| lock.with(|value| *value) == 1));
                false
            }
            Err(error) => {
                assert_eq!(error, ExploreError::Deadlock { waiting: vec![0, 1] });
                true
            }
        }
    });
    assert!(found.is_some(), "some schedule takes both first locks first");
}

/// A CPU waits in a loop for what no other does.
#[test]
fn a_wait_without_end_is_found() {
    let word = SimWord::new(0);
    let waits = || {
        while word.load(Relaxed) == 0 {
            Sim::relax();
        }
    };
    let options = Options { accesses: 1000, ..Options::from_seed(3) };
    let error = explore(options, vec![Box::new(waits), Box::new(|| ())]).unwrap_err();
    assert_eq!(error, ExploreError::Endless { running: vec![0], accesses: 2000 });
    // One that looks whether it should stop comes to its end.
    let looks = || while word.load(Relaxed) == 0 && !stopped() {};
    assert!(explore(options, vec![Box::new(looks), Box::new(|| ())]).is_ok());
}

/// A panic ends the run, with its text; the others are asked to stop, and locks are let go.
#[test]
fn a_panic_is_passed_on() {
    for seed in 0..20 {
        let (lock, word) = (<SimLock<u32> as Lock<u32>>::new(0), SimWord::new(0));
        let panics = || lock.with(|_| assert!(word.load(Relaxed) > 1, "no other CPU was here"));
        let stops = || {
            while !stopped() {
                lock.with(|value| *value += 1);
                yield_now();
            }
        };
        let options = Options::from_seed(seed);
        let error = explore(options, vec![Box::new(panics), Box::new(stops)]).unwrap_err();
        assert_eq!(error, ExploreError::Panicked { message: "no other CPU was here".into() });
        lock.try_with(|_| ()).expect("no CPU holds the lock");
    }
}

/// A thread has one machine: another is refused, and the one that runs goes on.
#[test]
fn a_run_within_a_run_is_refused() {
    let word = SimWord::new(0);
    let nests = || {
        let inner = || explore(Options::from_seed(2), vec![Box::new(|| ())]);
        assert!(catch_unwind(inner).is_err(), "there is a machine already");
        assert_eq!(current(), Some(0), "it is still there");
        word.fetch_add(1, Relaxed);
    };
    let adds = || _ = word.fetch_add(1, Relaxed);
    explore(Options::from_seed(1), vec![Box::new(nests), Box::new(adds)]).expect("it goes on");
    assert_eq!(word.load(Relaxed), 2);
}

#[test]
fn as_many_cpus_as_there_are() {
    let none = explore(Options::from_seed(1), vec![]).unwrap_err();
    assert_eq!(none, ExploreError::Cpus { asked: 0 });
    assert!(none.to_string().contains("1 to 8"), "{none}");
    let bodies = |count| (0..count).map(|_| Box::new(|| ()) as _).collect();
    let many = explore(Options::from_seed(1), bodies(9)).unwrap_err();
    assert_eq!(many, ExploreError::Cpus { asked: 9 });
    assert!(explore(Options::from_seed(1), bodies(8)).is_ok());
    assert_eq!(current(), None, "no run, no CPU");
}
