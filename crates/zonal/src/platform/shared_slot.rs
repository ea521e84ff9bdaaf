//! A [`Slot`] made of any [`Lock`], for hosts without a cheaper way in for an owner.
//!
//! ```
//! use zonal::platform::{OwnedSlots, Slot, shared_slot::SharedSlot, single::CellLock};
//! let slots: [SharedSlot<u8, CellLock<_>>; 1] = [Slot::new(7)];
//! let mut owned = Slot::own(&slots).unwrap();
//! assert!(slots[0].try_with(|_| ()).is_none(), "owned: the try-lock path stays out");
//! assert_eq!(owned.with(0, |n| *n), Some(7));
//! ```

use super::stay::{Stay, Unbounded};
use super::{Lock, OwnError, OwnedSlots, Slot};
use core::fmt;
use core::marker::PhantomData;

/// What the lock of a [`SharedSlot`] guards: the value and whether it has an owner.
#[derive(Debug)]
pub struct Guarded<T> {
    owned: bool,
    value: T,
}

/// A slot whose every way in takes the lock `L`, for a stay of `Y`.
pub struct SharedSlot<T, L, Y = Unbounded> {
    lock: L,
    marker: PhantomData<fn(T, Y) -> T>,
}

impl<T, L: Lock<Guarded<T>>, Y: Stay> Slot<T> for SharedSlot<T, L, Y> {
    type Owned<'a>
        = Owner<'a, T, L, Y>
    where
        Self: 'a;
    type Stay = Y;

    fn new(value: T) -> Self {
        Self { lock: L::new(Guarded { owned: false, value }), marker: PhantomData }
    }

    fn try_with<R>(&self, f: impl FnOnce(&mut T) -> R) -> Option<R> {
        self.lock.try_with(|guarded| (!guarded.owned).then(|| f(&mut guarded.value)))?
    }

    fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        self.lock.with(|guarded| f(&mut guarded.value))
    }

    fn own(slots: &[Self]) -> Result<Self::Owned<'_>, OwnError> {
        for (done, slot) in slots.iter().enumerate() {
            if slot.lock.with(|guarded| core::mem::replace(&mut guarded.owned, true)) {
                drop(Owner { slots: &slots[..done] });
                return Err(OwnError::Taken);
            }
        }
        Ok(Owner { slots })
    }
}

/// The owner of slots; dropping it gives them up.
pub struct Owner<'a, T, L: Lock<Guarded<T>>, Y = Unbounded> {
    slots: &'a [SharedSlot<T, L, Y>],
}

impl<T, L: Lock<Guarded<T>>, Y> OwnedSlots<T> for Owner<'_, T, L, Y> {
    fn with<R>(&mut self, index: usize, f: impl FnOnce(&mut T) -> R) -> Option<R> {
        Some(self.slots.get(index)?.lock.with(|guarded| f(&mut guarded.value)))
    }
}

impl<T, L: Lock<Guarded<T>>, Y> Drop for Owner<'_, T, L, Y> {
    fn drop(&mut self) {
        for slot in self.slots {
            slot.lock.with(|guarded| guarded.owned = false);
        }
    }
}

impl<T, L: fmt::Debug, Y> fmt::Debug for SharedSlot<T, L, Y> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedSlot").field("lock", &self.lock).finish_non_exhaustive()
    }
}

impl<T, L: Lock<Guarded<T>>, Y> fmt::Debug for Owner<'_, T, L, Y> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Owner").field("slots", &self.slots.len()).finish()
    }
}
