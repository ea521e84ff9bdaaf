//! The allocator as a static: empty at first, built once from the boot map, used from everywhere.
//!
//! ```
//! # mod fake { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fake/mod.rs")); }
//! # use fake::Fake as Pc;
//! # use zonal_kernel::boot_map::e820::Entry;
//! # fn kernel(e820: &[Entry], kernel_end: u64, cpus: u32) -> Result<(), zonal_kernel::Error> {
//! use zonal::{Request, plan::Config};
//! use zonal_kernel::Global;
//!
//! static FRAMES: Global<Pc> = Global::new();
//!
//! let map = FRAMES.map(e820, &[0..kernel_end], [])?;
//! // SAFETY: `Pc::address` maps all memory, no other code uses what the map calls usable, and there is no
//! // other allocator.
//! unsafe { map.boot(Config::new(cpus))? };
//! let frame = FRAMES.alloc(&Request::frame().zero())?;
//! FRAMES.free(frame)?;
//! # Ok(())
//! # }
//! # let end = fake::memory(64 << 20);
//! # kernel(&[Entry::usable(0, end)], 1 << 20, 1).unwrap();
//! ```

mod booting;
mod sparse;

pub use booting::{Booting, TablePlace};
pub use sparse::{MOST_LEVELS, MapTable, MapTables, TableRange, TablesFrom, TablesNow};

use crate::boot_map::{self, Entry, NodeRange};
use crate::{CpuHome, Error, Kernel, Machine};
use core::cell::UnsafeCell;
use core::fmt;
use core::ops::Range;
use core::ptr;
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use core::sync::atomic::{AtomicBool, AtomicPtr};
use sparse::Sparse;
use zonal::error::{RefusedFree, RefusedRange};
use zonal::map::{PfnRange, PhysAddr, Region, SaneMap};
use zonal::plan::{Config, Draft};
use zonal::policy::Sound;
use zonal::preset::Zonal;
use zonal::{Allocator, Block, Bounds, Contiguous, CpuId, Onlined, Pfn, Request};

/// The allocator of a [`Global`].
pub type Frames<M, S> = Allocator<'static, Kernel<M>, S>;

/// An allocator for a static: see the [module](self). 21 KiB, all zero at first.
pub struct Global<M: Machine, S: Sound = Zonal> {
    /// Raised by who builds it; put down if that fails.
    taken: AtomicBool,
    /// Null, or a [`Frames`] that stays there for good and may be shared between CPUs.
    allocator: AtomicPtr<Frames<M, S>>,
    /// The map and the plan. Written by who raised `taken`, until the allocator is there; then read only.
    draft: UnsafeCell<Draft>,
    /// Of tables that come with the memory; as with `draft`.
    sparse: UnsafeCell<Option<Sparse>>,
}

// SAFETY: the first two are atomics. The others are data that any CPU may have and share; who raised `taken`, which one
// does at a time, reaches them alone (see `Booting`), until the release store of `allocator`. After that no one writes them.
unsafe impl<M: Machine, S: Sound> Sync for Global<M, S> {}

impl<M: Machine, S: Sound> Default for Global<M, S> {
    fn default() -> Self {
        Self::new()
    }
}

impl<M: Machine, S: Sound> Global<M, S> {
    /// Nothing yet: every request is refused with [`Error::NotBooted`].
    #[must_use]
    pub const fn new() -> Self {
        let allocator = AtomicPtr::new(ptr::null_mut());
        Self {
            taken: AtomicBool::new(false),
            allocator,
            draft: UnsafeCell::new(Draft::new()),
            sparse: UnsafeCell::new(None),
        }
    }

