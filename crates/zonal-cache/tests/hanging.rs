//! Stores that hang: who waits for them, and who does not; and what is on its way to them.

use crate::door::{Door, LONG, Opens, in_time};
use rustix::time::{ClockId, clock_gettime};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;
use zonal_cache::faulty_store::Operation;
use zonal_cache::store::{LaterRead, Store, StoreError};
use zonal_cache::{Advice, Cache, CacheError, CacheFile, FaultyStore, MemoryStore, S3Fifo};

const PAGE: usize = 4096;

fn cache(io_threads: usize) -> Cache<S3Fifo> {
    Cache::builder().memory(512 * PAGE).io_threads(io_threads).open().expect("a cache")
}

fn numbered(pages: usize) -> MemoryStore {
    MemoryStore::from((0..pages).flat_map(|page| [page as u8; PAGE]).collect::<Vec<u8>>())
}

fn is_io_thread() -> bool {
    thread::current().name().is_some_and(|name| name.starts_with("cache-io"))
}

/// Reads a file from front to back, a page at a time; `false` if that took for ever.
fn streams(file: &CacheFile<S3Fifo>) -> bool {
    let (file, (done, is_done)) = (file.clone(), mpsc::channel());
    thread::spawn(move || {
        let mut bytes = [0; PAGE];
        for page in 0..file.len() / PAGE as u64 {
            assert_eq!(file.read_at(&mut bytes, page * PAGE as u64), Ok(PAGE));
            assert_eq!(bytes, [page as u8; PAGE]);
        }
        done.send(()).unwrap();
    });
    is_done.recv_timeout(Duration::from_secs(30)).is_ok()
}

/// The one thread that reads ahead is in a store that hangs.
#[test]
fn reading_ahead_that_hangs_holds_up_no_other_file() {
    let (cache, door) = (cache(1), Arc::new(Door::default()));
    let hangs = {
        let door = door.clone();
        move |operation| {
            if matches!(operation, Operation::Read { .. }) && is_io_thread() {
                door.pass();
            }
            None
        }
    };
    let hanging = cache.open(FaultyStore::new(numbered(200), hangs)).unwrap();
    let well = cache.open(numbered(200)).unwrap();
    let _opens = Opens(&door);
    hanging.will_need(0..u64::MAX);
    door.wait_until_met();
    assert!(streams(&well), "it waits for the thread");
    well.write_at(&[1; 10], 77).unwrap();
    // Of the file itself it is known what another thread has not begun.
    let mut bytes = [0; PAGE];
    assert_eq!(hanging.read_at(&mut bytes, 150 * PAGE as u64), Ok(PAGE));
    assert_eq!(bytes, [150; PAGE]);
    door.open();
    assert!(streams(&hanging));
}

/// As [`MemoryStore`], but that it takes reads for later, and says of each that nothing came of it.
struct Empty {
    inner: MemoryStore,
    taken: Mutex<Vec<LaterRead>>,
    door: Door,
}

impl Store for Empty {
    fn len(&self) -> Result<u64, StoreError> {
        self.inner.len()
    }
    fn read(&self, offset: u64, pages: &mut [&mut [u8]]) -> Result<u64, StoreError> {
        if is_io_thread() {
            self.door.pass();
        }
        self.inner.read(offset, pages)
    }
    fn read_later(&self, later: LaterRead) -> Result<(), LaterRead> {
        self.taken.lock().unwrap().push(later);
        Ok(())
    }
    fn write(&self, offset: u64, pages: &[&[u8]]) -> Result<(), StoreError> {
        self.inner.write(offset, pages)
    }
    fn set_len(&self, len: u64) -> Result<(), StoreError> {
        self.inner.set_len(len)
    }
    fn flush(&self) -> Result<(), StoreError> {
        self.inner.flush()
    }
}

/// The thread that says how reads went has others to speak for: it does not read itself.
#[test]
fn a_read_that_came_to_nothing_is_made_again_by_another_thread() {
    let cache = cache(1);
    let inner = numbered(200);
    let store = Arc::new(Empty { inner, taken: Mutex::default(), door: Door::default() });
    let file = cache.open(store.clone()).unwrap();
    let _opens = Opens(&store.door);
    file.will_need(0..200 * PAGE as u64);
    let taken = std::mem::take(&mut *store.taken.lock().unwrap());
    assert!(taken.len() > 2);
    for (number, later) in taken.into_iter().enumerate() {
        later.end(if number == 1 { Err(StoreError::IO) } else { Ok(0) });
    }
    store.door.wait_until_met();
    let mut bytes = [0; PAGE];
    assert_eq!(file.read_at(&mut bytes, 199 * PAGE as u64), Ok(PAGE));
    assert_eq!(bytes, [199; PAGE]);
    store.door.open();
    assert!(streams(&file));
}

