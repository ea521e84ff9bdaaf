//! When a frame that goes back to the buddy lists is merged.
//!
//! ```
//! use zonal::policy::merge::{Always, Merge, SkipSingles};
//! use zonal::Order;
//! assert!(SkipSingles::defers(Order::ZERO) && !SkipSingles::defers(Order::HUGE));
//! assert!(!Always::defers(Order::ZERO));
//! ```

use crate::types::units::Order;

/// A merge policy.
pub trait Merge: Send + Sync + 'static {
    /// Whether single frames may go on their list without a look at their buddy, marked
    /// merge-skipped (I-5).
    const SKIPS: bool;
    /// Whether the states of single frames' buddies are [prefetched](crate::platform::Platform::prefetch)
    /// before the zone lock is taken to free a batch, unless their merging will be skipped.
    const PREFETCHES: bool = false;
    /// Whether a free block of `order` may have a free buddy (I-5).
    #[must_use]
    fn defers(order: Order) -> bool {
        Self::SKIPS && order == Order::ZERO
    }
}

/// Every frame is merged by itself when it reaches the buddy lists (Linux up to 4.16, and 6.3).
#[derive(Clone, Copy, Debug)]
pub struct Always;

impl Merge for Always {
    const SKIPS: bool = false;
}

/// As [`Always`], and a batch's buddies are prefetched before the lock is taken.
///
/// - Source: the base of Lu's series of 2018, a 4.16 that has the prefetch of 4.17 already: patch 2
///   edits it.
/// - State: none.
/// - Tests: `a_prefetch_takes_the_wait_out_of_the_hold` of the simulator, `the_base_of_2018_prefetches_buddies` of the testkit.
#[derive(Clone, Copy, Debug)]
pub struct Prefetched;

impl Merge for Prefetched {
    const SKIPS: bool = false;
    const PREFETCHES: bool = true;
}

/// Single frames are not merged when they are freed: they go to the head of their list, marked
/// merge-skipped, and merge when compaction's scanner meets them, or when their buddy merges.
///
/// - Source: Lu 2018, patch 2, on Linux 4.16.
/// - Merging is not skipped from an attempt at compaction that is considered, made or put off, until
///   one is put off anew or brings the block: by the source's test, `compact_considered`, which each new
///   back-off resets. The first attempt of all counts; one for an order that was had already does
///   not, until that fails. Nor while clusters are disabled (a CPU is scanning for large blocks; compaction disables them
///   only where there are any, as patch 3 does, and goes on skipping otherwise, as patch 2 does).
/// - The scanner loses sight of a frame that merged with what lies before it: that frame is inside
///   a block then and looks like one that stays. As in the source, asynchronous compaction leaves
///   the rest of the aligned block of the wanted order there (of the pageblock, if that is
///   smaller): of 512 free frames four are merged in a pass. Synchronous compaction goes on.
/// - State: the mark is a value of the state byte; the count is the free area's. Both under the
///   zone lock.
/// - Costs high orders dear: nothing merges until compaction comes by.
/// - Counters: `merge_skipped` in `zone_info`, `skip_merged` in the zone's events.
/// - Tests: `clusters.rs`, the suites; I-5 is checked frame by frame.
#[derive(Clone, Copy, Debug)]
pub struct SkipSingles;

impl Merge for SkipSingles {
    const SKIPS: bool = true;
    const PREFETCHES: bool = true;
}
