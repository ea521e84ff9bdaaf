//! Threads under load: four that read, write, pin and sync, one that changes lengths and the bound, with
//! room for an eighth of the file and a store that fails now and then. Every byte that is read is looked at,
//! and the bound is watched all the time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};
use zonal::ZoneId;
use zonal_cache::evict::Evict;
use zonal_cache::store::StoreError;
use zonal_cache::{
    Cache, CacheError, CacheFile, FaultyStore, MemoryStore, MultiGen, S3Fifo, Sieve, TwoLists,
};

const PAGE: usize = 4096;
const PAGES: u64 = 512;
const BOUND: usize = 64;
const WRITERS: u64 = 4;
const STEPS: u64 = 4000;

fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// The page `index` in version `version`: number and version, over and over.
fn stamped(index: u64, version: u64) -> Vec<u8> {
    let stamp = [index.to_le_bytes(), version.to_le_bytes()].concat();
    stamp.repeat(PAGE / stamp.len())
}

/// The version of a page, if it is whole: all of one write.
fn version(bytes: &[u8], index: u64) -> u64 {
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight"));
    let version = word(8);
    if version == 0 && word(0) == 0 {
        assert!(bytes.iter().all(|&byte| byte == 0), "page {index} is torn");
        return 0;
    }
    assert_eq!(word(0), index, "the page of another place");
    assert!(bytes == stamped(index, version), "page {index} is torn");
    version
}

/// Steps of a thread that alone writes the pages that are `own` modulo [`WRITERS`].
fn work<E: Evict>(file: &CacheFile<E>, own: u64, versions: &mut [u64]) {
    let mut state = 0x9E37_79B9 + own;
    let mut bytes = vec![0; PAGE];
    for _ in 0..STEPS {
        let choice = random(&mut state) % 100;
        let index = random(&mut state) % PAGES;
        let mine = index / WRITERS * WRITERS + own;
        let offset = |index: u64| index * PAGE as u64;
        match choice {
            0..30 => {
                let new = versions[mine as usize] + 1;
                match file.write_at(&stamped(mine, new), offset(mine)) {
                    Ok(done) => {
                        assert_eq!(done, PAGE);
                        versions[mine as usize] = new;
                    }
                    Err(error) => assert!(matches!(error, CacheError::NoRoom { .. }), "{error}"),
                }
            }
            30..80 => match file.read_at(&mut bytes, offset(index)) {
                Ok(got) => {
                    assert_eq!(got, PAGE);
                    let seen = version(&bytes, index);
                    if index % WRITERS == own {
                        assert_eq!(seen, versions[index as usize], "page {index}");
                    }
                }
                Err(error) => assert!(matches!(error, CacheError::Store(_)), "{error}"),
            },
            80..97 => {
                if let Ok(pinned) = file.pin(offset(index)..offset((index + 2).min(PAGES))) {
                    let pages = || pinned.pieces().flat_map(|piece| piece.chunks(PAGE));
                    let look = || pages().zip(index..).map(|(page, at)| version(page, at));
                    let before: Vec<u64> = look().collect();
                    thread::yield_now();
                    assert!(look().eq(before), "what is pinned has changed");
                }
            }
            97 => {
                file.invalidate(offset(index)..offset(index + 8));
            }
            98 => {
                let _ = file.sync_range(offset(index)..offset(index + 32));
            }
            _ => {
                let _ = file.sync();
            }
        }
    }
}

/// Everything at once; the store fails with one operation of `fails`.
fn load<E: Evict>(fails: u64) {
    let cache = Cache::<E>::builder().memory(BOUND * PAGE).io_threads(1).open().expect("a cache");
    let memory = Arc::new(MemoryStore::from(vec![0; PAGES as usize * PAGE]));
    let (well, turn) = (Arc::new(AtomicBool::new(false)), AtomicU64::new(1));
    let store = FaultyStore::new(memory.clone(), {
        let well = well.clone();
        move |_| {
            let number = turn.fetch_add(1, Relaxed);
            (number % fails == 0 && !well.load(Relaxed)).then_some(StoreError::IO)
        }
    });
    let file = cache.open(store).expect("a file");
    // Of another file, which becomes shorter and longer.
    let other = cache.open(MemoryStore::default()).expect("a file");
    let over = AtomicBool::new(false);
    let mut versions: Vec<Vec<u64>> = (0..WRITERS).map(|_| vec![0; PAGES as usize]).collect();
    thread::scope(|scope| {
        let workers: Vec<_> = (0..)
            .zip(&mut versions)
            .map(|(own, versions)| {
                let file = file.clone();
                scope.spawn(move || work(&file, own, versions))
            })
            .collect();
        scope.spawn(|| {
            let mut state = 77;
            while !over.load(Relaxed) {
                let len = random(&mut state) % (40 * PAGE as u64);
                let _ = other.write_at(&[1; 9000], len);
                let _ = other.truncate(random(&mut state) % (40 * PAGE as u64));
                let mut some = [0; 5000];
                let _ = other.read_at(&mut some, len);
                assert!(some.iter().all(|&byte| byte <= 1));
                let _ = cache.set_bound(BOUND - (random(&mut state) % 16) as usize);
                // Frames first: what is in use in between may only become less.
                let zone = cache.frames().arena().zone_info(ZoneId(0)).expect("a zone");
                let used = zone.managed.saturating_sub(zone.free + zone.cached);
                assert!(used <= BOUND as u64, "{used} frames");
                assert!(cache.stats().used <= cache.stats().bound.max(BOUND));
            }
        });
        let results: Vec<_> = workers.into_iter().map(thread::ScopedJoinHandle::join).collect();
        over.store(true, Relaxed);
        results.into_iter().for_each(|result| result.expect("a worker"));
    });
    well.store(true, Relaxed);
    let _ = file.sync();
    file.sync().expect("the store is well");
    let durable = memory.durable();
    for index in 0..PAGES {
        let page = &durable[index as usize * PAGE..][..PAGE];
        let want = versions[(index % WRITERS) as usize][index as usize];
        assert_eq!(version(page, index), want, "page {index} of the store");
    }
    assert!(cache.stats().evicted > 1000);
    let arena = cache.frames().arena().clone();
    drop((file, other, cache));
    // A job may have the cache still, whose thread comes late.
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        let zone = arena.zone_info(ZoneId(0)).expect("a zone");
        if zone.free + zone.cached == zone.managed {
            return;
        }
        assert!(Instant::now() < end, "all frames are back, not {zone:?}");
        thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn two_lists() {
    load::<TwoLists>(200);
}

#[test]
fn s3_fifo() {
    load::<S3Fifo>(u64::MAX);
}

#[test]
fn s3_fifo_with_faults() {
    load::<S3Fifo>(50);
}

#[test]
fn sieve() {
    load::<Sieve>(200);
}

#[test]
fn multi_gen() {
    load::<MultiGen>(200);
}

#[test]
#[should_panic(expected = "torn")]
fn canary_a_page_of_two_writes_is_found() {
    let mut page = stamped(3, 7);
    page[PAGE / 2..].copy_from_slice(&stamped(3, 8)[PAGE / 2..]);
    version(&page, 3);
}

#[test]
#[should_panic(expected = "another place")]
fn canary_a_page_of_another_place_is_found() {
    version(&stamped(4, 7), 3);
}
