//! What goes wrong, one thing at a time, and what is promised then.

use crate::flushes::power_fails_in_a_flush;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Barrier, Condvar, Mutex};
use std::thread;
use std::time::Duration;
use zonal_cache::faulty_store::Operation;
use zonal_cache::store::{Store, StoreError};
use zonal_cache::threads::OpenError;
use zonal_cache::{
    Advice, Cache, CacheError, CacheFile, FaultyStore, FileStore, MemoryStore, NotDirect, S3Fifo,
};

const PAGE: usize = 4096;

/// A cache of a number of pages, that reads ahead by itself.
fn cache(pages: usize) -> Cache<S3Fifo> {
    Cache::builder().memory(pages * PAGE).io_threads(0).open().expect("a cache")
}

/// Bytes of a number of pages, each with its number.
fn numbered(pages: usize) -> Vec<u8> {
    (0..pages).flat_map(|page| [page as u8; PAGE]).collect()
}

/// A file of a number of pages whose store does as `fault` says.
fn faulty(
    cache: &Cache<S3Fifo>,
    pages: usize,
    fault: impl Fn(Operation) -> Option<StoreError> + Send + Sync + 'static,
) -> CacheFile<S3Fifo> {
    let store = FaultyStore::new(MemoryStore::from(numbered(pages)), fault);
    cache.open(store).expect("a file")
}

fn page(file: &CacheFile<S3Fifo>, index: u64) -> Result<u8, CacheError> {
    let mut bytes = [0xEE; PAGE];
    let got = file.read_at(&mut bytes, index * PAGE as u64)?;
    assert_eq!(got, PAGE);
    assert!(bytes.iter().all(|&byte| byte == bytes[0]));
    Ok(bytes[0])
}

/// Whether an operation is on a page.
fn touches(operation: Operation, index: u64) -> bool {
    let at = index * PAGE as u64;
    match operation {
        Operation::Read { offset, len } | Operation::Write { offset, len } => {
            (offset..offset + len).contains(&at)
        }
        _ => false,
    }
}

#[test]
fn a_reader_is_told_of_its_own_range_only() {
    let cache = cache(64);
    let file = faulty(&cache, 20, |operation| touches(operation, 5).then_some(StoreError::IO));
    let mut bytes = vec![0; 20 * PAGE];
    assert_eq!(file.read_at(&mut bytes, 0), Ok(5 * PAGE), "up to the bad page");
    assert_eq!(bytes[..5 * PAGE], numbered(5));
    let error = file.read_at(&mut bytes, 5 * PAGE as u64 + 7);
    assert_eq!(error, Err(CacheError::Store(StoreError::IO)));
    assert_eq!(file.read_at(&mut bytes, 6 * PAGE as u64), Ok(14 * PAGE));
    assert!(file.pin(4 * PAGE as u64..7 * PAGE as u64).is_err());
    assert!(file.pin(6 * PAGE as u64..9 * PAGE as u64).is_ok());
    for index in (0..20).filter(|&index| index != 5) {
        assert_eq!(page(&file, index), Ok(index as u8));
    }
    assert_eq!(file.sync(), Ok(()), "that is no error of writing");
}

#[test]
fn a_part_of_a_bad_page_is_not_written_and_a_whole_one_is() {
    let cache = cache(64);
    let file = faulty(&cache, 20, |operation| {
        let read = matches!(operation, Operation::Read { .. });
        (read && touches(operation, 5)).then_some(StoreError::IO)
    });
    let at = 5 * PAGE as u64;
    assert_eq!(file.write_at(&[1], at), Err(CacheError::Store(StoreError::IO)));
    assert_eq!(file.dirty_pages(), 0);
    assert_eq!(file.write_at(&[9; PAGE], at), Ok(PAGE));
    assert_eq!(page(&file, 5), Ok(9));
    assert_eq!(file.sync(), Ok(()));
}

