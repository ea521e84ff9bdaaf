//! When the frames of a batch that goes back to the buddy lists are merged.
//!
//! ```
//! use zonal::policy::merge::{Always, Lazy, Merge};
//! use zonal::Order;
//! let mut batch = [7, 4, 6, 5];
//! Lazy::arrange(&mut batch);
//! assert_eq!(Lazy::block(&batch, Order::HUGE).frames(), 4, "one block of order 2");
//! assert_eq!(Always::block(&batch, Order::HUGE).frames(), 1, "one by one");
//! ```

use crate::types::units::{ORDERS, Order};

/// A merge policy. Frames are named by their index in the frame table. By default each frame
/// goes back by itself.
pub trait Merge: Send + Sync + 'static {
    /// Orders a batch before it goes back. By default it stays as it is.
    #[inline]
    fn arrange(batch: &mut [u32]) {
        let _ = batch;
    }
    /// The largest block that starts at the first frame of `batch`, stands in it whole, and
    /// is no larger than a pageblock. By default that frame alone.
    #[must_use]
    #[inline]
    fn block(batch: &[u32], pageblock: Order) -> Order {
        let _ = (batch, pageblock);
        Order::ZERO
    }
    /// Whether single frames may go on their list without a look at their buddy, marked
    /// merge-skipped (I-5).
    const SKIPS: bool;
    /// Whether a free block of `order` may have a free buddy (I-5).
    #[must_use]
    fn defers(order: Order) -> bool {
        Self::SKIPS && order == Order::ZERO
    }
}

/// Every frame is merged by itself when it reaches the buddy lists (Linux 4.16).
#[derive(Clone, Copy, Debug)]
pub struct Always;

impl Merge for Always {
    const SKIPS: bool = false;
}

/// Single frames are not merged when they are freed: they go to the head of their list, marked
/// merge-skipped, and merge when compaction's scanner meets them, or when their buddy merges.
///
/// - Source: Lu 2018, patch 2, on Linux 4.16.
/// - Merging is not skipped while compaction backs off in the zone (it failed there), nor
///   while clusters are disabled (a CPU is scanning for large blocks; compaction disables them
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
}

/// Merging waits until a cluster leaves the depot; then the batch is sorted by pfn, runs that
/// form whole blocks are put together before the zone lock is taken, and only those blocks
/// look for their buddies. Sorting costs O(n log n) outside every lock.
#[derive(Clone, Copy, Debug)]
pub struct Lazy;

impl Merge for Lazy {
    const SKIPS: bool = false;
    fn arrange(batch: &mut [u32]) {
        batch.sort_unstable();
    }

    fn block(batch: &[u32], pageblock: Order) -> Order {
        let Some(&first) = batch.first() else { return Order::ZERO };
        let whole = |order: &Order| {
            let frames = order.frames() as u32;
            let last = batch.get(frames as usize - 1);
            first & (frames - 1) == 0 && last.is_some_and(|&last| last - first == frames - 1)
        };
        let larger = ORDERS[1..=pageblock.index()].iter().take_while(|order| whole(order));
        larger.last().copied().unwrap_or(Order::ZERO)
    }
}
