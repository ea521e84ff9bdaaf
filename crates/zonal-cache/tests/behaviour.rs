//! What is promised when nothing goes wrong: readahead, advice, the bound, lists of pages freed.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use zonal::ZoneId;
use zonal_cache::evict::Evict;
use zonal_cache::store::{Store, StoreError};
use zonal_cache::{
    Advice, Cache, CacheFile, FileStore, MemoryStore, MultiGen, S3Fifo, Sieve, TwoLists,
};

const PAGE: usize = 4096;

fn cache<E: Evict>(pages: usize, io_threads: usize) -> Cache<E> {
    Cache::builder().memory(pages * PAGE).io_threads(io_threads).open().expect("a cache")
}

fn numbered(pages: usize) -> Vec<u8> {
    (0..pages).flat_map(|page| [page as u8; PAGE]).collect()
}

fn read<E: Evict>(file: &CacheFile<E>, index: u64) {
    let mut bytes = [0; PAGE];
    assert_eq!(file.read_at(&mut bytes, index * PAGE as u64), Ok(PAGE));
    assert!(bytes.iter().all(|&byte| byte == index as u8));
}

#[test]
fn streams_are_read_ahead_and_random_reads_are_not() {
    for io_threads in [0, 2] {
        let cache = cache::<S3Fifo>(4096, io_threads);
        let file = cache.open(MemoryStore::from(numbered(1000))).unwrap();
        (0..1000).for_each(|index| read(&file, index));
        let stats = cache.stats();
        assert_eq!(stats.read, 1000, "each page once");
        assert!(stats.reads < 40, "{stats:?}");
        assert!(stats.ahead > 900, "{stats:?}");

        let other = cache.open(MemoryStore::from(numbered(1000))).unwrap();
        (1..101).for_each(|index| read(&other, index * 617 % 1000));
        assert_eq!(cache.stats().read - stats.read, 100);
    }
}

#[test]
fn advice_is_followed() {
    let cache = cache::<S3Fifo>(256, 0);
    let file = cache.open(MemoryStore::from(numbered(200))).unwrap();
    file.will_need(10 * PAGE as u64..20 * PAGE as u64);
    assert_eq!((cache.stats().read, cache.stats().used), (10, 10));
    (10..20).for_each(|index| read(&file, index));
    assert_eq!(cache.stats().read, 10);
    assert_eq!(file.invalidate(15 * PAGE as u64..u64::MAX), 5);
    assert_eq!(cache.stats().used, 5);

    file.advise(Advice::Random);
    read(&file, 0);
    read(&file, 1);
    assert_eq!(cache.stats().read, 12, "not ahead");

    let once = file.clone();
    once.advise(Advice::UseOnce);
    let used = cache.stats().used;
    (30..200).for_each(|index| read(&once, index));
    assert!(cache.stats().used <= used + 64, "a window at most: {:?}", cache.stats());
    file.invalidate(0..u64::MAX);
    assert_eq!(cache.stats().used, 0);
}

#[test]
fn what_is_used_once_goes_with_the_end_of_its_file() {
    let cache = cache::<S3Fifo>(64, 0);
    let file = cache.open(MemoryStore::from(vec![1; 3000])).unwrap();
    file.advise(Advice::UseOnce);
    assert_eq!(file.read_at(&mut [0; 3000], 0), Ok(3000));
    assert_eq!(cache.stats().used, 0);
    assert_eq!(file.read_at(&mut [0; 2000], 0), Ok(2000));
    assert_eq!(cache.stats().used, 1, "not read to its end");
    assert_eq!(file.read_at(&mut [0; PAGE], 2000), Ok(1000));
    assert_eq!(cache.stats().used, 0);
}

