// Shared by the doctests, which include this text, and the tests of the reports: it builds an allocator
// for one thread.

use zonal::Allocator;
use zonal::map::{MemoryMap, PhysAddr, Region};
use zonal::plan::{Config, Plan};
use zonal::platform::single::SingleThread;
use zonal::policy::{Policy, Split};
use zonal_tables::HeapTables;

/// An allocator of `regions` for `run`.
pub(super) fn with_allocator<S: Policy>(
    regions: &[Region],
    config: Config,
    run: impl FnOnce(&Allocator<'_, SingleThread, S>),
) {
    let map = MemoryMap::from_regions(regions).unwrap().sanitise().unwrap();
    let plan = Plan::new(map, config, S::Split::instances).unwrap();
    let mut tables = HeapTables::new(&plan).unwrap();
    run(&Allocator::<_, S>::new(SingleThread, &plan, tables.storage()).unwrap());
}

/// 64 MiB from address 0, one CPU: a DMA zone of 16 MiB and a DMA32 zone.
pub(super) fn with_small<S: Policy>(run: impl FnOnce(&Allocator<'_, SingleThread, S>)) {
    with_allocator(&[Region::usable(PhysAddr(0), 64 << 20)], Config::new(1), run);
}
