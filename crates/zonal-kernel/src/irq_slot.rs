//! The slot of a CPU's cache: [`IrqLock`](crate::irq_lock)'s flag, with a word for an owner.
//!
//! Every way in masks interrupts, so a handler never finds a slot entered by the code that it
//! interrupted: its try succeeds, or another CPU is inside, for a moment. An owner enters as a drain
//! does, and so gains no more than that others' tries stay out.
//!
//! `state` has two bits: `LOCKED` is the lock, changed as in [`crate::irq_lock`]; `OWNED` is changed only by
//! who has the lock, so that it can be put back with it by a plain store.
//!
//! Model-checked in `tests/loom_irq_lock.rs`.
//!
//! ```
//! # use zonal::{CpuId, NodeId, map::PhysAddr};
//! # struct Pc;
//! # impl zonal_kernel::Machine for Pc {
//! #     fn cpu() -> CpuId { CpuId(0) }
//! #     fn node(_: CpuId) -> NodeId { NodeId(0) }
//! #     fn interrupts_off() -> bool { true }
//! #     fn interrupts_restore(_: bool) {}
//! #     fn address(frame: PhysAddr) -> *mut u8 { frame.0 as *mut u8 }
//! # }
//! use zonal::platform::{OwnedSlots, Slot};
//! use zonal_kernel::irq_slot::IrqSlot;
//! let slots = [IrqSlot::<u32, Pc>::new(1)];
//! let mut owned = Slot::own(&slots).unwrap();
//! assert_eq!(owned.with(0, |n| { *n += 1; *n }), Some(2));
//! assert!(slots[0].try_with(|_| ()).is_none(), "owned");
//! assert_eq!(slots[0].with(|n: &mut u32| *n), 2, "a drain gets in");
//! ```

use crate::Machine;
use crate::irq_lock::Masked;
use crate::sync::{AtomicU8, Ordering, UnsafeCell, pause};
use core::fmt;
use core::marker::PhantomData;
use zonal::platform::{OwnError, OwnedSlots, Slot};

/// A CPU is inside.
const LOCKED: u8 = 1;
/// An owner has it: tries stay out.
const OWNED: u8 = 2;

/// A slot around a `T` on a machine `M`, on cache lines of its own.
#[repr(align(128))]
pub struct IrqSlot<T, M> {
    state: AtomicU8,
    value: UnsafeCell<T>,
    machine: PhantomData<fn() -> M>,
}

// SAFETY: `LOCKED` lets one CPU at a time reach the value (see `Inside`), which is no more than sending
// the `T` between them. `M` is never held.
unsafe impl<T: Send, M> Sync for IrqSlot<T, M> {}

/// Made by the CPU that raised `LOCKED`; dropping it stores `after`, without `LOCKED`, then lets
/// interrupts come: fields are dropped after the body of `drop`.
struct Inside<'a, M: Machine> {
    state: &'a AtomicU8,
    after: u8,
    _masked: Masked<M>,
}

impl<M: Machine> Drop for Inside<'_, M> {
    #[inline(always)]
    fn drop(&mut self) {
        // Release: who next raises the bit (acquire) in `try_enter` sees what was done.
        self.state.store(self.after, Ordering::Release);
    }
}

impl<T, M: Machine> IrqSlot<T, M> {
    /// Enters if the state is this one, which has no `LOCKED`.
    #[inline]
    fn try_enter(&self, state: u8) -> Option<Inside<'_, M>> {
        let masked = Masked::new();
        // Acquire: pairs with the release in `Inside::drop`. A failure writes nothing.
        let (from, to) = (Ordering::Acquire, Ordering::Relaxed);
        self.state.compare_exchange(state, state | LOCKED, from, to).ok()?;
        Some(Inside { state: &self.state, after: state, _masked: masked })
    }

    /// Waits for the CPU that is inside, then enters, owned or not. Interrupts are as they were while
    /// it waits.
    fn enter(&self) -> Inside<'_, M> {
        loop {
            // Only looks, to leave the line with the CPU inside.
            let state = self.state.load(Ordering::Relaxed);
            if state & LOCKED == 0
                && let Some(inside) = self.try_enter(state)
            {
                return inside;
            }
            pause();
        }
    }

    #[inline(always)]
    fn run<R>(&self, _inside: Inside<'_, M>, f: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: `LOCKED` was raised by our hand, and is put down when `_inside` is dropped, after `f`, by
        // a panic too. Until then all others find it up, so no other reference to the value is made. A
        // handler on this CPU does not run.
        self.value.with_mut(|value| f(unsafe { &mut *value }))
    }
}

impl<T, M: Machine> Slot<T> for IrqSlot<T, M> {
    type Owned<'a>
        = Owner<'a, T, M>
    where
        Self: 'a;
    type Stay = zonal::platform::stay::InPieces;

    fn new(value: T) -> Self {
        Self { state: AtomicU8::new(0), value: UnsafeCell::new(value), machine: PhantomData }
    }

    #[inline(always)]
    fn try_with<R>(&self, f: impl FnOnce(&mut T) -> R) -> Option<R> {
        self.try_enter(0).map(|inside| self.run(inside, f))
    }

    fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        self.run(self.enter(), f)
    }

    fn own(slots: &[Self]) -> Result<Self::Owned<'_>, OwnError> {
        for (done, slot) in slots.iter().enumerate() {
            let mut inside = slot.enter();
            if inside.after & OWNED != 0 {
                drop(inside);
                drop(Owner { slots: &slots[..done] });
                return Err(OwnError::Taken);
            }
            inside.after |= OWNED;
        }
        Ok(Owner { slots })
    }
}

/// The owner of slots; dropping it gives them up.
pub struct Owner<'a, T, M: Machine> {
    /// Every one of them is owned, and by this value alone.
    slots: &'a [IrqSlot<T, M>],
}

impl<T, M: Machine> OwnedSlots<T> for Owner<'_, T, M> {
    #[inline(always)]
    fn with<R>(&mut self, index: usize, f: impl FnOnce(&mut T) -> R) -> Option<R> {
        Some(self.slots.get(index)?.with(f))
    }
}

impl<T, M: Machine> Drop for Owner<'_, T, M> {
    fn drop(&mut self) {
        for slot in self.slots {
            slot.enter().after &= !OWNED;
        }
    }
}

impl<T, M> fmt::Debug for IrqSlot<T, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IrqSlot").field("state", &self.state).finish_non_exhaustive()
    }
}

impl<T, M: Machine> fmt::Debug for Owner<'_, T, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Owner").field("slots", &self.slots.len()).finish()
    }
}
