//! The same in memory with requests that end late, in an order of the store's own, from a seed.
//!
//! A step is a page of any of the writes that are on their way together, or half a read: a read has its bytes at one moment and
//! ends at a later one, and what writes is told later than it is made. So the store is cut off with several writes made in
//! part, or made and not said to be. Another thread takes steps of reads too, lest a thread of the cache wait for
//! ever, so that no two runs are quite the same. No two writes on their way have a page both: the store looks.
//!
//! Bound: two to four scripts of 40 steps, 80 operations each, and three ways to end, for each of three ways to run; all take
//! 2.5 s of a CPU.

use super::model::PAGE;
use super::store::Lie;
use super::switch::{Cuts, Switch};
use super::{End, PLAIN, Ran, Way, at_every_operation, play};
use std::collections::BTreeSet;
use std::mem;
use std::ops::Range;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::Duration;
use zonal_cache::store::{LaterRead, Purpose, Store, StoreError, Write};
use zonal_cache::{MemoryStore, S3Fifo};

/// A read on its way, and how it went if that is not said yet.
struct Read {
    later: LaterRead,
    went: Option<Result<u64, StoreError>>,
}

#[derive(Default)]
struct State {
    /// Reads that were taken, and those of them that were begun.
    taken: Vec<Read>,
    begun: Vec<Read>,
    /// The pages of writes on their way.
    pages: BTreeSet<u64>,
    /// A page that two writes had both.
    shared: Option<u64>,
    /// A write that was said to be made.
    early: Option<(u64, Vec<u8>)>,
    over: bool,
}

fn pages_of(write: &Write<'_>) -> Range<u64> {
    let first = write.offset / PAGE as u64;
    first..first + write.pages.len() as u64
}

/// What the store and its thread have.
struct Inner {
    memory: MemoryStore,
    lie: Lie,
    /// A page that is written is one operation.
    switch: Switch,
    state: Mutex<State>,
    wake: Condvar,
    /// Reads that have ended.
    reads: AtomicUsize,
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A write is on its way from now on.
    fn enter(&self, write: &Write<'_>) {
        let mut state = self.state();
        for page in pages_of(write) {
            if !state.pages.insert(page) {
                state.shared = Some(page);
            }
        }
    }

    fn leave(&self, write: &Write<'_>) {
        let mut state = self.state();
        for page in pages_of(write) {
            state.pages.remove(&page);
        }
    }

    /// Half a read, if one is on its way.
    fn step(&self) {
        let mut read = {
            let mut state = self.state();
            if state.begun.is_empty() {
                return;
            }
            let at = self.switch.below(state.begun.len());
            state.begun.swap_remove(at)
        };
        if let Some(went) = read.went {
            self.reads.fetch_add(1, Relaxed);
            return read.later.end(went);
        }
        let (may, offset) = (self.switch.may(), read.later.offset());
        let mut pages = read.later.pieces();
        let went = may.and_then(|()| self.memory.read(offset, &mut pages));
        if self.lie == Lie::Read {
            pages.iter_mut().for_each(|page| page.fill(0));
        }
        read.went = Some(went);
        self.state().begun.push(read);
    }

    /// Takes steps of reads, for those who wait for one.
    fn work(&self) {
        loop {
            {
                let idle = |state: &mut State| state.begun.is_empty() && !state.over;
                let state = self.wake.wait_while(self.state(), idle);
                if state.unwrap_or_else(PoisonError::into_inner).over {
                    return;
                }
            }
            if self.switch.below(2) == 0 {
                thread::sleep(Duration::from_micros(20));
            }
            self.step();
        }
    }
}

struct Late {
    inner: Arc<Inner>,
    at_once: usize,
    parted: AtomicUsize,
    unsaid: AtomicUsize,
    aside: AtomicUsize,
    made_by: ThreadId,
}

/// A write on its way: which of several, the pages that are left of it, and whether one was refused.
struct OnWay {
    at: usize,
    left: Vec<usize>,
    ill: bool,
}

