//! Flushes that fail: while another thread begins to sync, and after pages were zeroed.

use core::ptr::NonNull;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;
use zonal::Pfn;
use zonal::page_state::PageState;
use zonal::policy::trace::Off;
use zonal_cache::cache::Options;
use zonal_cache::faulty_store::Operation;
use zonal_cache::frames::{Frames, PAGE};
use zonal_cache::lru::Whole;
use zonal_cache::store::{Store, StoreError};
use zonal_cache::{
    Cache, CacheError, FaultyStore, MemoryStore, PageCache, S3Fifo, Setup, Sieve, Threads,
};

type Hook = Box<dyn FnOnce() + Send>;

/// Frames without bytes. `hook` is called when the next page becomes dirty.
#[derive(Default)]
struct Hooked {
    next: AtomicU64,
    hook: Arc<Mutex<Option<Hook>>>,
}

// SAFETY: no number is given twice, and no byte is asked for.
unsafe impl Frames for Hooked {
    type Trace = Off;
    const HAS_BYTES: bool = false;

    fn alloc(&self) -> Option<Pfn> {
        Some(Pfn::new(self.next.fetch_add(1, SeqCst) + 1))
    }

    unsafe fn free(&self, _: &[Pfn]) {}

    fn address(&self, _: Pfn) -> NonNull<u8> {
        panic!("there are no bytes")
    }

    fn count(&self, _: Pfn, state: PageState, change: i32) {
        if state == PageState::Dirty && change > 0 {
            let hook = self.hook.lock().unwrap().take();
            hook.into_iter().for_each(|hook| hook());
        }
    }
}

struct Parts;

impl Setup for Parts {
    type Host = Threads;
    type Frames = Hooked;
    type Evict = Sieve;
    type Lru = Whole;
}

/// Which pages last. What was written before a flush that fails is lost.
#[derive(Default)]
struct Log {
    written: Mutex<BTreeSet<u64>>,
    lasting: Mutex<BTreeSet<u64>>,
    fails: AtomicBool,
}

impl Store for Log {
    fn len(&self) -> Result<u64, StoreError> {
        Ok(0)
    }
    fn read(&self, _: u64, _: &mut [&mut [u8]]) -> Result<u64, StoreError> {
        Ok(0)
    }
    fn write(&self, offset: u64, pages: &[&[u8]]) -> Result<(), StoreError> {
        let first = offset / PAGE as u64;
        self.written.lock().unwrap().extend(first..first + pages.len() as u64);
        Ok(())
    }
    fn set_len(&self, _: u64) -> Result<(), StoreError> {
        Ok(())
    }
    fn flush(&self) -> Result<(), StoreError> {
        let mut written = self.written.lock().unwrap();
        if self.fails.swap(false, SeqCst) {
            written.clear();
            return Err(StoreError::IO);
        }
        self.lasting.lock().unwrap().append(&mut written);
        Ok(())
    }
}

/// The first has told its error, and makes one page after the other dirty again, when the second begins. What became dirty
/// after it began a sync need not write; these were written long before.
#[test]
fn a_sync_that_begins_while_a_flush_fails_writes_all_pages_again() {
    let frames = Hooked::default();
    let hook = frames.hook.clone();
    let options = Options { pages: 64, ..Options::default() };
    let cache = PageCache::<Parts>::with_parts(Threads::new(), frames, options).unwrap();
    let log = Arc::new(Log::default());
    let file = cache.open(log.clone()).unwrap();
    assert_eq!(file.write_at(&[1; 4 * PAGE], 0), Ok(4 * PAGE));
    log.fails.store(true, SeqCst);
    let (says, second) = mpsc::channel();
    let other = cache.clone();
    *hook.lock().unwrap() = Some(Box::new(move || {
        let (begins, begun) = mpsc::channel();
        let run = move || {
            begins.send(()).unwrap();
            other.sync()
        };
        says.send(thread::spawn(run)).unwrap();
        begun.recv().unwrap();
        // It waits for this thread then; if it came later there would be nothing to see.
        thread::sleep(Duration::from_millis(50));
    }));
    assert_eq!(file.sync(), Err(CacheError::Store(StoreError::IO)));
    let second = second.recv().expect("a page became dirty again").join().unwrap();
    assert_eq!(second, Ok(()), "the error came before it began");
    assert_eq!(*log.lasting.lock().unwrap(), BTreeSet::from([0, 1, 2, 3]));
    assert_eq!((file.dirty_pages(), file.lost_pages()), (0, 0));
}

/// A store over `memory` whose first flush fails as the power goes: nothing that was written is there any more.
pub(crate) fn power_fails_in_a_flush(memory: &Arc<MemoryStore>) -> impl Store + use<> {
    let (cut, well) = (memory.clone(), AtomicBool::new(false));
    FaultyStore::new(memory.clone(), move |operation| {
        let fails = operation == Operation::Flush && !well.swap(true, SeqCst);
        fails.then(|| cut.cut_power(|_| false)).map(|()| StoreError::IO)
    })
}

/// Zeroes that the store was given are in no memory from which they could be written again.
#[test]
fn zeroes_of_a_flush_that_fails_are_counted() {
    let cache = Cache::<S3Fifo>::builder().memory(16 * PAGE).io_threads(0).open().unwrap();
    let memory = Arc::new(MemoryStore::from(vec![7; 8 * PAGE]));
    let file = cache.open(power_fails_in_a_flush(&memory)).unwrap();
    file.zero_range(PAGE as u64..4 * PAGE as u64 + 1).unwrap();
    assert_eq!((file.lost_pages(), file.dirty_pages()), (0, 1), "one in part");
    assert_eq!(file.sync(), Err(CacheError::Store(StoreError::IO)));
    assert_eq!((file.lost_pages(), file.dirty_pages()), (3, 1));
    file.zero_range(5 * PAGE as u64..6 * PAGE as u64).unwrap();
    assert_eq!((file.sync(), file.lost_pages()), (Ok(()), 3), "told already");
    let zeroes = memory.durable().chunks(PAGE).filter(|page| page[0] == 0).count();
    assert_eq!(zeroes, 2, "what was zeroed since, and the one in part");
}
