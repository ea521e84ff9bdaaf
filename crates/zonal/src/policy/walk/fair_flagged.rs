//! The fair walk reworked: a flag for each zone whose batch is used up.
//!
//! - Source: Gorman 2014, patch 3, with what its review by Weiner asked for; ADR 23 has the points.
//! - Mechanism: as [`Fair`](super::Fair), but a CPU charges the zone when its cache has to be
//!   filled, with what it handed out since; the CPU that uses a batch up sets the zone's flag, and
//!   only the flags are looked at, which are seldom written and lie in one word for a node. There
//!   is no fair pass where it makes no difference: for a request that has but one zone on its node
//!   (not counting a lowest zone that is tiny), and for lists in zone order, which promise to spare
//!   the low zones. Remote zones are not scanned in the pass. Batches are filled when all zones of
//!   the pass are depleted and one of them has a frame all the same; one that is down at its
//!   watermark counts as depleted. While all are, a request costs what it does without fairness.
//! - State: the batches of [`Fair`](super::Fair); a word of flags a node. Relaxed, all hints: a
//!   flag that loses a race is set at the next charge.
//! - Conflicts: none.
//! - Counters: `nr_alloc_batch` and `zonal_fair_depleted` in `zoneinfo`.
//! - Tests: `tests/fair.rs`, the suites.

use super::fair::Batch;
use super::{
    FairShare, Miss, Pass, TINY, Walk, Walked, ZoneSet, bit, in_order, local_zones, most_wanted,
};
use crate::boot::plan::Plan;
use crate::boot::zonelist::{MAX_NODES, ZonelistOrder};
use crate::platform::{AtomicWord, Platform};
use crate::types::mark::Mark;
use crate::types::units::NodeId;
use crate::types::zone_type::{NR_ZONE_TYPES, ZoneType};
use core::sync::atomic::Ordering::Relaxed;

/// The fair pass only where it matters, over flags.
#[derive(Clone, Copy, Debug)]
pub struct FairFlagged;

/// Who takes part in the fair pass, and who has used its batch up.
#[derive(Debug)]
pub struct Flags<P: Platform> {
    eligible: [[ZoneSet; NR_ZONE_TYPES]; MAX_NODES],
    /// For each node, its zones that are depleted.
    depleted: [P::Word; MAX_NODES],
}

impl<P: Platform> Flags<P> {
    fn depleted(&self, node: NodeId) -> &P::Word {
        &self.depleted[node.0 as usize]
    }

    /// Marks zones as depleted, or no longer. One attempt: the other CPU's change is as good.
    fn mark(&self, node: NodeId, change: impl FnOnce(ZoneSet) -> ZoneSet) {
        let word = self.depleted(node);
        let before = word.load(Relaxed);
        let after = change(before);
        if after != before {
            // A failure leaves a hint that is a little out of date.
            let _ = word.compare_exchange(before, after, Relaxed, Relaxed);
        }
    }
}

/// How many frames of its cache a CPU has charged to the zone.
#[derive(Debug)]
pub struct Told {
    handed_out: u64,
}

/// The fair pass of requests with one zone limit.
#[derive(Clone, Copy, Debug)]
pub struct FairPass {
    /// The zones that take part; none where one zone is all there is.
    zones: ZoneSet,
    /// Their node.
    node: NodeId,
}

/// For each zone limit, the fair pass of requests from `node`.
fn passes(plan: &Plan, node: NodeId) -> [FairPass; NR_ZONE_TYPES] {
    local_zones(plan, node).map(|local| {
        let none = FairPass { zones: 0, node };
        let in_set = |set: ZoneSet| plan.zones().iter().filter(move |z| set & bit(z.id) != 0);
        let Some(first) = in_set(local).next() else { return none };
        if plan.config().zonelist_order == ZonelistOrder::Zone {
            return none;
        }
        let of_node = plan.zones().iter().filter(|zone| zone.node == first.node);
        let (mut present, mut lowest) = (0, ZoneType::Movable);
        for zone in of_node {
            present += zone.present + zone.later;
            lowest = lowest.min(zone.zone_type);
        }
        let of_lowest = in_set(local).filter(|zone| zone.zone_type == lowest);
        let tiny =
            of_lowest.clone().map(|zone| zone.managed + zone.later).sum::<u64>() < present / TINY;
        let left_out = if tiny { of_lowest.fold(0, |set, zone| set | bit(zone.id)) } else { 0 };
        let fair = local & !left_out;
        if fair.count_ones() > 1 { FairPass { zones: fair, node: first.node } } else { none }
    })
}

impl Walk for FairFlagged {
    type Table<P: Platform> = Flags<P>;
    type Zone<P: Platform> = Batch<P>;
    type Cpu = Told;
    type Homes = [FairPass; NR_ZONE_TYPES];

