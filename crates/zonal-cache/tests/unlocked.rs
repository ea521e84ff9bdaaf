//! Hits take no lock, whichever it is: a host counts how often each of its locks is taken, and of what.

use std::any::type_name;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::Arc;
use zonal::CpuId;
use zonal::platform::{Lock, Platform};
use zonal_cache::cache::Options;
use zonal_cache::evict::Evict;
use zonal_cache::host::{Host, Job};
use zonal_cache::lru::{LruLock, PerNode, PerOwner, Whole};
use zonal_cache::{
    Advice, ArenaFrames, File, MemoryStore, MultiGen, PageCache, S3Fifo, Setup, Sieve, Threads,
    TwoLists,
};
use zonal_host::Arena;
use zonal_host::biased_slot::BiasedSlot;
use zonal_host::park_lock::ParkLock;

const PAGE: usize = 4096;
/// Pages of the file, which are all in memory.
const PAGES: u64 = 64;

/// By the type of what is under the lock, how often one was taken.
type Taken = BTreeMap<&'static str, u64>;

thread_local! {
    static TAKEN: RefCell<Taken> = const { RefCell::new(BTreeMap::new()) };
}

fn count(what: &'static str) {
    TAKEN.with_borrow_mut(|taken| *taken.entry(what).or_default() += 1);
}

/// The locks that this thread takes in `work`.
fn taken(work: impl FnOnce()) -> Taken {
    TAKEN.take();
    work();
    TAKEN.take()
}

/// The lock of threads, counted. One that is tried in vain counts, too.
struct Counted<T>(ParkLock<T>);

impl<T> Lock<T> for Counted<T> {
    fn new(value: T) -> Self {
        Self(ParkLock::new(value))
    }
    fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        count(type_name::<T>());
        self.0.with(f)
    }
    fn try_with<R>(&self, f: impl FnOnce(&mut T) -> R) -> Option<R> {
        count(type_name::<T>());
        self.0.try_with(f)
    }
    fn get_mut(&mut self) -> &mut T {
        self.0.get_mut()
    }
}

/// Threads, whose locks count.
struct Counting(Threads);

impl Platform for Counting {
    type Byte = <Threads as Platform>::Byte;
    type Half = <Threads as Platform>::Half;
    type Word = <Threads as Platform>::Word;
    type Lock<T: Send> = Counted<T>;
    type Slot<T: Send> = BiasedSlot<T>;

    fn relax() {
        <Threads as Platform>::relax();
    }
    fn cpu(&self) -> CpuId {
        self.0.cpu()
    }
}

// SAFETY: the atomics are those of `Threads`, and `Counted` lets one thread in as the `ParkLock` inside of it does.
unsafe impl Host for Counting {
    type Mutex<T: Send> = Counted<T>;
    const GUESSES: bool = true;

    fn wait(&self, place: usize, pending: &dyn Fn() -> bool) {
        count("wait");
        self.0.wait(place, pending);
    }
    fn lanes(&self) -> u32 {
        // On a machine with one CPU, too.
        4
    }
    fn wake(&self, place: usize) {
        count("wake");
        self.0.wake(place);
    }
    fn now(&self) -> u64 {
        self.0.now()
    }
    fn defer(&self, job: Job) -> Result<(), Job> {
        count("defer");
        self.0.defer(job)
    }
}

struct Parts<E, L>(PhantomData<fn() -> (E, L)>);

impl<E: Evict, L: LruLock> Setup for Parts<E, L> {
    type Host = Counting;
    type Frames = ArenaFrames;
    type Evict = E;
    type Lru = L;
}

fn cache<E: Evict, L: LruLock>() -> PageCache<Parts<E, L>> {
    let arena = Arena::builder().bytes(512 * PAGE).open().expect("an arena");
    let options = Options { pages: 2 * PAGES as usize, block: Some(8), ..Options::default() };
    let frames = ArenaFrames::new(Arc::new(arena));
    PageCache::with_parts(Counting(Threads::new()), frames, options).expect("a cache")
}

fn at(page: u64) -> u64 {
    page * PAGE as u64
}

