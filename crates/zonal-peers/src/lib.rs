//! Frame allocators and heaps of other projects that manage memory they are given.
//!
//! Each is set up the way its documentation shows. Those that are not safe for several threads
//! are put behind a spin lock, as their users do; [`Profile::note`] says so in every table.
//!
//! ```
//! let names: Vec<_> =
//!     zonal_peers::entries::<zonal_bench::program::Quick>().iter().map(|entry| entry.profile.name).collect();
//! assert!(names.contains(&"buddy-slab-allocator"));
//! ```

use core::cell::Cell;
use core::num::NonZeroUsize;
use core::ptr::{self, NonNull};
use core::slice;
use std::sync::Arc;

use bitmap_allocator::{BitAlloc, BitAlloc1M, BitAlloc16M};
use buddy_slab_allocator::BuddyAllocator;
use buddy_system_allocator::LockedFrameAllocator;
use frame_alloc::{
    CpuId, DepotAllocator, PageSize, PhysicalAllocator, Provenance, RegionInit,
    SummaryBuddyAllocator,
};
use talc::TalcLock;
use talc::source::Claim;

use zonal_bench::aging;
use zonal_bench::case::{self, Case, Spec};
use zonal_bench::memory::Region;
use zonal_bench::program::Programs;
use zonal_bench::subject::{
    FRAME_BYTES, FrameThread, Group, Path, Profile, Setup, Subject, SubjectError,
};
use zonal_bench::subjects::Entry;
use zonal_bench::subjects::page::{Page, layout};
use zonal_bench::tails;

/// Bytes in a block of order 10.
const HUGEST: usize = FRAME_BYTES << 10;

/// All of them.
#[must_use]
pub fn entries<P: Programs>() -> Vec<Entry> {
    vec![
        Entry::of::<BuddySlab, P>().aged::<BuddySlab>(),
        Entry::with::<P>(bitmap_profile(), open_bitmap::<P>).aged_with(age_bitmap, time_bitmap),
        Entry::of::<FrameAllocDepot, P>().aged::<FrameAllocDepot>(),
        Entry::of::<BuddySystem, P>().aged::<BuddySystem>(),
        Entry::of::<Talc, P>(),
    ]
}

const fn profile(name: &'static str, note: &'static str, max_order: u8) -> Profile {
    Profile {
        name,
        path: Path::Shared,
        group: Group::Peer,
        note,
        max_order,
        managed: true,
        bulk: false,
    }
}

/// `buddy_system_allocator`: free lists per order as ordered sets, behind its own spin lock.
pub struct BuddySystem {
    frames: LockedFrameAllocator<33>,
    count: usize,
    region: Option<Region>,
}

impl Subject for BuddySystem {
    const PROFILE: Profile =
        profile("buddy_system_allocator", "LockedFrameAllocator: its own spin lock", 10);

    type Block = usize;
    type Thread<'a> = &'a Self;

    fn open(setup: &Setup) -> Result<Self, SubjectError> {
        let frames = LockedFrameAllocator::new();
        frames.lock().add_frame(0, setup.frames());
        let region = setup.touch.then(|| Region::reserve(setup.memory)).transpose()?;
        Ok(Self { frames, count: setup.frames(), region })
    }

    fn thread(&self, _index: usize) -> Result<Self::Thread<'_>, SubjectError> {
        Ok(self)
    }

    fn frames(&self) -> Option<usize> {
        Some(self.count)
    }
}

impl FrameThread for &BuddySystem {
    type Block = usize;

    #[inline]
    fn alloc(&mut self, order: u8) -> Option<usize> {
        self.frames.lock().alloc(1 << order)
    }

    fn frame(&self, block: usize) -> Option<u64> {
        Some(block as u64)
    }

    #[inline]
    unsafe fn free(&mut self, block: usize, order: u8) {
        self.frames.lock().dealloc(block, 1 << order);
    }

    #[inline]
    unsafe fn touch(&mut self, block: usize) {
        if let Some(region) = &self.region {
            // SAFETY: `block` is a pfn below the frames the region was reserved for, and it is
            // allocated to this thread.
            unsafe { region.frame(block).write_volatile(1) };
        }
    }
}

/// `buddy-slab-allocator`: its page allocator, whose documentation puts it behind a spin lock.
pub struct BuddySlab {
    pages: spin::Mutex<BuddyAllocator<FRAME_BYTES>>,
    count: usize,
    /// What `pages` manages and keeps its tables in; unmapped after it.
    _region: Region,
}

