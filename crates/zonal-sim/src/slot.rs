//! Per-CPU slots in virtual time: no lock in the usual case, only what the kernel pays to stay
//! alone on its CPU (interrupts or preemption off and on again).

use crate::coroutine;
use crate::engine::{self, Access};
use crate::lock::State;
use core::cell::{Cell, RefCell};
use zonal::platform::{OwnError, OwnedSlots, Slot};

/// A slot around a `T`. It must stay where it is once it was entered.
#[derive(Debug)]
pub struct SimSlot<T> {
    /// Who is inside. The price of the lock itself is not charged.
    inside: State,
    owned: Cell<bool>,
    value: RefCell<T>,
}

impl<T> SimSlot<T> {
    /// Under a random schedule others may go on before an entry.
    fn arrive() {
        let others_first = engine::with_cpu(|engine, cpu| {
            if !engine.schedule.is_random() {
                return false;
            }
            let clock = *engine.clock(cpu);
            engine.schedule.switches_at(true, clock, clock)
        });
        if others_first == Some(true) {
            coroutine::pause();
        }
    }

    /// What an entry costs, whichever CPU enters.
    fn charge(&self) {
        engine::with_cpu(|engine, cpu| {
            let entry = engine.slot_entry;
            engine.spend(cpu, entry);
            engine.touch_ordered(cpu, self.value.as_ptr().addr(), Access::Store);
        });
    }
}

impl<T> Slot<T> for SimSlot<T> {
    type Owned<'a>
        = SimOwner<'a, T>
    where
        Self: 'a;
    type Stay = zonal::platform::stay::Unbounded;

    fn new(value: T) -> Self {
        Self { inside: State::default(), owned: Cell::new(false), value: RefCell::new(value) }
    }

    fn try_with<R>(&self, f: impl FnOnce(&mut T) -> R) -> Option<R> {
        Self::arrive();
        if self.owned.get() {
            return None;
        }
        self.charge();
        let _inside = self.inside.try_stay()?;
        Some(f(&mut self.value.borrow_mut()))
    }

    fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        Self::arrive();
        self.charge();
        let _inside = self.inside.stay();
        f(&mut self.value.borrow_mut())
    }

    fn own(slots: &[Self]) -> Result<Self::Owned<'_>, OwnError> {
        Self::arrive();
        if slots.iter().any(|slot| slot.owned.get()) {
            return Err(OwnError::Taken);
        }
        for slot in slots {
            slot.owned.set(true);
        }
        Ok(SimOwner { slots })
    }
}

/// A virtual CPU owns its slots, until this is dropped.
#[derive(Debug)]
pub struct SimOwner<'a, T> {
    slots: &'a [SimSlot<T>],
}

impl<T> OwnedSlots<T> for SimOwner<'_, T> {
    fn with<R>(&mut self, index: usize, f: impl FnOnce(&mut T) -> R) -> Option<R> {
        Some(self.slots.get(index)?.with(f))
    }
}

impl<T> Drop for SimOwner<'_, T> {
    fn drop(&mut self) {
        for slot in self.slots {
            slot.owned.set(false);
        }
    }
}
