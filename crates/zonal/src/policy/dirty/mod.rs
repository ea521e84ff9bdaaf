//! Which zones a page that will be dirtied may come from.
//!
//! A page that is written has to go to the disk before its frame can be had again, so a request
//! for one ([`Request::write`](crate::Request::write)) passes over zones that have their share of
//! such pages, a part of the memory that could be dirty there. The host counts: see
//! [`Allocator::mod_page_state`](crate::Allocator::mod_page_state).
//!
//! | policy | the limit | when every zone is over it |
//! |---|---|---|
//! | [`Unlimited`] | none, and nothing is counted | |
//! | [`Exact`] | worked out for every request | reclaim is woken, then it is not looked at |
//! | [`Cached`] | as of the last time a zone was over it | the zones above low are tried without it |
//!
//! ```
//! use zonal::policy::{Policy, dirty::{Cached, Exact}};
//! use zonal::preset::{LessDirty, Linux316};
//! fn limits<D, S: Policy<Dirty = D>>() {}
//! limits::<Exact, Linux316>();
//! limits::<Cached, LessDirty>();
//! ```

mod cached;
pub(crate) mod counts;
mod exact;

pub use cached::{Cached, CachedLimit};
pub use exact::Exact;

use crate::boot::tuning::Tuning;
use crate::platform::Platform;
use crate::policy::dirty::counts::PageStates;
use crate::types::page_state::PageState;
use core::fmt;

/// A dirty policy.
pub trait Dirty: Send + Sync + 'static {
    /// Whether requests for pages that will be written are checked at all.
    const LIMITS: bool;
    /// Whether the zones are tried again above the low watermark, without a limit, before
    /// reclaim is woken.
    const SECOND_PASS: bool;
    /// Kept for each zone instance.
    type Zone<P: Platform>: Send + Sync;
    /// Kept for each CPU and zone, guarded by the CPU's slot.
    type Cpu: Send + fmt::Debug;

    /// A zone's part.
    fn new_zone<P: Platform>() -> Self::Zone<P>;
    /// A CPU's part, before it is tuned.
    fn new_cpu() -> Self::Cpu;
    /// Sets how far a CPU may be from the shared counts.
    fn tune_cpu(cpu: &mut Self::Cpu, tuning: Tuning);
    /// The zone's counts of pages, if they are kept.
    fn states<P: Platform>(zone: &Self::Zone<P>) -> Option<&PageStates<P>>;
    /// The limit that the policy remembers, if it does.
    fn remembered<P: Platform>(zone: &Self::Zone<P>) -> Option<u64> {
        let _ = zone;
        None
    }
    /// Counts in a CPU's part; returns what is to be added to the zone's counts now.
    fn count(cpu: &mut Self::Cpu, state: PageState, change: i32) -> Option<i64>;
    /// Whether one more page may be dirtied in the zone.
    ///
    /// `dirty` counts the pages that are dirty, on their way to the disk, or written there and
    /// not yet safe; `limit` works out how many may be, which costs a look at every count that
    /// says how much memory could. A request that is `less_throttled` has a quarter more.
    fn within_limit<P: Platform>(
        zone: &Self::Zone<P>,
        less_throttled: bool,
        dirty: impl Fn() -> u64,
        limit: impl Fn() -> u64,
    ) -> bool;
    /// A request went on to the next zone because of the limit.
    fn passed_over<P: Platform>(zone: &Self::Zone<P>, limit: impl Fn() -> u64) {
        let _ = (zone, limit);
    }
}

/// No zone has a limit.
#[derive(Clone, Copy, Debug)]
pub struct Unlimited;

impl Dirty for Unlimited {
    const LIMITS: bool = false;
    const SECOND_PASS: bool = false;
    type Zone<P: Platform> = ();
    type Cpu = ();

    fn new_zone<P: Platform>() {}
    fn new_cpu() {}
    fn tune_cpu((): &mut (), _: Tuning) {}
    fn states<P: Platform>((): &()) -> Option<&PageStates<P>> {
        None
    }
    fn count((): &mut (), _: PageState, _: i32) -> Option<i64> {
        None
    }
    #[inline(always)]
    fn within_limit<P: Platform>(
        (): &(),
        _: bool,
        _: impl Fn() -> u64,
        _: impl Fn() -> u64,
    ) -> bool {
        true
    }
}

/// A quarter more, for those who must get on.
const fn with_quarter(limit: u64, more: bool) -> u64 {
    if more { limit + limit / 4 } else { limit }
}
