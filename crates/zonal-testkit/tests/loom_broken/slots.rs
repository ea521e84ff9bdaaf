//! Hosts with other slots: stays in pieces; and planted bugs, slots that let two in, or that do not wait for a slot
//! that another is in.
#![allow(dead_code, reason = "not every model plants every bug")]

#[path = "torn.rs"]
mod torn;

use loom::sync::atomic::{AtomicUsize, Ordering::AcqRel};
use std::cell::RefCell;
use std::fmt;
use std::marker::PhantomData;
use zonal::platform::shared_slot::{Guarded, SharedSlot};
use zonal::platform::stay::InPieces;
use zonal::platform::{FenceUnsupported, Lock, OwnError, OwnedSlots, Platform, Slot};
use zonal::{CpuId, Host};
use zonal_testkit::loom_platform::{Byte, Half, LoomLock, LoomPlatform, Newest};

/// A lock that does not exclude: that two are inside at once is what the model is to find.
pub(crate) struct OpenLock<T> {
    turns: AtomicUsize,
    value: RefCell<T>,
}

impl<T> OpenLock<T> {
    fn run<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        // Orders what is inside, and lets others go on.
        self.turns.fetch_add(1, AcqRel);
        let mut value = self.value.try_borrow_mut().expect("two are inside");
        let result = f(&mut value);
        self.turns.fetch_add(1, AcqRel);
        result
    }
}

impl<T> Lock<T> for OpenLock<T> {
    fn new(value: T) -> Self {
        Self { turns: AtomicUsize::new(0), value: RefCell::new(value) }
    }
    fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        self.run(f)
    }
    fn try_with<R>(&self, f: impl FnOnce(&mut T) -> R) -> Option<R> {
        Some(self.run(f))
    }
    fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }
}

/// A slot that a drain passes over if another is inside. It has no owners.
pub(crate) struct HastySlot<T>(SharedSlot<T, LoomLock<Guarded<T>>>);

/// There is none.
pub(crate) enum NoOwner {}

impl<T> OwnedSlots<T> for NoOwner {
    fn with<R>(&mut self, _: usize, _: impl FnOnce(&mut T) -> R) -> Option<R> {
        match *self {}
    }
}

impl<T: Send> Slot<T> for HastySlot<T> {
    type Owned<'a>
        = NoOwner
    where
        Self: 'a;
    type Stay = zonal::platform::stay::Unbounded;

    fn new(value: T) -> Self {
        Self(Slot::new(value))
    }
    fn try_with<R>(&self, f: impl FnOnce(&mut T) -> R) -> Option<R> {
        self.0.try_with(f)
    }
    fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        self.0.with(f)
    }
    fn reach<R>(&self, f: impl FnOnce(&mut T) -> R) -> Option<R> {
        self.0.try_with(f)
    }
    fn own(_: &[Self]) -> Result<NoOwner, OwnError> {
        Err(OwnError::Unsupported("it is in haste"))
    }
}

/// Loom's host with other slots.
macro_rules! host {
    ($(#[$doc:meta])* $name:ident, $word:ty, $slot:ty) => {
        $(#[$doc])*
        #[derive(Default)]
        pub(crate) struct $name(PhantomData<()>);

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(stringify!($name))
            }
        }

        impl Platform for $name {
            type Byte = Byte;
            type Half = Half;
            type Word = $word;
            type Lock<T: Send> = LoomLock<T>;
            type Slot<T: Send> = $slot;

            fn cpu(&self) -> CpuId {
                LoomPlatform::<Newest>::new().cpu()
            }
            fn relax() {
                LoomPlatform::<Newest>::relax();
            }
            fn light_fence() {
                LoomPlatform::<Newest>::light_fence();
            }
            fn heavy_fence() -> Result<(), FenceUnsupported> {
                LoomPlatform::<Newest>::heavy_fence()
            }
        }

        impl Host for $name {}
    };
}

host!(
    /// Planted bug: a slot that lets two in.
    Open, Newest, SharedSlot<T, OpenLock<Guarded<T>>>
);
host!(
    /// Planted bug: a drain does not wait for the CPU that is inside.
    Hasty, Newest, HastySlot<T>
);
host!(
    /// Stays in pieces.
    Pieces, Newest, SharedSlot<T, LoomLock<Guarded<T>>, InPieces>
);
host!(
    /// Planted bug: a slot that lets two in, with stays in pieces.
    OpenPieces, Newest, SharedSlot<T, OpenLock<Guarded<T>>, InPieces>
);
host!(
    /// Planted bug: words whose updates are torn, with stays in pieces.
    TornPieces, torn::Torn, SharedSlot<T, LoomLock<Guarded<T>>, InPieces>
);
