//! The atomics, cell and waiting of [`biased_slot`](crate::biased_slot): the machine's, or
//! loom's when the crate is built for the model checker, so that one source serves both.

pub(crate) use imp::*;

#[cfg(not(loom))]
mod imp {
    use std::hint::spin_loop;
    pub(crate) use std::sync::atomic::{AtomicU8, Ordering, fence};

    /// `std`'s cell with loom's way in.
    #[derive(Debug)]
    #[repr(transparent)]
    pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        #[inline]
        pub(crate) fn new(value: T) -> Self {
            Self(std::cell::UnsafeCell::new(value))
        }
        #[inline(always)]
        pub(crate) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
            f(self.0.get())
        }
    }

    /// Waiting for a few instructions of another thread: spins, then yields the CPU, because
    /// that thread may have lost its own.
    #[derive(Debug, Default)]
    pub(crate) struct Wait(u32);

    impl Wait {
        const SPINS: u32 = 64;
        /// How often to look for a thread that may not come: for some microseconds.
        pub(crate) const LOOKS: u32 = 256;

        pub(crate) fn pause(&mut self) {
            if self.0 < Self::SPINS {
                self.0 += 1;
                spin_loop();
            } else {
                std::thread::yield_now();
            }
        }
    }
}

#[cfg(loom)]
mod imp {
    pub(crate) use loom::cell::UnsafeCell;
    pub(crate) use loom::sync::atomic::{AtomicU8, Ordering, fence};

    /// Lets another modelled thread run.
    #[derive(Debug, Default)]
    pub(crate) struct Wait(());

    impl Wait {
        pub(crate) const LOOKS: u32 = 1;

        pub(crate) fn pause(&mut self) {
            loom::thread::yield_now();
        }
    }
}