#[test]
fn a_stream_that_is_pinned_and_used_once_leaves_nothing_behind() {
    let cache = cache::<S3Fifo>(256, 0);
    let file = cache.open(MemoryStore::from(numbered(1000))).unwrap();
    let at = |index: u64| index * PAGE as u64;
    let hot = file.clone();
    hot.advise(Advice::Random);
    [400, 401].iter().for_each(|&index| read(&hot, index));
    file.advise(Advice::UseOnce);
    // Pages in three parts, single ones, several, and several at places that are aligned to nothing.
    for len in [1500, PAGE as u64, at(7), at(9) + 100] {
        let mut offset = 0;
        while offset < file.len() {
            let pinned = file.pin(offset..offset + len).unwrap();
            let bytes = pinned.pieces().flatten();
            assert!(bytes.zip(offset..).all(|(&byte, at)| byte == (at / PAGE as u64) as u8));
            offset += pinned.len() as u64;
            drop(pinned);
            // What is read ahead, the page that was not read to its end, and those that another handle has used.
            assert!(cache.stats().used <= 64 + 3, "{len}: {:?}", cache.stats());
        }
        assert_eq!(cache.stats().used, 2, "{len}: those that are used elsewhere");
    }
    let reads = cache.stats().read;
    [400, 401].iter().for_each(|&index| read(&hot, index));
    assert_eq!(cache.stats().read, reads);
}

#[test]
fn a_page_that_is_used_once_stays_while_it_is_pinned() {
    let cache = cache::<S3Fifo>(64, 0);
    let file = cache.open(MemoryStore::from(numbered(40))).unwrap();
    file.advise(Advice::UseOnce);
    let pinned = file.pin(0..PAGE as u64).unwrap();
    file.write_at(&[9], PAGE as u64).unwrap();
    drop(file.pin(0..2 * PAGE as u64).unwrap());
    assert_eq!(pinned.as_slice(), Some(&[0; PAGE][..]));
    assert_eq!(file.dirty_pages(), 1, "what is dirty stays");
    drop(pinned);
    file.advise(Advice::Random);
    drop(file.pin(20 * PAGE as u64..21 * PAGE as u64).unwrap());
    let reads = cache.stats().read;
    read(&file, 20);
    assert_eq!(cache.stats().read, reads, "another advice");
}

/// Requests for a stream of a file of 40 MiB, whose store had a number of pages when its first was read.
fn requests_of_a_stream(pages: usize) -> u64 {
    let cache = cache::<S3Fifo>(1024, 0);
    let file = cache.open(MemoryStore::from(numbered(pages))).unwrap();
    read(&file, 0);
    file.truncate(40 << 20).unwrap();
    (1..10_240).for_each(|index| assert_eq!(file.read_at(&mut [0; PAGE], index * 4096), Ok(PAGE)));
    cache.stats().reads
}

#[test]
fn a_file_that_grows_is_read_ahead_as_one_that_was_long() {
    let long = requests_of_a_stream(10_240);
    for pages in 1..4 {
        let grown = requests_of_a_stream(pages);
        assert!(grown <= long + 4, "{grown} and {long}, grown from {pages} pages");
    }
}

/// Pages of a file that are used all the time stay while another is read through, one for `hot_every` of it.
fn scan_resistance<E: Evict>(hot_every: u64) -> f64 {
    let cache = cache::<E>(128, 0);
    let hot = cache.open(MemoryStore::from(numbered(64))).unwrap();
    let scan = cache.open(MemoryStore::from(numbered(2000))).unwrap();
    hot.advise(Advice::Random);
    scan.advise(Advice::Random);
    for _ in 0..4 {
        (0..64).for_each(|index| read(&hot, index));
    }
    for index in 0..2000 {
        read(&scan, index);
        if index % hot_every == 0 {
            read(&hot, index / hot_every % 64);
        }
    }
    let before = cache.stats().read;
    (0..64).for_each(|index| read(&hot, index));
    1.0 - (cache.stats().read - before) as f64 / 64.0
}

#[test]
fn pages_in_use_survive_a_scan() {
    assert!(scan_resistance::<TwoLists>(4) > 0.9);
    assert!(scan_resistance::<S3Fifo>(4) > 0.9);
    assert!(scan_resistance::<Sieve>(4) > 0.9);
    // It keeps what comes again before it has been through two generations: what is used more often.
    assert!(scan_resistance::<MultiGen>(1) > 0.9);
}

/// Pages of a cache's arena that the system has memory for.
fn resident<E: Evict>(cache: &Cache<E>) -> usize {
    let arena = cache.frames().arena();
    let mut map = vec![0_u8; arena.len() / PAGE];
    let base = arena.address_of(arena.first()).unwrap();
    // SAFETY: the arena is mapped, and `map` has a byte for each page.
    let done = unsafe { libc::mincore(base.as_ptr().cast(), arena.len(), map.as_mut_ptr()) };
    assert_eq!(done, 0);
    map.iter().filter(|&&byte| byte & 1 == 1).count()
}