    fn table<P: Platform>(plan: &Plan) -> Flags<P> {
        Flags {
            eligible: core::array::from_fn(|node| {
                passes(plan, NodeId(node as u8)).map(|pass| pass.zones)
            }),
            depleted: P::Word::zeros(),
        }
    }

    fn new_zone<P: Platform>() -> Batch<P> {
        Batch::new()
    }

    fn new_cpu() -> Told {
        Told { handed_out: 0 }
    }

    fn homes(plan: &Plan, node: NodeId, of_lane: ZoneSet) -> [FairPass; NR_ZONE_TYPES] {
        let of_lane = |pass: FairPass| FairPass { zones: pass.zones & of_lane, ..pass };
        passes(plan, node).map(of_lane)
    }

    fn set_batch<P: Platform>(batch: &Batch<P>, cycle: u64) {
        batch.set(cycle);
    }

    #[inline(always)]
    fn home<P: Platform, Z: Walked<P, Self>>(
        flags: &Flags<P>,
        _: &[Z],
        homes: &[FairPass; NR_ZONE_TYPES],
        limit: ZoneType,
        first: usize,
    ) -> usize {
        match homes[limit.index()] {
            FairPass { zones: 0, .. } => first,
            pass => most_wanted(pass.zones & !flags.depleted(pass.node).load(Relaxed)),
        }
    }

    fn refilled<P: Platform, Z: Walked<P, Self>>(
        flags: &Flags<P>,
        zone: &Z,
        cpu: &mut Told,
        handed_out: u64,
    ) {
        let frames = handed_out.saturating_sub(cpu.handed_out);
        cpu.handed_out = handed_out;
        if frames > 0 {
            Self::charge_zone(flags, zone, frames);
        }
    }

    fn charge_zone<P: Platform, Z: Walked<P, Self>>(flags: &Flags<P>, zone: &Z, frames: u64) {
        if zone.walk().take(frames as i64) <= 0 {
            flags.mark(zone.node(), |depleted| depleted | bit(zone.id()));
        }
    }

    #[inline]
    fn find<'z, P: Platform, Z: Walked<P, Self>, R>(
        flags: &Flags<P>,
        zones: &[Option<&'z Z>],
        limit: ZoneType,
        mark: Mark,
        mut attempt: impl FnMut(&'z Z) -> Result<R, Miss>,
    ) -> Option<R> {
        Self::find_by_pass(flags, zones, limit, mark, |zone, _| attempt(zone))
    }

    fn find_by_pass<'z, P: Platform, Z: Walked<P, Self>, R>(
        flags: &Flags<P>,
        zones: &[Option<&'z Z>],
        limit: ZoneType,
        mark: Mark,
        mut attempt: impl FnMut(&'z Z, Pass) -> Result<R, Miss>,
    ) -> Option<R> {
        let Some(Some(first)) = zones.first() else { return None };
        let fair = match mark {
            Mark::Low => flags.eligible[first.node().0 as usize][limit.index()],
            _ => 0,
        };
        if fair == 0 {
            return in_order(zones, |zone| attempt(zone, Pass::First));
        }
        let mut depleted = flags.depleted(first.node()).load(Relaxed);
        // What has no memory now has nothing to hand out.
        let there = zones.iter().flatten().fold(0, |set, zone| set | bit(zone.id()));
        depleted |= fair & !there;
        for zone in zones.iter().flatten().filter(|zone| fair & bit(zone.id()) != 0) {
            if depleted & bit(zone.id()) != 0 {
                continue;
            }
            match attempt(zone, Pass::First) {
                Ok(found) => return Some(found),
                Err(Miss::BelowMark) => depleted |= bit(zone.id()),
                Err(Miss::Nothing | Miss::OverDirtyLimit) => {}
            }
        }
        let (from, found) = in_order(zones, |zone| Ok((zone, attempt(zone, Pass::Rescan)?)))?;
        // A request that nothing serves leaves the flags as they were.
        flags.mark(first.node(), |before| before | depleted & fair);
        if depleted & fair == fair && fair & bit(from.id()) != 0 {
            // Not before one of them has a frame: as long as none has, there is nothing to share.
            let all = zones.iter().flatten().filter(|zone| fair & bit(zone.id()) != 0);
            all.for_each(|zone| zone.walk().fill());
            flags.mark(first.node(), |before| before & !fair);
        }
        Some(found)
    }

    fn share<P: Platform, Z: Walked<P, Self>>(flags: &Flags<P>, zone: &Z) -> Option<FairShare> {
        let depleted = flags.depleted(zone.node()).load(Relaxed) & bit(zone.id()) != 0;
        Some(FairShare { batch: zone.walk().left(), depleted })
    }
}
