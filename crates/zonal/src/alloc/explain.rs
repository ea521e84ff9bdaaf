//! Why a request could not be served.

use super::allocator::Allocator;
use super::zones::Zones;
use crate::platform::Platform;
use crate::policy::{FreeMemory, PcpPolicy, Policy};
use crate::types::counts::FreeCounts;
use crate::types::error::{AllocError, AllocReason, ZONES_EXPLAINED, ZoneTried};
use crate::types::mark::Mark;
use crate::types::migrate_type::{MigrateType, NR_MIGRATE_TYPES};
use crate::types::request::Request;
use crate::types::units::{NR_ORDERS, Order};

impl<P: Platform, S: Policy> Allocator<'_, P, S> {
    /// The error for a request that could not be served: what its zones have now.
    #[cold]
    #[inline(never)]
    pub(crate) fn explain(&self, cpu: usize, request: &Request, reason: AllocReason) -> AllocError {
        let tried = reason == AllocReason::Exhausted;
        let zones = tried.then(|| self.zones_for(cpu, request));
        let zones = zones.as_ref().map_or(&[][..], Zones::slice);
        let mark = Mark::Min;
        let mut error = AllocError {
            reason,
            order: request.order(),
            migrate: request.migrate_type(),
            mark,
            tried: zones.len(),
            zones: [None; ZONES_EXPLAINED],
            free: [[0; NR_MIGRATE_TYPES]; NR_ORDERS],
        };
        for (at, zone) in zones.iter().copied().flatten().enumerate() {
            let counts = S::Free::counts(self.view(zone));
            for (sum, row) in error.free.iter_mut().zip(&counts) {
                sum.iter_mut().zip(row).for_each(|(sum, blocks)| *sum += blocks);
            }
            if let Some(place) = error.zones.get_mut(at) {
                let keep = request.access().lower(zone.mark(mark));
                *place = Some(ZoneTried {
                    zone: zone.id,
                    node: zone.node,
                    zone_type: zone.zone_type,
                    free: zone.free(),
                    keep: keep.saturating_add(zone.reserve(request.limit())),
                    cached: self.cached_in(zone),
                    deferred: S::Pcp::deferred(&self.context(zone, 0)),
                    largest: core::array::from_fn(|ty| largest(&counts, MigrateType::ALL[ty])),
                });
            }
        }
        error
    }
}

fn largest(counts: &FreeCounts, migrate: MigrateType) -> Option<Order> {
    Order::all().rev().find(|order| counts[order.index()][migrate.index()] > 0)
}
