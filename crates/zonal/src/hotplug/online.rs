//! Memory that comes and goes while the allocator is in use.
//!
//! What may come is in the memory map from the start
//! ([`RangeKind::Offline`]), and the plan has decided which zone instance it belongs to. A
//! pageblock is there if its word names a zone; the word is written under the lock of that zone,
//! in the hold in which the frames become free (or cease to be anything), so a CPU that finds a
//! frame finds its zone. Sizes, watermarks and reserves are relaxed words: hints for those who look
//! without a lock. One change at a time: `resizing` is taken with acquire and given up with
//! release, so that each starts from what the one before left.

use crate::alloc::allocator::Allocator;
use crate::alloc::host::Host;
use crate::boot::map::{PfnRange, RangeKind};
use crate::platform::{AtomicWord, Platform};
use crate::policy::FreeMemory;
use crate::policy::Policy;
use crate::policy::zone::Zone;
use crate::types::error::{FreeError, OfflineError, OnlineError, RangeError};
use crate::types::units::Pfn;
use core::ops::Range;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// What came online.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Onlined {
    /// How many frames.
    pub frames: u64,
    /// Over how many zone instances.
    pub zones: u32,
}

/// The right to change sizes, until it is dropped.
pub(super) struct Resizing<'a, P: Platform>(&'a P::Word);

impl<'a, P: Platform> Resizing<'a, P> {
    pub(super) fn new(word: &'a P::Word) -> Option<Self> {
        word.compare_exchange(0, 1, Acquire, Relaxed).is_ok().then_some(Self(word))
    }
}

impl<P: Platform> Drop for Resizing<'_, P> {
    fn drop(&mut self) {
        self.0.store(0, Release);
    }
}

impl<'m, P: Host, S: Policy> Allocator<'m, P, S> {
    /// Makes memory usable that has come: whole pageblocks which the memory map calls
    /// [`Offline`](RangeKind::Offline). They join the zone instances that the plan gave them, free
    /// and movable; present and managed frames, watermarks and lowmem reserves of all zones, and
    /// what caches may hold, are what they would be had the memory been there from
    /// the start. Watermarks that were [set](Self::set_watermarks) are forgotten, boosts stay.
    ///
    /// Others may allocate and free meanwhile. The caches of the zones that grow are emptied, so
    /// it must not be called from a platform lock. O(pageblocks that come + cached frames + CPUs).
    ///
    /// # Errors
    /// [`OnlineError`]; then nothing has changed.
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example/mod.rs")); }
    /// use zonal::error::OnlineError;
    /// use zonal::map::{PhysAddr, Region};
    /// use zonal::{Pfn, ZoneId, plan::Config};
    /// let now = Region::usable(PhysAddr(0), 64 << 20);
    /// let later = Region::offline(PhysAddr(64 << 20), 32 << 20);
    /// # use zonal::preset::Zonal;
    /// # example::with_allocator::<Zonal>(&[now, later], Config::new(1), |allocator| {
    /// let managed = |zone| allocator.zone_info(ZoneId(zone)).unwrap().managed;
    /// let later = Pfn::new(0x4000)..Pfn::new(0x6000);
    /// assert_eq!(managed(1), 12288);
    /// let onlined = allocator.online(later.clone()).unwrap();
    /// assert_eq!((onlined.frames, managed(1)), (8192, 20480));
    /// let again = allocator.online(later.clone());
    /// assert_eq!(again, Err(OnlineError::Online { pfn: later.start }));
    /// allocator.offline(later).unwrap();
    /// assert_eq!(managed(1), 12288);
    /// # });
    /// ```
    pub fn online(&self, range: Range<Pfn>) -> Result<Onlined, OnlineError> {
        self.online_with(range, || Ok(0))
    }

    /// As [`online`](Self::online), but when nothing can be in the way of it any more, `before` is called,
    /// to bring what the memory needs, such as the entries of tables. How many frames that took from the start of the range it
    /// returns: they are not the allocator's, neither present nor managed, until they are
    /// [released](Self::release), and the pageblocks that they are in cannot go before that. O(those frames) more.
    ///
    /// `before` may allocate. Memory cannot come, go or be released in it.
    ///
    /// # Errors
    /// As [`online`](Self::online), or what `before` returns; [`RangeError::Empty`] if it leaves no frame.
    pub fn online_with<E: From<OnlineError>>(
        &self,
        range: Range<Pfn>,
        before: impl FnOnce() -> Result<u64, E>,
    ) -> Result<Onlined, E> {
        let frames = self.check_later(&range)?;
        let Some(_resizing) = Resizing::<P>::new(&self.shared.resizing) else {
            return Err(OnlineError::Busy.into());
        };
        let step = self.table.pageblock_order().frames() as usize;
        if let Some(at) = frames.clone().step_by(step).find(|&at| self.is_online_at(at)) {
            return Err(OnlineError::Online { pfn: self.table.pfn(at) }.into());
        }
        let (withheld, count) = (before()?, u64::from(frames.end - frames.start));
        if withheld >= count {
            return Err(OnlineError::from(RangeError::Empty).into());
        }
        let mut onlined = Onlined { frames: count - withheld, zones: 0 };
        // No truncation: fewer than there are.
        let first = frames.start + withheld as u32;
        for zone in self.zones {
            onlined.zones += u32::from(self.parts_later(zone, &range).next().is_some());
            for part in self.parts_later(zone, &range) {
                let rest = self.bring_withheld(zone, part, first);
                self.bring(zone, rest);
            }
        }
        self.settle(|zone| self.parts_later(zone, &range).next().is_some(), |_| true);
        Ok(onlined)
    }

