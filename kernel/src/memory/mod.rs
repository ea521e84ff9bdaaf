//! Memory: the map, the frames that the kernel keeps, page tables, page faults, and the count.

pub(crate) mod cache;
pub(crate) mod count;
pub(crate) mod faults;
pub(crate) mod kept;
pub(crate) mod movable;
pub(crate) mod shares;
pub(crate) mod space;

use crate::machine::acpi::Nodes;
use crate::machine::pvh::BootInfo;
use crate::machine::{FRAMES, Pc, Preset, cpu, dimm, tables};
use core::ops::Range;
use core::sync::atomic::Ordering::Relaxed;
use zonal::map::RangeKind;
use zonal::plan::Config;
use zonal::policy::{FreeMemory, Policy};
use zonal::{Block, NodeId, Order, Pfn, Request, TableSize, ZoneId};
use zonal_kernel::boot_map::{NodeRange, e820::Entry};
use zonal_kernel::global::{Booting, Frames, TablePlace};
use zonal_kernel::{Error, Machine as _};

/// Frames of 8 GiB: of these the kernel keeps who has them.
pub(crate) const KNOWN: usize = 1 << 21;

/// How much of the memory is plugged in later: see `workload::plug`.
const LATER: u64 = 32 << 20;

unsafe extern "C" {
    static image_end: u8;
}

/// Where the memory that comes later lies.
static PLUG: [core::sync::atomic::AtomicU64; 2] =
    [const { core::sync::atomic::AtomicU64::new(0) }; 2];

/// Where the memory that comes later lies, in frames.
pub(crate) fn plug() -> Range<Pfn> {
    let [start, end] = &PLUG;
    Pfn::containing(start.load(Relaxed))..Pfn::containing(end.load(Relaxed))
}

/// The map's entries without the last [`LATER`] bytes of the first that has as much to spare.
fn split(map: &'static [Entry]) -> (impl Iterator<Item = Entry>, Range<u64>) {
    let spare = map.iter().position(|e| e.kind == 1 && e.bytes > 4 * LATER);
    let mut later = 0..0;
    if let Some(at) = spare {
        let end = (map[at].start + map[at].bytes) & !((2 << 20) - 1);
        later = end - LATER..end;
    }
    let start = later.start;
    let cut = map.iter().enumerate().map(move |(at, entry)| match spare {
        Some(spare) if spare == at => Entry { bytes: start - entry.start, ..*entry },
        _ => *entry,
    });
    (cut, later)
}

/// The map, with the nodes of the firmware, and the image and all below it reserved.
fn map(info: &BootInfo, nodes: &Nodes) -> Result<Booting<Pc, Preset>, Error> {
    let end = (&raw const image_end).addr() as u64;
    let of_nodes = nodes.srat.into_iter().flat_map(|srat| srat.memory());
    let (entries, later) = split(info.map);
    let node = node_of(later.start, of_nodes.clone());
    let image = 0..end;
    let [first, last] = &PLUG;
    first.store(later.start, Relaxed);
    last.store(later.end, Relaxed);
    let mut map = FRAMES.map(entries, &[image], of_nodes.clone())?.offline(&later, node)?;
    // What the firmware says has a node, and lies behind all memory: there modules may be plugged in.
    let ends = info.map.iter().filter(|entry| entry.kind == 1);
    let end = ends.map(|entry| entry.start + entry.bytes).max().unwrap_or(0);
    for room in of_nodes.filter(|room| room.bytes.start >= end) {
        map = map.offline(&room.bytes, room.node)?;
    }
    Ok(map)
}

fn node_of(address: u64, mut nodes: impl Iterator<Item = NodeRange>) -> NodeId {
    nodes.find(|node| node.bytes.contains(&address)).map_or(NodeId(0), |node| node.node)
}

