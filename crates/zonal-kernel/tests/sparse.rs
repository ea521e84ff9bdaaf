//! Tables that come with the memory, on a machine whose memory is a file: what is not mapped cannot be written,
//! and a frame of the tables that is handed out, or handed out twice, breaks them.
#![cfg(target_os = "linux")]

use std::collections::btree_map::{BTreeMap, Entry};
use std::ops::Range;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock};
use zonal::error::{OnlineError, ResizeError};
use zonal::map::{PhysAddr, Region};
use zonal::plan::Config;
use zonal::watermark::{MinFree, WatermarkConfig};
use zonal::{CpuId, MigrateType, NodeId, Order, Pfn, Request, ZoneId};
use zonal_kernel::global::{
    MOST_LEVELS, MapTable, MapTables, TablePlace, TableRange, TablesFrom, TablesNow,
};
use zonal_kernel::{Error, Global, Machine};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
/// All that may be memory.
const END: u64 = 600 * GIB;

fn map(at: *mut u8, bytes: u64, prot: i32, flags: i32, (file, offset): (i32, u64)) -> *mut u8 {
    // SAFETY: a new mapping, or in the place of one that is this test's.
    let at = unsafe { libc::mmap(at.cast(), bytes as usize, prot, flags, file, offset as i64) };
    assert_ne!(at, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
    at.cast()
}

const BOTH: i32 = libc::PROT_READ | libc::PROT_WRITE;

/// The file, and where physical address 0 is.
fn memory() -> (i32, *mut u8) {
    static MEMORY: OnceLock<(i32, usize)> = OnceLock::new();
    let &(file, base) = MEMORY.get_or_init(|| {
        // SAFETY: a text that ends with a zero byte.
        let file = unsafe { libc::memfd_create(c"memory".as_ptr(), 0) };
        // SAFETY: a file of our own.
        assert_eq!(unsafe { libc::ftruncate(file, END as i64) }, 0);
        let flags = libc::MAP_SHARED | libc::MAP_NORESERVE;
        (file, map(null_mut(), END, BOTH, flags, (file, 0)).expose_provenance())
    });
    (file, std::ptr::with_exposed_provenance_mut(base))
}

/// Addresses that show zeros and cannot be written.
fn reserve(bytes: u64) -> TableRange {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let start = map(null_mut(), bytes, libc::PROT_READ, flags, (-1, 0));
    TableRange { start: start.expose_provenance(), bytes }
}

/// The frame at each page, and the tables on the way: for each 2 MiB of addresses one.
static PAGES: Mutex<BTreeMap<usize, u64>> = Mutex::new(BTreeMap::new());
static TABLES: Mutex<BTreeMap<usize, u64>> = Mutex::new(BTreeMap::new());
static SHOWN: AtomicUsize = AtomicUsize::new(0);

struct Pc;

impl Machine for Pc {
    fn cpu() -> CpuId {
        CpuId(0)
    }
    fn node(_: CpuId) -> NodeId {
        NodeId(0)
    }
    fn interrupts_off() -> bool {
        false
    }
    fn interrupts_restore(_: bool) {}
    fn address(frame: PhysAddr) -> *mut u8 {
        memory().1.wrapping_add(frame.0 as usize)
    }
}

impl MapTables for Pc {
    fn map_table(page: *mut u8, frame: PhysAddr) -> MapTable {
        // SAFETY: a frame that is ours now.
        let bytes = unsafe { std::slice::from_raw_parts(Self::address(frame), 4096) };
        assert!(bytes.iter().all(|&byte| byte == 0), "{frame} is not zero");
        if let Entry::Vacant(table) = TABLES.lock().unwrap().entry(page.addr() >> 21) {
            table.insert(frame.0);
            return MapTable::Used;
        }
        let before = PAGES.lock().unwrap().insert(page.addr(), frame.0);
        assert_eq!(before, None, "{page:p} was mapped before");
        let flags = libc::MAP_SHARED | libc::MAP_FIXED;
        map(page, 4096, BOTH, flags, (memory().0, frame.0));
        MapTable::Mapped
    }
    fn tables_mapped() {
        SHOWN.fetch_add(1, Relaxed);
    }
}

/// The same with tables of all levels on the way; behind its end memory begins again.
struct Deep;

impl Machine for Deep {
    fn cpu() -> CpuId {
        Pc::cpu()
    }
    fn node(cpu: CpuId) -> NodeId {
        Pc::node(cpu)
    }
    fn interrupts_off() -> bool {
        Pc::interrupts_off()
    }
    fn interrupts_restore(before: bool) {
        Pc::interrupts_restore(before);
    }
    fn address(frame: PhysAddr) -> *mut u8 {
        Pc::address(PhysAddr(frame.0 % END))
    }
}

impl MapTables for Deep {
    fn map_table(page: *mut u8, frame: PhysAddr) -> MapTable {
        let frame = PhysAddr(frame.0 % END);
        for level in (2..=MOST_LEVELS as usize).rev() {
            let key = level << 60 | page.addr() >> (12 + 9 * level);
            if let Entry::Vacant(table) = TABLES.lock().unwrap().entry(key) {
                table.insert(frame.0);
                return MapTable::Used;
            }
        }
        Pc::map_table(page, frame)
    }
    fn tables_mapped() {}
}

/// Frames that the tables are made of.
fn frames_of_tables() -> Vec<u64> {
    let (pages, tables) = (PAGES.lock().unwrap(), TABLES.lock().unwrap());
    let mut frames: Vec<u64> = pages.values().chain(tables.values()).copied().collect();
    let all = frames.len();
    frames.sort_unstable();
    frames.dedup();
    assert_eq!(frames.len(), all, "a frame was used twice");
    frames
}

/// One test at a time: they share what is noted of pages.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> std::sync::MutexGuard<'static, ()> {
    let guard = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    PAGES.lock().unwrap().clear();
    TABLES.lock().unwrap().clear();
    guard
}

