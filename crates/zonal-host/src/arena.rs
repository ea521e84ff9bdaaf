//! A page pool on real memory.
//!
//! An [`Arena`] maps memory, builds an [allocator](zonal::Allocator) over it and hands out
//! [`Page`]s: blocks of 1 to 1024 frames that deref to `[u8]` and are freed when dropped. Frame
//! numbers are addresses: frame `n` is at address `n × 4096`.
//!
//! Threads may share the arena as it is; each CPU has a cache behind a try-lock. A thread that
//! allocates much takes a [`Handle`]: a cache of its own, without atomic read-modify-writes.
//!
//! How much memory:
//! - [`bytes`](Builder::bytes) is accounted for when the arena opens: more than there is is an
//!   error;
//! - [`reserve`](Builder::reserve) is address space beyond that, backed on touch as far as the
//!   machine can. Lower addresses are used first. A TiB costs milliseconds and a few MiB.
//!
//! # Children of `fork`
//! A child has one thread, and every arena of its parent as it was at that moment, in memory of
//! its own. Other threads of the parent may have been inside: their locks are held for ever. So a
//! child may read and write the pages that the forking thread had, open arenas of its own, and
//! exit; it must not allocate from, free to (which dropping a page does), drain or inspect an arena that
//! [came by fork](Arena::came_by_fork), nor use its handles. Where it does so all the same it
//! does not hang: it is served, or panics where it would have waited for a thread that is not
//! there; a [compactor](crate::compactor) is refused. (A fork by a bare system call is not seen; the
//! presets of the 2018 series with clusters wait for one another without a lock, and may hang.)
//!
//! ```
//! use zonal::{Order, Request};
//! use zonal_host::Arena;
//! let arena = Arena::builder().bytes(64 << 20).open()?;
//! let mut page = arena.alloc(&Request::new(Order::HUGE))?;
//! page[4096..8192].fill(7);
//! assert_eq!(page.len(), 2 << 20);
//! drop(page);
//!
//! let mut handle = arena.handle()?;
//! let frame = handle.alloc(&Request::frame().zero())?;
//! assert!(frame.iter().all(|&byte| byte == 0));
//! handle.free(frame);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod builder;
mod compact;
mod error;
#[cfg(all(test, not(loom)))]
mod faults;
mod give_back;
mod handle;
mod owned;
mod page;
mod tables;

pub use builder::{Builder, HugePages};
pub use error::ArenaError;
pub use give_back::{GivenBack, Kept};
pub use handle::Handle;
pub use owned::OwnedPage;
pub use page::Page;

use crate::birth::Birth;
use crate::region::Region;
use crate::threads::Threads;
use std::fmt;
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use tables::Tables;
use zonal::error::Explanation;
use zonal::info::{CacheInfo, ZoneInfo};
use zonal::platform::OwnError;
use zonal::policy::Policy;
use zonal::preset::Zonal;
use zonal::units::FRAME_SIZE;
use zonal::watermark::Watermarks;
use zonal::{AllocError, Allocator, BulkFreed, CpuId, FreeError, Order, Pfn, Request, ZoneId};

/// A page pool: see the [module](self). `S` is the preset.
pub struct Arena<S: Policy = Zonal> {
    /// Lives in `tables`. Always initialised; `MaybeUninit` because the references inside end
    /// while this field is still there, when the arena is dropped.
    allocator: MaybeUninit<Allocator<'static, Threads, S>>,
    /// Everything the allocator refers to.
    tables: Tables,
    /// The frames.
    memory: Region,
    /// Bytes of it that are accounted for.
    counted: usize,
    /// CPUs from 0 are shared; the rest are for handles.
    shared: u32,
    owners: u32,
    /// Whether free blocks were ever given back to be taken when needed: then what a page
    /// holds may still change until its frames are written.
    lazy: AtomicBool,
    /// How many have it keep its memory.
    kept: AtomicUsize,
    birth: Birth,
}

impl Arena {
    /// An arena with the default preset, to be described; [`Builder::preset`] takes another.
    pub fn builder() -> Builder {
        Builder::new()
    }
}

