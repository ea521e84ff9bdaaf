//! What one thread, or the machine's own scheduling, can show; the rest is in the models.

use super::*;
use crate::fence::FullFence;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Barrier;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

type Full<T> = BiasedSlot<T, FullFence>;

#[test]
fn ways_in_exclude_each_other() {
    let slot = Full::new(0_u32);
    slot.try_with(|_| {
        assert!(slot.try_with(|_| ()).is_none(), "locked");
    })
    .unwrap();
    let slots = [slot];
    let mut owner = Slot::own(&slots).unwrap();
    assert!(slots[0].try_with(|_| ()).is_none(), "owned");
    owner.with(0, |n| *n = 7).unwrap();
    assert_eq!(slots[0].with(|n| *n), 7);
    drop(owner);
    assert_eq!(slots[0].try_with(|n| *n), Some(7));
}

#[test]
fn owning_is_all_or_nothing() {
    let slots: Vec<Full<u8>> = (0..4).map(Full::new).collect();
    let last = Slot::own(&slots[3..]).unwrap();
    assert_eq!(Slot::own(&slots[..]).unwrap_err(), OwnError::Taken);
    assert!(slots[..3].iter().all(|slot| slot.try_with(|_| ()).is_some()), "nothing was kept");
    drop(last);
    assert!(Slot::own(&slots[..]).is_ok());
}

#[test]
fn a_panic_inside_leaves_the_slot_usable() {
    let slots = [Full::new(1_u8)];
    catch_unwind(AssertUnwindSafe(|| slots[0].try_with(|_| panic!("shared")))).unwrap_err();
    catch_unwind(AssertUnwindSafe(|| slots[0].with(|_| panic!("waiting")))).unwrap_err();
    let mut owner = Slot::own(&slots).unwrap();
    catch_unwind(AssertUnwindSafe(|| owner.with(0, |_| panic!("owner")))).unwrap_err();
    catch_unwind(AssertUnwindSafe(|| slots[0].with(|_| panic!("remote")))).unwrap_err();
    assert_eq!(owner.with(0, |n| *n), Some(1));
    assert_eq!(slots[0].with(|n| *n), 1);
    drop(owner);
    assert_eq!(slots[0].try_with(|n| *n), Some(1));
}

#[test]
fn an_index_outside_the_run_is_none() {
    let slots = [Full::new(1_u8)];
    let mut owner = Slot::own(&slots).unwrap();
    assert_eq!((owner.with(0, |n| *n), owner.with(1, |n| *n)), (Some(1), None));
}

#[test]
fn a_slot_has_its_own_cache_lines() {
    assert_eq!(align_of::<Full<u8>>(), 128);
    assert_eq!(size_of::<[Full<u8>; 2]>(), 256);
}

/// A fence that the kernel refuses.
struct NoFence;

// SAFETY: `heavy` never returns `Ok`.
unsafe impl Fence for NoFence {
    fn light() {}
    fn heavy() -> Result<(), Refused> {
        Err(Refused)
    }
    fn available() -> Result<(), &'static str> {
        Ok(())
    }
}

/// Who has waited for the owner and is inside is waited for, and not taken for one who waits still.
#[test]
fn one_that_was_stuck_is_waited_for() {
    let slots = [BiasedSlot::<u8, NoFence>::new(0)];
    let (inside, gave_up) = (Barrier::new(2), AtomicBool::new(false));
    thread::scope(|scope| {
        let mut owner = Slot::own(&slots).unwrap();
        let stuck = scope.spawn(|| {
            slots[0].with(|_| {
                inside.wait();
                // As long as many times all looks.
                let end = Instant::now() + Duration::from_millis(100);
                while Instant::now() < end && !gave_up.load(Ordering::Relaxed) {
                    thread::yield_now();
                }
                gave_up.load(Ordering::Relaxed)
            })
        });
        scope.spawn(move || {
            // Until the other has come and gone.
            while !stuck.is_finished() {
                owner.with(0, |_| ()).unwrap();
                thread::yield_now();
            }
            assert!(!stuck.join().unwrap(), "beside one that was inside");
        });
        inside.wait();
        let _reached = slots[0].reach(|_| ());
        gave_up.store(true, Ordering::Relaxed);
    });
}

/// Two counters that only exclusive access keeps equal.
type Pair = (u64, u64);

fn bump(pair: &mut Pair) {
    pair.0 += 1;
    assert_eq!(pair.0, pair.1 + 1, "another thread is inside");
    pair.1 += 1;
}

/// An owner that comes and goes in turns, a try-locker and a drain, all on one slot.
fn hammer<F: Fence>() {
    const ROUNDS: u64 = 2_000;
    const HOLDS: u64 = 50;
    let slots = [BiasedSlot::<Pair, F>::new((0, 0))];
    let start = Barrier::new(3);
    let tried = thread::scope(|scope| {
        scope.spawn(|| {
            start.wait();
            for _ in 0..ROUNDS {
                let mut owner = Slot::own(&slots).unwrap();
                (0..HOLDS).for_each(|_| owner.with(0, bump).unwrap());
            }
        });
        scope.spawn(|| {
            start.wait();
            (0..ROUNDS).for_each(|_| slots[0].with(bump));
        });
        start.wait();
        (0..ROUNDS * HOLDS).filter(|_| slots[0].try_with(bump).is_some()).count() as u64
    });
    let total = ROUNDS * HOLDS + ROUNDS + tried;
    assert_eq!(slots[0].with(|pair| *pair), (total, total));
}

#[test]
fn threads_do_not_meet_inside_with_full_fences() {
    hammer::<FullFence>();
}

#[test]
fn threads_do_not_meet_inside_with_membarrier() {
    match Membarrier::available() {
        Ok(()) => hammer::<Membarrier>(),
        Err(why) => {
            let slots = [BiasedSlot::<Pair>::new((0, 0))];
            assert_eq!(Slot::own(&slots).unwrap_err(), OwnError::Unsupported(why));
        }
    }
}

/// Owners need not be contended to go: a handle per thread, moved between threads.
#[test]
fn an_owner_may_move_to_another_thread() {
    let slots = [Full::new((0, 0)), Full::new((0, 0))];
    let mut owner = Slot::own(&slots).unwrap();
    owner.with(1, bump).unwrap();
    thread::scope(|scope| {
        scope.spawn(move || owner.with(1, bump));
    });
    assert_eq!(slots[1].try_with(|pair| *pair), Some((2, 2)), "dropped over there");
}
