//! The atomics of `core`, for hosts that run on the bare machine.
//!
//! ```
//! use core::sync::atomic::{AtomicU8, Ordering};
//! use zonal::platform::AtomicByte;
//! let byte = <AtomicU8 as AtomicByte>::new(3);
//! assert_eq!(AtomicByte::load(&byte, Ordering::Relaxed), 3);
//! ```

use super::{AtomicByte, AtomicWord};
use core::sync::atomic::{AtomicU8, AtomicU64, Ordering};

impl AtomicByte for AtomicU8 {
    #[inline(always)]
    fn new(value: u8) -> Self {
        Self::new(value)
    }
    #[inline(always)]
    fn load(&self, order: Ordering) -> u8 {
        self.load(order)
    }
    #[inline(always)]
    fn store(&self, value: u8, order: Ordering) {
        self.store(value, order);
    }
}

impl AtomicWord for AtomicU64 {
    #[inline(always)]
    fn new(value: u64) -> Self {
        Self::new(value)
    }
    #[inline(always)]
    fn load(&self, order: Ordering) -> u64 {
        self.load(order)
    }
    #[inline(always)]
    fn store(&self, value: u64, order: Ordering) {
        self.store(value, order);
    }
    #[inline(always)]
    fn fetch_add(&self, value: u64, order: Ordering) -> u64 {
        self.fetch_add(value, order)
    }
    #[inline(always)]
    fn compare_exchange(
        &self,
        current: u64,
        new: u64,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64> {
        self.compare_exchange(current, new, success, failure)
    }
}
