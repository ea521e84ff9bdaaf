//! One CPU's cache of one zone, with its counters: what a slot guards.
//!
//! ```
//! use zonal::{PerCpuPages, preset::Zonal};
//! let cache = PerCpuPages::<Zonal>::new();
//! assert_eq!(cache.events().alloc, 0);
//! ```

use crate::policy::PcpPolicy;
use crate::policy::{Dirty, Policy, Walk};

/// Counters of one CPU and zone, plain numbers guarded by the slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CpuEvents {
    /// Frames handed out, worked out from the other counts: what came into the cache has gone
    /// out of it or is still there.
    pub alloc: u64,
    /// Frames given back.
    pub free: u64,
    /// Frames that came from the zone.
    pub filled: u64,
    /// Frames that went back there.
    pub shed: u64,
    /// Times the cache was filled.
    pub refills: u64,
    /// Times the cache gave a batch away because it was full.
    pub spills: u64,
    /// Times a drain emptied the cache.
    pub drains: u64,
    /// Of the frames given back, those that came in lists (`free_bulk`).
    pub bulk_frames: u64,
    /// Times the cache was entered for them.
    pub bulk_entries: u64,
}

impl CpuEvents {
    /// The sum of two.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            alloc: self.alloc + other.alloc,
            free: self.free + other.free,
            filled: self.filled + other.filled,
            shed: self.shed + other.shed,
            refills: self.refills + other.refills,
            spills: self.spills + other.spills,
            drains: self.drains + other.drains,
            bulk_frames: self.bulk_frames + other.bulk_frames,
            bulk_entries: self.bulk_entries + other.bulk_entries,
        }
    }
}

/// One CPU's cache of one zone.
#[derive(Debug)]
pub struct PerCpuPages<S: Policy> {
    pub(crate) cache: <S::Pcp as PcpPolicy<S::Free>>::Cpu,
    pub(crate) events: CpuEvents,
    pub(crate) walk: <S::Walk as Walk>::Cpu,
    pub(crate) dirty: <S::Dirty as Dirty>::Cpu,
}

impl<S: Policy> PerCpuPages<S> {
    /// An empty cache.
    #[must_use]
    pub fn new() -> Self {
        Self {
            cache: S::Pcp::new_cpu(),
            walk: S::Walk::new_cpu(),
            dirty: S::Dirty::new_cpu(),
            events: CpuEvents {
                alloc: 0,
                free: 0,
                filled: 0,
                shed: 0,
                refills: 0,
                spills: 0,
                drains: 0,
                bulk_frames: 0,
                bulk_entries: 0,
            },
        }
    }

    /// Its counters. O(frames cached) at worst.
    #[must_use]
    pub fn events(&self) -> CpuEvents {
        let CpuEvents { free, filled, shed, .. } = self.events;
        let cached = S::Pcp::cached(&self.cache);
        CpuEvents { alloc: (filled + free).saturating_sub(shed + cached), ..self.events }
    }

    /// Books frames of a list that were given back in this entry; an entry that came to nothing
    /// is not counted, as a refused free changes nothing (I-4).
    #[inline(always)]
    pub(crate) fn freed_bulk(&mut self, frames: u64) {
        self.events.free += frames;
        self.events.bulk_frames += frames;
        self.events.bulk_entries += u64::from(frames > 0);
    }

    /// Frames in it. O(1), or O(orders that are cached).
    pub(crate) fn cached(&self) -> u64 {
        S::Pcp::cached(&self.cache)
    }

    /// Books what came from elsewhere or went there since it had `before` frames, while none was
    /// handed out or taken back.
    pub(crate) fn book(&mut self, before: u64) {
        let after = self.cached();
        self.events.filled += after.saturating_sub(before);
        self.events.shed += before.saturating_sub(after);
    }
}

impl<S: Policy> Default for PerCpuPages<S> {
    fn default() -> Self {
        Self::new()
    }
}
