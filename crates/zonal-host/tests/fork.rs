//! Children of `fork`, while other threads are inside what they inherit.
#![cfg(not(loom))]

use std::any::Any;
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};
use zonal::platform::{Lock, Slot};
use zonal::policy::Sound;
use zonal::preset::{Linux416, Zonal};
use zonal::{Order, Request};
use zonal_host::Arena;
use zonal_host::biased_slot::BiasedSlot;
use zonal_host::compactor::{Compactor, Settings, StartError};
use zonal_host::fence::FullFence;
use zonal_host::park_lock::ParkLock;
use zonal_host::region::GiveBack;

/// What a child says by its exit status.
const SERVED: i32 = 0;
const TOLD: i32 = 7;
const OTHER_PANIC: i32 = 8;

fn verdict(panic: &(dyn Any + Send)) -> i32 {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or(panic.downcast_ref::<&str>().copied()).unwrap_or_default();
    if text.contains("came here by fork()") { TOLD } else { OTHER_PANIC }
}

/// Runs `f` in a child; how it ended, `None` if it hung.
fn in_child(f: impl FnOnce()) -> Option<i32> {
    // SAFETY: the child runs `f`, whose locks are what is tested, and leaves by `_exit`. The C
    // library sees to its own; nothing is printed.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "no process");
    if pid == 0 {
        let done = panic::catch_unwind(AssertUnwindSafe(f));
        let status = done.map_or_else(|panic| verdict(&*panic), |()| SERVED);
        // SAFETY: ends the child without anything of Rust's or C's.
        unsafe { libc::_exit(status) };
    }
    let start = Instant::now();
    let mut status = 0;
    loop {
        // SAFETY: our child; writes `status`.
        let ended = unsafe { libc::waitpid(pid, &raw mut status, libc::WNOHANG) };
        if ended == pid {
            // A page that is dropped because of the panic may have to panic as well.
            let aborted = libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGABRT;
            return Some(if aborted { TOLD } else { libc::WEXITSTATUS(status) });
        }
        if start.elapsed() > Duration::from_secs(10) {
            // SAFETY: our child, not waited for yet.
            unsafe { libc::kill(pid, libc::SIGKILL) };
            // SAFETY: as above.
            unsafe { libc::waitpid(pid, &raw mut status, 0) };
            return None;
        }
        thread::sleep(Duration::from_micros(200));
    }
}

/// Has another thread inside of something (`hold` gets what to do there), and forks.
fn while_held(hold: impl FnOnce(&dyn Fn()) + Send, in_there: impl FnOnce()) -> Option<i32> {
    let (inside, done) = (Barrier::new(2), Barrier::new(2));
    thread::scope(|scope| {
        scope.spawn(|| {
            hold(&|| {
                inside.wait();
                done.wait();
            });
        });
        inside.wait();
        let status = in_child(in_there);
        done.wait();
        status
    })
}

fn locks() {
    let lock = ParkLock::new(0);
    let held = while_held(|stay| lock.with(|_| stay()), || lock.with(|n| *n += 1));
    assert_eq!(held, Some(TOLD), "a lock");
    assert_eq!(in_child(|| lock.with(|n| *n += 1)), Some(SERVED), "a free lock");

    let slots = [BiasedSlot::<u32, FullFence>::new(0)];
    let slot = &slots[0];
    let tried = while_held(|stay| slot.try_with(|_| stay()).unwrap(), || slot.with(|n| *n += 1));
    assert_eq!(tried, Some(TOLD), "a slot");
    let owned = while_held(
        |stay| {
            use zonal::platform::OwnedSlots;
            let mut owner = Slot::own(&slots).unwrap();
            owner.with(0, |_| stay());
        },
        || slot.with(|n| *n += 1),
    );
    assert_eq!(owned, Some(TOLD), "an owner's slot");
    assert_eq!(in_child(|| slot.with(|n| *n += 1)), Some(SERVED), "a free slot");

    // One that is made in the child may be waited for there.
    let own = in_child(|| {
        let lock = ParkLock::new(0_u32);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| (0..20_000).for_each(|_| lock.with(|n| *n += 1)));
            }
        });
        assert_eq!(lock.with(|n| *n), 40_000);
    });
    assert_eq!(own, Some(SERVED));
}

fn compactor() {
    let arena = Arc::new(Arena::builder().bytes(16 << 20).open().unwrap());
    let compactor = Compactor::start(arena.clone(), Settings::default()).unwrap();
    assert!(!arena.came_by_fork());
    let mut compactor = Some(compactor);
    let dropped = in_child(|| {
        assert!(arena.came_by_fork());
        drop(compactor.take());
    });
    assert_eq!(dropped, Some(SERVED), "a compactor");
    let start = || {
        // The end of a scope waits for one that runs.
        let error = thread::scope(|scope| {
            Compactor::start_in(scope, &*arena, Settings::default()).map(drop).unwrap_err()
        });
        assert!(matches!(error, StartError::CameByFork), "{error}");
    };
    assert_eq!(in_child(start), Some(SERVED), "one more");
    assert!(compactor.is_some_and(|compactor| compactor.stop().panics == 0));
    assert_eq!(in_child(start), Some(SERVED), "one of its own");
}

fn work<S: Sound>(arena: &Arena<S>, rounds: usize) {
    for round in 0..rounds {
        let order = Order::new([0, 0, 3, 9][round % 4]).unwrap();
        let pages = [(); 3].map(|()| arena.alloc(&Request::new(order)));
        drop(pages);
        if round % 64 == 0 {
            arena.drain();
        }
    }
}

/// As many children as showed it before, of a process with threads that do nothing else.
fn arenas<S: Sound>()
where
    Arena<S>: Sync,
{
    const CHILDREN: usize = 100;
    let arena = Arena::builder().preset::<S>().bytes(64 << 20).open().unwrap();
    let done = AtomicBool::new(false);
    let mut ends = [0; 2];
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !done.load(Relaxed) {
                    work(&arena, 64);
                }
            });
        }
        scope.spawn(|| {
            while !done.load(Relaxed) {
                let _ = arena.give_back(8, GiveBack::Now);
            }
        });
        for child in 0..CHILDREN {
            match in_child(|| work(&arena, 200)) {
                Some(SERVED) => ends[0] += 1,
                Some(TOLD) => ends[1] += 1,
                other => {
                    done.store(true, Relaxed);
                    panic!("child {child} ended as {other:?}");
                }
            }
        }
        done.store(true, Relaxed);
    });
    println!("{}: {} served, {} told", S::NAME, ends[0], ends[1]);
}

/// One test, because children of other tests' threads would be more than is tested.
#[test]
fn a_child_is_served_or_told_and_never_hangs() {
    let hook = panic::take_hook();
    // SAFETY: takes nothing.
    let parent = unsafe { libc::getpid() };
    panic::set_hook(Box::new(move |info| {
        // SAFETY: takes nothing.
        if unsafe { libc::getpid() } == parent {
            hook(info);
        }
    }));
    locks();
    compactor();
    arenas::<Zonal>();
    arenas::<Linux416>();
}
