//! Looking for a range that can be had.

use super::{Contiguous, Moves};
use crate::alloc::allocator::Allocator;
use crate::alloc::entry::Seat;
use crate::alloc::host::Host;
use crate::frame::FrameKind;
use crate::policy::FreeMemory;
use crate::policy::Policy;
use crate::policy::zone::Zone;
use crate::types::bounds::Bounds;
use crate::types::error::{AllocReason, ContiguousError, RangeError};
use crate::types::mark::Mark;
use crate::types::migrate_type::MigrateType;
use crate::types::request::Request;
use crate::types::units::{Order, Pfn};
use core::ops::Range;
use core::slice;

/// Ranges tried in a zone before it is given up.
const TRIES: usize = 8;

/// Ranges that could not be had.
struct Missed {
    tried: u32,
    /// Why not the last.
    last: Option<RangeError>,
}

/// Frames in a row, in indexes of the table.
struct Wanted {
    frames: u32,
    /// A power of two, of which the number of the first frame is a multiple.
    align: u64,
    /// The number of the frame at index 0.
    base: u64,
    /// Where they lie.
    span: Range<u32>,
    /// Whether the caller gave bounds.
    bounded: bool,
}

impl Wanted {
    fn is_aligned(&self, index: u32) -> bool {
        (self.base + u64::from(index)).is_multiple_of(self.align)
    }

    /// The first index from `index` on where they may begin.
    fn aligned_from(&self, index: u32) -> Option<u32> {
        let pfn = (self.base + u64::from(index)).checked_next_multiple_of(self.align)?;
        u32::try_from(pfn - self.base).ok()
    }
}

impl<'m, P: Host, S: Policy> Allocator<'m, P, S> {
    /// Takes the range that needs the fewest frames moved, zone by zone; where a zone type has
    /// several instances, first of those inside one, then of those that reach across.
    pub(super) fn find_contiguous(
        &self,
        seat: Seat,
        frames: u64,
        request: &Request,
        bounds: &Bounds,
    ) -> Result<Contiguous, ContiguousError> {
        let zones = self.zones_for(seat, request);
        if zones.iter().next().is_none() {
            return Err(ContiguousError::Request(AllocReason::NoZone));
        }
        let mut missed = Missed { tried: 0, last: None };
        for family in zones.families() {
            let instances = family.iter().map(slice::from_ref);
            let together = (family.len() > 1).then_some(family);
            for zones in instances.chain(together) {
                let Some(wanted) = self.wanted_in(zones, frames, bounds) else { continue };
                if let Some(found) = self.find_in(zones, &wanted, request, &mut missed) {
                    return Ok(found);
                }
            }
        }
        Err(ContiguousError::NoRange { frames, tried: missed.tried, last: missed.last })
    }

