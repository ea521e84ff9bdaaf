//! The fair zone allocation policy of Linux 3.16.
//!
//! - Source: Linux 3.16-rc1, the base of Gorman's series of 2014.
//! - Mechanism: pages live the longer the more of them a zone has, unless the zones of a node
//!   hand out frames in proportion to what a cycle of reclaim gives back: a zone's *batch*, high
//!   less low watermark. Each frame handed out is charged to its zone. The first pass takes the
//!   zones of the node whose batch is not used up; if it finds nothing, all their batches are
//!   filled again, and a second pass takes all zones, remote ones too, in order.
//! - State: a count a zone, written by the CPUs once in a while (`cpu_delta`); relaxed, a hint
//!   to all. Two CPUs that fill it again at once fill it once.
//! - Conflicts: lists in zone order do not spare the low zones with it, as in 3.16.
//! - Counters: `nr_alloc_batch` in `zoneinfo`; what each zone handed out.
//! - Tests: `tests/fair.rs`, the suites.

use super::{
    FairShare, Miss, Pass, Walk, Walked, ZoneSet, bit, in_order, local_zones, most_wanted,
};
use crate::boot::plan::Plan;
use crate::boot::tuning::Tuning;
use crate::boot::zonelist::MAX_NODES;
use crate::platform::{AtomicWord, Platform};
use crate::policy::cpu_delta::threshold;
use crate::types::mark::Mark;
use crate::types::units::NodeId;
use crate::types::zone_type::{NR_ZONE_TYPES, ZoneType};
use core::sync::atomic::Ordering::Relaxed;

/// Every request goes through the fair pass.
#[derive(Clone, Copy, Debug)]
pub struct Fair;

/// A zone's batch.
#[derive(Debug)]
pub struct Batch<P: Platform> {
    /// Frames left of it, signed; all CPUs write it.
    left: P::Word,
    /// Frames that it is filled with.
    size: P::Word,
}

impl<P: Platform> Batch<P> {
    pub(super) fn new() -> Self {
        Self { left: P::Word::new(0), size: P::Word::new(0) }
    }

    /// From now on it has `size` frames, and they are all there.
    pub(super) fn set(&self, size: u64) {
        self.size.store(size, Relaxed);
        self.fill();
    }

    /// All its frames are there again.
    pub(super) fn fill(&self) {
        self.left.store(self.size.load(Relaxed), Relaxed);
    }

    /// Frames left.
    #[inline(always)]
    pub(super) fn left(&self) -> i64 {
        self.left.load(Relaxed).cast_signed()
    }

    /// Takes frames; returns what is left.
    #[inline]
    pub(super) fn take(&self, frames: i64) -> i64 {
        let change = (-frames).cast_unsigned();
        self.left.fetch_add(change, Relaxed).cast_signed().wrapping_sub(frames)
    }
}

/// Frames that a CPU handed out of a zone and has not told yet.
#[derive(Debug)]
pub struct CpuBatch {
    untold: u64,
    threshold: u64,
}

impl CpuBatch {
    pub(super) const fn new() -> Self {
        Self { untold: 0, threshold: 1 }
    }

    pub(super) fn tune(&mut self, tuning: Tuning) {
        self.threshold = u64::from(threshold(tuning).unsigned_abs());
    }

    /// Whether it is time to tell.
    #[inline(always)]
    pub(super) const fn charge(&mut self, frames: u64) -> bool {
        self.untold += frames;
        self.untold > self.threshold
    }

    /// Frames to be taken from the batch now.
    pub(super) const fn tell(&mut self) -> u64 {
        core::mem::replace(&mut self.untold, 0)
    }
}

/// For each node and zone limit, the zones of the first pass.
#[derive(Debug)]
pub struct LocalZones([[ZoneSet; NR_ZONE_TYPES]; MAX_NODES]);

