//! What the lock is made of: of `core`, or of the model checker loom.

#[cfg(loom)]
pub(crate) use loom::{
    cell::UnsafeCell,
    sync::atomic::{AtomicBool, AtomicU8, Ordering},
    thread::yield_now as pause,
};

#[cfg(not(loom))]
pub(crate) use core::{
    hint::spin_loop as pause,
    sync::atomic::{AtomicBool, AtomicU8, Ordering},
};

/// `core`'s, with loom's closure access.
#[cfg(not(loom))]
pub(crate) struct UnsafeCell<T>(core::cell::UnsafeCell<T>);

#[cfg(not(loom))]
impl<T> UnsafeCell<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(core::cell::UnsafeCell::new(value))
    }

    #[inline(always)]
    pub(crate) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        f(self.0.get())
    }
}
