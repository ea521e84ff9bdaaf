//! Anonymous pages: beside a vector of bytes, and what is reclaimed of them.

use proptest::prelude::*;
use std::sync::{Arc, Mutex};
use zonal_cache::cache::Options;
use zonal_cache::evict::Evict;
use zonal_cache::lru::{LruLock, PerOwner, Whole};
use zonal_cache::store::{Store, StoreError};
use zonal_cache::threads::{OnThreads, Threads};
use zonal_cache::{
    AnonRegion, ArenaFrames, Cache, CacheError, File, MemoryStore, MultiGen, PageCache, S3Fifo,
    Setup, Sieve, TwoLists,
};
use zonal_host::Arena;

const PAGE: usize = 4096;
/// Pages of a region.
const PAGES: usize = 24;
const BOUND: usize = 32;

fn cache<E: Evict, L: LruLock>(swappiness: u8) -> Cache<E, L> {
    let arena = Arc::new(Arena::builder().bytes(256 * PAGE).open().expect("an arena"));
    let options = Options { pages: BOUND, window: 0, swappiness, ..Options::default() };
    let frames = ArenaFrames::new(arena);
    PageCache::<OnThreads<E, L>>::with_parts(Threads::new(), frames, options).expect("a cache")
}

fn steps() -> impl Strategy<Value = Vec<(u8, usize, usize, u8)>> {
    prop::collection::vec((0_u8..8, 0..PAGES * PAGE, 1_usize..9000, 1_u8..=255), 0..120)
}

/// Random writes, reads, pins and discards of two regions, and a file that is read beside them.
fn is_a_vector<E: Evict, L: LruLock>(
    steps: &[(u8, usize, usize, u8)],
) -> Result<(), TestCaseError> {
    let cache = cache::<E, L>(60);
    let file = cache.open(MemoryStore::from(vec![3; 40 * PAGE])).expect("a file");
    let old = MemoryStore::from(vec![9; 50 * PAGE]);
    // The first may have all of its pages in memory, and the others still some.
    let regions = [
        cache.anon((PAGES * PAGE / 2) as u64).expect("a region"),
        cache.anon_on((PAGES * PAGE) as u64, old).expect("a region"),
    ];
    let mut models = regions.each_ref().map(|region| vec![0_u8; region.len() as usize]);
    for &(what, at, len, byte) in steps {
        let which = usize::from(what & 1);
        let (region, model) = (&regions[which], &mut models[which]);
        let start = at % model.len();
        let range = start..(start + len).min(model.len());
        let bytes = range.start as u64..range.end as u64;
        match what / 2 {
            0 => {
                region.write_at(&vec![byte; range.len()], bytes.start).expect("room");
                model[range].fill(byte);
            }
            1 => {
                let mut read = vec![0xEE; range.len()];
                region.read_at(&mut read, bytes.start).expect("room");
                prop_assert!(read == model[range]);
            }
            2 => {
                let pinned = region.pin(bytes.clone()).expect("room");
                region.write_at(&[byte], bytes.start).expect("room for a copy");
                let seen: Vec<u8> = pinned.pieces().flatten().copied().collect();
                prop_assert!(seen == model[range.clone()]);
                model[range.start] = byte;
            }
            _ if byte > 128 => {
                region.discard(bytes).expect("room");
                model[range].fill(0);
            }
            _ => {
                let mut read = [0; PAGE];
                let page = at % 40 * PAGE;
                prop_assert_eq!(file.read_at(&mut read, page as u64), Ok(PAGE));
                prop_assert!(read.iter().all(|&byte| byte == 3));
            }
        }
        let (lists, stats) = (cache.lists(), cache.stats());
        let listed: usize = lists.iter().map(|it| it.file + it.anon + it.unevictable).sum();
        prop_assert_eq!(listed + cache.waiting(), stats.used, "{:?} {:?}", lists, stats);
        let stuck: usize = lists.iter().map(|list| list.unevictable).sum();
        prop_assert!(stuck <= regions[0].resident(), "{:?}", lists);
        prop_assert!(stuck + cache.waiting() >= regions[0].resident(), "{:?}", lists);
    }
    drop((regions, file));
    prop_assert_eq!(cache.stats().used, 0);
    prop_assert_eq!(cache.stats().dirty, 0);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        cases: 24,
        ..ProptestConfig::default()
    })]
    #[test]
    fn regions_are_vectors_of_bytes(steps in steps()) {
        is_a_vector::<TwoLists, Whole>(&steps)?;
        is_a_vector::<TwoLists, PerOwner<4, 4>>(&steps)?;
        is_a_vector::<S3Fifo, Whole>(&steps)?;
        is_a_vector::<Sieve, PerOwner<4, 4>>(&steps)?;
        is_a_vector::<MultiGen, Whole>(&steps)?;
    }
}

