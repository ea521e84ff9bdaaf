//! The words of clusters in the caller's memory.

use crate::platform::{AtomicWord, Platform};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// The words of the presets whose order-0 lists have clusters; empty with the others.
#[derive(Debug)]
pub struct ClusterWords<'a, P: Platform> {
    /// Zone by zone: `in_progress`, bitmap, entries.
    pub(in crate::zone::lists) cluster_array: &'a [P::Word],
    /// For each frame its cluster's number + 1, or 0. Read and written under the lock of the frame's
    /// zone. 0 for a frame that is on no order-0 list, but while it is being cut off.
    pub(in crate::zone::lists) cluster_of: &'a [P::Word],
}

impl<P: Platform> Clone for ClusterWords<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: Platform> Copy for ClusterWords<'_, P> {}

impl<P: Platform> ClusterWords<'_, P> {
    /// The number of the cluster that a listed frame belongs to.
    #[inline(always)]
    pub(crate) fn cluster_of(self, index: u32) -> Option<u32> {
        let word = self.cluster_of[index as usize].load(Relaxed);
        (word as u32).checked_sub(1)
    }

    #[inline(always)]
    pub(crate) fn set_cluster_of(self, index: u32, number: Option<u32>) {
        let value = number.map_or(0, |number| u64::from(number) + 1);
        self.cluster_of[index as usize].store(value, Relaxed);
    }

    /// A word of a zone's array. Under the zone lock.
    #[inline(always)]
    pub(crate) fn cluster_word(self, at: u64) -> u64 {
        self.cluster_array[at as usize].load(Relaxed)
    }

    #[inline(always)]
    pub(crate) fn set_cluster_word(self, at: u64, value: u64) {
        self.cluster_array[at as usize].store(value, Relaxed);
    }

    /// Marks an entry as in use. A locked instruction, as in the source, though the zone lock is held.
    #[inline(always)]
    pub(crate) fn set_used(self, at: u64, bit: u64) {
        self.cluster_array[at as usize].fetch_or(bit, Relaxed);
    }

    /// Marks an entry as free, likewise.
    #[inline(always)]
    pub(crate) fn clear_used(self, at: u64, bit: u64) {
        self.cluster_array[at as usize].fetch_and(!bit, Relaxed);
    }

    /// Under the zone lock, which orders it for those who look under the lock.
    pub(crate) fn begin_cutting(self, at: u64) {
        self.cluster_array[at as usize].fetch_add(1, Relaxed);
    }

    /// Release, with the acquire of [`is_cutting`](Self::is_cutting): the states written
    /// meanwhile are seen by a CPU that sees that it has ended.
    pub(crate) fn end_cutting(self, at: u64) {
        self.cluster_array[at as usize].fetch_add(u64::MAX, Release);
    }

    pub(crate) fn is_cutting(self, at: u64) -> bool {
        self.cluster_array[at as usize].load(Acquire) > 0
    }
}
