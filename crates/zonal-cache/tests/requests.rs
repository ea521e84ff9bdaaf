//! Requests of many pages: what is asked for at once, and what is read behind it.

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;
use std::thread;
use std::time::{Duration, Instant};
use zonal_cache::store::{Store, StoreError};
use zonal_cache::{Advice, Cache, CacheFile, MemoryStore, S3Fifo};

const PAGE: usize = 4096;

fn numbered(pages: usize) -> MemoryStore {
    MemoryStore::from((0..pages).flat_map(|page| [(page % 251) as u8; PAGE]).collect::<Vec<u8>>())
}

fn read(file: &CacheFile<S3Fifo>, first: usize, pages: usize) {
    let mut bytes = vec![0; pages * PAGE];
    assert_eq!(file.read_at(&mut bytes, (first * PAGE) as u64), Ok(bytes.len()));
    for (at, page) in bytes.chunks(PAGE).enumerate() {
        assert!(page.iter().all(|&byte| byte == ((first + at) % 251) as u8), "page {}", first + at);
    }
}

/// A request has a window behind it, however long it is, as far as both together are an eighth of the memory.
#[test]
fn a_stream_of_long_requests_is_read_ahead() {
    for (bound, pages) in
        [(4096_usize, 32_usize), (4096, 63), (4096, 64), (4096, 65), (16384, 256), (256, 4)]
    {
        let cache = Cache::<S3Fifo>::builder().memory(bound * PAGE).io_threads(0).open().unwrap();
        let file = cache.open(numbered(2048)).unwrap();
        let window = ((2 * pages).next_power_of_two() - pages).min(pages.max(64)) as u64;
        read(&file, 0, pages);
        assert_eq!(cache.stats().read, pages as u64 + window, "{pages} pages of {bound}");
        for first in (pages..2048 / pages * pages).step_by(pages) {
            let there = cache.stats().read;
            assert!(there > first as u64, "the begin of request {} of {pages}", first / pages);
            read(&file, first, pages);
        }
        assert!(cache.stats().read <= 2048, "none twice: {:?}", cache.stats());
    }
}

#[test]
fn long_requests_here_and_there_read_what_they_ask_for() {
    for advice in [Advice::Normal, Advice::Random] {
        for io_threads in [0, 2] {
            let cache = Cache::<S3Fifo>::builder()
                .memory(4096 * PAGE)
                .io_threads(io_threads)
                .open()
                .unwrap();
            let file = cache.open(numbered(4096)).unwrap();
            file.advise(advice);
            for (at, first) in [3000, 100, 2000, 1000].into_iter().enumerate() {
                read(&file, first, 600);
                assert_eq!(cache.stats().read, 600 * (at as u64 + 1), "{advice:?}");
            }
        }
    }
}

/// Bytes that come only once several are on their way.
struct Together {
    inner: MemoryStore,
    inside: AtomicUsize,
    most: AtomicUsize,
}

impl Store for &'static Together {
    fn len(&self) -> Result<u64, StoreError> {
        self.inner.len()
    }
    fn read(&self, offset: u64, pages: &mut [&mut [u8]]) -> Result<u64, StoreError> {
        self.inside.fetch_add(1, SeqCst);
        let since = Instant::now();
        while self.most.load(SeqCst) < 3 && since.elapsed() < Duration::from_secs(20) {
            self.most.fetch_max(self.inside.load(SeqCst), SeqCst);
            thread::yield_now();
        }
        self.inside.fetch_sub(1, SeqCst);
        self.inner.read(offset, pages)
    }
    fn write(&self, offset: u64, pages: &[&[u8]]) -> Result<(), StoreError> {
        self.inner.write(offset, pages)
    }
    fn set_len(&self, len: u64) -> Result<(), StoreError> {
        self.inner.set_len(len)
    }
    fn flush(&self) -> Result<(), StoreError> {
        self.inner.flush()
    }
}

#[test]
fn parts_of_a_long_request_are_read_at_the_same_time() {
    let store: &'static Together = Box::leak(Box::new(Together {
        inner: numbered(1024),
        inside: AtomicUsize::new(0),
        most: AtomicUsize::new(0),
    }));
    let cache = Cache::<S3Fifo>::builder().memory(4096 * PAGE).io_threads(2).open().unwrap();
    let file = cache.open(store).unwrap();
    file.advise(Advice::Random);
    read(&file, 500, 256);
    assert_eq!(store.most.load(SeqCst), 3, "the thread that asked, and both of the cache's");
}
