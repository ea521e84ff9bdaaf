//! An arena as the memory of a guest, for virtual machine monitors built on `vm-memory`.
//!
//! A [`GuestRegion`] is a whole arena at an address of the guest's. Its frames are handed out by
//! the guest's addresses, for monitors that allocate for their guests (devices, boot images,
//! balloons, memory that grows by blocks), and memory goes back to the kernel from either side:
//!
//! | who knows what is free | call |
//! |---|---|
//! | the arena: blocks that were freed | [`visit_free`](GuestRegion::visit_free) tells of them, [`give_back`](GuestRegion::give_back) returns their memory |
//! | the guest: it reported free pages, or its balloon took them | [`discard`](GuestRegion::discard) returns the memory of a range |
//!
//! ```
//! use vm_memory::{Bytes, GuestAddress, GuestMemoryBackend, GuestRegionCollection};
//! use zonal::Order;
//! use zonal_host::Arena;
//! use zonal_host::guest::GuestRegion;
//! use zonal_host::region::GiveBack;
//! let arena = Arena::builder().bytes(16 << 20).open()?;
//! let region = GuestRegion::new(arena, GuestAddress(1 << 30))?;
//! let memory = GuestRegionCollection::from_regions(vec![region])?;
//!
//! let region = memory.find_region(GuestAddress(1 << 30)).ok_or("it is there")?;
//! let ring = region.alloc(Order::HUGE)?;
//! memory.write_obj(7_u64, ring)?;
//! assert_eq!(memory.read_obj::<u64>(ring)?, 7);
//! region.free(ring, Order::HUGE)?;
//! assert_eq!(region.give_back(usize::MAX, GiveBack::Now)?.bytes, 4096);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use crate::Arena;
use crate::arena::GivenBack;
use crate::region::{GiveBack, RegionError};
use std::fmt;
use vm_memory::bitmap::BS;
use vm_memory::guest_memory::{Error as MemoryError, Result as MemoryResult};
use vm_memory::{
    Address, GuestAddress, GuestMemoryRegion, GuestMemoryRegionBytes, GuestUsize,
    MemoryRegionAddress, VolatileSlice,
};
use zonal::policy::Policy;
use zonal::preset::Zonal;
use zonal::units::FRAME_SIZE;
use zonal::{AllocError, FreeError, Order, Pfn, Request, ZoneId};

/// An arena as a region of guest memory: see the [module](self).
///
/// All of it can be read and written at any time by way of `vm-memory`, whatever is allocated, as
/// a guest can. So it has the arena to itself: nothing else holds pages of it, and no byte of it is
/// ever behind a reference.
pub struct GuestRegion<S: Policy = Zonal> {
    arena: Arena<S>,
    start: GuestAddress,
}

/// Why an arena cannot be a region of guest memory, with the arena as it was.
pub struct Misfit<S: Policy = Zonal> {
    /// The arena.
    pub arena: Arena<S>,
    /// What is wrong.
    pub why: Why,
}

/// See [`Misfit`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Why {
    /// It would not begin with a frame there, or not end below the end of the address space.
    Address {
        /// Where it was to be.
        start: GuestAddress,
        /// Its length in bytes.
        bytes: usize,
    },
    /// Some of it is allocated, so another part of the program may have references into it.
    InUse {
        /// How many frames.
        frames: u64,
    },
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address { start, bytes } => {
                write!(f, "{bytes} bytes cannot start at {:#x} of the guest", start.raw_value())
            }
            Self::InUse { frames } => write!(f, "{frames} frames of the arena are in use"),
        }
    }
}

impl<S: Policy> fmt::Debug for Misfit<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Misfit").field("arena", &self.arena).field("why", &self.why).finish()
    }
}

impl<S: Policy> fmt::Display for Misfit<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.why.fmt(f)
    }
}

impl<S: Policy> std::error::Error for Misfit<S> {}

/// Frames that are neither free nor cached.
fn frames_in_use<S: Policy>(arena: &Arena<S>) -> u64 {
    arena.drain();
    let zones = (0..arena.zone_count()).filter_map(|zone| arena.zone_info(ZoneId(zone as u8)));
    zones.map(|zone| zone.managed - zone.free - zone.cached).sum()
}

impl<S: Policy> GuestRegion<S> {
    /// The arena, from `start` on.
    ///
    /// # Errors
    /// [`Misfit`], with the arena, unless all of it is free, `start` is a multiple of the frame
    /// size and the last address exists.
    pub fn new(arena: Arena<S>, start: GuestAddress) -> Result<Self, Box<Misfit<S>>> {
        let bytes = arena.len();
        let last = start.checked_add(bytes as u64 - 1);
        if last.is_none() || !start.raw_value().is_multiple_of(FRAME_SIZE as u64) {
            return Err(Box::new(Misfit { arena, why: Why::Address { start, bytes } }));
        }
        match frames_in_use(&arena) {
            0 => Ok(Self { arena, start }),
            frames => Err(Box::new(Misfit { arena, why: Why::InUse { frames } })),
        }
    }

    /// Gives the arena back. What was allocated stays so.
    #[must_use]
    pub fn into_arena(self) -> Arena<S> {
        self.arena
    }

