//! What a scheduled store promises when things go wrong, and who asks for what.

use std::os::unix::fs::FileExt;
use std::sync::mpsc::channel;
use std::sync::{Arc, Condvar, Mutex, Weak};
use std::thread;
use std::time::{Duration, Instant};

use zonal_cache::faulty_store::Operation;
use zonal_cache::store::{Store, StoreError};
use zonal_cache::{Cache, CacheError, CacheFile, FaultyStore, FileStore, MemoryStore, S3Fifo};
use zonal_cfq::noop::Noop;
use zonal_cfq::policy::{Choice, Policy};
use zonal_cfq::request::Direction;
use zonal_cfq::table::{RequestId, Table};
use zonal_cfq::units::{Process, Time};
use zonal_iosched::process::run_as;
use zonal_iosched::scheduled_store::{STOPPED, ScheduledStore};
use zonal_iosched::scheduler::{Kind, Subject};

const PAGE: usize = 4096;
const KINDS: [Kind; 3] = [Kind::Cfq, Kind::Deadline, Kind::Noop];

/// Does `work`, which is to end soon.
fn soon<R: Send + 'static>(work: impl FnOnce() -> R + Send + 'static) -> R {
    let (sender, receiver) = channel();
    let thread = thread::spawn(move || sender.send(work()));
    let done = receiver.recv_timeout(Duration::from_secs(60)).expect("it hangs, or panicked");
    assert!(matches!(thread.join(), Ok(Ok(()))));
    done
}

