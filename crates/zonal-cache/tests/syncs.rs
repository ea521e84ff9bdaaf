//! All files are synced together: a store that hangs, fails or panics has its own file alone wait, or be told.

use crate::door::{Door, LONG, Opens, in_time};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;
use zonal_cache::faulty_store::Operation;
use zonal_cache::store::StoreError;
use zonal_cache::{Cache, CacheError, CacheFile, FaultyStore, MemoryStore, S3Fifo};

const PAGE: usize = 4096;
/// As many spare threads as there are.
const SPARES: usize = 32;

fn cache(io_threads: usize) -> Cache<S3Fifo> {
    Cache::builder().memory(512 * PAGE).window(0).io_threads(io_threads).open().expect("a cache")
}

/// A file with a dirty page, and its store behind `fault`.
fn dirty(
    cache: &Cache<S3Fifo>,
    fault: impl Fn(Operation) -> Option<StoreError> + Send + Sync + 'static,
) -> (CacheFile<S3Fifo>, Arc<MemoryStore>) {
    let memory = Arc::new(MemoryStore::default());
    let file = cache.open(FaultyStore::new(memory.clone(), fault)).expect("a file");
    file.write_at(&[1; PAGE], 0).expect("room");
    (file, memory)
}

/// One whose store hangs in what `is` says.
fn hanging(
    cache: &Cache<S3Fifo>,
    door: &Arc<Door>,
    is: fn(&Operation) -> bool,
) -> (CacheFile<S3Fifo>, Arc<MemoryStore>) {
    let door = door.clone();
    dirty(cache, move |operation| {
        if is(&operation) {
            door.pass();
        }
        None
    })
}

const fn is_write(operation: &Operation) -> bool {
    matches!(operation, Operation::Write { .. })
}

const fn is_flush(operation: &Operation) -> bool {
    matches!(operation, Operation::Flush)
}

fn lasts(memory: &MemoryStore) -> bool {
    memory.durable() == [1; PAGE]
}

/// Some stores hang in the write or in the flush, one fails, and others before, between and behind are well.
fn all_but_those_that_hang(io_threads: usize, hang: usize) {
    let cache = cache(io_threads);
    let doors: Vec<Arc<Door>> = (0..hang).map(|_| Arc::default()).collect();
    let mut well = vec![dirty(&cache, |_| None)];
    let mut hangs = Vec::new();
    for (number, door) in doors.iter().enumerate() {
        let is = if number % 2 == 0 { is_flush } else { is_write };
        hangs.push(hanging(&cache, door, is));
        if number == 0 {
            well.push(dirty(&cache, |_| None));
        }
    }
    let fails = |operation| (operation == Operation::Flush).then_some(StoreError::NO_SPACE);
    let (failed, _memory) = dirty(&cache, fails);
    well.extend((0..3).map(|_| dirty(&cache, |_| None)));
    let _opens: Vec<Opens<'_>> = doors.iter().map(|door| Opens(door)).collect();
    let (syncs, (said, says)) = (cache.clone(), mpsc::channel());
    thread::spawn(move || said.send(syncs.sync()));
    let memories: Vec<_> = well.iter().map(|(_, memory)| memory.clone()).collect();
    let all = move || {
        while !memories.iter().all(|memory| lasts(memory)) {
            thread::yield_now();
        }
    };
    assert_eq!(in_time(all), Some(()), "of {hang} that hang, with {io_threads} threads");
    // The one that fails is before the last of these.
    let told = Err(CacheError::Store(StoreError::NO_SPACE));
    assert_eq!(failed.sync(), told);
    assert!(well.iter().all(|(file, _)| file.sync().is_ok()), "an error of another file");
    doors.iter().for_each(|door| door.wait_until_met());
    assert!(says.recv_timeout(Duration::from_millis(50)).is_err(), "it waits for the stores");
    doors.iter().for_each(|door| door.open());
    assert_eq!(says.recv_timeout(LONG), Ok(told));
    for (file, memory) in &hangs {
        assert!(lasts(memory));
        assert_eq!((file.sync(), file.dirty_pages()), (Ok(()), 0));
    }
}

#[test]
fn a_store_that_hangs_holds_up_no_other_files_sync() {
    all_but_those_that_hang(1, 1);
    all_but_those_that_hang(0, 1);
    all_but_those_that_hang(2, 5);
}

/// With no thread left who asked goes on by itself.
#[test]
fn as_many_stores_hang_as_there_are_threads() {
    all_but_those_that_hang(1, SPARES);
}

/// Whichever comes to its end first.
#[test]
fn of_several_errors_it_tells_that_of_the_file_opened_last() {
    let (cache, door) = (cache(1), Arc::new(Door::default()));
    let late = {
        let door = door.clone();
        move |operation| {
            (operation == Operation::Flush).then(|| door.pass()).map(|()| StoreError::IO)
        }
    };
    let (first, _memory) = dirty(&cache, late);
    let last = cache.open(FaultyStore::new(MemoryStore::default(), {
        let door = door.clone();
        move |operation| {
            (operation == Operation::Flush).then(|| door.open()).map(|()| StoreError::NO_SPACE)
        }
    }));
    let (last, syncs) = (last.unwrap(), cache.clone());
    let _opens = Opens(&door);
    let told = Err(CacheError::Store(StoreError::NO_SPACE));
    assert_eq!(in_time(move || syncs.sync()), Some(told));
    assert_eq!((first.sync(), last.sync()), (Err(CacheError::Store(StoreError::IO)), told));
}

#[test]
fn a_store_that_panics_is_an_error_and_others_are_synced() {
    let (cache, well) = (cache(1), Arc::new(AtomicBool::new(false)));
    let panics = {
        let well = well.clone();
        move |operation| {
            assert!(operation != Operation::Flush || well.load(SeqCst), "planted");
            None
        }
    };
    let (first, memory) = dirty(&cache, |_| None);
    let (planted, _memory) = dirty(&cache, panics);
    let (last, after) = dirty(&cache, |_| None);
    assert_eq!(cache.sync(), Err(CacheError::Store(StoreError::IO)));
    assert!(lasts(&memory) && lasts(&after));
    assert_eq!((first.sync(), last.sync()), (Ok(()), Ok(())));
    well.store(true, SeqCst);
    assert_eq!((planted.sync(), cache.sync()), (Ok(()), Ok(())));
}

/// A file without a handle that could not be written is let go once it could.
#[test]
fn files_that_are_closed_are_synced_too() {
    let (cache, full) = (cache(1), Arc::new(AtomicBool::new(true)));
    let refuses = {
        let full = full.clone();
        move |operation| (is_write(&operation) && full.load(SeqCst)).then_some(StoreError::NO_SPACE)
    };
    let (closed, memory) = dirty(&cache, refuses);
    let (other, _memory) = dirty(&cache, |_| None);
    drop(closed);
    assert_eq!(cache.sync(), Err(CacheError::Store(StoreError::NO_SPACE)));
    assert_eq!((cache.stats().dirty, other.sync()), (1, Ok(())));
    full.store(false, SeqCst);
    assert_eq!(cache.sync(), Ok(()));
    assert!(lasts(&memory));
    assert_eq!((cache.stats().dirty, Arc::strong_count(&memory)), (0, 1));
}
