//! The parts of `zonal-host` on one CPU, whose number costs nothing to learn.

use std::error::Error;
use std::sync::atomic::{AtomicU8, AtomicU64};
use zonal::map::{MemoryMap, PhysAddr, Region};
use zonal::plan::{Config, Plan};
use zonal::platform::{AtomicByte, AtomicWord, Platform, Slot};
use zonal::policy::{Policy, Split};
use zonal::watermark::{MinFree, WatermarkConfig};
use zonal::{Allocator, Common, CpuId, CpuZone, Exchange, NodeId, Pfn, Storage, TableSize, Zone};
use zonal_host::biased_slot::BiasedSlot;
use zonal_host::park_lock::ParkLock;

/// Asking the system for the CPU is left out: what that costs depends on the C library and on
/// what the tool that counts lets through.
///
/// It is on `NODE`, which is a constant: whoever has one node only knows that, too.
pub(crate) struct OneCpu<const NODE: u8 = 0>;

impl<const NODE: u8> Platform for OneCpu<NODE> {
    type Byte = AtomicU8;
    type Word = AtomicU64;
    type Lock<T: Send> = ParkLock<T>;
    type Slot<T: Send> = BiasedSlot<T>;

    fn cpu(&self) -> CpuId {
        CpuId(0)
    }

    fn node(&self, _: CpuId) -> NodeId {
        NodeId(NODE)
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
pub(crate) fn with_plan<P: Platform, S: Policy>(
    host: P,
    plan: &Plan,
    work: impl FnOnce(&Allocator<'_, P, S>) -> Result<(), Box<dyn Error>>,
) -> Result<(), Box<dyn Error>> {
    let size = TableSize::of::<S>(plan);
    let words = |n: u64| (0..n).map(|_| P::Word::new(0)).collect::<Vec<_>>();
    let states: Vec<_> = (0..size.frames).map(|_| P::Byte::new(0)).collect();
    let (links, pageblocks) = (words(size.frames), words(size.pageblocks));
    let (cluster_links, clusters) = (words(size.clusters), words(size.cluster_words));
    let mut zones: Vec<_> = (0..size.zones).map(|_| Zone::vacant()).collect();
    let caches: Vec<_> =
        (0..size.caches).map(|_| <P::Slot<CpuZone<S>> as Slot<_>>::new(CpuZone::new())).collect();
    let exchanges: Vec<_> = (0..size.caches).map(|_| Exchange::new()).collect();
    let common = Common::new();
    let storage = Storage {
        states: &states,
        links: &links,
        pageblocks: &pageblocks,
        cluster_links: &cluster_links,
        clusters: &clusters,
        zones: &mut zones,
        caches: &caches,
        exchanges: &exchanges,
        common: &common,
    };
    work(&Allocator::<_, S>::new(host, plan, storage)?)
}
