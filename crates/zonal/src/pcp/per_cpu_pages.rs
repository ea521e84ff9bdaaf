//! One CPU's cache of one zone, with its counters: what a slot guards.
//!
//! ```
//! use zonal::{PerCpuPages, preset::Zonal};
//! let cache = PerCpuPages::<Zonal>::new();
//! assert!(size_of_val(&cache) <= 512, "the frames themselves lie outside the slot");
//! ```

use crate::platform::{Platform, Slot};
use crate::policy::PcpPolicy;
use crate::policy::{Dirty, Policy, Walk};
use core::ops::{Deref, DerefMut};

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
}

impl<S: Policy> Default for PerCpuPages<S> {
    fn default() -> Self {
        Self::new()
    }
}

/// What of one CPU's cache of one zone its owner reaches outside the slot.
pub struct OutsideSlot<P: Platform, S: Policy>(pub(crate) OutsideOf<P, S>);

impl<P: Platform, S: Policy> OutsideSlot<P, S> {
    /// That of an empty cache.
    #[must_use]
    pub fn new() -> Self {
        Self(S::Pcp::new_outside())
    }
}

impl<P: Platform, S: Policy> Default for OutsideSlot<P, S> {
    fn default() -> Self {
        Self::new()
    }
}

/// What a preset keeps of a zone for a CPU, guarded by its slot.
type CpuOf<S> = <<S as Policy>::Pcp as PcpPolicy<<S as Policy>::Free>>::Cpu;
/// And outside the slot.
pub(crate) type OutsideOf<P, S> =
    <<S as Policy>::Pcp as PcpPolicy<<S as Policy>::Free>>::Outside<P>;
/// And what an owner remembers of a pageblock.
pub(crate) type WindowOf<'m, P, S> =
    <<S as Policy>::Pcp as PcpPolicy<<S as Policy>::Free>>::Window<'m, P>;
/// And where its larger blocks pass.
pub(crate) type PassageOf<'m, P, S> =
    <<S as Policy>::Pcp as PcpPolicy<<S as Policy>::Free>>::Passage<'m, P>;

/// Caches of several CPUs and zones, both parts.
pub(crate) struct Caches<'m, P: Platform, S: Policy> {
    pub(crate) slots: &'m [P::Slot<PerCpuPages<S>>],
    pub(crate) outside: &'m [OutsideSlot<P, S>],
}

impl<P: Platform, S: Policy> Clone for Caches<'_, P, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: Platform, S: Policy> Copy for Caches<'_, P, S> {}

impl<'m, P: Platform, S: Policy> Caches<'m, P, S> {
    /// One of them.
    #[inline(always)]
    pub(crate) fn get(&self, at: usize) -> Option<Cache<'m, P, S>> {
        Some(Cache { slot: self.slots.get(at)?, out: self.outside.get(at)? })
    }

    /// All of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Cache<'m, P, S>> {
        self.slots.iter().zip(self.outside).map(|(slot, out)| Cache { slot, out })
    }

    /// Those of a CPU, of which each has `zones`.
    pub(crate) fn of_cpu(&self, cpu: usize, zones: usize) -> Option<Self> {
        let slots = self.slots.chunks(zones).nth(cpu)?;
        Some(Self { slots, outside: self.outside.chunks(zones).nth(cpu)? })
    }
}

/// Both parts of a cache, for those who are not its owner.
pub(crate) struct Cache<'a, P: Platform, S: Policy> {
    slot: &'a P::Slot<PerCpuPages<S>>,
    out: &'a OutsideSlot<P, S>,
}

