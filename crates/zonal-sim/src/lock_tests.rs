//! Locks under clocks: their order, and what waiting for them is put down to.

use super::*;
use crate::coroutine::{Body, run_all};
use crate::machine;
use crate::outcome::{LockProfile, Spin};
use crate::platform::Sim;
use crate::profile::Phase;
use crate::run::SimError;
use crate::schedule::Schedule;
use crate::slot::SimSlot;
use crate::space::{Home, Layout};
use crate::task::{during, spend};
use zonal::platform::{Lock, Platform, Slot};

/// What was measured, and when each CPU ended, in cycles.
struct Seen {
    locks: Vec<LockProfile>,
    spins: Vec<Spin>,
    ends: Vec<u64>,
}

/// Runs bodies on a machine whose clocks decide.
fn on_clocks(bodies: Vec<Body<'_>>) -> Result<Seen, SimError> {
    let machine = machine::builtin("desktop_8cpu_4g").expect("it is built in");
    let _installed =
        engine::install(Engine::new(&machine, bodies.len() as u32, Schedule::by_clock()));
    run_all(bodies, |_| ())?;
    let seen = engine::with(|engine| Seen {
        locks: engine.measured.locks(),
        spins: engine.measured.spins(),
        ends: engine.cpus.iter().map(|cpu| cpu.clock.cycles()).collect(),
    });
    Ok(seen.expect("a machine is on this thread"))
}

fn work(cycles: u64) {
    spend(Ticks(cycles * Ticks::PER_CYCLE));
}

fn now() -> u64 {
    engine::with_cpu(|engine, cpu| engine.clock(cpu).cycles()).expect("on a virtual CPU")
}

fn lock() -> SimLock<Vec<u32>> {
    SimLock::new(Vec::new())
}

/// The order of arrival is not that of the CPUs' numbers, and each waits for those before it.
#[test]
fn had_in_the_order_of_arrival() {
    let lock = lock();
    let body = |cpu: u32| -> Body<'_> {
        let lock = &lock;
        Box::new(move || {
            work(u64::from(4 - cpu) * 1000);
            lock.with(|order| {
                order.push(cpu);
                work(20_000);
            });
        })
    };
    let seen = on_clocks((0..4).map(body).collect()).unwrap();
    lock.with(|order| assert_eq!(*order, [3, 2, 1, 0]));
    let [profile] = &seen.locks[..] else { panic!("one lock: {:?}", seen.locks) };
    assert_eq!((profile.class, profile.taken, profile.contended), ("other", 4, 3));
    // All clocks run at the same speed here, whatever it is.
    let slow = seen.ends[0] as f64 / (4.0 * 20_000.0 + 1000.0);
    let holds = 20_000.0 * slow;
    // The second waits for one hold less what it came later, the third for two, ...
    let waited = 6.0 * (holds - 1000.0 * slow);
    assert!((profile.held as f64 / (4.0 * holds) - 1.0).abs() < 0.02, "{profile:?}");
    assert!((profile.waited as f64 / waited - 1.0).abs() < 0.02, "{profile:?}, not {waited}");
    assert_eq!(profile.transferred, 0, "no line of it is known here: {profile:?}");
    let spun: u64 = seen.spins.iter().map(|spin| spin.cycles).sum();
    assert_eq!(spun, profile.waited);
}

/// What a lock's lines took on their way does not count the instructions around them, nor hits in the core's
/// own cache.
#[test]
fn lines_that_stay_are_not_transferred() {
    let machine = machine::builtin("desktop_8cpu_4g").expect("it is built in");
    let transferred = |cpus: u32, holds: u32| {
        let locks = [lock()];
        let mut engine = Engine::new(&machine, cpus, Schedule::by_clock());
        engine.register("zone", &locks, Layout::Packed, Home::Local);
        let _installed = engine::install(engine);
        let body = |_| -> Body<'_> {
            Box::new(|| (0..holds).for_each(|_| locks[0].with(|order| order.push(0))))
        };
        run_all((0..cpus).map(body).collect(), |_| ()).expect("they end");
        engine::with(|engine| engine.measured.locks().remove(0).transferred).expect("it is there")
    };
    let first = transferred(1, 1);
    assert!(first > 0, "its lines come from memory");
    assert_eq!(transferred(1, 100), first, "and stay");
    assert!(transferred(2, 100) > 2 * first, "they go to and fro");
}

