//! When the caches have nothing: the walk over the zones, and everything that is tried when
//! the walk finds nothing either.
//!
//! Walk above the low watermark → wake reclaim → walk above min → merge what was deferred →
//! drain every CPU's cache, open the high-atomic reserve → asynchronous compaction → synchronous
//! compaction and direct reclaim by the host, as long as there is progress → an error that
//! explains itself. Compaction is for more than one frame. No step holds a lock while the next begins (I-7).
//!
//! ```
//! use zonal::slowpath::Shortage;
//! fn wanted(shortage: &Shortage) -> u64 { shortage.request.order().frames() }
//! ```

use crate::alloc::allocator::Allocator;
use crate::alloc::entry::Entry;
use crate::boot::zonelist::{MAX_NODES, MAX_ZONES};
use crate::compact::{CompactMode, CompactOutcome, Count, is_costly};
use crate::pcp::policy::Keeper;
use crate::platform::{AtomicWord, Platform};
use crate::policy::walk::Miss;
use crate::policy::{Compact, Dirty, Policy, Split, Walk};
use crate::types::error::{AllocError, AllocReason, ZONES_EXPLAINED, ZoneTried};
use crate::types::mark::Mark;
use crate::types::migrate_type::{MigrateType, NR_MIGRATE_TYPES};
use crate::types::request::{NodePolicy, Request};
use crate::types::units::{CpuId, NR_ORDERS, NodeId, NodeMask, Order};
use crate::zone::instance::Zone;
use core::sync::atomic::Ordering::Relaxed;

/// What the host's callbacks are told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shortage {
    /// The request that cannot be served.
    pub request: Request,
    /// How often the host was asked for it before.
    pub attempt: u32,
}

/// How often the host is asked to reclaim for one request, as long as it makes progress.
const RECLAIM_ATTEMPTS: u32 = 16;
/// How often a single frame is looked for while other CPUs move frames about.
const SEARCHES: u32 = 8;
/// Clusters merged between two looks at whether that was enough.
const COALESCE_STEP: u32 = 16;

/// The zones that a request may use, best first.
pub(crate) struct Zones<'m, P: Platform, S: Policy> {
    list: [Option<&'m Zone<P, S>>; MAX_ZONES],
    len: usize,
}

/// Whether the two are instances of one zone type of a node.
fn is_sibling<P: Platform, S: Policy>(
    one: &Option<&Zone<P, S>>,
    other: &Option<&Zone<P, S>>,
) -> bool {
    one.zip(*other).is_some_and(|(one, other)| one.is_sibling(other))
}

impl<'m, P: Platform, S: Policy> Zones<'m, P, S> {
    fn slice(&self) -> &[Option<&'m Zone<P, S>>] {
        &self.list[..self.len]
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &'m Zone<P, S>> + '_ {
        self.slice().iter().flatten().copied()
    }

    /// The instances of each type and node together, in the same order.
    pub(crate) fn families(&self) -> impl Iterator<Item = &[Option<&'m Zone<P, S>>]> {
        self.slice().chunk_by(is_sibling)
    }

    /// Leaves out those that are not `wanted`.
    fn keep(&mut self, wanted: impl Fn(&Zone<P, S>) -> bool) {
        let mut kept = 0;
        for at in 0..self.len {
            if self.list[at].is_some_and(&wanted) {
                self.list[kept] = self.list[at];
                kept += 1;
            }
        }
        self.len = kept;
    }

    /// Begins every family with the instance that a lane prefers; the others follow in a ring.
    fn prefer(&mut self, lane: usize) {
        for family in self.list[..self.len].chunk_by_mut(is_sibling) {
            family.rotate_left(lane % family.len());
        }
    }
}

impl<'m, P: Platform, S: Policy> Allocator<'m, P, S> {
    /// Steps 1 to last of the slow path; returns the first frame of a block marked allocated.
    pub(crate) fn alloc_anywhere<E: Entry<P, S>>(
        &self,
        entry: &mut E,
        request: &Request,
    ) -> Result<u32, AllocReason> {
        let zones = self.zones_for(entry.cpu(), request);
        if zones.len == 0 {
            return Err(AllocReason::NoZone);
        }
        let found = self.walk_above_low(entry, &zones, request);
        let found = found.or_else(|| self.try_everything(entry, &zones, request));
        let index = found.ok_or(AllocReason::Exhausted)?;
        self.stay_ahead(index, request.order());
        Ok(index)
    }

