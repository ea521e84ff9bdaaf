//! Planted bugs: exchanges, and sums, that another CPU may come between.
#![allow(dead_code, reason = "not every model plants every bug")]

use std::sync::atomic::Ordering::{self, Acquire, Release};
use zonal::platform::AtomicWord;
use zonal_testkit::loom_platform::Newest;

/// A word whose updates are a load and a store, but for sums, which a model would miss first.
#[derive(Debug)]
pub(crate) struct Torn(Newest);

impl Torn {
    fn update(&self, new: impl Fn(u64) -> u64) -> u64 {
        let before = self.0.load(Acquire);
        self.0.store(new(before), Release);
        before
    }
}

impl AtomicWord for Torn {
    fn new(value: u64) -> Self {
        Self(Newest::new(value))
    }
    zonal::forward_atomic!(u64, 0: load store fetch_add);
    fn fetch_or(&self, mask: u64, _: Ordering) -> u64 {
        self.update(|word| word | mask)
    }
    fn fetch_and(&self, mask: u64, _: Ordering) -> u64 {
        self.update(|word| word & mask)
    }
    fn swap(&self, value: u64, _: Ordering) -> u64 {
        self.update(|_| value)
    }
    fn compare_exchange(
        &self,
        current: u64,
        new: u64,
        _: Ordering,
        _: Ordering,
    ) -> Result<u64, u64> {
        let before = self.0.load(Acquire);
        if before != current {
            return Err(before);
        }
        self.0.store(new, Release);
        Ok(before)
    }
}

/// A word whose sums alone are a load and a store.
#[derive(Debug)]
pub(crate) struct TornSums(Newest);

impl AtomicWord for TornSums {
    fn new(value: u64) -> Self {
        Self(Newest::new(value))
    }
    zonal::forward_atomic!(u64, 0: load store fetch_or fetch_and swap compare_exchange);
    fn fetch_add(&self, value: u64, _: Ordering) -> u64 {
        let before = self.0.load(Acquire);
        self.0.store(before.wrapping_add(value), Release);
        before
    }
}

/// A word that forgets notes: what is stored as 1 alone.
#[derive(Debug)]
pub(crate) struct WithoutNotes(Newest);

impl AtomicWord for WithoutNotes {
    fn new(value: u64) -> Self {
        Self(Newest::new(value))
    }
    zonal::forward_atomic!(u64, 0: load fetch_add fetch_or fetch_and swap compare_exchange);
    fn store(&self, value: u64, order: Ordering) {
        if value != 1 {
            self.0.store(value, order);
        }
    }
}
