//! What an arena is to be like.

use super::{Arena, ArenaError, Tables};
use crate::birth::Birth;
use crate::cpu;
use crate::numa::{self, Binding, Topology};
use crate::pager::Pager;
use crate::region::{Region, RegionError};
use crate::threads::Threads;
use core::num::NonZeroU32;
use std::fmt;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use zonal::map::{MemoryMap, PhysAddr, Region as MapRegion};
use zonal::plan::{Config, Plan, PlanError, SplitConfig};
use zonal::policy::{Policy, Sound, Split};
use zonal::preset::Zonal;
use zonal::units::FRAME_SIZE;
use zonal::watermark::{MinFree, WatermarkConfig};
use zonal::{Allocator, NodeId, Order, Pfn};

/// Which pages back the arena.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum HugePages {
    /// As the system's setting says.
    #[default]
    Never,
    /// Huge ones where the kernel can (`MADV_HUGEPAGE`).
    Advise,
    /// Huge ones from the kernel's pool (hugetlbfs), all set aside when the arena opens,
    /// reserved ones included. Such an arena gives nothing back.
    HugeTlb,
}

/// Describes an arena and [opens](Self::open) it.
#[must_use]
pub struct Builder<S: Policy = Zonal> {
    bytes: usize,
    reserve: usize,
    cpus: Option<u32>,
    owners: Option<u32>,
    huge: HugePages,
    nodes: bool,
    watermarks: WatermarkConfig,
    split: SplitConfig,
    regions: Option<NonZeroU32>,
    pager: Option<Arc<dyn Pager>>,
    preset: PhantomData<fn() -> S>,
}

impl<S: Policy> Default for Builder<S> {
    fn default() -> Self {
        Self::new()
    }
}

impl<S: Policy> fmt::Debug for Builder<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("bytes", &self.bytes)
            .field("reserve", &self.reserve)
            .finish_non_exhaustive()
    }
}

impl<S: Policy> Builder<S> {
    /// No memory yet; all CPUs, as many handles, memory on all nodes, nothing kept back.
    pub fn new() -> Self {
        Self {
            bytes: 0,
            reserve: 0,
            cpus: None,
            owners: None,
            huge: HugePages::Never,
            nodes: true,
            watermarks: WatermarkConfig { min_free: MinFree::None, ..WatermarkConfig::default() },
            split: SplitConfig::default(),
            regions: None,
            pager: None,
            preset: PhantomData,
        }
    }

    /// Memory that is accounted for, rounded up to whole frames.
    pub const fn bytes(mut self, bytes: usize) -> Self {
        self.bytes = bytes;
        self
    }

    /// The whole arena, if more than [`bytes`](Self::bytes): the rest is address space that is
    /// backed on touch.
    pub const fn reserve(mut self, bytes: usize) -> Self {
        self.reserve = bytes;
        self
    }

    /// CPUs with a shared cache. Default: as many as the machine may have. A thread on a CPU
    /// beyond uses the cache of another.
    pub const fn cpus(mut self, cpus: u32) -> Self {
        self.cpus = Some(cpus);
        self
    }

    /// How many [handles](Arena::handle) there can be at once. Default: as many as CPUs.
    pub const fn owners(mut self, owners: u32) -> Self {
        self.owners = Some(owners);
        self
    }

    /// Which pages back the arena.
    pub const fn huge(mut self, huge: HugePages) -> Self {
        self.huge = huge;
        self
    }

    /// Whether the memory is spread over the machine's nodes, each part bound to its node, so
    /// that requests can name nodes and are served from near by. Default yes; without, it is
    /// all node 0's, and the kernel decides where it is. So it is also where the kernel refuses
    /// to bind a part to its node (a cpuset without that node, a filter in a container).
    pub const fn nodes(mut self, spread: bool) -> Self {
        self.nodes = spread;
        self
    }

    /// What is kept back for urgent requests. Default: nothing.
    pub const fn watermarks(mut self, watermarks: WatermarkConfig) -> Self {
        self.watermarks = watermarks;
        self
    }

    /// Regions of a zone: see [`Config::regions`]. Default: by the number of CPUs, which the handles
    /// are counted as.
    pub const fn regions(mut self, regions: NonZeroU32) -> Self {
        self.regions = Some(regions);
        self
    }