    /// The steps after the first walk.
    fn try_everything<E: Entry<P, S>>(
        &self,
        entry: &mut E,
        zones: &Zones<'m, P, S>,
        request: &Request,
    ) -> Option<u32> {
        for zone in zones.iter() {
            // What waits in clusters is not scarce: it only has to be merged.
            let deferred = S::Keeper::deferred(&self.here(zone, entry.cpu()));
            if zone.free() + deferred <= zone.mark(Mark::Low) {
                self.platform.wake_reclaim(zone.id);
            }
            if request.order() > Order::ZERO && self.can_compact() {
                self.platform.wake_compaction(zone.id, request.order());
            }
        }
        let found = self.walk(entry, zones, request, Mark::Min);
        let found = found.or_else(|| self.search(entry, zones, request));
        found.or_else(|| self.ask_host(entry, zones, request))
    }

    /// Wakes background compaction if the block at `index`, just taken, was the zone's last of a
    /// large order: the next request should find one.
    fn stay_ahead(&self, index: u32, order: Order) {
        if !S::Compact::STAYS_AHEAD || !is_costly(order) || !self.can_compact() {
            return;
        }
        let zone = self.table.pageblock(index).zone().and_then(|id| self.zone(id));
        if let Some(zone) =
            zone.filter(|zone| !zone.with_buddy(|buddy| buddy.has_block(order, true)))
        {
            self.platform.wake_compaction(zone.id, order);
        }
    }

    fn walk<E: Entry<P, S>>(
        &self,
        entry: &mut E,
        zones: &Zones<'m, P, S>,
        request: &Request,
        mark: Mark,
    ) -> Option<u32> {
        S::Walk::find(&self.walk, zones.slice(), request.limit(), mark, |zone| {
            self.alloc_in(entry, zone, request, mark)
        })
    }

    /// The walk above the low watermark: what will be written goes to the zones within their
    /// dirty limit.
    fn walk_above_low<E: Entry<P, S>>(
        &self,
        entry: &mut E,
        zones: &Zones<'m, P, S>,
        request: &Request,
    ) -> Option<u32> {
        if !S::Dirty::LIMITS || !request.is_write() {
            return self.walk(entry, zones, request, Mark::Low);
        }
        let mut over_limit = false;
        let limit = request.limit();
        let found = S::Walk::find(&self.walk, zones.slice(), limit, Mark::Low, |zone| {
            if !self.may_be_dirtied(zone, request) {
                over_limit = true;
                self.passed_over_as_dirty(zone);
                return Err(Miss::Nothing);
            }
            self.alloc_in(entry, zone, request, Mark::Low)
        });
        if found.is_some() || !S::Dirty::SECOND_PASS || !over_limit {
            return found;
        }
        self.walk(entry, zones, request, Mark::Low)
    }

    /// Looks where frames may be hidden: merges what was deferred, empties every cache.
    ///
    /// Other CPUs go on meanwhile, and may move frames to a place that was looked at already:
    /// out of a cache into a shard, or off the lists into a cache. So a single frame is looked
    /// for again as long as there are signs of one (I-6).
    fn search<E: Entry<P, S>>(
        &self,
        entry: &mut E,
        zones: &Zones<'m, P, S>,
        request: &Request,
    ) -> Option<u32> {
        for _ in 0..SEARCHES {
            if let Some(index) = self.coalesce_for(entry, zones, request) {
                return Some(index);
            }
            let mut seen = self.open_everything(zones, request);
            if let Some(index) = self.walk(entry, zones, request, Mark::Min) {
                return Some(index);
            }
            if request.order() > Order::ZERO {
                break;
            }
            for zone in zones.iter() {
                let here = self.here(zone, entry.cpu());
                seen += self.cached_in(zone) + S::Keeper::deferred(&here);
                // Freed to the lists, or drained to them by somebody else, since the walk.
                seen += self.allowance(&here, request, Mark::Min);
            }
            if seen == 0 {
                break;
            }
        }
        None
    }

