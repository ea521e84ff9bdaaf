//! Reads ahead on an `io_uring`: the same bytes, the same errors, and nothing left when the cache goes.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::thread;
use zonal_cache::faulty_store::{FaultyStore, Operation, Outcome};
use zonal_cache::store::{Purpose, Store, StoreError, Write};
use zonal_cache::{Advice, Cache, CacheError, FileStore, Ring, S3Fifo};

const PAGE: usize = 4096;

/// A ring, or `None` with a line that says that the test was not run.
fn ring(depth: u32) -> Option<Arc<Ring>> {
    Ring::new(depth).inspect_err(|error| eprintln!("not run: no io_uring: {error}")).ok()
}

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at / 5) as u8 ^ (at >> 12) as u8).collect()
}

#[test]
fn streams_are_what_the_file_is() {
    let Some(ring) = ring(4) else { return };
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    let all = bytes(700 * PAGE + 123);
    fs::write(&path, &all).unwrap();
    for buffered in [false, true] {
        let cache = Cache::<S3Fifo>::builder().memory(256 * PAGE).window(128).open().unwrap();
        let store = FileStore::open(&path).unwrap().with_ring(Some(ring.clone()));
        let store = if buffered { store.buffered() } else { store };
        let file = cache.open(store).unwrap();
        thread::scope(|scope| {
            for piece in [1000, PAGE, 10 * PAGE] {
                let (file, all) = (file.clone(), &all);
                scope.spawn(move || {
                    file.advise(if piece == PAGE { Advice::UseOnce } else { Advice::Sequential });
                    let (mut at, mut into) = (0, vec![0; piece]);
                    while at < all.len() {
                        let got = file.read_at(&mut into, at as u64).unwrap();
                        assert!(into[..got] == all[at..at + got], "at {at}");
                        at += got;
                    }
                });
            }
        });
        assert!(cache.stats().ahead > 0);
        assert!(cache.stats().used <= 256);
    }
}

/// As [`streams_are_what_the_file_is`], into registered buffers: also where the bound went down and up again, when memory would
/// have gone back to the system.
#[test]
fn registered_buffers_have_the_same_bytes() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    let all = bytes(2000 * PAGE + 123);
    fs::write(&path, &all).unwrap();
    let builder = Cache::<S3Fifo>::builder().memory(1024 * PAGE).most_memory(2048 * PAGE);
    let cache = builder.window(128).open().unwrap();
    let ring = Ring::with_buffers(32, cache.frames().arena());
    let Ok(ring) = ring.inspect_err(|error| eprintln!("not run: no io_uring: {error}")) else {
        return;
    };
    if ring.registered() == 0 {
        return eprintln!("not run: the kernel takes no buffers");
    }
    assert_eq!(ring.registered(), 2048 * PAGE, "what is reserved too");
    let store = FileStore::open(&path).unwrap().with_ring(Some(ring.clone()));
    let file = cache.open(store).unwrap();
    for bound in [2048, 16, 1024, 64, 2048] {
        cache.set_bound(bound).unwrap();
        for piece in [1000, 10 * PAGE] {
            file.invalidate(0..u64::MAX);
            let (mut at, mut into) = (0, vec![0; piece]);
            while at < all.len() {
                let got = file.read_at(&mut into, at as u64).unwrap();
                assert!(into[..got] == all[at..at + got], "at {at} of a bound of {bound}");
                at += got;
            }
        }
    }
    assert!(ring.fixed_reads() > 0, "windows are in a row");
    drop((file, cache));
    assert_eq!(ring.registered(), 2048 * PAGE, "the ring keeps the memory");
}

#[test]
fn a_cache_that_goes_waits_for_nothing() {
    let Some(ring) = ring(8) else { return };
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    let all = bytes(512 * PAGE);
    fs::write(&path, &all).unwrap();
    for round in 0..20 {
        let cache = Cache::<S3Fifo>::builder().memory(512 * PAGE).open().unwrap();
        let store = FileStore::open(&path).unwrap();
        let file = cache.open(store.with_ring(Some(ring.clone()))).unwrap();
        file.will_need(0..all.len() as u64);
        if round % 2 == 0 {
            file.truncate(all.len() as u64).unwrap();
            file.invalidate(0..u64::MAX);
        }
        // What is on its way ends when no handle is left.
    }
    let own = Ring::new(2).unwrap();
    let cache = Cache::<S3Fifo>::builder().memory(512 * PAGE).open().unwrap();
    let file = cache.open(FileStore::open(&path).unwrap().with_ring(Some(own))).unwrap();
    let mut into = vec![0; all.len()];
    assert_eq!(file.read_at(&mut into, 0), Ok(all.len()));
    assert!(into == all);
}

#[test]
fn a_file_that_shrinks_is_an_error_of_what_is_lost() {
    let Some(ring) = ring(8) else { return };
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    fs::write(&path, bytes(512 * PAGE)).unwrap();
    let cache = Cache::<S3Fifo>::builder().memory(512 * PAGE).open().unwrap();
    let file = cache.open(FileStore::open(&path).unwrap().with_ring(Some(ring))).unwrap();
    fs::File::options().write(true).open(&path).unwrap().set_len(100 * PAGE as u64).unwrap();
    file.will_need(0..512 * PAGE as u64);
    let mut page = [0; PAGE];
    for index in 0..512 {
        let read = file.read_at(&mut page, index * PAGE as u64);
        let lost = Err(CacheError::Store(StoreError::SHRUNK));
        assert_eq!(read, if index < 100 { Ok(PAGE) } else { lost }, "page {index}");
    }
}