    /// How presets that split zone types do it. All memory of an arena is `Normal`. Default: by
    /// size, from 508 GiB a node up.
    ///
    /// ```
    /// use zonal::ZoneType;
    /// use zonal::plan::SplitConfig;
    /// use zonal::preset::SplitZones;
    /// use zonal_host::Arena;
    /// let two = SplitConfig::default().with_instances(ZoneType::Normal, 2);
    /// let arena = Arena::builder().preset::<SplitZones>().reserve(64 << 20).nodes(false);
    /// assert_eq!(arena.split(two).open()?.zone_count(), 2);
    /// # Ok::<(), zonal_host::arena::ArenaError>(())
    /// ```
    pub const fn split(mut self, split: SplitConfig) -> Self {
        self.split = split;
        self
    }

    /// Who gives pages up and moves them when memory is short or in pieces. Default: no pager.
    pub fn pager(mut self, pager: Arc<dyn Pager>) -> Self {
        self.pager = Some(pager);
        self
    }

    /// The same with another preset.
    pub fn preset<T: Policy>(self) -> Builder<T> {
        let Self {
            bytes,
            reserve,
            cpus,
            owners,
            huge,
            nodes,
            watermarks,
            split,
            regions,
            pager,
            ..
        } = self;
        let preset = PhantomData;
        Builder {
            bytes,
            reserve,
            cpus,
            owners,
            huge,
            nodes,
            watermarks,
            split,
            regions,
            pager,
            preset,
        }
    }
}

impl<S: Sound> Builder<S> {
    /// Opens the arena. Costs O(pageblocks): milliseconds for a TiB. For presets of the crate's own
    /// policies ([`Sound`]): pages rest on them.
    ///
    /// # Errors
    /// [`ArenaError`] says what there is not enough of.
    pub fn open(self) -> Result<Arena<S>, ArenaError> {
        let machine = if self.nodes { Topology::read() } else { Topology::flat() };
        self.open_on(&machine)
    }

    /// [Opens](Self::open) it on a machine that has these nodes.
    pub(super) fn open_on(mut self, machine: &Topology) -> Result<Arena<S>, ArenaError> {
        let shared = self.cpus.unwrap_or_else(cpu::possible);
        let owners = self.owners.unwrap_or(shared);
        if shared == 0 {
            return Err(ArenaError::Plan(PlanError::Cpus { cpus: 0 }));
        }
        let (memory, counted) = self.map()?;
        let flat;
        let machine = if bind(&memory, machine) {
            machine
        } else {
            // Parts that may be anywhere say nothing about nodes.
            flat = Topology::flat();
            &flat
        };
        let parts = parts(memory.len(), machine);
        let cpus = shared.saturating_add(owners);
        let plan = self.plan(&memory, &parts, machine, cpus)?;
        // Exposed for `copy_block`, which knows a block by its number only.
        let first = Pfn::containing(memory.base().as_ptr().expose_provenance() as u64);
        let frames = (memory.len() / FRAME_SIZE) as u64;
        // SAFETY: the memory is committed and outlives the host, which goes with the allocator;
        // the allocator zeroes only what it is handing out, and no other caller reaches the host
        // without having promised as much.
        let host = unsafe { Threads::new().with_memory(memory.base(), first, frames) };
        let host = host.with_shared(shared);
        let one = parts.iter().all(|(node, _)| *node == NodeId(0));
        let host = if one { host } else { host.with_nodes(machine, cpus) };
        let host = match self.pager.take() {
            // SAFETY: only the allocator made below has the host, and who reaches the host
            // through it has promised not to move pages; the frames are this arena's.
            Some(pager) => unsafe { host.with_pager(pager) },
            None => host,
        };
        let mut tables = Tables::new::<S>(plan)?;
        // SAFETY: once, with its preset; and the arena drops the allocator before the tables, and hands out
        // nothing of them for longer than a borrow of itself.
        let (plan, storage) = unsafe { tables.lend::<S>() };
        let allocator = Allocator::new(host.ready(), plan, storage)?;
        Ok(Arena {
            allocator: MaybeUninit::new(allocator),
            tables,
            memory,
            counted,
            shared,
            owners,
            lazy: AtomicBool::new(false),
            kept: AtomicUsize::new(0),
            birth: Birth::default(),
        })
    }