/// A log that is appended to for years without a sync: the list of what a failed flush makes dirty again
/// stays within the cache, and has the pages that are there.
#[test]
fn what_is_never_flushed_is_not_remembered_for_ever() {
    const FRAMES: usize = 64;
    let cache = cache(FRAMES);
    let file = faulty(&cache, 0, |operation| {
        matches!(operation, Operation::Flush).then_some(StoreError::IO)
    });
    let mut most = 0;
    for index in 0..40 * FRAMES as u64 {
        assert_eq!(file.write_at(&[7; PAGE], index * PAGE as u64), Ok(PAGE));
        most = most.max(file.unflushed_pages());
    }
    assert!((FRAMES / 2..=4 * FRAMES).contains(&most), "{most}");
    let last = 40 * FRAMES as u64 - 1;
    assert_eq!(page(&file, last), Ok(7));
    assert_eq!(file.sync(), Err(CacheError::Store(StoreError::IO)));
    assert!(file.dirty_pages() > 0, "those that are there are dirty again");
    assert_eq!(file.unflushed_pages(), 0);
    assert_eq!(file.lost_pages() + file.dirty_pages() as u64, 40 * FRAMES as u64);
}

/// Reads block until the door is opened.
#[derive(Default)]
struct Door {
    open: Mutex<bool>,
    opened: Condvar,
    reads: AtomicU64,
}

impl Door {
    fn pass(&self) {
        self.reads.fetch_add(1, SeqCst);
        let mut open = self.open.lock().unwrap();
        while !*open {
            open = self.opened.wait(open).unwrap();
        }
    }
    fn open(&self) {
        *self.open.lock().unwrap() = true;
        self.opened.notify_all();
    }
}

#[test]
fn a_missing_page_is_read_once_for_all_who_wait() {
    for error in [None, Some(StoreError::IO)] {
        let cache = cache(64);
        let door = Arc::new(Door::default());
        let file = faulty(&cache, 20, {
            let door = door.clone();
            move |operation| {
                if matches!(operation, Operation::Read { .. }) {
                    door.pass();
                }
                error
            }
        });
        file.advise(Advice::Random);
        let here = Barrier::new(5);
        thread::scope(|scope| {
            for _ in 0..4 {
                let file = file.clone();
                let here = &here;
                scope.spawn(move || {
                    here.wait();
                    let want = error.map_or(Ok(7), |error| Err(CacheError::Store(error)));
                    assert_eq!(page(&file, 7), want);
                });
            }
            here.wait();
            thread::sleep(Duration::from_millis(50));
            door.open();
        });
        if error.is_none() {
            assert_eq!(door.reads.load(SeqCst), 1);
        } else {
            // One who comes after the error is known tries again.
            assert!(door.reads.load(SeqCst) <= 4);
        }
    }
}

#[test]
fn a_failed_write_is_told_once_to_every_handle_and_the_page_stays_dirty() {
    let cache = cache(64);
    let bad = Arc::new(AtomicBool::new(true));
    let file = faulty(&cache, 20, {
        let bad = bad.clone();
        move |operation| {
            let write = matches!(operation, Operation::Write { .. });
            (write && touches(operation, 5) && bad.load(SeqCst)).then_some(StoreError::NO_SPACE)
        }
    });
    let (other, third) = (file.clone(), file.clone());
    file.write_at(&[9; 3 * PAGE], 4 * PAGE as u64).unwrap();
    let told = Err(CacheError::Store(StoreError::NO_SPACE));
    assert_eq!(file.sync(), told);
    assert_eq!(file.dirty_pages(), 1, "its neighbours were written");
    bad.store(false, SeqCst);
    let late = file.clone();
    assert_eq!(file.sync(), Ok(()), "told already");
    assert_eq!(file.dirty_pages(), 0);
    assert_eq!(other.sync(), told);
    assert_eq!(other.sync(), Ok(()));
    assert_eq!(third.sync_range(0..1), told, "whatever the range");
    assert_eq!(late.sync(), Ok(()), "opened after it");
    assert_eq!(page(&file, 5), Ok(9));
}

