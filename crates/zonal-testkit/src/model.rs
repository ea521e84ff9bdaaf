//! The model allocator: which blocks are out, and nothing else. From that follows what an
//! allocation may return, when it may fail, and what a free must answer.
//!
//! ```
//! use zonal::error::FreeError;
//! use zonal::{Order, Pfn};
//! use zonal_testkit::model::Model;
//! use zonal_testkit::shape::Shape;
//! let plan = Shape::Flat.plan::<zonal::preset::Zonal>();
//! let mut model = Model::new(&plan);
//! let pfn = Pfn::new(0x1000);
//! model.insert(pfn, Order::ZERO);
//! assert_eq!(model.verdict(pfn, Order::ZERO), Ok(()));
//! model.remove(pfn);
//! let double = FreeError::DoubleFree { pfn, order: Order::ZERO };
//! assert_eq!(model.verdict(pfn, Order::ZERO), Err(double));
//! ```

use crate::checkers::{Checked, Violation};
use crate::snapshot::Snapshot;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use zonal::error::{AllocError, AllocReason, FreeError};
use zonal::inspect::Place;
use zonal::map::RangeKind;
use zonal::plan::Plan;
use zonal::platform::Platform;
use zonal::policy::{FreeMemory, Policy};
use zonal::watermark::Mark;
use zonal::{Allocator, Block, MigrateType, NodeId, NodePolicy, Order, Pfn, Request, ZoneId};

/// See the [module](self).
#[derive(Clone, Debug)]
pub struct Model<'p> {
    plan: &'p Plan,
    /// First frame → order and place in `blocks`.
    heads: BTreeMap<Pfn, (Order, usize)>,
    /// First frames, in the order that [`nth`](Self::nth) goes by.
    blocks: Vec<Pfn>,
    /// First frames of the pageblocks that have come online.
    online: BTreeSet<Pfn>,
    /// Frames that were released, and the zone that has them.
    released: BTreeMap<Pfn, ZoneId>,
}

impl<'p> Model<'p> {
    /// Nothing is out.
    #[must_use]
    pub const fn new(plan: &'p Plan) -> Self {
        Self {
            plan,
            heads: BTreeMap::new(),
            blocks: Vec::new(),
            online: BTreeSet::new(),
            released: BTreeMap::new(),
        }
    }