    /// Begins to build the allocator: a map of these entries, in bytes, as [`BootMap::new`] makes it, but in
    /// the static. [`Booting::boot`] goes on with it. Costs entries × nodes.
    ///
    /// [`BootMap::new`]: crate::boot_map::BootMap::new
    ///
    /// # Errors
    /// [`Error::Map`] as [`BootMap::new`], [`Error::AlreadyBooted`] if it is built, or another CPU is at it.
    pub fn map<N>(
        &'static self,
        entries: impl IntoIterator<Item: Entry>,
        in_use: &[Range<u64>],
        nodes: N,
    ) -> Result<Booting<M, S>, Error>
    where
        N: IntoIterator<Item = NodeRange, IntoIter: Clone>,
    {
        let mut booting = self.take()?;
        let regions = booting.draft().regions();
        regions.clear();
        boot_map::add_all(regions, entries, in_use, nodes)?;
        Ok(booting)
    }

    /// As [`map`](Self::map), of regions that name their nodes. Nothing is added to them.
    ///
    /// # Errors
    /// As [`map`](Self::map).
    pub fn map_of(
        &'static self,
        regions: impl IntoIterator<Item = Region>,
    ) -> Result<Booting<M, S>, Error> {
        let mut booting = self.take()?;
        let map = booting.draft().regions();
        map.clear();
        regions.into_iter().try_for_each(|region| map.add(region))?;
        Ok(booting)
    }

    /// Takes the room in the static.
    fn take(&'static self) -> Result<Booting<M, S>, Error> {
        // Acquire, with the release in `Booting`'s drop: who tries again comes after the one that failed.
        if self.taken.compare_exchange(false, true, Acquire, Relaxed).is_err() {
            return Err(Error::AlreadyBooted);
        }
        // SAFETY: `taken` was put down, and is raised by us.
        Ok(unsafe { Booting::new(self) })
    }

    /// Builds the allocator over the memory of a map that was made elsewhere: as [`Booting::boot`], whose
    /// map needs no stack. This one's is 6 KiB, and sanitising it took as much again.
    ///
    /// # Safety
    /// As [`Booting::boot`].
    ///
    /// # Errors
    /// As [`Booting::boot`].
    pub unsafe fn boot(&'static self, map: SaneMap, config: Config) -> Result<(), Error>
    where
        Frames<M, S>: Sync,
    {
        // SAFETY: the caller's promise.
        unsafe { self.boot_in(map, config, TablePlace::default()) }
    }

    /// As [`boot`](Self::boot), with a word on where the tables lie.
    ///
    /// # Safety
    /// As [`Booting::boot_in`].
    ///
    /// # Errors
    /// As [`Booting::boot`].
    pub unsafe fn boot_in(
        &'static self,
        map: SaneMap,
        config: Config,
        place: TablePlace,
    ) -> Result<(), Error>
    where
        Frames<M, S>: Sync,
    {
        let mut booting = self.take()?;
        booting.draft().set_map(map);
        // SAFETY: the caller's promise.
        unsafe { booting.build(&config, place) }
    }

    #[inline(always)]
    fn frames(&self) -> Result<&'static Frames<M, S>, Error> {
        // Acquire: pairs with the release in `Booting::build`, so what was built is seen.
        let allocator = self.allocator.load(Acquire);
        // SAFETY: null, or what `Booting::build` stored: an allocator that stays where it is, is not
        // changed or dropped any more, and may be shared (the bound there).
        unsafe { allocator.as_ref() }.ok_or(Error::NotBooted)
    }