    /// The memory, committed, and how much of it is accounted for.
    fn map(&self) -> Result<(Region, usize), RegionError> {
        if self.huge == HugePages::HugeTlb {
            let memory = Region::huge_pages(self.bytes.max(self.reserve))?;
            let bytes = memory.len();
            return Ok((memory, bytes));
        }
        let memory = Region::reserve_mixed(self.bytes, self.reserve.saturating_sub(self.bytes))?;
        let (counted, len) = (self.bytes.next_multiple_of(FRAME_SIZE), memory.len());
        for part in [0..counted, counted..len] {
            if !part.is_empty() {
                memory.commit(part)?;
            }
        }
        if self.huge == HugePages::Advise {
            memory.advise_huge(0..len)?;
        }
        Ok((memory, counted))
    }

    fn plan(
        &self,
        memory: &Region,
        parts: &[(NodeId, Range<usize>)],
        machine: &Topology,
        cpus: u32,
    ) -> Result<Plan, PlanError> {
        let base = memory.base().addr().get() as u64;
        let mut map = MemoryMap::new();
        for (node, part) in parts {
            let start = PhysAddr(base + part.start as u64);
            map.add(MapRegion::usable(start, part.len() as u64).on(*node))?;
        }
        let config = Config {
            // Addresses here are virtual: there are no devices to keep low memory for.
            dma_limit: Pfn::new(0),
            dma32_limit: Pfn::new(0),
            distances: machine.distances()?,
            watermarks: self.watermarks,
            split: self.split,
            regions: self.regions,
            ..Config::new(cpus)
        };
        Plan::new(map.sanitise()?, config, <S::Split as Split>::instances)
    }
}

/// Divides `bytes` evenly among the nodes with memory, in whole largest blocks except for the
/// last. A node for which nothing is left gets nothing.
fn parts(bytes: usize, machine: &Topology) -> Vec<(NodeId, Range<usize>)> {
    let nodes: Vec<NodeId> = machine.with_memory().collect();
    let share = bytes.div_ceil(nodes.len().max(1)).next_multiple_of(Order::MAX.bytes());
    let part = |(at, node)| {
        let start = share.saturating_mul(at);
        (node, start.min(bytes)..start.saturating_add(share).min(bytes))
    };
    let parts = nodes.into_iter().enumerate().map(part);
    parts.filter(|(_, part): &(NodeId, Range<usize>)| !part.is_empty()).collect()
}

/// Has each part of the memory come from its node, if there are several; whether the kernel is
/// willing. If it is not, none is bound.
fn bind(memory: &Region, machine: &Topology) -> bool {
    let parts = parts(memory.len(), machine);
    let bind = |(node, part): &(NodeId, Range<usize>)| {
        numa::bind(memory, part.clone(), *node, Binding::Preferred).is_ok()
    };
    let bound = parts.len() < 2 || parts.iter().all(bind);
    if !bound {
        // Where that is refused too, a part prefers a node, and is a little further away at worst.
        let _ = numa::unbind(memory);
    }
    bound
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use zonal::CpuId;

    #[test]
    fn memory_is_divided_among_nodes() {
        const MIB: usize = 1 << 20;
        let machine = |nodes: u8| {
            let node = |id| numa::Node {
                id: NodeId(id),
                cpus: vec![CpuId(id.into())],
                has_memory: id != 1,
                distances: Vec::new(),
            };
            Topology::from_nodes((0..nodes).map(node).collect())
        };
        let of = |bytes, nodes| parts(bytes, &machine(nodes));
        assert_eq!(of(5000, 1), [(NodeId(0), 0..5000)]);
        assert_eq!(of(5000, 2), [(NodeId(0), 0..5000)]);
        let (a, b) = (0..52 * MIB, 52 * MIB..100 * MIB);
        assert_eq!(of(100 * MIB, 3), [(NodeId(0), a), (NodeId(2), b)]);
        assert_eq!(of(MIB, 4), [(NodeId(0), 0..MIB)], "less than a largest block each");
        let all = of(1 << 40, 4);
        assert_eq!(all.iter().map(|(_, part)| part.len()).sum::<usize>(), 1 << 40);
    }
}
