//! Looking for a range that can be had.

use super::Contiguous;
use crate::allocator::Allocator;
use crate::error::{ContiguousError, RangeError};
use crate::frame::FrameKind;
use crate::isolate::locate;
use crate::migrate::MigrateType;
use crate::platform::Platform;
use crate::policy::Policy;
use crate::request::Request;
use crate::units::{Order, Pfn};
use crate::watermark::Mark;
use crate::zone::Zone;
use core::ops::Range;

/// Ranges tried in a zone before it is given up.
const TRIES: usize = 8;

impl<'m, P: Platform, S: Policy> Allocator<'m, P, S> {
    /// Takes the range that needs the fewest frames moved, zone by zone.
    pub(super) fn find_contiguous(
        &self,
        cpu: usize,
        frames: u64,
        request: &Request,
    ) -> Result<Contiguous, ContiguousError> {
        let zones = self.zones_for(cpu, request);
        let (mut any, mut tried, mut last) = (false, 0, None);
        for zone in zones.iter() {
            any = true;
            let reserve = zone.reserve[request.limit().index()];
            let keep = request.access().lower(zone.mark(Mark::Min)).saturating_add(reserve);
            self.empty_caches(zone);
            if zone.free() < frames.saturating_add(keep) {
                continue;
            }
            // Frames that stay where they are.
            let mut stuck = [u32::MAX; TRIES];
            for at in 0..TRIES {
                let found = self.cheapest_range(zone, frames as u32, request, &stuck[..at]);
                let Some(range) = found else { break };
                tried += 1;
                let pfns = self.table.pfn(range.start)..self.table.pfn(range.start + frames as u32);
                match self.alloc_range(pfns) {
                    Ok(found) => return Ok(found),
                    Err(error) => {
                        last = Some(error);
                        stuck[at] = self.index_of(error).unwrap_or(range.start);
                    }
                }
            }
        }
        if any {
            Err(ContiguousError::NoRange { frames, tried, last })
        } else {
            Err(ContiguousError::NoZone)
        }
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
    /// equals; none with one of `stuck`. O(frames of the zone).
    fn cheapest_range(
        &self,
        zone: &Zone<P, S>,
        frames: u32,
        request: &Request,
        stuck: &[u32],
    ) -> Option<Range<u32>> {
        let size = self.table.pageblock_order().size();
        let (start, end) = self.span_of(zone);
        let cost_of = |at: u32| {
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

    /// Frames of a pageblock that would have to be moved; `None` if that is hopeless.
    fn cost_of(&self, zone: &Zone<P, S>, part: Range<u32>) -> Option<u32> {
        let table = &self.table;
        let word = table.block(part.start);
        if word.zone() != Some(zone.id) || word.migrate() == MigrateType::Isolate {
            return None;
        }
        let movable = word.migrate().is_for_movable();
        let (mut at, mut cost) = (part.start, 0);
        while at < part.end {
            let Some((head, state)) = locate(table, at) else {
                let head = at & !(Order::MAX.size() - 1);
                if !zone.with_buddy(|buddy| buddy.frontier.contains(table, head)) {
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