impl Subject for BuddySlab {
    const PROFILE: Profile = profile("buddy-slab-allocator", "BuddyAllocator in a spin::Mutex", 10);

    type Block = usize;
    type Thread<'a> = &'a Self;

    fn open(setup: &Setup) -> Result<Self, SubjectError> {
        // Room for its tables before the frames rather than in their place, placed so that the
        // first frame is aligned to 4 MiB: it has blocks of an order only if that one is.
        let memory = setup.memory & !(HUGEST - 1);
        let tables = BuddyAllocator::<FRAME_BYTES>::required_meta_size(memory) + FRAME_BYTES;
        let front = tables.next_multiple_of(HUGEST);
        let region = Region::reserve(memory + front)?;
        let skip = front - tables.next_multiple_of(FRAME_BYTES);
        let start = region.base().wrapping_add(skip);
        // SAFETY: these bytes are the tail of the region, mapped, zero and used for nothing else
        // until the allocator is dropped.
        let bytes = unsafe { slice::from_raw_parts_mut(start, region.bytes() - skip) };
        let mut pages = BuddyAllocator::new();
        // SAFETY: `bytes` is writable and lives as long as the allocator, see above.
        unsafe { pages.init(bytes) }.map_err(|error| SubjectError::Init(error.to_string()))?;
        let count = pages.total_pages();
        Ok(Self { pages: spin::Mutex::new(pages), count, _region: region })
    }

    fn thread(&self, _index: usize) -> Result<Self::Thread<'_>, SubjectError> {
        Ok(self)
    }

    fn frames(&self) -> Option<usize> {
        Some(self.count)
    }
}

impl FrameThread for &BuddySlab {
    type Block = usize;

    #[inline]
    fn alloc(&mut self, order: u8) -> Option<usize> {
        self.pages.lock().alloc_pages(1 << order, FRAME_BYTES << order).ok()
    }

    fn frame(&self, block: usize) -> Option<u64> {
        Some((block / FRAME_BYTES) as u64)
    }

    #[inline]
    unsafe fn free(&mut self, block: usize, order: u8) {
        self.pages.lock().dealloc_pages(block, 1 << order);
    }

    #[inline]
    unsafe fn touch(&mut self, block: usize) {
        // SAFETY: `block` is the address of a page inside the region, whose provenance is
        // exposed, and it is allocated to this thread.
        unsafe { ptr::with_exposed_provenance_mut::<u8>(block).write_volatile(1) };
    }
}

/// `bitmap-allocator`: a tree of 16-bit words over the frames, the smallest that has room.
pub struct Bitmap<A> {
    bits: spin::Mutex<Box<A>>,
    count: usize,
    region: Option<Region>,
}

const fn bitmap_profile() -> Profile {
    profile("bitmap-allocator", "in a spin::Mutex", 10)
}

/// Whether the smaller tree has room for the frames of that many bytes.
const fn fits_1m(memory: usize) -> bool {
    memory / FRAME_BYTES <= BitAlloc1M::CAP
}

fn open_bitmap<P: Programs>(spec: &Spec) -> Result<Arc<dyn Case>, SubjectError> {
    if fits_1m(spec.setup.memory) {
        case::open::<Bitmap<BitAlloc1M>, P>(spec)
    } else {
        case::open::<Bitmap<BitAlloc16M>, P>(spec)
    }
}

fn age_bitmap(spec: &aging::Spec) -> Result<aging::Row, SubjectError> {
    if fits_1m(spec.memory) {
        aging::run::<Bitmap<BitAlloc1M>>(spec)
    } else {
        aging::run::<Bitmap<BitAlloc16M>>(spec)
    }
}

fn time_bitmap(spec: &tails::Spec) -> Result<Vec<tails::Row>, SubjectError> {
    if fits_1m(spec.memory) {
        tails::run::<Bitmap<BitAlloc1M>>(spec)
    } else {
        tails::run::<Bitmap<BitAlloc16M>>(spec)
    }
}

impl<A: BitAlloc + Send + 'static> Subject for Bitmap<A> {
    const PROFILE: Profile = bitmap_profile();

    type Block = usize;
    type Thread<'a> = &'a Self;

    fn open(setup: &Setup) -> Result<Self, SubjectError> {
        let count = setup.frames();
        if count > A::CAP {
            return Err(SubjectError::TooLarge { asked: count, most: A::CAP });
        }
        let mut bits = Box::new(A::DEFAULT);
        bits.insert(0..count);
        let region = setup.touch.then(|| Region::reserve(setup.memory)).transpose()?;
        Ok(Self { bits: spin::Mutex::new(bits), count, region })
    }

    fn thread(&self, _index: usize) -> Result<Self::Thread<'_>, SubjectError> {
        Ok(self)
    }

    fn frames(&self) -> Option<usize> {
        Some(self.count)
    }
}