    /// The plan.
    #[must_use]
    pub const fn plan(&self) -> &'p Plan {
        self.plan
    }

    /// The first frames of the pageblocks of `range`.
    fn pageblocks(&self, range: &Range<Pfn>) -> impl Iterator<Item = Pfn> + use<> {
        let size = self.plan.config().pageblock_order.frames();
        (range.start.get()..range.end.get()).step_by(size as usize).map(Pfn::new)
    }

    /// Notes that whole pageblocks have come online.
    pub fn bring_online(&mut self, range: &Range<Pfn>) {
        self.online.extend(self.pageblocks(range));
    }

    /// Notes that a frame was released to a zone.
    pub fn release(&mut self, pfn: Pfn, zone: ZoneId) {
        self.released.insert(pfn, zone);
    }

    /// The zone of a frame, now or later.
    #[must_use]
    pub fn zone_at(&self, pfn: Pfn) -> Option<ZoneId> {
        self.released.get(&pfn).copied().or_else(|| self.plan.zone_at(pfn))
    }

    /// Notes that they have gone.
    pub fn take_offline(&mut self, range: &Range<Pfn>) {
        self.pageblocks(range).for_each(|pageblock| {
            self.online.remove(&pageblock);
        });
    }

    /// With all that is online in `allocator`.
    #[must_use]
    pub fn as_in<P: Platform, S: Policy>(mut self, allocator: &Allocator<'_, P, S>) -> Self {
        for range in self.plan.map().ranges().iter().filter(|r| r.kind == RangeKind::Offline) {
            let all = self.pageblocks(&(range.start..range.end));
            self.online.extend(all.filter(|&pageblock| allocator.is_online(pageblock)));
        }
        self
    }

    /// Whether the pageblock that begins at `pfn` has come online.
    #[must_use]
    pub fn is_online(&self, pfn: Pfn) -> bool {
        self.online.contains(&pfn)
    }

    /// What the frame is now: what has come online or was released is usable.
    #[must_use]
    pub fn kind_at(&self, pfn: Pfn) -> Option<RangeKind> {
        let size = self.plan.config().pageblock_order.frames();
        let pageblock = Pfn::new(pfn.get() / size * size);
        match self.plan.map().kind_at(pfn) {
            Some(RangeKind::Offline) if self.is_online(pageblock) => Some(RangeKind::Usable),
            _ if self.released.contains_key(&pfn) => Some(RangeKind::Usable),
            kind => kind,
        }
    }

    /// Frames of `zone` that the allocator manages now, of one kind.
    fn managed_in(&self, zone: ZoneId, kind: RangeKind) -> u64 {
        let size = self.plan.config().pageblock_order.frames();
        let there = self.plan.ranges_of(zone).filter(|range| range.kind == kind);
        let come = self.online.iter().filter(|&&at| self.plan.zone_at(at) == Some(zone));
        let released = self.released.values().filter(|&&of| of == zone).count() as u64;
        let come =
            if kind == RangeKind::Usable { come.count() as u64 * size + released } else { 0 };
        there.map(|range| range.frames()).sum::<u64>() + come
    }

    /// Frames that the allocator manages now.
    #[must_use]
    pub fn managed(&self) -> u64 {
        let size = self.plan.config().pageblock_order.frames();
        self.plan.managed() + self.online.len() as u64 * size + self.released.len() as u64
    }

    /// How many blocks are out.
    #[must_use]
    pub fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Whether none is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// One of the blocks that are out, whatever `nth` is; `None` if there is none.
    #[must_use]
    pub fn nth(&self, nth: usize) -> Option<(Pfn, Order)> {
        let pfn = *self.blocks.get(nth % self.blocks.len().max(1))?;
        Some((pfn, self.heads.get(&pfn)?.0))
    }

    /// The blocks that are out, by pfn.
    pub fn iter(&self) -> impl Iterator<Item = (Pfn, Order)> + '_ {
        self.heads.iter().map(|(&pfn, &(order, _))| (pfn, order))
    }

    /// Notes that a block is out.
    pub fn insert(&mut self, pfn: Pfn, order: Order) {
        self.heads.insert(pfn, (order, self.blocks.len()));
        self.blocks.push(pfn);
    }

    /// Notes that a block is back.
    pub fn remove(&mut self, pfn: Pfn) {
        if let Some((_, at)) = self.heads.remove(&pfn) {
            self.blocks.swap_remove(at);
            let moved = self.blocks.get(at).and_then(|moved| self.heads.get_mut(moved));
            if let Some((_, place)) = moved {
                *place = at;
            }
        }
    }

    /// The block that `pfn` is in.
    #[must_use]
    pub fn containing(&self, pfn: Pfn) -> Option<(Pfn, Order)> {
        let (&head, &(order, _)) = self.heads.range(..=pfn).next_back()?;
        (pfn.get() - head.get() < order.frames()).then_some((head, order))
    }

    /// What a free must answer (I-4).
    ///
    /// # Errors
    /// The error that it must answer with.
    pub fn verdict(&self, pfn: Pfn, order: Order) -> Result<(), FreeError> {
        let offset = pfn.get().checked_sub(self.plan.base().get());
        if offset.is_none_or(|offset| offset >= self.plan.frames()) {
            return Err(FreeError::Foreign { pfn });
        }
        match self.kind_at(pfn) {
            None => return Err(FreeError::Hole { pfn }),
            Some(RangeKind::Offline) => return Err(FreeError::Offline { pfn }),
            Some(RangeKind::Reserved | RangeKind::ReclaimLater) => {
                return Err(FreeError::Reserved { pfn });
            }
            Some(RangeKind::Usable | RangeKind::Cma) => {}
        }
        match self.containing(pfn) {
            None => Err(FreeError::DoubleFree { pfn, order }),
            Some((head, allocated)) if head == pfn && allocated == order => Ok(()),
            Some((head, allocated)) if head == pfn => {
                Err(FreeError::WrongOrder { pfn, given: order, allocated })
            }
            Some((head, order)) => Err(FreeError::Inner { pfn, head, order }),
        }
    }

    /// The nodes that may serve the request; `None` if only the allocator knows.
    fn nodes(&self, request: &Request, local: NodeId) -> Option<Vec<NodeId>> {
        let all = || (0..zonal::MAX_NODES as u8).map(NodeId);
        let this_node = request.is_this_node();
        match request.node_policy() {
            NodePolicy::Local if this_node => Some(vec![local]),
            NodePolicy::Preferred(node) if this_node => Some(vec![node]),
            NodePolicy::Interleave(_) if this_node => None,
            NodePolicy::Bind(mask) => {
                let fits = |node: &NodeId| mask.contains(*node) && (!this_node || *node == local);
                Some(all().filter(fits).collect())
            }
            _ => Some(all().collect()),
        }
    }

    /// The zones with memory that may serve the request, in the order of their ids; `None` as
    /// above.
    fn candidates(&self, request: &Request, local: NodeId) -> Option<Vec<ZoneId>> {
        let nodes = self.nodes(request, local)?;
        let zones = self.plan.zones().iter();
        let fits = zones.filter(|z| z.zone_type <= request.limit() && nodes.contains(&z.node));
        let kinds = [RangeKind::Usable, RangeKind::Cma];
        let managed = |zone| kinds.map(|kind| self.managed_in(zone, kind)).iter().sum::<u64>();
        Some(fits.map(|zone| zone.id).filter(|&zone| managed(zone) > 0).collect())
    }

    /// Whether `block` is an answer to `request` from a CPU on node `local` (I-3).
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check_served(&self, request: &Request, local: NodeId, block: &Block) -> Checked {
        if block.order() != request.order() {
            let detail = format!("{request:?} got order {}", block.order());
            return Err(Violation { rule: "I-3", detail });
        }
        self.check_served_raw(request, local, block.pfn())
    }

    /// As [`check_served`](Self::check_served), for the first frame alone.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check_served_raw(&self, request: &Request, local: NodeId, pfn: Pfn) -> Checked {
        let order = request.order();
        let wrong = |detail: String| Err(Violation { rule: "I-3", detail });
        if !pfn.is_aligned(order) {
            return wrong(format!("{request:?} got pfn {pfn}, which is not aligned"));
        }
        let (first, end) = (pfn, Pfn::new(pfn.get() + order.frames()));
        if let Some((head, other)) = self.containing(pfn) {
            return wrong(format!("pfn {pfn} is out already, in {head} of order {other}"));
        }
        if let Some((head, (other, _))) = self.heads.range(first..end).next() {
            return wrong(format!(
                "the block {pfn} of order {order} has {head} (order {other}) in it, which is out"
            ));
        }
        for pfn in (first.get()..end.get()).map(Pfn::new) {
            let kind = self.kind_at(pfn);
            let fits = match kind {
                Some(RangeKind::Usable) => true,
                Some(RangeKind::Cma) => request.migrate_type() == MigrateType::Movable,
                _ => false,
            };
            if !fits {
                return wrong(format!("{request:?} got pfn {pfn}, which is {kind:?}"));
            }
        }
        let last = Pfn::new(end.get() - 1);
        let zone = self.zone_at(first);
        if zone.is_none() || zone != self.zone_at(last) {
            return wrong(format!("the block {pfn} of order {order} is not in one zone"));
        }
        match (self.candidates(request, local), zone) {
            (Some(zones), Some(zone)) if !zones.contains(&zone) => {
                wrong(format!("{request:?} on node {local} got pfn {pfn} of zone {zone}"))
            }
            _ => Ok(()),
        }
    }

    /// Whether `error` is an answer to `request` from a CPU on node `local` (I-6), `after` it.
    ///
    /// # Errors
    /// What could have been had.
    pub fn check_refused(
        &self,
        request: &Request,
        local: NodeId,
        error: &AllocError,
        after: &Snapshot,
        search: Search,
    ) -> Checked {
        for zone in self.exhausted(request, local, error)? {
            let keep = kept_in(request, zone, after);
            self.check_zone_is_empty(request, (zone, keep), after, search)?;
        }
        Ok(())
    }

    /// Whether `error` is an answer to a request for `count` blocks at once, with all that was had for it free
    /// again: of single frames, where the marks keep none of them back, fewer than that were there.
    ///
    /// # Errors
    /// What could have been had.
    pub fn check_bulk_refused(
        &self,
        request: &Request,
        local: NodeId,
        (error, count): (&AllocError, u64),
        after: &Snapshot,
        search: Search,
    ) -> Checked {
        let zones = self.exhausted(request, local, error)?;
        let sees_all = search == Search::Everywhere || !request.may_not_wait();
        let none_kept = zones.iter().all(|&zone| kept_in(request, zone, after) == 0);
        if zones.is_empty() || request.order() > Order::ZERO || !sees_all || !none_kept {
            return Ok(());
        }
        let movable = request.migrate_type() == MigrateType::Movable;
        let free: u64 = zones.iter().map(|&zone| self.free_in(zone, movable, after).0).sum();
        if free >= count {
            let detail =
                format!("{count} times {request:?} failed, but there are {free} usable frames");
            return Err(Violation { rule: "I-6", detail });
        }
        Ok(())
    }

    /// Checks the reason of a refusal; returns the zones that have to be exhausted for it.
    fn exhausted(
        &self,
        request: &Request,
        local: NodeId,
        error: &AllocError,
    ) -> Result<Vec<ZoneId>, Violation> {
        let wrong = |detail: String| Err(Violation { rule: "I-6", detail });
        let Some(zones) = self.candidates(request, local) else { return Ok(Vec::new()) };
        let expected = if !request.migrate_type().is_requestable() {
            AllocReason::NotRequestable
        } else if zones.is_empty() {
            AllocReason::NoZone
        } else if error.reason == AllocReason::CannotZero && request.is_zero() {
            AllocReason::CannotZero
        } else {
            AllocReason::Exhausted
        };
        if error.reason != expected {
            return wrong(format!("{request:?}: {:?}, not {expected:?}", error.reason));
        }
        if expected != AllocReason::Exhausted {
            return Ok(Vec::new());
        }
        if usize::from(error.tried) != zones.len() {
            return wrong(format!("{request:?}: {} zones tried of {zones:?}", error.tried));
        }
        Ok(zones)
    }

    /// Whether `zone` has nothing for `request` while it keeps `keep` frames.
    fn check_zone_is_empty(
        &self,
        request: &Request,
        (zone, keep): (ZoneId, u64),
        after: &Snapshot,
        search: Search,
    ) -> Checked {
        let wrong = |detail: String| Err(Violation { rule: "I-6", detail });
        let movable = request.migrate_type() == MigrateType::Movable;
        let sees_all = search == Search::Everywhere || !request.may_not_wait();
        let counted = counted_for(request, zone, after);
        if request.order() == Order::ZERO {
            let (free, reserved) = if sees_all {
                self.free_in(zone, movable, after)
            } else {
                (whole_in(zone, movable, after).min(counted), 0)
            };
            // A pageblock of the high-atomic reserve is opened for a request that finds nothing,
            // but watermarks are kept without it.
            if (keep == 0 && free > 0) || free - reserved > keep {
                return wrong(format!(
                    "{request:?} failed, but zone {zone} has {free} usable frames, \
                     {reserved} of them high-atomic, and keeps {keep}"
                ));
            }
            return Ok(());
        }
        let fits = |place: Place| match place {
            Place::Untouched => true,
            Place::Listed { order, migrate } => {
                (sees_all || order >= after.pageblock_order)
                    && order >= request.order()
                    && match migrate {
                        MigrateType::Cma => movable,
                        MigrateType::HighAtomic => request.is_atomic(),
                        MigrateType::Isolate => false,
                        _ => true,
                    }
            }
            Place::Cached { .. } => false,
        };
        let missed = after.found.iter().find(|at| at.zone == zone && fits(at.place));
        match missed {
            Some(block) if keep == 0 && (sees_all || counted >= request.order().frames()) => {
                wrong(format!("{request:?} failed, but there is {block:?}"))
            }
            _ => Ok(()),
        }
    }

    /// Frames of `zone` that are not out and usable, and how many of them are free in the
    /// high-atomic reserve.
    fn free_in(&self, zone: ZoneId, movable: bool, after: &Snapshot) -> (u64, u64) {
        let usable = |kind| movable || kind == Some(RangeKind::Usable);
        let cma = if movable { self.managed_in(zone, RangeKind::Cma) } else { 0 };
        let (mut free, mut reserved) = (self.managed_in(zone, RangeKind::Usable) + cma, 0);
        for (pfn, order) in self.iter().filter(|&(pfn, _)| self.zone_at(pfn) == Some(zone)) {
            if usable(self.kind_at(pfn)) {
                free -= order.frames();
            }
        }
        for found in after.found.iter().filter(|found| found.zone == zone) {
            if let Place::Listed { order, migrate: MigrateType::HighAtomic } = found.place {
                reserved += order.frames();
            }
        }
        (free, reserved)
    }
}

