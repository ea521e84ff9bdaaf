//! Truncation, unlinking and invalidation of one file against writers and several who write back at once, under
//! random schedules: three threads that write, read, pin, cut, zero and sync, one that syncs and writes behind, with room for
//! fewer pages than the file has. What is read, and what is durable after a sync, is held against the history of
//! every half page. What is pinned stays as it is while it is cut off, by the same thread or others, no read sees it then, and its
//! pages are free at last.
//!
//! Bound: [`SCHEDULES`] random schedules of [`THREADS`] threads with [`STEPS`] steps each, for each test; all take 3.7 s of a CPU
//! in a preflight. With 40,000 schedules each, without pins (50 s), no more was found.
//! Requests of one file may be on their way together: the store refuses those that overlap, and a cut or a flush while one is
//! on its way; that there are several at once is counted.
//! Canaries: a store that forgets to cut, one that forgets to flush, and one that says that a write is over before it is; a
//! writer that does not see who has pinned the page, and a last reader that does not free it. `unlinking_against_writers`
//! failed while what was written to an unlinked file brought the rest of its store back, `few_pages_that_are_written…` fails
//! where a page that is on its way may be taken once more, and where how far pages reach is lowered while there are loads.
//!
//! ```text
//! RUSTFLAGS="--cfg shuttle" cargo test --release -p zonal-cache --test shuttle_truncate
//! ```
#![cfg(shuttle)]

mod history;
mod shuttled;

use core::time::Duration;
use history::{HALF, History};
use shuttle::rand::{Rng, thread_rng};
use shuttle::scheduler::RandomScheduler;
use shuttle::thread;
use shuttled::{Bug, Heap, SEED, ShuttleHost, Shuttled, explore, plant};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use zonal_cache::cache::Options;
use zonal_cache::evict::Evict;
use zonal_cache::store::{Store, StoreError};
use zonal_cache::{CacheError, File, MemoryStore, PageCache, S3Fifo, Setup, TwoLists};

const BOUND: usize = 16;
/// Half pages that the file has at most: more than fit, and few that are written over and over.
const HALVES: u64 = 44;
const FEW: u64 = 4;
const THREADS: u64 = 4;
const STEPS: usize = 14;
/// As many as find what is planted; four times as many by `cargo xtask shuttle --wide`.
const SCHEDULES: usize = if option_env!("ZONAL_SHUTTLE_WIDE").is_some() { 1000 } else { 250 };

/// What a store does wrong.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lie {
    No,
    Cut,
    Flush,
    /// A write is over later than it says.
    Late,
}

/// Requests on their way. Not points where the schedule changes.
#[derive(Default)]
struct OnTheirWay(Mutex<Vec<(u64, u64)>>);

impl OnTheirWay {
    fn begin(&self, offset: u64, len: u64) {
        let end = offset + len;
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for &(first, last) in &*all {
            // A file that goes while a model fails writes what it has: a second panic would end the process.
            let apart = end <= first || last <= offset || std::thread::panicking();
            assert!(apart, "{offset}: two requests for one page at once");
        }
        all.push((offset, end));
        MOST_AT_ONCE.fetch_max(all.len(), Ordering::Relaxed);
    }

    fn end(&self, offset: u64) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|&(first, _)| first != offset);
    }

    fn none(&self, what: &str) {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(all.is_empty(), "{what} while {all:?} are on their way");
    }
}

/// Over all schedules.
static MOST_AT_ONCE: AtomicUsize = AtomicUsize::new(0);
/// Pins of which all bytes were cut off meanwhile, over all schedules.
static CUT_OFF: AtomicUsize = AtomicUsize::new(0);

struct Shared(Arc<MemoryStore>, Lie, Arc<OnTheirWay>);

impl Store for Shared {
    fn len(&self) -> Result<u64, StoreError> {
        self.0.len()
    }
    fn read(&self, offset: u64, pages: &mut [&mut [u8]]) -> Result<u64, StoreError> {
        thread::yield_now();
        self.0.read(offset, pages)
    }
    fn write(&self, offset: u64, pages: &[&[u8]]) -> Result<(), StoreError> {
        self.2.begin(offset, pages.iter().map(|page| page.len() as u64).sum());
        if self.1 == Lie::Late {
            let all = self.2.clone();
            thread::spawn(move || {
                (0..200).for_each(|_| thread::yield_now());
                all.end(offset);
            });
            return self.0.write(offset, pages);
        }
        // Long enough, now and then, for others to write to the page and to write it back.
        (0..thread_rng().gen_range(1..100)).for_each(|_| thread::yield_now());
        let done = self.0.write(offset, pages);
        thread::yield_now();
        self.2.end(offset);
        done
    }
    /// Pages of as many ranges are marked as on their way before the first is written.
    fn writes_at_once(&self) -> usize {
        3
    }
    fn set_len(&self, len: u64) -> Result<(), StoreError> {
        if self.1 != Lie::Late {
            self.2.none("cut");
        }
        thread::yield_now();
        let forgets = self.1 == Lie::Cut && self.0.len()? > len;
        if forgets { Ok(()) } else { self.0.set_len(len) }
    }
    fn flush(&self) -> Result<(), StoreError> {
        if self.1 != Lie::Late {
            self.2.none("flushed");
        }
        thread::yield_now();
        if self.1 == Lie::Flush { Ok(()) } else { self.0.flush() }
    }
}