/// Reads on their way have the faults of a store that fails on demand, by the thread of the ring. They are no reader's.
#[test]
fn reads_on_their_way_have_faults_and_are_made_again() {
    let Some(ring) = ring(8) else { return };
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    let all = bytes(200 * PAGE + 123);
    fs::write(&path, &all).unwrap();
    let asked = Arc::new(AtomicU32::new(0));
    let fault = {
        let asked = asked.clone();
        move |_| match thread::current().name() {
            Some("cache-ring") if asked.fetch_add(1, Relaxed).is_multiple_of(2) => {
                Outcome::Fails(StoreError::IO)
            }
            Some("cache-ring") => Outcome::Short(PAGE as u64 + 100),
            _ => Outcome::Whole,
        }
    };
    let cache = Cache::<S3Fifo>::builder().memory(256 * PAGE).window(16).open().unwrap();
    let store = FileStore::open(&path).unwrap().with_ring(Some(ring));
    let file = cache.open(FaultyStore::new(store, fault)).unwrap();
    file.will_need(0..all.len() as u64);
    let mut into = vec![0; all.len()];
    assert_eq!(file.read_at(&mut into, 0), Ok(all.len()));
    assert!(into == all);
    assert!(asked.load(Relaxed) > 1, "the ring has ended {asked:?}");
}

/// Notes how many writes it was given together at most.
struct Noted(FileStore, Arc<AtomicU32>);

impl Store for Noted {
    fn len(&self) -> Result<u64, StoreError> {
        self.0.len()
    }
    fn read(&self, offset: u64, pages: &mut [&mut [u8]]) -> Result<u64, StoreError> {
        self.0.read(offset, pages)
    }
    fn write(&self, offset: u64, pages: &[&[u8]]) -> Result<(), StoreError> {
        self.0.write(offset, pages)
    }
    fn writes_at_once(&self) -> usize {
        self.0.writes_at_once()
    }
    fn write_each(
        &self,
        writes: &[Write<'_>],
        purpose: Purpose,
        ended: &mut dyn FnMut(usize, Result<(), StoreError>),
    ) {
        self.1.fetch_max(writes.len() as u32, Relaxed);
        self.0.write_each(writes, purpose, ended);
    }
    fn set_len(&self, len: u64) -> Result<(), StoreError> {
        self.0.set_len(len)
    }
    fn flush(&self) -> Result<(), StoreError> {
        self.0.flush()
    }
}

/// Dirty pages that are no neighbours are on their way together; those of which the store refuses one are told, and the
/// others are there. The end of the file is no whole page.
#[test]
fn scattered_pages_are_written_together() {
    let Some(ring) = ring(64) else { return };
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    let mut all = bytes(500 * PAGE + 123);
    fs::write(&path, &all).unwrap();
    for buffered in [false, true] {
        let store = FileStore::open(&path).unwrap().with_ring(Some(ring.clone()));
        let store = if buffered { store.buffered() } else { store };
        let (most, broken) = (Arc::<AtomicU32>::default(), Arc::new(AtomicU32::new(1)));
        let fault = {
            let broken = broken.clone();
            let bad = 30 * PAGE as u64;
            move |operation| match operation {
                Operation::Write { offset, .. } if offset == bad && broken.load(Relaxed) == 1 => {
                    Outcome::Fails(StoreError::NO_SPACE)
                }
                _ => Outcome::Whole,
            }
        };
        let store = FaultyStore::new(Noted(store, most.clone()), fault);
        let cache = Cache::<S3Fifo>::builder().memory(1024 * PAGE).io_threads(0).open().unwrap();
        let file = cache.open(store).unwrap();
        for page in (0..=500).step_by(5) {
            all[page * PAGE] ^= 0x55;
            file.write_at(&all[page * PAGE..page * PAGE + 1], (page * PAGE) as u64).unwrap();
        }
        assert_eq!(file.sync(), Err(CacheError::Store(StoreError::NO_SPACE)));
        assert_eq!(file.dirty_pages(), 1);
        let written = fs::read(&path).unwrap();
        let differs = |&page: &usize| written[page * PAGE] != all[page * PAGE];
        assert_eq!((0..=500).filter(differs).collect::<Vec<_>>(), [30]);
        broken.store(0, Relaxed);
        assert_eq!(file.sync(), Ok(()));
        assert!(fs::read(&path).unwrap() == all);
        let stats = cache.stats();
        assert_eq!((stats.written, stats.writes, stats.write_errors), (101, 102, 1));
        assert!(most.load(Relaxed) > 16, "{most:?} at once");
    }
}

/// Writes of threads that have more on their way than the ring takes, beside reads ahead on it: no byte is lost.
#[test]
fn writes_and_reads_share_a_small_ring() {
    let Some(ring) = ring(4) else { return };
    let directory = tempfile::tempdir().unwrap();
    let cache = Cache::<S3Fifo>::builder().memory(96 * PAGE).window(16).open().unwrap();
    thread::scope(|scope| {
        for seed in 0..3_usize {
            let path = directory.path().join(seed.to_string());
            let mut all = bytes(200 * PAGE);
            fs::write(&path, &all).unwrap();
            let store = FileStore::open(&path).unwrap().with_ring(Some(ring.clone()));
            let file = cache.open(store).unwrap();
            scope.spawn(move || {
                for round in 0..20_usize {
                    for page in (0..200).filter(|page| (page * 7 + round + seed) % 3 == 0) {
                        all[page * PAGE + round] = round as u8;
                        let at = page * PAGE + round;
                        file.write_at(&all[at..=at], at as u64).unwrap();
                    }
                    file.sync().unwrap();
                    let mut into = vec![0; all.len()];
                    assert_eq!(file.read_at(&mut into, 0), Ok(all.len()));
                    assert!(into == all);
                }
                assert!(fs::read(&path).unwrap() == all);
            });
        }
    });
}
