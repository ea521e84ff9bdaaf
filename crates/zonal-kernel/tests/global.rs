//! The allocator in a static, on a machine made of threads: built once, used from all, no frame in two
//! hands, interrupts as they were.

mod fake;

use fake::Fake;
use std::collections::BTreeSet;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use zonal::error::{AllocReason, RangeError, ResizeError};
use zonal::map::{PhysAddr, Region, SaneMap};
use zonal::plan::Config;
use zonal::preset::Linux416;
use zonal::{Block, Bounds, NodeId, Order, Pfn, Request, ZoneId};
use zonal_kernel::boot_map::{BootMap, NodeRange};
use zonal_kernel::global::TablePlace;
use zonal_kernel::{Error, Global};

const SLICE: u64 = 32 << 20;

/// A part of the machine's memory that no other test has.
fn slice() -> SaneMap {
    static END: OnceLock<u64> = OnceLock::new();
    static NEXT: AtomicU64 = AtomicU64::new(SLICE);
    let end = *END.get_or_init(|| fake::memory(16 * SLICE as usize));
    let start = NEXT.fetch_add(SLICE, Relaxed);
    assert!(start + SLICE <= end, "a test too many");
    let nodes = [0, 1].map(|n| {
        let start = start + u64::from(n) * SLICE / 2;
        NodeRange { bytes: start..start + SLICE / 2, node: NodeId(n) }
    });
    let usable = Region::usable(PhysAddr(start), SLICE);
    BootMap::new([usable], &[], nodes).unwrap().sanitise().unwrap()
}

fn booted(global: &'static Global<Fake>, cpus: u32) -> u64 {
    let map = slice();
    let usable = map.frames_usable();
    // SAFETY: the slice is this test's alone.
    unsafe { global.boot(map, Config::new(cpus)).unwrap() };
    let managed = free(global);
    assert!(managed < usable && managed > usable * 95 / 100, "{managed} of {usable}");
    managed
}

/// Free frames, cached ones included.
fn free(global: &Global<Fake>) -> u64 {
    global.drain_all();
    // SAFETY: only looked at.
    let allocator = unsafe { global.allocator().unwrap() };
    let zones = (0..allocator.zone_count()).map(|n| allocator.zone_info(ZoneId(n as u8)).unwrap());
    zones.map(|zone| zone.free + zone.cached).sum()
}

#[test]
fn before_it_is_built_everything_is_refused() {
    static FRAMES: Global<Fake> = Global::new();
    static OTHER: Global<Fake> = Global::new();
    assert_eq!(FRAMES.alloc(&Request::frame()), Err(Error::NotBooted));
    assert_eq!(FRAMES.alloc_contiguous(3, &Request::frame()), Err(Error::NotBooted));
    assert_eq!(FRAMES.drain_all(), 0);
    // SAFETY: nothing is freed through it.
    assert!(unsafe { FRAMES.allocator() }.is_err());
    booted(&OTHER, 1);
    let foreign = FRAMES.free(OTHER.alloc(&Request::frame()).unwrap()).unwrap_err();
    assert!(foreign.error.to_string().contains("foreign"), "{foreign}");
    OTHER.free(foreign.block).unwrap();
}

#[test]
fn it_is_built_once_and_a_failure_can_be_tried_again() {
    static FRAMES: Global<Fake> = Global::new();
    let map = slice();
    // SAFETY: the slice is this test's alone; here and below.
    let none = unsafe { FRAMES.boot(map.clone(), Config::new(0)) };
    assert!(matches!(none, Err(Error::Plan(_))), "{none:?}");
    let low = TablePlace { below: Some(Pfn::new(2)), ..TablePlace::default() };
    // SAFETY: as above.
    let low = unsafe { FRAMES.boot_in(map.clone(), Config::new(1), low) };
    assert!(matches!(low, Err(Error::Map(_))), "{low:?}");
    assert_eq!(FRAMES.alloc(&Request::frame()), Err(Error::NotBooted));
    // SAFETY: as above.
    unsafe { FRAMES.boot(map.clone(), Config::new(1)).unwrap() };
    let before = free(&FRAMES);
    // SAFETY: as above.
    let again = unsafe { FRAMES.boot(map, Config::new(1)) };
    assert_eq!(again, Err(Error::AlreadyBooted));
    assert_eq!(free(&FRAMES), before);
}

