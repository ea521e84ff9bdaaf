//! The allocator as workloads see it, whatever its preset: one copy of each workload's code serves
//! all of them. The call through a pointer costs the simulation, not the simulated.

use crate::host::Frames;
use crate::platform::Sim;
use zonal::compact::CompactOutcome;
use zonal::info::{CacheInfo, ZoneInfo};
use zonal::policy::Policy;
use zonal::{
    AllocError, Allocator, BulkFreed, CpuHandle, CpuId, FreeError, Order, Pfn, Request, ZoneId,
};

/// An allocator of any preset.
pub(crate) trait AnyAllocator: Frames {
    /// The caches of a CPU, for its task.
    ///
    /// # Panics
    /// If another task has them.
    fn cpu(&self, cpu: u32) -> Box<dyn Cpu + '_>;
    /// Takes a block through the caches of the CPU that runs, which no task owns.
    fn alloc_shared(&self, request: &Request) -> Result<Pfn, Box<AllocError>>;
    /// Gives single frames back that way, as one list.
    fn free_shared(&self, frames: &[Pfn]) -> BulkFreed;
    fn zone_count(&self) -> usize;
    fn zone_info(&self, zone: ZoneId) -> Option<ZoneInfo>;
    fn cpus(&self) -> u32;
    fn cache_info(&self, zone: ZoneId, cpu: CpuId) -> Option<CacheInfo>;
    fn compact_in_background(&self, order: Order) -> CompactOutcome;
}

impl<'a> dyn AnyAllocator + 'a {
    /// What its zones hold.
    pub(crate) fn zones(&self) -> impl Iterator<Item = ZoneInfo> {
        (0..self.zone_count()).filter_map(|id| self.zone_info(ZoneId(id as u8)))
    }
}

/// A CPU's way into it.
pub(crate) trait Cpu {
    /// The error is large, and rare.
    fn alloc_raw(&mut self, request: &Request) -> Result<Pfn, Box<AllocError>>;
    fn free_raw(&mut self, pfn: Pfn, order: Order) -> Result<(), FreeError>;
    fn free_bulk(&mut self, frames: &[Pfn]) -> BulkFreed;
}

impl<S: Policy> AnyAllocator for Allocator<'_, Sim, S> {
    fn cpu(&self, cpu: u32) -> Box<dyn Cpu + '_> {
        Box::new(self.handle(CpuId(cpu)).expect("one task a CPU"))
    }
    fn alloc_shared(&self, request: &Request) -> Result<Pfn, Box<AllocError>> {
        self.alloc_raw(request).map_err(Box::new)
    }
    fn free_shared(&self, frames: &[Pfn]) -> BulkFreed {
        self.free_bulk(frames)
    }
    fn zone_count(&self) -> usize {
        self.zone_count()
    }
    fn zone_info(&self, zone: ZoneId) -> Option<ZoneInfo> {
        self.zone_info(zone)
    }
    fn cpus(&self) -> u32 {
        self.cpus()
    }
    fn cache_info(&self, zone: ZoneId, cpu: CpuId) -> Option<CacheInfo> {
        self.cache_info(zone, cpu)
    }
    fn compact_in_background(&self, order: Order) -> CompactOutcome {
        self.compact_in_background(order)
    }
}

impl<S: Policy> Cpu for CpuHandle<'_, '_, Sim, S> {
    fn alloc_raw(&mut self, request: &Request) -> Result<Pfn, Box<AllocError>> {
        self.alloc_raw(request).map_err(Box::new)
    }
    fn free_raw(&mut self, pfn: Pfn, order: Order) -> Result<(), FreeError> {
        self.free_raw(pfn, order)
    }
    fn free_bulk(&mut self, frames: &[Pfn]) -> BulkFreed {
        self.free_bulk(frames)
    }
}
