//! The shortest kernel: no heap, tables in statics, one CPU.
//!
//! The README shows this program, and a test compares the two.
//!
//! ```text
//! cargo run -p zonal --example kernel
//! ```

use core::array::from_fn;
use core::sync::atomic::{AtomicU8, AtomicU64};
use zonal::map::{MemoryMap, PhysAddr, Region};
use zonal::plan::{Config, Plan};
use zonal::platform::{Slot, single::SingleThread};
use zonal::policy::{Policy, Split};
use zonal::{preset::Zonal, *};

const FRAMES: usize = 64 << 8; // 64 MiB
static BYTES: [AtomicU8; FRAMES] = [const { AtomicU8::new(0) }; FRAMES];
static WORDS: [AtomicU64; 2 * FRAMES] = [const { AtomicU64::new(0) }; 2 * FRAMES];

fn main() -> Result<(), Box<dyn core::error::Error>> {
    let map = MemoryMap::from_regions(&[Region::usable(PhysAddr(0), 64 << 20)])?.sanitise()?;
    let plan = Plan::new(map, Config::new(1), <Zonal as Policy>::Split::instances)?;
    let size = TableSize::of::<Zonal>(&plan); // two zones: DMA and DMA32
    let mut words = &WORDS[..];
    let mut cut = |n: u64| words.split_off(..n as usize).unwrap_or_default();
    let tables = Storage {
        states: &BYTES,
        links: cut(size.frames),
        pageblocks: cut(size.pageblocks),
        cluster_links: cut(size.clusters),
        clusters: cut(size.cluster_words),
        zones: &mut from_fn::<_, 2, _>(|_| Zone::vacant()),
        caches: &from_fn::<_, 2, _>(|_| Slot::new(CpuZone::new())),
        exchanges: &from_fn::<_, 2, _>(|_| Exchange::new()),
        common: &Common::new(),
    };
    let allocator = Allocator::<_, Zonal>::new(SingleThread, &plan, tables)?;

    let (pfn, order) = allocator.alloc(&Request::new(Order::HUGE))?.into_raw();
    allocator.free_raw(pfn, order)?;
    assert!(allocator.free_raw(pfn, order).is_err(), "a double free is refused");
    Ok(())
}