fn until(what: &str, is: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is() {
        assert!(begun.elapsed() < Duration::from_secs(60), "never: {what}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// What holds operations up until it is opened.
#[derive(Default)]
struct Gate(Mutex<(bool, usize)>, Condvar);

impl Gate {
    fn pass(&self) {
        let mut state = self.0.lock().expect("no panic");
        state.1 += 1;
        while !state.0 {
            state = self.1.wait(state).expect("no panic");
        }
    }
    fn open(&self) {
        self.0.lock().expect("no panic").0 = true;
        self.1.notify_all();
    }
    fn waiting(&self) -> usize {
        self.0.lock().expect("no panic").1
    }
}

type Fault = Box<dyn Fn(Operation) -> Option<StoreError> + Send + Sync>;
type Faulty = ScheduledStore<FaultyStore<MemoryStore, Fault>>;

fn numbered(pages: usize) -> Vec<u8> {
    (0..pages).flat_map(|page| [page as u8; PAGE]).collect()
}

fn faulty(
    kind: Kind,
    depth: usize,
    fault: impl Fn(Operation) -> Option<StoreError> + Send + Sync + 'static,
) -> Faulty {
    let inner = FaultyStore::new(MemoryStore::from(numbered(2000)), Box::new(fault) as Fault);
    ScheduledStore::new(inner, Subject::new(kind).policy(), depth).expect("threads")
}

fn cache(pages: usize) -> Cache {
    Cache::<S3Fifo>::builder().memory(pages * PAGE).io_threads(0).open().expect("a cache")
}

/// Reads a page past the cache, and looks at it.
fn page(store: &impl Store, index: u64) -> Result<u64, StoreError> {
    let mut page = [0xee; PAGE];
    let got = store.read(index * PAGE as u64, &mut [&mut page])?;
    assert!(page[..got as usize].iter().all(|byte| *byte == index as u8));
    Ok(got)
}

#[test]
fn what_is_long_is_several_requests_and_ends_where_the_store_does() {
    for kind in KINDS {
        let store = faulty(kind, 2, |_| None);
        let mut bytes = vec![0xee; 300 * PAGE];
        let mut pages: Vec<&mut [u8]> = bytes.chunks_mut(PAGE).collect();
        let got = store.read(1800 * PAGE as u64, &mut pages);
        assert_eq!(got, Ok(200 * PAGE as u64), "{kind:?}");
        assert!(bytes[..200 * PAGE] == numbered(2000)[1800 * PAGE..]);
        assert_eq!(store.counters().submitted, 3);
        let all = numbered(300);
        let pages: Vec<&[u8]> = all[..299 * PAGE + 5].chunks(PAGE).collect();
        assert_eq!(store.write(1900 * PAGE as u64, &pages), Ok(()));
        assert_eq!(store.len(), Ok((2199 * PAGE + 5) as u64));
        assert!(store.inner().inner().bytes()[1900 * PAGE..] == all[..299 * PAGE + 5]);
        assert_eq!((store.read(0, &mut []), store.write(0, &[])), (Ok(0), Ok(())));
    }
}

#[test]
fn a_file_that_became_shorter_is_an_error_and_no_hang() {
    for kind in KINDS {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("file");
        std::fs::write(&path, numbered(512)).expect("written");
        let store = FileStore::open(&path).expect("it is there");
        let store = ScheduledStore::new(store, Subject::new(kind).policy(), 1).expect("threads");
        let file = cache(256).open(store).expect("a file");
        // What is read ahead is not there any more, too: the thread that would end it reads it again.
        std::fs::File::options()
            .write(true)
            .open(&path)
            .expect("it is there")
            .set_len(65536)
            .unwrap();
        let (result, ahead) = soon(move || {
            let result = file.read_at(&mut vec![0; 512 * PAGE], 0);
            file.will_need(100 * PAGE as u64..200 * PAGE as u64);
            let error = |index: u64| file.read_at(&mut [0; PAGE], index * PAGE as u64);
            (result, [100, 199, 400].map(error))
        });
        assert_eq!(result, Ok(65536), "{kind:?}");
        let shrunk = Err(CacheError::Store(StoreError::SHRUNK));
        assert_eq!(ahead, [shrunk; 3], "{kind:?}");
    }
}

#[test]
fn a_file_that_is_not_to_be_written_says_so_and_can_be_read() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("file");
    std::fs::write(&path, numbered(64)).expect("written");
    for kind in KINDS {
        let store = FileStore::open_read_only(&path).expect("it is there");
        let store = ScheduledStore::new(store, Subject::new(kind).policy(), 2).expect("threads");
        let file = cache(32).open(store).expect("a file");
        let (sync, read) = soon(move || {
            file.write_at(&[9; 10], 0).expect("it is in memory");
            let sync = file.sync();
            let mut bytes = [0; PAGE];
            (sync, file.read_at(&mut bytes, 60 * PAGE as u64).map(|got| (got, bytes[0])))
        });
        assert_eq!(sync, Err(CacheError::Store(StoreError::from_code(9))), "{kind:?}: EBADF");
        assert_eq!(read, Ok((PAGE, 60)));
        let file = std::fs::File::open(&path).expect("it is there");
        let mut first = [9; 10];
        file.read_exact_at(&mut first, 0).expect("it is there");
        assert_eq!(first, [0; 10]);
    }
}

/// A store whose requests of page 900 wait for the gate, and whose page `bad` cannot be read or written.
/// As long as it is, as a device.
struct Device(MemoryStore);

impl Store for Device {
    fn len(&self) -> Result<u64, StoreError> {
        self.0.len()
    }
    fn has_fixed_len(&self) -> bool {
        true
    }
    fn read(&self, offset: u64, pages: &mut [&mut [u8]]) -> Result<u64, StoreError> {
        self.0.read(offset, pages)
    }
    fn write(&self, offset: u64, pages: &[&[u8]]) -> Result<(), StoreError> {
        self.0.write(offset, pages)
    }
    fn set_len(&self, len: u64) -> Result<(), StoreError> {
        self.0.set_len(len)
    }
    fn flush(&self) -> Result<(), StoreError> {
        self.0.flush()
    }
}

#[test]
fn a_length_that_is_fixed_below_is_fixed() {
    let device = Device(MemoryStore::from(numbered(2)));
    let store = ScheduledStore::new(device, Subject::new(Kind::Noop).policy(), 1);
    let file = cache(64).open(store.expect("threads")).expect("a file");
    let (offset, len) = (2 * PAGE as u64, 2 * PAGE as u64);
    assert_eq!(file.write_at(&[1], offset), Err(CacheError::BeyondStore { offset, len }));
    assert_eq!(file.truncate(1), Err(CacheError::FixedLen { asked: 1, len }));
    assert_eq!(file.sync(), Ok(()));
}

fn with_bad_page(kind: Kind, gate: &Arc<Gate>, bad: u64) -> Arc<Faulty> {
    let gate = Arc::clone(gate);
    Arc::new(faulty(kind, 1, move |operation| {
        let (Operation::Read { offset, len } | Operation::Write { offset, len }) = operation else {
            return None;
        };
        let has = |page: u64| {
            let at = page * PAGE as u64;
            offset <= at && at < offset + len
        };
        if has(900) {
            gate.pass();
        }
        has(bad).then_some(StoreError::IO)
    }))
}

#[test]
fn each_part_of_a_merged_request_hears_of_its_own_error() {
    for kind in KINDS {
        let gate = Arc::<Gate>::default();
        let store = with_bad_page(kind, &gate, 11);
        let spawn = |index: u64| {
            let submitted = store.counters().submitted;
            let own = Arc::clone(&store);
            let read = thread::spawn(move || run_as(Process(1), || page(&*own, index)));
            until("submitted", || store.counters().submitted > submitted);
            read
        };
        let first = spawn(900);
        until("at the gate", || gate.waiting() == 1);
        let parts = [10, 11, 12].map(spawn);
        assert_eq!(store.counters().back_merges, 2, "{kind:?}");
        gate.open();
        let read = |thread: thread::JoinHandle<_>| soon(move || thread.join().expect("no panic"));
        assert_eq!(read(first), Ok(PAGE as u64));
        let results = parts.map(read);
        assert_eq!(results, [Ok(PAGE as u64), Err(StoreError::IO), Ok(PAGE as u64)], "{kind:?}");
        assert_eq!(store.counters().reads.dispatched, 2);
    }
}

#[test]
fn a_full_queue_is_waited_for() {
    let gate = Arc::<Gate>::default();
    let store = with_bad_page(Kind::Deadline, &gate, 1999);
    let blocked = thread::spawn({
        let store = Arc::clone(&store);
        move || page(&*store, 900)
    });
    until("at the gate", || gate.waiting() == 1);
    // None is beside another.
    let pages = (0..200).map(|number| number * 4);
    let readers: Vec<_> = pages
        .map(|index| {
            let store = Arc::clone(&store);
            thread::spawn(move || page(&*store, index))
        })
        .collect();
    until("full", || store.counters().submitted == 128);
    thread::sleep(Duration::from_millis(20));
    assert_eq!(store.counters().submitted, 128, "it takes no more");
    gate.open();
    soon(move || {
        for thread in readers.into_iter().chain([blocked]) {
            assert_eq!(thread.join().expect("no panic"), Ok(PAGE as u64));
        }
    });
    assert_eq!(store.counters().submitted, 201);
}

#[test]
fn a_store_that_panics_ends_its_request_alone() {
    for kind in KINDS {
        let store = Arc::new(faulty(kind, 1, |operation| match operation {
            Operation::Read { offset: 4096, .. } => panic!("as was to be"),
            _ => None,
        }));
        let file = cache(64).open(Arc::clone(&store)).expect("a file");
        let results = soon(move || {
            let direct = [1, 2].map(|index| page(&*store, index));
            // Read ahead, too, and then again.
            file.will_need(4096..8192);
            let cached = [1, 2].map(|index: u64| file.read_at(&mut [0; PAGE], index * PAGE as u64));
            (direct, cached)
        });
        let error = CacheError::Store(StoreError::IO);
        assert_eq!(results.0, [Err(StoreError::IO), Ok(PAGE as u64)], "{kind:?}");
        assert_eq!(results.1, [Err(error), Ok(PAGE)], "{kind:?}");
    }
}

#[test]
fn what_is_under_way_when_all_is_dropped_ends_and_the_threads_with_it() {
    for (kind, depth) in KINDS.into_iter().flat_map(|kind| [(kind, 1), (kind, 4)]) {
        let gate = Arc::<Gate>::default();
        // Lives as long as a thread of the store.
        let alive = Arc::new(());
        let gone: Weak<()> = Arc::downgrade(&alive);
        let store = faulty(kind, depth, {
            let gate = Arc::clone(&gate);
            move |operation| {
                let _alive = &alive;
                if matches!(operation, Operation::Read { .. }) {
                    gate.pass();
                }
                None
            }
        });
        let cache = cache(512);
        let file = cache.open(store).expect("a file");
        file.will_need(0..200 * PAGE as u64);
        file.will_need(1000 * PAGE as u64..1100 * PAGE as u64);
        until("at the gate", || gate.waiting() > 0);
        soon(move || drop((file, cache)));
        assert!(gone.upgrade().is_some(), "{kind:?}: reads are under way");
        gate.open();
        until("the threads end", || gone.upgrade().is_none());
    }
}

#[test]
fn a_store_that_was_stopped_has_ended_all_and_takes_no_more() {
    for kind in KINDS {
        let gate = Arc::<Gate>::default();
        let store = with_bad_page(kind, &gate, 1999);
        let file = cache(512).open(Arc::clone(&store)).expect("a file");
        file.will_need(900 * PAGE as u64..950 * PAGE as u64);
        until("at the gate", || gate.waiting() > 0);
        // Queued behind.
        file.will_need(20 * PAGE as u64..30 * PAGE as u64);
        let opener = thread::spawn({
            let gate = Arc::clone(&gate);
            move || {
                thread::sleep(Duration::from_millis(20));
                gate.open();
            }
        });
        let own = Arc::clone(&store);
        soon(move || own.stop());
        opener.join().expect("no panic");
        assert_eq!(page(&*store, 1), Err(STOPPED));
        assert_eq!(store.write(0, &[&[1; PAGE]]), Err(STOPPED));
        for index in [901, 949, 20, 29] {
            let come = file.read_at(&mut [0; PAGE], index * PAGE as u64);
            assert_eq!(come, Ok(PAGE), "{kind:?}: it has come");
        }
        let (sender, ended) = channel();
        thread::spawn(move || sender.send(file.read_at(&mut [0; PAGE], 5 * PAGE as u64)));
        let result = ended.recv_timeout(Duration::from_secs(60)).expect("it hangs");
        assert_eq!(result, Err(CacheError::Store(STOPPED)));
    }
}

#[test]
fn a_flush_comes_after_the_writes_before_it() {
    for kind in KINDS {
        let gate = Arc::<Gate>::default();
        let log = Arc::new(Mutex::new(Vec::new()));
        let store = Arc::new(faulty(kind, 4, {
            let (gate, log) = (Arc::clone(&gate), Arc::clone(&log));
            move |operation| {
                if matches!(operation, Operation::Write { .. }) {
                    gate.pass();
                }
                log.lock().expect("no panic").push(matches!(operation, Operation::Flush));
                None
            }
        }));
        let writer = Arc::clone(&store);
        let write = thread::spawn(move || writer.write(0, &[&[1; PAGE]]));
        until("at the gate", || gate.waiting() == 1);
        let flusher = Arc::clone(&store);
        let flush = thread::spawn(move || flusher.flush());
        thread::sleep(Duration::from_millis(20));
        assert!(log.lock().expect("no panic").is_empty(), "{kind:?}: it has not flushed");
        gate.open();
        assert_eq!(write.join().expect("no panic"), Ok(()));
        assert_eq!(soon(move || flush.join().expect("no panic")), Ok(()));
        assert_eq!(*log.lock().expect("no panic"), [false, true], "{kind:?}");
    }
}

type Seen = Arc<Mutex<Vec<(Process, Direction, bool)>>>;

/// noop, which keeps who asked for what.
struct Spy(Noop, Seen);

impl Policy for Spy {
    fn name(&self) -> &'static str {
        "spy"
    }
    fn insert(&mut self, table: &mut Table, id: RequestId, now: Time) {
        let queued = table.get(id);
        let seen = (queued.process, queued.direction, queued.sync);
        self.1.lock().expect("no panic").push(seen);
        self.0.insert(table, id, now);
    }
    fn withdraw(&mut self, table: &mut Table, id: RequestId, now: Time) {
        self.0.withdraw(table, id, now);
    }
    fn next(&mut self, table: &mut Table, now: Time) -> Choice {
        self.0.next(table, now)
    }
}

/// Of scattered pages that a sync writes all are queued before the first has ended; each hears of its own error.
#[test]
fn writes_here_and_there_are_queued_together() {
    for kind in KINDS {
        soon(move || {
            let memory = Arc::new(MemoryStore::from(numbered(64)));
            let gate = Arc::new(Gate::default());
            let fault = {
                let gate = gate.clone();
                move |operation| match operation {
                    Operation::Write { offset, .. } => {
                        gate.pass();
                        (offset == 20 * PAGE as u64).then_some(StoreError::NO_SPACE)
                    }
                    _ => None,
                }
            };
            let store = FaultyStore::new(memory.clone(), fault);
            let store =
                ScheduledStore::new(store, Subject::new(kind).policy(), 1).expect("a thread");
            let store = Arc::new(store);
            let cache = cache(100);
            let file = cache.open(store.clone()).expect("a file");
            for page in 0..32 {
                file.write_at(&[9; PAGE], page * 2 * PAGE as u64).expect("room");
            }
            let syncs = {
                let file = file.clone();
                thread::spawn(move || file.sync())
            };
            until("one is written", || gate.waiting() == 1);
            until("all others are queued", || store.counters().submitted == 32);
            gate.open();
            let failed = syncs.join().expect("no panic");
            assert_eq!(failed, Err(CacheError::Store(StoreError::NO_SPACE)), "{kind:?}");
            assert_eq!(file.dirty_pages(), 1, "{kind:?}: the one that failed");
            let there = memory.bytes();
            let written = |page: &usize| there[2 * page * PAGE..][..PAGE] == [9; PAGE];
            assert_eq!((0..32).filter(written).count(), 31, "{kind:?}");
        });
    }
}

#[test]
fn requests_are_those_of_the_thread_that_asks() {
    let seen = Seen::default();
    let spy = Box::new(Spy(Noop::default(), Arc::clone(&seen)));
    let store = ScheduledStore::new(MemoryStore::from(numbered(1000)), spy, 2).expect("threads");
    let cache = cache(512);
    let file = cache.open(store).expect("a file");
    let take = || std::mem::take(&mut *seen.lock().expect("no panic"));
    let stream = |file: &CacheFile| {
        (0..200).for_each(|index| assert_eq!(file.read_at(&mut [0; PAGE], index * 4096), Ok(PAGE)));
    };
    run_as(Process(5), || stream(&file));
    assert!(cache.stats().ahead > 150);
    let reads = take();
    assert!(reads.len() > 4 && reads.iter().all(|it| *it == (Process(5), Direction::Read, true)));

    run_as(Process(6), || file.write_at(&[1; 3 * PAGE], 0).expect("in memory"));
    run_as(Process(7), || assert_eq!(file.write_older(Duration::ZERO), 3));
    assert_eq!(take(), [(Process(7), Direction::Write, false)]);
    run_as(Process(6), || {
        file.write_at(&[2; 3 * PAGE], 0).expect("in memory");
        file.sync().expect("written");
    });
    assert_eq!(take(), [(Process(6), Direction::Write, true)]);
}
