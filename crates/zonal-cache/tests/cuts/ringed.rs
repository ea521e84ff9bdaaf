//! The same on a real file with an `io_uring`, on which several requests are on their way when it is cut off.
//!
//! The kernel says in which order they end. Those that end after the cut are in the file or not, and the cache is told of an
//! error; some are in the file in part, page by page. What is left is read from the file itself. When the power goes, it
//! is that or, page by page, what the file was when it was told to keep that. What a disk keeps is not looked at, and so it is
//! not asked to.
//!
//! Bound: two to four scripts of 40 steps, 40 operations each, and three ways to end, for each of three ways to run; all take
//! 2.5 s of a CPU.

use super::model::PAGE;
use super::store::Lie;
use super::switch::{Cuts, Switch};
use super::{End, PLAIN, Ran, Way, at_every_operation, play};
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::thread::{self, ThreadId};
use zonal_cache::faulty_store::{FaultyStore, Operation, Outcome};
use zonal_cache::store::{LaterRead, Purpose, Store, StoreError, Write};
use zonal_cache::{FileStore, MemoryStore, Ring, S3Fifo};

type Fault = Box<dyn Fn(Operation) -> Outcome + Send + Sync>;

/// A file on a ring. Reads are refused by the store within, by the thread that has ended them; all else is here.
struct OnRing {
    inner: FaultyStore<FileStore, Fault>,
    path: PathBuf,
    lie: Lie,
    /// A write, of many pages as well, is one operation.
    switch: Arc<Switch>,
    /// What the file was when it was told to keep that.
    kept: Mutex<Vec<u8>>,
    /// Held by those who write: what is left is looked at when none is on its way.
    writing: RwLock<()>,
    parted: AtomicUsize,
    unsaid: AtomicUsize,
    aside: AtomicUsize,
    reads: Arc<AtomicUsize>,
    made_by: ThreadId,
}

impl OnRing {
    fn new(path: &Path, store: FileStore, off: Range<u64>, lie: Lie) -> Arc<Self> {
        let (switch, reads) = (Arc::new(Switch::new(off)), Arc::<AtomicUsize>::default());
        let made_by = thread::current().id();
        let (refuses, later) = (switch.clone(), reads.clone());
        let fault: Fault = Box::new(move |operation| {
            if !matches!(operation, Operation::Read { .. }) {
                return Outcome::Whole;
            }
            later.fetch_add((thread::current().name() == Some("cache-ring")).into(), Relaxed);
            refuses.may().err().into()
        });
        Arc::new(Self {
            inner: FaultyStore::new(store, fault),
            path: path.to_owned(),
            lie,
            switch,
            kept: Mutex::default(),
            writing: RwLock::new(()),
            parted: AtomicUsize::new(0),
            unsaid: AtomicUsize::new(0),
            aside: AtomicUsize::new(0),
            reads,
            made_by,
        })
    }

    fn bytes(&self) -> Vec<u8> {
        fs::read(&self.path).expect("the file")
    }

    /// Begins an operation by itself: whether it goes well, and how many of its pages are done.
    fn made_of(&self, pages: usize) -> (Result<(), StoreError>, usize) {
        match self.switch.begin(1) {
            (0, _) => (Ok(()), pages),
            (_, partly) => (Err(StoreError::IO), self.switch.below(partly * pages + 1)),
        }
    }

    fn count_aside(&self) {
        self.aside.fetch_add((thread::current().id() != self.made_by).into(), Relaxed);
    }
}

impl Cuts for OnRing {
    fn switch(&self) -> &Switch {
        &self.switch
    }
    fn left(&self, keeps: &mut dyn FnMut(u64) -> bool) -> Vec<u8> {
        let _alone = self.writing.write().unwrap_or_else(PoisonError::into_inner);
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let (disk, is) = (MemoryStore::from(kept), self.bytes());
        disk.set_len(is.len() as u64).expect("memory");
        let pages: Vec<&[u8]> = is.chunks(PAGE).collect();
        disk.write(0, &pages).expect("memory");
        disk.cut_power(keeps);
        disk.durable()
    }
}

