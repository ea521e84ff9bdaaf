//! The allocator as a static: empty at first, built once from the boot map, used from everywhere.
//!
//! ```
//! # mod fake { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fake/mod.rs")); }
//! # use fake::Fake as Pc;
//! # use zonal_kernel::boot_map::e820::Entry;
//! # fn kernel(e820: &[Entry], kernel_end: u64, cpus: u32) -> Result<(), zonal_kernel::Error> {
//! use zonal::{Request, plan::Config};
//! use zonal_kernel::{Global, boot_map::BootMap};
//!
//! static FRAMES: Global<Pc> = Global::new();
//!
//! let map = BootMap::new(e820, &[0..kernel_end], [])?.sanitise()?;
//! // SAFETY: `Pc::address` maps all memory, and no other code uses what the map calls usable.
//! unsafe { FRAMES.boot(map, Config::new(cpus))? };
//! let frame = FRAMES.alloc(&Request::frame().zero())?;
//! FRAMES.free(frame)?;
//! # Ok(())
//! # }
//! # let end = fake::memory(64 << 20);
//! # kernel(&[Entry::usable(0, end)], 1 << 20, 1).unwrap();
//! ```

use crate::{Error, Kernel, Machine};
use core::fmt;
use core::mem::MaybeUninit;
use core::ops::Range;
use core::ptr;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicPtr};
use zonal::error::{RefusedFree, RefusedRange};
use zonal::map::{PfnRange, PhysAddr, SaneMap};
use zonal::plan::{Config, Plan};
use zonal::policy::{Sound, Split};
use zonal::preset::Zonal;
use zonal::units::FRAME_SIZE;
use zonal::{Allocator, Block, Bounds, Contiguous, NodeId, Order, Pfn, Request};

/// The allocator of a [`Global`].
pub type Frames<M, S> = Allocator<'static, Kernel<M>, S>;

/// Where the allocator's tables are to lie. The default: at the top of the memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TablePlace {
    /// On this node.
    pub node: Option<NodeId>,
    /// Below this frame: for a kernel that has mapped a part of its memory when it boots.
    pub below: Option<Pfn>,
}

/// An allocator for a static: see the [module](self).
pub struct Global<M: Machine, S: Sound = Zonal> {
    /// Raised by who builds it; put down if that fails.
    taken: AtomicBool,
    /// Null, or a [`Frames`] that stays there for good and may be shared between CPUs.
    allocator: AtomicPtr<Frames<M, S>>,
}

/// What lies at the start of the piece of memory, before the tables.
#[repr(C)]
struct Head<M: Machine, S: Sound> {
    allocator: MaybeUninit<Frames<M, S>>,
    plan: MaybeUninit<Plan>,
}

impl<M: Machine, S: Sound> Default for Global<M, S> {
    fn default() -> Self {
        Self::new()
    }
}

impl<M: Machine, S: Sound> Global<M, S> {
    /// Nothing yet: every request is refused with [`Error::NotBooted`].
    #[must_use]
    pub const fn new() -> Self {
        Self { taken: AtomicBool::new(false), allocator: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Builds the allocator over the memory of `map`, with its tables at the top of it. Other CPUs
    /// may be running; those that ask before it is done get [`Error::NotBooted`].
    /// O(pageblocks + ranges + caches), and 1.2 bytes a frame are written. Planning takes up to 96 KiB of
    /// stack.
    ///
    /// # Safety
    /// Of all memory that the map does not call reserved, from now on (memory that is
    /// [`Offline`](zonal::map::RangeKind::Offline) from when it comes,
    /// [`ReclaimLater`](zonal::map::RangeKind::ReclaimLater) from when it is released):
    ///
    /// - it is memory, and no code uses it but through this allocator;
    /// - for a frame of it, `M::address` is where it can be read and written, on every CPU, and the
    ///   frames of a range of the map follow each other there as they do in physical memory.
    ///
    /// # Errors
    /// [`Error`]: built already, a map or a configuration that does not work, no room for the tables. Then
    /// nothing was written, and it can be tried again.
    pub unsafe fn boot(&self, map: SaneMap, config: Config) -> Result<(), Error>
    where
        Frames<M, S>: Sync,
    {
        // SAFETY: the caller's promise.
        unsafe { self.boot_in(map, config, TablePlace::default()) }
    }

    /// As [`boot`](Self::boot), with a word on where the tables lie.
    ///
    /// # Safety
    /// As [`boot`](Self::boot); if the tables are to be below a frame, the second promise is for
    /// the memory below it at first, and for all other memory from when the first request is made.
    ///
    /// # Errors
    /// As [`boot`](Self::boot).
    pub unsafe fn boot_in(
        &self,
        mut map: SaneMap,
        config: Config,
        place: TablePlace,
    ) -> Result<(), Error>
    where
        Frames<M, S>: Sync,
    {
        // Acquire, with the release below: who tries again comes after the one that failed.
        if self.taken.compare_exchange(false, true, Acquire, Relaxed).is_err() {
            return Err(Error::AlreadyBooted);
        }
        let built = carve::<M, S>(&mut map, config, place).and_then(|piece| {
            // SAFETY: the piece was just carved from the map, whose memory is ours to use and mapped: the
            // caller's promise.
            unsafe { build(map, config, piece) }
        });
        match built {
            Ok(allocator) => {
                // Release: pairs with the acquire in `frames`.
                self.allocator.store(allocator, Release);
                Ok(())
            }
            Err(error) => {
                self.taken.store(false, Release);
                Err(error)
            }
        }
    }

    #[inline(always)]
    fn frames(&self) -> Result<&'static Frames<M, S>, Error> {
        // Acquire: pairs with the release in `boot_in`, so what was built is seen.
        let allocator = self.allocator.load(Acquire);
        // SAFETY: null, or what `boot_in` stored: an allocator that stays where it is, is not
        // changed or dropped any more, and may be shared (the bound there).
        unsafe { allocator.as_ref() }.ok_or(Error::NotBooted)
    }

    /// The allocator, with all that it can do.
    ///
    /// # Safety
    /// Through what is returned no frame is freed or zeroed ([`Host::zero`](zonal::Host::zero)) that is not
    /// the caller's to give up.
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
        Ok(self.frames()?.alloc(request)?)
    }

