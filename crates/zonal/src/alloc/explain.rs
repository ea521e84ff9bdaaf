//! Why a request could not be served.

use super::allocator::Allocator;
use super::entry::{Entry, Seat};
use super::zones::Zones;
use crate::platform::Platform;
use crate::policy::{FreeMemory, Policy};
use crate::types::counts::FreeCounts;
use crate::types::error::{AllocError, AllocReason, Explanation, ZONES_EXPLAINED, ZoneTried};
use crate::types::mark::Mark;
use crate::types::migrate_type::{MigrateType, NR_MIGRATE_TYPES};
use crate::types::request::Request;
use crate::types::units::{NR_ORDERS, Order};

impl<P: Platform, S: Policy> Allocator<'_, P, S> {
    /// The error for a request that could not be served. O(zones).
    #[cold]
    #[inline(never)]
    pub(crate) fn refused(&self, seat: Seat, request: &Request, reason: AllocReason) -> AllocError {
        let tried = reason == AllocReason::Exhausted;
        let zones = tried.then(|| self.zones_again(seat, request));
        let zones = zones.as_ref().map_or(&[][..], Zones::slice);
        AllocError {
            reason,
            order: request.order(),
            migrate: request.migrate_type(),
            mark: Mark::Min,
            // No truncation: there are no more than `MAX_ZONES`.
            tried: zones.len() as u8,
            zone: zones.iter().flatten().map(|zone| zone.id).next(),
        }
    }

    /// What the zones that a request may use have now, in the order in which the current CPU tries
    /// them (of an interleaved one: tried them in the turn that was taken last): for the log, after a request
    /// was refused. It looks at all that is free and into every CPU's pages, so it is nothing for a path that
    /// may not wait. O(free blocks + CPUs).
    #[cold]
    #[inline(never)]
    pub fn explain(&self, request: &Request) -> Explanation {
        let zones = self.zones_again(self.shared_entry().seat(), request);
        let mut explained = Explanation {
            order: request.order(),
            migrate: request.migrate_type(),
            tried: zones.slice().len(),
            zones: [None; ZONES_EXPLAINED],
            free: [[0; NR_MIGRATE_TYPES]; NR_ORDERS],
        };
        for (at, zone) in zones.iter().enumerate() {
            let counts = S::Free::counts(self.view(zone));
            for (sum, row) in explained.free.iter_mut().zip(&counts) {
                sum.iter_mut().zip(row).for_each(|(sum, blocks)| *sum += blocks);
            }
            if let Some(place) = explained.zones.get_mut(at) {
                let keep = request.access().lower(zone.mark(Mark::Min));
                *place = Some(ZoneTried {
                    zone: zone.id,
                    node: zone.node,
                    zone_type: zone.zone_type,
                    free: zone.free(),
                    keep: keep.saturating_add(zone.reserve(request.limit())),
                    cached: self.cached_in(zone),
                    largest: core::array::from_fn(|ty| largest(&counts, MigrateType::ALL[ty])),
                });
            }
        }
        explained
    }
}

fn largest(counts: &FreeCounts, migrate: MigrateType) -> Option<Order> {
    Order::all().rev().find(|order| counts[order.index()][migrate.index()] > 0)
}