#[test]
fn a_flush_that_fails_makes_pages_dirty_again() {
    let cache = cache(64);
    let bad = Arc::new(AtomicBool::new(true));
    let memory = Arc::new(MemoryStore::from(numbered(8)));
    let store = FaultyStore::new(memory.clone(), {
        let bad = bad.clone();
        move |operation| {
            (operation == Operation::Flush && bad.load(SeqCst)).then_some(StoreError::IO)
        }
    });
    let file = cache.open(store).unwrap();
    file.write_at(&[9; PAGE], 0).unwrap();
    assert_eq!(file.sync(), Err(CacheError::Store(StoreError::IO)));
    assert_eq!(file.dirty_pages(), 1);
    // The disk forgets what it was never made to keep.
    memory.cut_power(|_| false);
    bad.store(false, SeqCst);
    assert_eq!(file.sync(), Ok(()));
    assert_eq!(memory.durable()[..PAGE], [9; PAGE]);
}

/// A cache of 16 pages, 32 written, and a flush that fails as the power goes.
#[test]
fn what_a_flush_that_fails_does_not_find_is_counted() {
    let cache = cache(16);
    let memory = Arc::new(MemoryStore::from(vec![0; 32 * PAGE]));
    let file = cache.open(power_fails_in_a_flush(&memory)).unwrap();
    (0..32).for_each(|index| assert_eq!(file.write_at(&[9; PAGE], index * PAGE as u64), Ok(PAGE)));
    assert_eq!(file.lost_pages(), 0);
    assert_eq!(file.sync(), Err(CacheError::Store(StoreError::IO)));
    let lost = file.lost_pages();
    assert_eq!(lost + file.dirty_pages() as u64, 32);
    assert!(lost >= 16, "{lost}");
    assert_eq!((file.sync(), file.lost_pages()), (Ok(()), lost), "told already, and still lost");
    let kept = memory.durable().chunks(PAGE).filter(|page| page[0] == 9).count();
    assert_eq!(kept as u64 + lost, 32);
}

#[test]
fn all_pinned_is_an_error_and_nothing_worse() {
    let cache = cache(16);
    let file = faulty(&cache, 40, |_| None);
    let pinned = file.pin(0..16 * PAGE as u64).unwrap();
    assert_eq!(page(&file, 3), Ok(3), "what is there can be read");
    assert_eq!(page(&file, 30), Err(CacheError::NoRoom { bound: 16 }));
    assert_eq!(file.write_at(&[1], 0), Err(CacheError::NoRoom { bound: 16 }), "a copy");
    assert!(file.pin(0..17 * PAGE as u64).is_err());
    drop(pinned);
    assert_eq!(page(&file, 30), Ok(30));
    assert_eq!(file.write_at(&[1], 0), Ok(1));
}

#[test]
fn a_file_that_hangs_does_not_stop_the_others() {
    let cache = cache(64);
    let door = Arc::new(Door::default());
    let hangs = faulty(&cache, 40, {
        let door = door.clone();
        move |operation| {
            if matches!(operation, Operation::Write { .. }) {
                door.pass();
            }
            None
        }
    });
    let well = faulty(&cache, 200, |_| None);
    hangs.write_at(&[9; 8 * PAGE], 0).unwrap();
    thread::scope(|scope| {
        let syncs = scope.spawn(|| hangs.sync());
        // Four times the bound, while the other file's pages cannot go.
        (0..200).for_each(|index| assert_eq!(page(&well, index), Ok(index as u8)));
        well.write_at(&[7; PAGE], 0).unwrap();
        assert_eq!(well.sync(), Ok(()));
        assert_eq!(page(&hangs, 3), Ok(9), "and it can be read");
        door.open();
        assert_eq!(syncs.join().unwrap(), Ok(()));
    });
}

#[test]
fn where_all_hangs_others_are_told_after_some_time() {
    let cache = cache(16);
    let door = Arc::new(Door::default());
    let hangs = faulty(&cache, 40, {
        let door = door.clone();
        move |operation| {
            if matches!(operation, Operation::Write { .. }) {
                door.pass();
            }
            None
        }
    });
    let well = faulty(&cache, 20, |_| None);
    let pinned = well.pin(0..10 * PAGE as u64).unwrap();
    hangs.write_at(&[9; 6 * PAGE], 0).unwrap();
    thread::scope(|scope| {
        let syncs = scope.spawn(|| hangs.sync());
        while door.reads.load(SeqCst) == 0 {
            thread::yield_now();
        }
        assert_eq!(page(&well, 15), Err(CacheError::NoRoom { bound: 16 }));
        door.open();
        assert_eq!(syncs.join().unwrap(), Ok(()));
    });
    assert_eq!(page(&well, 15), Ok(15));
    drop(pinned);
}