/// The map in the static is the map made elsewhere, is one CPU's at a time, and given up when it is dropped.
#[test]
fn a_map_in_the_static() {
    static FRAMES: Global<Fake> = Global::new();
    let span = slice().span();
    let bytes = span.start.address()..span.end.address();
    let usable = [Region::usable(PhysAddr(bytes.start), SLICE)];
    let half = bytes.start + SLICE / 2;
    let nodes = [0, 1].map(|n| {
        let start = bytes.start + u64::from(n) * SLICE / 2;
        NodeRange { bytes: start..start + SLICE / 2, node: NodeId(n) }
    });
    let map = || FRAMES.map(usable, &[], nodes.clone());
    let held = map().unwrap();
    assert_eq!(map().unwrap_err(), Error::AlreadyBooted);
    assert_eq!(FRAMES.alloc(&Request::frame()), Err(Error::NotBooted));
    drop(held);
    assert!(matches!(FRAMES.map([usable[0]; 300], &[], []), Err(Error::Map(_))));
    // SAFETY: nothing is built of a map without memory.
    let nothing =
        unsafe { FRAMES.map([Region::default(); 3], &[], []).unwrap().boot(Config::new(1)) };
    assert!(matches!(nothing, Err(Error::Map(_))), "{nothing:?}");

    let initrd = half..half + (1 << 20);
    let later = bytes.end - (4 << 20)..bytes.end;
    let cut = [Region::usable(PhysAddr(bytes.start), SLICE - (4 << 20))];
    let map = FRAMES.map(cut, &[], nodes.clone()).unwrap();
    let map = map.reclaim_later(&initrd, nodes.clone()).unwrap();
    let map = map.offline(&later, NodeId(1)).unwrap();
    // SAFETY: the slice is this test's alone.
    unsafe { map.boot(Config::new(1)).unwrap() };
    // SAFETY: only looked at.
    let plan = unsafe { FRAMES.allocator().unwrap() }.plan();
    let elsewhere = BootMap::new(cut, &[], nodes.clone()).unwrap();
    let elsewhere = elsewhere.reclaim_later(&initrd, nodes).unwrap();
    let elsewhere = elsewhere.offline(&later, NodeId(1)).unwrap().sanitise().unwrap();
    let frames = elsewhere.frames_usable();
    assert_eq!(plan.managed() + plan.map().report().carved, frames);
    assert_eq!((free(&FRAMES), plan.later()), (plan.managed(), 1024));
    assert_eq!(FRAMES.map(usable, &[], []).unwrap_err(), Error::AlreadyBooted);
}

#[test]
fn tables_lie_where_they_are_wanted() {
    static FRAMES: Global<Fake, Linux416> = Global::new();
    let map = slice();
    let half = map.span().start.get() + (SLICE >> 13);
    let place = TablePlace { node: Some(NodeId(0)), below: Some(Pfn::new(half - 100)) };
    // SAFETY: the slice is this test's alone.
    unsafe { FRAMES.boot_in(map, Config::new(2), place).unwrap() };
    // SAFETY: only looked at.
    let plan = unsafe { FRAMES.allocator().unwrap() }.plan();
    let carved = plan.map().report().carved;
    let end = Pfn::new(half - 100);
    let tables = plan.map().range_at(Pfn::new(end.get() - 1)).unwrap();
    assert_eq!((tables.end, tables.frames(), tables.kind.is_memory()), (end, carved, false));
}