/// Charges the zone with what a CPU has not told yet. Out of line: seldom.
#[cold]
#[inline(never)]
pub(super) fn tell<P: Platform, W: Walk, Z: Walked<P, W>>(
    table: &W::Table<P>,
    zone: Option<&Z>,
    cpu: &mut CpuBatch,
) {
    let frames = cpu.tell();
    if let Some(zone) = zone {
        W::charge_zone(table, zone, frames);
    }
}

impl Walk for Fair {
    type Table<P: Platform> = LocalZones;
    type Zone<P: Platform> = Batch<P>;
    type Cpu = CpuBatch;
    type Homes = [ZoneSet; NR_ZONE_TYPES];

    fn table<P: Platform>(plan: &Plan) -> LocalZones {
        LocalZones(core::array::from_fn(|node| local_zones(plan, NodeId(node as u8))))
    }

    fn new_zone<P: Platform>() -> Batch<P> {
        Batch::new()
    }

    fn new_cpu() -> CpuBatch {
        CpuBatch::new()
    }

    fn tune_cpu(cpu: &mut CpuBatch, tuning: Tuning) {
        cpu.tune(tuning);
    }

    fn homes(plan: &Plan, node: NodeId, of_lane: ZoneSet) -> [ZoneSet; NR_ZONE_TYPES] {
        local_zones(plan, node).map(|local| local & of_lane)
    }

    fn set_batch<P: Platform>(batch: &Batch<P>, cycle: u64) {
        batch.set(cycle);
    }

    #[inline(always)]
    fn home<P: Platform, Z: Walked<P, Self>>(
        _: &LocalZones,
        zones: &[Z],
        homes: &[ZoneSet; NR_ZONE_TYPES],
        limit: ZoneType,
        _: usize,
    ) -> usize {
        let mut local = homes[limit.index()];
        loop {
            let wanted = most_wanted(local);
            match zones.get(wanted) {
                Some(zone) if zone.walk().left() <= 0 => local &= !(1 << wanted),
                _ => return wanted,
            }
        }
    }

    #[inline(always)]
    fn charge<P: Platform, Z: Walked<P, Self>>(
        table: &LocalZones,
        zone: Option<&Z>,
        cpu: &mut CpuBatch,
        frames: u64,
    ) {
        if cpu.charge(frames) {
            tell::<P, Self, Z>(table, zone, cpu);
        }
    }

    fn charge_zone<P: Platform, Z: Walked<P, Self>>(_: &LocalZones, zone: &Z, frames: u64) {
        zone.walk().take(frames as i64);
    }

    #[inline]
    fn find<'z, P: Platform, Z: Walked<P, Self>, R>(
        table: &LocalZones,
        zones: &[Option<&'z Z>],
        limit: ZoneType,
        mark: Mark,
        mut attempt: impl FnMut(&'z Z) -> Result<R, Miss>,
    ) -> Option<R> {
        Self::find_by_pass(table, zones, limit, mark, |zone, _| attempt(zone))
    }

    fn find_by_pass<'z, P: Platform, Z: Walked<P, Self>, R>(
        table: &LocalZones,
        zones: &[Option<&'z Z>],
        limit: ZoneType,
        mark: Mark,
        mut attempt: impl FnMut(&'z Z, Pass) -> Result<R, Miss>,
    ) -> Option<R> {
        if mark == Mark::Low
            && let Some(Some(first)) = zones.first()
        {
            let local = table.0[first.node().0 as usize][limit.index()];
            let fair = || zones.iter().flatten().filter(|zone| local & bit(zone.id()) != 0);
            let mut turn = fair().filter(|zone| zone.walk().left() > 0);
            let found = turn.find_map(|zone| attempt(zone, Pass::First).ok());
            if found.is_some() {
                return found;
            }
            fair().for_each(|zone| zone.walk().fill());
        }
        in_order(zones, |zone| attempt(zone, Pass::Rescan))
    }

    fn share<P: Platform, Z: Walked<P, Self>>(_: &LocalZones, zone: &Z) -> Option<FairShare> {
        let batch = zone.walk().left();
        Some(FairShare { batch, depleted: batch <= 0 })
    }
}