    /// The allocator, with all that it can do.
    ///
    /// # Safety
    /// Through what is returned no frame is freed or zeroed ([`Host::zero`](zonal::Host::zero)) that is not
    /// the caller's to give up; and no memory is released or brought online but with the promises of
    /// [`release`](Self::release), and where there are tables for it from the start. Where they come with the
    /// memory, only [`release`](Self::release) and [`online`](Self::online) bring them.
    ///
    /// # Errors
    /// [`Error::NotBooted`].
    pub unsafe fn allocator(&self) -> Result<&'static Frames<M, S>, Error> {
        self.frames()
    }

    /// Allocates a block.
    ///
    /// # Errors
    /// [`Error::NotBooted`], or [`Error::Alloc`] as [`Allocator::alloc`].
    #[inline]
    pub fn alloc(&self, request: &Request) -> Result<Block, Error> {
        match self.frames().ok().and_then(|frames| frames.alloc_cached(request)) {
            Some(block) => Ok(block),
            None => self.alloc_slowly(request),
        }
    }

    /// What follows. Called last, so that the way to a cached frame saves no registers for it.
    #[cold]
    #[inline(never)]
    fn alloc_slowly(&self, request: &Request) -> Result<Block, Error> {
        Ok(self.frames()?.alloc_uncached(request)?)
    }

    /// Gives a CPU what it has of the allocator at hand: see [`CpuHome`]. Its node is asked now. A number that the
    /// allocator does not have wraps round.
    ///
    /// # Errors
    /// [`Error::NotBooted`]; [`Error::AlreadyBooted`] if that home is set.
    pub fn set_home(&self, cpu: CpuId, home: &CpuHome<M, S>) -> Result<(), Error> {
        let frames = self.frames()?;
        let caches = frames.home_caches(CpuId(cpu.0 % frames.cpus().max(1)));
        home.set(caches.ok_or(Error::NotBooted)?)
    }

    /// Frees a block.
    ///
    /// # Errors
    /// [`RefusedFree`] gives the block back: as [`Allocator::free`].
    #[inline]
    pub fn free(&self, block: Block) -> Result<(), RefusedFree> {
        let Ok(frames) = self.frames() else { return self.free_slowly(block) };
        match frames.free_cached(block) {
            Ok(()) => Ok(()),
            Err(block) => self.free_slowly(block),
        }
    }

    /// What follows, as with [`alloc_slowly`](Self::alloc_slowly).
    #[cold]
    #[inline(never)]
    fn free_slowly(&self, block: Block) -> Result<(), RefusedFree> {
        match self.frames() {
            Ok(frames) => frames.free_uncached(block),
            Err(_) => {
                let error = zonal::FreeError::Foreign { pfn: block.pfn() };
                Err(RefusedFree { block, error })
            }
        }
    }

    /// Allocates `frames` frames in a row: see [`Allocator::alloc_contiguous`].
    ///
    /// # Errors
    /// [`Error::NotBooted`], or [`Error::Contiguous`].
    pub fn alloc_contiguous(&self, frames: u64, request: &Request) -> Result<Contiguous, Error> {
        Ok(self.frames()?.alloc_contiguous(frames, request)?)
    }

    /// Frees them.
    ///
    /// # Errors
    /// [`RefusedRange`] gives the token back.
    pub fn free_contiguous(&self, token: Contiguous) -> Result<(), RefusedRange<Contiguous>> {
        match self.frames() {
            Ok(frames) => frames.free_contiguous(token),
            Err(_) => {
                let error = zonal::error::RangeError::Frame(zonal::FreeError::Foreign {
                    pfn: token.start(),
                });
                Err(RefusedRange { token, error })
            }
        }
    }

    /// Allocates `frames` frames in a row within `bounds`, by number: see [`Allocator::alloc_pages`].
    ///
    /// # Errors
    /// [`Error::NotBooted`], or [`Error::Contiguous`].
    #[inline]
    pub fn alloc_pages(
        &self,
        frames: u64,
        request: &Request,
        bounds: &Bounds,
    ) -> Result<Pfn, Error> {
        Ok(self.frames()?.alloc_pages(frames, request, bounds)?)
    }

    /// Allocates exactly these frames, if all are free: see [`Allocator::alloc_at`].
    ///
    /// # Errors
    /// [`Error::NotBooted`], or [`Error::Range`].
    pub fn alloc_at(&self, range: Range<Pfn>) -> Result<Contiguous, Error> {
        Ok(self.frames()?.alloc_at(range)?)
    }

    /// Frees any part of what [`alloc_pages`](Self::alloc_pages) gave: see [`Allocator::free_pages`].
    ///
    /// # Safety
    /// The frames are the caller's, if they are allocated, and in use no more.
    ///
    /// # Errors
    /// [`Error::NotBooted`], or [`Error::Range`]; then none was freed.
    #[inline]
    pub unsafe fn free_pages(&self, start: Pfn, frames: u64) -> Result<(), Error> {
        Ok(self.frames()?.free_pages(start, frames)?)
    }

    /// Makes frames the allocator's that the map called reserved or to be reclaimed later, or did not mention, in parts
    /// and as often as there are some: see [`Allocator::release`]. Returns how many. Reserved memory before a zone's first usable
    /// frame or behind its last has no place in the tables, and is refused as foreign: name such to
    /// [`reclaim_later`](Booting::reclaim_later).
    ///
    /// # Safety
    /// For these frames, the promises of [`boot`](Self::boot): they are memory that no code uses any more, and
    /// `M::address` is where it can be read and written.
    ///
    /// # Errors
    /// [`Error::NotBooted`], [`Error::Resize`], or [`Error::Alloc`]: no frames for the tables, if these come with the
    /// memory. Then no frame has come; tables from the zones may have.
    pub unsafe fn release(&self, range: Range<Pfn>) -> Result<u64, Error> {
        let frames = self.frames()?;
        let Some(sparse) = self.sparse() else { return Ok(frames.release(range)?) };
        let pfns = PfnRange::new(range.start, range.end);
        frames.release_with(range, || sparse.bring_from_zones(frames, pfns))
    }

    /// Makes memory usable that has come, with its tables if it has none yet: see [`Allocator::online`]. Of
    /// frames that tables are made of by [`TablesFrom::Memory`], [`Onlined`] does not speak; they lie at its
    /// start.
    ///
    /// Must be called where other CPUs can be reached ([`MapTables::tables_mapped`]). Costs a call of the kernel for
    /// each page of the tables.
    ///
    /// # Safety
    /// As [`release`](Self::release).
    ///
    /// # Errors
    /// [`Error::NotBooted`], [`Error::Resize`], or no frames for the tables: [`Error::Alloc`],
    /// [`Error::TablesFill`]. Then no frame has come; tables from the zones may have.
    pub unsafe fn online(&self, range: Range<Pfn>, tables: TablesFrom) -> Result<Onlined, Error> {
        let frames = self.frames()?;
        let Some(sparse) = self.sparse() else { return Ok(frames.online(range)?) };
        let (plan, pfns) = (frames.plan(), PfnRange::new(range.start, range.end));
        frames.online_with(range, || match tables {
            TablesFrom::Zones => sparse.bring_from_zones(frames, pfns).map(|()| 0),
            // SAFETY: memory that has come and that nothing uses: the caller's promise. As many frames as that
            // took are withheld.
            TablesFrom::Memory => unsafe { sparse.bring_from_own::<M, S>(plan, pfns) },
        })
    }

    /// What the tables that come with the memory have by now: their bytes, and how many of their frames, with
    /// the kernel's for mapping them, came from the zones. `None` for tables that are there from the start.
    #[must_use]
    pub fn tables(&self) -> Option<TablesNow> {
        let sparse = self.frames().ok().and_then(|_| self.sparse())?;
        Some(TablesNow { bytes: sparse.bytes(), frames_from_zones: sparse.taken() })
    }

    /// Only where the allocator is there.
    fn sparse(&self) -> Option<&Sparse> {
        // SAFETY: the allocator is there, so it is not written any more.
        unsafe { &*self.sparse.get() }.as_ref()
    }

    /// Gives what all CPUs cache back to the zones; returns the frames. 0 before it is built.
    pub fn drain_all(&self) -> u64 {
        self.frames().map_or(0, Allocator::drain_all)
    }

    /// Where the frames of a block can be read and written, for [`Order::bytes`](zonal::Order::bytes) of its order.
    #[must_use]
    pub fn address(&self, block: &Block) -> *mut u8 {
        M::address(PhysAddr(block.pfn().address()))
    }
}

impl<M: Machine, S: Sound> fmt::Debug for Global<M, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Global").field("booted", &self.frames().is_ok()).finish_non_exhaustive()
    }
}
