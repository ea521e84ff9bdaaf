//! Memory that comes back in parts: what boot needed for a while, and what the map did not call memory.
//!
//! In a pageblock of a zone each frame that is not managed is *withheld*, by its state; in a pageblock of no
//! zone none is managed. So each frame is released once: by an exchange of its state, or, where its
//! pageblock is of no zone yet, by who holds `resizing`, and makes the pageblock a zone's with all of its
//! frames withheld.

use super::online::Resizing;
use crate::alloc::allocator::Allocator;
use crate::boot::map::{PfnRange, RangeKind};
use crate::frame::{FrameState, PageblockWord};
use crate::platform::{AtomicWord, Platform};
use crate::policy::zone::Zone;
use crate::policy::{FreeMemory, Policy};
use crate::types::error::{FreeError, RangeError, ResizeError};
use crate::types::migrate_type::MigrateType;
use crate::types::units::Pfn;
use core::ops::Range;
use core::sync::atomic::Ordering::Relaxed;

/// Blocks freed in one lock hold.
const BLOCKS_PER_HOLD: u32 = 64;

impl<'m, P: Platform, S: Policy> Allocator<'m, P, S> {
    /// Makes frames the allocator's, free, that were not: what the boot loader or the start of the
    /// kernel used (an initial ramdisk, the sections that only run once, ACPI's tables), in any parts and as
    /// often as there are some; and memory that the map did not mention, where the tables have room for
    /// it: anywhere between the first and the last memory of a zone, what is
    /// [`Offline`](RangeKind::Offline) included. Returns how many frames.
    ///
    /// The map may have called them [`ReclaimLater`](RangeKind::ReclaimLater) or
    /// [`Reserved`](RangeKind::Reserved), or nothing. That they are memory, and in use no more, is the
    /// caller's word. Present and managed frames grow; watermarks stay as they are, except if the zone
    /// had no memory at all. Others may allocate and free meanwhile.
    /// O(frames). What is [`Offline`](RangeKind::Offline) comes by [`online`](Self::online).
    ///
    /// # Errors
    /// [`ResizeError`]: a frame of it is the allocator's already, or there is no room for it in the tables of a
    /// zone; then nothing has changed.
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example/mod.rs")); }
    /// use zonal::error::ResizeError;
    /// use zonal::map::{PhysAddr, Region};
    /// use zonal::{Pfn, plan::Config};
    /// let memory = Region::usable(PhysAddr(0), 64 << 20);
    /// let kernel = Region::reserved(PhysAddr(1 << 20), 3 << 20);
    /// # use zonal::preset::Zonal;
    /// # example::with_allocator::<Zonal>(&[memory, kernel], Config::new(1), |allocator| {
    /// // Its last 100 KiB ran once.
    /// let once = Pfn::new(0x3e7)..Pfn::new(0x400);
    /// assert_eq!(allocator.release(once.clone()), Ok(25));
    /// assert_eq!(allocator.release(once.clone()), Err(ResizeError::Online { pfn: once.start }));
    /// # });
    /// ```
    pub fn release(&self, range: Range<Pfn>) -> Result<u64, ResizeError> {
        self.release_with(range, || Ok(()))
    }

    /// As [`release`](Self::release), but when all has been looked at, `before` is called, to bring what the memory needs, such as
    /// the entries of tables. It may allocate. Memory cannot come, go or be released in it.
    ///
    /// # Errors
    /// As [`release`](Self::release), or what `before` returns. After it, only a
    /// [`release_reclaim_later`](Self::release_reclaim_later) of the same memory at this moment can be in the way.
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example/mod.rs")); }
    /// use zonal::error::ResizeError;
    /// use zonal::map::{PhysAddr, Region};
    /// use zonal::{Pfn, plan::Config};
    /// let memory = Region::usable(PhysAddr(0), 64 << 20);
    /// let kernel = Region::reserved(PhysAddr(1 << 20), 3 << 20);
    /// # use zonal::preset::Zonal;
    /// # example::with_allocator::<Zonal>(&[memory, kernel], Config::new(1), |allocator| {
    /// let release = |end, bring: &dyn Fn() -> Result<(), ResizeError>| {
    ///     allocator.release_with(Pfn::new(0x3e7)..Pfn::new(end), bring)
    /// };
    /// // Nothing is brought for what cannot come, and nothing comes if it cannot be brought.
    /// let usable = Pfn::new(0x400);
    /// assert_eq!(release(0x401, &|| unreachable!()), Err(ResizeError::Online { pfn: usable }));
    /// let inside = || allocator.release(Pfn::new(0x100)..Pfn::new(0x101)).map(|_| ());
    /// assert_eq!(release(0x400, &inside), Err(ResizeError::Busy));
    /// assert_eq!(release(0x400, &|| Ok(())), Ok(25));
    /// # });
    /// ```
    pub fn release_with<E: From<ResizeError>>(
        &self,
        range: Range<Pfn>,
        before: impl FnOnce() -> Result<(), E>,
    ) -> Result<u64, E> {
        let frames = self.indexes_of(&range).map_err(ResizeError::from)?;
        let Some(_resizing) = Resizing::<P>::new(&self.shared.resizing) else {
            return Err(ResizeError::Busy.into());
        };
        self.check_release(&frames)?;
        before()?;
        Ok(self.release_checked(&frames)?)
    }

