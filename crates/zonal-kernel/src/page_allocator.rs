//! A [`Global`] as a page allocator of the crate `ax-allocator`.
//!
//! ```
//! # mod fake { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fake/mod.rs")); }
//! # use fake::Fake as Pc;
//! use ax_allocator::{BaseAllocator, PageAllocator};
//! use zonal::plan::Config;
//! use zonal_kernel::{Global, page_allocator::Pages};
//!
//! static FRAMES: Global<Pc> = Global::new();
//!
//! # let end = fake::memory(64 << 20);
//! # let memory = <Pc as zonal_kernel::Machine>::address(zonal::map::PhysAddr(0)).addr();
//! // SAFETY: `Pc::address` adds one number to all addresses, no other code uses the memory that is given
//! // to `pages`, and what it is given back is in use no more. There is no other allocator.
//! let mut pages = unsafe { Pages::new(&FRAMES, Config::new(1)) }.room(0..64 << 20);
//! pages.init(memory + (16 << 20), 16 << 20);
//! pages.add_memory(memory + (32 << 20), 32 << 20).unwrap();
//! let stack = pages.alloc_pages(3, 1 << 14).unwrap();
//! pages.dealloc_pages(stack, 1);
//! pages.dealloc_pages(stack + 4096, 2);
//! assert_eq!((pages.used_pages(), pages.refused()), (0, 0));
//! ```
//!
//! Addresses are those at which the kernel sees memory, as that crate has them: what [`Machine::address`] answers.
//! A kernel that has a memory map builds the [`Global`] of it, with nodes and tables where it wants them, and never
//! calls [`init`](BaseAllocator::init).

use crate::{Error, Global, Machine};
use ax_allocator::{AllocError, AllocResult, BaseAllocator, PageAllocator};
use core::fmt;
use core::ops::Range;
use zonal::error::{ContiguousError, ResizeError};
use zonal::map::{PhysAddr, Region};
use zonal::plan::Config;
use zonal::policy::Sound;
use zonal::preset::Zonal;
use zonal::units::FRAME_SIZE;
use zonal::{Bounds, Pfn, Request, ZoneId};

/// A [`Global`] as that crate wants it: see the [module](self).
pub struct Pages<M: Machine, S: Sound = Zonal> {
    global: &'static Global<M, S>,
    config: Config,
    room: Range<u64>,
    refused: u64,
}

impl<M: Machine, S: Sound> Pages<M, S> {
    /// Pages of `global`, which [`init`](BaseAllocator::init) builds with `config` unless it is built already.
    ///
    /// # Safety
    /// The crate's traits have safe functions that take memory and free pages. So, of all calls of those:
    ///
    /// - what [`init`](BaseAllocator::init) and [`add_memory`](BaseAllocator::add_memory) are given is memory, and no
    ///   code uses it but through the allocator from then on;
    /// - what [`dealloc_pages`](PageAllocator::dealloc_pages) is given is the caller's, if it is allocated, and in use
    ///   no more;
    /// - [`Machine::address`] adds the same number to the address of each frame of that memory and of frame 0, and the
    ///   memory can be read and written there on every CPU.
    ///
    /// And `global` is given no token of another allocator, as [`boot`](crate::global::Booting::boot) has it.
    #[must_use]
    pub const unsafe fn new(global: &'static Global<M, S>, config: Config) -> Self {
        Self { global, config, room: 0..0, refused: 0 }
    }

    /// Has [`init`](BaseAllocator::init) make tables for the memory of `room`, physical addresses in bytes, too: 1.2
    /// bytes a frame, from its first to its last. Memory is added in it or between other memory.
    #[must_use]
    pub const fn room(mut self, room: Range<u64>) -> Self {
        self.room = room;
        self
    }

    /// How many frees were refused: pages that were not allocated. The trait has no way to say so.
    #[must_use]
    pub const fn refused(&self) -> u64 {
        self.refused
    }

    /// What is added to a physical address.
    fn offset() -> usize {
        M::address(PhysAddr(0)).expose_provenance()
    }

    fn physical(address: usize) -> u64 {
        address.wrapping_sub(Self::offset()) as u64
    }

    fn virtual_of(frame: Pfn) -> usize {
        (frame.address() as usize).wrapping_add(Self::offset())
    }

    /// The whole frames in `size` bytes at an address.
    fn frames(start: usize, size: usize) -> Range<Pfn> {
        let start = Self::physical(start);
        let first = start.div_ceil(FRAME_SIZE as u64);
        let end = start.saturating_add(size as u64) / FRAME_SIZE as u64;
        Pfn::new(first)..Pfn::new(end.max(first))
    }

    /// The frames that have the bytes of `align`: none of another number than a power of two.
    fn align(align: usize) -> AllocResult<u64> {
        match align.is_power_of_two() && align >= FRAME_SIZE {
            true => Ok((align / FRAME_SIZE) as u64),
            false => Err(AllocError::InvalidParam),
        }
    }

