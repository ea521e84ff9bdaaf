//! Isolation: pageblocks withdrawn from allocation while the holder of a token works on the range.
//!
//! The pageblocks' type becomes [`Isolate`](crate::MigrateType::Isolate), so their free blocks
//! leave every list that requests see and what is freed into them stays; the type before stands
//! in the pageblock's word.

use crate::alloc::allocator::Allocator;
use crate::alloc::host::Host;
use crate::boot::map::RangeKind;
use crate::frame::FrameKind;
use crate::policy::FreeMemory;
use crate::policy::Policy;
use crate::policy::zone::Zone;
use crate::types::error::{FreeError, RangeError, RefusedRange};
use crate::types::units::Pfn;
use core::ops::Range;

/// Isolated pageblocks, of the holder of this. It moves and does not copy, so the isolation can
/// be undone once; dropping it leaves them isolated for good.
///
/// ```
/// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example/mod.rs")); }
/// use zonal::{Pfn, ZoneId};
/// # example::with_small::<zonal::preset::Zonal>(|allocator| {
/// let free = |id| allocator.zone_info(ZoneId(id)).unwrap().free;
/// let isolated = allocator.isolate(Pfn::new(0x1000)..Pfn::new(0x1800)).unwrap();
/// assert_eq!(free(1), 12288 - 2048, "no request sees them");
/// assert_eq!(allocator.busy_frames(&isolated), 0, "not in use: they could be removed");
/// allocator.undo_isolation(isolated).unwrap();
/// assert_eq!(free(1), 12288);
/// # });
/// ```
#[derive(PartialEq, Eq, Debug)]
#[must_use = "dropping it leaves the pageblocks isolated"]
pub struct Isolated {
    range: (Pfn, Pfn),
}

impl Isolated {
    /// The frames.
    #[must_use]
    pub const fn range(&self) -> Range<Pfn> {
        self.range.0..self.range.1
    }
}

/// Pageblocks that are isolated until this is dropped.
pub(crate) struct Isolation<'a, 'm, P: Host, S: Policy> {
    allocator: &'a Allocator<'m, P, S>,
    zone: &'m Zone<P, S>,
    /// Indexes, whole pageblocks.
    pageblocks: Range<u32>,
    /// Whether nothing has come of it, so that all is to be as before: until the holder says otherwise.
    pub(crate) in_vain: bool,
}

impl<P: Host, S: Policy> Drop for Isolation<'_, '_, P, S> {
    fn drop(&mut self) {
        self.allocator.restore_pageblocks(self.zone, self.pageblocks.clone(), self.in_vain);
    }
}

impl<'m, P: Host, S: Policy> Allocator<'m, P, S> {
    /// Isolates the pageblocks of a range: no request gets a frame of them until
    /// [`undo_isolation`](Self::undo_isolation). Frames that are allocated there stay with their
    /// owners, and stay isolated when they are freed. The zone's caches are emptied; what another
    /// CPU frees, or takes from its cache, at this very moment may still be in that cache afterwards,
    /// and be handed out there, until it is [drained](Self::drain_all).
    ///
    /// Pageblocks of the high-atomic reserve leave it. O(frames of the range + cached frames).
    ///
    /// # Errors
    /// [`RangeError`] if the range is not of whole pageblocks, is empty, has frames that the
    /// allocator does not manage, reaches into another zone type or node, is partly isolated
    /// already, or if a block is allocated in it in a pageblock that is neither movable nor CMA.
    /// Then nothing has changed.
    pub fn isolate(&self, range: Range<Pfn>) -> Result<Isolated, RangeError> {
        let pageblock = self.table.pageblock_order();
        if let Some(pfn) =
            [range.start, range.end].into_iter().find(|pfn| !pfn.is_aligned(pageblock))
        {
            return Err(RangeError::NotAligned { pfn, pageblock });
        }
        let frames = self.check_range(&range)?;
        for (zone, part) in self.parts(frames.clone()) {
            match self.isolate_pageblocks(zone, &part) {
                Ok(isolation) => core::mem::forget(isolation),
                Err(error) => {
                    self.restore_parts(frames.start..part.start, true);
                    return Err(error);
                }
            }
        }
        for (zone, _) in self.parts(frames) {
            self.drain_zone(zone);
        }
        Ok(Isolated { range: (range.start, range.end) })
    }

    /// Makes isolated pageblocks what they were before; what is free in them is free for
    /// requests again.
    ///
    /// # Errors
    /// [`RefusedRange`] gives the token back if it is not from this allocator.
    pub fn undo_isolation(&self, isolated: Isolated) -> Result<(), RefusedRange<Isolated>> {
        match self.is_isolated(&isolated.range()) {
            Ok(pageblocks) => {
                self.restore_parts(pageblocks, false);
                Ok(())
            }
            Err(error) => Err(RefusedRange { token: isolated, error }),
        }
    }