impl Late {
    fn new(off: Range<u64>, at_once: usize, lie: Lie) -> Arc<Self> {
        let inner = Arc::new(Inner {
            memory: MemoryStore::default(),
            lie,
            switch: Switch::new(off),
            state: Mutex::default(),
            wake: Condvar::new(),
            reads: AtomicUsize::new(0),
        });
        let theirs = inner.clone();
        thread::spawn(move || theirs.work());
        let none = || AtomicUsize::new(0);
        let (parted, unsaid, aside) = (none(), none(), none());
        Arc::new(Self { inner, at_once, parted, unsaid, aside, made_by: thread::current().id() })
    }

    fn page(&self, offset: u64, page: &[u8]) -> Result<(), StoreError> {
        self.inner.switch.may()?;
        if thread::current().id() != self.made_by {
            self.aside.fetch_add(1, Relaxed);
            // The script goes on meanwhile.
            thread::sleep(Duration::from_micros(50));
        }
        self.inner.memory.write(offset, &[page])
    }

    /// Makes what was said to be made.
    fn catch_up(&self) {
        let early = self.inner.state().early.take();
        if let Some((offset, bytes)) = early {
            let pages: Vec<&[u8]> = bytes.chunks(PAGE).collect();
            self.inner.memory.write(offset, &pages).expect("memory");
        }
    }
}

impl Drop for Late {
    fn drop(&mut self) {
        self.inner.state().over = true;
        self.inner.wake.notify_one();
    }
}

impl Cuts for Late {
    fn switch(&self) -> &Switch {
        &self.inner.switch
    }
    fn left(&self, keeps: &mut dyn FnMut(u64) -> bool) -> Vec<u8> {
        self.inner.memory.cut_power(keeps);
        self.inner.memory.durable()
    }
}