#[test]
fn a_store_that_panics_leaves_no_page_behind() {
    let cache = cache(16);
    let bad = Arc::new(AtomicBool::new(true));
    let file = faulty(&cache, 20, {
        let bad = bad.clone();
        move |_| {
            assert!(!bad.load(SeqCst), "planted");
            None
        }
    });
    file.advise(Advice::Random);
    for _ in 0..40 {
        assert!(catch_unwind(AssertUnwindSafe(|| page(&file, 3))).is_err());
        assert!(catch_unwind(AssertUnwindSafe(|| file.write_at(&[1], 9000))).is_err());
    }
    assert_eq!(cache.stats().used, 0);
    file.write_at(&[9; 2 * PAGE], 0).unwrap();
    assert!(catch_unwind(AssertUnwindSafe(|| file.sync())).is_err());
    bad.store(false, SeqCst);
    assert_eq!((file.dirty_pages(), file.sync()), (2, Ok(())));
    (2..20).for_each(|index| assert_eq!(page(&file, index), Ok(index as u8)));
}

#[test]
fn bad_input_is_refused_and_changes_nothing() {
    let small = Cache::<S3Fifo>::builder().memory(15 * PAGE).open();
    let least = CacheError::BoundTooSmall { asked: 15, least: 16 };
    assert!(matches!(small, Err(OpenError::Cache(error)) if error == least));
    let cache = cache(32);
    assert_eq!(cache.set_bound(15), Err(least));
    assert_eq!(cache.set_bound(33), Err(CacheError::BoundTooLarge { asked: 33, most: 32 }));
    let file = faulty(&cache, 2, |_| None);
    let far = i64::MAX as u64;
    let beyond = |offset| Err(CacheError::OffsetTooLarge { offset });
    assert_eq!(file.write_at(&[1], far), beyond(far));
    assert_eq!(file.read_at(&mut [1], u64::MAX), beyond(u64::MAX));
    assert_eq!(file.truncate(far + 1), beyond(far + 1).map(drop));
    let backwards = std::ops::Range { start: 9000, end: 8 };
    file.write_at(&[1; 2 * PAGE], 0).unwrap();
    assert_eq!(file.sync_range(backwards.clone()), Ok(()));
    assert_eq!(file.sync(), Ok(()));
    assert!(matches!(file.pin(backwards), Err(CacheError::OffsetTooLarge { offset: 9000 })));
    assert_eq!((file.len(), file.dirty_pages()), (2 * PAGE as u64, 0));
    assert_eq!(file.read_at(&mut [1], far - 1), Ok(0), "beyond the end");
    assert_eq!(cache.stats().bound, 32);
}

#[test]
fn a_file_that_shrinks_underneath_is_an_error_of_its_lost_range() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    std::fs::write(&path, numbered(10)).unwrap();
    let cache = cache(32);
    let file = cache.open(FileStore::open(&path).unwrap()).unwrap();
    assert_eq!(page(&file, 0), Ok(0));
    file.invalidate(0..u64::MAX);
    std::fs::File::options().write(true).open(&path).unwrap().set_len(3 * PAGE as u64).unwrap();
    assert_eq!(page(&file, 2), Ok(2));
    assert_eq!(page(&file, 5), Err(CacheError::Store(StoreError::SHRUNK)));
    file.truncate(3 * PAGE as u64).unwrap();
    assert_eq!(file.len(), 3 * PAGE as u64);
}