fn pfns(start: u64, bytes: u64) -> Range<Pfn> {
    Pfn::containing(start)..Pfn::containing(start + bytes)
}

/// Without reserves, so that every frame can be had.
fn config() -> Config {
    let none = WatermarkConfig { min_free: MinFree::None, ..WatermarkConfig::default() };
    Config { watermarks: none, lowmem_ratio: [0; 4], highatomic: false, ..Config::new(1) }
}

/// What is free, as the zones say and as is found by taking every frame and writing to it.
fn count(global: &Global<Pc>) -> u64 {
    global.drain_all();
    // SAFETY: only looked at.
    let allocator = unsafe { global.allocator().unwrap() };
    let zones = (0..allocator.zone_count()).map(|zone| ZoneId(zone as u8));
    let free: u64 = zones.map(|zone| allocator.zone_info(zone).unwrap().free).sum();
    let (tables, mut held) = (frames_of_tables(), Vec::new());
    for order in [Order::MAX, Order::HUGE, Order::ZERO] {
        let request = Request::new(order).migrate(MigrateType::Movable);
        while let Ok(block) = global.alloc(&request) {
            let (start, bytes) = (block.pfn().address(), order.bytes());
            let at = tables.partition_point(|&frame| frame < start);
            assert!(tables.get(at).is_none_or(|&frame| frame >= start + bytes as u64));
            // SAFETY: the block is ours.
            unsafe { global.address(&block).write_bytes(0xff, 4096) };
            held.push(block);
        }
    }
    let frames: u64 = held.iter().map(|block| block.order().frames()).sum();
    held.into_iter().for_each(|block| global.free(block).unwrap());
    global.drain_all();
    assert_eq!(frames, free);
    free
}

/// Two nodes of 511 and 256 MiB with holes between and inside them, and room for as much as is said beside them.
fn regions(room: u64) -> [Region; 5] {
    [
        Region::usable(PhysAddr(MIB), 255 * MIB),
        Region::usable(PhysAddr(320 * MIB), 256 * MIB),
        Region::usable(PhysAddr(3 * GIB), 256 * MIB).on(NodeId(1)),
        Region::offline(PhysAddr(8 * GIB), room - 8 * GIB),
        Region::offline(PhysAddr(room + 8 * GIB), 8 * GIB).on(NodeId(1)),
    ]
}

fn boot(global: &'static Global<Pc>, room: u64) {
    let map = global.map_of(regions(room)).unwrap();
    // SAFETY: the file is memory, for one test at a time; the range shows zeros, and no one else has it.
    unsafe { map.boot_sparse(config(), TablePlace::default(), reserve(2 * GIB)).unwrap() };
}

