//! The two ways into a CPU's caches behind one trait: the shared try-lock and the owned claim.

use crate::cpu_zone::CpuZone;
use crate::plan::Plan;
use crate::platform::{OwnedSlots, Platform, Slot};
use crate::policy::{Policy, Split};
use crate::units::{NodeId, ZoneId};
use crate::zone_type::{NR_ZONE_TYPES, ZoneType};
use crate::zonelist::MAX_NODES;

pub(crate) trait Entry<P: Platform, S: Policy> {
    /// Runs `f` on the CPU's cache of `zone`; `None` if somebody else is inside.
    fn enter<R>(&mut self, zone: ZoneId, f: impl FnOnce(&mut CpuZone<S>) -> R) -> Option<R>;
    /// The CPU whose caches these are.
    fn cpu(&self) -> usize;
    /// The zone that a plain request tries first; a number beyond all zones if there is none.
    fn home(&self, limit: ZoneType) -> ZoneId;
}

/// For each zone limit, the zone that a request tries first.
pub(crate) type Homes = [u8; NR_ZONE_TYPES];

/// Index of no zone in [`Homes`]: beyond all zones.
const NO_ZONE: u8 = u8::MAX;

/// The homes of every node and lane.
pub(crate) struct HomeTable<S: Split> {
    by_node: [S::Lanes<Homes>; MAX_NODES],
    /// CPUs whose numbers differ only in so many low bits are of one lane.
    shift: u32,
}

impl<S: Split> HomeTable<S> {
    pub(crate) fn new(plan: &Plan) -> Self {
        let of_node = |node| S::lanes(|lane| homes(plan, NodeId(node as u8), lane));
        let there = |node: &u8| plan.nodes().contains(NodeId(*node));
        let nodes = (0..MAX_NODES as u8).filter(there).count().max(1);
        Self {
            by_node: core::array::from_fn(of_node),
            // One CPU of each node, where the nodes' CPUs are numbered in turns.
            shift: nodes.next_power_of_two().ilog2(),
        }
    }

    /// The homes of a CPU on `node`, which is below [`MAX_NODES`].
    #[inline(always)]
    pub(crate) fn of(&self, node: NodeId, cpu: usize) -> &Homes {
        &self.by_node[node.0 as usize].as_ref()[self.lane(cpu)]
    }

    /// Which of the instances of a type, modulo their number, a CPU prefers.
    #[inline(always)]
    pub(crate) const fn lane(&self, cpu: usize) -> usize {
        (cpu >> self.shift) & (S::LANES - 1)
    }
}

/// For each zone limit, the first type of the node's zonelist, and of its instances the lane's.
fn homes(plan: &Plan, node: NodeId, lane: usize) -> Homes {
    ZoneType::ALL.map(|limit| {
        let zones = plan.zonelist(node).iter().map(|id| &plan.zones()[id.0 as usize]);
        let mut fitting = zones.filter(|zone| zone.zone_type <= limit).peekable();
        let Some(&first) = fitting.peek() else { return NO_ZONE };
        let same = |zone: &&_| first.is_sibling(zone);
        let instances = fitting.clone().take_while(same).count();
        fitting.nth(lane % instances).map_or(NO_ZONE, |zone| zone.id.0)
    })
}

/// Anyone, on the CPU that the platform named.
pub(crate) struct SharedEntry<'a, P: Platform, S: Policy> {
    caches: &'a [P::Slot<CpuZone<S>>],
    zones: usize,
    cpu: usize,
    homes: &'a Homes,
}

impl<'a, P: Platform, S: Policy> SharedEntry<'a, P, S> {
    #[inline(always)]
    pub(crate) fn new(
        caches: &'a [P::Slot<CpuZone<S>>],
        zones: usize,
        cpu: usize,
        homes: &'a Homes,
    ) -> Self {
        Self { caches, zones, cpu, homes }
    }
}

impl<P: Platform, S: Policy> Entry<P, S> for SharedEntry<'_, P, S> {
    #[inline(always)]
    fn enter<R>(&mut self, zone: ZoneId, f: impl FnOnce(&mut CpuZone<S>) -> R) -> Option<R> {
        self.caches.get(self.cpu * self.zones + zone.0 as usize)?.try_with(f)
    }
    #[inline(always)]
    fn cpu(&self) -> usize {
        self.cpu
    }
    #[inline(always)]
    fn home(&self, limit: ZoneType) -> ZoneId {
        ZoneId(self.homes[limit.index()])
    }
}

/// The owner of a CPU's caches, with what it needs to know of its CPU's node.
pub(crate) struct OwnedEntry<O> {
    pub(crate) owned: O,
    pub(crate) cpu: usize,
    pub(crate) homes: Homes,
}

impl<P: Platform, S: Policy, O: OwnedSlots<CpuZone<S>>> Entry<P, S> for OwnedEntry<O> {
    #[inline(always)]
    fn enter<R>(&mut self, zone: ZoneId, f: impl FnOnce(&mut CpuZone<S>) -> R) -> Option<R> {
        self.owned.with(zone.0 as usize, f)
    }
    #[inline(always)]
    fn cpu(&self) -> usize {
        self.cpu
    }
    #[inline(always)]
    fn home(&self, limit: ZoneType) -> ZoneId {
        ZoneId(self.homes[limit.index()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::map::{MemoryMap, PhysAddr, Region};
    use crate::plan::{Config, SplitConfig};
    use crate::policy::split::BySize;

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
            let table = HomeTable::<BySize>::new(&plan);
            for node_of in numberings {
                let mut cpus = [0_usize; crate::MAX_ZONES];
                for cpu in 0..240 {
                    let node = NodeId(node_of(cpu, nodes) as u8);
                    let home = table.of(node, cpu)[ZoneType::Dma32.index()];
                    assert_eq!(plan.zones()[usize::from(home)].node, node);
                    cpus[usize::from(home)] += 1;
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
