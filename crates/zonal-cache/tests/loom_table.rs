//! Models of the table: every interleaving, and every stale value that the memory model allows, of the
//! shipped source on loom's atomics. The bytes of a frame are a cell that loom watches: to write one
//! while another thread reads it is found.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test --release -p zonal-cache --test loom_table -- --nocapture
//! ```
//!
//! Each model is run with bugs planted: atomics that order nothing, a compare-exchange in two steps, and
//! one bug of its own.
#![cfg(loom)]

use loom::cell::UnsafeCell;
use loom::sync::{Condvar, Mutex};
use loom::thread;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use zonal::platform::shared_slot::{Guarded, SharedSlot};
use zonal::platform::{AtomicWord, Lock, Platform};
use zonal::{CpuId, Pfn};
use zonal_cache::host::Host;
use zonal_cache::table::{Claimed, Key, Reader, Settled, Table, Taken, Token, Writer};
use zonal_testkit::loom_platform::{Byte, Half, LoomLock, Word, explore, spawn};

/// A word that orders nothing.
struct Unordered(Word);

impl AtomicWord for Unordered {
    fn new(value: u64) -> Self {
        Self(Word::new(value))
    }
    fn load(&self, _: Ordering) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
    fn store(&self, value: u64, _: Ordering) {
        self.0.store(value, Ordering::Relaxed);
    }
    fn fetch_add(&self, value: u64, _: Ordering) -> u64 {
        self.0.fetch_add(value, Ordering::Relaxed)
    }
    fn fetch_or(&self, mask: u64, _: Ordering) -> u64 {
        self.0.fetch_or(mask, Ordering::Relaxed)
    }
    fn fetch_and(&self, mask: u64, _: Ordering) -> u64 {
        self.0.fetch_and(mask, Ordering::Relaxed)
    }
    fn swap(&self, value: u64, _: Ordering) -> u64 {
        self.0.swap(value, Ordering::Relaxed)
    }
    fn compare_exchange(
        &self,
        current: u64,
        new: u64,
        _: Ordering,
        _: Ordering,
    ) -> Result<u64, u64> {
        self.0.compare_exchange(current, new, Ordering::Relaxed, Ordering::Relaxed)
    }
}

/// A word whose compare-exchange takes two steps.
struct Torn(Word);

impl AtomicWord for Torn {
    fn new(value: u64) -> Self {
        Self(Word::new(value))
    }
    fn compare_exchange(
        &self,
        current: u64,
        new: u64,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64> {
        let seen = self.0.fetch_or(0, Ordering::AcqRel);
        if seen != current {
            return Err(seen);
        }
        let _ = (success, failure);
        self.0.store(new, Ordering::Release);
        Ok(seen)
    }
    zonal::forward_atomic!(u64, 0: load store fetch_add fetch_or fetch_and swap);
}

/// Loom as a host; `WAKES` is whether it does.
struct Loom<W, const WAKES: bool = true> {
    lock: Mutex<()>,
    woken: Condvar,
    word: PhantomData<fn() -> W>,
}

impl<W, const WAKES: bool> Loom<W, WAKES> {
    fn new() -> Self {
        Self { lock: Mutex::new(()), woken: Condvar::new(), word: PhantomData }
    }
}

struct LoomMutex<T>(Mutex<T>);

impl<T> Lock<T> for LoomMutex<T> {
    fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }
    fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        f(&mut self.0.lock().unwrap())
    }
    fn try_with<R>(&self, f: impl FnOnce(&mut T) -> R) -> Option<R> {
        self.0.try_lock().ok().map(|mut value| f(&mut value))
    }
    fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap()
    }
}

impl<W: AtomicWord + 'static, const WAKES: bool> Platform for Loom<W, WAKES> {
    type Byte = Byte;
    type Half = Half;
    type Word = W;
    type Lock<T: Send> = LoomLock<T>;
    type Slot<T: Send> = SharedSlot<T, LoomLock<Guarded<T>>>;

    fn cpu(&self) -> CpuId {
        CpuId(0)
    }
    fn relax() {
        thread::yield_now();
    }
}

// SAFETY: loom's atomics and locks; those of canaries err in their orderings, and no frame is behind them.
unsafe impl<W: AtomicWord + 'static, const WAKES: bool> Host for Loom<W, WAKES> {
    type Mutex<T: Send> = LoomMutex<T>;

    fn wait(&self, _: usize, pending: &dyn Fn() -> bool) {
        let mut lock = self.lock.lock().unwrap();
        while pending() {
            lock = self.woken.wait(lock).unwrap();
        }
    }
    fn wake(&self, _: usize) {
        if WAKES {
            drop(self.lock.lock().unwrap());
            self.woken.notify_all();
        }
    }
    fn now(&self) -> u64 {
        0
    }
}

const A: Key = Key { file: 1, index: 1 };
const B: Key = Key { file: 1, index: 2 };

