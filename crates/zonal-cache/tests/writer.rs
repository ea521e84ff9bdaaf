//! The thread that writes back: by age, by the background limit, with writers slowed; and what zones count.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use zonal::page_state::PageState;
use zonal::plan::SplitConfig;
use zonal::policy::dirty::Exact;
use zonal::preset::{LessDirty, SplitZones};
use zonal::{Pfn, ZoneId, ZoneType};
use zonal_cache::cache::Options;
use zonal_cache::faulty_store::Operation;
use zonal_cache::frames::Frames;
use zonal_cache::store::{Store, StoreError};
use zonal_cache::{
    ArenaFrames, Cache, FaultyStore, MemoryStore, PageCache, S3Fifo, Setup, Threads, TwoLists,
};
use zonal_host::Arena;

const PAGE: usize = 4096;
const LONG: Duration = Duration::from_secs(20);

fn in_time(mut what: impl FnMut() -> bool) {
    let start = Instant::now();
    while !what() {
        assert!(start.elapsed() < LONG, "it does not happen");
        thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn old_pages_are_written_and_young_ones_are_not() {
    let builder =
        Cache::<S3Fifo>::builder().memory(64 * PAGE).write_behind(Duration::from_millis(50));
    let cache = builder.open().unwrap();
    let memory = Arc::new(MemoryStore::default());
    let file = cache.open(memory.clone()).unwrap();
    file.write_at(&[7; 3 * PAGE], 0).unwrap();
    // A page is no longer dirty when its write begins.
    in_time(|| memory.bytes() == [7; 3 * PAGE]);
    assert_eq!(cache.stats().dirty, 0);
    assert!(memory.durable().is_empty(), "written, not synced");

    let patient = Cache::<S3Fifo>::builder().memory(64 * PAGE).write_behind(LONG * 100);
    let patient = patient.open().unwrap();
    let file = patient.open(MemoryStore::default()).unwrap();
    file.write_at(&[7; 3 * PAGE], 0).unwrap();
    thread::sleep(Duration::from_millis(100));
    assert_eq!(patient.stats().dirty, 3);
}

#[test]
fn the_background_limit_wakes_the_writer() {
    let builder = Cache::<S3Fifo>::builder().memory(100 * PAGE).write_behind(LONG * 100);
    let cache = builder.background_percent(10).dirty_percent(90).open().unwrap();
    let files: Vec<_> = (0..3).map(|_| cache.open(MemoryStore::default()).unwrap()).collect();
    for (at, file) in files.iter().enumerate() {
        file.write_at(&vec![at as u8; 20 * PAGE], 0).unwrap();
    }
    in_time(|| {
        // Each write beyond the limit wakes it.
        files[0].write_at(&[0], 0).unwrap();
        cache.stats().dirty <= 10
    });
}

#[test]
fn a_store_that_refuses_does_not_keep_the_writer_busy() {
    let builder = Cache::<S3Fifo>::builder().memory(100 * PAGE).write_behind(LONG * 100);
    let cache = builder.background_percent(5).dirty_percent(90).open().unwrap();
    let refuses =
        |operation| matches!(operation, Operation::Write { .. }).then_some(StoreError::NO_SPACE);
    let file = cache.open(FaultyStore::new(MemoryStore::default(), refuses)).unwrap();
    file.write_at(&[1; 20 * PAGE], 0).unwrap();
    in_time(|| cache.stats().writes > 0);
    thread::sleep(Duration::from_millis(50));
    let writes = cache.stats().writes;
    thread::sleep(Duration::from_millis(200));
    assert!(cache.stats().writes <= writes + 100, "once for each time it is woken");
    assert!(file.sync().is_err());
    assert_eq!(cache.stats().dirty, 20, "nothing is lost");
}

/// A page takes a millisecond.
fn slow(operation: Operation) -> Option<StoreError> {
    if let Operation::Write { len, .. } = operation {
        thread::sleep(Duration::from_millis(len / PAGE as u64));
    }
    None
}

/// How many pages are dirty at most while more are written than may be.
fn most_dirty() -> u64 {
    let builder = Cache::<S3Fifo>::builder().memory(1000 * PAGE).write_behind(LONG * 100);
    let cache = builder.background_percent(10).dirty_percent(80).open().unwrap();
    let file = cache.open(FaultyStore::new(MemoryStore::default(), slow)).unwrap();
    let mut most = 0;
    for at in 0..1200 {
        file.write_at(&[1; PAGE], at * PAGE as u64).unwrap();
        most = most.max(cache.stats().dirty);
    }
    most
}

#[test]
fn a_writer_is_slowed_before_it_meets_the_limit() {
    // Without pauses it would be at the limit of 800 after as many writes; once it may be where the thread that writes
    // back has no CPU.
    let mut seen = Vec::new();
    while !seen.last().is_some_and(|most| (100..700).contains(most)) {
        assert!(seen.len() < 8, "{seen:?} pages were dirty");
        seen.push(most_dirty());
    }
}

/// One who may exceed the limits by a quarter is let do so, and others are not.
#[test]
fn who_is_less_throttled_has_a_quarter_more() {
    let most_of = |less: bool| {
        let cache = Cache::<S3Fifo>::builder().memory(1000 * PAGE).open().unwrap();
        let file = cache.open(MemoryStore::default()).unwrap();
        file.throttle_less(less);
        // A clone is as the handle that it is of.
        let file = file.clone();
        let mut most = 0;
        for at in 0..900 {
            file.write_at(&[1; PAGE], at * PAGE as u64).unwrap();
            most = most.max(cache.stats().dirty);
        }
        most
    };
    assert_eq!((most_of(false), most_of(true)), (400, 500));
}

/// However long a write is, no more than a piece of it is beyond the limit, at any moment.
#[test]
fn a_long_write_stays_at_the_limit() {
    for (less, limit) in [(false, 400), (true, 500)] {
        for pages in [256, 900] {
            let cache = Cache::<S3Fifo>::builder().memory(1000 * PAGE).open().unwrap();
            let (most, counts) = (Arc::new(AtomicU64::new(0)), Arc::new(Mutex::new(None)));
            let file = {
                let (most, counts) = (most.clone(), counts.clone());
                let looks = move |operation| {
                    if let (Operation::Write { len, .. }, Some(cache)) =
                        (operation, &*counts.lock().unwrap())
                    {
                        let cache: &Cache<S3Fifo> = cache;
                        most.fetch_max(cache.stats().dirty + len / PAGE as u64, SeqCst);
                    }
                    None
                };
                cache.open(FaultyStore::new(MemoryStore::default(), looks)).unwrap()
            };
            *counts.lock().unwrap() = Some(cache.clone());
            file.throttle_less(less);
            for at in 0..8 {
                // From the middle of a page on.
                let offset = (at * pages * PAGE + 77) as u64;
                let data = vec![1; pages * PAGE];
                assert_eq!(file.write_at(&data, offset), Ok(data.len()));
                let dirty = cache.stats().dirty;
                assert!(dirty <= limit, "{dirty} pages are dirty after {at} of {pages}");
            }
            *counts.lock().unwrap() = None;
            let most = most.load(SeqCst);
            assert!((limit..=limit + 64).contains(&most), "{most} pages were dirty");
        }
    }
}

/// A long write goes on, and ends, where the store takes no page, or not the first ones; nothing is lost.
#[test]
fn a_long_write_ends_where_the_store_refuses() {
    for (bad, left) in [(u64::MAX, 600), (10, 400)] {
        let cache = Cache::<S3Fifo>::builder().memory(1000 * PAGE).open().unwrap();
        let refuses = move |operation| match operation {
            Operation::Write { offset, .. } => {
                (offset / (PAGE as u64) < bad).then_some(StoreError::NO_SPACE)
            }
            _ => None,
        };
        let file = cache.open(FaultyStore::new(MemoryStore::default(), refuses)).unwrap();
        let data: Vec<u8> = (0..600 * PAGE).map(|at| (at / PAGE) as u8).collect();
        assert_eq!(file.write_at(&data, 0), Ok(data.len()));
        let (writes, dirty) = (cache.stats().writes, cache.stats().dirty);
        // For each piece beyond the limit a row of 64 pages, and each of them by itself.
        assert!(writes <= 4 * 65, "{writes} writes");
        assert!((left - 64..=left).contains(&dirty), "{dirty} are dirty");
        let mut bytes = vec![0; data.len()];
        assert_eq!(file.read_at(&mut bytes, 0), Ok(data.len()));
        assert!(bytes == data);
    }
}

zonal::preset! {
    /// Several zones, each with a dirty limit.
    SplitDirty = "SplitDirty", over SplitZones { Dirty = Exact }
}

/// Pages that are written to come from zones that are below their limit.
#[test]
fn frames_to_write_to_are_looked_for_elsewhere() {
    let four = SplitConfig::default().with_instances(ZoneType::Normal, 4);
    let arena = Arena::builder().bytes(131_072 * PAGE).split(four).preset::<SplitDirty>();
    let arena = Arc::new(arena.open().unwrap());
    let frames = ArenaFrames::new(arena.clone());
    // SAFETY: it is only asked, and told of pages.
    let allocator = unsafe { arena.allocator() };
    let mut all = Vec::new();
    let mut take = |frame: Option<Pfn>| {
        let frame = frame.expect("there is room");
        all.push(frame);
        frames.zone_of(frame).0
    };
    // All are beyond their limit but one, which is not the first that is looked at.
    let first = take(frames.alloc());
    let plan = allocator.plan().zones();
    let mut there = (0..plan.len()).filter(|&zone| plan[zone].managed > 0 && zone != first);
    let left = there.next_back().expect("several zones");
    for (number, zone) in plan.iter().enumerate().filter(|&(number, _)| number != left) {
        let limit = allocator.dirty_limit(ZoneId(number as u8)).unwrap();
        assert!(zone.managed == 0 || limit > 4000, "{limit} of {zone:?}");
        // An eighth more.
        for _ in 0..if zone.managed > 0 { limit + limit / 8 } else { 0 } {
            frames.count(zone.start, PageState::Dirty, 1);
        }
    }
    assert!((0..100).all(|_| take(frames.alloc_to_write(false)) == left));
    assert!((0..100).any(|_| take(frames.alloc()) != left));
    assert!((0..100).any(|_| take(frames.alloc_to_write(true)) != left), "a quarter more");
    // SAFETY: each is from `frames`, once, and no reference to it was made.
    unsafe { frames.free(&all) };
}

struct Counted;

impl Setup for Counted {
    type Host = Threads;
    type Frames = ArenaFrames<LessDirty>;
    type Evict = TwoLists;
    type Lru = zonal_cache::lru::Whole;
}

/// Dirty pages, and those on their way, as all zones of the arena count them.
fn counted(cache: &PageCache<Counted>) -> (u64, u64) {
    let arena = cache.frames().arena();
    // SAFETY: it is only asked.
    let allocator = unsafe { arena.allocator() };
    let sum = |state| {
        let zones = (0..arena.zone_count() as u8).map(ZoneId);
        zones.filter_map(|zone| allocator.zone_page_state(zone, state)).sum()
    };
    (sum(PageState::Dirty), sum(PageState::Writeback))
}

#[test]
fn zones_count_what_is_dirty() {
    let arena = Arena::builder().bytes(4096 * PAGE).preset::<LessDirty>().open().unwrap();
    let frames = ArenaFrames::new(Arc::new(arena));
    let options = Options { pages: 4000, dirty_percent: 100, ..Options::default() };
    let cache = PageCache::<Counted>::with_parts(Threads::new(), frames, options).unwrap();
    let file = cache.open(MemoryStore::default()).unwrap();
    // What each CPU has not told yet: some pages.
    let near = |cache: &PageCache<Counted>, expected: u64| {
        let (dirty, writeback) = counted(cache);
        assert!(dirty.abs_diff(expected) <= 200, "{dirty} are counted, {expected} are dirty");
        assert!(writeback <= 200, "{writeback} are counted on their way");
    };
    file.write_at(&vec![1; 2000 * PAGE], 0).unwrap();
    file.write_at(&vec![2; 1000 * PAGE], 0).unwrap();
    near(&cache, 2000);
    let pinned = file.pin(0..1000 * PAGE as u64).unwrap();
    file.write_at(&vec![3; 1000 * PAGE], 0).unwrap();
    drop(pinned);
    near(&cache, 2000);
    file.truncate(1500 * PAGE as u64).unwrap();
    near(&cache, 1500);
    file.sync_range(0..500 * PAGE as u64).unwrap();
    near(&cache, 1000);
    file.sync().unwrap();
    near(&cache, 0);
}

/// Two ranges of one file are on their way together, and a sync waits for what another thread writes.
#[test]
fn ranges_of_a_file_are_written_at_once() {
    struct Meet {
        inside: (Mutex<usize>, Condvar),
        memory: MemoryStore,
    }
    impl Store for Meet {
        fn len(&self) -> Result<u64, StoreError> {
            self.memory.len()
        }
        fn read(&self, offset: u64, pages: &mut [&mut [u8]]) -> Result<u64, StoreError> {
            self.memory.read(offset, pages)
        }
        /// Each waits until two are there.
        fn write(&self, offset: u64, pages: &[&[u8]]) -> Result<(), StoreError> {
            let (inside, came) = &self.inside;
            *inside.lock().unwrap() += 1;
            came.notify_all();
            let wait = came.wait_timeout_while(inside.lock().unwrap(), LONG, |inside| *inside < 2);
            assert!(!wait.unwrap().1.timed_out(), "one at a time");
            self.memory.write(offset, pages)
        }
        fn set_len(&self, len: u64) -> Result<(), StoreError> {
            self.memory.set_len(len)
        }
        fn flush(&self) -> Result<(), StoreError> {
            self.memory.flush()
        }
    }
    let cache = Cache::<S3Fifo>::builder().memory(64 * PAGE).open().unwrap();
    let meet = Meet { inside: Default::default(), memory: MemoryStore::default() };
    let meet = Arc::new(meet);
    let file = cache.open(meet.clone()).unwrap();
    file.write_at(&[7; 20 * PAGE], 0).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| file.sync_range(0..10 * PAGE as u64).unwrap());
        scope.spawn(|| file.sync_range(10 * PAGE as u64..20 * PAGE as u64).unwrap());
    });
    assert_eq!((meet.memory.durable(), cache.stats().writes), (vec![7; 20 * PAGE], 2));
}

