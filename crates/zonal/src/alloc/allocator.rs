//! The allocator: built over the caller's memory, shared by reference between CPUs.
//!
//! One thread, with the tables in vectors; `zonal-host` keeps them in mapped memory.
//!
//! ```
//! use core::sync::atomic::{AtomicU8, AtomicU64};
//! use zonal::map::{MemoryMap, PhysAddr, Region};
//! use zonal::plan::{Config, Plan};
//! use zonal::platform::{AtomicByte, AtomicWord, Platform, Slot, single::SingleThread};
//! use zonal::policy::{Policy, Split};
//! use zonal::preset::Zonal;
//! use zonal::{Allocator, Common, CpuZone, Exchange, Storage, TableSize, Zone};
//! use zonal::{MigrateType, Order, Request};
//!
//! type Cache = <SingleThread as Platform>::Slot<CpuZone<Zonal>>;
//! let map = MemoryMap::from_regions(&[Region::usable(PhysAddr(0x10_0000), 64 << 20)])?;
//! let plan = Plan::new(map.sanitise()?, Config::new(1), <Zonal as Policy>::Split::instances)?;
//! let size = TableSize::of::<Zonal>(&plan);
//! let words = |n: u64| (0..n).map(|_| <AtomicU64 as AtomicWord>::new(0)).collect::<Vec<_>>();
//! let states: Vec<_> = (0..size.frames).map(|_| <AtomicU8 as AtomicByte>::new(0)).collect();
//! let (links, pageblocks) = (words(size.frames), words(size.pageblocks));
//! let (cluster_links, clusters) = (words(size.clusters), words(size.cluster_words));
//! let mut zones: Vec<_> = (0..size.zones).map(|_| Zone::vacant()).collect();
//! let caches: Vec<_> = (0..size.caches).map(|_| Cache::new(CpuZone::new())).collect();
//! let exchanges: Vec<_> = (0..size.caches).map(|_| Exchange::new()).collect();
//! let common = Common::new();
//! let storage = Storage {
//!     states: &states, links: &links, pageblocks: &pageblocks,
//!     cluster_links: &cluster_links, clusters: &clusters,
//!     zones: &mut zones, caches: &caches, exchanges: &exchanges, common: &common,
//! };
//! let allocator = Allocator::<_, Zonal>::new(SingleThread, &plan, storage)?;
//!
//! let huge = allocator.alloc(&Request::new(Order::HUGE).migrate(MigrateType::Movable))?;
//! assert!(huge.pfn().is_aligned(Order::HUGE));
//! let (pfn, order) = huge.into_raw();
//! allocator.free_raw(pfn, order)?;
//! assert!(allocator.free_raw(pfn, order).is_err(), "a double free is refused");
//! # Ok::<(), Box<dyn core::error::Error>>(())
//! ```

use crate::alloc::build;
use crate::alloc::entry::{HomeTable, Homes, SharedEntry};
use crate::alloc::handle::CpuHandle;
use crate::alloc::storage::{Storage, TableSize};
use crate::boot::plan::Plan;
use crate::boot::zonelist::MAX_NODES;
use crate::frame::{FrameTable, ListWords};
use crate::pcp::depot::stack::{ClusterPool, Common, Exchange};
use crate::pcp::per_cpu_pages::CpuZone;
use crate::pcp::policy::Here;
use crate::platform::{ClaimError, Platform, Slot};
use crate::policy::{Policy, Walk};
use crate::types::block::Block;
use crate::types::error::{AllocError, BuildError, FreeError, RefusedFree};
use crate::types::request::Request;
use crate::types::units::{CpuId, NodeId, Order, Pfn, ZoneId};
use crate::types::zone_type::ZoneType;
use crate::zone::instance::Zone;