/// A table and the bytes of its frames.
struct World<W: AtomicWord + 'static, const WAKES: bool = true> {
    host: Loom<W, WAKES>,
    table: Table<Loom<W, WAKES>>,
    bytes: Vec<UnsafeCell<u64>>,
    free: Mutex<Vec<Claimed>>,
}

impl<W: AtomicWord + 'static, const WAKES: bool> World<W, WAKES> {
    /// Two slots, of which one has page `A` with the bytes `A.index`.
    fn new(dirty: bool) -> Arc<Self> {
        let world = Self::empty();
        let writer = world.table.insert(world.take(), A).unwrap();
        world.write(&writer, A.index);
        let _ = world.table.finish(&world.host, writer, dirty);
        world
    }

    fn empty() -> Arc<Self> {
        let (table, mut free) = Table::new(2);
        free.iter_mut().zip(0..).for_each(|(slot, frame)| table.set_frame(slot, Pfn::new(frame)));
        let bytes = (0..2).map(|_| UnsafeCell::new(0)).collect();
        Arc::new(Self { host: Loom::new(), table, bytes, free: Mutex::new(free) })
    }

    fn take(&self) -> Claimed {
        self.free.lock().unwrap().pop().expect("two are enough")
    }

    fn cell(&self, token: &impl Token) -> &UnsafeCell<u64> {
        &self.bytes[self.table.frame_of(token).get() as usize]
    }

    fn read(&self, token: &impl Token) -> u64 {
        // SAFETY: loom says so where it is not so.
        self.cell(token).with(|bytes| unsafe { *bytes })
    }

    fn write(&self, token: &impl Token, value: u64) {
        // SAFETY: loom says so where it is not so.
        self.cell(token).with_mut(|bytes| unsafe { *bytes = value });
    }

    /// A slot is free: its frame is another's from now on. How many that were.
    fn release(&self, claimed: Option<Claimed>) -> u32 {
        let Some(claimed) = claimed else { return 0 };
        self.write(&claimed, 999);
        self.free.lock().unwrap().push(claimed);
        1
    }

    fn look(&self, key: Key) -> Option<Reader> {
        match self.table.enter(key) {
            Ok(reader) => Some(reader),
            Err(claimed) => {
                self.release(claimed);
                None
            }
        }
    }
}

/// Runs planted bugs that must be found, each in a process of its own: what loom says of a deadlock may
/// be the end of one.
fn finds(bugs: &[&str]) {
    for bug in bugs {
        let this = std::env::current_exe().expect("it runs");
        let mut test = std::process::Command::new(this);
        test.args(["planted", "--exact", "--nocapture"]).env("ZONAL_PLANTED", bug);
        let output = test.output().expect("it starts");
        let said = String::from_utf8_lossy(&output.stderr);
        let found = said.lines().filter(|line| !line.contains("panicked at")).find(|line| {
            ["Causality", "deadlock", "assertion", "one of them"].iter().any(|it| line.contains(it))
        });
        println!("{bug}: {}", found.unwrap_or("not found"));
        assert!(!output.status.success() && found.is_some(), "{bug} was not found: {said}");
    }
}

#[test]
fn planted() {
    let Ok(bug) = std::env::var("ZONAL_PLANTED") else { return };
    let bound = Some(3);
    match &*bug {
        "lookup, unordered" => explore(&bug, bound, lookup_and_eviction::<Unordered>),
        "lookup, torn" => explore(&bug, bound, lookup_and_eviction::<Torn>),
        "pin, unordered" => explore(&bug, bound, pin_and_truncate::<Unordered, false>),
        "pin, torn" => explore(&bug, bound, pin_and_truncate::<Torn, false>),
        "pin, freed at once" => explore(&bug, bound, pin_and_truncate::<Word, true>),
        "writeback, unordered" => explore(&bug, bound, writeback_and_write::<Unordered, false>),
        "writeback, torn" => explore(&bug, bound, writeback_and_write::<Torn, false>),
        "writeback, forgotten" => explore(&bug, bound, writeback_and_write::<Word, true>),
        "wait, never woken" => explore(&bug, bound, || wait_for_load::<false>(true)),
        other => panic!("no bug is called {other}"),
    }
}

/// A reader looks for `A` while its slot is given to `B`.
fn lookup_and_eviction<W: AtomicWord + 'static>() {
    let world = World::<W>::new(false);
    let reader = world.look(A).expect("it is there");
    let id = reader.id();
    assert!(world.table.leave(reader).is_none());
    let theirs = world.clone();
    let evicts = spawn(0, move || {
        if let Taken::Claimed(claimed) = theirs.table.claim(id) {
            let writer = theirs.table.insert(claimed, B).unwrap();
            theirs.write(&writer, B.index);
            let _ = theirs.table.finish(&theirs.host, writer, false);
        }
    });
    for key in [A, B] {
        if let Some(reader) = world.look(key) {
            assert_eq!(world.read(&reader), key.index, "the bytes of another page");
            assert_eq!(world.release(world.table.leave(reader)), 0);
        }
    }
    evicts.join().unwrap();
    let there = [A, B].map(|key| world.look(key).map(|reader| world.table.leave(reader)).is_some());
    assert!(there[0] != there[1], "one of them is there: {there:?}");
}

