//! The thread that has pages go before requests need their frames.

use crate::watched::{Watched, overdraft, watch};
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};
use zonal::preset::SplitZones;
use zonal::watermark::{MinFree, WatermarkConfig, Watermarks};
use zonal::{Request, ZoneId};
use zonal_cache::cache::Options;
use zonal_cache::evict::Evict;
use zonal_cache::store::StoreError;
use zonal_cache::threads::{OnThreads, Threads};
use zonal_cache::{
    ArenaFrames, Cache, FaultyStore, MemoryStore, MultiGen, PageCache, Reclaimer, S3Fifo, Shrinker,
    Sieve, TwoLists,
};
use zonal_host::{Arena, HugePages, Pager};

const PAGE: usize = 4096;
const FRAMES: usize = 4096;
const ZONE: ZoneId = ZoneId(0);

struct Shared<E: Evict> {
    arena: Arc<Arena>,
    shrinker: Arc<Shrinker>,
    cache: Cache<E>,
}

/// A cache that may have all of an arena with watermarks, and gives some back.
fn shared<E: Evict>(min_free: u64) -> Shared<E> {
    let shrinker = Arc::new(Shrinker::new());
    let marks =
        WatermarkConfig { min_free: MinFree::Frames(min_free), scale_factor: 300, boost_factor: 0 };
    // The same on any machine: how far requests overdraw depends on how many CPUs there are.
    let arena = Arena::builder().bytes(FRAMES * PAGE).huge(HugePages::Never).cpus(2);
    let arena = arena.watermarks(marks);
    let arena = Arc::new(arena.pager(shrinker.clone()).open().expect("an arena"));
    let options = Options { pages: FRAMES, dirty_percent: 100, ..Options::default() };
    let frames = ArenaFrames::new(arena.clone());
    let cache = PageCache::<OnThreads<E>>::with_parts(Threads::new(), frames, options);
    let cache = cache.expect("a cache");
    shrinker.attach(&cache);
    Shared { arena, shrinker, cache }
}

impl<E: Evict> Shared<E> {
    /// Free frames, and the marks.
    fn level(&self) -> (u64, Watermarks) {
        let (free, marks) = self.arena.zone_level(ZONE).expect("a zone");
        assert!(marks.min < marks.low && marks.low < marks.high);
        (free, marks)
    }