    /// Merges deferred clusters until the request can be served or none is left.
    fn coalesce_for<E: Entry<P, S>>(
        &self,
        entry: &mut E,
        zones: &Zones<'m, P, S>,
        request: &Request,
    ) -> Option<u32> {
        loop {
            let mut merged = 0;
            for zone in zones.iter() {
                for _ in 0..COALESCE_STEP {
                    match self.coalesce(CpuId(entry.cpu() as u32), zone) {
                        0 => break,
                        frames => merged += frames,
                    }
                }
            }
            if merged == 0 {
                return None;
            }
            if let Some(index) = self.walk(entry, zones, request, Mark::Min) {
                return Some(index);
            }
        }
    }

    /// Drains every CPU's cache and opens a pageblock of the high-atomic reserve, zone by zone;
    /// returns the frames drained.
    fn open_everything(&self, zones: &Zones<'m, P, S>, request: &Request) -> u64 {
        let mut drained = 0;
        for zone in zones.iter() {
            drained += self.drain_zone(zone);
            let migrate = request.migrate_type();
            zone.with_buddy(|buddy| buddy.unreserve_high_atomic(&self.table, migrate));
            if request.order() == Order::ZERO {
                zone.with_buddy(|buddy| buddy.rejoin(&self.table));
            }
        }
        drained
    }

    /// Compaction, then reclaim, as long as there is progress. A single frame needs no
    /// compaction.
    fn ask_host<E: Entry<P, S>>(
        &self,
        entry: &mut E,
        zones: &Zones<'m, P, S>,
        request: &Request,
    ) -> Option<u32> {
        if request.may_not_wait() {
            return None;
        }
        if let Some(index) = self.compact_zones(entry, zones, request, CompactMode::Async) {
            return Some(index);
        }
        for attempt in 0..RECLAIM_ATTEMPTS {
            if let Some(index) = self.compact_zones(entry, zones, request, CompactMode::Sync) {
                return Some(index);
            }
            let shortage = Shortage { request: *request, attempt };
            if self.platform.reclaim(self, &shortage) == 0 {
                return None;
            }
            if let Some(index) = self.look_again(entry, zones, request) {
                return Some(index);
            }
        }
        None
    }

    /// Compacts the zones one after the other until the request can be served.
    fn compact_zones<E: Entry<P, S>>(
        &self,
        entry: &mut E,
        zones: &Zones<'m, P, S>,
        request: &Request,
        mode: CompactMode,
    ) -> Option<u32> {
        if request.order() == Order::ZERO || !self.can_compact() {
            return None;
        }
        for zone in zones.iter() {
            let (outcome, taken) = self.compact_for(zone, request, mode);
            let found = match outcome {
                CompactOutcome::Success => {
                    taken.or_else(|| self.walk(entry, zones, request, Mark::Min))
                }
                CompactOutcome::Complete | CompactOutcome::PartialSkipped => None,
                // It waited: who compacts may have left a block, or others freed one.
                CompactOutcome::Contended => self.walk(entry, zones, request, Mark::Min),
                _ => continue,
            };
            zone.compaction.count(Count::Stall, 1);
            zone.compaction.count(if found.is_some() { Count::Success } else { Count::Fail }, 1);
            if found.is_some() {
                return found;
            }
        }
        None
    }

    /// Looks for what the host freed: it may sit in any cache or cluster.
    fn look_again<E: Entry<P, S>>(
        &self,
        entry: &mut E,
        zones: &Zones<'m, P, S>,
        request: &Request,
    ) -> Option<u32> {
        let found = self.walk(entry, zones, request, Mark::Min);
        found.or_else(|| self.search(entry, zones, request))
    }