struct World<S: Setup> {
    cache: PageCache<S>,
    memory: Arc<MemoryStore>,
    history: History,
    /// Whether the file is unlinked instead of cut to nothing; the store is not looked at meanwhile.
    unlinks: bool,
    /// Half pages that the file has at most.
    halves: u64,
}

impl<S: Setup> World<S> {
    fn write(&self, file: &File<S>) {
        self.write_at(file, thread_rng().gen_range(0..self.halves));
    }

    fn write_at(&self, file: &File<S>, first: u64) {
        // Within a page: what is written at once.
        let count = thread_rng().gen_range(1..=2 - first % 2);
        self.history.write(first..first + count, |bytes| {
            match file.write_at(bytes, first * HALF as u64) {
                Ok(done) => {
                    assert_eq!(done, bytes.len());
                    true
                }
                Err(CacheError::NoRoom { .. }) => false,
                Err(error) => panic!("{error}"),
            }
        });
    }

    fn read(&self, file: &File<S>) {
        let first = thread_rng().gen_range(0..self.halves);
        self.read_at(file, first, thread_rng().gen_range(1..=4));
    }

    fn read_at(&self, file: &File<S>, first: u64, count: u64) {
        let mut bytes = vec![0xAA; count as usize * HALF];
        let since = self.history.now();
        let read = file.read_at(&mut bytes, first * HALF as u64);
        if let Err(error) = read {
            assert!(matches!(error, CacheError::NoRoom { .. }), "{error}");
        }
        if let Ok(got) = read {
            // Less may be the end of the file or a page that there is no room for.
            let count = if got < bytes.len() && got % HALF == 0 && file.len() > first * HALF as u64
            {
                (got / HALF) as u64
            } else {
                count
            };
            self.history.check("read", first, count, &bytes[..got], since);
        }
    }

    fn cut(&self, file: &File<S>) {
        self.cut_to(file, thread_rng().gen_range(0..self.halves));
    }

    /// Makes the file this many halves long, or unlinks it.
    fn cut_to(&self, file: &File<S>, len: u64) {
        if self.unlinks && thread_rng().gen_range(0..4) == 0 {
            self.history.cut(0..self.halves, || {
                file.clone().unlink();
                true
            });
        } else {
            self.history.cut(len..self.halves, || file.truncate(len * HALF as u64).is_ok());
        }
    }

    /// What is pinned stays as it is though this thread, and others, cut it off; and who reads it then does not see it.
    fn pin(&self, file: &File<S>) {
        let first = thread_rng().gen_range(0..self.halves);
        let count = thread_rng().gen_range(1..=4);
        let since = self.history.now();
        let range = first * HALF as u64..(first + count) * HALF as u64;
        let pinned = match file.pin(range) {
            Ok(pinned) => pinned,
            Err(error) => return assert!(matches!(error, CacheError::NoRoom { .. }), "{error}"),
        };
        let look = || pinned.pieces().collect::<Vec<_>>().concat();
        let had = look();
        // Where it ends is the end of the file.
        self.history.check("pin", first, count, &had, since);
        for _ in 0..3 {
            match thread_rng().gen_range(0..4) {
                0 => self.cut_to(file, thread_rng().gen_range(0..=first)),
                1 => self.write_at(file, first),
                _ => thread::yield_now(),
            }
            assert!(look() == had, "what is pinned has changed");
            let is_off = !had.is_empty() && file.len() <= first * HALF as u64;
            CUT_OFF.fetch_add(usize::from(is_off), Ordering::Relaxed);
            self.read_at(file, first, count);
        }
    }

    fn zero(&self, file: &File<S>) {
        // Of whole pages: else it may be done in part.
        let first = thread_rng().gen_range(0..self.halves / 2) * 2;
        let end = thread_rng().gen_range(first..self.halves) / 2 * 2;
        let range = first * HALF as u64..end * HALF as u64;
        self.history.cut(first..end, || file.zero_range(range).is_ok());
    }

    fn sync(&self, file: &File<S>, whole: bool) {
        let since = self.history.now();
        let done = if whole { self.cache.sync() } else { file.sync() };
        done.expect("the store is well");
        if !self.unlinks {
            let durable = self.memory.durable();
            self.history.check("after a sync", 0, self.halves, &durable, since);
        }
    }