    /// Releases `frames`, which passed [`check_release`](Self::check_release). Holding `resizing`.
    fn release_checked(&self, frames: &Range<u32>) -> Result<u64, ResizeError> {
        self.enter(frames)?;
        let vacant = |zone: &Zone<P, S>| zone.managed() == 0;
        let mut were_vacant = 0_u64;
        for part in self.by_pageblock(frames) {
            if !self.is_online_at(part.start)
                && let Some(zone) = self.zone_with_room(part.start)
            {
                self.adopt(zone, self.table.pageblock_start(part.start), &part);
            }
            let Some(zone) = self.table.pageblock(part.start).zone().and_then(|id| self.zone(id))
            else {
                continue;
            };
            were_vacant |= u64::from(vacant(zone)) << zone.id.0;
            self.hand_over(zone, part);
        }
        if were_vacant != 0 {
            let was_vacant = |zone: &Zone<P, S>| were_vacant >> zone.id.0 & 1 == 1;
            self.settle(was_vacant, was_vacant);
        }
        Ok(u64::from(frames.end - frames.start))
    }

    /// Makes all of the memory free that the map calls [`ReclaimLater`](RangeKind::ReclaimLater) and that
    /// was not [released](Self::release) yet, once it is not in use any more; returns the frames. A second
    /// call finds nothing to do, unless a [`release`](Self::release) of the same memory failed meanwhile: what that
    /// had in hand comes by the next call. Watermarks stay as they are.
    pub fn release_reclaim_later(&self) -> u64 {
        let mut released = 0;
        for zone in self.zones {
            let later =
                self.plan.ranges_of(zone.id).filter(|range| range.kind == RangeKind::ReclaimLater);
            for range in later {
                let Some(start) = self.table.index(range.start) else { continue };
                let mut rest = start..start + range.frames() as u32;
                while !rest.is_empty() {
                    // Some were released before, or are at this moment: each is ours or another CPU's.
                    let run = self.take_withheld(&rest);
                    self.hand_over(zone, rest.start..rest.start + run);
                    released += u64::from(run);
                    rest.start += run.max(1);
                }
            }
        }
        released
    }

    /// Whether all of `frames` can be released. Holding `resizing`: then no other CPU changes what is
    /// said here, but for [`release_reclaim_later`](Self::release_reclaim_later).
    fn check_release(&self, frames: &Range<u32>) -> Result<(), ResizeError> {
        for part in self.by_pageblock(frames) {
            if self.is_online_at(part.start) {
                let managed = part.clone().find(|&at| self.is_managed_at(at));
                if let Some(at) = managed {
                    return Err(ResizeError::Online { pfn: self.table.pfn(at) });
                }
                continue;
            }
            let pfn = self.table.pfn(part.start);
            if self.plan.map().kind_at(pfn) == Some(RangeKind::Offline) {
                return Err(RangeError::Frame(FreeError::Offline { pfn }).into());
            }
            if self.zone_with_room(part.start).is_none() {
                return Err(RangeError::Frame(FreeError::Hole { pfn }).into());
            }
        }
        Ok(())
    }

    /// The zone that a pageblock of no zone can become part of.
    fn zone_with_room(&self, index: u32) -> Option<&'m Zone<P, S>> {
        let start = self.table.pfn(self.table.pageblock_start(index));
        self.plan.zone_with_room(start).and_then(|id| self.zone(id))
    }

    /// Takes what of `frames` is in pageblocks of zones: withheld no more, and in no place yet. All, or
    /// none.
    fn enter(&self, frames: &Range<u32>) -> Result<(), ResizeError> {
        for part in self.by_pageblock(frames).filter(|part| self.is_online_at(part.start)) {
            let run = self.take_withheld(&part);
            if run == part.len() as u32 {
                continue;
            }
            let end = part.start + run;
            for part in self.by_pageblock(&(frames.start..end)) {
                if self.is_online_at(part.start) {
                    self.table.fill_states(part.start, part.len(), FrameState::WITHHELD);
                }
            }
            return Err(ResizeError::Online { pfn: self.table.pfn(end) });
        }
        Ok(())
    }

    /// Takes the frames from the start of `frames` on that are withheld; returns how many.
    fn take_withheld(&self, frames: &Range<u32>) -> u32 {
        let (start, len) = (frames.start as usize, frames.len());
        self.table.replace_run_at(start, len, FrameState::WITHHELD, FrameState::INNER) as u32
    }

    /// Makes the pageblock that starts at `start`, which is of no zone, one of `zone`, with all of its frames
    /// withheld but `part`.
    pub(super) fn adopt(&self, zone: &Zone<P, S>, start: u32, part: &Range<u32>) {
        let size = self.table.pageblock_order().size();
        // Before its word names a zone: then they are read.
        self.table.fill_states(start, size as usize, FrameState::WITHHELD);
        self.table.fill_states(part.start, part.len(), FrameState::INNER);
        zone.widen_span((start, start + size));
        self.view(zone).lock(|guard| {
            let word = PageblockWord::new(zone.id, MigrateType::Movable);
            guard.table.set_pageblock(start, word);
        });
    }

    /// Gives frames that are in no place to the zone, free.
    pub(super) fn hand_over(&self, zone: &Zone<P, S>, frames: Range<u32>) {
        let pfns = PfnRange::new(self.table.pfn(frames.start), self.table.pfn(frames.end));
        let map = self.plan.map();
        let counted = map.present().filter_map(|range| range.clip(pfns)).map(|r| r.frames());
        let count = u64::from(frames.end - frames.start);
        // Before the first of them can be found: never fewer than there are.
        zone.present.fetch_add(count - counted.sum::<u64>(), Relaxed);
        zone.managed.fetch_add(count, Relaxed);
        let mut at = frames.start;
        while at < frames.end {
            at = S::Free::free_range(self.view(zone), at, frames.end, BLOCKS_PER_HOLD);
        }
    }
}
