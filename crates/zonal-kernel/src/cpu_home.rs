//! What a CPU has of the allocator at hand: for the structure that a kernel keeps for each CPU.
//!
//! [`Global::alloc`](crate::Global::alloc) asks for the CPU's number each time, and finds its node and its caches by it. A kernel whose
//! processors have a pointer to their own structure in a register (x86-64's `gs`, aarch64's `tpidr_el1`, riscv64's
//! `tp`) puts a [`CpuHome`] there, sets it when the CPU starts, and allocates by it.
//!
//! ```
//! # mod fake { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fake/mod.rs")); }
//! # use fake::Fake as Pc;
//! use zonal::{CpuId, Request, plan::Config};
//! use zonal_kernel::{CpuHome, Error, Global, boot_map::e820::Entry};
//!
//! static FRAMES: Global<Pc> = Global::new();
//! /// Of the only CPU.
//! static HOME: CpuHome<Pc> = CpuHome::new();
//!
//! # fn kernel(e820: &[Entry]) -> Result<(), Error> {
//! assert_eq!(HOME.alloc(&Request::frame()), Err(Error::NotBooted));
//! let map = FRAMES.map(e820, &[], [])?;
//! // SAFETY: `Pc::address` maps all memory, no other code uses what the map calls usable, and there is no
//! // other allocator.
//! unsafe { map.boot(Config::new(1))? };
//! FRAMES.set_home(CpuId(0), &HOME)?;
//! let frame = HOME.alloc(&Request::frame())?;
//! FRAMES.free(frame)?;
//! # Ok(())
//! # }
//! # kernel(&[Entry::usable(0, fake::memory(64 << 20))]).unwrap();
//! ```

use crate::{Error, Kernel, Machine};
use core::cell::UnsafeCell;
use core::fmt;
use core::mem::MaybeUninit;
use core::sync::atomic::AtomicU8;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use zonal::policy::Sound;
use zonal::preset::Zonal;
use zonal::{Block, HomeCaches, Request};

type Caches<M, S> = HomeCaches<'static, 'static, Kernel<M>, S>;

/// The caches of one CPU's home zones, empty at first: see the [module](self). 80 bytes.
///
/// Any CPU may allocate by it. One that is not its own costs time, nothing else, so a task may be moved at any moment.
pub struct CpuHome<M: Machine, S: Sound = Zonal> {
    /// [`EMPTY`]; [`TAKEN`] by who sets it; [`SET`] for good.
    state: AtomicU8,
    /// Written once by who changed the state to [`TAKEN`]; there once it is [`SET`], and read only.
    caches: UnsafeCell<MaybeUninit<Caches<M, S>>>,
}

const EMPTY: u8 = 0;
const TAKEN: u8 = 1;
const SET: u8 = 2;

// SAFETY: `caches` is written by one CPU before the release store of `SET`, and only read, and shared, after a load of it
// (acquire). What it holds is references to an allocator and its caches, which is shared between CPUs only if that may be
// (the bound); it needs no drop.
unsafe impl<M: Machine, S: Sound> Sync for CpuHome<M, S> where Caches<M, S>: Sync {}

impl<M: Machine, S: Sound> Default for CpuHome<M, S> {
    fn default() -> Self {
        Self::new()
    }
}

impl<M: Machine, S: Sound> CpuHome<M, S> {
    /// Nothing yet: every request is refused with [`Error::NotBooted`].
    #[must_use]
    pub const fn new() -> Self {
        Self { state: AtomicU8::new(EMPTY), caches: UnsafeCell::new(MaybeUninit::uninit()) }
    }

    /// Sets it, once.
    pub(crate) fn set(&self, caches: Caches<M, S>) -> Result<(), Error> {
        // Relaxed: nothing was written before. Of several one gets on.
        self.state
            .compare_exchange(EMPTY, TAKEN, Relaxed, Relaxed)
            .map_err(|_| Error::AlreadyBooted)?;
        // SAFETY: we alone have changed the state to `TAKEN`, and none reads before it is `SET`.
        let place = unsafe { &mut *self.caches.get() };
        place.write(caches);
        // Release: pairs with the acquire in `caches`.
        self.state.store(SET, Release);
        Ok(())
    }

    #[inline(always)]
    fn caches(&self) -> Option<&Caches<M, S>> {
        if self.state.load(Acquire) != SET {
            return None;
        }
        // SAFETY: it is set, so nothing writes it any more.
        let place = unsafe { &*self.caches.get() };
        // SAFETY: it was written before it was set.
        Some(unsafe { place.assume_init_ref() })
    }

    /// Allocates a block, as [`Global::alloc`](crate::Global::alloc).
    ///
    /// # Errors
    /// [`Error::NotBooted`] before it is set, or [`Error::Alloc`].
    #[inline]
    pub fn alloc(&self, request: &Request) -> Result<Block, Error> {
        match self.caches().and_then(|caches| caches.alloc_cached(request)) {
            Some(block) => Ok(block),
            None => self.alloc_slowly(request),
        }
    }

    /// What follows. Called last, so that the way to a cached frame saves no registers for it.
    #[cold]
    #[inline(never)]
    fn alloc_slowly(&self, request: &Request) -> Result<Block, Error> {
        let caches = self.caches().ok_or(Error::NotBooted)?;
        Ok(caches.allocator().alloc_uncached(request)?)
    }
}

impl<M: Machine, S: Sound> fmt::Debug for CpuHome<M, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let set = self.state.load(Relaxed) == SET;
        f.debug_struct("CpuHome").field("set", &set).finish_non_exhaustive()
    }
}
