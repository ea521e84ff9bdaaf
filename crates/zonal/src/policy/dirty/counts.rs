//! How many of a zone's pages are page cache, dirty, on their way to the disk.

use crate::boot::tuning::Tuning;
use crate::platform::{AtomicWord, Platform};
use crate::policy::cpu_delta::{CpuDelta, threshold};
use crate::types::page_state::{NR_PAGE_STATES, PageState};
use core::sync::atomic::Ordering::Relaxed;

/// A zone's counts of pages, as far as the CPUs have told.
#[derive(Debug)]
pub struct PageStates<P: Platform>([P::Word; NR_PAGE_STATES]);

impl<P: Platform> PageStates<P> {
    pub(crate) fn new() -> Self {
        Self(P::Word::zeros())
    }

    /// Pages in a state. Not below zero, though a CPU that has not told may make the sum so.
    #[inline]
    pub(crate) fn get(&self, state: PageState) -> u64 {
        self.0[state as usize].load(Relaxed).cast_signed().max(0).cast_unsigned()
    }

    pub(crate) fn add(&self, state: PageState, change: i64) {
        self.0[state as usize].fetch_add(change.cast_unsigned(), Relaxed);
    }

    pub(crate) fn sum<const N: usize>(&self, states: [PageState; N]) -> u64 {
        states.iter().map(|&state| self.get(state)).sum()
    }
}

/// What a CPU has counted in a zone and not told yet.
#[derive(Debug)]
pub struct CpuPageStates {
    deltas: [CpuDelta; NR_PAGE_STATES],
    threshold: i32,
}

impl CpuPageStates {
    pub(crate) const fn new() -> Self {
        Self { deltas: [CpuDelta::ZERO; NR_PAGE_STATES], threshold: 1 }
    }

    pub(crate) fn tune(&mut self, tuning: Tuning) {
        self.threshold = threshold(tuning);
    }

    pub(crate) const fn count(&mut self, state: PageState, change: i32) -> Option<i64> {
        self.deltas[state as usize].add(change, self.threshold)
    }
}
