//! The allocator: built over the caller's memory, shared by reference between CPUs.
//!
//! `zonal-tables` makes the tables on the heap or in a piece of memory; `zonal-host` keeps them in
//! mapped memory.
//!
//! ```
//! # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example/mod.rs")); }
//! use zonal::{MigrateType, Order, Request};
//!
//! // 64 MiB, tables in vectors: the crate `zonal-tables` makes them in one call.
//! # fn main() -> Result<(), Box<dyn core::error::Error>> {
//! # let mut result = Ok(());
//! # example::with_small::<zonal::preset::Zonal>(|allocator| result = (|| {
//! let huge = allocator.alloc(&Request::new(Order::HUGE).migrate(MigrateType::Movable))?;
//! assert!(huge.pfn().is_aligned(Order::HUGE));
//! let (pfn, order) = huge.into_raw();
//! allocator.free_raw(pfn, order)?;
//! assert!(allocator.free_raw(pfn, order).is_err(), "a double free is refused");
//! # Ok(())
//! # })());
//! # result
//! # }
//! ```

use crate::alloc::build;
use crate::alloc::entry::{CpuHomes, Homes, Lanes, Seat, SharedEntry, homes};
use crate::alloc::handle::CpuHandle;
use crate::alloc::shared::SharedState;
use crate::alloc::storage::{Storage, TableSize};
use crate::boot::plan::Plan;
use crate::boot::zonelist::MAX_NODES;
use crate::frame::FrameTable;
use crate::pcp::per_cpu_pages::{Cache, Caches};
use crate::platform::stay::Stay;
use crate::platform::{OwnError, Platform, Slot};
use crate::policy::pcp::ZoneContext;
use crate::policy::zone::Zone;
use crate::policy::{Policy, Walk};
use crate::types::error::BuildError;
use crate::types::migrate_type::MigrateType;
use crate::types::request::Request;
use crate::types::units::{CpuId, NodeId, ZoneId};
use crate::types::zone_type::ZoneType;
use crate::zone::ZoneView;
use crate::zone::tables::ZoneTables;

