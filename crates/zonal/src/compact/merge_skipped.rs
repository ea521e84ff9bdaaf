//! Making up for skipped merges, for those who ask for all memory to be merged.

use crate::alloc::allocator::Allocator;
use crate::frame::FrameState;
use crate::platform::Platform;
use crate::policy::FreeMemory;
use crate::policy::Policy;
use crate::policy::zone::Zone;

/// Frames merged in one lock hold.
const MERGES_PER_HOLD: u32 = 64;

impl<P: Platform, S: Policy> Allocator<'_, P, S> {
    /// Merges every merge-skipped frame of the zone whose buddy is free; returns how many.
    /// Looks at every state byte of the zone, without the lock; what it finds is looked at
    /// again with it. Nothing at all under presets that skip no merge.
    pub(crate) fn merge_skipped(&self, zone: &Zone<P, S>) -> u64 {
        let mut merged = 0;
        if !S::Free::SKIPS_MERGES {
            return merged;
        }
        let (table, (start, end)) = (&self.table, zone.span());
        let is_skipped = |index: u32| table.get_state(index) == Some(FrameState::MERGE_SKIPPED);
        // Not by the map: it does not know what was released.
        for part in self.by_pageblock(&(start..end)) {
            if table.pageblock(part.start).zone() != Some(zone.id) {
                continue;
            }
            let (mut at, end) = (part.start, part.end);
            while let Some(first) = (at..end).find(|&index| is_skipped(index)) {
                let last = end.min(first.saturating_add(MERGES_PER_HOLD));
                merged += u64::from(S::Free::merge_at(self.view(zone), first..last));
                at = last;
            }
        }
        merged
    }
}