    /// Waits until the zone is above its low mark: then no thread is woken.
    fn balanced(&self) {
        let start = Instant::now();
        while self.level().0 <= self.level().1.low {
            assert!(start.elapsed() < Duration::from_secs(20), "{:?}", self.level());
            // The last requests may have been served by the CPU's cache, which looks at no mark.
            self.shrinker.wake_reclaim(ZONE);
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Has the cache take all it can get.
    fn fill(&self, bytes: &[u8]) {
        let file = self.cache.open(MemoryStore::from(bytes.to_vec())).expect("a file");
        let mut read = vec![0; bytes.len()];
        assert_eq!(file.read_at(&mut read, 0), Ok(bytes.len()));
        assert!(read == bytes);
        // It stays until the cache goes.
        std::mem::forget(file);
    }
}

/// Requests that come a few at a time, as many as there are pages in the cache.
fn requests_a_few_at_a_time<E: Evict>(with: bool) -> (u64, u64) {
    let shared = shared::<E>(128);
    let reclaimer = with.then(|| {
        Reclaimer::start(shared.arena.clone(), shared.shrinker.clone()).expect("a thread")
    });
    let file = shared.cache.open(MemoryStore::from(vec![7; FRAMES * PAGE])).expect("a file");
    assert_eq!(file.read_at(&mut vec![0; FRAMES * PAGE], 0), Ok(FRAMES * PAGE));
    if with {
        shared.balanced();
    }
    let before = shared.cache.stats();
    let mut pages = Vec::new();
    for _ in 0..60 {
        for _ in 0..32 {
            pages.push(shared.arena.alloc(&Request::frame()).expect("clean pages are there"));
        }
        if with {
            shared.balanced();
        }
    }
    let stats = shared.cache.stats();
    let zones = shared.cache.reclaim_by_zone();
    assert_eq!(zones[0].direct.reclaimed + zones[0].background.reclaimed, stats.reclaimed);
    assert!(zones[0].direct.scanned >= zones[0].direct.reclaimed);
    assert_eq!(zones[0].background.reclaimed > 0, with, "{}", E::NAME);
    reclaimer.into_iter().for_each(Reclaimer::stop);
    (stats.direct - before.direct, stats.direct_nanos - before.direct_nanos)
}

#[test]
fn requests_that_it_is_ahead_of_reclaim_nothing() {
    fn check<E: Evict>() {
        let (direct, nanos) = requests_a_few_at_a_time::<E>(false);
        assert!(direct > 20 && nanos > 0, "{}: {direct} times, {nanos} ns", E::NAME);
        assert_eq!(requests_a_few_at_a_time::<E>(true), (0, 0), "{}", E::NAME);
    }
    check::<TwoLists>();
    check::<S3Fifo>();
    check::<Sieve>();
    check::<MultiGen>();
}

/// Readers of a file twice as large as memory beside threads that allocate and free as fast as they can: no request
/// fails, all bytes are right, the zone is balanced afterwards. What was seen of it, and how far these threads may
/// take it below the min mark.
fn full_load(min_free: u64) -> (Watched, u64) {
    let shared = shared::<S3Fifo>(min_free);
    let reclaimer = Reclaimer::start(shared.arena.clone(), shared.shrinker.clone()).expect("one");
    let data: Vec<u8> = (0..2 * FRAMES * PAGE).map(|at| (at / PAGE % 251) as u8).collect();
    let file = shared.cache.open(MemoryStore::from(data.clone())).expect("a file");
    let (over, allocated) = (AtomicBool::new(false), AtomicU64::new(0));
    let overdraft = overdraft(&shared.arena, ZONE, 4);
    let seen = thread::scope(|scope| {
        let watcher = scope.spawn(|| watch(&shared.arena, ZONE, &over));
        let reads = |start: usize| {
            let file = file.clone();
            let (mut at, mut page) = (start, [0; PAGE]);
            while !over.load(Relaxed) {
                at = (at * 5 + 13) % (2 * FRAMES);
                assert_eq!(file.read_at(&mut page, (at * PAGE) as u64), Ok(PAGE));
                assert!(page == data[at * PAGE..][..PAGE]);
            }
        };
        let takes = || {
            while !over.load(Relaxed) {
                let take = || shared.arena.alloc(&Request::frame()).expect("clean pages are there");
                let pages: Vec<_> = (0..FRAMES / 4).map(|_| take()).collect();
                allocated.fetch_add(pages.len() as u64, Relaxed);
            }
        };
        let all = [scope.spawn(move || reads(1)), scope.spawn(move || reads(777))];
        let others = [scope.spawn(takes), scope.spawn(takes)];
        thread::sleep(Duration::from_secs(2));
        over.store(true, Relaxed);
        all.into_iter().chain(others).for_each(|it| it.join().expect("a thread"));
        watcher.join().expect("a thread")
    });
    let zone = shared.cache.reclaim_by_zone()[0];
    assert!(allocated.load(Relaxed) > FRAMES as u64);
    assert!(zone.background.reclaimed > 0 && zone.direct.scanned < 1 << 40, "{zone:?}");
    shared.balanced();
    reclaimer.stop();
    let arena = shared.arena.clone();
    drop((file, shared));
    let zone = arena.zone_info(ZONE).expect("a zone");
    assert_eq!(zone.free + zone.cached, zone.managed, "all frames are back");
    (seen, overdraft)
}

#[test]
fn readers_and_allocators_at_full_load() {
    full_load(128);
}

/// With a mark far above what several may overdraw by together.
#[test]
fn what_is_below_the_min_mark_stays_at_full_load() {
    let (seen, overdraft) = full_load(1024);
    assert!(overdraft < seen.min / 2, "{overdraft}, {seen:?}");
    assert!(seen.looks > 100 && seen.least < seen.low, "a load: {seen:?}");
    seen.assert_kept(overdraft);
}

/// Alone a thread takes all but what is below the mark, to the frame; not so one whose requests may reach below.
fn take_all(request: &Request) {
    let shared = shared::<Sieve>(1024);
    let pages: Vec<_> = (0..).map_while(|_| shared.arena.alloc(request).ok()).collect();
    assert!(pages.len() > FRAMES / 2);
    let seen = watch(&shared.arena, ZONE, &AtomicBool::new(true));
    assert!(seen.least <= seen.min, "all that it may: {seen:?}");
    seen.assert_kept(0);
}

#[test]
fn a_thread_alone_leaves_what_is_below_the_min_mark() {
    take_all(&Request::frame());
}

#[test]
#[should_panic(expected = "below the min mark by more than 0")]
fn canary_a_request_that_reaches_below_the_min_mark_is_found() {
    take_all(&Request::frame().high());
}

/// Without a thread of the cache that writes back it writes dirty pages itself, and a store that refuses does not keep
/// it busy.
#[test]
fn dirty_pages_are_written_for_room() {
    for refuses in [false, true] {
        let shared = shared::<TwoLists>(128);
        let store = FaultyStore::new(MemoryStore::default(), move |operation| {
            let writes = matches!(operation, zonal_cache::faulty_store::Operation::Write { .. });
            (refuses && writes).then_some(StoreError::NO_SPACE)
        });
        let file = shared.cache.open(store).expect("a file");
        // All that can be had at once: the rest would have to be written to get a page.
        let most = FRAMES - shared.level().1.high as usize;
        let written = file.write_at(&vec![3; most * PAGE], 0).expect("written");
        let reclaimer = Reclaimer::start(shared.arena.clone(), shared.shrinker.clone());
        let reclaimer = reclaimer.expect("a thread");
        let pages: Vec<_> = (0..FRAMES)
            .map_while(|_| shared.arena.alloc(&Request::frame().no_wait()).ok())
            .collect();
        assert!(!pages.is_empty());
        if refuses {
            thread::sleep(Duration::from_millis(300));
            let rounds = reclaimer.rounds();
            assert!((1..50).contains(&rounds), "{rounds} rounds in vain");
            assert!(file.sync().is_err());
            assert_eq!(shared.cache.stats().dirty as usize, written / PAGE, "nothing is lost");
        } else {
            shared.balanced();
            assert!(shared.cache.stats().written > 0);
        }
        reclaimer.stop();
        drop(pages);
        shared.fill(&[1; 9 * PAGE]);
    }
}

#[test]
fn there_is_one_of_a_shrinker() {
    let shared = shared::<Sieve>(64);
    let start = || Reclaimer::start(shared.arena.clone(), shared.shrinker.clone());
    let first = start().expect("a thread");
    assert_eq!(start().expect_err("a second").kind(), ErrorKind::AlreadyExists);
    first.stop();
    start().expect("another, when the first has ended").stop();
    drop(start().expect("once more"));
}

/// The end of one is not the end of the next, however soon that comes.
#[test]
fn the_next_goes_on() {
    let shared = shared::<Sieve>(64);
    let start = || Reclaimer::start(shared.arena.clone(), shared.shrinker.clone());
    let mut one = start().expect("a thread");
    for _ in 0..50 {
        let next = thread::scope(|scope| {
            scope.spawn(|| one.stop());
            loop {
                if let Ok(next) = start() {
                    break next;
                }
            }
        });
        // If it has ended another could start.
        thread::sleep(Duration::from_millis(1));
        assert_eq!(start().expect_err("it runs").kind(), ErrorKind::AlreadyExists);
        one = next;
    }
}

struct InZones;

impl zonal_cache::Setup for InZones {
    type Host = Threads;
    type Frames = ArenaFrames<SplitZones>;
    type Evict = S3Fifo;
    type Lru = zonal_cache::lru::Whole;
}

/// Of one list for all, those pages go that are of the zone that is short.
#[test]
fn pages_of_other_zones_stay() {
    let shrinker = Arc::new(Shrinker::new());
    let arena = Arena::builder().bytes(64 << 20).pager(shrinker.clone());
    let arena = Arc::new(arena.preset::<SplitZones>().open().expect("an arena"));
    let options = Options { pages: 16_000, ..Options::default() };
    let frames = ArenaFrames::new(arena.clone());
    let cache = PageCache::<InZones>::with_parts(Threads::new(), frames, options).expect("one");
    shrinker.attach(&cache);
    let file = cache.open(MemoryStore::from(vec![1; 16_000 * PAGE])).expect("a file");
    assert_eq!(file.read_at(&mut vec![0; 16_000 * PAGE], 0), Ok(16_000 * PAGE));
    let zones = (0..arena.zone_count() as u8).map(ZoneId);
    let mut used =
        zones.filter(|&zone| arena.zone_info(zone).is_some_and(|info| info.managed > 4000));
    let short = used.next_back().expect("a zone with memory");
    let reclaimer = Reclaimer::start(arena.clone(), shrinker.clone()).expect("a thread");
    let (free, _) = arena.zone_level(short).expect("a zone");
    let marks = Watermarks { min: free, low: free + 100, high: free + 900 };
    // SAFETY: nothing is allocated or freed by it.
    assert!(unsafe { arena.allocator() }.set_watermarks(short, marks));
    shrinker.wake_reclaim(short);
    let start = Instant::now();
    while arena.zone_level(short).is_some_and(|(free, _)| free < marks.high) {
        assert!(start.elapsed() < Duration::from_secs(20));
        thread::sleep(Duration::from_millis(1));
    }
    reclaimer.stop();
    for (number, zone) in (0..).zip(cache.reclaim_by_zone()) {
        let went = zone.background.reclaimed;
        assert_eq!(went >= 500, number == short.0, "{number}: {zone:?}");
        assert_eq!((went > 0, zone.direct.scanned), (number == short.0, 0), "{number}: {zone:?}");
    }
}
