//! Every interleaving of CPUs, and of handlers on them, at the lock: `cargo xtask loom`.
#![cfg(loom)]

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use zonal::map::PhysAddr;
use zonal::platform::{Lock, OwnError, OwnedSlots, Slot};
use zonal::{CpuId, NodeId};
use zonal_kernel::Machine;
use zonal_kernel::irq_lock::IrqLock;
use zonal_kernel::irq_slot::IrqSlot;

// Loom's threads are coroutines of one thread.
loom::thread_local! {
    static ON: Cell<bool> = Cell::new(true);
}

fn set(on: bool) -> bool {
    ON.with(|flag| flag.replace(on))
}

fn is_on() -> bool {
    ON.with(Cell::get)
}

/// A machine whose interrupts are a flag of the thread.
struct Modelled;

impl Machine for Modelled {
    fn cpu() -> CpuId {
        CpuId(0)
    }
    fn node(_: CpuId) -> NodeId {
        NodeId(0)
    }
    fn interrupts_off() -> bool {
        set(false)
    }
    fn interrupts_restore(were_on: bool) {
        assert!(!set(were_on), "let in inside a section");
    }
    fn address(_: PhysAddr) -> *mut u8 {
        unreachable!("no frames here")
    }
}

type Lock64 = IrqLock<u64, Modelled>;

#[test]
fn one_at_a_time_and_interrupts_as_before() {
    loom::model(|| {
        let lock = Arc::new(Lock64::new(0));
        let theirs = lock.clone();
        let other = thread::spawn(move || {
            theirs.with(|n| {
                assert!(!is_on());
                *n += 1;
            });
            assert!(is_on());
        });
        set(false);
        lock.with(|n| *n += 1);
        assert!(!is_on(), "they were off before");
        other.join().unwrap();
        assert_eq!(lock.with(|n| *n), 2);
    });
}

#[test]
fn a_try_waits_for_no_one() {
    loom::model(|| {
        let lock = Arc::new(Lock64::new(0));
        let theirs = lock.clone();
        let other = thread::spawn(move || {
            let got = theirs.try_with(|n| *n += 1).is_some();
            assert!(is_on());
            u64::from(got)
        });
        let own = u64::from(lock.try_with(|n| *n += 1).is_some());
        let done = own + other.join().unwrap();
        assert!(done >= 1, "one of them was first");
        assert_eq!(lock.with(|n| *n), done);
    });
}

#[test]
fn an_owner_keeps_tries_out_and_lets_drains_in() {
    // Without a bound it takes minutes.
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(|| {
        let slots = Arc::new([IrqSlot::<u64, Modelled>::new(0)]);
        let theirs = slots.clone();
        let drain = thread::spawn(move || {
            theirs[0].with(|n| *n += 1);
            assert!(is_on());
        });
        let mut tried = 0;
        {
            let mut owned = Slot::own(&slots[..]).unwrap();
            owned.with(0, |n| *n += 1).unwrap();
            assert!(slots[0].try_with(|_| ()).is_none(), "owned");
            assert_eq!(Slot::own(&slots[..]).err(), Some(OwnError::Taken));
        }
        tried += u64::from(slots[0].try_with(|n| *n += 1).is_some());
        drain.join().unwrap();
        assert_eq!(slots[0].with(|n| *n), 2 + tried);
        assert!(slots[0].try_with(|_| ()).is_some() && is_on(), "given up");
    });
}

/// Canary: the lock with an ordering that is too weak.
struct Weak {
    held: AtomicBool,
    value: UnsafeCell<u64>,
}

// SAFETY: not so: the model finds it.
unsafe impl Sync for Weak {}

impl Weak {
    fn add(&self) {
        let raise =
            || self.held.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed);
        while raise().is_err() {
            thread::yield_now();
        }
        // SAFETY: not so: the model finds it before memory is touched.
        self.value.with_mut(|value| unsafe { *value += 1 });
        self.held.store(false, Ordering::Relaxed);
    }
}

#[test]
fn the_model_finds_an_ordering_that_is_too_weak() {
    let found = catch_unwind(AssertUnwindSafe(|| {
        loom::model(|| {
            let (held, value) = (AtomicBool::new(false), UnsafeCell::new(0));
            let lock = Arc::new(Weak { held, value });
            let theirs = lock.clone();
            let other = thread::spawn(move || theirs.add());
            lock.add();
            other.join().unwrap();
        });
    }));
    assert!(found.is_err());
}