/// A page-frame allocator over memory described by a [`Plan`], on platform `P`, with the
/// policies of preset `S`.
///
/// All methods take `&self`; any number of threads may use it at once if `P`'s parts may be
/// shared. The fast paths cost O(1); a request for one frame that may wait has looked everywhere before it fails (I-6), one
/// for a larger block [now and then](https://github.com/zonal-rs/zonal/blob/main/docs/adr/0036-small-errors-and-searches-that-are-bounded.md).
pub struct Allocator<'m, P: Platform, S: Policy> {
    pub(crate) platform: P,
    pub(crate) plan: &'m Plan,
    pub(crate) table: ZoneTables<'m, P>,
    pub(crate) zones: &'m [Zone<P, S>],
    pub(crate) caches: Caches<'m, P, S>,
    /// Of each CPU, by its node as the host said when the allocator was built.
    homes: &'m [CpuHomes<S>],
    lanes: Lanes,
    pub(crate) walk: <S::Walk as Walk>::Table<P>,
    pub(crate) shared: &'m SharedState<P>,
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
        let Storage { states, pageblocks, free, zones, caches, outside, homes, shared } = storage;
        let caches = Caches { slots: caches, outside };
        let frames = FrameTable::new(states, pageblocks, plan.base(), order);
        let table = ZoneTables::new(frames, free);
        build::check_zeroed::<P>(pageblocks)?;
        build::withhold(plan, &table);
        build::set_up_zones::<P, S>(plan, &table, zones);
        build::tune_caches(plan, caches.iter());
        let lanes = Lanes::new(plan);
        for (cpu, own) in (0..).zip(&mut *homes) {
            own.0 = asked_homes::<P, S>(&platform, plan, lanes, cpu);
        }
        Ok(Self {
            platform,
            plan,
            table,
            zones,
            caches,
            homes,
            lanes,
            walk: S::Walk::table(plan),
            shared,
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
    #[inline(always)]
    pub fn cpus(&self) -> u32 {
        // No truncation: there are no more than `MAX_CPUS`.
        self.homes.len() as u32
    }

    /// Makes one owner of the caches of `cpu`, whose fast path takes no atomic
    /// read-modify-write. The CPU number need not be the one the owner runs on; the node that
    /// the platform names for it now is the owner's from then on.
    ///
    /// # Errors
    /// [`OwnError`] if there is no such CPU, its caches are owned, or the platform has no
    /// such path.
    pub fn handle(&self, cpu: CpuId) -> Result<CpuHandle<'_, 'm, P, S>, OwnError> {
        self.handle_at(cpu, || self.homes_now(cpu.0 as usize))
    }

    /// As [`handle`](Self::handle), for an owner on `node`, whatever the platform says of that CPU:
    /// a host that tells it so when the CPU is owned changes nothing of one that is not its own.
    ///
    /// # Errors
    /// As [`handle`](Self::handle).
    pub fn handle_on(&self, cpu: CpuId, node: NodeId) -> Result<CpuHandle<'_, 'm, P, S>, OwnError> {
        self.handle_at(cpu, || homes_on::<S>(self.plan, self.lanes, cpu.0, node))
    }

    fn handle_at(
        &self,
        cpu: CpuId,
        homes: impl FnOnce() -> Homes<S::Walk>,
    ) -> Result<CpuHandle<'_, 'm, P, S>, OwnError> {
        let (cpu, zones) = (cpu.0 as usize, self.zones.len());
        let Caches { slots, outside } =
            self.caches.of_cpu(cpu, zones).ok_or(OwnError::NoSuchCpu)?;
        let owned = Slot::own(slots)?;
        CpuHandle::new(self, owned, outside, cpu, homes()).ok_or(OwnError::NoSuchCpu)
    }

    /// The shared way in, for the CPU that the platform believes this is.
    #[inline(always)]
    pub(crate) fn shared_entry(&self) -> SharedEntry<'_, 'm, P, S> {
        let (cpu, homes) = (self.platform.cpu().0 as usize, self.homes);
        // Numbers wrap round.
        let cpu = if cpu < homes.len() { cpu } else { cpu % homes.len() };
        SharedEntry::new(self, cpu, &homes[cpu].0)
    }

    /// What a CPU caches of a zone; `None` for a CPU or a zone that the allocator does not have.
    pub(crate) fn cache_of(&self, cpu: CpuId, zone: ZoneId) -> Option<Cache<'m, P, S>> {
        self.caches.of_cpu(cpu.0 as usize, self.zones.len())?.get(zone.0 as usize)
    }

    /// What each CPU caches of a zone.
    pub(crate) fn caches_in(&self, zone: ZoneId) -> impl Iterator<Item = Cache<'m, P, S>> {
        (0..self.cpus()).filter_map(move |cpu| self.cache_of(CpuId(cpu), zone))
    }

    /// The zones that plain requests of a CPU try first, by its node as it is now.
    pub(crate) fn homes_now(&self, cpu: usize) -> Homes<S::Walk> {
        asked_homes::<P, S>(&self.platform, self.plan, self.lanes, cpu as u32)
    }

    /// Which of the instances of a type, modulo their number, a CPU prefers.
    pub(crate) fn lane_of(&self, cpu: usize) -> usize {
        self.lanes.of::<S::Split>(cpu)
    }

    /// The zone that a plain request of `cpu` with the given zone limit tries first: where its
    /// node's highest type up to the limit has several instances, the one that the CPU prefers.
    /// While that has no memory, the next that has. `None` for a CPU that the allocator does not
    /// have, or if there is no such zone.
    #[must_use]
    pub fn home_zone(&self, cpu: CpuId, limit: ZoneType) -> Option<ZoneId> {
        let cpu = cpu.0 as usize;
        let homes = &self.homes.get(cpu)?.0;
        let home = self.zones.get(homes.first[limit.index()] as usize)?;
        if self.has_memory(home) {
            return Some(home.id);
        }
        let seat = Seat { cpu, node: homes.node };
        // Movable: of another type it would not be served from a Movable zone.
        let request = Request::frame().migrate(MigrateType::Movable).zone_limit(limit);
        self.first_zone(seat, &request).map(|zone| zone.id)
    }

    /// Where per-CPU pages work when `cpu` turns to `zone`.
    #[inline]
    pub(crate) fn context<'a>(
        &'a self,
        zone: &'a Zone<P, S>,
        cpu: usize,
    ) -> ZoneContext<'a, P, S::Free> {
        ZoneContext { view: zone.view(&self.table), cpu, stay: Stay::NEW }
    }

    /// A zone beside its tables: where its free memory is asked for something.
    #[inline(always)]
    pub(crate) fn view<'a>(&'a self, zone: &'a Zone<P, S>) -> ZoneView<'a, P, S::Free> {
        zone.view(&self.table)
    }

    pub(crate) fn zone(&self, id: ZoneId) -> Option<&'m Zone<P, S>> {
        self.zones.get(id.0 as usize)
    }
}

/// The homes of a CPU on the node that the host names for it.
fn asked_homes<P: Platform, S: Policy>(
    platform: &P,
    plan: &Plan,
    lanes: Lanes,
    cpu: u32,
) -> Homes<S::Walk> {
    homes_on::<S>(plan, lanes, cpu, platform.node(CpuId(cpu)))
}

/// The homes of a CPU on a node; numbers that no node has wrap round.
fn homes_on<S: Policy>(
    plan: &Plan,
    lanes: Lanes,
    cpu: u32,
    NodeId(node): NodeId,
) -> Homes<S::Walk> {
    homes(plan, NodeId(node % MAX_NODES as u8), lanes.of::<S::Split>(cpu as usize))
}
