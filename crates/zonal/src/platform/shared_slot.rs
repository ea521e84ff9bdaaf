//! A [`Slot`] made of any [`Lock`], for hosts without a cheaper way in for an owner.
//!
//! ```
//! use zonal::platform::{OwnedSlots, Slot, shared_slot::SharedSlot, single::CellLock};
//! let slots = [SharedSlot::<u8, CellLock<_>>::new(7)];
//! let mut owned = Slot::own(&slots).unwrap();
//! assert!(slots[0].try_with(|_| ()).is_none(), "owned: the try-lock path stays out");
//! assert_eq!(owned.with(0, |n| *n), Some(7));
//! ```

use super::{Lock, OwnError, OwnedSlots, Slot};
use core::marker::PhantomData;

/// What the lock of a [`SharedSlot`] guards: the value and whether it has an owner.
#[derive(Debug)]
pub struct Guarded<T> {
    owned: bool,
    value: T,
}

/// A slot whose every way in takes the lock `L`.
#[derive(Debug)]
pub struct SharedSlot<T, L> {
    lock: L,
    marker: PhantomData<fn(T) -> T>,
}

impl<T, L: Lock<Guarded<T>>> Slot<T> for SharedSlot<T, L> {
    type Owned<'a>
        = Owner<'a, T, L>
    where
        Self: 'a;
    type Stay = super::stay::Unbounded;

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
#[derive(Debug)]
pub struct Owner<'a, T, L: Lock<Guarded<T>>> {
    slots: &'a [SharedSlot<T, L>],
}

impl<T, L: Lock<Guarded<T>>> OwnedSlots<T> for Owner<'_, T, L> {
    fn with<R>(&mut self, index: usize, f: impl FnOnce(&mut T) -> R) -> Option<R> {
        Some(self.slots.get(index)?.lock.with(|guarded| f(&mut guarded.value)))
    }
}

impl<T, L: Lock<Guarded<T>>> Drop for Owner<'_, T, L> {
    fn drop(&mut self) {
        for slot in self.slots {
            slot.lock.with(|guarded| guarded.owned = false);
        }
    }
}
