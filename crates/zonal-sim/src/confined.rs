//! A lock that other threads may have hands on and do not take.
//!
//! A page cache is made to be shared by threads, and so are its locks. The virtual CPUs of a machine are all on one
//! thread, and their locks have cells. Between the two stands a check at run time.
//!
//! ```
//! use zonal::platform::Lock;
//! use zonal_sim::confined::Confined;
//! let lock = Confined::new(1);
//! lock.with(|value| *value += 1);
//! let refused = std::thread::scope(|scope| scope.spawn(|| lock.with(|_| ())).join().is_err());
//! assert!(refused);
//! assert_eq!(lock.try_with(|value| *value), Some(2));
//! ```

use crate::lock::SimLock;
use core::fmt;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;
use zonal::platform::Lock;

static NUMBERS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// The number of this thread, which no other has had or will have. Relaxed: only that they differ.
    static NUMBER: u64 = NUMBERS.fetch_add(1, Relaxed);
}

/// A [`SimLock`] of the thread that made it. Taken by another it panics; another that has it alone may look into it.
pub struct Confined<T> {
    thread: u64,
    lock: SimLock<T>,
}

// SAFETY: the lock has cells, and a reference to it leads to them only in `here`, by which every method that takes `&self`
// goes. That panics on all threads but the one that made the lock: numbers of threads are not given twice (2⁶⁴ threads
// are never made). So of the threads that share a reference one at most gets to the cells.
unsafe impl<T: Send> Sync for Confined<T> {}

impl<T> Confined<T> {
    fn here(&self) -> &SimLock<T> {
        assert_eq!(NUMBER.with(|number| *number), self.thread, "the machine is on another thread");
        &self.lock
    }
}

impl<T> Lock<T> for Confined<T> {
    fn new(value: T) -> Self {
        Self { thread: NUMBER.with(|number| *number), lock: SimLock::new(value) }
    }

    fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        self.here().with(f)
    }

    fn try_with<R>(&self, f: impl FnOnce(&mut T) -> R) -> Option<R> {
        self.here().try_with(f)
    }

    fn get_mut(&mut self) -> &mut T {
        self.lock.get_mut()
    }
}

impl<T> fmt::Debug for Confined<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Confined").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn another_thread_is_refused_and_may_own_it_all_the_same() {
        let lock = Confined::new(1);
        lock.with(|value| *value += 1);
        let refused = thread::scope(|scope| {
            let with = scope.spawn(|| lock.with(|value| *value += 1)).join().is_err();
            let tried =
                scope.spawn(|| lock.try_with(|value| *value += 1).is_some()).join().is_err();
            (with, tried)
        });
        assert_eq!(refused, (true, true));
        assert_eq!(lock.try_with(|value| *value), Some(2));
        let moved = thread::spawn(move || {
            let mut lock = lock;
            *lock.get_mut()
        });
        assert_eq!(moved.join().expect("it has it alone"), 2);
    }
}