/// What is on its way counts, and is waited for.
#[test]
fn write_back_waits_for_what_others_write() {
    for error in [None, Some(StoreError::NO_SPACE)] {
        let (cache, door) = (cache(0), Arc::new(Door::default()));
        let hangs = {
            let door = door.clone();
            move |operation| {
                if !matches!(operation, Operation::Write { .. }) {
                    return None;
                }
                door.pass();
                error
            }
        };
        let file = cache.open(FaultyStore::new(numbered(8), hangs)).unwrap();
        file.write_at(&[9; 3 * PAGE], 0).unwrap();
        thread::scope(|scope| {
            let _opens = Opens(&door);
            scope.spawn(|| file.write_older(Duration::ZERO));
            door.wait_until_met();
            assert_eq!((file.dirty_pages(), file.unwritten_pages()), (0, 3));
            let waits = scope.spawn(|| file.write_back());
            thread::sleep(Duration::from_millis(50));
            assert!(!waits.is_finished(), "three pages are not there yet");
            door.open();
            let told = error.map_or(Ok(()), |error| Err(CacheError::Store(error)));
            assert_eq!(waits.join().unwrap(), told);
        });
        let left = if error.is_some() { 3 } else { 0 };
        assert_eq!((file.dirty_pages(), file.unwritten_pages()), (left, left));
    }
}

/// A file of which every write hangs.
fn hanging(cache: &Cache<S3Fifo>, door: &Arc<Door>) -> CacheFile<S3Fifo> {
    let door = door.clone();
    let hangs = move |operation| {
        if matches!(operation, Operation::Write { .. }) {
            door.pass();
        }
        None
    };
    cache.open(FaultyStore::new(MemoryStore::default(), hangs)).unwrap()
}

fn small(pages: usize, io_threads: usize) -> Cache<S3Fifo> {
    Cache::builder().memory(pages * PAGE).window(0).io_threads(io_threads).open().expect("a cache")
}

/// Room could be had only by a write to another file's store, which hangs.
#[test]
fn a_write_that_hangs_holds_up_no_other_file_for_ever() {
    let (cache, door) = (small(16, 1), Arc::new(Door::default()));
    let (hangs, well) = (hanging(&cache, &door), cache.open(numbered(20)).unwrap());
    let _opens = Opens(&door);
    let pinned = well.pin(0..10 * PAGE as u64).unwrap();
    assert_eq!(hangs.write_at(&[1; 6 * PAGE], 0), Ok(6 * PAGE));
    let reads = |page: u64| {
        let well = well.clone();
        let read = move || well.read_at(&mut [0; PAGE], page * PAGE as u64);
        in_time(move || (read(), clock_gettime(ClockId::ThreadCPUTime)))
    };
    let (refused, busy) = reads(15).unwrap();
    assert_eq!(refused, Err(CacheError::NoRoom { bound: 16 }));
    assert!(door.met.load(SeqCst), "the page is on its way");
    assert!(busy.tv_sec < 3, "of the seconds that it waited it had a CPU for {busy:?}");
    door.open();
    assert_eq!(reads(15).unwrap().0, Ok(PAGE));
    drop(pinned);
}

/// As long as pages of others can go, they do: those of the file itself, and those that another thread can write.
#[test]
fn dirty_pages_of_a_store_that_is_well_go() {
    for own in [true, false] {
        let (cache, door) = (small(40, if own { 1 } else { 2 }), Arc::new(Door::default()));
        let (hangs, well) = (hanging(&cache, &door), cache.open(numbered(64)).unwrap());
        let other = cache.open(numbered(8)).unwrap();
        let _opens = Opens(&door);
        let pinned = well.pin(0..24 * PAGE as u64).unwrap();
        assert_eq!(hangs.write_at(&[1; 12 * PAGE], 0), Ok(12 * PAGE));
        let dirty = if own { &well } else { &other };
        for page in 0..4 {
            // Beyond those that are pinned.
            assert_eq!(
                dirty.write_at(&[2; PAGE], if own { 40 + page } else { page } * PAGE as u64),
                Ok(PAGE)
            );
        }
        assert_eq!((cache.stats().used, cache.stats().dirty), (40, 16));
        let reads = well.clone();
        let read = in_time(move || reads.read_at(&mut [0; PAGE], 30 * PAGE as u64));
        assert_eq!(read, Some(Ok(PAGE)));
        door.open();
        drop(pinned);
    }
}

