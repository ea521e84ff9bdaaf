//! Making large blocks by moving what is in their way.

use super::Arena;
use crate::alarm::Alarm;
use std::sync::Arc;
use zonal::compact::{CompactMode, CompactOutcome};
use zonal::policy::Policy;
use zonal::{Order, ZoneId};

impl<S: Policy> Arena<S> {
    /// Sees to a free block of `order` in every zone: drains and merges, and where that does
    /// not do it, has the [pager](crate::pager) move pages. Waits for the pager, as far as that
    /// waits; costs up to O(frames) and as many calls of the pager. Meanwhile others that want
    /// large blocks of the same zone wait, for some milliseconds at most.
    ///
    /// Requests do the same for themselves, and a [compactor](crate::compactor) in the
    /// background; this is for the moment before many large blocks are wanted.
    ///
    /// Returns [`Success`](CompactOutcome::Success) if there is such a block in one zone at
    /// least; otherwise what came of the zone in which most was tried.
    pub fn compact(&self, order: Order) -> CompactOutcome {
        let zones = (0..self.zone_count()).map(|zone| ZoneId(zone as u8));
        let outcomes = zones.map(|zone| self.inner().compact_zone(zone, order, CompactMode::Sync));
        // Not cut short at the first success: every zone gets its block.
        outcomes.max_by_key(|&outcome| effort(outcome)).unwrap_or(CompactOutcome::Unavailable)
    }

    /// See [`zonal::Allocator::compact_in_background`].
    pub(crate) fn compact_in_background(&self, order: Order) -> CompactOutcome {
        self.inner().compact_in_background(order)
    }

    /// What wakes the arena's compactor.
    pub(crate) fn alarm(&self) -> Arc<Alarm> {
        self.inner().platform().alarm.get_or_init(Arc::default).clone()
    }
}

/// How much an outcome says of what was tried.
const fn effort(outcome: CompactOutcome) -> u8 {
    match outcome {
        CompactOutcome::Unavailable => 0,
        CompactOutcome::NotSuitable => 1,
        CompactOutcome::BackedOff => 2,
        CompactOutcome::Contended => 3,
        CompactOutcome::PartialSkipped => 4,
        CompactOutcome::Complete => 5,
        CompactOutcome::Success => 6,
    }
}