#[test]
fn a_bound_that_shrinks_gives_memory_back() {
    let pages = 4096;
    let cache = cache::<Sieve>(pages, 0);
    let file = cache.open(MemoryStore::from(vec![1; pages * PAGE])).unwrap();
    let mut all = vec![0; pages * PAGE];
    assert_eq!(file.read_at(&mut all, 0), Ok(all.len()));
    file.write_at(&[7; 9], 5).unwrap();
    assert_eq!(cache.stats().used, pages);
    assert!(resident(&cache) >= pages);
    cache.set_bound(16).unwrap();
    // Blocks of 2 MiB without a page that is left.
    assert!(resident(&cache) <= pages / 2, "{} pages", resident(&cache));
    let arena = cache.frames().arena();
    let zone = arena.zone_info(ZoneId(0)).unwrap();
    assert!(zone.managed - zone.free - zone.cached <= 16);
    assert!(cache.stats().used <= 16);
    assert_eq!(cache.bound_bytes(), 16 * PAGE);
    cache.set_bound(pages).unwrap();
    assert_eq!(file.read_at(&mut all, 0), Ok(all.len()));
    assert_eq!(all[5..14], [7; 9]);
    assert!(all[14..].iter().all(|&byte| byte == 1));
}

#[test]
fn truncated_pages_leave_in_a_list_and_are_not_written() {
    let cache = Cache::<TwoLists>::builder().memory(512 * PAGE).dirty_percent(100).open().unwrap();
    let file = cache.open(MemoryStore::default()).unwrap();
    file.write_at(&[1; 400 * PAGE], 0).unwrap();
    let before = cache.stats();
    file.truncate(100).unwrap();
    let after = cache.stats();
    assert_eq!(after.used, 1);
    assert!(after.freed - before.freed >= 399);
    assert_eq!((after.dirty, after.written), (1, before.written));
    file.truncate(5000).unwrap();
    let pinned = file.pin(0..5000).unwrap();
    let bytes: Vec<u8> = pinned.pieces().flatten().copied().collect();
    assert!(bytes[..100].iter().all(|&byte| byte == 1));
    assert!(bytes[100..].iter().all(|&byte| byte == 0));
    drop(pinned);
    file.unlink();
    assert_eq!((cache.stats().used, cache.stats().dirty), (0, 0));
}

#[test]
fn what_is_pinned_outlives_truncation() {
    let cache = cache::<S3Fifo>(32, 0);
    let file = cache.open(MemoryStore::from(numbered(10))).unwrap();
    let pinned = file.pin(3 * PAGE as u64..5 * PAGE as u64).unwrap();
    file.truncate(0).unwrap();
    assert_eq!(cache.stats().used, 2, "they count while they are pinned");
    file.write_at(&[9; 5 * PAGE], 0).unwrap();
    let bytes: Vec<u8> = pinned.pieces().flatten().copied().collect();
    assert_eq!(bytes, numbered(10)[3 * PAGE..5 * PAGE]);
    drop(pinned);
    assert_eq!(cache.stats().used, 5);
}

#[test]
fn real_files_keep_ragged_ends() {
    let directory = tempfile::tempdir().unwrap();
    for buffered in [false, true] {
        let path = directory.path().join("file");
        let store = FileStore::create(&path).unwrap();
        let store = if buffered { store.buffered() } else { store };
        let cache = cache::<S3Fifo>(32, 1);
        let file = cache.open(store).unwrap();
        let mut model = Vec::new();
        for (at, len, byte) in [(0, 10, 1), (5, 9000, 2), (8000, 70_000, 3), (100_000, 1, 4)] {
            file.write_at(&vec![byte; len], at as u64).unwrap();
            model.resize(model.len().max(at + len), 0);
            model[at..at + len].fill(byte);
            file.sync().unwrap();
            assert_eq!(std::fs::read(&path).unwrap(), model);
        }
        drop(file);
        let file = cache.open(FileStore::open(&path).unwrap()).unwrap();
        let mut bytes = vec![0; model.len() + 10];
        let mut got = 0;
        while got < model.len() {
            got += file.read_at(&mut bytes[got..], got as u64).unwrap();
        }
        assert_eq!(bytes[..got], model);
    }
}