/// A page-frame allocator over memory described by a [`Plan`], on platform `P`, with the
/// policies of preset `S`.
///
/// All methods take `&self`; any number of threads may use it at once if `P`'s parts may be
/// shared. The fast paths cost O(1); a request that fails has looked everywhere (I-6).
pub struct Allocator<'m, P: Platform, S: Policy> {
    pub(crate) platform: P,
    pub(crate) plan: &'m Plan,
    pub(crate) table: FrameTable<'m, P>,
    pub(crate) zones: &'m [Zone<P, S>],
    pub(crate) caches: &'m [P::Slot<CpuZone<S>>],
    pub(crate) exchanges: &'m [Exchange<P>],
    pub(crate) pool: ClusterPool<'m, P>,
    homes: HomeTable<S::Split, S::Walk>,
    pub(crate) walk: <S::Walk as Walk>::Table<P>,
    cpus: u32,
    pub(crate) common: &'m Common<P>,
}

impl<'m, P: Platform, S: Policy> Allocator<'m, P, S> {
    /// Builds the allocator: zones, watermarks, and all usable memory free. Costs
    /// O(pageblocks + ranges + caches); frames of largest blocks are not touched.
    ///
    /// # Errors
    /// [`BuildError`] if the storage does not have the sizes that [`TableSize::of`] gives for
    /// the plan, or was not zeroed.
    pub fn new(
        platform: P,
        plan: &'m Plan,
        storage: Storage<'m, P, S>,
    ) -> Result<Self, BuildError> {
        storage.check(&TableSize::of::<S>(plan))?;
        let order = plan.config().pageblock_order;
        let Storage { states, links, pageblocks, cluster_links, clusters, .. } = storage;
        let Storage { zones, caches, exchanges, common, .. } = storage;
        let lists = ListWords { slots: cluster_links, cluster_of: clusters };
        let table = FrameTable::new(states, links, pageblocks, lists, plan.base(), order);
        build::check_zeroed::<P>(pageblocks)?;
        build::set_up_zones(plan, &table, zones);
        build::tune_caches::<P, S>(plan, caches);
        let cluster = <S::Keeper as crate::pcp::policy::Keeper>::CLUSTER;
        Ok(Self {
            platform,
            plan,
            table,
            zones,
            caches,
            exchanges,
            pool: ClusterPool::new(clusters, cluster_links, common, cluster),
            homes: HomeTable::new(plan),
            walk: S::Walk::table(plan),
            cpus: plan.config().cpus,
            common,
        })
    }

    /// The host.
    pub const fn platform(&self) -> &P {
        &self.platform
    }

