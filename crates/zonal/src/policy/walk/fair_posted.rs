//! The fair walk as its patch was posted, before the review.
//!
//! - Source: Gorman 2014, patch 3, as posted.
//! - Mechanism: as [`Fair`](super::Fair), with a quarter of the zone as its batch, and a flag in each
//!   zone that the allocation sets which finds the batch used up. Only flags are looked at. The pass
//!   ends at the first zone that takes no part: one of another node, or a DMA zone with less than a
//!   sixteenth of the node. There is none where only one zone takes part. A pass in vain is followed
//!   by another over all zones if there are several nodes; and if a zone had nothing above its
//!   watermark, or all were depleted, the batches of the node's zones are filled first.
//! - State: batches as of [`Fair`](super::Fair), and a word of flags a zone; relaxed, hints.
//! - Left out: an allocation from another node's zone is not charged there; here the zone's share does
//!   not know who asks.
//! - Conflicts: none.
//! - Counters: `nr_alloc_batch` and `zonal_fair_depleted` in `zoneinfo`.
//! - Tests: `tests/fair.rs`, the suites.

use super::fair::{Batch, CpuBatch, tell};
use super::{
    FairShare, Miss, Pass, TINY, Walk, Walked, ZoneSet, bit, in_order, local_zones, most_wanted,
};
use crate::boot::plan::Plan;
use crate::boot::tuning::Tuning;
use crate::boot::zonelist::MAX_NODES;
use crate::platform::{AtomicWord, Platform};
use crate::types::mark::Mark;
use crate::types::units::NodeId;
use crate::types::zone_type::{NR_ZONE_TYPES, ZoneType};
use core::sync::atomic::Ordering::Relaxed;

/// A flag in each zone, and a batch of a quarter of it.
#[derive(Clone, Copy, Debug)]
pub struct FairPosted;

/// A zone's batch and its flag.
#[derive(Debug)]
pub struct Flagged<P: Platform> {
    batch: Batch<P>,
    /// Whether the batch is used up: 0 or 1.
    depleted: P::Word,
}

impl<P: Platform> Flagged<P> {
    #[inline(always)]
    fn is_depleted(&self) -> bool {
        self.depleted.load(Relaxed) != 0
    }

    fn fill(&self) {
        self.batch.fill();
        self.depleted.store(0, Relaxed);
    }

    /// Sets the flag if the batch is used up: a look at each allocation, and a locked instruction at
    /// each that finds it so.
    #[inline(always)]
    fn look(&self) {
        if self.batch.left() <= 0 {
            self.depleted.fetch_or(1, Relaxed);
        }
    }
}

/// The passes of one node's requests, by zone limit: who takes part, and whose batches are filled.
#[derive(Debug)]
pub struct Passes {
    fair: [[ZoneSet; NR_ZONE_TYPES]; MAX_NODES],
    nodes: u32,
}

/// For each zone limit, the zones that take part in the pass of requests from `node`; none where the
/// first of them takes none.
fn passes(plan: &Plan, node: NodeId) -> [ZoneSet; NR_ZONE_TYPES] {
    let zones = plan.zones();
    let of_node = |node| zones.iter().filter(move |zone| zone.node == node);
    let takes_part = |set: ZoneSet| {
        let own = zones.iter().filter(|zone| set & bit(zone.id) != 0);
        own.filter(|zone| {
            let present: u64 = of_node(zone.node).map(|zone| zone.present + zone.later).sum();
            zone.zone_type != ZoneType::Dma || zone.managed + zone.later >= present / TINY
        })
        .fold(0, |set, zone| set | bit(zone.id))
    };
    let local = local_zones(plan, node);
    // The node's own list decides whether it has a pass at all.
    let all = takes_part(local[NR_ZONE_TYPES - 1]);
    local.map(|set| {
        let fair = takes_part(set);
        let first = most_wanted(set);
        let begins = fair.checked_shr(first as u32).unwrap_or(0) & 1 == 1;
        let only = all.count_ones() <= 1 && most_wanted(all) == first;
        if begins && !only { fair } else { 0 }
    })
}

impl Walk for FairPosted {
    type Table<P: Platform> = Passes;
    type Zone<P: Platform> = Flagged<P>;
    type Cpu = CpuBatch;
    type Homes = [ZoneSet; NR_ZONE_TYPES];

    fn table<P: Platform>(plan: &Plan) -> Passes {
        Passes {
            fair: core::array::from_fn(|node| passes(plan, NodeId(node as u8))),
            nodes: plan.nodes().bits().count_ones(),
        }
    }

