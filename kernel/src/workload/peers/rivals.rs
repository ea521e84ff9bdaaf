//! The rivals: all presets, and two allocators of other projects behind the kernel's spin lock; each with as many frames.

use super::counted::Counted;
use crate::machine::{FRAMES, cpu};
use crate::memory::kept;
use bitmap_allocator::{BitAlloc, BitAlloc1M};
use buddy_system_allocator::{FrameAllocator, LockedHeap};
use core::hint::black_box;
use zonal::map::{PhysAddr, Region};
use zonal::plan::Config;
use zonal::platform::Lock;
use zonal::policy::{FreeMemory, Sound};
use zonal::{Bounds, CpuId, MigrateType, Order, Pfn, Request, ZoneId};
use zonal_kernel::global::Frames;
use zonal_kernel::irq_lock::IrqLock;
use zonal_kernel::{CpuHome, Error, Global};

/// What each manages.
pub(super) const MANAGED: u64 = 32_768;

/// An allocator of frames.
///
/// # Safety
/// A frame that it gives is memory that it was given when it was made, and is not given again until it is freed.
pub(super) unsafe trait Rival {
    /// How often a request that may not wait enters slots, or takes locks, at most: if that does not grow with the processors.
    const MOST: Option<u64> = None;

    fn alloc(&self) -> Option<Pfn>;

    /// A frame for a page fault of processor 0.
    fn for_fault(&self) -> Option<Pfn> {
        self.alloc()
    }

    /// A frame for a handler of interrupts.
    fn urgent(&self) -> Option<Pfn> {
        self.alloc()
    }

    /// # Safety
    /// It was given, and is in use no more.
    unsafe fn free(&self, frame: Pfn);

    /// # Safety
    /// As [`free`](Self::free), each of them.
    unsafe fn free_list(&self, frames: &[Pfn]);

    /// How often its locks were taken so far; `None`: as often as interrupts were masked.
    fn holds(&self) -> Option<u64> {
        None
    }
}

/// A preset.
pub(super) struct Own<S: Sound> {
    global: Global<Counted, S>,
    /// Of processor 0.
    home: CpuHome<Counted, S>,
}

/// A page of a program.
const PAGE: Request = Request::frame().migrate(MigrateType::Movable);

impl<S: Sound> Own<S> {
    const fn new() -> Self {
        Self { global: Global::new(), home: CpuHome::new() }
    }

    /// # Safety
    /// As [`Global::allocator`].
    #[inline(always)]
    unsafe fn frames(&self) -> &'static Frames<Counted, S> {
        // SAFETY: the caller's promise.
        match unsafe { self.global.allocator() } {
            Ok(frames) => frames,
            Err(error) => panic!("{error}"),
        }
    }

    fn boot(&'static self) -> Result<(), Error>
    where
        Frames<Counted, S>: Sync,
    {
        let region = Region::usable(PhysAddr(managed()?.address()), MANAGED << 12);
        let map = self.global.map_of([region])?;
        // SAFETY: allocated a moment ago and kept for good, so no other code uses it; it is mapped as all memory is. It is
        // given numbers of frames only, no token of another allocator.
        unsafe { map.boot(Config::new(cpu::count()))? };
        self.global.set_home(CpuId(0), &self.home)
    }
}

// SAFETY: the allocator's own promise; the memory that it was made over is its own.
unsafe impl<S: Sound> Rival for Own<S> {
    /// Nine as in `crates/zonal-tables/tests/refused.rs`: the own slot at each step of the walk, and four others. And one
    /// more: here the own one is left and entered again where a search is long.
    const MOST: Option<u64> = if S::Free::LOCKED { None } else { Some(10) };

    #[inline(always)]
    fn alloc(&self) -> Option<Pfn> {
        Some(self.global.alloc(black_box(&PAGE)).ok()?.into_raw().0)
    }

    #[inline(always)]
    fn for_fault(&self) -> Option<Pfn> {
        Some(self.home.alloc(black_box(&PAGE)).ok()?.into_raw().0)
    }

    fn urgent(&self) -> Option<Pfn> {
        Some(self.global.alloc(black_box(&PAGE.atomic())).ok()?.into_raw().0)
    }

    #[inline(always)]
    unsafe fn free(&self, frame: Pfn) {
        // SAFETY: freed is what the caller gives up.
        let freed = unsafe { self.frames() }.free_raw(frame, Order::ZERO);
        assert!(freed.is_ok(), "a frame is refused: {freed:?}");
    }

    #[inline(always)]
    unsafe fn free_list(&self, frames: &[Pfn]) {
        // SAFETY: as above.
        let freed = unsafe { self.frames() }.free_bulk(frames);
        assert!(freed.refused == 0, "a frame of a list is refused: {freed:?}");
    }