    fn work(&self, file: &File<S>, number: u64) {
        for _ in 0..STEPS {
            let dirty = self.cache.stats().dirty;
            assert!(dirty <= self.halves, "{dirty} pages are dirty of no more than half as many");
            let choice = thread_rng().gen_range(0..if number == 0 { 8 } else { 28 });
            match choice {
                0..2 => self.sync(file, choice == 0),
                2 => self.cache.write_behind(Duration::ZERO),
                3 => {
                    file.write_older(Duration::ZERO);
                }
                4..8 if number == 0 => self.read(file),
                4..12 => self.write(file),
                12..17 => self.read(file),
                17 => {
                    let at = thread_rng().gen_range(0..self.halves) * HALF as u64;
                    file.invalidate(at..at + 8 * HALF as u64);
                }
                18 => {
                    let at = thread_rng().gen_range(0..self.halves) * HALF as u64;
                    let _ = file.sync_range(at..at + 8 * HALF as u64);
                }
                19 => self.zero(file),
                20..24 => self.cut(file),
                _ => self.pin(file),
            }
        }
    }
}

fn model<E: Evict>(lie: Lie, unlinks: bool, halves: u64) {
    let options = Options { pages: BOUND, window: 4, block: Some(4), ..Options::default() };
    let cache =
        PageCache::<Shuttled<E, true>>::with_parts(ShuttleHost::new(), Heap::new(BOUND), options);
    let cache = cache.expect("a cache");
    let memory = Arc::new(MemoryStore::default());
    let file = cache.open(Shared(memory.clone(), lie, Arc::default())).expect("a file");
    let world = Arc::new(World { cache, memory, history: History::default(), unlinks, halves });
    let workers: Vec<_> = (0..THREADS)
        .map(|number| {
            let (world, file) = (world.clone(), file.clone());
            thread::spawn(move || world.work(&file, number))
        })
        .collect();
    workers.into_iter().for_each(|it| it.join().unwrap());
    let since = world.history.now();
    // What is not written again after it was unlinked stays in the store.
    world.history.write(halves - 1..halves, |bytes| {
        file.write_at(bytes, (halves - 1) * HALF as u64).expect("room") == bytes.len()
    });
    file.sync().expect("the store is well");
    let durable = world.memory.durable();
    world.history.check("at last", 0, halves, &durable, since);
    assert_eq!(durable.len() as u64, file.len());
    assert_eq!(world.cache.stats().dirty, 0);
    let mut read = vec![0; durable.len()];
    file.read_at(&mut read, 0).expect("room");
    assert!(read == durable, "what is read is not what is in the store");
    // Pages that a truncation left to those who had pinned them are free too. Frames that are freed twice, or never, are told of
    // by the heap.
    world.cache.reclaim(usize::MAX);
    assert_eq!(world.cache.stats().used, 0, "pages that are never freed");
}

#[test]
fn cuts_against_writers_two_lists() {
    explore(RandomScheduler::new_from_seed(SEED, SCHEDULES), || {
        model::<TwoLists>(Lie::No, false, HALVES)
    });
}

#[test]
fn cuts_against_writers_s3_fifo() {
    explore(RandomScheduler::new_from_seed(SEED, SCHEDULES), || {
        model::<S3Fifo>(Lie::No, false, HALVES)
    });
    let most = MOST_AT_ONCE.load(Ordering::Relaxed);
    assert!(most >= 2, "never were two requests on their way");
    let cut = CUT_OFF.load(Ordering::Relaxed);
    assert!(cut > SCHEDULES, "pinned bytes were cut off {cut} times");
}

#[test]
fn few_pages_that_are_written_while_they_are_on_their_way() {
    explore(RandomScheduler::new_from_seed(SEED, 2 * SCHEDULES), || {
        model::<S3Fifo>(Lie::No, false, FEW)
    });
}

#[test]
fn unlinking_against_writers() {
    explore(RandomScheduler::new_from_seed(SEED, SCHEDULES), || {
        model::<S3Fifo>(Lie::No, true, HALVES)
    });
}

#[test]
#[should_panic(expected = "which is old")]
fn canary_a_store_that_is_not_cut_is_found() {
    explore(RandomScheduler::new_from_seed(SEED, SCHEDULES), || {
        model::<S3Fifo>(Lie::Cut, false, HALVES)
    });
}

#[test]
#[should_panic(expected = "which is old")]
fn canary_a_sync_that_does_not_flush_is_found() {
    explore(RandomScheduler::new_from_seed(SEED, SCHEDULES), || {
        model::<S3Fifo>(Lie::Flush, false, HALVES)
    });
}

#[test]
#[should_panic(expected = "what is pinned has changed")]
fn canary_a_page_that_is_written_while_it_is_pinned_is_found() {
    explore(RandomScheduler::new_from_seed(SEED, SCHEDULES), || {
        plant(Bug::Unseen);
        model::<S3Fifo>(Lie::No, false, HALVES);
    });
}

#[test]
#[should_panic(expected = "pages that are never freed")]
fn canary_a_pinned_page_that_is_not_freed_is_found() {
    explore(RandomScheduler::new_from_seed(SEED, SCHEDULES), || {
        plant(Bug::NotFreed);
        model::<S3Fifo>(Lie::No, false, HALVES);
    });
}

#[test]
#[should_panic(expected = "two requests for one page at once")]
fn canary_a_page_that_is_written_while_it_is_on_its_way_is_found() {
    explore(RandomScheduler::new_from_seed(SEED, SCHEDULES), || {
        model::<S3Fifo>(Lie::Late, false, FEW)
    });
}
