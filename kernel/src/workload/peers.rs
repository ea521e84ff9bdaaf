//! All presets and two allocators of other projects, one after the other, each with as many frames: how many ticks of the clock
//! all processors take together for a frame allocated and freed, how often they mask interrupts for it, and how often
//! they look again at a lock that another has.
//!
//! Where the emulator counts instructions, ticks are these; its processors then take long turns, and seldom meet. Where each
//! processor is a thread, they meet, and ticks mean nothing.

use crate::machine::{FRAMES, Pc, cpu, team};
use crate::memory::kept;
use crate::say;
use bitmap_allocator::{BitAlloc, BitAlloc1M};
use buddy_system_allocator::{FrameAllocator, LockedHeap};
use core::hint::black_box;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;
use zonal::map::{PhysAddr, Region};
use zonal::plan::Config;
use zonal::platform::Lock;
use zonal::policy::Sound;
use zonal::{Bounds, CpuId, MigrateType, NodeId, Order, Pfn, Request};
use zonal_kernel::irq_lock::IrqLock;
use zonal_kernel::{Error, Global, Machine};

/// What a rival manages.
const MANAGED: u64 = 32_768;
/// Frames that all processors have at once, and how often.
const AT_ONCE: usize = 2048;
const TURNS: u64 = 64;

/// The machine, which counts how often interrupts are masked, and a lock is waited for.
struct Counted;

impl Machine for Counted {
    #[inline(always)]
    fn cpu() -> CpuId {
        cpu::number()
    }
    #[inline(always)]
    fn node(_: CpuId) -> NodeId {
        NodeId(0)
    }
    #[inline(always)]
    fn interrupts_off() -> bool {
        let count = &cpu::own().masked;
        count.store(count.load(Relaxed) + 1, Relaxed);
        Pc::interrupts_off()
    }
    #[inline(always)]
    fn interrupts_restore(were_on: bool) {
        Pc::interrupts_restore(were_on);
    }
    fn relax() {
        let count = &cpu::own().spun;
        count.store(count.load(Relaxed) + 1, Relaxed);
        Pc::relax();
    }
    fn address(frame: PhysAddr) -> *mut u8 {
        Pc::address(frame)
    }
}

/// An allocator of frames, by their numbers.
trait Rival {
    fn alloc(&self) -> Option<u64>;
    fn free(&self, frame: u64);
}

impl<S: Sound> Rival for Global<Counted, S> {
    #[inline(always)]
    fn alloc(&self) -> Option<u64> {
        let request = Request::frame().migrate(MigrateType::Movable);
        Some(self.alloc(black_box(&request)).ok()?.into_raw().0.get())
    }
    #[inline(always)]
    fn free(&self, frame: u64) {
        // SAFETY: what is freed through it was allocated by `alloc`, and is not used.
        let frames = unsafe { self.allocator() };
        let freed = frames.map(|frames| frames.free_raw(Pfn::new(frame), Order::ZERO));
        assert!(matches!(freed, Ok(Ok(()))), "a frame is refused: {freed:?}");
    }
}

/// `buddy_system_allocator`'s, behind the kernel's spin lock.
struct BuddySystem(IrqLock<Option<FrameAllocator<33>>, Counted>);

impl Rival for BuddySystem {
    #[inline(always)]
    fn alloc(&self) -> Option<u64> {
        Some(self.0.with(|frames| frames.as_mut()?.alloc(1))? as u64)
    }
    #[inline(always)]
    fn free(&self, frame: u64) {
        self.0.with(|frames| frames.iter_mut().for_each(|own| own.dealloc(frame as usize, 1)));
    }
}

/// `bitmap-allocator`'s, behind the same.
struct Bitmap(IrqLock<BitAlloc1M, Counted>);

impl Rival for Bitmap {
    #[inline(always)]
    fn alloc(&self) -> Option<u64> {
        Some(self.0.with(BitAlloc::alloc)? as u64)
    }
    #[inline(always)]
    fn free(&self, frame: u64) {
        assert!(self.0.with(|bits| bits.dealloc(frame as usize)), "a frame is refused");
    }
}

static BUDDY_SYSTEM: BuddySystem = BuddySystem(IrqLock::new(None));
static BITMAP: Bitmap = Bitmap(IrqLock::new(BitAlloc1M::DEFAULT));

/// `buddy_system_allocator` keeps what is free in ordered sets, on a heap.
#[global_allocator]
static HEAP: LockedHeap<24> = LockedHeap::empty();
const HEAP_ORDER: u8 = 8;

macro_rules! presets {
    ($($preset:ident)*) => {
        #[expect(non_upper_case_globals, reason = "they are called as the presets are")]
        mod own {
            $(pub(super) static $preset: super::Global<super::Counted, zonal::preset::$preset> =
                super::Global::new();)*
        }

        /// Gives each its frames.
        fn boot() -> Result<(), Error> {
            $(boot_one(&own::$preset)?;)*
            boot_peers()
        }

        /// Runs all of them.
        fn run_all(number: u32) {
            $(run(number, stringify!($preset), &own::$preset);)*
            run(number, "buddy_system_allocator", &BUDDY_SYSTEM);
            run(number, "bitmap-allocator", &BITMAP);
        }
    };
}

