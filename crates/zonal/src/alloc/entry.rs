//! The two ways into a CPU's caches behind one trait: the shared try-lock and the owner's.

use crate::alloc::allocator::Allocator;
use crate::boot::plan::{Plan, ZoneSpec};
use crate::boot::zonelist::MAX_NODES;
use crate::pcp::per_cpu_pages::{InSlot, OutsideOf, OutsideSlot, PassageOf, PerCpuPages, WindowOf};
use crate::platform::{OwnedSlots, Platform};
use crate::policy::{PcpPolicy, Policy, Split, Walk, walk::ZoneSet};
use crate::types::units::{NodeId, ZoneId};
use crate::types::zone_type::{NR_ZONE_TYPES, ZoneType};

pub(crate) trait Entry<'m, P: Platform, S: Policy> {
    /// Whether it is an owner's, and its policy has something outside the slot.
    const OUTSIDE: bool;
    /// Runs `f` on the CPU's cache of the zone with this index; `None` if another CPU is
    /// inside or it has an owner, and for [`NO_ZONE`].
    fn enter_at<R>(&mut self, zone: usize, f: impl FnOnce(&mut InSlot<'_, P, S>) -> R)
    -> Option<R>;
    /// As [`enter_at`](Self::enter_at).
    #[inline(always)]
    fn enter<R>(&mut self, zone: ZoneId, f: impl FnOnce(&mut InSlot<'_, P, S>) -> R) -> Option<R> {
        self.enter_at(usize::from(zone.0), f)
    }
    /// The CPU whose caches these are.
    fn cpu(&self) -> usize;
    /// Where a plain request of this CPU begins.
    fn homes(&self) -> &Homes<S::Walk>;
    /// Where its requests are made.
    #[inline]
    fn seat(&self) -> Seat {
        Seat { cpu: self.cpu(), node: self.homes().node }
    }
    /// What of the home zone's cache lies outside the slot.
    #[inline(always)]
    fn home_outside(&self, limit: ZoneType) -> Option<&'m OutsideOf<P, S>> {
        let _ = limit;
        None
    }
    /// The pageblock that was last freed to, where it is remembered.
    #[inline(always)]
    fn window(&mut self) -> &mut WindowOf<'m, P, S> {
        unreachable!("only owners have one")
    }
    /// Forgets it.
    #[inline]
    fn forget_window(&mut self) {}
    /// Where larger blocks pass outside the slot.
    #[inline(always)]
    fn passage(&mut self) -> &mut Option<PassageOf<'m, P, S>> {
        unreachable!("only owners have one")
    }
    /// What of the cache of a zone lies outside the slot.
    #[inline(always)]
    fn outside(&self, zone: ZoneId) -> Option<&'m OutsideOf<P, S>> {
        let _ = zone;
        None
    }
    /// Whether the last frame that was asked about was of another pageblock than this one is.
    #[inline(always)]
    fn is_first_of(&mut self, pageblock: usize) -> bool {
        let _ = pageblock;
        true
    }
}

/// Where a request is made: the CPU whose caches it tries, and that CPU's node.
#[derive(Clone, Copy)]
pub(crate) struct Seat {
    pub(crate) cpu: usize,
    pub(crate) node: NodeId,
}

/// Where plain requests of a CPU begin, by its node and lane.
pub(crate) struct Homes<W: Walk> {
    pub(crate) node: NodeId,
    /// For each zone limit, the zone that a request tries first, or [`NO_ZONE`].
    pub(crate) first: [u32; NR_ZONE_TYPES],
    pub(crate) walk: W::Homes,
}

impl<W: Walk> Clone for Homes<W> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<W: Walk> Copy for Homes<W> {}

/// Index of no zone: far enough beyond all zones that it is beyond the caches of all CPUs.
pub(crate) const NO_ZONE: u32 = u32::MAX;

/// Where plain requests of one CPU begin: in [`Storage`](crate::Storage), filled when the allocator is built.
pub struct CpuHomes<S: Policy>(pub(crate) Homes<S::Walk>);

impl<S: Policy> CpuHomes<S> {
    /// Nowhere.
    #[must_use]
    pub fn new() -> Self {
        Self(Homes { node: NodeId(0), first: [NO_ZONE; NR_ZONE_TYPES], walk: Default::default() })
    }
}

impl<S: Policy> Default for CpuHomes<S> {
    fn default() -> Self {
        Self::new()
    }
}

/// Which of the instances of a type CPUs prefer: of those whose numbers differ only in the lowest bits the same, one CPU
/// of each node where the nodes' CPUs are numbered in turns.
#[derive(Clone, Copy)]
pub(crate) struct Lanes {
    /// Bits that do not matter.
    shift: u32,
}