/// Frames that a zone keeps from a request.
fn kept_in(request: &Request, zone: ZoneId, after: &Snapshot) -> u64 {
    let info = &after.zones[usize::from(zone.0)];
    let mark = info.watermarks.get(Mark::Min).saturating_add(info.boost);
    let reserve = info.reserve[request.limit().index()];
    request.access().lower(mark).saturating_add(reserve)
}

/// Where a preset looks for a request that may not wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Search {
    /// Everywhere, as for any other.
    Everywhere,
    /// At the hints and at a few CPUs: not at what other CPUs keep, nor at their current pageblocks.
    AFewCpus,
}

impl Search {
    /// What the preset does.
    #[must_use]
    pub const fn of<S: Policy>() -> Self {
        if S::Free::LOCKED { Self::Everywhere } else { Self::AFewCpus }
    }
}

/// Frames of a zone in whole pageblocks, which every search sees.
fn whole_in(zone: ZoneId, movable: bool, after: &Snapshot) -> u64 {
    let is_seen = |place: Place| match place {
        Place::Untouched => true,
        Place::Listed { order, migrate } => {
            let own = migrate.is_requestable() || (movable && migrate == MigrateType::Cma);
            order >= after.pageblock_order && own
        }
        Place::Cached { .. } => false,
    };
    let seen = after.found.iter().filter(|found| found.zone == zone && is_seen(found.place));
    seen.map(|found| found.place.order().frames()).sum()
}

/// Free frames of a zone that the watermarks see and the request may have: what another CPU has freed
/// and not counted is not among them.
fn counted_for(request: &Request, zone: ZoneId, after: &Snapshot) -> u64 {
    let is_not_its = |place: Place| match place {
        Place::Listed { migrate: MigrateType::HighAtomic, .. } => !request.is_atomic(),
        Place::Listed { migrate: MigrateType::Cma, .. } => !request.may_use_cma(),
        _ => false,
    };
    let others = after.found.iter().filter(|found| found.zone == zone && is_not_its(found.place));
    let others: u64 = others.map(|found| found.place.order().frames()).sum();
    after.zones[usize::from(zone.0)].counted_free.saturating_sub(others)
}