    fn holds(&self) -> Option<u64> {
        // SAFETY: nothing is freed through it.
        let frames = unsafe { self.frames() };
        let zones =
            (0..frames.zone_count()).filter_map(|zone| frames.zone_info(ZoneId(zone as u8)));
        Some(zones.map(|zone| zone.events.holds.iter().sum::<u64>()).sum())
    }
}

/// `buddy_system_allocator`'s, behind the kernel's spin lock.
pub(super) struct BuddySystem(IrqLock<Option<FrameAllocator<33>>, Counted>);

// SAFETY: its own promise; it was given memory that was allocated for it.
unsafe impl Rival for BuddySystem {
    #[inline(always)]
    fn alloc(&self) -> Option<Pfn> {
        Some(Pfn::new(self.0.with(|frames| frames.as_mut()?.alloc(1))? as u64))
    }

    #[inline(always)]
    unsafe fn free(&self, frame: Pfn) {
        // SAFETY: the caller's promise.
        unsafe { self.free_list(&[frame]) };
    }

    #[inline(always)]
    unsafe fn free_list(&self, frames: &[Pfn]) {
        self.0.with(|own| {
            let Some(own) = own else { panic!("it has no frames") };
            frames.iter().for_each(|frame| own.dealloc(frame.get() as usize, 1));
        });
    }
}

/// `bitmap-allocator`'s, behind the same.
pub(super) struct Bitmap(IrqLock<BitAlloc1M, Counted>);

// SAFETY: as above.
unsafe impl Rival for Bitmap {
    #[inline(always)]
    fn alloc(&self) -> Option<Pfn> {
        Some(Pfn::new(self.0.with(BitAlloc::alloc)? as u64))
    }

    #[inline(always)]
    unsafe fn free(&self, frame: Pfn) {
        // SAFETY: the caller's promise.
        unsafe { self.free_list(&[frame]) };
    }

    #[inline(always)]
    unsafe fn free_list(&self, frames: &[Pfn]) {
        self.0.with(|bits| {
            let freed = frames.iter().all(|frame| bits.dealloc(frame.get() as usize));
            assert!(freed, "a frame is refused");
        });
    }
}

static BUDDY_SYSTEM: BuddySystem = BuddySystem(IrqLock::new(None));
static BITMAP: Bitmap = Bitmap(IrqLock::new(BitAlloc1M::DEFAULT));

/// `buddy_system_allocator` keeps what is free in ordered sets, on a heap.
#[global_allocator]
static HEAP: LockedHeap<24> = LockedHeap::empty();
const HEAP_ORDER: u8 = 8;

/// What is done with each rival.
pub(super) trait Visitor {
    fn visit<R: Rival>(&mut self, name: &str, rival: &R);
}

macro_rules! presets {
    ($($preset:ident)*) => {
        #[expect(non_upper_case_globals, reason = "they are called as the presets are")]
        mod own {
            $(pub(super) static $preset: super::Own<zonal::preset::$preset> = super::Own::new();)*
        }

        /// Gives each its frames.
        pub(super) fn boot() -> Result<(), Error> {
            $(own::$preset.boot()?;)*
            boot_peers()
        }

        /// Goes through all of them.
        pub(super) fn visit(visitor: &mut impl Visitor) {
            $(visitor.visit(stringify!($preset), &own::$preset);)*
            visitor.visit("buddy_system_allocator", &BUDDY_SYSTEM);
            visitor.visit("bitmap-allocator", &BITMAP);
        }
    };
}

presets! {
    Zonal Linux316 FairZone FairZonePosted LessDirty Linux413 Linux416 Linux63 SkipMerge Cluster ClusterFree SplitZones
    SplitZonesByCpu
}

/// As many frames as each has, kept for good.
fn managed() -> Result<Pfn, Error> {
    let bounds = Bounds::ANY.aligned(Order::MAX.frames());
    let start = FRAMES.alloc_pages(MANAGED, &Request::frame(), &bounds)?;
    kept::keep_frames(MANAGED);
    Ok(start)
}

fn boot_peers() -> Result<(), Error> {
    let order = Order::new(HEAP_ORDER).unwrap_or(Order::ZERO);
    let heap = FRAMES.alloc(&Request::new(order))?;
    let start = FRAMES.address(&heap);
    kept::keep(heap);
    // SAFETY: a block that was allocated a moment ago, and is kept for good.
    unsafe { HEAP.lock().init(start.expose_provenance(), order.bytes()) };
    let numbers = || managed().map(|start| start.get() as usize..(start.get() + MANAGED) as usize);
    let own = numbers()?;
    BUDDY_SYSTEM.0.with(|frames| frames.get_or_insert_with(FrameAllocator::new).insert(own));
    let own = numbers()?;
    BITMAP.0.with(|bits| bits.insert(own));
    Ok(())
}
