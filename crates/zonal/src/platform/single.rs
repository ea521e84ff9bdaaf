//! One thread: for examples, tests, and boot code that runs before other CPUs do.
//!
//! ```
//! use zonal::platform::{Platform, single::SingleThread};
//! assert_eq!(SingleThread.cpu(), zonal::CpuId(0));
//! ```

use super::shared_slot::{Guarded, SharedSlot};
use super::{Lock, Platform};
use crate::types::units::CpuId;
use core::cell::RefCell;
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};

/// A lock for one thread: a `RefCell`.
#[derive(Debug)]
pub struct CellLock<T>(RefCell<T>);

impl<T> Lock<T> for CellLock<T> {
    fn new(value: T) -> Self {
        Self(RefCell::new(value))
    }
    fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        f(&mut self.0.borrow_mut())
    }
    fn try_with<R>(&self, f: impl FnOnce(&mut T) -> R) -> Option<R> {
        self.0.try_borrow_mut().ok().map(|mut value| f(&mut value))
    }
    fn get_mut(&mut self) -> &mut T {
        self.0.get_mut()
    }
}

/// The host with one thread, whose frames are numbers only: it cannot zero.
#[derive(Clone, Copy, Debug, Default)]
pub struct SingleThread;

impl Platform for SingleThread {
    type Byte = AtomicU8;
    type Half = AtomicU32;
    type Word = AtomicU64;
    type Lock<T: Send> = CellLock<T>;
    type Slot<T: Send> = SharedSlot<T, CellLock<Guarded<T>>>;

    fn cpu(&self) -> CpuId {
        CpuId(0)
    }
}
