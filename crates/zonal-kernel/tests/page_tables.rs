//! Frames of the three sizes of pages, as the crate `x86_64` asks for them.
#![cfg(feature = "x86_64")]

mod fake;

use fake::Fake;
use x86_64::structures::paging::{
    FrameAllocator, FrameDeallocator, PageSize, PhysFrame, Size1GiB, Size2MiB, Size4KiB,
};
use zonal::map::{PhysAddr, Region};
use zonal::plan::Config;
use zonal::{MigrateType, Pfn, Request, ZoneId};
use zonal_kernel::Global;
use zonal_kernel::boot_map::BootMap;
use zonal_kernel::global::TablesFrom;
use zonal_kernel::page_tables::PageFrames;

/// Frames of 1 GiB.
const GIANT: u64 = Size1GiB::SIZE / Size4KiB::SIZE;

static FRAMES: Global<Fake> = Global::new();

fn free() -> u64 {
    FRAMES.drain_all();
    // SAFETY: only looked at.
    let allocator = unsafe { FRAMES.allocator().unwrap() };
    let zones = (0..allocator.zone_count()).map(|n| allocator.zone_info(ZoneId(n as u8)).unwrap());
    zones.map(|zone| zone.free + zone.cached).sum()
}

/// Allocates a frame of a size, looks that it is aligned and all its bytes are gone from what is free, and
/// gives it back.
fn there_and_back<S: PageSize>(frames: &mut PageFrames<'_, Fake>) -> PhysFrame<S>
where
    for<'a> PageFrames<'a, Fake>: FrameAllocator<S> + FrameDeallocator<S>,
{
    let before = free();
    let frame = FrameAllocator::<S>::allocate_frame(frames).unwrap();
    assert!(frame.start_address().is_aligned(S::SIZE));
    assert_eq!(free(), before - S::SIZE / Size4KiB::SIZE);
    // SAFETY: allocated above, and mapped nowhere.
    unsafe { frames.deallocate_frame(frame) };
    assert_eq!((free(), frames.refused()), (before, 0));
    frame
}

#[test]
fn all_sizes() {
    // The tables are at the top, so one whole page of 1 GiB is free, from 1 GiB on.
    fake::memory(4 << 30);
    let later = Region::offline(PhysAddr(3 << 30), 1 << 30);
    let regions = [Region::usable(PhysAddr(0), 5 << 29), later];
    let map = BootMap::new(regions, &[], []).unwrap().sanitise().unwrap();
    // SAFETY: no other code has that memory.
    unsafe { FRAMES.boot(map, Config::new(1)).unwrap() };
    let mut frames = PageFrames::new(&FRAMES);
    there_and_back::<Size4KiB>(&mut frames);
    there_and_back::<Size2MiB>(&mut frames);
    let giant = there_and_back::<Size1GiB>(&mut frames);
    assert_eq!(giant.start_address().as_u64(), 1 << 30);

    // A free of what is free is refused, and counted.
    let wrong = PhysFrame::<Size2MiB>::containing_address(x86_64::PhysAddr::new(64 << 20));
    // SAFETY: it is no-one's, and the free is refused.
    unsafe { frames.deallocate_frame(wrong) };
    assert_eq!(frames.refused(), 1);

    // Requests are as wished, but for the order; and none is served that cannot be.
    let request = Request::frame().migrate(MigrateType::Movable);
    let mut movable = PageFrames::with_request(&FRAMES, request);
    let frame: PhysFrame<Size2MiB> = movable.allocate_frame().unwrap();
    // SAFETY: only looked at.
    let allocator = unsafe { FRAMES.allocator().unwrap() };
    let pfn = Pfn::containing(frame.start_address().as_u64());
    assert_eq!(allocator.pageblock_of(pfn).unwrap().1, MigrateType::Movable);
    let first: PhysFrame<Size1GiB> = frames.allocate_frame().unwrap();
    assert_eq!(FrameAllocator::<Size1GiB>::allocate_frame(&mut frames), None, "there is no other");
    // SAFETY: no other code has that memory.
    unsafe { FRAMES.online(Pfn::new(3 * GIANT)..Pfn::new(4 * GIANT), TablesFrom::Zones).unwrap() };
    let came: PhysFrame<Size1GiB> = frames.allocate_frame().unwrap();
    assert_eq!(came.start_address().as_u64(), 3 << 30);
    // SAFETY: allocated above, and mapped nowhere.
    unsafe { frames.deallocate_frame(first) };
    // SAFETY: as above.
    unsafe { movable.deallocate_frame(frame) };
}