    /// Takes memory away that came by [`online`](Self::online), or a part of it: has the host move
    /// what is in it, as [`alloc_range`](Self::alloc_range) does, and takes the frames. Then they
    /// are no frames of any zone until they come again, and sizes, watermarks, reserves and caches
    /// are as if they had never come. The range lies in one zone type of one node.
    ///
    /// Others may allocate and free meanwhile; must not be called where a request could not wait.
    /// What the plan counted on from the start stays: that was enough for what is to be kept free.
    ///
    /// # Errors
    /// [`OfflineError`]; then no caller has lost or gained a frame, but blocks may have been moved.
    pub fn offline(&self, range: Range<Pfn>) -> Result<(), OfflineError> {
        let frames = self.check_later(&range)?;
        let Some(_resizing) = Resizing::<P>::new(&self.shared.resizing) else {
            return Err(OfflineError::Busy);
        };
        self.take_away(&range)?;
        for (zone, part) in self.parts(frames) {
            let gone = u64::from(part.end - part.start);
            let mut at = part.start;
            while at < part.end {
                at = S::Free::withdraw(self.view(zone), at, part.end);
            }
            zone.managed.fetch_add(gone.wrapping_neg(), Relaxed);
            zone.present.fetch_add(gone.wrapping_neg(), Relaxed);
            self.narrow_span(zone);
        }
        self.settle(|zone| self.parts_later(zone, &range).next().is_some(), |_| true);
        Ok(())
    }

    /// The indexes of a range of whole pageblocks that the memory map calls offline.
    fn check_later(&self, range: &Range<Pfn>) -> Result<Range<u32>, OnlineError> {
        let pageblock = self.table.pageblock_order();
        if range.is_empty() {
            return Err(RangeError::Empty.into());
        }
        if let Some(pfn) =
            [range.start, range.end].into_iter().find(|pfn| !pfn.is_aligned(pageblock))
        {
            return Err(RangeError::NotAligned { pfn, pageblock }.into());
        }
        let frames = self.indexes_of(range)?;
        let mut at = range.start;
        while at < range.end {
            let found = self
                .plan
                .map()
                .range_at(at)
                .ok_or(RangeError::Frame(FreeError::Hole { pfn: at }))?;
            if found.kind != RangeKind::Offline {
                return Err(OnlineError::NotOffline { pfn: at });
            }
            at = found.end;
        }
        Ok(frames)
    }

    /// What of `range`, which passed [`check_later`](Self::check_later), is a zone's, as indexes.
    fn parts_later(
        &self,
        zone: &Zone<P, S>,
        range: &Range<Pfn>,
    ) -> impl Iterator<Item = Range<u32>> {
        let wanted = PfnRange::new(range.start, range.end);
        let later = self.plan.ranges_of(zone.id).filter(|r| r.kind == RangeKind::Offline);
        let parts = later.filter_map(move |r| r.clip(wanted));
        parts.filter_map(|part| {
            let start = self.table.index(part.start)?;
            Some(start..start + part.frames() as u32)
        })
    }

    /// Makes the pageblocks at the start of `part` that have frames before `first` the zone's: those frames
    /// withheld, the others free. Returns the other pageblocks.
    fn bring_withheld(&self, zone: &Zone<P, S>, part: Range<u32>, first: u32) -> Range<u32> {
        let size = self.table.pageblock_order().size();
        let mut rest = part;
        while rest.start < rest.end.min(first) {
            let end = rest.start + size;
            let free = first.min(end)..end;
            self.adopt(zone, rest.start, &free);
            self.hand_over(zone, free);
            rest.start = end;
        }
        rest
    }

    /// Gives `part`, whole pageblocks, to the zone, free.
    fn bring(&self, zone: &Zone<P, S>, part: Range<u32>) {
        if part.is_empty() {
            return;
        }
        // Before the first of the frames can be found: never fewer than there are.
        zone.widen_span((part.start, part.end));
        let frames = u64::from(part.end - part.start);
        zone.present.fetch_add(frames, Relaxed);
        zone.managed.fetch_add(frames, Relaxed);
        let mut at = part.start;
        while at < part.end {
            at = S::Free::bring(self.view(zone), at, part.end);
        }
    }

    /// Draws the zone's span in to what is there.
    fn narrow_span(&self, zone: &Zone<P, S>) {
        let size = self.table.pageblock_order().size();
        let (mut start, mut end) = zone.span();
        let own = |at| self.table.pageblock(at).zone() == Some(zone.id);
        while start < end && !own(start) {
            start += size;
        }
        while start < end && !own(end - size) {
            end -= size;
        }
        zone.set_span((start, end));
    }
}