fn touch<S: Setup>(region: &AnonRegion<S>, pages: usize) {
    (0..pages).for_each(|page| region.write_at(&[1], (page * PAGE) as u64).expect("room"));
}

#[test]
fn without_a_store_pages_stay() {
    let cache = cache::<TwoLists, PerOwner<4, 4>>(60);
    let region = cache.anon((BOUND * PAGE) as u64).unwrap();
    touch(&region, 20);
    let file = cache.open(MemoryStore::from(vec![1; 40 * PAGE])).unwrap();
    file.read_at(&mut vec![0; 40 * PAGE], 0).unwrap();
    cache.reclaim(usize::MAX);
    assert_eq!((cache.stats().used, region.resident(), cache.stats().dirty), (20, 20, 0));
    assert_eq!(cache.set_bound(16), Err(CacheError::InUse { asked: 16, bound: 20 }));
    cache.set_bound(BOUND).unwrap();
    touch(&region, BOUND);
    let full = file.read_at(&mut [0], 0);
    assert_eq!(full, Err(CacheError::NoRoom { bound: BOUND }));
    region.discard(0..PAGE as u64).unwrap();
    assert_eq!(file.read_at(&mut [0], 0), Ok(1));
    let mut read = vec![0; PAGE * 2];
    assert_eq!(region.read_at(&mut read, PAGE as u64), Ok(()));
    assert!(read[0] == 1 && read[PAGE] == 1);
    drop(region);
    assert_eq!(cache.stats().used, 1);
}

/// What a store is asked for, but for reads and writes.
#[derive(Default)]
struct Asked {
    store: MemoryStore,
    lens: Mutex<Vec<u64>>,
    zeroed: Mutex<Vec<(u64, u64)>>,
}

impl Store for Asked {
    fn len(&self) -> Result<u64, StoreError> {
        self.store.len()
    }
    fn read(&self, offset: u64, pages: &mut [&mut [u8]]) -> Result<u64, StoreError> {
        self.store.read(offset, pages)
    }
    fn write(&self, offset: u64, pages: &[&[u8]]) -> Result<(), StoreError> {
        self.store.write(offset, pages)
    }
    fn set_len(&self, len: u64) -> Result<(), StoreError> {
        self.lens.lock().unwrap().push(len);
        if len > 1 << 30 { Err(StoreError::NO_SPACE) } else { self.store.set_len(len) }
    }
    fn zero(&self, offset: u64, len: u64) -> Result<(), StoreError> {
        self.zeroed.lock().unwrap().push((offset, len));
        self.store.zero(offset, len)
    }
    fn flush(&self) -> Result<(), StoreError> {
        self.store.flush()
    }
}

#[test]
fn a_discard_makes_a_store_no_longer() {
    let cache = cache::<TwoLists, Whole>(60);
    let asked = Arc::new(Asked::default());
    let region = cache.anon_on(1 << 50, asked.clone()).unwrap();
    let page = PAGE as u64;
    region.write_at(&[7; 3 * PAGE], page << 30).unwrap();
    region.discard(page << 30..(page << 30) + page).unwrap();
    assert_eq!((region.resident(), asked.lens.lock().unwrap().len()), (2, 0));
    region.discard(0..1 << 50).unwrap();
    // Some go to the store.
    (0..60).for_each(|index| region.write_at(&[7; PAGE], index * page).unwrap());
    let stored = asked.store.len().unwrap();
    assert!(stored > 0);
    region.discard(page..1 << 50).unwrap();
    assert_eq!(asked.store.len(), Ok(stored));
    assert_eq!(*asked.lens.lock().unwrap(), [0], "cut before its first page, and no more");
    assert_eq!(*asked.zeroed.lock().unwrap(), [(page, stored - page)]);
    let mut read = vec![1; 2 * PAGE];
    region.read_at(&mut read, 0).unwrap();
    assert!(read[..PAGE] == [7; PAGE] && read[PAGE..] == [0; PAGE]);
}