/// As many stores hang as the host has threads, and more: what others have goes by spare threads, for a page and for a bound.
#[test]
fn dirty_pages_go_where_more_stores_hang_than_there_are_threads() {
    for lowers in [false, true] {
        let (cache, doors) = (small(40, 1), [(); 3].map(|()| Arc::new(Door::default())));
        let hang = doors.each_ref().map(|door| hanging(&cache, door));
        let (well, other) = (cache.open(numbered(64)).unwrap(), cache.open(numbered(8)).unwrap());
        let _opens = doors.each_ref().map(|door| Opens(door));
        let pinned = well.pin(0..24 * PAGE as u64).unwrap();
        for file in &hang {
            assert_eq!(file.write_at(&[1; 4 * PAGE], 0), Ok(4 * PAGE));
        }
        assert_eq!(other.write_at(&[2; 4 * PAGE], 0), Ok(4 * PAGE));
        assert_eq!((cache.stats().used, cache.stats().dirty), (40, 16));
        let (file, all) = (well.clone(), cache.clone());
        let came = in_time(move || match lowers {
            true => all.set_bound(36),
            false => file.read_at(&mut [0; PAGE], 30 * PAGE as u64).map(drop),
        });
        assert_eq!(came, Some(Ok(())));
        doors.iter().for_each(|door| door.open());
        drop(pinned);
    }
}

#[test]
fn a_bound_is_lowered_as_far_as_no_store_hangs() {
    let (cache, door) = (small(40, 1), Arc::new(Door::default()));
    let (hangs, well) = (hanging(&cache, &door), cache.open(numbered(20)).unwrap());
    let _opens = Opens(&door);
    let pinned = well.pin(0..10 * PAGE as u64).unwrap();
    assert_eq!(hangs.write_at(&[1; 12 * PAGE], 0), Ok(12 * PAGE));
    let lowers = cache.clone();
    let lowered = in_time(move || lowers.set_bound(16));
    assert_eq!(lowered, Some(Err(CacheError::InUse { asked: 16, bound: 22 })));
    door.open();
    drop(pinned);
}

/// What a thread had to say to one who waits no more says nothing to the next who asks.
#[test]
fn pages_of_a_store_that_was_refused_and_is_well_go() {
    let (cache, door) = (small(16, 1), Arc::new(Door::default()));
    let full = Arc::new(AtomicBool::new(true));
    let hangs = {
        let (door, full) = (door.clone(), full.clone());
        move |operation| {
            if !matches!(operation, Operation::Write { .. }) {
                return None;
            }
            door.pass();
            full.load(SeqCst).then_some(StoreError::NO_SPACE)
        }
    };
    let memory = Arc::new(MemoryStore::default());
    let dirty = cache.open(FaultyStore::new(memory.clone(), hangs)).unwrap();
    let well = cache.open(numbered(20)).unwrap();
    let (comes, came) = mpsc::channel();
    let next = move |_| {
        let _ = is_io_thread().then(|| comes.send(()));
        None
    };
    let next = cache.open(FaultyStore::new(numbered(1), next)).unwrap();
    let _opens = Opens(&door);
    let pin = |pages: Range<u64>| well.pin(pages.start * PAGE as u64..pages.end * PAGE as u64);
    let (pinned, one) = (pin(0..9).unwrap(), pin(9..10).unwrap());
    assert_eq!(dirty.write_at(&[1; 6 * PAGE], 0), Ok(6 * PAGE));
    let reads = well.clone();
    let read = in_time(move || reads.read_at(&mut [0; PAGE], 15 * PAGE as u64));
    assert_eq!(read, Some(Err(CacheError::NoRoom { bound: 16 })));
    door.open();
    // Once the thread reads for another file it has said what it had to say.
    drop(one);
    next.will_need(0..PAGE as u64);
    assert_eq!(came.recv_timeout(LONG), Ok(()));
    assert_eq!(dirty.dirty_pages(), 6);
    full.store(false, SeqCst);
    let _ = cache.reclaim_zone(0, 6);
    let written = move || {
        while memory.bytes() != [1; 6 * PAGE] {
            thread::yield_now();
        }
    };
    assert_eq!(in_time(written), Some(()), "the store takes them now");
    drop(pinned);
}

/// One store hangs in a write of the thread that writes behind for it; what others have is written, by age and beyond the
/// background limit.
#[test]
fn writing_behind_that_hangs_holds_up_no_other_file() {
    for (io_threads, age) in [(1, Duration::from_millis(20)), (2, LONG * 100)] {
        let builder = Cache::<S3Fifo>::builder().memory(512 * PAGE).window(0).write_behind(age);
        let builder = builder.io_threads(io_threads).background_percent(5).dirty_percent(90);
        let (cache, door) = (builder.open().unwrap(), Arc::new(Door::default()));
        let hangs = hanging(&cache, &door);
        let _opens = Opens(&door);
        hangs.write_at(&[1; 40 * PAGE], 0).unwrap();
        door.wait_until_met();
        for round in 1..4 {
            let memory = Arc::new(MemoryStore::default());
            let well = cache.open(memory.clone()).unwrap();
            well.write_at(&[round; 40 * PAGE], 0).unwrap();
            let written = move || {
                while well.unwritten_pages() > 25 {
                    well.write_at(&[round], 0).unwrap();
                    thread::sleep(Duration::from_millis(1));
                }
            };
            assert_eq!(in_time(written), Some(()), "the store takes them");
        }
        assert_eq!(hangs.unwritten_pages(), 40);
        door.open();
    }
}