impl<'a, P: Platform, S: Policy> Cache<'a, P, S> {
    /// As [`Slot::try_with`].
    #[inline(always)]
    pub(crate) fn try_with<R>(self, f: impl FnOnce(&mut InSlot<'_, P, S>) -> R) -> Option<R> {
        self.slot.try_with(|own| f(&mut InSlot::new(own, self.out)))
    }

    /// As [`Slot::with`].
    pub(crate) fn with<R>(self, f: impl FnOnce(&mut InSlot<'_, P, S>) -> R) -> R {
        self.slot.with(|own| f(&mut InSlot::new(own, self.out)))
    }

    /// As [`Slot::reach`].
    pub(crate) fn reach<R>(self, f: impl FnOnce(&mut InSlot<'_, P, S>) -> R) -> Option<R> {
        self.slot.reach(|own| f(&mut InSlot::new(own, self.out)))
    }
}

/// Both parts, for who is in the slot.
pub(crate) struct InSlot<'a, P: Platform, S: Policy> {
    own: &'a mut PerCpuPages<S>,
    out: &'a OutsideSlot<P, S>,
}

impl<P: Platform, S: Policy> Deref for InSlot<'_, P, S> {
    type Target = PerCpuPages<S>;

    #[inline(always)]
    fn deref(&self) -> &PerCpuPages<S> {
        self.own
    }
}

impl<P: Platform, S: Policy> DerefMut for InSlot<'_, P, S> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut PerCpuPages<S> {
        self.own
    }
}

impl<'a, P: Platform, S: Policy> InSlot<'a, P, S> {
    #[inline(always)]
    pub(crate) fn new(own: &'a mut PerCpuPages<S>, out: &'a OutsideSlot<P, S>) -> Self {
        Self { own, out }
    }

    /// The same for a function that is not inlined: in registers, so that what called it need not have it
    /// in memory.
    #[inline(always)]
    pub(crate) fn reborrow(&mut self) -> InSlot<'_, P, S> {
        InSlot { own: self.own, out: self.out }
    }

    /// The guarded part and the other of what the policy keeps.
    #[inline(always)]
    pub(crate) fn parts(&mut self) -> (&mut CpuOf<S>, &'a OutsideOf<P, S>) {
        (&mut self.own.cache, &self.out.0)
    }

    /// Its counters. O(frames cached) at worst. Snapshots while an owner is about.
    #[must_use]
    pub(crate) fn events(&self) -> CpuEvents {
        let outside = S::Pcp::passed_outside(&self.own.cache, &self.out.0);
        let free = self.events.free + outside.freed;
        let (filled, shed) = (self.events.filled + outside.filled, self.events.shed + outside.shed);
        let alloc = (filled + free).saturating_sub(shed + self.cached());
        CpuEvents { alloc, free, filled, shed, ..self.events }
    }

    /// Books frames of a list that were given back in this entry; an entry that came to nothing
    /// is not counted, as a refused free changes nothing (I-4).
    #[inline(always)]
    pub(crate) fn freed_bulk(&mut self, frames: u64) {
        self.kept_of_list(frames);
        self.events.bulk_entries += u64::from(frames > 0);
    }

    /// The part of [`freed_bulk`](Self::freed_bulk) that counts frames.
    #[inline(always)]
    pub(crate) fn kept_of_list(&mut self, frames: u64) {
        self.events.free += frames;
        self.events.bulk_frames += frames;
    }

    /// Frames in it. O(1), or O(orders that are cached).
    pub(crate) fn cached(&self) -> u64 {
        S::Pcp::cached(&self.own.cache, &self.out.0)
    }

    /// [Books](Self::book) what comes and goes until it is dropped, by a panic too.
    #[inline]
    pub(crate) fn booking(&mut self) -> Booking<'_, 'a, P, S> {
        let before = self.cached();
        Booking { pages: self, before }
    }

    /// Books what came from elsewhere or went there since it had `before` frames, while none was
    /// handed out or taken back.
    pub(crate) fn book(&mut self, before: u64) {
        let after = self.cached();
        self.events.filled += after.saturating_sub(before);
        self.events.shed += before.saturating_sub(after);
    }
}

/// What is in a slot, while it is filled.
pub(crate) struct Booking<'b, 'a, P: Platform, S: Policy> {
    pages: &'b mut InSlot<'a, P, S>,
    before: u64,
}

impl<'a, P: Platform, S: Policy> Booking<'_, 'a, P, S> {
    #[inline(always)]
    pub(crate) fn pages(&mut self) -> &mut InSlot<'a, P, S> {
        self.pages
    }
}

impl<P: Platform, S: Policy> Drop for Booking<'_, '_, P, S> {
    #[inline]
    fn drop(&mut self) {
        self.pages.book(self.before);
    }
}