impl<A: BitAlloc> FrameThread for &Bitmap<A> {
    type Block = usize;

    #[inline]
    fn alloc(&mut self, order: u8) -> Option<usize> {
        let mut bits = self.bits.lock();
        if order == 0 {
            bits.alloc()
        } else {
            bits.alloc_contiguous(None, 1 << order, usize::from(order))
        }
    }

    fn frame(&self, block: usize) -> Option<u64> {
        Some(block as u64)
    }

    #[inline]
    unsafe fn free(&mut self, block: usize, order: u8) {
        let mut bits = self.bits.lock();
        if order == 0 {
            bits.dealloc(block);
        } else {
            bits.dealloc_contiguous(block, 1 << order);
        }
    }

    #[inline]
    unsafe fn touch(&mut self, block: usize) {
        if let Some(region) = &self.region {
            // SAFETY: `block` is a pfn below the frames the region was reserved for, and it is
            // allocated to this thread.
            unsafe { region.frame(block).write_volatile(1) };
        }
    }
}

/// CPUs a depot allocator is built for; its documentation asks for as many as may ever be online.
const DEPOT_SLOTS: usize = 64;
/// Orders 0 to 10.
const DEPOT_ORDERS: usize = 11;
/// Times a request is repeated: its documentation warns of failures with memory to be had.
const DEPOT_RETRIES: usize = 1000;
const DEPOT_NOTE: &str = "DepotAllocator over SummaryBuddyAllocator: its own locks; a request that fails is made 1001 \
     times, as it may fail with memory to be had";
const DEPOT_PAGE: PageSize = PageSize::from_log2(12);

thread_local! {
    /// The CPU that calls, as a kernel finds it: at a fixed offset of a register. Where a thread drives several in
    /// turn, it is another at each call.
    static DEPOT_CPU: Cell<usize> = const { Cell::new(0) };
}

/// Reads the CPU that calls from a thread-local.
pub struct PinnedCpu;

impl CpuId for PinnedCpu {
    #[inline]
    fn current_cpu() -> usize {
        DEPOT_CPU.get()
    }
}

/// Addresses are pointers whose provenance [`Region`] has exposed.
pub struct Identity;

// SAFETY: the managed memory is one live mapping whose provenance is exposed, so a pointer made
// from an address in it covers all of it; nothing ends when a pointer is given up.
unsafe impl Provenance for Identity {
    unsafe fn create(phys: usize) -> NonNull<u8> {
        let pointer = ptr::with_exposed_provenance_mut(phys);
        // SAFETY: the caller names an address inside the mapping, which does not contain zero.
        unsafe { NonNull::new_unchecked(pointer) }
    }

    unsafe fn destroy<T>(ptr: NonNull<T>) -> usize {
        ptr.addr().get()
    }
}

type Depot = DepotAllocator<SummaryBuddyAllocator<DEPOT_ORDERS, Identity>, PinnedCpu, DEPOT_SLOTS>;

/// `frame-alloc`: magazines per CPU and a shared depot over its lock-free summary buddy.
pub struct FrameAllocDepot {
    depot: Box<Depot>,
    count: usize,
    /// What `depot` manages and keeps its bitmaps in; unmapped after it.
    _region: Region,
}

impl Subject for FrameAllocDepot {
    const PROFILE: Profile = profile("frame-alloc", DEPOT_NOTE, 10);

    type Block = usize;
    type Thread<'a> = DepotThread<'a>;

    fn open(setup: &Setup) -> Result<Self, SubjectError> {
        let region = Region::reserve(setup.memory)?;
        let depot = Box::new(Depot::new(DEPOT_PAGE, SummaryBuddyAllocator::new(DEPOT_PAGE)));
        // SAFETY: the region is writable, used for nothing else and outlives the allocator; no
        // other thread knows of the allocator yet.
        unsafe { depot.try_init_region(region.base().addr(), region.bytes()) }
            .map_err(|error| SubjectError::Init(error.to_string()))?;
        // Its bitmaps take a bit or two a frame of the region; one part in 4096 is ample.
        let count = setup.frames() - setup.frames().div_ceil(4096);
        Ok(Self { depot, count, _region: region })
    }