#[test]
fn a_dirty_page_that_is_pinned_and_cut_is_still_dirty() {
    let cache = cache::<TwoLists>(32, 0);
    let memory = std::sync::Arc::new(MemoryStore::default());
    let file = cache.open(memory.clone()).unwrap();
    file.write_at(&[1; 100], 0).unwrap();
    let pinned = file.pin(0..100).unwrap();
    file.truncate(50).unwrap();
    file.sync().unwrap();
    assert_eq!(memory.durable(), [1; 50]);
    assert_eq!(pinned.as_slice(), Some(&[1; 100][..]));
}

/// A store that keeps which writes a sync waits for, and which not.
#[derive(Default)]
struct Told(MemoryStore, [AtomicU64; 2]);

impl Store for Told {
    fn len(&self) -> Result<u64, StoreError> {
        self.0.len()
    }
    fn read(&self, offset: u64, pages: &mut [&mut [u8]]) -> Result<u64, StoreError> {
        self.0.read(offset, pages)
    }
    fn write(&self, offset: u64, pages: &[&[u8]]) -> Result<(), StoreError> {
        self.1[0].fetch_add(pages.len() as u64, SeqCst);
        self.0.write(offset, pages)
    }
    fn write_sync(&self, offset: u64, pages: &[&[u8]]) -> Result<(), StoreError> {
        self.1[1].fetch_add(pages.len() as u64, SeqCst);
        self.0.write(offset, pages)
    }
    fn set_len(&self, len: u64) -> Result<(), StoreError> {
        self.0.set_len(len)
    }
    fn flush(&self) -> Result<(), StoreError> {
        self.0.flush()
    }
}

#[test]
fn a_store_is_told_which_writes_a_sync_waits_for() {
    let store = Arc::new(Told::default());
    let count = |which: usize| store.1[which].load(SeqCst);
    let cache = cache::<S3Fifo>(64, 0);
    let file = cache.open(store.clone()).unwrap();
    file.write_at(&[1; 3 * PAGE], 0).unwrap();
    file.sync().unwrap();
    assert_eq!((count(0), count(1)), (0, 3));
    file.write_at(&[2; PAGE], 0).unwrap();
    assert_eq!(file.write_older(Duration::ZERO), 1);
    assert_eq!((count(0), count(1)), (1, 3));
    // More than may be dirty: the writer writes some back.
    file.write_at(&vec![3; 40 * PAGE], 0).unwrap();
    assert!(count(0) > 1 && count(1) == 3);
    let behind = count(0);
    file.write_at(&[4; PAGE], 0).unwrap();
    drop(file);
    assert!(count(0) > behind && count(1) == 3, "no thread waits for what a file leaves");
}

/// What may be had later is no matter of what is there now.
#[test]
fn a_bound_that_may_be_raised_keeps_as_much_of_a_loop() {
    fn misses<L: zonal_cache::lru::LruLock>(most: usize) -> u64 {
        let cache = Cache::<S3Fifo, L>::builder().memory(100 * PAGE).most_memory(most * PAGE);
        let cache = cache.window(0).io_threads(0).open().unwrap();
        let file = cache.open(MemoryStore::from(vec![1; 140 * PAGE])).unwrap();
        for page in (0..20).flat_map(|_| 0..140) {
            assert_eq!(file.read_at(&mut [0; PAGE], page * PAGE as u64), Ok(PAGE));
        }
        cache.stats().read
    }
    // More is remembered of what went where more may come.
    let near = |one: u64, other: u64| assert!(one.abs_diff(other) < 20 * 140 / 20, "{one} {other}");
    let whole = misses::<zonal_cache::lru::Whole>;
    near(whole(1000), whole(100));
    assert!(whole(100) < 20 * 140 * 2 / 3, "it keeps some of it");
    let one_list_of_four = misses::<zonal_cache::lru::PerOwner<1, 4>>;
    near(one_list_of_four(1000), one_list_of_four(100));
}
