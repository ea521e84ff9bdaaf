//! The zone lock of user space: spins briefly, then parks the thread.
//!
//! Critical sections are short (a bounded number of frames), so spinning nearly always wins;
//! parking is for the holder that lost its CPU. The lock itself is `parking_lot`'s.
//!
//! In a child of `fork` a lock that another thread of the parent held is held for ever. Waiting
//! for a lock that was made before the fork is a panic there, see
//! [fork](crate::arena#children-of-fork).
//!
//! ```
//! use zonal::platform::Lock;
//! use zonal_host::park_lock::ParkLock;
//! let lock = ParkLock::new(1);
//! assert_eq!(lock.with(|n| { *n += 1; *n }), 2);
//! ```

use crate::birth::Birth;
use crate::waiting::{Mutex, MutexGuard};
use zonal::platform::Lock;

/// A lock around a `T`, on cache lines of its own. A panic inside releases it, unpoisoned.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct ParkLock<T> {
    value: Mutex<T>,
    birth: Birth,
}

impl<T> ParkLock<T> {
    #[cold]
    #[inline(never)]
    fn wait(&self) -> MutexGuard<'_, T> {
        self.birth.check();
        self.value.lock()
    }
}

impl<T> Lock<T> for ParkLock<T> {
    fn new(value: T) -> Self {
        Self { value: Mutex::new(value), birth: Birth::default() }
    }

    #[inline]
    fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        f(&mut self.value.try_lock().unwrap_or_else(|| self.wait()))
    }

    #[inline]
    fn try_with<R>(&self, f: impl FnOnce(&mut T) -> R) -> Option<R> {
        self.value.try_lock().map(|mut value| f(&mut value))
    }

    #[inline]
    fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::thread;

    #[test]
    fn excludes_and_does_not_wait_when_told_not_to() {
        let mut lock = ParkLock::new(0_u32);
        lock.with(|_| assert!(lock.try_with(|_| ()).is_none()));
        assert_eq!(lock.try_with(|n| *n), Some(0));
        *lock.get_mut() = 9;
        assert_eq!(lock.with(|n| *n), 9);
    }

    #[test]
    fn counts_what_threads_add() {
        let lock = ParkLock::new(0_u64);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..20_000).for_each(|_| lock.with(|n| *n += 1)));
            }
        });
        assert_eq!(lock.with(|n| *n), 80_000);
    }

    #[test]
    fn a_panic_inside_releases_it() {
        let lock = ParkLock::new(1_u8);
        catch_unwind(AssertUnwindSafe(|| lock.with(|_| panic!("inside")))).unwrap_err();
        assert_eq!(lock.try_with(|n| *n), Some(1));
    }

    #[test]
    fn neighbours_do_not_share_a_line() {
        assert_eq!(size_of::<[ParkLock<u8>; 2]>(), 256);
    }
}