/// As many stores hang as the host has threads, and more: others are written behind still, though no writer comes by.
#[test]
fn more_stores_that_hang_than_threads_hold_up_no_other_file() {
    let builder = Cache::<S3Fifo>::builder().memory(512 * PAGE).window(0).io_threads(1);
    let cache = builder.write_behind(Duration::from_millis(20)).open().unwrap();
    let doors: [Arc<Door>; 4] = Default::default();
    let hang = doors.each_ref().map(|door| hanging(&cache, door));
    let _opens = doors.each_ref().map(|door| Opens(door));
    for (file, door) in hang.iter().zip(&doors) {
        file.write_at(&[1; PAGE], 0).unwrap();
        door.wait_until_met();
    }
    for round in 1..4 {
        let memory = Arc::new(MemoryStore::default());
        let well = cache.open(memory.clone()).unwrap();
        well.write_at(&[round; 3 * PAGE], 0).unwrap();
        let written = move || {
            while well.unwritten_pages() > 0 {
                thread::sleep(Duration::from_millis(1));
            }
        };
        assert_eq!(in_time(written), Some(()), "the store takes them");
        assert_eq!(memory.bytes(), [round; 3 * PAGE]);
    }
    assert!(hang.iter().all(|file| file.unwritten_pages() == 1));
    doors.iter().for_each(|door| door.open());
}

/// Who has pages written behind, without a thread for it, comes back from a store that hangs, and goes on beside it.
#[test]
fn who_writes_behind_does_not_wait_for_a_store_that_hangs() {
    let (cache, door) = (cache(1), Arc::new(Door::default()));
    let (hangs, memory) = (hanging(&cache, &door), Arc::new(MemoryStore::default()));
    let well = cache.open(memory.clone()).unwrap();
    let _opens = Opens(&door);
    hangs.write_at(&[1; PAGE], 0).unwrap();
    for round in 1..4 {
        well.write_at(&[round; 3 * PAGE], 0).unwrap();
        let behind = cache.clone();
        assert_eq!(in_time(move || behind.write_behind(Duration::ZERO)), Some(()));
        assert_eq!((well.unwritten_pages(), memory.bytes()), (0, vec![round; 3 * PAGE]));
    }
    assert_eq!(hangs.unwritten_pages(), 1);
    door.open();
    let written = move || {
        while hangs.unwritten_pages() > 0 {
            thread::yield_now();
        }
    };
    assert_eq!(in_time(written), Some(()));
}

/// As [`MemoryStore`], but that its first read has two doors, before it looks and after.
struct Slow {
    inner: MemoryStore,
    doors: [Door; 2],
    is_first: AtomicBool,
}

impl Store for Slow {
    fn len(&self) -> Result<u64, StoreError> {
        self.inner.len()
    }
    fn read(&self, offset: u64, pages: &mut [&mut [u8]]) -> Result<u64, StoreError> {
        let is_first = self.is_first.swap(false, SeqCst);
        if is_first {
            self.doors[0].pass();
        }
        let got = self.inner.read(offset, pages);
        if is_first {
            self.doors[1].pass();
        }
        got
    }
    fn write(&self, offset: u64, pages: &[&[u8]]) -> Result<(), StoreError> {
        self.inner.write(offset, pages)
    }
    fn set_len(&self, len: u64) -> Result<(), StoreError> {
        self.inner.set_len(len)
    }
    fn flush(&self) -> Result<(), StoreError> {
        self.inner.flush()
    }
}

/// A page is on its way while the file is cut before it, and made longer again: that its bytes were not there is no error.
#[test]
fn a_file_that_is_cut_and_grows_while_it_is_read_has_not_shrunk() {
    let cache = cache(0);
    let is_first = AtomicBool::new(true);
    let store = Arc::new(Slow { inner: numbered(2), doors: Default::default(), is_first });
    let file = cache.open(store.clone()).unwrap();
    file.advise(Advice::Random);
    thread::scope(|scope| {
        let _opens = [&store.doors[0], &store.doors[1]].map(Opens);
        let reads = scope.spawn(|| {
            let mut bytes = [9; PAGE];
            file.read_at(&mut bytes, PAGE as u64).map(|got| (got, bytes))
        });
        store.doors[0].wait_until_met();
        file.truncate(100).unwrap();
        store.doors[0].open();
        store.doors[1].wait_until_met();
        file.truncate(2 * PAGE as u64).unwrap();
        store.doors[1].open();
        assert_eq!(reads.join().unwrap(), Ok((PAGE, [0; PAGE])));
    });
}
