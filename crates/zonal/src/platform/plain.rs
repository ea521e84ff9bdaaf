//! The atomics of `core`, for hosts that run on the bare machine.
//!
//! ```
//! use core::sync::atomic::{AtomicU8, Ordering};
//! use zonal::platform::AtomicByte;
//! let byte = <AtomicU8 as AtomicByte>::new(3);
//! assert_eq!(AtomicByte::load(&byte, Ordering::Relaxed), 3);
//! ```

use super::{AtomicByte, AtomicHalf, AtomicWord};
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

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
    #[inline(always)]
    fn swap(&self, value: u8, order: Ordering) -> u8 {
        self.swap(value, order)
    }
    #[inline(always)]
    fn compare_exchange(
        &self,
        current: u8,
        new: u8,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u8, u8> {
        self.compare_exchange(current, new, success, failure)
    }
}

impl AtomicHalf for AtomicU32 {
    #[inline(always)]
    fn new(value: u32) -> Self {
        Self::new(value)
    }
    #[inline(always)]
    fn zeros<const N: usize>() -> [Self; N] {
        const { [const { Self::new(0) }; N] }
    }
    #[inline(always)]
    fn load(&self, order: Ordering) -> u32 {
        self.load(order)
    }
    #[inline(always)]
    fn store(&self, value: u32, order: Ordering) {
        self.store(value, order);
    }
}

impl AtomicWord for AtomicU64 {
    #[inline(always)]
    fn new(value: u64) -> Self {
        Self::new(value)
    }
    #[inline(always)]
    fn zeros<const N: usize>() -> [Self; N] {
        const { [const { Self::new(0) }; N] }
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
    fn fetch_or(&self, mask: u64, order: Ordering) -> u64 {
        self.fetch_or(mask, order)
    }
    #[inline(always)]
    fn fetch_and(&self, mask: u64, order: Ordering) -> u64 {
        self.fetch_and(mask, order)
    }
    #[inline(always)]
    fn swap(&self, value: u64, order: Ordering) -> u64 {
        self.swap(value, order)
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

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::Ordering::Relaxed;

    #[test]
    fn updates_do_what_their_names_say() {
        let word = <AtomicU64 as AtomicWord>::new(0b0110);
        assert_eq!(AtomicWord::fetch_or(&word, 0b1100, Relaxed), 0b0110);
        assert_eq!(AtomicWord::fetch_and(&word, 0b0101, Relaxed), 0b1110);
        assert_eq!(AtomicWord::swap(&word, 9, Relaxed), 0b0100);
        assert_eq!(AtomicWord::load(&word, Relaxed), 9);
        let byte = <AtomicU8 as AtomicByte>::new(3);
        assert_eq!(AtomicByte::swap(&byte, 5, Relaxed), 3);
        assert_eq!(AtomicByte::compare_exchange(&byte, 3, 7, Relaxed, Relaxed), Err(5));
        assert_eq!(AtomicByte::compare_exchange(&byte, 5, 7, Relaxed, Relaxed), Ok(5));
        assert_eq!(AtomicByte::load(&byte, Relaxed), 7);
    }
}