impl Store for Late {
    fn len(&self) -> Result<u64, StoreError> {
        self.inner.memory.len()
    }
    fn read(&self, offset: u64, pages: &mut [&mut [u8]]) -> Result<u64, StoreError> {
        self.inner.switch.may()?;
        self.inner.memory.read(offset, pages)
    }
    fn read_later(&self, later: LaterRead) -> Result<(), LaterRead> {
        self.inner.state().taken.push(Read { later, went: None });
        Ok(())
    }
    fn begin_reads(&self) {
        let mut state = self.inner.state();
        let taken = mem::take(&mut state.taken);
        state.begun.extend(taken);
        self.inner.wake.notify_one();
    }
    fn write(&self, offset: u64, pages: &[&[u8]]) -> Result<(), StoreError> {
        let mut result = Err(StoreError::IO);
        self.write_each(&[Write { offset, pages }], Purpose::Behind, &mut |_, went| result = went);
        result
    }
    fn writes_at_once(&self) -> usize {
        self.at_once
    }
    /// Of those that are refused, or not said to be made before the store is cut off, it says so, or nothing.
    fn write_each(
        &self,
        writes: &[Write<'_>],
        _: Purpose,
        ended: &mut dyn FnMut(usize, Result<(), StoreError>),
    ) {
        self.catch_up();
        let (inner, switch) = (&self.inner, &self.inner.switch);
        let enter = |(at, write): (usize, &Write<'_>)| {
            inner.enter(write);
            OnWay { at, left: switch.shuffled(write.pages.len()), ill: false }
        };
        let mut on_way: Vec<OnWay> = writes.iter().enumerate().map(enter).collect();
        if inner.lie == Lie::Early && on_way.len() > 1 {
            on_way.swap_remove(0);
            inner.leave(&writes[0]);
            inner.state().early = Some((writes[0].offset, writes[0].pages.concat()));
            ended(0, Ok(()));
        }
        let (mut well, mut ill) = (0, 0);
        while !on_way.is_empty() {
            if switch.below(4) == 0 {
                inner.step();
            }
            let at = switch.below(on_way.len());
            let one = &mut on_way[at];
            if let Some(index) = one.left.pop() {
                let Write { offset, pages } = writes[one.at];
                one.ill |= self.page(offset + (index * PAGE) as u64, pages[index]).is_err();
                continue;
            }
            let one = on_way.swap_remove(at);
            inner.leave(&writes[one.at]);
            self.unsaid.fetch_add((!one.ill && switch.refuses()).into(), Relaxed);
            if one.ill || switch.refuses() {
                ill += 1;
                if switch.below(2) == 0 {
                    ended(one.at, Err(StoreError::IO));
                }
            } else {
                well += 1;
                ended(one.at, Ok(()));
            }
        }
        self.parted.fetch_add(usize::from(well > 0 && ill > 0), Relaxed);
    }
    fn set_len(&self, len: u64) -> Result<(), StoreError> {
        self.catch_up();
        self.inner.switch.may()?;
        self.inner.memory.set_len(len)
    }
    fn flush(&self) -> Result<(), StoreError> {
        self.inner.switch.may()?;
        if self.inner.lie == Lie::Flush { Ok(()) } else { self.inner.memory.flush() }
    }
}

fn runs(way: Way, seeds: Range<u64>) -> Result<Ran, String> {
    at_every_operation(seeds, |seed, end: End| {
        let store = Late::new(way.off(end), way.at_once, way.lie);
        play::<S3Fifo, _>(way, seed, end.keeps, &store)?;
        let count = |count: &AtomicUsize| count.load(Relaxed);
        let shared = store.inner.state().shared;
        if let Some(page) = shared {
            return Err(format!("page {page} is on its way twice"));
        }
        Ok(Ran {
            asked: store.inner.switch.asked(),
            parted: count(&store.parted),
            aside: count(&store.aside),
            unsaid: count(&store.unsaid),
            reads: count(&store.inner.reads),
        })
    })
}

/// Six writes on their way at once.
const LATE: Way = Way { at_once: 6, pages: 32, ..PLAIN };

#[test]
fn cut_off() {
    let ran = runs(LATE, 1..5).unwrap_or_else(|error| panic!("{error}"));
    assert!(ran.parted > 20 && ran.unsaid > 20 && ran.reads > 100, "{ran:?}");
}

/// It is back after some operations, and then all is kept that was written before and after.
#[test]
fn that_comes_back() {
    let way = Way { refuses: 3, ..LATE };
    let ran = runs(way, 5..7).unwrap_or_else(|error| panic!("{error}"));
    assert!(ran.parted > 20 && ran.unsaid > 20 && ran.reads > 100, "{ran:?}");
}

/// Threads of the cache have writes on their way beside those of the script.
#[test]
fn beside_threads_that_write_behind() {
    let way = Way { threads: true, ..LATE };
    let ran = runs(way, 7..9).unwrap_or_else(|error| panic!("{error}"));
    assert!(ran.aside > 50 && ran.reads > 100, "{ran:?}");
}

#[test]
fn canaries() {
    for lie in [Lie::Flush, Lie::Early, Lie::Read] {
        let error = runs(Way { lie, ..LATE }, 1..6).err();
        let error = error.unwrap_or_else(|| panic!("{lie:?} was not found"));
        assert!(!error.contains("twice"), "{lie:?}: {error}");
    }
}

/// A write that begins before another one of its pages has ended is found.
#[test]
fn canary_of_writes_that_share_a_page() {
    let store = Late::new(u64::MAX..u64::MAX, 2, Lie::No);
    let page = [0; PAGE];
    let pages: [&[u8]; 2] = [&page, &page];
    let writes = [0, 4].map(|page| Write { offset: page * PAGE as u64, pages: &pages });
    let mut last = 0;
    store.write_each(&writes, Purpose::Sync, &mut |number, _| {
        if last == 0 {
            // The other one is on its way.
            let offset = writes[1 - number].offset + PAGE as u64;
            assert_eq!(store.write(offset, &[&[0; PAGE]]), Ok(()));
        }
        last += 1;
    });
    assert!(store.inner.state().shared.is_some());
}
