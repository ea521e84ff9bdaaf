//! Threads that write, read, cut, unlink and sync one file, three of them syncing at once beside the thread that
//! writes behind, with room for a third of the file: what is read, and what lasts after a sync, is held against the history of
//! every half page.

use crate::history::{HALF, History};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};
use zonal_cache::evict::Evict;
use zonal_cache::{Cache, CacheError, CacheFile, MemoryStore, S3Fifo, TwoLists};

const PAGE: usize = 4096;
/// Half pages that the file has at most.
const HALVES: u64 = 120;
const BOUND: usize = 20;
const STEPS: u64 = 700;

struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

fn step<E: Evict>(file: &CacheFile<E>, history: &History, random: &mut Random) {
    let first = random.below(HALVES);
    let at = |half: u64| half * HALF as u64;
    match random.below(20) {
        0..9 => {
            let count = 1 + random.below(2 - first % 2);
            history.write(first..first + count, |bytes| match file.write_at(bytes, at(first)) {
                Ok(done) => done == bytes.len(),
                Err(CacheError::NoRoom { .. }) => false,
                Err(error) => panic!("{error}"),
            });
        }
        9..16 => {
            let mut bytes = vec![0xAA; HALF];
            let since = history.now();
            if let Ok(got) = file.read_at(&mut bytes, at(first)) {
                history.check("read", first, 1, &bytes[..got], since);
            }
        }
        16 => {
            file.invalidate(at(first)..at(first + 16));
        }
        17 => {
            let (first, end) = (first / 2 * 2, (first + random.below(9)) / 2 * 2);
            history.cut(first..end, || file.zero_range(at(first)..at(end)).is_ok());
        }
        _ => history.cut(first..HALVES, || file.truncate(at(first)).is_ok()),
    }
}

fn load<E: Evict>(unlinks: bool) {
    let cache = Cache::<E>::builder().memory(BOUND * PAGE).window(8);
    let cache = cache.write_behind(Duration::from_millis(10)).open().expect("a cache");
    let memory = Arc::new(MemoryStore::default());
    let file = cache.open(memory.clone()).expect("a file");
    let (history, over) = (History::default(), AtomicBool::new(false));
    thread::scope(|scope| {
        let workers: Vec<_> = (1..4_u64)
            .map(|seed| {
                let (file, history) = (file.clone(), &history);
                scope.spawn(move || {
                    let mut random = Random(seed * 0x9E37_79B9);
                    for turn in 0..STEPS {
                        step(&file, history, &mut random);
                        if unlinks && turn % 50 == 0 {
                            history.cut(0..HALVES, || {
                                file.clone().unlink();
                                true
                            });
                        }
                    }
                })
            })
            .collect();
        for whole in [true, false, false] {
            let (file, history, over, cache, memory) =
                (file.clone(), &history, &over, &cache, &memory);
            scope.spawn(move || {
                while !over.load(Relaxed) {
                    let since = history.now();
                    let done = if whole { cache.sync() } else { file.sync() };
                    done.expect("the store is well");
                    if !unlinks {
                        history.check("after a sync", 0, HALVES, &memory.durable(), since);
                    }
                }
            });
        }
        let done: Vec<_> = workers.into_iter().map(thread::ScopedJoinHandle::join).collect();
        over.store(true, Relaxed);
        done.into_iter().for_each(|it| it.expect("a worker"));
    });
    let since = history.now();
    history.write(HALVES - 1..HALVES, |bytes| {
        file.write_at(bytes, (HALVES - 1) * HALF as u64).expect("room") == bytes.len()
    });
    file.sync().expect("the store is well");
    let durable = memory.durable();
    assert_eq!(durable.len() as u64, file.len());
    history.check("at last", 0, HALVES, &durable, since);
    assert_eq!(cache.stats().dirty, 0);
}

#[test]
fn two_lists() {
    load::<TwoLists>(false);
}

#[test]
fn s3_fifo() {
    load::<S3Fifo>(false);
}

#[test]
fn unlinked() {
    load::<S3Fifo>(true);
}

/// What other handles write to an unlinked file does not bring back what it had.
#[test]
fn an_unlinked_file_that_is_written_again_has_nothing_of_before() {
    let cache = Cache::<TwoLists>::builder().memory(1 << 20).io_threads(0).open().expect("a cache");
    let memory = Arc::new(MemoryStore::from(vec![7; 10 * PAGE]));
    let file = cache.open(memory.clone()).expect("a file");
    file.clone().unlink();
    file.sync().expect("synced");
    assert_eq!(memory.durable().len(), 10 * PAGE, "the store is left as it is");
    file.write_at(&[1; PAGE], 3 * PAGE as u64).expect("written");
    file.sync().expect("synced");
    let want = [vec![0; 3 * PAGE], vec![1; PAGE]].concat();
    assert!(memory.durable() == want);
    let mut read = vec![9; 4 * PAGE];
    file.invalidate(0..u64::MAX);
    file.read_at(&mut read, 0).expect("read");
    assert!(read == want);
    file.clone().unlink();
    file.truncate(2 * PAGE as u64).expect("longer");
    assert!(memory.bytes() == vec![0; 2 * PAGE]);
}

#[test]
#[should_panic(expected = "which is old")]
fn canary_a_value_that_was_written_over_is_found() {
    let history = History::default();
    let mut first = Vec::new();
    history.write(3..4, |bytes| {
        first.extend_from_slice(bytes);
        true
    });
    history.check("read", 3, 1, &first, history.now());
    history.cut(0..9, || true);
    history.check("read", 3, 1, &first, history.now());
}

#[test]
#[should_panic(expected = "torn")]
fn canary_a_value_of_two_writes_is_found() {
    let history = History::default();
    let mut all = Vec::new();
    for _ in 0..2 {
        history.write(3..4, |bytes| {
            all.extend_from_slice(bytes);
            true
        });
    }
    history.check("read", 3, 1, &all[HALF / 2..][..HALF], history.now());
}

/// A log that is cut to nothing again and again, in a file that was as large as the cache once: it costs the pages that came
/// between, as in a file that was never large.
#[test]
fn a_file_that_was_large_is_cut_as_quickly_as_one_that_was_not() {
    const PAGES: usize = 8192;
    let cache = Cache::<S3Fifo>::builder().memory(PAGES * PAGE).window(0).open().unwrap();
    let [large, small] = [(); 2].map(|()| cache.open(MemoryStore::default()).unwrap());
    large.write_at(&[1], ((PAGES - 2) * PAGE) as u64).unwrap();
    let cuts = |file: &CacheFile<S3Fifo>| {
        let start = Instant::now();
        for _ in 0..50 {
            file.write_at(&[2; PAGE], 0).unwrap();
            file.truncate(0).unwrap();
            assert_eq!(cache.stats().used, 0);
        }
        start.elapsed()
    };
    large.truncate(0).unwrap();
    // The best of some, as another program may have the CPU.
    let best = |file| (0..5).map(|_| cuts(file)).min().unwrap();
    let (was_large, was_not) = (best(&large), best(&small));
    assert!(was_large < 5 * was_not, "{was_large:?} for {was_not:?}");
}
