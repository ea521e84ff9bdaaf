//! A policy, the frames and a store that panic at one of their calls: the cache loses no slot, and every page
//! can be had afterwards.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};
use zonal::Pfn;
use zonal::platform::AtomicByte;
use zonal_cache::cache::Options;
use zonal_cache::evict::{Evict, Told, Verdict};
use zonal_cache::frames::Frames;
use zonal_cache::store::StoreError;
use zonal_cache::table::SlotId;
use zonal_cache::{
    ArenaFrames, Cache, CacheError, FaultyStore, File, MemoryStore, PageCache, S3Fifo, Setup,
    Threads,
};
use zonal_host::Arena;

const PAGE: usize = 4096;
const PAGES: usize = 16;

/// Calls until one panics; 0: none does. One test at a time uses it.
static FUSE: AtomicU64 = AtomicU64::new(0);

fn burn() {
    let left = FUSE.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).unwrap_or(0);
    assert!(left != 1, "planted");
}

/// A policy that panics, before or after what it does.
struct Policy<const AFTER: bool>(S3Fifo);

impl<const AFTER: bool> Policy<AFTER> {
    fn around<R>(&mut self, call: impl FnOnce(&mut S3Fifo) -> R) -> R {
        if !AFTER {
            burn();
        }
        let result = call(&mut self.0);
        if AFTER {
            burn();
        }
        result
    }
}

impl<const AFTER: bool> Evict for Policy<AFTER> {
    const NAME: &'static str = "panics";
    const MOST: u8 = S3Fifo::MOST;
    fn new(slots: usize) -> Self {
        Self(S3Fifo::new(slots))
    }
    fn insert(&mut self, id: SlotId, key: u64) {
        self.around(|policy| policy.insert(id, key));
    }
    fn remove(&mut self, id: SlotId) {
        // Also for pages that it was to be told of when it panicked.
        self.0.remove(id);
    }
    fn replace(&mut self, old: SlotId, new: SlotId) {
        self.around(|policy| policy.replace(old, new));
    }
    fn scan_told<'m, B: AtomicByte + 'm>(
        &mut self,
        mark: &impl Fn(SlotId) -> &'m B,
        take: &mut impl FnMut(SlotId) -> Verdict,
        told: &mut impl FnMut(Told, SlotId),
    ) -> bool {
        self.around(|policy| policy.scan_told(mark, take, told))
    }
}

/// Frames whose source panics.
struct Source(ArenaFrames);

// SAFETY: those of the arena.
unsafe impl Frames for Source {
    type Trace = zonal::policy::trace::Off;

    fn alloc(&self) -> Option<Pfn> {
        burn();
        self.0.alloc()
    }
    unsafe fn free(&self, frames: &[Pfn]) {
        // SAFETY: the caller's contract.
        unsafe { self.0.free(frames) };
    }
    fn address(&self, frame: Pfn) -> NonNull<u8> {
        self.0.address(frame)
    }
}

struct Parts<const AFTER: bool>;

impl<const AFTER: bool> Setup for Parts<AFTER> {
    type Host = Threads;
    type Frames = Source;
    type Evict = Policy<AFTER>;
    type Lru = zonal_cache::lru::Whole;
}

fn numbered(pages: usize) -> Vec<u8> {
    (0..pages).flat_map(|page| [page as u8; PAGE]).collect()
}

fn page<S: Setup>(file: &File<S>, index: usize) -> Result<u8, CacheError> {
    let mut bytes = [0xEE; PAGE];
    assert_eq!(file.read_at(&mut bytes, (index * PAGE) as u64)?, PAGE);
    Ok(bytes[0])
}

/// Runs a call; the planted panic ends it and nothing else.
fn call<R>(call: impl FnOnce() -> R) -> Option<R> {
    let armed = FUSE.load(SeqCst) > 0;
    let result = catch_unwind(AssertUnwindSafe(call));
    assert!(result.is_ok() || armed && FUSE.load(SeqCst) == 0, "a panic that was not planted");
    result.ok()
}

/// Reads and writes more pages than there is room for, with one panic; whether there was one.
fn with_a_panic_at<const AFTER: bool>(index: u64) -> bool {
    let arena = Arc::new(Arena::builder().bytes(64 * PAGE).open().expect("an arena"));
    let frames = Source(ArenaFrames::new(arena));
    FUSE.store(0, SeqCst);
    let options = Options { pages: PAGES, window: 4, ..Options::default() };
    let cache =
        PageCache::<Parts<AFTER>>::with_parts(Threads::new(), frames, options).expect("a cache");
    let file = cache.open(MemoryStore::from(numbered(40))).expect("a file");
    FUSE.store(index, SeqCst);
    for at in 0..40 {
        _ = call(|| page(&file, at));
    }
    for at in (0..40).rev() {
        _ = call(|| file.write_at(&[at as u8; 100], (at * PAGE + 7) as u64));
    }
    // Written while a reader has it, so that it moves.
    if let Some(Ok(pinned)) = call(|| file.pin(0..1)) {
        _ = call(|| file.write_at(&[0], 9));
        drop(pinned);
    }
    let panicked = FUSE.swap(0, SeqCst) == 0;
    for at in (0..40).chain(0..40) {
        assert_eq!(page(&file, at), Ok(at as u8), "call {index}");
        file.write_at(&[at as u8], (at * PAGE) as u64).expect("room for it");
    }
    // All slots are there.
    let held: Vec<_> =
        (0..PAGES - 1).map(|at| file.pin((at * PAGE) as u64..(at * PAGE) as u64 + 1)).collect();
    assert!(held.iter().all(Result::is_ok), "call {index}: a slot is lost");
    panicked
}

fn at_every_call<const AFTER: bool>() {
    let mut index = 1;
    while with_a_panic_at::<AFTER>(index) {
        index += 1;
    }
    assert!(index > 100, "{index} calls");
}

#[test]
fn policies_and_frames_that_panic_lose_no_slot() {
    at_every_call::<false>();
    at_every_call::<true>();
}

#[test]
fn a_store_that_panics_leaves_the_readers_ahead() {
    let cache = Cache::<S3Fifo>::builder().memory(64 * PAGE).io_threads(1).open().expect("a cache");
    let reads = Arc::new(AtomicU64::new(0));
    let counted = reads.clone();
    let store = FaultyStore::new(MemoryStore::from(numbered(60)), move |_| {
        let ahead = thread::current().name().is_some_and(|name| name.starts_with("cache-io"));
        if ahead && counted.fetch_add(1, SeqCst) == 0 {
            panic!("planted");
        }
        None::<StoreError>
    });
    let file = cache.open(store).expect("a file");
    // A load each, which no other thread is in need of.
    file.will_need(0..(30 * PAGE) as u64);
    file.will_need((30 * PAGE) as u64..(60 * PAGE) as u64);
    let end = Instant::now() + Duration::from_secs(20);
    while reads.load(SeqCst) < 2 {
        assert!(Instant::now() < end, "the thread has gone on after the panic");
        thread::sleep(Duration::from_millis(1));
    }
    for at in 0..60 {
        assert_eq!(page(&file, at), Ok(at as u8));
    }
}