impl Store for OnRing {
    fn len(&self) -> Result<u64, StoreError> {
        self.inner.len()
    }
    fn read(&self, offset: u64, pages: &mut [&mut [u8]]) -> Result<u64, StoreError> {
        self.inner.read(offset, pages)
    }
    fn read_later(&self, later: LaterRead) -> Result<(), LaterRead> {
        self.inner.read_later(later)
    }
    fn begin_reads(&self) {
        self.inner.begin_reads();
    }
    fn write(&self, offset: u64, pages: &[&[u8]]) -> Result<(), StoreError> {
        let _writing = self.writing.read().unwrap_or_else(PoisonError::into_inner);
        self.count_aside();
        let (may, made) = self.made_of(pages.len());
        if made > 0 {
            self.inner.write(offset, &pages[..made])?;
        }
        may
    }
    fn writes_at_once(&self) -> usize {
        self.inner.writes_at_once()
    }
    /// All are on their way at once. Of those that are to be refused some are so in part, and the others are those that
    /// end last.
    fn write_each(
        &self,
        writes: &[Write<'_>],
        purpose: Purpose,
        ended: &mut dyn FnMut(usize, Result<(), StoreError>),
    ) {
        let _writing = self.writing.read().unwrap_or_else(PoisonError::into_inner);
        self.count_aside();
        let mut numbers = self.switch.shuffled(writes.len());
        if self.lie == Lie::Together && numbers.len() > 1 {
            numbers.pop().into_iter().for_each(|number| ended(number, Ok(())));
        }
        let (refused, partly) = self.switch.begin(numbers.len());
        let mut well = numbers.len() - refused;
        self.parted.fetch_add(usize::from(well > 0 && refused > 0), Relaxed);
        let whole = well + self.switch.below(partly + 1);
        let mut on_way = Vec::new();
        let mut place = 0;
        numbers.retain(|&number| {
            let Write { offset, pages } = writes[number];
            let some = || if partly > 0 { self.switch.below(pages.len() + 1) } else { 0 };
            let made = if place < whole { pages.len() } else { some() };
            place += 1;
            on_way.push(Write { offset, pages: &pages[..made] });
            // Of one without pages nothing is said.
            made > 0
        });
        on_way.retain(|write| !write.pages.is_empty());
        self.inner.write_each(&on_way, purpose, &mut |at, done| {
            let number = numbers[at];
            if at < whole && well > 0 {
                well -= 1;
                ended(number, done);
                return;
            }
            self.unsaid.fetch_add((at < whole).into(), Relaxed);
            if self.switch.below(2) == 0 {
                ended(number, Err(StoreError::IO));
            }
        });
    }
    fn set_len(&self, len: u64) -> Result<(), StoreError> {
        let _writing = self.writing.read().unwrap_or_else(PoisonError::into_inner);
        self.switch.may()?;
        let before = if self.lie == Lie::Back { self.bytes() } else { Vec::new() };
        self.inner.set_len(len)?;
        match before.get(len as usize..) {
            Some(rest) if !rest.is_empty() => Ok(fs::write(&self.path, &before)?),
            _ => Ok(()),
        }
    }
    fn zero(&self, offset: u64, len: u64) -> Result<(), StoreError> {
        let _writing = self.writing.read().unwrap_or_else(PoisonError::into_inner);
        let (may, made) = self.made_of(len as usize / PAGE);
        if made > 0 {
            self.inner.zero(offset, (made * PAGE) as u64)?;
        }
        may
    }
    fn flush(&self) -> Result<(), StoreError> {
        self.switch.may()?;
        if self.lie != Lie::Flush {
            *self.kept.lock().unwrap_or_else(PoisonError::into_inner) = self.bytes();
        }
        Ok(())
    }
}

/// What came of runs, if there are rings here; a file goes past the kernel's cache with every second seed.
fn runs(way: Way, seeds: Range<u64>) -> Option<Result<Ran, String>> {
    let said = |error: &_| eprintln!("not run: no io_uring: {error}");
    let ring = Ring::new(2 * way.at_once as u32).inspect_err(said).ok()?;
    Some(at_every_operation(seeds, |seed, end: End| {
        // Another one for each: threads of the cache before may still have the last one.
        let named = tempfile::NamedTempFile::new().expect("a file");
        let path = named.path();
        let store = FileStore::create(path).expect("a file").with_ring(Some(ring.clone()));
        let store = if seed % 2 == 0 { store.buffered() } else { store };
        let store = OnRing::new(path, store, way.off(end), way.lie);
        play::<S3Fifo, _>(way, seed, end.keeps, &store)?;
        let count = |count: &AtomicUsize| count.load(Relaxed);
        Ok(Ran {
            asked: store.switch.asked(),
            parted: count(&store.parted),
            aside: count(&store.aside),
            unsaid: count(&store.unsaid),
            reads: count(&store.reads),
        })
    }))
}

/// Six writes on their way at once.
const RINGED: Way = Way { at_once: 6, pages: 32, ..PLAIN };

#[test]
fn cut_off() {
    let Some(ran) = runs(RINGED, 1..5) else { return };
    let ran = ran.unwrap_or_else(|error| panic!("{error}"));
    assert!(ran.parted > 20 && ran.unsaid > 20 && ran.reads > 100, "{ran:?}");
}

/// It is back after some operations, and then all is kept that was written before and after.
#[test]
fn that_comes_back() {
    let Some(ran) = runs(Way { refuses: 3, ..RINGED }, 5..7) else { return };
    let ran = ran.unwrap_or_else(|error| panic!("{error}"));
    assert!(ran.parted > 20 && ran.unsaid > 20 && ran.reads > 100, "{ran:?}");
}

/// Threads of the cache have writes on their way beside those of the script.
#[test]
fn beside_threads_that_write_behind() {
    let Some(ran) = runs(Way { threads: true, ..RINGED }, 7..9) else { return };
    let ran = ran.unwrap_or_else(|error| panic!("{error}"));
    assert!(ran.aside > 50 && ran.reads > 100, "{ran:?}");
}

#[test]
fn canaries() {
    for (lie, half) in [(Lie::Flush, "keeps"), (Lie::Back, "given"), (Lie::Together, "given")] {
        let Some(ran) = runs(Way { lie, ..RINGED }, 1..6) else { return };
        let error = ran.err().unwrap_or_else(|| panic!("{lie:?} was not found"));
        assert!(error.contains(half), "{lie:?}: {error}");
    }
}