    fn thread(&self, index: usize) -> Result<Self::Thread<'_>, SubjectError> {
        Ok(DepotThread { depot: &self.depot, cpu: index })
    }

    fn frames(&self) -> Option<usize> {
        Some(self.count)
    }
}

/// A CPU's way to a [`FrameAllocDepot`].
pub struct DepotThread<'a> {
    depot: &'a Depot,
    cpu: usize,
}

impl FrameThread for DepotThread<'_> {
    type Block = usize;

    #[inline]
    fn alloc(&mut self, order: u8) -> Option<usize> {
        DEPOT_CPU.set(self.cpu);
        let count = NonZeroUsize::new(1 << order)?;
        match self.depot.allocate_physical(DEPOT_PAGE, count) {
            Ok(block) => Some(block),
            Err(_) => (0..DEPOT_RETRIES)
                .find_map(|_| self.depot.allocate_physical(DEPOT_PAGE, count).ok()),
        }
    }

    fn frame(&self, block: usize) -> Option<u64> {
        Some((block / FRAME_BYTES) as u64)
    }

    #[inline]
    unsafe fn free(&mut self, block: usize, order: u8) {
        DEPOT_CPU.set(self.cpu);
        if let Some(count) = NonZeroUsize::new(1 << order) {
            // SAFETY: the caller promises that `block` came from `alloc` with this order, hence
            // with this page size and count, and is not used any more.
            unsafe { self.depot.deallocate_physical(DEPOT_PAGE, count, block) };
        }
    }

    #[inline]
    unsafe fn touch(&mut self, block: usize) {
        // SAFETY: `block` is the address of a page inside the region, whose provenance is
        // exposed, and it is allocated to this thread.
        unsafe { ptr::with_exposed_provenance_mut::<u8>(block).write_volatile(1) };
    }
}

/// `talc`: a heap over the memory it is given, behind the lock its documentation recommends.
pub struct Talc {
    heap: TalcLock<spinning_top::RawSpinlock, Claim>,
    /// What `heap` manages; unmapped after it.
    _region: Region,
}

impl Subject for Talc {
    const PROFILE: Profile = Profile {
        // It keeps its tags beside the pages, so page-aligned blocks do not fill it densely.
        managed: false,
        ..profile("talc", "heap: TalcLock with spinning_top::RawSpinlock", 10)
    };

    type Block = Page;
    type Thread<'a> = &'a Self;

    fn open(setup: &Setup) -> Result<Self, SubjectError> {
        // With its tag a page-aligned page may take up two.
        let region = Region::reserve(setup.memory.saturating_mul(2))?;
        // SAFETY: the region is writable, used for nothing else and outlives the heap.
        let claim = unsafe { Claim::new(region.base(), region.bytes()) };
        Ok(Self { heap: TalcLock::new(claim), _region: region })
    }

    fn thread(&self, _index: usize) -> Result<Self::Thread<'_>, SubjectError> {
        Ok(self)
    }

    fn frames(&self) -> Option<usize> {
        None
    }
}

impl FrameThread for &Talc {
    type Block = Page;

    #[inline]
    fn alloc(&mut self, order: u8) -> Option<Page> {
        // SAFETY: the layout's size is not zero.
        let block = unsafe { self.heap.lock().allocate(layout(order)) };
        block.map(|block| Page(block.as_ptr()))
    }

    #[inline]
    unsafe fn free(&mut self, block: Page, order: u8) {
        // SAFETY: the caller promises that `block` came from `alloc` with this order, hence with
        // this layout, and is freed once.
        unsafe { self.heap.lock().deallocate(block.0, layout(order)) };
    }

    #[inline]
    unsafe fn touch(&mut self, block: Page) {
        // SAFETY: the block is allocated and at least a page long.
        unsafe { block.0.write_volatile(1) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cpu_has_its_magazine_whatever_thread_drives_it() {
        let setup = Setup { memory: 64 << 20, threads: 2, touch: false, regions: None };
        let depot = FrameAllocDepot::open(&setup).expect("it opens");
        let [mut one, mut other] = [0, 1].map(|cpu| depot.thread(cpu).expect("a CPU"));
        let frame = one.alloc(0).expect("there is memory");
        // SAFETY: it came from this subject with this order.
        unsafe { one.free(frame, 0) };
        assert_ne!(other.alloc(0), Some(frame));
        assert_eq!(one.alloc(0), Some(frame));
    }

    #[test]
    fn the_smallest_tree_that_has_room_is_taken() {
        assert!(fits_1m(4 << 30));
        assert!(!fits_1m((4 << 30) + FRAME_BYTES));
    }
}