presets! {
    Zonal Linux316 FairZone FairZonePosted LessDirty Linux413 Linux416 Linux63 SkipMerge Cluster ClusterFree SplitZones
    SplitZonesByCpu
}

fn boot_one<S: Sound>(global: &'static Global<Counted, S>) -> Result<(), Error>
where
    zonal_kernel::global::Frames<Counted, S>: Sync,
{
    let bounds = Bounds::ANY.aligned(Order::MAX.frames());
    let start = FRAMES.alloc_pages(MANAGED, &Request::frame(), &bounds)?;
    kept::keep_frames(MANAGED);
    let region = Region::usable(PhysAddr(start.address()), MANAGED << 12);
    let map = global.map_of([region])?;
    // SAFETY: allocated a moment ago and kept for good, so no other code uses it; it is mapped as all memory is.
    unsafe { map.boot(Config::new(cpu::count())) }
}

fn boot_peers() -> Result<(), Error> {
    let order = Order::new(HEAP_ORDER).unwrap_or(Order::ZERO);
    let heap = FRAMES.alloc(&Request::new(order))?;
    let start = FRAMES.address(&heap);
    kept::keep(heap);
    // SAFETY: a block that was allocated a moment ago, and is kept for good.
    unsafe { HEAP.lock().init(start.expose_provenance(), order.bytes()) };
    BUDDY_SYSTEM.0.with(|frames| {
        frames.get_or_insert_with(FrameAllocator::new).insert(0..MANAGED as usize);
    });
    BITMAP.0.with(|bits| bits.insert(0..MANAGED as usize));
    Ok(())
}

/// How many rivals were run, and of how many all was right.
static RAN: AtomicU64 = AtomicU64::new(0);
static FAILED: AtomicU64 = AtomicU64::new(0);
/// Frames that were not there.
static MISSED: AtomicU64 = AtomicU64::new(0);

pub(crate) fn task(number: u32) {
    if number == 0
        && let Err(error) = boot()
    {
        say!("{error}");
        FAILED.fetch_add(1, Relaxed);
    }
    team::meet();
    if FAILED.load(Relaxed) == 0 {
        run_all(number);
    }
}

fn clock() -> u64 {
    // SAFETY: it reads the processor's clock.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// How often all processors have masked interrupts, and looked at a lock again.
fn counts() -> [u64; 2] {
    let all = || (0..cpu::count()).map(cpu::at);
    [all().map(|cpu| cpu.masked.load(Relaxed)).sum(), all().map(|cpu| cpu.spun.load(Relaxed)).sum()]
}

fn run<R: Rival>(number: u32, name: &str, rival: &R) {
    let count = cpu::count();
    turns(rival, AT_ONCE / count as usize, 1);
    team::meet();
    let (start, before) = (clock(), counts());
    team::meet();
    turns(rival, AT_ONCE / count as usize, TURNS);
    team::meet();
    if number == 0 {
        let (ticks, [masks, spins]) = (clock() - start, counts());
        let pairs = AT_ONCE as u64 * TURNS;
        let hundredths = |count: u64| (count / pairs, count * 100 / pairs % 100);
        let (masks, spins) = (hundredths(masks - before[0]), hundredths(spins - before[1]));
        say!(
            "{name:>24}: {:>5}.{} ticks, interrupts masked {}.{:02} times, {}.{:02} spins",
            ticks / pairs,
            ticks * 10 / pairs % 10,
            masks.0,
            masks.1,
            spins.0,
            spins.1
        );
        FAILED.fetch_add(u64::from(MISSED.swap(0, Relaxed) != 0), Relaxed);
        RAN.fetch_add(1, Relaxed);
    }
    team::meet();
}

/// Allocates some, then frees them, so often.
// Not in its callers: it has room for what is held.
#[inline(never)]
fn turns<R: Rival>(rival: &R, frames: usize, turns: u64) {
    let mut held = [0; AT_ONCE];
    for _ in 0..turns {
        let held = &mut held[..frames];
        for place in &mut *held {
            match rival.alloc() {
                Some(frame) => *place = frame,
                None => _ = MISSED.fetch_add(1, Relaxed),
            }
        }
        if MISSED.load(Relaxed) == 0 {
            held.iter().for_each(|&frame| rival.free(frame));
        }
    }
}

/// All of them ran, with a frame for each request.
pub(crate) fn all_ran() -> Result<(), &'static str> {
    let (ran, failed) = (RAN.load(Relaxed), FAILED.load(Relaxed));
    if ran == 0 || failed != 0 { Err("a rival had no frame, or did not boot") } else { Ok(()) }
}