#[test]
fn a_page_that_no_store_has_is_no_read() {
    let cache = cache::<TwoLists, Whole>(60);
    let region = cache.anon_on(1 << 20, MemoryStore::default()).unwrap();
    region.read_at(&mut vec![1; 1 << 20], 0).unwrap();
    let kept = cache.anon((4 * PAGE) as u64).unwrap();
    kept.read_at(&mut [1; 4 * PAGE], 0).unwrap();
    assert_eq!((cache.stats().reads, cache.stats().read), (0, 0));
}

#[test]
fn ranges_beyond_a_region_are_refused() {
    let cache = cache::<TwoLists, Whole>(60);
    let region = cache.anon(5000).unwrap();
    let beyond = |offset| Err(CacheError::BeyondRegion { offset, len: 5000 });
    assert_eq!(region.write_at(&[0; 2], 4999), beyond(4999));
    assert_eq!(region.read_at(&mut [0; 2], u64::MAX), beyond(u64::MAX));
    assert_eq!(region.pin(0..5001).map(drop), beyond(0));
    #[expect(clippy::reversed_empty_ranges, reason = "it is to be refused")]
    let reversed = region.pin(9..2).map(drop);
    assert_eq!(reversed, beyond(9));
    assert_eq!(region.discard(1..6000), beyond(1));
    assert_eq!((region.len(), region.resident()), (5000, 0));
    let too_large = cache.anon(1 << 63).map(drop);
    assert_eq!(too_large, Err(CacheError::OffsetTooLarge { offset: 1 << 63 }));
}

/// Anonymous pages of ten that went, with as many of both kinds and none used again.
fn anon_of_ten(swappiness: u8) -> usize {
    let cache = cache::<TwoLists, Whole>(swappiness);
    let region = cache.anon_on((16 * PAGE) as u64, MemoryStore::default()).unwrap();
    let file: File<_> = cache.open(MemoryStore::from(vec![1; 16 * PAGE])).unwrap();
    for page in 0..16 {
        // What was never written is clean, and zero.
        region.read_at(&mut [0; 8], (page * PAGE) as u64).unwrap();
        file.read_at(&mut [0; 8], (page * PAGE) as u64).unwrap();
    }
    assert_eq!((cache.lists()[0].file, cache.lists()[0].anon), (16, 16));
    assert_eq!(cache.reclaim(10), 10);
    16 - cache.lists()[0].anon
}

#[test]
fn swappiness_says_of_which_kind_pages_go() {
    assert_eq!((anon_of_ten(0), anon_of_ten(100), anon_of_ten(200)), (0, 5, 10));
    assert!((2..=4).contains(&anon_of_ten(60)), "{}", anon_of_ten(60));
}

#[test]
fn what_a_store_had_before_is_not_the_regions() {
    let cache = cache::<TwoLists, Whole>(60);
    let store = Arc::new(MemoryStore::from(vec![9; 40 * PAGE]));
    let region = cache.anon_on((60 * PAGE) as u64, store.clone()).unwrap();
    let mut page = [1; PAGE];
    region.read_at(&mut page, 0).unwrap();
    assert_eq!(page, [0; PAGE]);
    assert_eq!(store.bytes().len(), 40 * PAGE, "not touched yet");
    // More than there is room for.
    (0..60_usize).for_each(|at| region.write_at(&[at as u8; PAGE], (at * PAGE) as u64).unwrap());
    for at in 0..60 {
        region.read_at(&mut page, (at * PAGE) as u64).unwrap();
        assert_eq!(page, [at as u8; PAGE]);
    }
    assert!(cache.stats().written > 20);
    cache.sync().unwrap();
    assert!(cache.stats().dirty > 0, "what is anonymous need not last");
    let written = cache.stats().written;
    drop(region);
    assert_eq!(
        (cache.stats().written, cache.stats().used),
        (written, 0),
        "and is not written to go"
    );
}
