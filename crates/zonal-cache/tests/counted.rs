//! Frames that are only counted: a cache without bytes, as a simulator has it.

use core::ptr::NonNull;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use zonal::Pfn;
use zonal::policy::trace::Off;
use zonal_cache::cache::Options;
use zonal_cache::frames::{Frames, PAGE};
use zonal_cache::lru::PerNode;
use zonal_cache::store::{Store, StoreError};
use zonal_cache::{PageCache, Setup, Threads, TwoLists};

/// How many frames there are in use, and how many came back in each call.
#[derive(Default)]
struct Counts {
    next: AtomicU64,
    used: AtomicU64,
    freed: Mutex<Vec<usize>>,
}

struct Counted(Arc<Counts>);

// SAFETY: no number is given twice, and no byte is asked for.
unsafe impl Frames for Counted {
    type Trace = Off;
    const HAS_BYTES: bool = false;

    fn alloc(&self) -> Option<Pfn> {
        self.0.used.fetch_add(1, Relaxed);
        Some(Pfn::new(self.0.next.fetch_add(1, Relaxed) + 1))
    }

    unsafe fn free(&self, frames: &[Pfn]) {
        self.0.used.fetch_sub(frames.len() as u64, Relaxed);
        self.0.freed.lock().unwrap().push(frames.len());
    }

    fn address(&self, _: Pfn) -> NonNull<u8> {
        panic!("there are no bytes")
    }
}

struct Numbers;

impl Setup for Numbers {
    type Host = Threads;
    type Frames = Counted;
    type Evict = TwoLists;
    type Lru = PerNode<14>;
}

/// Counts pages that go by, of which there are no bytes.
#[derive(Default)]
struct Pages {
    len: AtomicU64,
    read: AtomicU64,
    written: AtomicU64,
}

struct Passed(Arc<Pages>);

impl Store for Passed {
    fn len(&self) -> Result<u64, StoreError> {
        Ok(self.0.len.load(Relaxed))
    }
    fn read(&self, offset: u64, pages: &mut [&mut [u8]]) -> Result<u64, StoreError> {
        assert!(pages.iter().all(|page| page.is_empty()));
        self.0.read.fetch_add(pages.len() as u64, Relaxed);
        Ok((self.0.len.load(Relaxed) - offset).min((pages.len() * PAGE) as u64))
    }
    fn write(&self, _: u64, pages: &[&[u8]]) -> Result<(), StoreError> {
        assert!(pages.iter().all(|page| page.is_empty()));
        self.0.written.fetch_add(pages.len() as u64, Relaxed);
        Ok(())
    }
    fn set_len(&self, len: u64) -> Result<(), StoreError> {
        self.0.len.store(len, Relaxed);
        Ok(())
    }
    fn flush(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

#[test]
fn pages_without_bytes_are_read_written_and_freed_in_batches() {
    let (counts, pages) = (Arc::<Counts>::default(), Arc::<Pages>::default());
    pages.len.store(100 * PAGE as u64 - 7, Relaxed);
    let options = Options { pages: 64, window: 0, ..Options::default() };
    let frames = Counted(counts.clone());
    let cache = PageCache::<Numbers>::with_parts(Threads::new(), frames, options).unwrap();
    let file = cache.open(Passed(pages.clone())).unwrap();
    let mut into = vec![7; 100 * PAGE];
    let got = file.read_at(&mut into, 0);
    assert_eq!(got, Ok(100 * PAGE - 7));
    assert!(into.iter().all(|&byte| byte == 7), "nothing was copied");
    assert_eq!((pages.read.load(Relaxed), cache.stats().used), (100, 64));
    assert_eq!(counts.used.load(Relaxed), 64);
    assert_eq!(file.write_at(&[1; 5000], 95 * PAGE as u64 + 10), Ok(5000));
    assert_eq!(file.dirty_pages(), 2);
    let pinned = file.pin(90 * PAGE as u64..92 * PAGE as u64 + 1).unwrap();
    assert_eq!((pinned.len(), pinned.pieces().map(<[u8]>::len).sum::<usize>()), (2 * PAGE + 1, 0));
    // A page that is pinned is copied, and its tail made zero.
    file.write_at(&[2; 10], 91 * PAGE as u64).unwrap();
    drop(pinned);
    file.sync().unwrap();
    assert_eq!(pages.written.load(Relaxed), 3);
    file.truncate(99 * PAGE as u64 + 3).unwrap();
    counts.freed.lock().unwrap().clear();
    let cached = cache.stats().used;
    file.truncate(0).unwrap();
    assert_eq!((counts.used.load(Relaxed), cache.stats().used), (0, 0));
    let mut batches = vec![14; cached / 14];
    batches.push(cached % 14);
    assert_eq!(*counts.freed.lock().unwrap(), batches);
}
