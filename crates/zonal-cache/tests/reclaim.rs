//! Pages that go because other users of the arena need frames.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use zonal::{Order, Request, ZoneId};
use zonal_cache::cache::Options;
use zonal_cache::evict::Evict;
use zonal_cache::threads::{OnThreads, Threads};
use zonal_cache::{
    ArenaFrames, Cache, MemoryStore, MultiGen, PageCache, S3Fifo, Shrinker, Sieve, TwoLists,
};
use zonal_host::{Arena, HugePages};

const PAGE: usize = 4096;
const FRAMES: usize = 1024;

/// A cache that may have all of an arena, and is asked for it back.
fn cache<E: Evict>(attached: bool) -> (Arc<Arena>, Cache<E>) {
    let shrinker = Arc::new(Shrinker::new());
    let arena = Arena::builder().bytes(FRAMES * PAGE).huge(HugePages::Never);
    let arena = Arc::new(arena.pager(shrinker.clone()).open().expect("an arena"));
    let options = Options { pages: FRAMES, ..Options::default() };
    let frames = ArenaFrames::new(arena.clone());
    let cache = PageCache::<OnThreads<E>>::with_parts(Threads::new(), frames, options);
    let cache = cache.expect("a cache");
    if attached {
        shrinker.attach(&cache);
    }
    (arena, cache)
}

fn bytes(pages: usize) -> Vec<u8> {
    (0..pages * PAGE).map(|at| (at / PAGE % 251) as u8).collect()
}

fn gives_all_back<E: Evict>() {
    let (arena, cache) = cache::<E>(true);
    let data = bytes(FRAMES);
    let file = cache.open(MemoryStore::from(data.clone())).expect("a file");
    let mut read = vec![0; data.len()];
    file.read_at(&mut read, 0).expect("read");
    assert!(cache.stats().used > FRAMES * 9 / 10, "{:?}", cache.stats());
    let pinned = file.pin(0..2 * PAGE as u64).expect("pinned");
    let mut dirty = file.clone();
    dirty.write_at(&[9; PAGE], 5 * PAGE as u64).expect("written");
    // What is left is less than a cluster, of which the CPUs' caches have some.
    let pages: Vec<_> = (0..FRAMES).map_while(|_| arena.alloc(&Request::frame()).ok()).collect();
    let stats = cache.stats();
    assert_eq!((pages.len(), stats.used), (FRAMES - 3, 3), "{}: {stats:?}", E::NAME);
    assert!(stats.reclaimed > 0 && stats.dirty == 1, "{stats:?}");
    assert!(
        pinned
            .pieces()
            .flat_map(|piece| piece.chunks(PAGE))
            .zip(0..)
            .all(|(page, at)| page.iter().all(|&byte| byte == at))
    );
    drop(pages);
    assert_eq!(file.read_at(&mut read, 0).expect("read again"), data.len());
    assert!(read[..5 * PAGE] == data[..5 * PAGE] && read[5 * PAGE] == 9);
    drop(pinned);
    dirty = file;
    dirty.sync().expect("synced");
    let huge = arena.alloc(&Request::new(Order::HUGE)).is_ok();
    assert!(huge || cache.stats().reclaimed > stats.reclaimed, "it was asked");
}

#[test]
fn two_lists_gives_all_back() {
    gives_all_back::<TwoLists>();
}

#[test]
fn s3_fifo_gives_all_back() {
    gives_all_back::<S3Fifo>();
}

#[test]
fn sieve_gives_all_back() {
    gives_all_back::<Sieve>();
}

#[test]
fn multi_gen_gives_all_back() {
    gives_all_back::<MultiGen>();
}

#[test]
fn a_cache_that_is_not_attached_keeps_its_pages() {
    let (arena, cache) = cache::<TwoLists>(false);
    let file = cache.open(MemoryStore::from(bytes(FRAMES))).expect("a file");
    file.read_at(&mut vec![0; FRAMES * PAGE], 0).expect("read");
    let used = cache.stats().used;
    while arena.alloc_raw(&Request::frame()).is_ok() {}
    assert_eq!((cache.stats().used, cache.stats().reclaimed), (used, 0));
}

/// A thread that reads through the cache and three that want frames of the arena, together more than there are now
/// and then: none is refused while pages are clean.
#[test]
fn readers_and_others_share_an_arena() {
    let (arena, cache) = cache::<TwoLists>(true);
    let data = bytes(2 * FRAMES);
    let file = cache.open(MemoryStore::from(data.clone())).expect("a file");
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let readers: Vec<_> = (0..2)
            .map(|start| {
                let (file, data, over) = (file.clone(), &data, &over);
                scope.spawn(move || {
                    let (mut at, mut rounds) = (start * 777, 0_u64);
                    let mut page = [0; PAGE];
                    while !over.load(Relaxed) {
                        at = (at * 5 + 13) % (2 * FRAMES);
                        assert_eq!(file.read_at(&mut page, (at * PAGE) as u64), Ok(PAGE));
                        assert!(page == data[at * PAGE..][..PAGE]);
                        rounds += 1;
                    }
                    rounds
                })
            })
            .collect();
        let others: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    for _ in 0..30 {
                        // Three times this is less than all but what readers need at once.
                        let take =
                            || arena.alloc(&Request::frame()).expect("clean pages are there");
                        let pages: Vec<_> = (0..FRAMES / 4).map(|_| take()).collect();
                        thread::yield_now();
                        drop(pages);
                    }
                })
            })
            .collect();
        let done: Vec<_> = others.into_iter().map(thread::ScopedJoinHandle::join).collect();
        over.store(true, Relaxed);
        done.into_iter().for_each(|it| it.expect("another user"));
        let rounds: u64 = readers.into_iter().map(|it| it.join().expect("a reader")).sum();
        assert!(rounds > 0);
    });
    assert!(cache.stats().reclaimed > 0, "{:?}", cache.stats());
    drop((file, cache));
    let zone = arena.zone_info(ZoneId(0)).expect("a zone");
    assert_eq!(zone.free + zone.cached, zone.managed, "all frames are back");
}