#[test]
fn blocks_are_zeroed_and_freed_once() {
    static FRAMES: Global<Fake> = Global::new();
    let managed = booted(&FRAMES, 1);
    let order = Order::new(3).unwrap();
    let block = FRAMES.alloc(&Request::new(order)).unwrap();
    let pfn = block.pfn();
    // SAFETY: the block is this test's.
    unsafe { FRAMES.address(&block).write_bytes(0xa5, order.bytes()) };
    FRAMES.free(block).unwrap();
    // SAFETY: it is no-one's, and the free is refused.
    let twice = unsafe { FRAMES.allocator().unwrap() }.free_raw(pfn, order);
    assert!(twice.is_err());
    let held: Vec<Block> = (0..managed / 16)
        .map_while(|_| FRAMES.alloc(&Request::new(order).zero()).ok())
        .inspect(|block| {
            // SAFETY: the block is this test's, and no one writes it.
            let bytes = unsafe { std::slice::from_raw_parts(FRAMES.address(block), order.bytes()) };
            assert!(bytes.iter().all(|&byte| byte == 0));
        })
        .collect();
    assert!(held.iter().any(|block| block.pfn() == pfn), "the written one came again");
    held.into_iter().for_each(|block| FRAMES.free(block).unwrap());
    let contiguous = FRAMES.alloc_contiguous(700, &Request::frame()).unwrap();
    FRAMES.free_contiguous(contiguous).unwrap();
    assert_eq!(free(&FRAMES), managed);
}

/// What a host may inline: a frame that the CPU has, and a place for one. Nothing else is tried.
#[test]
fn cached_frames_and_nothing_else() {
    static FRAMES: Global<Fake> = Global::new();
    let managed = booted(&FRAMES, 1);
    // SAFETY: what is freed through it is this test's.
    let allocator = unsafe { FRAMES.allocator().unwrap() };
    let frame = Request::frame();
    assert_eq!(allocator.alloc_cached(&frame), None, "nothing is cached yet");
    let first = FRAMES.alloc(&frame).unwrap();
    let cached = allocator.alloc_cached(&frame).unwrap();
    assert_ne!(first.pfn(), cached.pfn());
    assert_eq!(allocator.alloc_cached(&frame.zero()), None);
    assert_eq!(allocator.alloc_cached(&frame.with_order(Order::HUGE)), None);
    allocator.free_cached(first).unwrap();
    allocator.free_cached(cached).unwrap();
    let huge = FRAMES.alloc(&Request::new(Order::HUGE)).unwrap();
    let huge = allocator.free_cached(huge).unwrap_err();
    FRAMES.free(huge).unwrap();
    assert_eq!(free(&FRAMES), managed);
    // By `Global` a wrong free is refused as ever.
    let (pfn, _) = FRAMES.alloc(&frame).unwrap().into_raw();
    allocator.free_raw(pfn, Order::ZERO).unwrap();
    assert!(allocator.free_raw(pfn, Order::ZERO).is_err());
}

#[test]
fn pages_by_number_and_memory_in_parts() {
    static FRAMES: Global<Fake> = Global::new();
    let row = Bounds::ANY.aligned(4);
    assert_eq!(FRAMES.alloc_pages(12, &Request::frame(), &row), Err(Error::NotBooted));
    assert_eq!(FRAMES.alloc_at(Pfn::new(7)..Pfn::new(8)), Err(Error::NotBooted));
    let managed = booted(&FRAMES, 1);
    let start = FRAMES.alloc_pages(12, &Request::frame(), &row).unwrap();
    assert!(start.get().is_multiple_of(4));
    let at = |n: u64| Pfn::new(start.get() + n);
    assert_eq!(FRAMES.alloc_at(at(0)..at(1)), Err(RangeError::InUse { pfn: start }.into()));
    let free_pages = |first, frames| {
        // SAFETY: the frames are this test's.
        unsafe { FRAMES.free_pages(first, frames) }
    };
    free_pages(at(0), 1).unwrap();
    let again = free_pages(at(0), 12).unwrap_err();
    assert_eq!(again, RangeError::NotAllocated { pfn: start }.into());
    free_pages(at(1), 11).unwrap();
    let these = FRAMES.alloc_at(at(3)..at(5)).unwrap();
    FRAMES.free_contiguous(these).unwrap();
    assert_eq!(free(&FRAMES), managed);
    // SAFETY: refused: the frames are the allocator's.
    let error = unsafe { FRAMES.release(at(0)..at(1)) }.unwrap_err();
    assert_eq!(error, ResizeError::Online { pfn: start }.into());
}