/// Reads all of the file, page by page.
fn read<S: Setup>(file: &File<S>) {
    for page in 0..PAGES {
        assert_eq!(file.read_at(&mut [0; PAGE], at(page)), Ok(PAGE));
    }
}

fn hits_of<E: Evict, L: LruLock>() {
    let cache = cache::<E, L>();
    let file = cache.open(MemoryStore::from(vec![1; at(PAGES) as usize])).expect("a file");
    // The pages come, and the marks of windows are met.
    (0..2).for_each(|_| read(&file));
    let before = cache.stats();
    assert_eq!(before.used as u64, PAGES);
    let mut into = vec![0; at(PAGES) as usize];
    let none = |what: &str, taken: Taken| {
        assert!(taken.is_empty(), "{}, {}, {what}: {taken:?}", E::NAME, L::NAME);
    };
    let other = file.clone();
    other.advise(Advice::Random);
    for file in [&file, &other] {
        none("pages", taken(|| (0..4).for_each(|_| read(file))));
        let part = |page: u64| assert_eq!(file.read_at(&mut [0; 100], at(page) + 50), Ok(100));
        none("parts of pages", taken(|| (0..PAGES).rev().for_each(part)));
        let over = |page: u64| assert_eq!(file.read_at(&mut [0; 100], at(page) - 50), Ok(100));
        none("parts of two", taken(|| (1..PAGES).for_each(over)));
        let all = taken(|| assert_eq!(file.read_at(&mut into, 0), Ok(at(PAGES) as usize)));
        none("all pages", all);
        let behind = taken(|| assert_eq!(file.read_at(&mut into, at(PAGES)), Ok(0)));
        none("behind the end", behind);
        let pin = |page: u64| assert_eq!(file.pin(at(page)..at(page + 1)).unwrap().len(), PAGE);
        none("a pin", taken(|| (0..PAGES).for_each(pin)));
        let pin = |page: u64| assert_eq!(file.pin(at(page)..at(page + 4)).unwrap().len(), 4 * PAGE);
        none("a pin of several", taken(|| (0..PAGES - 4).for_each(pin)));
        let pin = || assert_eq!(file.pin(0..u64::MAX >> 1).unwrap().len() as u64, at(PAGES));
        none("a pin of all", taken(pin));
    }
    // Where a reader is at a page others count themselves in elsewhere, by CPU.
    let together = taken(|| {
        let pinned = file.pin(0..at(PAGES)).expect("pinned");
        read(&other);
        let again = other.pin(0..at(PAGES)).expect("pinned");
        drop(pinned);
        read(&file);
        drop(again);
    });
    none("with readers there", together);
    let after = cache.stats();
    assert_eq!((after.reads, after.used), (before.reads, before.used), "all were hits");
}

#[test]
fn hits_take_no_lock_at_all() {
    hits_of::<TwoLists, Whole>();
    hits_of::<S3Fifo, Whole>();
    hits_of::<Sieve, Whole>();
    hits_of::<MultiGen, Whole>();
    hits_of::<S3Fifo, PerNode>();
    hits_of::<Sieve, PerOwner>();
}

/// What takes locks is seen to take them, each kind of lock: so the test above would see one.
#[test]
fn locks_that_are_taken_are_counted() {
    let cache = cache::<S3Fifo, PerNode<4>>();
    let mut file = None;
    let open = || file = cache.open(MemoryStore::from(vec![1; at(PAGES) as usize])).ok();
    let opened = taken(open);
    let file = file.expect("a file");
    let missed = taken(|| read(&file));
    let written = taken(|| assert_eq!(file.write_at(&[2; PAGE], 0), Ok(PAGE)));
    let of = |taken: &Taken, what: &str| -> u64 {
        taken.iter().filter(|(name, _)| name.contains(what)).map(|(_, count)| count).sum()
    };
    assert!(of(&opened, "FileCore") > 0, "the files: {opened:?}");
    for what in ["Pool", "Held", "Batch", "Window"] {
        assert!(of(&missed, what) > 0, "{what}: {missed:?}");
    }
    // The locks of chains are around nothing.
    assert!(of(&missed, "()") >= PAGES, "{missed:?}");
    assert!(of(&written, "()") > 0 && of(&written, "State") > 0, "{written:?}");
}