impl Lanes {
    pub(crate) fn new(plan: &Plan) -> Self {
        let there = |node: &u8| plan.nodes().contains(NodeId(*node));
        let nodes = (0..MAX_NODES as u8).filter(there).count().max(1);
        Self { shift: nodes.next_power_of_two().ilog2() }
    }

    /// Which of the instances of a type, modulo their number, a CPU prefers.
    #[inline(always)]
    pub(crate) const fn of<S: Split>(self, cpu: usize) -> usize {
        (cpu >> self.shift) & (S::LANES - 1)
    }
}

/// The homes of a CPU on `node`: for each zone limit, the first type of the node's zonelist, and of its instances the
/// lane's.
// Once: it is called for all CPUs, and for one.
#[inline(never)]
pub(crate) fn homes<W: Walk>(plan: &Plan, node: NodeId, lane: usize) -> Homes<W> {
    let first = ZoneType::ALL.map(|limit| {
        let zones = plan.zonelist(node).iter().map(|id| &plan.zones()[id.0 as usize]);
        let mut fitting = zones.filter(|zone| zone.zone_type <= limit).peekable();
        let Some(&first) = fitting.peek() else { return NO_ZONE };
        let same = |zone: &&_| first.is_sibling(zone);
        let instances = fitting.clone().take_while(same).count();
        fitting.nth(lane % instances).map_or(NO_ZONE, |zone| u32::from(zone.id.0))
    });
    Homes { node, first, walk: W::homes(plan, node, preferred(plan, lane)) }
}

/// Of each type and node, the instance that a lane prefers.
fn preferred(plan: &Plan, lane: usize) -> ZoneSet {
    let families = plan.zones().chunk_by(ZoneSpec::is_sibling);
    families.fold(0, |set, family| set | 1 << family[lane % family.len()].id.0)
}

/// Anyone, on the CPU that the platform named. The rest is looked up where it is needed.
pub(crate) struct SharedEntry<'a, 'm, P: Platform, S: Policy> {
    allocator: &'a Allocator<'m, P, S>,
    cpu: usize,
    homes: &'m Homes<S::Walk>,
}

impl<'a, 'm, P: Platform, S: Policy> SharedEntry<'a, 'm, P, S> {
    #[inline(always)]
    pub(crate) const fn new(
        allocator: &'a Allocator<'m, P, S>,
        cpu: usize,
        homes: &'m Homes<S::Walk>,
    ) -> Self {
        Self { allocator, cpu, homes }
    }
}

impl<'m, P: Platform, S: Policy> Entry<'m, P, S> for SharedEntry<'_, 'm, P, S> {
    const OUTSIDE: bool = false;

    #[inline(always)]
    fn enter_at<R>(
        &mut self,
        zone: usize,
        f: impl FnOnce(&mut InSlot<'_, P, S>) -> R,
    ) -> Option<R> {
        let at = self.cpu * self.allocator.zones.len() + zone;
        self.allocator.caches.get(at)?.try_with(f)
    }
    #[inline(always)]
    fn cpu(&self) -> usize {
        self.cpu
    }
    #[inline(always)]
    fn homes(&self) -> &Homes<S::Walk> {
        self.homes
    }
}

/// The owner of a CPU's caches, with what it needs to know of its CPU's node.
pub(crate) struct OwnedEntry<'m, P: Platform, S: Policy, O> {
    owned: O,
    cpu: usize,
    homes: Homes<S::Walk>,
    outside: &'m [OutsideSlot<P, S>],
    /// For each zone limit, that of the zone that a request tries first.
    home_outside: [Option<&'m OutsideSlot<P, S>>; NR_ZONE_TYPES],
    window: WindowOf<'m, P, S>,
    passage: Option<PassageOf<'m, P, S>>,
    /// The pageblock of the last frame that stayed and was not of the window's.
    freed_to: usize,
}

impl<'m, P: Platform, S: Policy, O: OwnedSlots<PerCpuPages<S>>> OwnedEntry<'m, P, S, O> {
    /// `None` where there is no zone.
    pub(crate) fn new(
        owned: O,
        outside: &'m [OutsideSlot<P, S>],
        cpu: usize,
        homes: Homes<S::Walk>,
    ) -> Option<Self> {
        let home_outside = homes.first.map(|zone| outside.get(zone as usize));
        let window = S::Pcp::shut(&outside.first()?.0);
        let (passage, freed_to) = (None, usize::MAX);
        let mut entry =
            Self { owned, cpu, homes, outside, home_outside, window, passage, freed_to };
        entry.set_owned(true, |_, _| ());
        Some(entry)
    }

    /// The CPU whose caches these are.
    pub(crate) const fn number(&self) -> usize {
        self.cpu
    }

