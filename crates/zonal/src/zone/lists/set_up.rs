//! Setting up the buddy lists of a zone.

use super::clusters::Clusters;
use super::merge::Merge;
use super::{BuddyLists, CLUSTER_ARRAY, CLUSTER_OF, LINKS, ListGuard};
use crate::boot::plan::{Plan, ZoneSpec};
use crate::platform::Platform;
use crate::types::migrate_type::MigrateType;
use crate::types::units::Order;
use crate::zone::tables::{NR_FREE_WORDS, ZoneTables};
use crate::zone::{ZoneInstance, ZoneView};
use core::ops::Range;

/// The size and the batch for which a zone's clusters on the order-0 lists need the most words, of all
/// sizes up to what it has with all its later memory. A smaller zone may need more, as its batch may be
/// smaller; and it becomes smaller when the tables are carved from it, which have their size by then.
fn cluster_room<C: Clusters>(spec: &ZoneSpec, batch: &dyn Fn(u64) -> u32) -> (u64, u32) {
    let words = |(frames, batch)| C::cluster_words(frames, batch);
    let sized = |frames| (frames, batch(frames));
    let mut at = sized(spec.managed + spec.later);
    let mut most = at;
    while C::CUT && at.0 > 0 && at.1 > 1 {
        // The largest size with a smaller batch.
        let (mut below, mut above) = (0, at.0);
        while above - below > 1 {
            let middle = below.midpoint(above);
            if batch(middle) < at.1 { below = middle } else { above = middle }
        }
        at = sized(below);
        if words(at) > words(most) {
            most = at;
        }
    }
    most
}

fn cluster_words<C: Clusters>(spec: &ZoneSpec, batch: &dyn Fn(u64) -> u32) -> u64 {
    let (frames, batch) = cluster_room::<C>(spec, batch);
    C::cluster_words(frames, batch)
}

pub(super) fn words<C: Clusters>(plan: &Plan, batch: &dyn Fn(u64) -> u32) -> [u64; NR_FREE_WORDS] {
    let mut words = [0; NR_FREE_WORDS];
    words[LINKS] = plan.frames();
    words[CLUSTER_ARRAY] = plan.zones().iter().map(|spec| cluster_words::<C>(spec, batch)).sum();
    words[CLUSTER_OF] = if C::CUT { plan.frames() } else { 0 };
    words
}

/// What frames have words in comes with the memory; an array of clusters has its bitmap first, and its entries
/// are used from the first on.
pub(super) const BY_FRAMES: [bool; NR_FREE_WORDS] = [true, false, true];

/// See [`FreeMemory::words_of`](crate::zone::FreeMemory::words_of).
pub(super) fn words_of<C: Clusters>(frames: &Range<u64>, visit: &mut dyn FnMut(usize, Range<u64>)) {
    visit(LINKS, frames.clone());
    if C::CUT {
        visit(CLUSTER_OF, frames.clone());
    }
}

pub(super) fn zone<P: Platform, M: Merge, C: Clusters>(
    zone: &mut ZoneInstance<P, BuddyLists<M, C>>,
    table: &ZoneTables<'_, P>,
    plan: &Plan,
    spec: &ZoneSpec,
    batch: &dyn Fn(u64) -> u32,
    used: &mut [u64; NR_FREE_WORDS],
) {
    let (frames, room_batch) = cluster_room::<C>(spec, batch);
    let first = used[CLUSTER_ARRAY];
    used[CLUSTER_ARRAY] += C::cluster_words(frames, room_batch);
    zone.set_up(table, |guard| {
        C::tune(&mut guard.area.clusters, first, frames, room_batch);
        guard.resize(batch(spec.managed), plan.high_atomic_limit(spec.managed));
        guard.fill(plan, spec);
        // Nothing waited for this work.
        guard.area.take_work();
    });
}

impl<P: Platform, M: Merge, C: Clusters> ListGuard<'_, P, M, C> {
    /// Sets what follows from the size of the zone.
    pub(super) fn resize(&mut self, batch: u32, high_atomic_limit: u32) {
        C::set_batch(&mut self.area.clusters, batch);
        self.high_atomic_limit = high_atomic_limit;
    }

    /// Makes the zone's usable memory free: whole largest blocks of ordinary memory stay untouched,
    /// the ragged ends and CMA go to the lists.
    fn fill(&mut self, plan: &Plan, spec: &ZoneSpec) {
        let block = Order::MAX.size();
        let view = ZoneView { zone: self.zone, table: self.table };
        view.take_over(plan, spec, |start, end, migrate| {
            let (first, rest) = (start.next_multiple_of(block), end & !(block - 1));
            if migrate == MigrateType::Cma || first >= rest {
                self.free_range(start, end, u32::MAX);
            } else {
                self.free_range(start, first, u32::MAX);
                let links = self.links();
                self.untouched.push(links, first, rest);
                self.free_range(rest, end, u32::MAX);
            }
        });
    }
}
