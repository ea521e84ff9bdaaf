//! Looking for a range that can be had.

use super::Contiguous;
use crate::alloc::allocator::Allocator;
use crate::alloc::host::Host;
use crate::frame::FrameKind;
use crate::policy::FreeMemory;
use crate::policy::Policy;
use crate::policy::zone::Zone;
use crate::types::error::{ContiguousError, RangeError};
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

impl<'m, P: Host, S: Policy> Allocator<'m, P, S> {
    /// Takes the range that needs the fewest frames moved, zone by zone; where a zone type has
    /// several instances, first of those inside one, then of those that reach across.
    pub(super) fn find_contiguous(
        &self,
        cpu: usize,
        frames: u64,
        request: &Request,
    ) -> Result<Contiguous, ContiguousError> {
        let zones = self.zones_for(cpu, request);
        if zones.iter().next().is_none() {
            return Err(ContiguousError::NoZone);
        }
        let mut missed = Missed { tried: 0, last: None };
        for family in zones.families() {
            let instances = family.iter().map(slice::from_ref);
            let together = (family.len() > 1).then_some(family);
            for zones in instances.chain(together) {
                if let Some(found) = self.find_in(zones, frames, request, &mut missed) {
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
        frames: u64,
        request: &Request,
        missed: &mut Missed,
    ) -> Option<Contiguous> {
        let (mut free, mut keep) = (0_u64, 0_u64);
        for zone in zones.iter().flatten() {
            self.drain_zone(zone);
            let reserve = zone.reserve(request.limit());
            let own = request.access().lower(zone.mark(Mark::Min)).saturating_add(reserve);
            (free, keep) = (free.saturating_add(zone.free()), keep.saturating_add(own));
        }
        if free < frames.saturating_add(keep) {
            return None;
        }
        // Frames that stay where they are.
        let mut stuck = [u32::MAX; TRIES];
        for at in 0..TRIES {
            let range = self.cheapest_range(zones, frames as u32, request, &stuck[..at])?;
            missed.tried += 1;
            match self.alloc_range(self.table.pfn(range.start)..self.table.pfn(range.end)) {
                Ok(found) => return Some(found),
                Err(error) => {
                    missed.last = Some(error);
                    stuck[at] = self.index_of(error).unwrap_or(range.start);
                }
            }
        }
        None
    }

    /// The frame that an error names.
    fn index_of(&self, error: RangeError) -> Option<u32> {
        let pfn: Pfn = match error {
            RangeError::Unmovable { pfn }
            | RangeError::Isolated { pfn }
            | RangeError::Refused { pfn, .. }
            | RangeError::NoTarget { pfn, .. }
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
        frames: u32,
        request: &Request,
        stuck: &[u32],
    ) -> Option<Range<u32>> {
        let size = self.table.pageblock_order().size();
        let spans = || zones.iter().flatten().map(|zone| zone.span());
        let (start, end) = (spans().map(|span| span.0).min()?, spans().map(|span| span.1).max()?);
        let cost_of = |at: u32| {
            let id = self.table.pageblock(at).zone()?;
            let zone = zones.iter().flatten().find(|zone| zone.id == id)?;
            let cost = self.cost_of(zone, at..at + size)?;
            let fits = cost == 0 || !request.may_not_wait();
            (fits && !stuck.iter().any(|index| (at..at + size).contains(index))).then_some(cost)
        };
        let mut best: Option<(u32, u32)> = None;
        // The pageblocks in hand, and what they cost together.
        let (mut first, mut sum) = (start, 0_u32);
        for at in (start..end).step_by(size as usize) {
            let Some(cost) = cost_of(at) else {
                (first, sum) = (at + size, 0);
                continue;
            };
            sum += cost;
            if at + size - first < frames {
                continue;
            }
            if best.is_none_or(|(least, _)| sum < least) {
                best = Some((sum, first));
                if sum == 0 {
                    break;
                }
            }
            // Read again, rather than kept: a range may be any number of pageblocks. What was
            // read before may have changed, but not below what is in hand.
            sum = sum.saturating_sub(cost_of(first).unwrap_or(0));
            first += size;
        }
        best.map(|(_, first)| first..first + frames)
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
