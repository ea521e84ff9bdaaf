//! Frames for the page tables of the crate `x86_64`, in its three sizes.
//!
//! ```
//! # mod fake { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fake/mod.rs")); }
//! # use fake::Fake as Pc;
//! # use zonal::{plan::Config, map::{Region, PhysAddr}};
//! use x86_64::structures::paging::{FrameAllocator, FrameDeallocator, PhysFrame, Size2MiB};
//! use zonal_kernel::{Global, boot_map::BootMap, page_tables::PageFrames};
//!
//! static FRAMES: Global<Pc> = Global::new();
//! # let end = fake::memory(64 << 20);
//! # let map = BootMap::new([Region::usable(PhysAddr(0), end)], &[], [])?.sanitise()?;
//! # // SAFETY: no other code has that memory.
//! # unsafe { FRAMES.boot(map, Config::new(1))? };
//! let mut frames = PageFrames::new(&FRAMES);
//! let huge: PhysFrame<Size2MiB> = frames.allocate_frame().unwrap();
//! assert!(huge.start_address().is_aligned(2_u64 << 20));
//! // SAFETY: it is mapped nowhere.
//! unsafe { frames.deallocate_frame(huge) };
//! # Ok::<(), zonal_kernel::Error>(())
//! ```

use crate::{Global, Machine};
use core::fmt;
use x86_64::PhysAddr;
use x86_64::structures::paging::{
    FrameAllocator, FrameDeallocator, PageSize, PhysFrame, Size1GiB, Size2MiB, Size4KiB,
};
use zonal::map::{Range, RangeKind};
use zonal::policy::Sound;
use zonal::preset::Zonal;
use zonal::{Order, Pfn, Request};

/// Frames of a 1 GiB page.
const GIANT: u64 = Size1GiB::SIZE / Size4KiB::SIZE;

/// A [`Global`] as the crate `x86_64` wants it.
///
/// A page of 4 KiB or 2 MiB is a block; one of 1 GiB is a range of the memory in which all that is in use
/// is moved out of the way, where the [`Machine`] can, also of memory that came later: rare, and slow. Frames are not zeroed; the crate does
/// that for its tables.
pub struct PageFrames<'a, M: Machine, S: Sound = Zonal> {
    global: &'a Global<M, S>,
    request: Request,
    refused: u64,
}

impl<'a, M: Machine, S: Sound> PageFrames<'a, M, S> {
    /// Unmovable frames: for page tables.
    #[must_use]
    pub const fn new(global: &'a Global<M, S>) -> Self {
        Self::with_request(global, Request::frame())
    }

    /// Frames as `request` wants them, but for the order; of 1 GiB pages nothing of it is looked at.
    #[must_use]
    pub const fn with_request(global: &'a Global<M, S>, request: Request) -> Self {
        Self { global, request, refused: 0 }
    }

    /// How many frees were refused: frames that were not allocated with that size. The trait has no
    /// way to say so.
    #[must_use]
    pub const fn refused(&self) -> u64 {
        self.refused
    }

    fn block<P: PageSize>(&self, order: Order) -> Option<PhysFrame<P>> {
        let block = self.global.alloc(&self.request.with_order(order)).ok()?;
        frame(block.into_raw().0)
    }

    /// # Safety
    /// The block is the caller's, if it is allocated with that order.
    unsafe fn free(&mut self, start: PhysAddr, order: Order) {
        // SAFETY: freed is what is the caller's.
        let frames = unsafe { self.global.allocator() };
        let pfn = Pfn::containing(start.as_u64());
        let freed = frames.is_ok_and(|frames| frames.free_raw(pfn, order).is_ok());
        self.refused += u64::from(!freed);
    }
}

/// A block's frame, in the crate's words.
fn frame<P: PageSize>(pfn: Pfn) -> Option<PhysFrame<P>> {
    PhysFrame::from_start_address(PhysAddr::try_new(pfn.address()).ok()?).ok()
}

// SAFETY: a frame that is returned is allocated, so it is not returned again until it is freed.
unsafe impl<M: Machine, S: Sound> FrameAllocator<Size4KiB> for PageFrames<'_, M, S> {
    fn allocate_frame(&mut self) -> Option<PhysFrame<Size4KiB>> {
        self.block(Order::ZERO)
    }
}

// SAFETY: as above; the block of this order has the bytes of the page, and their alignment.
unsafe impl<M: Machine, S: Sound> FrameAllocator<Size2MiB> for PageFrames<'_, M, S> {
    fn allocate_frame(&mut self) -> Option<PhysFrame<Size2MiB>> {
        self.block(Order::HUGE)
    }
}

// SAFETY: as above; the range is of as many frames, all allocated, and aligned.
unsafe impl<M: Machine, S: Sound> FrameAllocator<Size1GiB> for PageFrames<'_, M, S> {
    fn allocate_frame(&mut self) -> Option<PhysFrame<Size1GiB>> {
        // SAFETY: nothing is freed through it.
        let frames = unsafe { self.global.allocator() }.ok()?;
        let (map, span) = (frames.plan().map(), frames.plan().map().span());
        // CMA memory is for others; of the rest what is not there (yet) is refused.
        let is_cma = |start: u64| {
            let beside =
                |range: &Range| range.end.get() <= start || range.start.get() >= start + GIANT;
            map.ranges().iter().any(|range| range.kind == RangeKind::Cma && !beside(range))
        };
        let first = span.start.get().next_multiple_of(GIANT);
        let starts = (first..span.end.get()).step_by(GIANT as usize);
        let starts = starts
            .take_while(|start| start + GIANT <= span.end.get())
            .filter(|&start| !is_cma(start));
        let mut found = starts
            .filter_map(|start| frames.alloc_range(Pfn::new(start)..Pfn::new(start + GIANT)).ok());
        frame(found.next()?.into_raw().0)
    }
}

impl<M: Machine, S: Sound> FrameDeallocator<Size4KiB> for PageFrames<'_, M, S> {
    unsafe fn deallocate_frame(&mut self, frame: PhysFrame<Size4KiB>) {
        // SAFETY: the caller's promise: the frame is in use no more.
        unsafe { self.free(frame.start_address(), Order::ZERO) };
    }
}

impl<M: Machine, S: Sound> FrameDeallocator<Size2MiB> for PageFrames<'_, M, S> {
    unsafe fn deallocate_frame(&mut self, frame: PhysFrame<Size2MiB>) {
        // SAFETY: as above.
        unsafe { self.free(frame.start_address(), Order::HUGE) };
    }
}

impl<M: Machine, S: Sound> FrameDeallocator<Size1GiB> for PageFrames<'_, M, S> {
    unsafe fn deallocate_frame(&mut self, frame: PhysFrame<Size1GiB>) {
        let start = frame.start_address();
        for small in 0..GIANT {
            // SAFETY: as above; the range was allocated as single frames.
            unsafe { self.free(start + small * Size4KiB::SIZE, Order::ZERO) };
        }
    }
}

impl<M: Machine, S: Sound> fmt::Debug for PageFrames<'_, M, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PageFrames").field("refused", &self.refused).finish_non_exhaustive()
    }
}
