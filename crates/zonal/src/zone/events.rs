//! What a zone counts.

use crate::types::migrate_type::NR_CACHED_TYPES;

/// Counters kept under the zone lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ZoneEvents {
    /// Pageblocks claimed for another migrate type.
    pub claimed: u64,
    /// Blocks stolen from a pageblock that keeps its migrate type.
    pub stolen: u64,
    /// Frames handed out past the per-CPU caches.
    pub direct_alloc: u64,
    /// Frames given back past the per-CPU caches.
    pub direct_free: u64,
    /// Frames that a cache gave back but that were not in the cached state: copies left by
    /// two frees of one frame at the same instant.
    pub refused: u64,
    /// Clusters cut off an order-0 list (see [`policy::cluster`](crate::zone::lists::clusters)).
    pub cluster_cuts: u64,
    /// Batches that went in as one cluster.
    pub cluster_joins: u64,
    /// Times a CPU waited, lock in hand, for frames that another was cutting off.
    pub cluster_waits: u64,
    /// Merge-skipped frames that a scanner merged.
    pub skip_merged: u64,
    /// Batches that linked per-CPU lists gave back.
    pub free_batches: u64,
    /// Of those, the full ones of a single migrate type, by type.
    pub single_type: [u64; NR_CACHED_TYPES],
    /// Work per lock hold (list operations and frames scanned): how many holds had fewer
    /// than 1, 2, 4, … 2048 of it, or more.
    pub holds: [u64; 13],
    /// The most work in one hold.
    pub hold_max: u32,
}

impl ZoneEvents {
    pub(crate) const NONE: Self = Self {
        claimed: 0,
        stolen: 0,
        direct_alloc: 0,
        direct_free: 0,
        refused: 0,
        cluster_cuts: 0,
        cluster_joins: 0,
        cluster_waits: 0,
        skip_merged: 0,
        free_batches: 0,
        single_type: [0; NR_CACHED_TYPES],
        holds: [0; 13],
        hold_max: 0,
    };

    /// Counts a hold of so much work.
    #[inline]
    pub(crate) fn hold(&mut self, work: u32) {
        let bucket = (u32::BITS - work.leading_zeros()).min(12);
        self.holds[bucket as usize] += 1;
        self.hold_max = self.hold_max.max(work);
    }
}
