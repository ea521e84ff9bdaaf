//! The zones that a request may use, and in which order.

use super::allocator::Allocator;
use super::entry::Seat;
use crate::boot::zonelist::{MAX_NODES, MAX_ZONES};
use crate::frame::{FrameState, PageblockWord};
use crate::platform::{AtomicWord, Platform};
use crate::policy::zone::Zone;
use crate::policy::{Policy, Split};
use crate::types::error::{FreeError, RangeError};
use crate::types::request::{NodePolicy, Request};
use crate::types::units::{NodeId, NodeMask, Pfn};
use core::ops::Range;
use core::sync::atomic::Ordering::Relaxed;

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
    pub(super) fn slice(&self) -> &[Option<&'m Zone<P, S>>] {
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
    /// The zones for a request from a seat: node policy and zone limit applied to a zonelist, and
    /// of each type's instances the one first that the CPU prefers; none without memory. An interleaved
    /// request takes its turn.
    pub(crate) fn zones_for(&self, seat: Seat, request: &Request) -> Zones<'m, P, S> {
        self.zones_by_turn(seat, request, 1)
    }

    /// What [`zones_for`](Self::zones_for) said before, for the turn that was taken last.
    pub(super) fn zones_again(&self, seat: Seat, request: &Request) -> Zones<'m, P, S> {
        self.zones_by_turn(seat, request, 0)
    }

    fn zones_by_turn(&self, seat: Seat, request: &Request, turns: u64) -> Zones<'m, P, S> {
        if self.plan.has_vacant() {
            return self.zones_with_memory(seat, request, turns);
        }
        // Written so that nothing is copied where nothing is split.
        if S::Split::LANES == 1 {
            return self.zones_in_order(seat, request, turns);
        }
        let mut zones = self.zones_in_order(seat, request, turns);
        zones.prefer(self.lane_of(seat.cpu));
        zones
    }

    /// The same, where the plan has zones whose memory is all to come.
    #[cold]
    #[inline(never)]
    fn zones_with_memory(&self, seat: Seat, request: &Request, turns: u64) -> Zones<'m, P, S> {
        let mut zones = self.zones_in_order(seat, request, turns);
        zones.prefer(self.lane_of(seat.cpu));
        // Last: a CPU's place in the ring does not depend on what is there.
        zones.keep(|zone| self.has_memory(zone));
        zones
    }

    fn zones_in_order(&self, seat: Seat, request: &Request, turns: u64) -> Zones<'m, P, S> {
        let local = seat.node;
        let (first, mask) = match request.node_policy() {
            NodePolicy::Local => (local, NodeMask::ALL),
            NodePolicy::Preferred(node) => (node, NodeMask::ALL),
            NodePolicy::Bind(mask) => (local, mask),
            NodePolicy::Interleave(mask) => (self.node_in_turn(mask, local, turns), NodeMask::ALL),
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

    /// The node whose turn it is, after `turns` were taken: one, or none for that of the last.
    fn node_in_turn(&self, mask: NodeMask, local: NodeId, turns: u64) -> NodeId {
        // A node without memory has no turn: its neighbours would get it.
        let there = self.nodes_with_memory();
        let both = |&node: &NodeId| mask.contains(node) && there.contains(node);
        let members = (0..MAX_NODES as u8).map(NodeId).filter(both);
        let count = members.clone().count() as u64;
        if count == 0 {
            return local;
        }
        // Relaxed: a counter; which of two requests gets which node does not matter.
        let taken = self.shared.turn.fetch_add(turns, Relaxed).wrapping_add(turns);
        members.clone().nth((taken.wrapping_sub(1) % count) as usize).unwrap_or(local)
    }

    /// Whether a zone manages anything. Those that do from the start always do.
    #[inline]
    pub(crate) fn has_memory(&self, zone: &Zone<P, S>) -> bool {
        !self.plan.is_vacant(zone.id) || zone.managed() > 0
    }

    /// The nodes that have memory now.
    pub(crate) fn nodes_with_memory(&self) -> NodeMask {
        if !self.plan.has_vacant() {
            return self.plan.nodes();
        }
        let zones = self.zones.iter().filter(|zone| self.has_memory(zone));
        zones.fold(NodeMask::NONE, |mask, zone| mask.with(zone.node))
    }

    /// The zone that a request from `cpu` tries first, of those that have memory.
    pub(crate) fn first_zone(&self, seat: Seat, request: &Request) -> Option<&'m Zone<P, S>> {
        self.zones_for(seat, request).iter().next()
    }

    /// Whether the pageblock of `pfn` has memory of the allocator now: there from the start, or
    /// online.
    #[must_use]
    pub fn is_online(&self, pfn: Pfn) -> bool {
        self.table.index(pfn).is_some_and(|index| self.is_online_at(index))
    }

    pub(crate) fn is_online_at(&self, index: u32) -> bool {
        self.table.get_pageblock(index).and_then(PageblockWord::zone).is_some()
    }

    /// Whether the frame at `index` is the allocator's: in a pageblock of a zone, and not withheld.
    pub(crate) fn is_managed_at(&self, index: u32) -> bool {
        self.is_online_at(index) && self.table.state(index) != FrameState::WITHHELD
    }

    /// The indexes of a range, which the table spans.
    pub(crate) fn indexes_of(&self, range: &Range<Pfn>) -> Result<Range<u32>, RangeError> {
        if range.is_empty() {
            return Err(RangeError::Empty);
        }
        let table = &self.table;
        let outside = RangeError::Frame(FreeError::Foreign { pfn: range.start });
        let start = table.index(range.start).ok_or(outside)?;
        let room = u64::from(table.frames() - start);
        let frames = range.end.get() - range.start.get();
        if frames > room {
            return Err(RangeError::Frame(FreeError::Foreign {
                pfn: Pfn::new(range.start.get() + room),
            }));
        }
        Ok(start..start + frames as u32)
    }

    /// A range of indexes cut where pageblocks meet.
    pub(crate) fn by_pageblock(
        &self,
        frames: &Range<u32>,
    ) -> impl Iterator<Item = Range<u32>> + use<P, S> {
        let (size, mut rest) = (self.table.pageblock_order().size(), frames.clone());
        core::iter::from_fn(move || {
            let part = rest.start..((rest.start | (size - 1)) + 1).min(rest.end);
            rest.start = part.end;
            (!part.is_empty()).then_some(part)
        })
    }

    /// Frames that all CPUs cache of a zone.
    pub(crate) fn cached_in(&self, zone: &Zone<P, S>) -> u64 {
        self.sum_over_caches(zone, |own| own.cached())
    }
}