    /// The zones for a request from `cpu`: node policy and zone limit applied to a zonelist, and
    /// of each type's instances the one first that the CPU prefers; none without memory.
    pub(crate) fn zones_for(&self, cpu: usize, request: &Request) -> Zones<'m, P, S> {
        if self.plan.has_vacant() {
            return self.zones_with_memory(cpu, request);
        }
        // Written so that nothing is copied where nothing is split.
        if S::Split::LANES == 1 {
            return self.zones_in_order(cpu, request);
        }
        let mut zones = self.zones_in_order(cpu, request);
        zones.prefer(self.lane_of(cpu));
        zones
    }

    /// The same, where the plan has zones whose memory is all to come.
    #[cold]
    #[inline(never)]
    fn zones_with_memory(&self, cpu: usize, request: &Request) -> Zones<'m, P, S> {
        let mut zones = self.zones_in_order(cpu, request);
        zones.prefer(self.lane_of(cpu));
        // Last: a CPU's place in the ring does not depend on what is there.
        zones.keep(|zone| self.has_memory(zone));
        zones
    }

    fn zones_in_order(&self, cpu: usize, request: &Request) -> Zones<'m, P, S> {
        let local = self.node_of(cpu);
        let (first, mask) = match request.node_policy() {
            NodePolicy::Local => (local, NodeMask::ALL),
            NodePolicy::Preferred(node) => (node, NodeMask::ALL),
            NodePolicy::Bind(mask) => (local, mask),
            NodePolicy::Interleave(mask) => (self.node_in_turn(mask, local), NodeMask::ALL),
        };
        let mask = match request.is_this_node() {
            true if mask.contains(first) => NodeMask::only(first),
            true => NodeMask::NONE,
            false => mask,
        };
        let mut zones = Zones { list: [None; MAX_ZONES], len: 0 };
        for &id in self.plan.zonelist(first) {
            let Some(zone) = self.zone(id) else { continue };
            if zone.zone_type <= request.limit() && mask.contains(zone.node) {
                zones.list[zones.len] = Some(zone);
                zones.len += 1;
            }
        }
        zones
    }

    fn node_in_turn(&self, mask: NodeMask, local: NodeId) -> NodeId {
        // A node without memory has no turn: its neighbours would get it.
        let there = self.nodes_with_memory();
        let both = |&node: &NodeId| mask.contains(node) && there.contains(node);
        let members = (0..MAX_NODES as u8).map(NodeId).filter(both);
        let count = members.clone().count() as u64;
        if count == 0 {
            return local;
        }
        // Relaxed: a counter; which of two requests gets which node does not matter.
        let turn = self.common.turn.fetch_add(1, Relaxed) % count;
        members.clone().nth(turn as usize).unwrap_or(local)
    }

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
            let counts = zone.with_buddy(|buddy| buddy.counts());
            for (sum, row) in error.free.iter_mut().zip(&counts) {
                sum.iter_mut().zip(row).for_each(|(sum, blocks)| *sum += blocks);
            }
            if let Some(slot) = error.zones.get_mut(at) {
                let keep = request.access().lower(zone.mark(mark));
                *slot = Some(ZoneTried {
                    zone: zone.id,
                    node: zone.node,
                    zone_type: zone.zone_type,
                    free: zone.free(),
                    keep: keep.saturating_add(zone.reserve(request.limit())),
                    cached: self.cached_in(zone),
                    deferred: S::Keeper::deferred(&self.here(zone, 0)),
                    largest: core::array::from_fn(|ty| largest(&counts, MigrateType::ALL[ty])),
                });
            }
        }
        error
    }

    /// Frames that all CPUs cache of a zone.
    pub(crate) fn cached_in(&self, zone: &Zone<P, S>) -> u64 {
        self.sum_over_caches(zone, |own| S::Keeper::cached(&own.cache))
    }
}

fn largest(counts: &crate::types::counts::FreeCounts, migrate: MigrateType) -> Option<Order> {
    Order::all().rev().find(|order| counts[order.index()][migrate.index()] > 0)
}
