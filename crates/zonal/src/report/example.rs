// Shared by the doctests and the unit tests of the reports, both of which include this text:
// it builds an allocator for one thread over tables in vectors.

use core::sync::atomic::{AtomicU8, AtomicU64};
use zonal::map::{MemoryMap, PhysAddr, Region};
use zonal::plan::{Config, Plan};
use zonal::platform::{AtomicByte, AtomicWord, Platform, Slot, single::SingleThread};
use zonal::policy::{Policy, Split};
use zonal::{Allocator, OutsideSlot, PerCpuPages, SharedState, Storage, TableSize, Zone};
use zonal::zone::tables::FreeWords;

type Cache<S> = <SingleThread as Platform>::Slot<PerCpuPages<S>>;

/// An allocator of `regions` for `run`.
pub(super) fn with_allocator<S: Policy>(
    regions: &[Region],
    config: Config,
    run: impl FnOnce(&Allocator<'_, SingleThread, S>),
) {
    let map = MemoryMap::from_regions(regions).unwrap().sanitise().unwrap();
    let plan = Plan::new(map, config, S::Split::instances).unwrap();
    let size = TableSize::of::<S>(&plan);
    let words =
        |n: u64| (0..n).map(|_| <AtomicU64 as AtomicWord>::new(0)).collect::<std::vec::Vec<_>>();
    let states: std::vec::Vec<_> =
        (0..size.frames).map(|_| <AtomicU8 as AtomicByte>::new(0)).collect();
    let (pageblocks, free) = (words(size.pageblocks), size.free.map(words));
    let mut zones: std::vec::Vec<_> = (0..size.zones).map(|_| Zone::vacant()).collect();
    let caches: std::vec::Vec<_> =
        (0..size.caches).map(|_| Cache::<S>::new(PerCpuPages::new())).collect();
    let outside: std::vec::Vec<_> = (0..size.caches).map(|_| OutsideSlot::new()).collect();
    let shared = SharedState::new();
    let storage = Storage {
        states: &states,
        pageblocks: &pageblocks,
        free: FreeWords([&free[0], &free[1], &free[2]]),
        zones: &mut zones,
        caches: &caches,
        outside: &outside,
        shared: &shared,
    };
    run(&Allocator::<_, S>::new(SingleThread, &plan, storage).unwrap());
}

/// 64 MiB from address 0, one CPU: a DMA zone of 16 MiB and a DMA32 zone.
pub(super) fn with_small<S: Policy>(run: impl FnOnce(&Allocator<'_, SingleThread, S>)) {
    with_allocator(&[Region::usable(PhysAddr(0), 64 << 20)], Config::new(1), run);
}