#[test]
fn tables_lie_on_the_node_of_their_memory_and_cost_what_is_there() {
    static SMALL: Global<Pc> = Global::new();
    static LARGE: Global<Pc> = Global::new();
    for (global, room) in [(&SMALL, 64 * GIB), (&LARGE, 512 * GIB)] {
        let _alone = alone();
        let shown = SHOWN.load(Relaxed);
        boot(global, room);
        assert_eq!(SHOWN.load(Relaxed), shown + 1);
        let now = global.tables().unwrap();
        // 1.15 bytes a frame, and pages that are shared.
        let least = (768 * MIB / 4096) * 115 / 100;
        assert!((least..least + 65_536).contains(&now.bytes), "{now:?}");
        assert_eq!(now.frames_from_zones, 0);
        let frames = frames_of_tables();
        let on_1 = frames.iter().filter(|&&frame| frame >= 3 * GIB).count();
        assert!(
            on_1 * 3 >= frames.len() - 12 && on_1 < frames.len() / 2,
            "{on_1} of {}",
            frames.len()
        );
        // No frame is lost but those of the tables: the others are the allocator itself.
        let there = (511 + 256) * MIB / 4096;
        let free = count(global);
        let rest = there - free - frames.len() as u64;
        assert!(rest < 40, "{rest} frames are gone");
    }
}

#[test]
fn memory_comes_with_its_tables_and_goes() {
    static FRAMES: Global<Pc> = Global::new();
    let _alone = alone();
    boot(&FRAMES, 64 * GIB);
    let before = count(&FRAMES);
    let tables = || FRAMES.tables().unwrap();
    let frames = |range: &Range<Pfn>| range.end.get() - range.start.get();
    // Its tables from the zones.
    let (first, bytes) = (pfns(20 * GIB, 384 * MIB), tables().bytes);
    // SAFETY: the file is memory, and nothing uses it; here and below.
    let online = |range: &Range<Pfn>, from| unsafe { FRAMES.online(range.clone(), from) };
    assert_eq!(online(&first, TablesFrom::Zones).unwrap().frames, frames(&first));
    let taken = tables().frames_from_zones;
    assert!(taken >= (tables().bytes - bytes) / 4096 && taken < 140, "{taken}");
    assert_eq!(count(&FRAMES), before + frames(&first) - taken);
    // It goes, and comes with the tables that it had.
    // SAFETY: nothing is freed by it.
    let allocator = unsafe { FRAMES.allocator().unwrap() };
    allocator.offline(first.clone()).unwrap();
    let had = tables();
    assert_eq!(online(&first, TablesFrom::Memory).unwrap().frames, frames(&first));
    assert_eq!(tables(), had);
    let again = online(&first, TablesFrom::Memory);
    assert_eq!(again, Err(Error::Resize(OnlineError::Online { pfn: first.start })));
    // From itself, although nothing is free.
    let mut held = Vec::new();
    while let Ok(block) = FRAMES.alloc(&Request::frame().migrate(MigrateType::Movable)) {
        held.push(block);
    }
    let second = pfns(73 * GIB, GIB);
    assert!(matches!(online(&second, TablesFrom::Zones), Err(Error::Alloc(_))));
    let came = online(&second, TablesFrom::Memory).unwrap().frames;
    let own = frames(&second) - came;
    assert!((75..110).contains(&own), "{own}");
    assert_eq!(tables().frames_from_zones, had.frames_from_zones);
    held.into_iter().for_each(|block| FRAMES.free(block).unwrap());
    assert_eq!(count(&FRAMES), before + frames(&first) - taken + came);
    // All but the pageblock with its tables can go.
    assert!(allocator.offline(second.clone()).is_err());
    allocator.offline(Pfn::new(second.start.get() + 512)..second.end).unwrap();
    assert_eq!(count(&FRAMES), before + frames(&first) - taken + 512 - own);
}