    /// Has those who are in the slot know whether the owner may be outside it, after something was done in each zone's.
    pub(crate) fn set_owned(
        &mut self,
        owned: bool,
        mut before: impl FnMut(usize, &mut InSlot<'_, P, S>),
    ) {
        if <Self as Entry<'m, P, S>>::OUTSIDE {
            for (at, out) in self.outside.iter().enumerate() {
                self.owned.with(at, |own| {
                    before(at, &mut InSlot::new(own, out));
                    S::Pcp::set_owned(&out.0, owned);
                });
            }
        }
    }
}

impl<'m, P: Platform, S: Policy, O: OwnedSlots<PerCpuPages<S>>> Entry<'m, P, S>
    for OwnedEntry<'m, P, S, O>
{
    const OUTSIDE: bool = S::Pcp::OUTSIDE && S::Walk::FIRST;

    #[inline(always)]
    fn enter_at<R>(
        &mut self,
        zone: usize,
        f: impl FnOnce(&mut InSlot<'_, P, S>) -> R,
    ) -> Option<R> {
        let (out, window) = (self.outside.get(zone)?, &mut self.window);
        self.owned.with(zone, |own| {
            if S::Pcp::reopen(&out.0) {
                *window = S::Pcp::shut(&out.0);
            }
            f(&mut InSlot::new(own, out))
        })
    }
    #[inline(always)]
    fn cpu(&self) -> usize {
        self.cpu
    }
    #[inline(always)]
    fn homes(&self) -> &Homes<S::Walk> {
        &self.homes
    }
    #[inline(always)]
    fn home_outside(&self, limit: ZoneType) -> Option<&'m OutsideOf<P, S>> {
        self.home_outside[limit.index()].map(|out| &out.0)
    }
    #[inline(always)]
    fn window(&mut self) -> &mut WindowOf<'m, P, S> {
        &mut self.window
    }
    #[inline]
    fn forget_window(&mut self) {
        if let Some(out) = self.outside.first() {
            self.window = S::Pcp::shut(&out.0);
        }
    }
    #[inline(always)]
    fn passage(&mut self) -> &mut Option<PassageOf<'m, P, S>> {
        &mut self.passage
    }
    #[inline(always)]
    fn is_first_of(&mut self, pageblock: usize) -> bool {
        core::mem::replace(&mut self.freed_to, pageblock) != pageblock
    }
    #[inline(always)]
    fn outside(&self, zone: ZoneId) -> Option<&'m OutsideOf<P, S>> {
        self.outside.get(usize::from(zone.0)).map(|out| &out.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::boot::map::{MemoryMap, PhysAddr, Region};
    use crate::boot::plan::{Config, SplitConfig};
    use crate::policy::split::BySize;
    use crate::policy::walk::FirstFit;

    /// Whatever the numbering and the number of instances, each gets its share of a node's CPUs,
    /// up to the CPUs of a lane.
    #[test]
    fn cpus_spread_evenly() {
        let numberings: [fn(usize, usize) -> usize; 2] =
            [|cpu, nodes| cpu % nodes, |cpu, nodes| cpu / (240 / nodes)];
        for (nodes, instances) in
            [1, 2, 3, 4].into_iter().flat_map(|nodes| [1, 2, 3, 4, 8].map(|n| (nodes, n)))
        {
            let mut map = MemoryMap::new();
            for node in 0..nodes as u8 {
                let start = PhysAddr(u64::from(node) << 30);
                map.add(Region::usable(start, 1 << 30).on(NodeId(node))).unwrap();
            }
            let split = SplitConfig::default().with_instances(ZoneType::Dma32, instances);
            let config = Config { split, ..Config::new(240) };
            let plan = Plan::new(map.sanitise().unwrap(), config, BySize::instances).unwrap();
            let lanes = Lanes::new(&plan);
            for node_of in numberings {
                let mut cpus = [0_usize; crate::MAX_ZONES];
                for cpu in 0..240 {
                    let node = NodeId(node_of(cpu, nodes) as u8);
                    let homes = homes::<FirstFit>(&plan, node, lanes.of::<BySize>(cpu));
                    let home = homes.first[ZoneType::Dma32.index()];
                    assert_eq!(plan.zones()[home as usize].node, node);
                    cpus[home as usize] += 1;
                }
                let share = 240 / nodes / usize::from(instances);
                for zone in plan.zones().iter().filter(|z| z.zone_type == ZoneType::Dma32) {
                    let got = cpus[usize::from(zone.id.0)];
                    assert!(
                        got.abs_diff(share) <= share / 4 + nodes,
                        "{got} of {share} CPUs: {nodes} nodes, {instances} instances"
                    );
                }
            }
        }
    }
}
