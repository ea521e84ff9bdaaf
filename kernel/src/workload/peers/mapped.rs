//! What a rival adds to a page fault and its unmap: pages are mapped one by one, in page tables that are made of its
//! frames too, unmapped, and freed in lists, as the kernel's address spaces do; less the same with frames that are at hand.
//!
//! On processor 0, which does not enter these page tables: what the processor does by itself is the same for all.

use super::clock;
use super::rivals::Rival;
use crate::machine::FRAMES;
use crate::memory::space::START;
use crate::memory::{free_raw, words};
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;
use x86_64::structures::paging::mapper::CleanUp;
use x86_64::structures::paging::{
    FrameAllocator, FrameDeallocator, Mapper, OffsetPageTable, Page, PageTable,
    PageTableFlags as Flags, PhysFrame, Size4KiB,
};
use x86_64::{PhysAddr, VirtAddr};
use zonal::{Bounds, Order, Pfn, Request};
use zonal_kernel::Error;

/// Pages mapped at once, how many are freed together, and how often all that is done.
const PAGES: u64 = 4096;
const LIST: usize = 64;
const ROUNDS: u64 = 8;

/// Frames for page tables.
struct Tables<'a, R>(&'a R);

// SAFETY: a frame of the rival, which is not given again until it is freed.
unsafe impl<R: Rival> FrameAllocator<Size4KiB> for Tables<'_, R> {
    fn allocate_frame(&mut self) -> Option<PhysFrame> {
        self.0.alloc().map(frame)
    }
}

impl<R: Rival> FrameDeallocator<Size4KiB> for Tables<'_, R> {
    unsafe fn deallocate_frame(&mut self, frame: PhysFrame) {
        // SAFETY: the caller's promise, and a frame of the rival.
        unsafe { self.0.free(Pfn::containing(frame.start_address().as_u64())) };
    }
}

fn frame(pfn: Pfn) -> PhysFrame {
    PhysFrame::containing_address(PhysAddr::new(pfn.address()))
}

/// No allocator: frames in a row for the pages, over and over, and others for the tables.
struct AtHand {
    first: Pfn,
    pages: AtomicU64,
    tables: AtomicU64,
}

/// Frames for page tables beside those for the pages.
const MORE: u64 = 16;

// SAFETY: frames that were allocated for it. A page's comes again after all others, when it was unmapped: there are as many
// as are mapped at once. A table's does not come again.
unsafe impl Rival for AtHand {
    fn alloc(&self) -> Option<Pfn> {
        let next = self.tables.fetch_add(1, Relaxed);
        (next < MORE).then(|| Pfn::new(self.first.get() + PAGES + next))
    }
    #[inline(always)]
    fn for_fault(&self) -> Option<Pfn> {
        let next = self.pages.load(Relaxed);
        self.pages.store(next + 1, Relaxed);
        Some(Pfn::new(self.first.get() + next % PAGES))
    }
    unsafe fn free(&self, _: Pfn) {}
    #[inline(always)]
    unsafe fn free_list(&self, _: &[Pfn]) {}
}

/// Ticks for all pages of all rounds without an allocator.
///
/// # Errors
/// No frames for them.
pub(super) fn without() -> Result<u64, Error> {
    let first = FRAMES.alloc_pages(PAGES + MORE, &Request::frame(), &Bounds::ANY)?;
    let (pages, tables) = (AtomicU64::new(0), AtomicU64::new(0));
    let ticks = with(&AtHand { first, pages, tables });
    // SAFETY: allocated above; all pages are unmapped, and the tables are gone.
    unsafe { FRAMES.free_pages(first, PAGES + MORE)? };
    ticks
}

/// The same with a rival's.
///
/// # Errors
/// No frame for the first page table.
pub(super) fn with<R: Rival>(rival: &R) -> Result<u64, Error> {
    let (root, _) = FRAMES.alloc(&Request::frame().zero())?.into_raw();
    // SAFETY: a frame of zero bytes, which is an empty table; allocated for it a moment ago, and reached by this alone.
    let table = unsafe { &mut *words(root).cast::<PageTable>() };
    // SAFETY: all memory is mapped as it is, and the table is of the top level.
    let mut space = unsafe { OffsetPageTable::new(table, VirtAddr::zero()) };
    // Once, for the tables between.
    round(&mut space, rival);
    let start = clock();
    (0..ROUNDS).for_each(|_| round(&mut space, rival));
    let ticks = clock() - start;
    // SAFETY: tables without an entry, which no processor uses; made of the rival's frames.
    unsafe { space.clean_up(&mut Tables(rival)) };
    // SAFETY: allocated above; no processor uses it.
    unsafe { free_raw(root, Order::ZERO) };
    Ok(ticks)
}

/// Ticks that a page takes more than one without an allocator, in tenths.
pub(super) fn tenths(with: u64, without: u64) -> u64 {
    with.saturating_sub(without) * 10 / (PAGES * ROUNDS)
}

// Not in its callers: it has a list.
#[inline(never)]
fn round<R: Rival>(space: &mut OffsetPageTable<'_>, rival: &R) {
    let page = |n: u64| Page::<Size4KiB>::containing_address(VirtAddr::new(START + n * 4096));
    for n in 0..PAGES {
        let Some(found) = rival.for_fault() else { panic!("no frame for a page") };
        let flags = Flags::PRESENT | Flags::WRITABLE;
        // SAFETY: a frame of the rival's, mapped nowhere else; and these tables are never entered.
        let mapped = unsafe { space.map_to(page(n), frame(found), flags, &mut Tables(rival)) };
        match mapped {
            Ok(flush) => flush.ignore(),
            Err(error) => panic!("a page cannot be mapped: {error:?}"),
        }
    }
    let mut list = [Pfn::default(); LIST];
    for first in (0..PAGES).step_by(LIST) {
        for (place, n) in list.iter_mut().zip(first..) {
            let Ok((gone, flush)) = space.unmap(page(n)) else { panic!("a page is not there") };
            flush.ignore();
            *place = Pfn::containing(gone.start_address().as_u64());
        }
        // SAFETY: they were given for these pages, and are mapped no more.
        unsafe { rival.free_list(&list) };
    }
}