#[test]
fn memory_that_no_map_mentioned_brings_tables_too() {
    static FRAMES: Global<Pc> = Global::new();
    let _alone = alone();
    boot(&FRAMES, 64 * GIB);
    let (before, bytes) = (count(&FRAMES), FRAMES.tables().unwrap().bytes);
    let hole = pfns(280 * MIB, 3 * MIB);
    // SAFETY: the file is memory, and nothing uses it.
    let release = |range: Range<Pfn>| unsafe { FRAMES.release(range) };
    // What cannot come costs no tables: into the memory that is there, and behind that of all zones.
    let there = Pfn::containing(320 * MIB);
    let wrong = release(hole.start..Pfn::new(there.get() + 1));
    assert_eq!(wrong, Err(Error::Resize(ResizeError::Online { pfn: there })));
    assert!(release(pfns(79 * GIB, 2 * GIB)).is_err());
    assert_eq!(FRAMES.tables().unwrap(), TablesNow { bytes, frames_from_zones: 0 });
    assert_eq!(count(&FRAMES), before);
    assert_eq!(release(hole.clone()), Ok(768));
    let now = FRAMES.tables().unwrap();
    assert!(now.bytes > bytes && now.frames_from_zones > 0, "{now:?}");
    assert_eq!(count(&FRAMES), before + 768 - now.frames_from_zones);
    let again = release(hole.clone());
    assert_eq!(again, Err(Error::Resize(ResizeError::Online { pfn: hole.start })));
}

#[test]
fn what_does_not_fit_is_refused() {
    static FRAMES: Global<Pc> = Global::new();
    let _alone = alone();
    let boot = |range, config| {
        let map = FRAMES.map_of(regions(64 * GIB)).unwrap();
        // SAFETY: as in `boot`.
        unsafe { map.boot_sparse(config, TablePlace::default(), range) }
    };
    let small = reserve(MIB);
    let Err(Error::TableRange { given: MIB, wanted }) = boot(small, config()) else {
        panic!("a range that is too small")
    };
    let enough = reserve(wanted + 4096);
    let askew = TableRange { start: enough.start + 64, bytes: wanted };
    assert_eq!(boot(askew, config()), Err(Error::TableRange { given: wanted, wanted }));
    assert!(PAGES.lock().unwrap().is_empty(), "it began before it knew");
    let small_pageblocks = Config { pageblock_order: Order::new(3).unwrap(), ..config() };
    assert!(matches!(boot(enough, small_pageblocks), Err(Error::TableRange { .. })));
    assert_eq!(boot(reserve(2 * GIB), small_pageblocks), Ok(()));
    // Too little for its own tables; then it is as if nothing had been.
    let few = pfns(20 * GIB, 32768);
    // SAFETY: the file is memory, and nothing uses it.
    let online = |from| unsafe { FRAMES.online(few.clone(), from) };
    let refused = online(TablesFrom::Memory);
    assert!(matches!(refused, Err(Error::TablesFill { frames: 8, wanted: 9.. })), "{refused:?}");
    assert_eq!(online(TablesFrom::Zones).unwrap().frames, 8);
}

/// A node with room for less than the frames of its tables: they are all of another node's piece of memory, whose own tables
/// were counted for that node.
#[test]
fn a_node_without_room_for_its_tables_boots() {
    let _alone = alone();
    for frames in 12..32 {
        PAGES.lock().unwrap().clear();
        TABLES.lock().unwrap().clear();
        // So far apart that their tables have no page in common, and those of the second piece take two each.
        let regions = [
            Region::usable(PhysAddr(MIB), 2 * 4096),
            Region::usable(PhysAddr(3 * GIB), 256 * MIB).on(NodeId(1)),
            Region::usable(PhysAddr(8192 * GIB - 8 * 4096), frames * 4096).on(NodeId(1)),
            Region::offline(PhysAddr(15_360 * GIB), GIB).on(NodeId(1)),
        ];
        let global: &'static Global<Deep> = Box::leak(Box::new(Global::new()));
        let map = global.map_of(regions).unwrap();
        // SAFETY: the file is memory, for one test at a time; the range shows zeros, and no one else has it.
        let booted = unsafe { map.boot_sparse(config(), TablePlace::default(), reserve(8 * GIB)) };
        assert_eq!(booted, Ok(()), "{frames} frames");
        assert!(frames_of_tables().iter().all(|&frame| frame >= 3 * GIB), "{frames} frames");
    }
}