/// A holder who lets others go on keeps the lock; they queue, and none comes before another.
#[test]
fn a_queue_behind_a_holder_who_waits() {
    let lock = lock();
    let holder = || {
        lock.with(|order| {
            order.push(0);
            (0..100).for_each(|_| Sim::relax());
            assert_eq!(*order, [0], "no other CPU comes in meanwhile");
        });
    };
    let waiter = |cpu: u32, after: u64| -> Body<'_> {
        let lock = &lock;
        Box::new(move || {
            work(after);
            lock.with(|order| order.push(cpu));
        })
    };
    let seen = on_clocks(vec![Box::new(holder), waiter(1, 900), waiter(2, 300)]).unwrap();
    lock.with(|order| assert_eq!(*order, [0, 2, 1]));
    assert_eq!((seen.locks[0].taken, seen.locks[0].contended), (3, 2));
    assert!(seen.locks[0].waited > 6000, "two for nearly 5000 each: {:?}", seen.locks[0]);
}

#[test]
fn a_cpu_alone_does_not_wait() {
    let lock = lock();
    let seen = on_clocks(vec![Box::new(|| (0..10).for_each(|n| lock.with(|all| all.push(n))))]);
    let seen = seen.unwrap();
    assert_eq!((seen.locks[0].taken, seen.locks[0].contended, seen.locks[0].waited), (10, 0, 0));
    assert!(seen.spins.is_empty(), "{:?}", seen.spins);
    assert!(seen.locks[0].held > 0 && seen.ends[0] > seen.locks[0].held);
}

/// A CPU that only tries finds the lock taken as long as its holder is in it, by the clock.
#[test]
fn a_try_goes_by_the_clock() {
    let lock = lock();
    let tries = |at: u64, expected: bool| -> Body<'_> {
        let lock = &lock;
        Box::new(move || {
            work(at);
            assert_eq!(lock.try_with(|_| ()).is_some(), expected, "at {at}");
        })
    };
    let holder = || lock.with(|_| work(10_000));
    on_clocks(vec![Box::new(holder), tries(3000, false), tries(30_000, true)]).unwrap();
}

#[test]
fn waiting_is_put_down_to_what_the_cpu_does() {
    let lock = lock();
    let holds = |phase, after| -> Body<'_> {
        let lock = &lock;
        Box::new(move || {
            work(after);
            during(phase, 0, 0, || lock.with(|_| work(5000)));
        })
    };
    let seen = on_clocks(vec![holds(Phase::Alloc, 0), holds(Phase::Free, 500)]).unwrap();
    let [spin] = &seen.spins[..] else { panic!("{:?}", seen.spins) };
    assert_eq!((spin.lock, spin.during), ("other", "free"));
    assert_eq!(spin.cycles, seen.locks[0].waited);
}

/// Slots have no price, but only one is inside; a owned one is its owner's, and a drain's.
#[test]
fn one_in_a_slot() {
    let slots = [<SimSlot<Vec<u32>> as Slot<_>>::new(Vec::new())];
    let inside = |cpu: u32, after: u64| -> Body<'_> {
        let slots = &slots;
        Box::new(move || {
            work(after);
            slots[0].with(|order| {
                order.push(cpu);
                Sim::relax();
                work(1000);
                order.push(cpu);
            });
        })
    };
    on_clocks(vec![inside(0, 500), inside(1, 0), inside(2, 900)]).unwrap();
    slots[0].with(|order| {
        assert!(order.len() == 6 && order.chunks(2).all(|pair| pair[0] == pair[1]), "{order:?}");
    });
    let owner = Slot::own(&slots).expect("no CPU has it");
    assert!(slots[0].try_with(|_| ()).is_none() && Slot::own(&slots).is_err());
    drop(owner);
    assert!(slots[0].try_with(|_| ()).is_some());
}

#[test]
fn a_deadlock_says_when() {
    let locks = [lock(), lock()];
    let both = |first: usize| -> Body<'_> {
        let locks = &locks;
        Box::new(move || {
            locks[first].with(|_| {
                work(1000);
                Sim::relax();
                locks[1 - first].with(|_| ());
            });
        })
    };
    let error = on_clocks(vec![both(0), both(1)]).err().expect("each has what the other wants");
    let SimError::Deadlock { cycle } = error else { panic!("{error}") };
    assert!((900..20_000).contains(&cycle), "{cycle}");
    // Their stacks are unwound, the locks free.
    assert!(locks.iter().all(|lock| lock.try_with(|_| ()).is_some()));
}

/// A panic of one body ends the run at once; what others hold is let go.
#[test]
fn a_panic_unwinds_everybody() {
    let (lock, reached) = (lock(), Cell::new(false));
    let holder = || {
        lock.with(|_| {
            (0..100).for_each(|_| Sim::relax());
            reached.set(true);
        });
    };
    let panics = || {
        work(200);
        Sim::relax();
        assert!(now() == 0, "as planned");
    };
    let run = std::panic::AssertUnwindSafe(|| on_clocks(vec![Box::new(holder), Box::new(panics)]));
    assert!(std::panic::catch_unwind(run).is_err());
    assert!(!reached.get() && lock.try_with(|_| ()).is_some());
}