    /// Takes the range that needs the fewest frames moved, of all in these instances of a zone
    /// type together: what they keep back they keep together too.
    fn find_in(
        &self,
        zones: &[Option<&'m Zone<P, S>>],
        wanted: &Wanted,
        request: &Request,
        missed: &mut Missed,
    ) -> Option<Contiguous> {
        let (mut free, mut keep) = (0_u64, 0_u64);
        for zone in zones.iter().flatten() {
            self.drain_zone(zone);
            // What is only set apart for another caller's block can be isolated.
            S::Free::rejoin(self.view(zone));
            let reserve = zone.reserve(request.limit());
            let own = request.access().lower(zone.mark(Mark::Min)).saturating_add(reserve);
            (free, keep) = (free.saturating_add(zone.free()), keep.saturating_add(own));
        }
        if free < u64::from(wanted.frames).saturating_add(keep) {
            return None;
        }
        // Frames that stay where they are.
        let mut stuck = [u32::MAX; TRIES];
        for at in 0..TRIES {
            let stuck_so_far = &stuck[..at];
            let free = wanted.bounded.then(|| self.first_free_range(zones, wanted, stuck_so_far));
            let range = free.flatten();
            let range =
                range.or_else(|| self.cheapest_range(zones, wanted, request, stuck_so_far))?;
            missed.tried += 1;
            // Since it was looked at another CPU may have taken of it: a request that may not wait moves nothing.
            let moves = if request.may_not_wait() { Moves::No } else { Moves::Yes };
            let pfns = self.table.pfn(range.start)..self.table.pfn(range.end);
            match self.take_range(&pfns, moves) {
                Ok(found) => return Some(found),
                Err(error) => {
                    missed.last = Some(error);
                    stuck[at] = self.index_of(error).unwrap_or(range.start);
                }
            }
        }
        None
    }

    /// What is wanted of these instances of a zone type; `None` if none of it can be there.
    fn wanted_in(
        &self,
        zones: &[Option<&'m Zone<P, S>>],
        frames: u64,
        bounds: &Bounds,
    ) -> Option<Wanted> {
        let base = self.table.pfn(0).get();
        let spans = || zones.iter().flatten().map(|zone| zone.span());
        let (start, end) = (spans().map(|span| span.0).min()?, spans().map(|span| span.1).max()?);
        let limit = bounds.limit().get().saturating_sub(base).min(u64::from(end));
        let span = start..(limit as u32).max(start);
        let fits = frames <= span.len() as u64;
        let bounded = *bounds != Bounds::ANY;
        let (frames, align) = (frames as u32, bounds.align());
        fits.then_some(Wanted { frames, align, base, span, bounded })
    }

    /// The first range that is free now. O(frames of the zones).
    fn first_free_range(
        &self,
        zones: &[Option<&'m Zone<P, S>>],
        wanted: &Wanted,
        stuck: &[u32],
    ) -> Option<Range<u32>> {
        let mut first = wanted.aligned_from(wanted.span.start)?;
        let mut at = first;
        while at - first < wanted.frames {
            if wanted.span.end.saturating_sub(first) < wanted.frames {
                return None;
            }
            match self.free_until(zones, at, stuck) {
                Ok(next) => at = next,
                Err(next) => {
                    first = wanted.aligned_from(next)?;
                    at = first;
                }
            }
        }
        Some(first..first + wanted.frames)
    }

    /// Where the free block that holds the frame at an index ends; or, as an error, what is in the way there.
    fn free_until(
        &self,
        zones: &[Option<&'m Zone<P, S>>],
        at: u32,
        stuck: &[u32],
    ) -> Result<u32, u32> {
        let size = self.table.pageblock_order().size();
        let word = self.table.get_pageblock(at).ok_or(at + 1)?;
        let zone = zones.iter().flatten().find(|zone| word.zone() == Some(zone.id));
        let next_pageblock = (at | (size - 1)) + 1;
        let zone = zone.filter(|_| word.migrate() != MigrateType::Isolate).ok_or(next_pageblock)?;
        let next = match S::Free::locate(self.view(zone), at) {
            Some((head, state)) => {
                let end = head + state.order().size();
                if state.kind() == FrameKind::Free { end } else { return Err(end) }
            }
            None => {
                let head = at & !(Order::MAX.size() - 1);
                if !S::Free::is_untouched(self.view(zone), head) {
                    return Err(at + 1);
                }
                head + Order::MAX.size()
            }
        };
        // Free memory behind the pageblock may be of another zone or type.
        let next = next.min(next_pageblock);
        match stuck.iter().find(|index| (at..next).contains(*index)) {
            Some(&index) => Err(index + 1),
            None => Ok(next),
        }
    }

    /// The frame that an error names.
    fn index_of(&self, error: RangeError) -> Option<u32> {
        let pfn: Pfn = match error {
            RangeError::Unmovable { pfn }
            | RangeError::Isolated { pfn }
            | RangeError::Refused { pfn, .. }
            | RangeError::NoTarget { pfn, .. }
            | RangeError::InUse { pfn }
            | RangeError::Busy { pfn } => pfn,
            _ => return None,
        };
        self.table.index(pfn)
    }

    /// The pageblocks in a row that hold `frames` frames and need the fewest moved, the lowest of
    /// equals; none with one of `stuck`. O(frames of the zones).
    fn cheapest_range(
        &self,
        zones: &[Option<&'m Zone<P, S>>],
        wanted: &Wanted,
        request: &Request,
        stuck: &[u32],
    ) -> Option<Range<u32>> {
        let size = self.table.pageblock_order().size();
        let start = wanted.span.start.next_multiple_of(size);
        // The last pageblock may be cut by a limit; it is whole in the table.
        let end = wanted.span.end;
        let cost_of = |part: Range<u32>| {
            let id = self.table.pageblock(part.start).zone()?;
            let zone = zones.iter().flatten().find(|zone| zone.id == id)?;
            let cost = self.cost_of(zone, part.clone())?;
            let fits = cost == 0 || !request.may_not_wait();
            (fits && !stuck.iter().any(|index| part.contains(index))).then_some(cost)
        };
        let mut best: Option<(u32, u32)> = None;
        // The pageblocks in hand, and what they cost together.
        let (mut first, mut sum) = (start, 0_u32);
        for at in (start..end).step_by(size as usize) {
            let next = at + size;
            let (whole, is_long) = (cost_of(at..next), next - first >= wanted.frames);
            if is_long && wanted.is_aligned(first) && first + wanted.frames <= end {
                // Of its last pageblock a range may need a part.
                let until = first + wanted.frames;
                let last = if until == next { whole } else { cost_of(at..until) };
                if let Some(cost) = last.map(|cost| sum + cost)
                    && best.is_none_or(|(least, _)| cost < least)
                {
                    best = Some((cost, first));
                    if cost == 0 {
                        break;
                    }
                }
            }
            let Some(cost) = whole else {
                (first, sum) = (next, 0);
                continue;
            };
            sum += cost;
            if is_long {
                // Read again, rather than kept: a range may be any number of pageblocks. What was
                // read before may have changed, but not below what is in hand.
                sum = sum.saturating_sub(cost_of(first..first + size).unwrap_or(0));
                first += size;
            }
        }
        best.map(|(_, first)| first..first + wanted.frames)
    }

    /// Frames of a pageblock of `zone` that would have to be moved; `None` if that is hopeless.
    fn cost_of(&self, zone: &Zone<P, S>, part: Range<u32>) -> Option<u32> {
        let table = &self.table;
        let word = table.pageblock(part.start);
        if word.migrate() == MigrateType::Isolate {
            return None;
        }
        let movable = word.migrate().is_for_movable();
        let (mut at, mut cost) = (part.start, 0);
        while at < part.end {
            let Some((head, state)) = S::Free::locate(self.view(zone), at) else {
                let head = at & !(Order::MAX.size() - 1);
                if !S::Free::is_untouched(self.view(zone), head) {
                    return None;
                }
                at = head + Order::MAX.size();
                continue;
            };
            let next = (head + state.order().size()).min(part.end);
            match state.kind() {
                FrameKind::Allocated if !movable => return None,
                FrameKind::Allocated => cost += next - at,
                _ => {}
            }
            at = next;
        }
        Some(cost)
    }
}
