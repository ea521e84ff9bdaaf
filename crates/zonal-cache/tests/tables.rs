//! What a cache takes from the heap beside its pages, counted by the allocator of this program.
#![cfg(all(feature = "std", not(loom), not(shuttle)))]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use zonal_cache::evict::Evict;
use zonal_cache::lru::{LruLock, PerOwner, Whole};
use zonal_cache::threads::OpenError;
use zonal_cache::{Cache, CacheError, MultiGen, S3Fifo, Sieve, TwoLists};

/// Bytes of the heap in use.
static USED: AtomicUsize = AtomicUsize::new(0);
/// One test at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// Bytes for each page that are not there before it is written.
const WRITTEN: usize = 34;

struct Counting;

#[global_allocator]
static HEAP: Counting = Counting;

// SAFETY: the system's allocator does all of it; `realloc` and `alloc_zeroed` are the default ones, which call these two.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        USED.fetch_add(layout.size(), Relaxed);
        // SAFETY: the caller's contract is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        USED.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller's contract is the same, and `alloc` has it from the system's.
        unsafe { System.dealloc(at, layout) }
    }
}

/// Bytes of the bound, and of the heap for the cache.
fn opened<E: Evict, L: LruLock>(bytes: usize, most: usize) -> (usize, usize) {
    let before = USED.load(Relaxed);
    let builder = Cache::<E, L>::builder().io_threads(0).memory_in_all(bytes);
    let cache = builder.most_memory(most).open().expect("there is memory");
    (cache.bound_bytes(), USED.load(Relaxed) - before)
}

/// Sizes for which chains and ghosts are as many as they need to be, and twice as many.
fn ensure_within<E: Evict, L: LruLock>() {
    for mib in [1, 7, 16, 33, 64, 65, 70] {
        let bytes = mib << 20;
        let (bound, tables) = opened::<E, L>(bytes, 0);
        // The rest is the arena's, and what needs little.
        let (sum, rest) = (bound + tables + bound / 4096 * WRITTEN, (256 << 10) + bytes / 1000);
        assert!(sum <= bytes && sum + rest > bytes, "{}: {bound} and {tables} of {bytes}", E::NAME);
    }
}

#[test]
fn pages_and_tables_take_what_was_said_together() {
    let _alone = ALONE.lock();
    ensure_within::<S3Fifo, Whole>();
    ensure_within::<TwoLists, Whole>();
    ensure_within::<Sieve, Whole>();
    ensure_within::<MultiGen, Whole>();
    ensure_within::<S3Fifo, PerOwner>();
}

#[test]
fn tables_are_for_the_largest_bound() {
    let _alone = ALONE.lock();
    let (bound, tables) = opened::<S3Fifo, Whole>(16 << 20, 64 << 20);
    assert!(tables > 2 << 20 && bound + tables <= 16 << 20, "{bound} and {tables}");
    let too_much = Cache::<S3Fifo>::builder().memory_in_all(1 << 20).most_memory(1 << 30).open();
    let why = too_much.map(drop);
    assert!(matches!(why, Err(OpenError::Cache(CacheError::BoundTooSmall { asked: 0, .. }))));
}
