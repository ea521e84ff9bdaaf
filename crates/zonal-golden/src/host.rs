//! The parts of `zonal-host` on one CPU, whose number costs nothing to learn.

use std::error::Error;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};
use zonal::Host;
use zonal::map::{MemoryMap, PhysAddr, Region};
use zonal::plan::{Config, Plan};
use zonal::platform::{Direction, FenceUnsupported, Platform};
use zonal::policy::{Policy, Split};
use zonal::watermark::{MinFree, WatermarkConfig};
use zonal::{Allocator, CannotZero, CpuId, NodeId, Order, Pfn};
use zonal_host::Threads;
use zonal_host::biased_slot::BiasedSlot;
use zonal_host::park_lock::ParkLock;
use zonal_tables::HeapTables;

/// Asking the system for the CPU is left out: what that costs depends on the C library and on
/// what the tool that counts lets through.
///
/// It is on `NODE`, which is a constant: a host with one node only knows that, too.
pub(crate) struct OneCpu<const NODE: u8 = 0>;

impl<const NODE: u8> Platform for OneCpu<NODE> {
    type Byte = AtomicU8;
    type Half = AtomicU32;
    type Word = AtomicU64;
    type Lock<T: Send> = ParkLock<T>;
    type Slot<T: Send> = BiasedSlot<T>;

    fn cpu(&self) -> CpuId {
        CpuId(0)
    }

    fn node(&self, _: CpuId) -> NodeId {
        NodeId(NODE)
    }

    #[inline(always)]
    fn prefetch<T>(what: &T) {
        Threads::prefetch(what);
    }

    #[inline(always)]
    fn light_fence() {
        Threads::light_fence();
    }

    fn heavy_fence() -> Result<(), FenceUnsupported> {
        Threads::heavy_fence()
    }

    #[inline(always)]
    fn fill(bytes: &[AtomicU8], value: u8) {
        Threads::fill(bytes, value);
    }

    #[inline(always)]
    fn replace_run(bytes: &[AtomicU8], from: u8, to: u8) -> usize {
        Threads::replace_run(bytes, from, to)
    }

    #[inline(always)]
    fn write_run(halves: &[AtomicU32], first: u32, direction: Direction) {
        Threads::write_run(halves, first, direction);
    }

    #[inline(always)]
    fn is_run(halves: &[AtomicU32], direction: Direction) -> bool {
        Threads::is_run(halves, direction)
    }
}

/// There is no memory to fill: what is counted is the way there.
impl<const NODE: u8> Host for OneCpu<NODE> {
    fn zero(&self, _: Pfn, _: Order) -> Result<(), CannotZero> {
        Ok(())
    }
}

const MEMORY: u64 = 256 << 20;

/// Runs `work` on an allocator of one zone without watermarks.
pub(crate) fn with_allocator<S: Policy>(
    work: impl FnOnce(&Allocator<'_, OneCpu, S>) -> Result<(), Box<dyn Error>>,
) -> Result<(), Box<dyn Error>> {
    let map = MemoryMap::from_regions(&[Region::usable(PhysAddr(0), MEMORY)])?.sanitise()?;
    let config = Config {
        dma_limit: Pfn::new(0),
        dma32_limit: Pfn::new(0),
        watermarks: WatermarkConfig { min_free: MinFree::None, ..WatermarkConfig::default() },
        ..Config::new(1)
    };
    let plan = Plan::new(map, config, S::Split::instances)?;
    with_plan(OneCpu, &plan, work)
}

/// Runs `work` on an allocator for `plan`.
pub(crate) fn with_plan<P: Host, S: Policy>(
    host: P,
    plan: &Plan,
    work: impl FnOnce(&Allocator<'_, P, S>) -> Result<(), Box<dyn Error>>,
) -> Result<(), Box<dyn Error>> {
    let mut tables = HeapTables::new(plan)?;
    work(&Allocator::<_, S>::new(host, plan, tables.storage())?)
}