    /// The plan it was built from.
    pub const fn plan(&self) -> &'m Plan {
        self.plan
    }

    /// How many CPUs have caches.
    pub fn cpus(&self) -> u32 {
        self.cpus
    }

    /// Allocates a block through the try-lock path of the current CPU's cache.
    ///
    /// # Errors
    /// [`AllocError`] says which zones were tried and what they had.
    #[inline(always)]
    pub fn alloc(&self, request: &Request) -> Result<Block, AllocError> {
        self.alloc_through(&mut self.shared_entry(), request)
    }

    /// As [`alloc`](Self::alloc), for those who keep the pfn by other means.
    ///
    /// # Errors
    /// As [`alloc`](Self::alloc).
    #[inline(always)]
    pub fn alloc_raw(&self, request: &Request) -> Result<Pfn, AllocError> {
        self.alloc(request).map(|block| block.into_raw().0)
    }

    /// Frees a block.
    ///
    /// # Errors
    /// [`RefusedFree`] gives the block back if it is not from this allocator.
    #[inline(always)]
    pub fn free(&self, block: Block) -> Result<(), RefusedFree> {
        let (pfn, order) = (block.pfn(), block.order());
        self.free_raw(pfn, order).map_err(|error| RefusedFree { block, error })
    }

    /// Frees the block of `order` that starts at `pfn`.
    ///
    /// # Errors
    /// [`FreeError`] if that is not what was allocated; then nothing has changed (I-4). Two
    /// frees of the same frame at the same instant on two CPUs may both succeed; the second
    /// copy is dropped when it would be handed out.
    #[inline(always)]
    pub fn free_raw(&self, pfn: Pfn, order: Order) -> Result<(), FreeError> {
        self.free_through(&mut self.shared_entry(), pfn, order)
    }

    /// Claims the caches of `cpu` for one owner, whose fast path takes no atomic
    /// read-modify-write. The CPU number need not be the one the owner runs on; the node that
    /// the platform names for it now is the owner's from then on.
    ///
    /// # Errors
    /// [`ClaimError`] if there is no such CPU, its caches are claimed, or the platform has no
    /// such path.
    pub fn handle(&self, cpu: CpuId) -> Result<CpuHandle<'_, 'm, P, S>, ClaimError> {
        let caches = self.caches_of(cpu).ok_or(ClaimError::NoSuchCpu)?;
        let owned = Slot::claim(caches)?;
        Ok(CpuHandle::new(self, owned, cpu.0 as usize))
    }

    /// The shared way in, for the CPU that the platform believes this is.
    #[inline(always)]
    pub(crate) fn shared_entry(&self) -> SharedEntry<'_, P, S> {
        let (CpuId(cpu), cpus) = (self.platform.cpu(), self.cpus());
        let cpu = (if cpu < cpus { cpu } else { cpu % cpus }) as usize;
        SharedEntry::new(self.caches, self.zones.len(), cpu, self.homes_of(cpu))
    }

    pub(crate) fn caches_of(&self, cpu: CpuId) -> Option<&'m [P::Slot<CpuZone<S>>]> {
        self.caches.chunks(self.zones.len()).nth(cpu.0 as usize)
    }

    /// What a CPU caches of a zone; `None` for a CPU or a zone that the allocator does not have.
    pub(crate) fn cache_of(&self, cpu: CpuId, zone: ZoneId) -> Option<&'m P::Slot<CpuZone<S>>> {
        self.caches_of(cpu)?.get(zone.0 as usize)
    }

    /// The node of a CPU, as far as the allocator has memory there.
    #[inline(always)]
    pub(crate) fn node_of(&self, cpu: usize) -> NodeId {
        let NodeId(node) = self.platform.node(CpuId(cpu as u32));
        NodeId(node % MAX_NODES as u8)
    }

    /// The zones that plain requests of a CPU try first.
    #[inline(always)]
    pub(crate) fn homes_of(&self, cpu: usize) -> &Homes<S::Walk> {
        self.homes.of(self.node_of(cpu), cpu)
    }

    /// Which of the instances of a type, modulo their number, a CPU prefers.
    pub(crate) fn lane_of(&self, cpu: usize) -> usize {
        self.homes.lane(cpu)
    }

    /// The zone that a plain request of `cpu` with the given zone limit tries first: where its
    /// node's highest type up to the limit has several instances, the one that the CPU prefers.
    /// While that has no memory, the next that has. `None` for a CPU that the allocator does not
    /// have, or if there is no such zone.
    #[must_use]
    pub fn home_zone(&self, cpu: CpuId, limit: ZoneType) -> Option<ZoneId> {
        let cpu = (cpu.0 < self.cpus).then_some(cpu.0 as usize)?;
        let home = self.zones.get(self.homes_of(cpu).first[limit.index()] as usize)?;
        if self.has_memory(home) {
            return Some(home.id);
        }
        self.first_zone(cpu, &Request::frame().zone_limit(limit)).map(|zone| zone.id)
    }

    /// Where a keeper works when `cpu` turns to `zone`.
    #[inline]
    pub(crate) fn here<'a>(&'a self, zone: &'a Zone<P, S>, cpu: usize) -> Here<'a, P, S> {
        Here {
            table: &self.table,
            zone,
            pool: &self.pool,
            exchanges: self.exchanges,
            zones: self.zones.len(),
            cpu,
        }
    }

    pub(crate) fn zone(&self, id: ZoneId) -> Option<&'m Zone<P, S>> {
        self.zones.get(id.0 as usize)
    }
}
