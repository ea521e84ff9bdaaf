//! A spin lock that masks interrupts while it is held: the zone lock of a kernel.
//!
//! A handler on a CPU runs only while no lock of this kind is held there, so it never waits for the code
//! that it interrupted; it waits for other CPUs, for a hold at most
//! ([`HOLD_BOUND`](zonal::HOLD_BOUND) units of work). While it waits, interrupts are as they were
//! before. It is a flag, not a queue: a virtual CPU that lost its processor does not keep those behind it
//! waiting for their turn.
//!
//! Model-checked in `tests/loom_irq_lock.rs`.
//!
//! ```
//! # use zonal::{CpuId, NodeId, map::PhysAddr, platform::Lock};
//! # struct Pc;
//! # impl zonal_kernel::Machine for Pc {
//! #     fn cpu() -> CpuId { CpuId(0) }
//! #     fn node(_: CpuId) -> NodeId { NodeId(0) }
//! #     fn interrupts_off() -> bool { true }
//! #     fn interrupts_restore(_: bool) {}
//! #     fn address(frame: PhysAddr) -> *mut u8 { frame.0 as *mut u8 }
//! # }
//! use zonal_kernel::irq_lock::IrqLock;
//! let lock = IrqLock::<u32, Pc>::new(1);
//! assert_eq!(lock.with(|n| { *n += 1; *n }), 2);
//! assert!(lock.with(|_| lock.try_with(|_| ()).is_none()), "a try does not wait");
//! ```

use crate::Machine;
use crate::sync::{AtomicBool, Ordering, UnsafeCell};
use core::fmt;
use core::marker::PhantomData;
use zonal::platform::Lock;

/// A lock around a `T` on a machine `M`, on cache lines of its own (two, because x86 fetches them in
/// pairs). A panic inside releases it.
#[repr(align(128))]
pub struct IrqLock<T, M> {
    held: AtomicBool,
    value: UnsafeCell<T>,
    machine: PhantomData<fn() -> M>,
}

// SAFETY: `held` lets one CPU at a time reach the value (see `Held`), which is no more than sending the
// `T` between them. `M` is never held.
unsafe impl<T: Send, M> Sync for IrqLock<T, M> {}

/// Interrupts are masked on this CPU until this is dropped.
pub(crate) struct Masked<M: Machine>(bool, PhantomData<fn() -> M>);

impl<M: Machine> Masked<M> {
    #[inline(always)]
    pub(crate) fn new() -> Self {
        Self(M::interrupts_off(), PhantomData)
    }
}

impl<M: Machine> Drop for Masked<M> {
    #[inline(always)]
    fn drop(&mut self) {
        M::interrupts_restore(self.0);
    }
}

/// Made by the CPU that raised `held`; dropping it puts `held` down, then lets interrupts come: fields
/// are dropped after the body of `drop`.
struct Held<'a, M: Machine> {
    held: &'a AtomicBool,
    _masked: Masked<M>,
}

impl<M: Machine> Drop for Held<'_, M> {
    #[inline(always)]
    fn drop(&mut self) {
        // Release: who next raises it (acquire) in `try_hold` sees what was done.
        self.held.store(false, Ordering::Release);
    }
}

impl<T, M> IrqLock<T, M> {
    /// A lock around `value`, not held; for statics too.
    #[cfg(not(loom))]
    #[must_use]
    pub const fn new(value: T) -> Self {
        Self { held: AtomicBool::new(false), value: UnsafeCell::new(value), machine: PhantomData }
    }

    /// A lock around `value`, not held.
    #[cfg(loom)]
    pub fn new(value: T) -> Self {
        Self { held: AtomicBool::new(false), value: UnsafeCell::new(value), machine: PhantomData }
    }
}

impl<T, M: Machine> IrqLock<T, M> {
    #[inline]
    fn try_hold(&self) -> Option<Held<'_, M>> {
        let masked = Masked::new();
        // Acquire: pairs with the release in `Held::drop`. A failure writes nothing.
        let raised = self.held.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed);
        raised.ok()?;
        Some(Held { held: &self.held, _masked: masked })
    }

    #[cold]
    #[inline(never)]
    fn wait(&self) -> Held<'_, M> {
        loop {
            // Only looks, to leave the line with the CPU that has the lock.
            while self.held.load(Ordering::Relaxed) {
                M::relax();
            }
            if let Some(held) = self.try_hold() {
                return held;
            }
        }
    }

    #[inline(always)]
    fn run<R>(&self, _held: Held<'_, M>, f: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: `held` went from down to up by our hand, and goes down when `_held` is dropped, after
        // `f`, by a panic too. Until then all others find it up, so no other reference to the
        // value is made; `get_mut` has the lock to itself. A handler on this CPU does not run.
        self.value.with_mut(|value| f(unsafe { &mut *value }))
    }
}

impl<T, M: Machine> Lock<T> for IrqLock<T, M> {
    fn new(value: T) -> Self {
        Self::new(value)
    }

    #[inline(always)]
    fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        self.run(self.try_hold().unwrap_or_else(|| self.wait()), f)
    }

    #[inline(always)]
    fn try_with<R>(&self, f: impl FnOnce(&mut T) -> R) -> Option<R> {
        self.try_hold().map(|held| self.run(held, f))
    }

    fn get_mut(&mut self) -> &mut T {
        // SAFETY: `&mut self`: no other reference to the lock is there, and so none to its value.
        self.value.with_mut(|value| unsafe { &mut *value })
    }
}

impl<T, M> fmt::Debug for IrqLock<T, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IrqLock").field("held", &self.held).finish_non_exhaustive()
    }
}