#[test]
fn lookup_against_eviction() {
    explore("lookup against eviction", Some(3), lookup_and_eviction::<Word>);
}

#[test]
fn canaries_of_lookup_against_eviction() {
    finds(&["lookup, unordered", "lookup, torn"]);
}

/// One pins a page while another takes it out of the index. With `AT_ONCE` the other frees it without
/// asking who is there.
fn pin_and_truncate<W: AtomicWord + 'static, const AT_ONCE: bool>() {
    let world = World::<W>::new(true);
    let theirs = world.clone();
    let truncates = spawn(0, move || {
        let hold = theirs.table.hold(A).expect("it is there");
        assert!(theirs.table.detach(&hold), "it was dirty");
        if AT_ONCE {
            theirs.write(&hold, 999);
        }
        theirs.release(theirs.table.leave_hold(hold))
    });
    let mut freed = 0;
    if let Some(reader) = world.look(A) {
        assert_eq!(world.read(&reader), A.index);
        thread::yield_now();
        assert_eq!(world.read(&reader), A.index, "what is pinned stays");
        freed += world.release(world.table.leave(reader));
    }
    freed += truncates.join().unwrap();
    assert_eq!(freed, 1, "the slot is freed once");
    assert!(world.look(A).is_none());
    assert!(world.table.hold(A).is_none());
}

#[test]
fn pin_against_truncate() {
    explore("pin against truncate", Some(4), pin_and_truncate::<Word, false>);
}

#[test]
fn canaries_of_pin_against_truncate() {
    finds(&["pin, unordered", "pin, torn", "pin, freed at once"]);
}

/// One writes a dirty page back while another writes to it. With `FORGETS` the writer takes a page that
/// was dirty before it came for one that is dirty after.
fn writeback_and_write<W: AtomicWord + 'static, const FORGETS: bool>() {
    let world = World::<W>::new(true);
    let theirs = world.clone();
    let writes = spawn(0, move || {
        let hold = theirs.table.hold(A).expect("it is there");
        let Settled::Done(writer) = theirs.table.write(&theirs.host, hold) else {
            panic!("it is there");
        };
        let writer: Writer = if theirs.table.has_readers(&writer) {
            let new = theirs.take();
            theirs.write(&new, theirs.read(&writer));
            let Ok((new, _, free)) = theirs.table.replace(&theirs.host, writer, new) else {
                panic!("it is there");
            };
            theirs.release(free);
            new
        } else {
            writer
        };
        theirs.write(&writer, 2);
        let (_, free) = theirs.table.finish(&theirs.host, writer, !FORGETS);
        assert!(free.is_none());
    });
    let mut store = 0;
    let mut write_back = || {
        let hold = world.table.hold(A).expect("it is there");
        match world.table.start_writeback(&world.host, hold) {
            Ok(page) => {
                store = world.read(&page);
                let (_, free) = world.table.written(page, true);
                world.release(free);
            }
            Err((_, free)) => {
                world.release(free);
            }
        }
        store
    };
    write_back();
    writes.join().unwrap();
    assert_eq!(write_back(), 2, "what was written last reaches the store");
}

#[test]
fn writeback_against_write() {
    explore("writeback against write", Some(3), writeback_and_write::<Word, false>);
}

#[test]
fn canaries_of_writeback_against_write() {
    finds(&["writeback, unordered", "writeback, torn", "writeback, forgotten"]);
}

/// Two wait for a page that a third reads from the store, well or not.
fn wait_for_load<const WAKES: bool>(well: bool) {
    let world = World::<Word, WAKES>::empty();
    let writer = world.table.insert(world.take(), A).unwrap();
    let theirs = world.clone();
    let waits = spawn(0, move || {
        // It may be gone, where the load has failed before.
        let Some(hold) = theirs.table.hold(A) else { return assert!(!well) };
        match theirs.table.read(&theirs.host, hold) {
            Settled::Done(reader) => {
                assert!(well);
                assert_eq!(theirs.read(&reader), A.index);
                assert!(theirs.table.leave(reader).is_none());
            }
            Settled::Failed(code, free) => {
                assert!(!well && code == 5);
                theirs.release(free);
            }
            other => panic!("{other:?}"),
        }
    });
    world.write(&writer, A.index);
    if well {
        let reader = world.table.filled(&world.host, writer, false);
        assert!(world.table.leave(reader).is_none());
    } else {
        world.release(world.table.fail(&world.host, writer, 5));
    }
    waits.join().unwrap();
    assert_eq!(world.free.lock().unwrap().len(), if well { 1 } else { 2 }, "freed once");
}

#[test]
fn all_who_wait_for_a_page_are_woken() {
    explore("wait for a load", Some(3), || wait_for_load::<true>(true));
    explore("wait for a load that fails", Some(3), || wait_for_load::<true>(false));
}

#[test]
fn canary_of_waiting() {
    finds(&["wait, never woken"]);
}
