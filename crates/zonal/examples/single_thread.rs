//! A kernel's boot in miniature, on one thread: firmware's memory map becomes a plan, the tables
//! get their place in that map, and blocks are allocated and freed.
//!
//! The frames here are numbers only; nothing reads or writes them. A kernel would put the tables
//! at the address that was carved out; here they are vectors of the same sizes.
//!
//! ```text
//! cargo run -p zonal --example single_thread
//! ```

use std::error::Error;
use zonal::map::{MemoryMap, PhysAddr, Region};
use zonal::plan::{Config, Plan};
use zonal::platform::single::SingleThread;
use zonal::policy::{Policy, Split, split::OnNode};
use zonal::preset::Zonal;
use zonal::report::BuddyInfo;
use zonal::units::FRAME_SIZE;
use zonal::{Allocator, MigrateType, Order, Pfn, Request, TableSize, ZoneId, ZoneType};
use zonal_tables::HeapTables;

/// What a boot loader hands over: memory with a hole for devices below 1 MiB, the kernel's image,
/// firmware tables near the top; unsorted, and not all of it in whole frames.
const FIRMWARE: [Region; 5] = [
    Region::usable(PhysAddr(0x10_0000), (128 << 20) - 0x10_0000),
    Region::usable(PhysAddr(0), 0x9_fc00),
    Region::reserved(PhysAddr(0x9_fc00), 0x6_0400),
    Region::reserved(PhysAddr(0x20_0000), 6 << 20),
    Region::reserved(PhysAddr(0x7f0_0123), 0xf_0000),
];

/// The instances of each zone type that the preset wants.
const INSTANCES: fn(&Config, ZoneType, &OnNode) -> u8 = <<Zonal as Policy>::Split>::instances;

fn main() -> Result<(), Box<dyn Error>> {
    let plan = plan()?;
    for zone in plan.zones() {
        println!(
            "zone {:>6}: pfns {} to {}, {} frames managed, watermarks {}/{}/{}",
            zone.zone_type.name(),
            zone.start,
            zone.end,
            zone.managed,
            zone.watermarks.min,
            zone.watermarks.low,
            zone.watermarks.high
        );
    }

    let mut tables = HeapTables::new(&plan)?;
    let allocator = Allocator::<_, Zonal>::new(SingleThread, &plan, tables.storage())?;
    println!("\nbuddyinfo after boot\n{}", BuddyInfo(&allocator));
    run(&allocator)
}

/// Map and plan, with room for the tables reserved in the map.
fn plan() -> Result<Plan, Box<dyn Error>> {
    let mut map = MemoryMap::from_regions(&FIRMWARE)?.sanitise()?;
    let report = map.report();
    println!(
        "{} frames are usable; {} lost to ragged ends, {} to reserved regions that share a frame",
        map.frames_usable(),
        report.trimmed,
        report.grown
    );
    // The size follows from a plan, and the plan from the map: the first plan is for the size.
    // With less memory to manage the tables do not grow, so what is carved is enough.
    let size = TableSize::of::<Zonal>(&Plan::new(map.clone(), Config::new(1), INSTANCES)?);
    let caches = size.cache_bytes::<SingleThread, Zonal>();
    // A frame more for what all CPUs share and for the alignment of each table.
    let bytes = size.table_bytes() + caches + FRAME_SIZE as u64;
    let place = map.carve(bytes, Order::ZERO, None, None)?;
    println!(
        "tables of {} KiB ({:.2} bytes a frame and {} KiB for the CPU) at pfns {} to {}",
        bytes >> 10,
        size.table_bytes() as f64 / size.frames as f64,
        caches >> 10,
        place.start,
        place.end
    );
    Ok(Plan::new(map, Config::new(1), INSTANCES)?)
}

/// What a kernel asks for in its first seconds, and what it gets wrong.
fn run(allocator: &Allocator<'_, SingleThread, Zonal>) -> Result<(), Box<dyn Error>> {
    let page_table = allocator.alloc(&Request::frame())?;
    let dma = Request::new(Order::for_frames(16).unwrap_or(Order::MAX)).zone_limit(ZoneType::Dma);
    let ring = allocator.alloc(&dma)?;
    let huge = allocator.alloc(&Request::new(Order::HUGE).migrate(MigrateType::Movable))?;
    let mut faults = vec![Pfn::default(); 1000];
    let movable = Request::frame().migrate(MigrateType::Movable).zone_limit(ZoneType::Movable);
    allocator.alloc_bulk(&movable, &mut faults)?;
    println!("a page table at pfn {}", page_table.pfn());
    let below = ring.pfn().address() as usize + ring.order().bytes();
    println!("a DMA ring at pfn {}, below {} MiB", ring.pfn(), below.div_ceil(1 << 20));
    println!("a huge page at pfn {}", huge.pfn());
    println!("\nbuddyinfo with all of that in use\n{}", BuddyInfo(allocator));

    // A pfn that was never handed out, and a block freed twice: errors, and nothing changed.
    for wrong in [Pfn::new(0x200), Pfn::new(1 << 40)] {
        if let Err(error) = allocator.free_raw(wrong, Order::ZERO) {
            println!("refused: {error}");
        }
    }
    let (pfn, order) = page_table.into_raw();
    allocator.free_raw(pfn, order)?;
    if let Err(error) = allocator.free_raw(pfn, order) {
        println!("refused: {error}");
    }
    allocator.free(ring)?;
    allocator.free(huge)?;
    let freed = allocator.free_bulk(&faults);
    println!("{} frames freed at once, {} refused", freed.freed, freed.refused);

    // What the caches keep goes back to the lists, merged, and everything is as it was.
    let drained = allocator.drain_all();
    println!("{drained} frames drained from the caches");
    let free = |zone| allocator.zone_info(zone).map_or(0, |zone| zone.free);
    let all: u64 = (0..allocator.zone_count()).map(|id| free(ZoneId(id as u8))).sum();
    println!(
        "{} MiB free\n\nbuddyinfo at the end\n{}",
        (all * FRAME_SIZE as u64) >> 20,
        BuddyInfo(allocator)
    );
    if all == allocator.plan().managed() { Ok(()) } else { Err("frames are missing".into()) }
}
