//! The dirty limit of Linux 3.16: worked out for every page.
//!
//! - Source: Linux 3.16-rc1, the base of Gorman's series of 2014, patch 4.
//! - Mechanism: a zone may have a percentage of the memory dirty that could be, free frames
//!   and page cache less what it keeps back; where the limit is in bytes, the zone has its share
//!   of them. A request that asks looks at six counts or more. If no zone will do, reclaim is woken
//!   and the limit no longer looked at.
//! - State: counts of pages, each with the CPUs' differences; relaxed, hints.
//! - Conflicts: none.
//! - Counters: `nr_dirty` and the like in `zoneinfo`.
//! - Tests: `tests/dirty.rs`, the suites.

use super::{Dirty, with_quarter};
use crate::boot::tuning::Tuning;
use crate::platform::Platform;
use crate::policy::dirty::counts::{CpuPageStates, PageStates};
use crate::types::page_state::PageState;

/// Worked out for every page.
#[derive(Clone, Copy, Debug)]
pub struct Exact;

impl Dirty for Exact {
    const LIMITS: bool = true;
    const SECOND_PASS: bool = false;
    type Zone<P: Platform> = PageStates<P>;
    type Cpu = CpuPageStates;

    fn new_zone<P: Platform>() -> PageStates<P> {
        PageStates::new()
    }

    fn new_cpu() -> CpuPageStates {
        CpuPageStates::new()
    }

    fn tune_cpu(cpu: &mut CpuPageStates, tuning: Tuning) {
        cpu.tune(tuning);
    }

    fn states<P: Platform>(zone: &PageStates<P>) -> Option<&PageStates<P>> {
        Some(zone)
    }

    fn count(cpu: &mut CpuPageStates, state: PageState, change: i32) -> Option<i64> {
        cpu.count(state, change)
    }

    #[inline]
    fn within_limit<P: Platform>(
        _: &PageStates<P>,
        less_throttled: bool,
        dirty: impl Fn() -> u64,
        limit: impl Fn() -> u64,
    ) -> bool {
        dirty() <= with_quarter(limit(), less_throttled)
    }
}
