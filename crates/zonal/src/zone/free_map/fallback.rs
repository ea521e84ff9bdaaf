//! Pageblocks of another type for a CPU that found nothing of its own.

use super::FreeMap;
use super::hints::{Kind, Start};
use super::shape::Pageblock;
use crate::platform::Platform;
use crate::platform::stay::{Stay, cost};
use crate::types::migrate_type::MigrateType;
use crate::types::units::Order;

impl<P: Platform> FreeMap<'_, P> {
    /// Gives a pageblock of the type `from` that is at least half free, and has a run of order `least`, to `to`: of
    /// those with the largest runs the first. `None` if no hint led to one: then a batch is taken from the type's
    /// first pageblock, which keeps its type ([`harvest_lines`](Self::harvest_lines)). With the order
    /// of the run that led to it. O(orders × words that a search reads).
    #[must_use]
    pub fn claim_other(
        &self,
        from: MigrateType,
        to: MigrateType,
        least: u32,
        start: Start,
    ) -> Option<(Pageblock, Order)> {
        let (first, orders) = (Kind::of_order(from, least), self.shape().p().saturating_sub(least));
        if !self.stay.tries_any(first.number(self.shape()), orders) {
            return None;
        }
        (least..self.shape().p()).rev().find_map(|order| {
            let kind = Kind::of_order(from, order);
            let number = kind.number(self.shape());
            if !self.stay.tries(number) {
                return None;
            }
            let pageblock = self.find(kind, start)?;
            if !self.stay.affords(cost::CLAIM) {
                return None;
            }
            let claimed = self.type_of(pageblock) == from && self.claim_if_half_free(pageblock, to);
            if !claimed {
                self.stay.tried(number);
                self.stay.spend(cost::NO_CLAIM);
                return None;
            }
            Some((pageblock, Order::new(order as u8).unwrap_or(Order::MAX)))
        })
    }
}
