//! The thread that writes back without being asked: by age, and when more is dirty than the background limit.

use crate::cache::PageCache;
use crate::inner::{Core, Setup};
use parking_lot::{Condvar, Mutex};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

/// How often the thread looks for pages that are old, where their age is no shorter.
const TICK: Duration = Duration::from_secs(1);

/// What the thread waits for.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    /// It was rung and not heard yet: most who ring only look.
    rung: AtomicBool,
    over: Mutex<bool>,
    /// Changed with the lock of `over` held.
    attended: AtomicBool,
    changed: Condvar,
}

impl Bell {
    /// There is something to do.
    pub(crate) fn ring(&self) {
        // Relaxed: one who looks too early is heard a tick later.
        if !self.rung.load(Relaxed) && !self.rung.swap(true, Relaxed) {
            drop(self.over.lock());
            self.changed.notify_one();
        }
    }

    /// No cache is left.
    pub(crate) fn end(&self) {
        *self.over.lock() = true;
        self.changed.notify_one();
    }

    /// Waits for either, or for `time` to pass; whether there is nothing to do any more.
    pub(crate) fn is_over(&self, time: Duration) -> bool {
        let mut over = self.over.lock();
        if !*over && !self.rung.load(Relaxed) {
            let _ = self.changed.wait_for(&mut over, time);
        }
        self.rung.store(false, Relaxed);
        *over
    }

    /// Lets `time` pass, however often it is rung; whether there is nothing to do any more.
    pub(crate) fn is_over_after(&self, time: Duration) -> bool {
        let (mut over, end) = (self.over.lock(), Instant::now() + time);
        while !*over && !self.changed.wait_until(&mut over, end).timed_out() {}
        *over
    }

    pub(crate) fn is_told_to_end(&self) -> bool {
        *self.over.lock()
    }

    /// Makes the caller the one who hears it; whether there was none.
    pub(crate) fn attend(&self) -> bool {
        let mut over = self.over.lock();
        let mine = !self.attended.swap(true, Relaxed);
        *over &= !mine;
        mine
    }

    /// No thread hears it any more.
    pub(crate) fn leave(&self) {
        let _over = self.over.lock();
        self.attended.store(false, Relaxed);
    }
}

/// Starts the thread for a cache, which it does not keep.
pub(crate) fn start<S: Setup>(
    bell: Arc<Bell>,
    cache: &PageCache<S>,
    age: Duration,
) -> io::Result<()> {
    let core: Weak<Core<S>> = Arc::downgrade(cache.core());
    let tick = TICK.min(age).max(Duration::from_millis(10));
    let work = move || {
        while !bell.is_over(tick) {
            let Some(core) = core.upgrade() else { return };
            // A store that panics ends this round, not the thread.
            let round = || PageCache::from_core(core).write_behind(age);
            drop(catch_unwind(AssertUnwindSafe(round)));
        }
    };
    thread::Builder::new().name("cache-writer".to_owned()).spawn(work).map(drop)
}
