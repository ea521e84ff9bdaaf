//! What a cache says of itself: pages that came back, and what its stores could not do.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use zonal_cache::evict::Evict;
use zonal_cache::faulty_store::Operation;
use zonal_cache::store::{Store, StoreError};
use zonal_cache::{
    Advice, Cache, CacheError, CacheFile, FaultyStore, MemoryStore, MultiGen, S3Fifo, Sieve, Stats,
    TwoLists,
};

const PAGE: usize = 4096;
const FRAMES: usize = 64;
const IO: Result<(), CacheError> = Err(CacheError::Store(StoreError::IO));

fn cache<E: Evict>() -> Cache<E> {
    Cache::builder().memory(FRAMES * PAGE).io_threads(0).open().expect("a cache")
}

/// A file of `pages` pages, read one by one, whose store fails each of its first `times` operations that `which` is of.
fn failing(
    cache: &Cache<S3Fifo>,
    pages: usize,
    times: u32,
    which: fn(Operation) -> bool,
) -> CacheFile<S3Fifo> {
    let left = AtomicU32::new(times);
    let fault = move |operation| {
        let fails = which(operation)
            && left.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok();
        fails.then_some(StoreError::IO)
    };
    let store = FaultyStore::new(MemoryStore::from(vec![1; pages * PAGE]), fault);
    let file = cache.open(store).expect("a file");
    file.advise(Advice::Random);
    file
}

fn read<E: Evict>(file: &CacheFile<E>, index: usize) -> Result<(), CacheError> {
    file.read_at(&mut [0; PAGE], (index * PAGE) as u64).map(drop)
}

/// Of a loop, which is a quarter longer than the cache.
fn in_a_loop<E: Evict>(turns: usize) -> Stats {
    const PAGES: usize = FRAMES + FRAMES / 4;
    let cache = cache::<E>();
    let file = cache.open(MemoryStore::from(vec![1; PAGES * PAGE])).expect("a file");
    file.advise(Advice::Random);
    (0..turns * PAGES).for_each(|at| read(&file, at % PAGES).expect("it is read"));
    let stats = cache.stats();
    let lists: u64 = cache.lists().iter().map(|list| list.refaults).sum();
    assert_eq!(lists, stats.refaults);
    let again = stats.read - PAGES as u64;
    assert!(stats.refaults <= again, "{} of {again}", stats.refaults);
    stats
}

#[test]
fn pages_that_come_back_soon_are_counted_by_policies_that_remember_them() {
    assert_eq!(in_a_loop::<TwoLists>(1).refaults, 0, "all are new");
    let (lists, s3, gens) =
        (in_a_loop::<TwoLists>(5), in_a_loop::<S3Fifo>(5), in_a_loop::<MultiGen>(5));
    // All go from its inactive list.
    let again = lists.read - (FRAMES + FRAMES / 4) as u64;
    assert!(lists.refaults * 10 >= again * 9, "{} of {again}", lists.refaults);
    assert!(s3.refaults > 0, "{s3:?}");
    assert!(gens.refaults > 0, "{gens:?}");
    let sieve = in_a_loop::<Sieve>(5);
    assert_eq!(sieve.refaults, 0, "it remembers none: {sieve:?}");
}

#[test]
fn reads_that_fail_are_counted() {
    let cache = cache();
    let file = failing(&cache, 8, 2, |operation| matches!(operation, Operation::Read { .. }));
    assert_eq!(read(&file, 5), IO);
    // A part of a page is to be written.
    assert_eq!(file.write_at(&[2], 0).map(drop), IO);
    assert_eq!((cache.stats().read_errors, cache.stats().reads), (2, 0));
    assert_eq!(read(&file, 5), Ok(()));
    let stats = cache.stats();
    assert_eq!((stats.read_errors, stats.reads), (2, 1));
    assert_eq!((stats.write_errors, stats.flush_errors, stats.lost), (0, 0, 0));
}

#[test]
fn what_a_store_has_no_more_is_a_read_that_failed() {
    let cache = cache::<S3Fifo>();
    let store = Arc::new(MemoryStore::from(vec![1; 8 * PAGE]));
    let file = cache.open(store.clone()).expect("a file");
    file.advise(Advice::Random);
    store.set_len(3 * PAGE as u64).expect("it is shorter");
    assert_eq!(read(&file, 5), Err(CacheError::Store(StoreError::SHRUNK)));
    assert_eq!(read(&file, 2), Ok(()));
    assert_eq!(cache.stats().read_errors, 1);
}

#[test]
fn writes_that_fail_are_counted() {
    let cache = cache();
    let file = failing(&cache, 8, 1, |operation| matches!(operation, Operation::Write { .. }));
    file.write_at(&[2; PAGE], 0).expect("it is dirty");
    assert_eq!(file.sync(), IO);
    let stats = cache.stats();
    assert_eq!((stats.write_errors, stats.writes, stats.written), (1, 1, 0));
    assert_eq!(file.sync(), Ok(()));
    let stats = cache.stats();
    assert_eq!((stats.write_errors, stats.writes, stats.written), (1, 2, 1));
    assert_eq!((stats.read_errors, stats.flush_errors, stats.lost), (0, 0, 0));
}

#[test]
fn what_a_flush_loses_is_counted() {
    let cache = cache();
    let flush = |operation| matches!(operation, Operation::Flush);
    let files = [failing(&cache, 0, 1, flush), failing(&cache, 0, 1, flush)];
    for (file, pages) in files.iter().zip([2 * FRAMES, FRAMES]) {
        (0..pages).for_each(|index| {
            file.write_at(&[2; PAGE], (index * PAGE) as u64).expect("it is dirty");
        });
    }
    for file in &files {
        assert_eq!(file.sync(), IO);
        assert_eq!(file.sync(), Ok(()));
    }
    let stats = cache.stats();
    let lost = files.each_ref().map(CacheFile::lost_pages);
    assert!(lost[0] > 0, "some had left memory");
    assert_eq!((stats.flush_errors, stats.lost), (2, lost[0] + lost[1]));
    assert_eq!((stats.read_errors, stats.write_errors), (0, 0));
}