    /// Frees a block.
    ///
    /// # Errors
    /// [`RefusedFree`] gives the block back: as [`Allocator::free`].
    #[inline]
    pub fn free(&self, block: Block) -> Result<(), RefusedFree> {
        match self.frames() {
            Ok(frames) => frames.free(block),
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
                let error = zonal::error::RangeError::Foreign { pfn: token.start() };
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
    /// and as often as there are some: see [`Allocator::release`]. Returns how many.
    ///
    /// # Safety
    /// For these frames, the promises of [`boot`](Self::boot): they are memory that no code uses any more, and
    /// `M::address` is where it can be read and written.
    ///
    /// # Errors
    /// [`Error::NotBooted`], or [`Error::Resize`].
    pub unsafe fn release(&self, range: Range<Pfn>) -> Result<u64, Error> {
        Ok(self.frames()?.release(range)?)
    }

    /// Gives what all CPUs cache back to the zones; returns the frames. 0 before it is built.
    pub fn drain_all(&self) -> u64 {
        self.frames().map_or(0, Allocator::drain_all)
    }

    /// Where the frames of a block can be read and written, for [`Order::bytes`] of its order.
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

/// Bytes of the head and the tables. In a function of its own: what planning takes of the stack is given
/// back before planning is done again, with the piece reserved.
#[inline(never)]
fn bytes_for<M: Machine, S: Sound>(map: &SaneMap, config: Config) -> Result<u64, Error> {
    let plan = Plan::new(map.clone(), config, <S::Split as Split>::instances)?;
    Ok(size_of::<Head<M, S>>() as u64 + zonal_tables::piece_bytes::<Kernel<M>, S>(&plan))
}

/// Takes the piece for the head and the tables out of the map.
fn carve<M: Machine, S: Sound>(
    map: &mut SaneMap,
    config: Config,
    place: TablePlace,
) -> Result<PfnRange, Error> {
    let bytes = bytes_for::<M, S>(map, config)?;
    Ok(map.carve(bytes, Order::ZERO, place.node, place.below)?)
}

/// Plans, and builds the allocator with its plan and tables in `piece`.
///
/// # Safety
/// The frames of `piece` are memory that no other code uses, now and later; they follow each other from
/// `M::address` of the first on, and are as many as [`carve`] takes. And for all memory of the map the
/// promise of [`Global::boot`].
#[inline(never)]
unsafe fn build<M: Machine, S: Sound>(
    map: SaneMap,
    config: Config,
    piece: PfnRange,
) -> Result<*mut Frames<M, S>, Error> {
    let bytes = piece.frames() as usize * FRAME_SIZE;
    let start = M::address(PhysAddr(piece.start.address()));
    if start.is_null() || !start.cast::<Head<M, S>>().is_aligned() {
        return Err(Error::BadAddress { frame: piece.start });
    }
    let plan = Plan::new(map, config, <S::Split as Split>::instances)?;
    let head = start.cast::<MaybeUninit<Head<M, S>>>();
    // SAFETY: at the start of the piece, which is ours alone for good, is aligned (seen above) and has
    // the bytes of a head and more; `MaybeUninit` needs no initialisation.
    let head: &'static mut MaybeUninit<Head<M, S>> = unsafe { &mut *head };
    // SAFETY: its fields are `MaybeUninit` as well, so any bytes are a head.
    let head = unsafe { head.assume_init_mut() };
    let plan: &'static Plan = head.plan.write(plan);
    let size = size_of::<Head<M, S>>();
    // SAFETY: inside the piece: it has room for the head, and for the tables after it.
    let rest = unsafe { start.add(size) }.cast::<MaybeUninit<u8>>();
    // SAFETY: the rest of the piece, behind the head, is ours alone for good; bytes have no alignment,
    // and `MaybeUninit` needs no initialisation.
    let rest: &'static mut [MaybeUninit<u8>] =
        unsafe { core::slice::from_raw_parts_mut(rest, bytes - size) };
    let tables = zonal_tables::in_piece(plan, rest)?;
    // SAFETY: the allocator manages memory of the map, for which the caller promises it.
    let kernel = unsafe { Kernel::new() };
    Ok(head.allocator.write(Allocator::new(kernel, plan, tables)?))
}