    fn new_zone<P: Platform>() -> Flagged<P> {
        Flagged { batch: Batch::new(), depleted: P::Word::new(0) }
    }

    fn new_cpu() -> CpuBatch {
        CpuBatch::new()
    }

    fn tune_cpu(cpu: &mut CpuBatch, tuning: Tuning) {
        cpu.tune(tuning);
    }

    fn homes(plan: &Plan, node: NodeId, of_lane: ZoneSet) -> [ZoneSet; NR_ZONE_TYPES] {
        passes(plan, node).map(|fair| fair & of_lane)
    }

    fn set_managed<P: Platform>(zone: &Flagged<P>, managed: u64) {
        zone.batch.set(managed / 4);
        zone.depleted.store(0, Relaxed);
    }

    #[inline(always)]
    fn home<P: Platform, Z: Walked<P, Self>>(
        _: &Passes,
        zones: &[Z],
        homes: &[ZoneSet; NR_ZONE_TYPES],
        limit: ZoneType,
        first: usize,
    ) -> usize {
        let mut fair = homes[limit.index()];
        if fair == 0 {
            return first;
        }
        loop {
            let wanted = most_wanted(fair);
            match zones.get(wanted) {
                Some(zone) if zone.walk().is_depleted() => fair &= !(1 << wanted),
                _ => return wanted,
            }
        }
    }

    #[inline(always)]
    fn charge<P: Platform, Z: Walked<P, Self>>(
        table: &Passes,
        zone: Option<&Z>,
        cpu: &mut CpuBatch,
        frames: u64,
    ) {
        if cpu.charge(frames) {
            tell::<P, Self, Z>(table, zone, cpu);
        }
        if let Some(zone) = zone {
            zone.walk().look();
        }
    }

    fn charge_zone<P: Platform, Z: Walked<P, Self>>(_: &Passes, zone: &Z, frames: u64) {
        zone.walk().batch.take(frames as i64);
        zone.walk().look();
    }

    #[inline]
    fn find<'z, P: Platform, Z: Walked<P, Self>, R>(
        table: &Passes,
        zones: &[Option<&'z Z>],
        limit: ZoneType,
        mark: Mark,
        mut attempt: impl FnMut(&'z Z) -> Result<R, Miss>,
    ) -> Option<R> {
        Self::find_by_pass(table, zones, limit, mark, |zone, _| attempt(zone))
    }

    fn find_by_pass<'z, P: Platform, Z: Walked<P, Self>, R>(
        table: &Passes,
        zones: &[Option<&'z Z>],
        limit: ZoneType,
        mark: Mark,
        mut attempt: impl FnMut(&'z Z, Pass) -> Result<R, Miss>,
    ) -> Option<R> {
        let Some(Some(first)) = zones.first() else { return None };
        let fair = match mark {
            Mark::Low => table.fair[usize::from(first.node().0)][limit.index()],
            _ => 0,
        };
        if fair == 0 {
            return in_order(zones, |zone| attempt(zone, Pass::First));
        }
        let (mut eligible, mut skipped, mut short, mut rescan) = (0, 0, false, table.nodes > 1);
        let part = |zone: &&&'z Z| fair & bit(zone.id()) != 0;
        for zone in zones.iter().flatten().take_while(part) {
            eligible += 1;
            if zone.walk().is_depleted() {
                skipped += 1;
                continue;
            }
            match attempt(zone, Pass::First) {
                Ok(found) => return Some(found),
                Err(Miss::OverDirtyLimit) => rescan = true,
                // The watermark of the source is for the order: a zone without such a block is below it.
                Err(Miss::BelowMark | Miss::Nothing) => short = true,
            }
        }
        if short || eligible == skipped {
            rescan = true;
            // From the lowest type up to the first of the list.
            let reset = |zone: &&&'z Z| zone.node() == first.node() && zone.id() <= first.id();
            zones.iter().flatten().filter(reset).for_each(|zone| zone.walk().fill());
        }
        if rescan { in_order(zones, |zone| attempt(zone, Pass::Rescan)) } else { None }
    }

    fn share<P: Platform, Z: Walked<P, Self>>(_: &Passes, zone: &Z) -> Option<FairShare> {
        let zone = zone.walk();
        Some(FairShare { batch: zone.batch.left(), depleted: zone.is_depleted() })
    }
}
