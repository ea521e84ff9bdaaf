//! The dirty limit as it was the last time that it mattered.
//!
//! - Source: Gorman 2014, patch 4.
//! - Mechanism: as [`Exact`](super::Exact), but the limit is remembered. It is worked out again
//!   when a zone is over it, for the next request, and by every request that has a quarter more.
//!   If no zone is within its limit, those above the low watermark are tried without it.
//! - State: one more word a zone; relaxed, a hint that may be out of date.
//! - Conflicts: none. The first request of all finds no limit worked out, and goes elsewhere.
//! - Counters: as [`Exact`](super::Exact), and `zonal_dirty_limit` in `zoneinfo`.
//! - Tests: `tests/dirty.rs`, the suites.

use super::{Dirty, with_quarter};
use crate::boot::tuning::Tuning;
use crate::platform::{AtomicWord, Platform};
use crate::policy::dirty::counts::{CpuPageStates, PageStates};
use crate::types::page_state::PageState;
use core::sync::atomic::Ordering::Relaxed;

/// Remembered from the last time that a zone was over it.
#[derive(Clone, Copy, Debug)]
pub struct Cached;

/// A zone's counts and its limit.
#[derive(Debug)]
pub struct CachedLimit<P: Platform> {
    limit: P::Word,
    states: PageStates<P>,
}

impl Dirty for Cached {
    const LIMITS: bool = true;
    const SECOND_PASS: bool = true;
    type Zone<P: Platform> = CachedLimit<P>;
    type Cpu = CpuPageStates;

    fn new_zone<P: Platform>() -> CachedLimit<P> {
        CachedLimit { limit: P::Word::new(0), states: PageStates::new() }
    }

    fn new_cpu() -> CpuPageStates {
        CpuPageStates::new()
    }

    fn tune_cpu(cpu: &mut CpuPageStates, tuning: Tuning) {
        cpu.tune(tuning);
    }

    fn states<P: Platform>(zone: &CachedLimit<P>) -> Option<&PageStates<P>> {
        Some(&zone.states)
    }

    fn remembered<P: Platform>(zone: &CachedLimit<P>) -> Option<u64> {
        Some(zone.limit.load(Relaxed))
    }

    fn count(cpu: &mut CpuPageStates, state: PageState, change: i32) -> Option<i64> {
        cpu.count(state, change)
    }

    #[inline]
    fn within_limit<P: Platform>(
        zone: &CachedLimit<P>,
        less_throttled: bool,
        dirty: impl Fn() -> u64,
        limit: impl Fn() -> u64,
    ) -> bool {
        if less_throttled {
            return dirty() <= with_quarter(zone.remember(limit()), true);
        }
        dirty() <= zone.limit.load(Relaxed)
    }

    fn passed_over<P: Platform>(zone: &CachedLimit<P>, limit: impl Fn() -> u64) {
        zone.remember(limit());
    }
}

impl<P: Platform> CachedLimit<P> {
    fn remember(&self, limit: u64) -> u64 {
        self.limit.store(limit, Relaxed);
        limit
    }
}
