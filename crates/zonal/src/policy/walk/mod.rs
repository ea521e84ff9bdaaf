//! Which zones of a zonelist are tried, and in which order.
//!
//! | walk | before the zones in order | a plain request, while caches have frames |
//! |---|---|---|
//! | [`FirstFit`] | nothing | the cache of the first zone |
//! | [`Fair`] | the zones of the node whose batch is not used up | the first such zone: its count is read |
//! | [`FairFlagged`] | the same, where that makes a difference | the first such zone: one word is read |
//! | [`FairPosted`] | the same, by flags, with batches of a quarter of the zone | the first such zone: its flag is read |
//!
//! ```
//! use zonal::policy::{Policy, walk::{Fair, FairFlagged, FirstFit}};
//! use zonal::preset::{FairZone, Linux316, Zonal};
//! fn walks<W, S: Policy<Walk = W>>() {}
//! walks::<FirstFit, Zonal>();
//! walks::<Fair, Linux316>();
//! walks::<FairFlagged, FairZone>();
//! ```

mod fair;
mod fair_flagged;
mod fair_posted;

pub use fair::Fair;
pub use fair_flagged::FairFlagged;
pub use fair_posted::FairPosted;

use crate::boot::plan::Plan;
use crate::boot::tuning::Tuning;
use crate::platform::Platform;
use crate::types::mark::Mark;
use crate::types::units::{NodeId, ZoneId};
use crate::types::zone_type::{NR_ZONE_TYPES, ZoneType};
use core::fmt;

/// Why a zone that was tried gave nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Miss {
    /// It has not one frame above the watermark.
    BelowMark,
    /// It has no such block.
    Nothing,
    /// It was passed over: it is beyond its dirty limit.
    OverDirtyLimit,
}

/// Which look at the zones an attempt belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pass {
    /// The first: the fair one, where there is one.
    First,
    /// The one over all zones that follows a fair one in vain.
    Rescan,
}

/// A zone's part in a fair walk, for reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FairShare {
    /// Frames that the zone may still hand out before others have their turn, as far as the CPUs
    /// have told; below zero where it had to go on.
    pub batch: i64,
    /// Whether the zone is passed over in the fair pass.
    pub depleted: bool,
}

/// A set of zones: bit `n` stands for zone `n`. Zones are numbered node by node and from the
/// lowest type up, so the zone that a request wants most is the highest bit.
pub type ZoneSet = u64;

/// A zone as a walk sees it.
pub trait Walked<P: Platform, W: Walk> {
    /// Its number.
    fn id(&self) -> ZoneId;
    /// Its node.
    fn node(&self) -> NodeId;
    /// What the walk keeps in it.
    fn walk(&self) -> &W::Zone<P>;
}