    /// Frames of isolated pageblocks that are not free there: they are in use, or
    /// in a per-CPU cache. 0: only the holder of the token can touch them. O(frames).
    #[must_use]
    pub fn busy_frames(&self, isolated: &Isolated) -> u64 {
        let Ok(frames) = self.is_isolated(&isolated.range()) else { return 0 };
        let mut busy = u64::from(frames.end - frames.start);
        for (zone, part) in self.parts(frames) {
            let mut at = part.start;
            while at < part.end {
                let found = S::Free::locate(self.view(zone), at);
                let next = found.map_or(at + 1, |(head, state)| head + state.order().size());
                if found.is_some_and(|(_, state)| state.kind() == FrameKind::Free) {
                    busy -= u64::from(next.min(part.end) - at);
                }
                at = next;
            }
        }
        busy
    }

    fn is_isolated(&self, range: &Range<Pfn>) -> Result<Range<u32>, RangeError> {
        let frames = self.check_range(range)?;
        let step = self.table.pageblock_order().frames() as usize;
        let not = frames.clone().step_by(step).find(|&at| self.table.type_before(at).is_none());
        match not {
            Some(at) => Err(RangeError::NotIsolated { pfn: self.table.pfn(at) }),
            None => Ok(frames),
        }
    }

    /// The indexes of a range of managed frames of one zone type of a node.
    pub(crate) fn check_range(&self, range: &Range<Pfn>) -> Result<Range<u32>, RangeError> {
        let frames = self.indexes_of(range)?;
        let (table, start, end) = (&self.table, frames.start, frames.end);
        let mut at = range.start;
        while at < range.end {
            at = self.end_of_managed(at)?;
        }
        let zone_of = |at| table.pageblock(at).zone().and_then(|id| self.zone(id));
        let first =
            zone_of(start).ok_or(RangeError::Frame(FreeError::Hole { pfn: range.start }))?;
        let size = table.pageblock_order().size();
        let mut later = (table.pageblock_start(start) + size..end).step_by(size as usize);
        match later.find(|&at| !zone_of(at).is_some_and(|zone| zone.is_sibling(first))) {
            Some(at) => Err(RangeError::CrossesZones { pfn: table.pfn(at) }),
            None => Ok(start..end),
        }
    }

    /// `frames`, which passed [`check_range`](Self::check_range), cut between the instances of
    /// their zone type. All of them in one part where types are not split.
    pub(crate) fn parts(
        &self,
        frames: Range<u32>,
    ) -> impl Iterator<Item = (&'m Zone<P, S>, Range<u32>)> {
        let mut rest = frames;
        core::iter::from_fn(move || {
            let zone = self.table.get_pageblock(rest.start)?.zone().and_then(|id| self.zone(id))?;
            let part = rest.start..zone.span().1.min(rest.end);
            rest.start = part.end;
            (!part.is_empty()).then_some((zone, part))
        })
    }

    /// Where the range of the memory map that `pfn` is in ends, or at least a part of it, if it is
    /// managed.
    fn end_of_managed(&self, pfn: Pfn) -> Result<Pfn, RangeError> {
        let Some(index) = self.table.index(pfn) else {
            return Err(RangeError::Frame(FreeError::Foreign { pfn }));
        };
        match self.plan.map().range_at(pfn) {
            Some(range) if range.kind.is_usable() => return Ok(range.end),
            // A pageblock at a time: of its neighbours other things may be true. Some of its frames may be
            // withheld.
            Some(range) if range.kind == RangeKind::Offline && self.is_managed_at(index) => {
                let end = self.table.pageblock_start(index) + self.table.pageblock_order().size();
                let until = (index..end).find(|&at| !self.is_managed_at(at));
                return Ok(self.table.pfn(until.unwrap_or(end)));
            }
            // What was released, frame by frame.
            _ if self.is_managed_at(index) => return Ok(Pfn::new(pfn.get() + 1)),
            _ => {}
        }
        Err(RangeError::Frame(self.unmanaged(pfn)))
    }

    /// Isolates the pageblocks around `frames`, all or none; of the frames themselves none may
    /// be allocated in a pageblock whose frames cannot be moved.
    pub(crate) fn isolate_pageblocks(
        &self,
        zone: &'m Zone<P, S>,
        frames: &Range<u32>,
    ) -> Result<Isolation<'_, 'm, P, S>, RangeError> {
        let start = self.table.pageblock_start(frames.start);
        let size = self.table.pageblock_order().size();
        let mut isolation =
            Isolation { allocator: self, zone, pageblocks: start..start, in_vain: true };
        for at in (start..frames.end).step_by(size as usize) {
            S::Free::isolate_pageblock(self.view(zone), at, frames)?;
            isolation.pageblocks.end = at + size;
        }
        Ok(isolation)
    }

    fn restore_parts(&self, pageblocks: Range<u32>, undo: bool) {
        let parts = self.parts(pageblocks);
        parts.for_each(|(zone, part)| self.restore_pageblocks(zone, part, undo));
    }

    fn restore_pageblocks(&self, zone: &Zone<P, S>, pageblocks: Range<u32>, undo: bool) {
        let step = self.table.pageblock_order().frames() as usize;
        for at in pageblocks.step_by(step) {
            S::Free::end_isolation(self.view(zone), at, undo);
        }
    }
}