#[test]
fn percentages_beyond_a_hundred_are_a_hundred() {
    // Times the pages the second is little more than 2⁶⁴.
    for percent in [u64::MAX, u64::MAX / 100 + 1] {
        let builder = Cache::<S3Fifo>::builder().memory(100 * PAGE).write_behind(LONG * 100);
        let cache = builder.background_percent(percent).dirty_percent(percent).open().unwrap();
        let file = cache.open(MemoryStore::default()).unwrap();
        file.write_at(&[1; 50 * PAGE], 0).unwrap();
        cache.write_behind(LONG * 100);
        assert_eq!(cache.stats().dirty, 50);
    }
}

fn refuses_while(full: &Arc<AtomicBool>) -> impl Fn(Operation) -> Option<StoreError> + use<> {
    let full = full.clone();
    move |operation| {
        let writes = matches!(operation, Operation::Write { .. });
        (writes && full.load(SeqCst)).then_some(StoreError::NO_SPACE)
    }
}

/// What a file could not write when its last handle went, it has written later, and goes.
#[test]
fn a_file_without_a_handle_goes_when_it_is_written() {
    let cache = Cache::<S3Fifo>::builder().memory(64 * PAGE).open().unwrap();
    let full = Arc::new(AtomicBool::new(true));
    let memory = Arc::new(MemoryStore::default());
    let file = cache.open(FaultyStore::new(memory.clone(), refuses_while(&full))).unwrap();
    file.write_at(&[7; 3 * PAGE], 0).unwrap();
    drop(file);
    cache.write_behind(Duration::ZERO);
    assert_eq!((Arc::strong_count(&memory), cache.stats().dirty), (2, 3), "nothing is lost");
    full.store(false, SeqCst);
    cache.write_behind(Duration::ZERO);
    assert_eq!((Arc::strong_count(&memory), cache.stats().used), (1, 0));
    assert_eq!(memory.bytes(), [7; 3 * PAGE]);
}

/// The same where no thread writes back, and another file needs the room.
#[test]
fn a_file_without_a_handle_goes_when_its_room_is_needed() {
    let builder = Cache::<S3Fifo>::builder().memory(16 * PAGE).window(0).io_threads(0);
    let cache = builder.dirty_percent(100).open().unwrap();
    let full = Arc::new(AtomicBool::new(true));
    let memory = Arc::new(MemoryStore::default());
    let file = cache.open(FaultyStore::new(memory.clone(), refuses_while(&full))).unwrap();
    file.write_at(&[7; 6 * PAGE], 0).unwrap();
    drop(file);
    full.store(false, SeqCst);
    assert_eq!((Arc::strong_count(&memory), cache.stats().dirty), (2, 6), "nothing is lost");
    let other = cache.open(MemoryStore::from(vec![1; 20 * PAGE])).unwrap();
    let pinned = other.pin(0..10 * PAGE as u64).unwrap();
    assert_eq!(other.read_at(&mut [0; PAGE], 10 * PAGE as u64), Ok(PAGE));
    assert_eq!((Arc::strong_count(&memory), cache.stats().used), (1, 11));
    assert_eq!(memory.bytes(), [7; 6 * PAGE]);
    drop(pinned);
}