#[test]
fn what_was_reserved_comes_back() {
    static FRAMES: Global<Fake> = Global::new();
    let whole = slice().span();
    let bytes = |pfn: Pfn| PhysAddr(pfn.address());
    let image = whole.start..Pfn::new(whole.start.get() + 700);
    let regions = [
        Region::usable(bytes(whole.start), whole.frames() << 12),
        Region::reserved(bytes(image.start), 700 << 12),
    ];
    let map = BootMap::new(regions, &[], []).unwrap().sanitise().unwrap();
    // SAFETY: the slice is this test's alone.
    unsafe { FRAMES.boot(map, Config::new(1)).unwrap() };
    let before = free(&FRAMES);
    let once = Pfn::new(image.end.get() - 100)..image.end;
    // SAFETY: as above.
    assert_eq!(unsafe { FRAMES.release(once) }, Ok(100));
    assert_eq!(free(&FRAMES), before + 100);
    while let Ok(block) = FRAMES.alloc(&Request::frame().zero()) {
        let still_reserved = image.start..Pfn::new(image.end.get() - 100);
        assert!(!still_reserved.contains(&block.pfn()), "{} is the image's", block.pfn());
    }
}

/// The holder of a frame writes its own number into it.
fn stamp(block: &Block, global: &Global<Fake>, stamp: u64) {
    // SAFETY: the block is the caller's, and aligned to a frame.
    unsafe { global.address(block).cast::<u64>().write(stamp) };
}

fn stamped(block: &Block, global: &Global<Fake>) -> u64 {
    // SAFETY: as above.
    unsafe { global.address(block).cast::<u64>().read() }
}

#[test]
fn no_frame_is_in_two_hands_while_handlers_allocate() {
    static FRAMES: Global<Fake> = Global::new();
    static HANDLED: AtomicU64 = AtomicU64::new(0);
    fn handler() {
        match FRAMES.alloc(&Request::frame().atomic()) {
            Ok(block) => {
                HANDLED.fetch_add(1, Relaxed);
                stamp(&block, &FRAMES, u64::MAX);
                assert_eq!(stamped(&block, &FRAMES), u64::MAX);
                FRAMES.free(block).unwrap();
            }
            Err(Error::Alloc(error)) => assert_eq!(error.reason, AllocReason::Exhausted),
            Err(error) => panic!("{error}"),
        }
    }
    const CPUS: u32 = 4;
    let managed = booted(&FRAMES, CPUS);
    thread::scope(|scope| {
        for cpu in 0..CPUS {
            scope.spawn(move || {
                fake::run_on(cpu);
                fake::on_interrupt(Some(handler));
                for round in 0..6 {
                    let request = Request::frame();
                    // More than a share, so that some of it runs out of memory.
                    let most = managed / 3;
                    let held: Vec<Block> =
                        (0..most).map_while(|_| FRAMES.alloc(&request).ok()).collect();
                    let number = |n: usize| u64::from(cpu) << 32 | (round * held.len() + n) as u64;
                    held.iter().enumerate().for_each(|(n, b)| stamp(b, &FRAMES, number(n)));
                    for (n, block) in held.iter().enumerate() {
                        assert_eq!(stamped(block, &FRAMES), number(n), "{block:?}");
                    }
                    held.into_iter().for_each(|block| FRAMES.free(block).unwrap());
                    assert!(fake::interrupts_are_on());
                }
                fake::on_interrupt(None);
            });
        }
    });
    assert!(HANDLED.load(Relaxed) > 10_000, "{HANDLED:?}");
    assert_eq!(free(&FRAMES), managed);
}

#[test]
fn each_frame_once_and_none_of_the_tables() {
    static FRAMES: Global<Fake> = Global::new();
    let managed = booted(&FRAMES, 2);
    let held: Vec<Block> =
        std::iter::from_fn(|| FRAMES.alloc(&Request::frame().no_wait()).ok()).collect();
    let pfns: BTreeSet<Pfn> = held.iter().map(Block::pfn).collect();
    assert_eq!(pfns.len(), held.len());
    // SAFETY: only looked at.
    let plan = unsafe { FRAMES.allocator().unwrap() }.plan();
    assert!(pfns.iter().all(|&pfn| plan.map().range_at(pfn).unwrap().kind.is_usable()));
    assert!(held.len() as u64 > managed * 9 / 10);
    held.into_iter().for_each(|block| FRAMES.free(block).unwrap());
    assert_eq!(free(&FRAMES), managed);
}