#[test]
fn a_store_that_cannot_go_past_the_kernels_cache_says_why() {
    // Files of /proc take no `O_DIRECT`.
    let path = "/proc/self/status".as_ref();
    assert!(!FileStore::open(path).unwrap().is_direct());
    let error = FileStore::open_direct(path).unwrap_err();
    assert!(matches!(error, NotDirect::Refused(_)), "{error:?}");
    assert_eq!(error.to_string(), "O_DIRECT is refused: Invalid argument (os error 22)");
    let missing = FileStore::open_direct("/proc/self/no such file".as_ref()).unwrap_err();
    assert!(matches!(missing, NotDirect::Open(_)), "{missing:?}");
    // Where it is not refused, the other ways find the same.
    let file = tempfile::NamedTempFile::new().unwrap();
    let strict = FileStore::open_direct(file.path()).is_ok_and(|store| store.is_direct());
    assert_eq!(strict, FileStore::open(file.path()).unwrap().is_direct());
}

#[test]
fn what_cannot_be_written_when_the_last_handle_goes_waits_for_a_sync() {
    let cache = cache(32);
    let bad = Arc::new(AtomicBool::new(true));
    let memory = Arc::new(MemoryStore::default());
    let store = FaultyStore::new(memory.clone(), {
        let bad = bad.clone();
        move |_| bad.load(SeqCst).then_some(StoreError::IO)
    });
    let file = cache.open(store).unwrap();
    file.write_at(&[9; PAGE], 0).unwrap();
    drop(file);
    assert_eq!((cache.stats().used, cache.stats().dirty), (1, 1));
    assert_eq!(cache.sync(), Err(CacheError::Store(StoreError::IO)));
    bad.store(false, SeqCst);
    assert_eq!(cache.sync(), Ok(()));
    assert_eq!(memory.durable(), [9; PAGE]);
    assert_eq!((cache.stats().used, cache.stats().dirty), (0, 0));
}

#[test]
fn a_store_without_a_length_is_no_file() {
    struct Gone;
    impl Store for Gone {
        fn len(&self) -> Result<u64, StoreError> {
            Err(StoreError::IO)
        }
        fn read(&self, _: u64, _: &mut [&mut [u8]]) -> Result<u64, StoreError> {
            Err(StoreError::IO)
        }
        fn write(&self, _: u64, _: &[&[u8]]) -> Result<(), StoreError> {
            Err(StoreError::IO)
        }
        fn set_len(&self, _: u64) -> Result<(), StoreError> {
            Err(StoreError::IO)
        }
        fn flush(&self) -> Result<(), StoreError> {
            Err(StoreError::IO)
        }
    }
    assert!(matches!(cache(16).open(Gone), Err(CacheError::Store(StoreError::IO))));
}

/// A store of zeroes without an end.
struct Endless;

impl Store for Endless {
    fn len(&self) -> Result<u64, StoreError> {
        Ok(1 << 60)
    }
    fn read(&self, _: u64, pages: &mut [&mut [u8]]) -> Result<u64, StoreError> {
        pages.iter_mut().for_each(|page| page.fill(0));
        Ok((pages.len() * PAGE) as u64)
    }
    fn write(&self, _: u64, _: &[&[u8]]) -> Result<(), StoreError> {
        Err(StoreError::NO_SPACE)
    }
    fn set_len(&self, _: u64) -> Result<(), StoreError> {
        Err(StoreError::NO_SPACE)
    }
    fn flush(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

#[test]
fn more_than_there_is_room_for_is_not_pinned() {
    let cache = cache(32);
    let file = cache.open(Endless).unwrap();
    for pages in [33, 1 << 40] {
        let pinned = file.pin(0..pages * PAGE as u64);
        assert!(matches!(pinned, Err(CacheError::NoRoom { bound: 32 })));
    }
    assert!(file.pin(0..32 * PAGE as u64).is_ok());
}

/// However calls meet, the bound that is told is kept.
#[test]
fn bounds_that_are_set_at_once() {
    let cache = cache(256);
    let file = cache.open(MemoryStore::from(vec![0; 256 * PAGE])).unwrap();
    let mut bytes = vec![0; 256 * PAGE];
    for round in 0..300 {
        thread::scope(|scope| {
            for bound in [40, 200 + round % 50] {
                let cache = &cache;
                scope.spawn(move || cache.set_bound(bound));
            }
        });
        file.read_at(&mut bytes, 0).unwrap();
        let stats = cache.stats();
        assert!([40, 200 + round % 50].contains(&stats.bound));
        assert!(stats.used <= stats.bound, "{} of {}", stats.used, stats.bound);
    }
}