    fn build(&self, own: &Range<Pfn>) -> Result<(), Error> {
        let bytes = |range: Range<u64>| (PhysAddr(range.start), range.end - range.start);
        let own = own.start.address()..own.end.address();
        let (start, length) = bytes(own.clone());
        let mut map = self.global.map([Region::usable(start, length)], &[], [])?;
        let Range { start, end } = self.room;
        for room in [start..own.start.min(end), own.end.max(start)..end] {
            if !room.is_empty() {
                map = map.reclaim_later(&room, [])?;
            }
        }
        // SAFETY: the promise made to `new`.
        unsafe { map.boot(self.config) }
    }

    /// Sums a number of each zone.
    fn sum(&self, of: impl Fn(&zonal::info::ZoneInfo) -> u64) -> usize {
        // SAFETY: nothing is freed through it.
        let Ok(frames) = (unsafe { self.global.allocator() }) else { return 0 };
        let zones = (0..frames.zone_count()).filter_map(|n| frames.zone_info(ZoneId(n as u8)));
        zones.map(|zone| of(&zone) as usize).sum()
    }
}

impl<M: Machine, S: Sound> BaseAllocator for Pages<M, S> {
    /// Builds the allocator over the whole frames of this memory, which has the tables, too.
    ///
    /// # Panics
    /// If that cannot be: the memory is too small for its tables, or there is an allocator already. The trait has no
    /// way to say so.
    fn init(&mut self, start: usize, size: usize) {
        if let Err(error) = self.build(&Self::frames(start, size)) {
            panic!("{size} bytes at {start:#x} are no memory for an allocator: {error}");
        }
    }

    /// Adds the whole frames of this memory. `InvalidParam` where the tables have no room for it: see
    /// [`room`](Self::room).
    fn add_memory(&mut self, start: usize, size: usize) -> AllocResult {
        let range = Self::frames(start, size);
        // SAFETY: the promise made to `new`.
        match unsafe { self.global.release(range) } {
            Ok(_) => Ok(()),
            Err(Error::Resize(ResizeError::Online { .. })) => Err(AllocError::MemoryOverlap),
            Err(Error::Resize(ResizeError::Busy) | Error::NotBooted) => Err(AllocError::NoMemory),
            Err(_) => Err(AllocError::InvalidParam),
        }
    }
}

impl<M: Machine, S: Sound> PageAllocator for Pages<M, S> {
    const PAGE_SIZE: usize = FRAME_SIZE;

    /// `InvalidParam`, too, for an `align` of which what [`Machine::address`] adds is no multiple.
    fn alloc_pages(&mut self, num_pages: usize, align: usize) -> AllocResult<usize> {
        // Physical addresses are aligned, and the offset has to keep that.
        let bounds = Bounds::ANY.aligned(Self::align(align)?);
        if !Self::offset().is_multiple_of(align) {
            return Err(AllocError::InvalidParam);
        }
        match self.global.alloc_pages(num_pages as u64, &Request::frame(), &bounds) {
            Ok(first) => Ok(Self::virtual_of(first)),
            Err(Error::Contiguous(ContiguousError::Empty)) => Err(AllocError::InvalidParam),
            Err(_) => Err(AllocError::NoMemory),
        }
    }

    /// Frees any part of what was allocated. What was not is counted: [`refused`](Pages::refused).
    fn dealloc_pages(&mut self, pos: usize, num_pages: usize) {
        let first = Pfn::containing(Self::physical(pos));
        let is_frame = Self::virtual_of(first) == pos;
        // SAFETY: the promise made to `new`.
        let free = || unsafe { self.global.free_pages(first, num_pages as u64) };
        self.refused += u64::from(!is_frame || free().is_err());
    }

    fn alloc_pages_at(
        &mut self,
        base: usize,
        num_pages: usize,
        align: usize,
    ) -> AllocResult<usize> {
        Self::align(align)?;
        if num_pages == 0 || !base.is_multiple_of(align) {
            return Err(AllocError::InvalidParam);
        }
        let first = Pfn::containing(Self::physical(base));
        let end = first.get().checked_add(num_pages as u64).ok_or(AllocError::InvalidParam)?;
        let found = self.global.alloc_at(first..Pfn::new(end)).map_err(|_| AllocError::NoMemory)?;
        Ok(Self::virtual_of(found.into_raw().0))
    }

    /// Pages that the allocator hands out; what has its tables is none. Costs zones × CPUs, as the two below.
    fn total_pages(&self) -> usize {
        self.sum(|zone| zone.managed)
    }

    fn used_pages(&self) -> usize {
        self.sum(|zone| zone.managed.saturating_sub(zone.free + zone.cached))
    }

    fn available_pages(&self) -> usize {
        self.sum(|zone| zone.free + zone.cached)
    }
}

impl<M: Machine, S: Sound> fmt::Debug for Pages<M, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pages").field("refused", &self.refused).finish_non_exhaustive()
    }
}