/// Builds the allocator.
///
/// # Errors
/// What is wrong with the map.
///
/// # Safety
/// Once, and what the boot loader left is not used after it.
pub(crate) unsafe fn boot(info: &BootInfo, nodes: &Nodes) -> Result<(), Error> {
    let map = map(info, nodes)?;
    #[cfg(feature = "masked")]
    let cpus = crate::machine::masked::CPUS;
    #[cfg(not(feature = "masked"))]
    let cpus = cpu::count();
    let config = Config { distances: nodes.distances, ..Config::new(cpus) };
    if info.command_line == FLAT {
        // SAFETY: as below.
        return unsafe { map.boot(config) };
    }
    // SAFETY: what the map calls memory is: the boot loader says so, or will be said to have come. The
    // image and all below it is reserved; the rest is used through `FRAMES` only. All memory is mapped
    // as it is. The range for tables shows zeros. Of the other allocators in this kernel no token leaves its
    // module: frames go from hand to hand as numbers.
    unsafe { map.boot_sparse(config, TablePlace::default(), tables::reserve()) }
}

/// The command line of a boot with tables for all that may come, which must be seen where that is much.
pub(crate) const FLAT: &str = "flat";

/// Says what the allocator's tables cost; whether that is what memory that is there, or was, needs: 1.15
/// bytes a frame (with lists instead of a map 10), and the pages where a range ends.
pub(crate) fn tables_fit() -> bool {
    let plan = frames().plan();
    let room = plan.map().memory().filter(|range| range.kind == RangeKind::Offline);
    let room = room.map(|range| range.frames()).sum::<u64>();
    let there = frames_there();
    let all = TableSize::of::<Preset>(plan).table_bytes();
    let bytes = FRAMES.tables().map_or(all, |tables| tables.bytes);
    crate::say!(
        "tables: {} KiB, of {} KiB with the {} MiB that may come",
        bytes >> 10,
        all >> 10,
        room >> 8
    );
    let hundredths = if <Preset as Policy>::Free::LOCKED { 1000 } else { 118 };
    bytes <= there * hundredths / 100 + (160 << 10)
}

/// Frames of the memory that is there.
fn frames_there() -> u64 {
    let infos =
        (0..frames().zone_count()).filter_map(|zone| frames().zone_info(ZoneId(zone as u8)));
    infos.map(|info| info.present).sum()
}

/// The first module that was plugged in, in whole largest blocks.
pub(crate) fn module() -> Range<Pfn> {
    let bytes = dimm::in_slot(0);
    let size = Order::MAX.bytes() as u64;
    Pfn::containing(bytes.start.next_multiple_of(size))..Pfn::containing(bytes.end & !(size - 1))
}

/// The allocator, for counts and reports.
pub(crate) fn frames() -> &'static Frames<Pc, Preset> {
    // SAFETY: what is freed through it by number is what was allocated: said where it is done.
    match unsafe { FRAMES.allocator() } {
        Ok(frames) => frames,
        Err(error) => panic!("{error}"),
    }
}

/// Allocates, and lets the timer know that a request is under way.
pub(crate) fn alloc(request: &Request) -> Result<Block, Error> {
    inside(|| cpu::own().home.alloc(request))
}

/// Frees.
pub(crate) fn free(block: Block) {
    if let Err(error) = inside(|| FRAMES.free(block)) {
        panic!("{error}");
    }
}

/// Frees a block by its numbers.
///
/// # Safety
/// It was allocated with this order, and is the caller's.
pub(crate) unsafe fn free_raw(pfn: Pfn, order: Order) {
    if let Err(error) = inside(|| frames().free_raw(pfn, order)) {
        panic!("{error}");
    }
}

/// Frees single frames.
///
/// # Safety
/// As [`free_raw`], each with order 0.
pub(crate) unsafe fn free_list(pfns: &[Pfn]) {
    let freed = inside(|| frames().free_bulk(pfns));
    assert!(freed.refused == 0, "a frame of a list is refused: {freed:?}");
}

fn inside<R>(call: impl FnOnce() -> R) -> R {
    let own = cpu::own();
    own.in_allocator.store(1, Relaxed);
    let result = call();
    own.in_allocator.store(0, Relaxed);
    result
}

/// The first bytes of a block: as many words as its users need.
pub(crate) fn words(pfn: Pfn) -> *mut u64 {
    Pc::address(zonal::map::PhysAddr(pfn.address())).cast()
}