    /// Where a frame of the arena is for the guest.
    fn guest_address(&self, pfn: Pfn) -> GuestAddress {
        let offset = pfn.address() - self.arena.first().address();
        GuestAddress(self.start.raw_value() + offset)
    }

    /// Allocates a block for the guest, whose bytes may be anything. A guest address that is a
    /// multiple of 4 MiB as `start` makes blocks aligned to their size for the guest, too.
    ///
    /// # Errors
    /// As [`Arena::alloc`].
    pub fn alloc(&self, order: Order) -> Result<GuestAddress, AllocError> {
        self.arena.alloc_raw(&Request::new(order)).map(|pfn| self.guest_address(pfn))
    }

    /// Frees the block of `order` that starts at `start`. The guest that still uses it will meet
    /// others' bytes there, which is for it to bear; the host is safe.
    ///
    /// # Errors
    /// [`FreeError`] if that is not what was allocated, [`FreeError::Foreign`] if no frame starts
    /// there; then nothing has changed.
    pub fn free(&self, start: GuestAddress, order: Order) -> Result<(), FreeError> {
        let offset = start.raw_value().wrapping_sub(self.start.raw_value());
        let pfn = Pfn::containing(self.arena.first().address().wrapping_add(offset));
        if !offset.is_multiple_of(FRAME_SIZE as u64) {
            return Err(FreeError::Foreign { pfn });
        }
        // SAFETY: all memory of the region is for volatile access only, so there are no
        // references into the block; that it was allocated is checked.
        unsafe { self.arena.free_raw(pfn, order) }
    }

    /// Shows `visit` free ranges that were in use before, in bytes, at most `max_blocks` of 2 or
    /// 4 MiB, and returns how many; nothing is allocated there meanwhile. For a monitor that
    /// reports free pages to a hypervisor of its own: see [`Arena::visit_free`].
    pub fn visit_free(
        &self,
        max_blocks: usize,
        mut visit: impl FnMut(GuestAddress, GuestUsize),
    ) -> usize {
        let each = |pfn, order: Order| visit(self.guest_address(pfn), order.bytes() as u64);
        self.arena.visit_free(max_blocks, each)
    }

    /// Gives the memory of free blocks back to the kernel: see [`Arena::give_back`].
    ///
    /// # Errors
    /// As [`Arena::give_back`].
    pub fn give_back(&self, max_blocks: usize, how: GiveBack) -> Result<GivenBack, RegionError> {
        self.arena.give_back(max_blocks, how)
    }

    /// Gives the memory of a range back to the kernel, allocated or not: for pages that the
    /// guest says are free. They read as zero afterwards, and take memory again when touched.
    ///
    /// # Errors
    /// [`RegionError::BadPart`] unless the range is whole frames of the region, by offsets;
    /// [`RegionError::Advice`] if the kernel refuses, and always for huge pages from the pool.
    pub fn discard(&self, start: GuestAddress, bytes: GuestUsize) -> Result<(), RegionError> {
        let offset = start.raw_value().wrapping_sub(self.start.raw_value()) as usize;
        let end = offset.saturating_add(usize::try_from(bytes).unwrap_or(usize::MAX));
        // SAFETY: all memory of the region is for volatile access only, so there are no
        // references into it, and what it holds is the guest's, which says it is of no use.
        unsafe { self.arena.memory().give_back(offset..end, GiveBack::Now) }
    }
}

impl<S: Policy> GuestMemoryRegion for GuestRegion<S> {
    type B = ();

    fn len(&self) -> GuestUsize {
        self.arena.len() as u64
    }

    fn start_addr(&self) -> GuestAddress {
        self.start
    }

    fn bitmap(&self) -> BS<'_, ()> {}

    fn get_host_address(&self, address: MemoryRegionAddress) -> MemoryResult<*mut u8> {
        let address = self.check_address(address).ok_or(MemoryError::InvalidBackendAddress)?;
        Ok(self.arena.memory().base().as_ptr().wrapping_add(address.raw_value() as usize))
    }

    fn get_slice(
        &self,
        offset: MemoryRegionAddress,
        count: usize,
    ) -> MemoryResult<VolatileSlice<'_, ()>> {
        let offset = usize::try_from(offset.raw_value());
        let offset = offset
            .ok()
            .filter(|&offset| offset.checked_add(count).is_some_and(|end| end <= self.arena.len()));
        let offset = offset.ok_or(MemoryError::InvalidBackendAddress)?;
        let start = self.arena.memory().base().as_ptr().wrapping_add(offset);
        // SAFETY: inside the arena's memory, which is mapped, readable and writable as long as
        // the region is borrowed. The region has the arena to itself and uses this memory in no
        // other way; its allocator does not read or write free pages, and none are asked for with
        // zeroes. (A pager that moves blocks has promised that they are its own.)
        Ok(unsafe { VolatileSlice::new(start, count) })
    }
}

impl<S: Policy> GuestMemoryRegionBytes for GuestRegion<S> {}

impl<S: Policy> fmt::Debug for GuestRegion<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GuestRegion")
            .field("start", &self.start)
            .field("arena", &self.arena)
            .finish()
    }
}