impl<S: Policy> Arena<S> {
    /// The allocator, with the lifetime it believes in.
    #[inline(always)]
    fn inner(&self) -> &Allocator<'static, Threads, S> {
        // SAFETY: initialised when the arena was made, and dropped only with it.
        unsafe { self.allocator.assume_init_ref() }
    }

    /// The allocator behind the arena, for what the arena has no words for: ranges of frames ([`isolate`](Allocator::isolate),
    /// [`alloc_range`](Allocator::alloc_range), [`alloc_contiguous`](Allocator::alloc_contiguous)), the cache of one CPU
    /// ([`drain_cpu`](Allocator::drain_cpu)), what a frame is ([`frame_state`](Allocator::frame_state)). None of these
    /// asks for more than what is said here.
    ///
    /// # Safety
    /// Nothing may be freed through it, or zeroed through its platform, that another
    /// holder has a [`Page`] of or references into; nothing may be migrated through its
    /// platform, except by the allocator itself; and no memory may be released or brought online
    /// through it: what lies beyond the arena's end is not its own.
    #[must_use]
    pub unsafe fn allocator(&self) -> &Allocator<'_, Threads, S> {
        self.inner()
    }

    /// Allocates a block. Its bytes are initialised but may be anything, unless the request
    /// asks for zeroes.
    ///
    /// # Errors
    /// [`AllocError`] says why, how many zones were tried, and the first of them; what they had is
    /// [`explain`](Self::explain)'s to say.
    #[inline(always)]
    pub fn alloc(&self, request: &Request) -> Result<Page<'_, S>, AllocError> {
        self.inner().alloc(request).map(|block| Page::new(self, block))
    }

    /// Allocates a block for those who keep its frame number by other means. A caller that reads
    /// it before it writes should know [`GiveBack::WhenNeeded`](crate::region::GiveBack::WhenNeeded).
    ///
    /// # Errors
    /// As [`alloc`](Self::alloc).
    #[inline]
    pub fn alloc_raw(&self, request: &Request) -> Result<Pfn, AllocError> {
        self.inner().alloc_raw(request)
    }

    /// Frees the block of `order` that starts at `pfn`.
    ///
    /// # Errors
    /// [`FreeError`] if that is not what was allocated; then nothing has changed.
    ///
    /// # Safety
    /// The block must be the caller's: from [`alloc_raw`](Self::alloc_raw) or
    /// [`Page::into_raw`], not freed yet, and without references into it.
    #[inline]
    pub unsafe fn free_raw(&self, pfn: Pfn, order: Order) -> Result<(), FreeError> {
        self.inner().free_raw(pfn, order)
    }

    /// Makes single frames of a block: see [`Allocator::split`].
    ///
    /// # Errors
    /// [`FreeError`] if that is not what was allocated; then nothing has changed.
    ///
    /// # Safety
    /// The block must be the caller's: from [`alloc_raw`](Self::alloc_raw) or [`Page::into_raw`], and not freed yet. From
    /// now on its frames are, each with order 0.
    pub unsafe fn split_raw(&self, pfn: Pfn, order: Order) -> Result<(), FreeError> {
        self.inner().split(pfn, order)
    }

    /// Makes a block one of order `to`, its start, and frees the rest: see [`Allocator::cut`].
    ///
    /// # Errors
    /// [`FreeError`] if that is not what was allocated; then nothing has changed.
    ///
    /// # Safety
    /// As [`free_raw`](Self::free_raw), for what lies behind the start.
    pub unsafe fn cut_raw(&self, pfn: Pfn, order: Order, to: Order) -> Result<(), FreeError> {
        self.inner().cut(pfn, order, to)
    }

    /// Fills `out` with blocks: see [`Allocator::alloc_bulk`].
    ///
    /// # Errors
    /// [`AllocError`] if not all could be had; then `out` holds nothing of use.
    pub fn alloc_bulk(&self, request: &Request, out: &mut [Pfn]) -> Result<(), AllocError> {
        self.inner().alloc_bulk(request, out)
    }

    /// Frees single frames; those that may not be freed are left out and counted.
    ///
    /// # Safety
    /// As [`free_raw`](Self::free_raw), for each.
    pub unsafe fn free_bulk(&self, frames: &[Pfn]) -> BulkFreed {
        self.inner().free_bulk(frames)
    }

    /// Frees blocks of one order, as [`alloc_bulk`](Self::alloc_bulk) gives them; those that may not be freed are left out and counted.
    ///
    /// # Safety
    /// As [`free_raw`](Self::free_raw), for each block.
    pub unsafe fn free_blocks(&self, order: Order, blocks: &[Pfn]) -> BulkFreed {
        self.inner().free_blocks(order, blocks)
    }

    /// Takes a block back from its numbers.
    ///
    /// # Safety
    /// The block must be the caller's, as for [`free_raw`](Self::free_raw).
    #[must_use]
    pub unsafe fn page_from_raw(&self, pfn: Pfn, order: Order) -> Page<'_, S> {
        Page::from_raw(self, pfn, order)
    }

    /// Makes the caller the owner of a cache; the handle may move between threads.
    ///
    /// # Errors
    /// [`OwnError::Taken`] if as many handles exist as the arena was built for
    /// ([`Builder::owners`]), [`OwnError::NoSuchCpu`] if that is none,
    /// [`OwnError::Unsupported`] if the machine has no such path.
    pub fn handle(&self) -> Result<Handle<'_, S>, OwnError> {
        if self.owners == 0 {
            return Err(OwnError::NoSuchCpu);
        }
        let host = self.inner().platform();
        for cpu in (self.shared..self.shared + self.owners).map(CpuId) {
            let node = host.node_here();
            match self.inner().handle_on(cpu, node) {
                Ok(inner) => {
                    // Not before: the CPU may be another handle's, on another node.
                    host.set_node(cpu, node);
                    return Ok(Handle::new(self, inner));
                }
                Err(OwnError::Taken) => {}
                Err(error) => return Err(error),
            }
        }
        Err(OwnError::Taken)
    }

    /// Whether a parent of this process opened the arena: see
    /// [children of fork](self#children-of-fork). Costs a load.
    #[must_use]
    pub fn came_by_fork(&self) -> bool {
        !self.birth.is_here()
    }

    /// Where a frame of the arena is; `None` for a frame that is not the arena's. The address
    /// is good for reading and writing while the caller owns the frame.
    #[must_use]
    #[inline]
    pub fn address_of(&self, pfn: Pfn) -> Option<NonNull<u8>> {
        let offset = pfn.address().wrapping_sub(self.memory.base().addr().get() as u64);
        let inside = pfn.get() <= Pfn::containing(u64::MAX).get();
        // SAFETY: the offset is inside the memory.
        (inside && offset < self.len() as u64)
            .then(|| unsafe { self.memory.base().add(offset as usize) })
    }

    /// The first frame of the arena.
    #[must_use]
    pub fn first(&self) -> Pfn {
        Pfn::containing(self.memory.base().addr().get() as u64)
    }

    /// The frames' memory.
    #[cfg(feature = "vm-memory")]
    pub(crate) const fn memory(&self) -> &Region {
        &self.memory
    }

    /// Bytes in the arena, reserved ones included.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "never empty")]
    pub const fn len(&self) -> usize {
        self.memory.len()
    }

    /// Bytes that are accounted for.
    #[must_use]
    pub const fn counted(&self) -> usize {
        self.counted
    }

    /// Bytes of frame table and pageblocks: address space, of which only what is used
    /// takes memory.
    #[must_use]
    pub fn table_bytes(&self) -> u64 {
        self.tables.size().table_bytes()
    }

    /// How many CPUs are reached by number and how many are for handles.
    #[must_use]
    pub const fn cpus(&self) -> (u32, u32) {
        (self.shared, self.owners)
    }

    /// Frees everything that caches keep, merged; returns the frames. For idle
    /// moments.
    pub fn drain(&self) -> u64 {
        self.inner().drain_all()
    }

    /// What the zones of a request have now: see [`Allocator::explain`].
    #[must_use]
    pub fn explain(&self, request: &Request) -> Explanation {
        self.inner().explain(request)
    }

    /// How many zone instances there are.
    #[must_use]
    pub fn zone_count(&self) -> usize {
        self.inner().zone_count()
    }

    /// A zone as it is now: see [`Allocator::zone_info`].
    #[must_use]
    pub fn zone_info(&self, zone: ZoneId) -> Option<ZoneInfo> {
        self.inner().zone_info(zone)
    }

    /// How much of a zone is free, and its watermarks: see [`Allocator::zone_level`].
    #[must_use]
    pub fn zone_level(&self, zone: ZoneId) -> Option<(u64, Watermarks)> {
        self.inner().zone_level(zone)
    }

    /// One CPU's cache of a zone: see [`Allocator::cache_info`].
    #[must_use]
    pub fn cache_info(&self, zone: ZoneId, cpu: CpuId) -> Option<CacheInfo> {
        self.inner().cache_info(zone, cpu)
    }

    /// Writes a byte of every frame of a block, unchanged, if its memory may be marked as free
    /// for the taking: from then on it stays.
    #[inline(always)]
    fn settle(&self, start: NonNull<u8>, order: Order) {
        // Relaxed: set before the block was freed, and the block came to us through the
        // allocator since.
        if self.lazy.load(Ordering::Relaxed) {
            self.touch(start, order);
        }
    }

    #[cold]
    #[inline(never)]
    fn touch(&self, start: NonNull<u8>, order: Order) {
        for frame in (0..order.bytes()).step_by(FRAME_SIZE) {
            // SAFETY: `start` begins a block of this order.
            let byte = unsafe { start.add(frame) };
            // SAFETY: the block is ours and its memory readable.
            let value = unsafe { byte.read_volatile() };
            // SAFETY: the block is ours and its memory writable.
            unsafe { byte.write_volatile(value) };
        }
    }
}

impl<S: Policy> Drop for Arena<S> {
    fn drop(&mut self) {
        // SAFETY: initialised, and not used again. What it refers to is dropped after it.
        unsafe { self.allocator.assume_init_drop() };
    }
}

impl<S: Policy> fmt::Debug for Arena<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Arena")
            .field("preset", &S::NAME)
            .field("bytes", &self.len())
            .field("cpus", &self.cpus())
            .finish_non_exhaustive()
    }
}
