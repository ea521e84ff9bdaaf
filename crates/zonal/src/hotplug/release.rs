//! Handing over the memory that boot needed for a while.

use crate::alloc::allocator::Allocator;
use crate::boot::map::RangeKind;
use crate::platform::{AtomicWord, Platform};
use crate::policy::FreeMemory;
use crate::policy::Policy;
use core::sync::atomic::Ordering::Relaxed;

/// Blocks freed in one lock hold.
const BLOCKS_PER_HOLD: u32 = 64;

impl<P: Platform, S: Policy> Allocator<'_, P, S> {
    /// Makes the memory that the map calls [`ReclaimLater`](RangeKind::ReclaimLater) free, once
    /// it is not in use any more; returns the frames. A second call finds nothing to do.
    /// Watermarks stay as they are.
    pub fn release_reclaim_later(&self) -> u64 {
        // Relaxed: only who comes first matters; the frames go through the zone locks.
        if self.shared.released.compare_exchange(0, 1, Relaxed, Relaxed).is_err() {
            return 0;
        }
        let mut released = 0;
        for zone in self.zones {
            let later =
                self.plan.ranges_of(zone.id).filter(|range| range.kind == RangeKind::ReclaimLater);
            for range in later {
                let Some(start) = self.table.index(range.start) else { continue };
                let end = start + range.frames() as u32;
                let mut at = start;
                while at < end {
                    at = S::Free::free_range(self.view(zone), at, end, BLOCKS_PER_HOLD);
                }
                released += range.frames();
                zone.managed.fetch_add(range.frames(), Relaxed);
            }
        }
        released
    }
}