/// A walk over the zones that a request may use, best first.
pub trait Walk: Sized + Send + Sync + 'static {
    /// Whether a plain request turns to the first zone's cache whatever was handed out before; then nothing has to be
    /// [told](Self::refilled).
    const FIRST: bool = false;
    /// Kept for the whole allocator.
    type Table<P: Platform>: Send + Sync;
    /// Kept for each zone instance.
    type Zone<P: Platform>: Send + Sync;
    /// Kept for each CPU and zone, guarded by the CPU's slot.
    type Cpu: Send + fmt::Debug;
    /// Kept for each CPU, by its node and lane; written when the allocator is built.
    type Homes: Copy + Default + fmt::Debug + Send + Sync;

    /// The table for a plan.
    fn table<P: Platform>(plan: &Plan) -> Self::Table<P>;
    /// A zone's part, before [`set_batch`](Self::set_batch).
    fn new_zone<P: Platform>() -> Self::Zone<P>;
    /// A CPU's part, before it is tuned.
    fn new_cpu() -> Self::Cpu;
    /// Sets how far a CPU may be from the shared counts.
    fn tune_cpu(cpu: &mut Self::Cpu, tuning: Tuning) {
        let _ = (cpu, tuning);
    }
    /// What a request at `node` needs to know, for each zone limit; `of_lane` are the zone
    /// instances that its CPU prefers.
    fn homes(plan: &Plan, node: NodeId, of_lane: ZoneSet) -> Self::Homes;
    /// A zone's watermarks are `cycle` frames apart now: one cycle of reclaim.
    fn set_batch<P: Platform>(zone: &Self::Zone<P>, cycle: u64) {
        let _ = (zone, cycle);
    }
    /// A zone manages `managed` frames now.
    fn set_managed<P: Platform>(zone: &Self::Zone<P>, managed: u64) {
        let _ = (zone, managed);
    }

    /// The zone whose cache may answer a plain request; `first` is the first of its zones. An
    /// index beyond all zones: none may.
    #[inline(always)]
    fn home<P: Platform, Z: Walked<P, Self>>(
        table: &Self::Table<P>,
        zones: &[Z],
        homes: &Self::Homes,
        limit: ZoneType,
        first: usize,
    ) -> usize {
        let _ = (table, zones, homes, limit);
        first
    }

    /// `frames` of the zone were handed out on a CPU.
    #[inline(always)]
    fn charge<P: Platform, Z: Walked<P, Self>>(
        table: &Self::Table<P>,
        zone: Option<&Z>,
        cpu: &mut Self::Cpu,
        frames: u64,
    ) {
        let _ = (table, zone, cpu, frames);
    }

    /// A CPU's cache of the zone was empty and has been filled; `handed_out` frames it has handed
    /// out since the start.
    #[inline(always)]
    fn refilled<P: Platform, Z: Walked<P, Self>>(
        table: &Self::Table<P>,
        zone: &Z,
        cpu: &mut Self::Cpu,
        handed_out: u64,
    ) {
        let _ = (table, zone, cpu, handed_out);
    }

    /// `frames` of the zone were handed out past the CPU's cache.
    #[inline(always)]
    fn charge_zone<P: Platform, Z: Walked<P, Self>>(table: &Self::Table<P>, zone: &Z, frames: u64) {
        let _ = (table, zone, frames);
    }

    /// The first answer that `attempt` gives; the walk above [`Mark::Low`] is the fair one.
    fn find<'z, P: Platform, Z: Walked<P, Self>, R>(
        table: &Self::Table<P>,
        zones: &[Option<&'z Z>],
        limit: ZoneType,
        mark: Mark,
        attempt: impl FnMut(&'z Z) -> Result<R, Miss>,
    ) -> Option<R>;

    /// As [`find`](Self::find), and `attempt` is told which look at the zones it belongs to.
    #[inline]
    fn find_by_pass<'z, P: Platform, Z: Walked<P, Self>, R>(
        table: &Self::Table<P>,
        zones: &[Option<&'z Z>],
        limit: ZoneType,
        mark: Mark,
        mut attempt: impl FnMut(&'z Z, Pass) -> Result<R, Miss>,
    ) -> Option<R> {
        Self::find(table, zones, limit, mark, |zone| attempt(zone, Pass::First))
    }

    /// A zone's share, if there is such a thing.
    fn share<P: Platform, Z: Walked<P, Self>>(
        table: &Self::Table<P>,
        zone: &Z,
    ) -> Option<FairShare> {
        let _ = (table, zone);
        None
    }
}

/// A zone with less than one in this many of its node's frames is not used up fairly: with [`FairFlagged`] if it is
/// the lowest, with [`FairPosted`] if it is DMA.
const TINY: u64 = 16;

/// The first of the zones that gives an answer.
#[inline]
fn in_order<'z, Z, R>(
    zones: &[Option<&'z Z>],
    mut attempt: impl FnMut(&'z Z) -> Result<R, Miss>,
) -> Option<R> {
    zones.iter().find_map(|zone| attempt((*zone)?).ok())
}

/// For each zone limit, the zones of the node that a request from `node` begins at.
fn local_zones(plan: &Plan, node: NodeId) -> [ZoneSet; NR_ZONE_TYPES] {
    ZoneType::ALL.map(|limit| {
        let zones = plan.zonelist(node).iter().map(|id| &plan.zones()[id.0 as usize]);
        let fitting = || zones.clone().filter(|zone| zone.zone_type <= limit);
        let first = fitting().next().map(|zone| zone.node);
        fitting().filter(|zone| Some(zone.node) == first).fold(0, |set, zone| set | bit(zone.id))
    })
}

const fn bit(zone: ZoneId) -> ZoneSet {
    1 << zone.0
}

/// The zone of the set that a request wants most, beyond all zones if it is empty.
#[inline(always)]
const fn most_wanted(set: ZoneSet) -> usize {
    // 63 − the leading zeros, or a wrapped number for the empty set.
    (ZoneSet::BITS - 1).wrapping_sub(set.leading_zeros()) as usize
}

/// The first zone that has what is wanted (Linux 4.16).
#[derive(Clone, Copy, Debug)]
pub struct FirstFit;

impl Walk for FirstFit {
    const FIRST: bool = true;
    type Table<P: Platform> = ();
    type Zone<P: Platform> = ();
    type Cpu = ();
    type Homes = ();

    fn table<P: Platform>(_: &Plan) {}
    fn new_zone<P: Platform>() {}
    fn new_cpu() {}
    fn homes(_: &Plan, _: NodeId, _: ZoneSet) {}

    #[inline]
    fn find<'z, P: Platform, Z: Walked<P, Self>, R>(
        (): &(),
        zones: &[Option<&'z Z>],
        _: ZoneType,
        _: Mark,
        mut attempt: impl FnMut(&'z Z) -> Result<R, Miss>,
    ) -> Option<R> {
        zones.iter().find_map(|zone| attempt((*zone)?).ok())
    }
}
