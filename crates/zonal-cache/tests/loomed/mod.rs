//! What the models of the table share: words with planted bugs, a host, a table with the bytes of its frames.

mod bugs;
pub(crate) mod lanes;
pub(crate) mod truncations;

use loom::cell::UnsafeCell;
use loom::sync::{Condvar, Mutex};
use loom::thread;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use zonal::platform::shared_slot::{Guarded, SharedSlot};
use zonal::platform::{AtomicWord, Lock, Platform};
use zonal::{CpuId, Pfn};
use zonal_cache::host::Host;
use zonal_cache::table::{Claimed, Key, Reader, Settled, SlotId, Table, Taken, Token};
use zonal_testkit::loom_platform::{Byte, Half, LoomLock, LoomPlatform, Word, spawn};

/// A word that orders nothing.
pub(crate) struct Unordered(Word);

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

/// A word that is asked by a load where it should be by an exchange.
pub(crate) struct Loaded(Word);

impl AtomicWord for Loaded {
    fn new(value: u64) -> Self {
        Self(Word::new(value))
    }
    fn fetch_add(&self, value: u64, order: Ordering) -> u64 {
        if value == 0 { self.0.load(Ordering::Acquire) } else { self.0.fetch_add(value, order) }
    }
    zonal::forward_atomic!(u64, 0: load store fetch_or fetch_and swap compare_exchange);
}

/// A count that is not asked again where it was not 0.
pub(crate) struct Once(Word, AtomicBool);

impl AtomicWord for Once {
    fn new(value: u64) -> Self {
        Self(Word::new(value), AtomicBool::new(false))
    }
    fn fetch_add(&self, value: u64, order: Ordering) -> u64 {
        if value == 0 && self.1.load(Ordering::Relaxed) {
            return 1;
        }
        let before = self.0.fetch_add(value, order);
        self.1.fetch_or(value == 0 && before != 0, Ordering::Relaxed);
        before
    }
    zonal::forward_atomic!(u64, 0: load store fetch_or fetch_and swap compare_exchange);
}

/// A word whose compare-exchange takes two steps.
pub(crate) struct Torn(Word);

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
pub(crate) struct Loom<W, const WAKES: bool = true> {
    lock: Mutex<()>,
    woken: Condvar,
    word: PhantomData<fn() -> W>,
}

impl<W, const WAKES: bool> Loom<W, WAKES> {
    fn new() -> Self {
        Self { lock: Mutex::new(()), woken: Condvar::new(), word: PhantomData }
    }
}

pub(crate) struct LoomMutex<T>(Mutex<T>);

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
        LoomPlatform::<Word>::new().cpu()
    }
    fn relax() {
        thread::yield_now();
    }
}

// SAFETY: loom's atomics and locks; those of canaries err in their orderings, and no frame is behind them.
unsafe impl<W: AtomicWord + 'static, const WAKES: bool> Host for Loom<W, WAKES> {
    type Mutex<T: Send> = LoomMutex<T>;
    const GUESSES: bool = true;

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
    fn lanes(&self) -> u32 {
        2
    }
    fn now(&self) -> u64 {
        0
    }
}

pub(crate) const A: Key = Key { file: 1, index: 1 };
pub(crate) const B: Key = Key { file: 1, index: 2 };

/// A table and the bytes of its frames.
pub(crate) struct World<W: AtomicWord + 'static, const WAKES: bool = true> {
    pub(crate) host: Loom<W, WAKES>,
    pub(crate) table: Table<Loom<W, WAKES>>,
    pub(crate) bytes: Vec<UnsafeCell<u64>>,
    pub(crate) free: Mutex<Vec<Claimed>>,
}

impl<W: AtomicWord + 'static, const WAKES: bool> World<W, WAKES> {
    /// Two slots, of which one has page `A` with the bytes `A.index`.
    pub(crate) fn new(dirty: bool) -> Arc<Self> {
        let world = Self::empty();
        let writer = world.table.insert(world.take(), A).unwrap();
        world.write(&writer, A.index);
        let _ = world.table.finish(&world.host, writer, dirty);
        world
    }

    /// The same, clean, with the page before `A` in the slot before it: the slot of `A` is guessed.
    pub(crate) fn guessed() -> Arc<Self> {
        let world = Self::empty();
        for key in [Key { index: A.index - 1, ..A }, A] {
            world.fill(world.take(), key);
        }
        let hold = world.table.hold(A).expect("it is there");
        assert_eq!(world.table.guess(A), Some(hold.id()));
        assert!(world.table.leave_hold(hold).is_none());
        world
    }

    /// The same with readers of `A` at lanes.
    pub(crate) fn spread(dirty: bool) -> Arc<Self> {
        let world = Self::new(dirty);
        let hold = world.table.hold(A).expect("it is there");
        world.table.spread(&hold);
        assert!(world.table.leave_hold(hold).is_none());
        world
    }

    pub(crate) fn empty() -> Arc<Self> {
        let (table, mut free) = Table::new(2, 2);
        // Slots and frames in a row; the lowest slot is taken first.
        let slots = free.iter_mut().rev().zip(0..);
        slots.for_each(|(slot, frame)| table.set_frame(slot, Pfn::new(frame)));
        let bytes = (0..2).map(|_| UnsafeCell::new(0)).collect();
        Arc::new(Self { host: Loom::new(), table, bytes, free: Mutex::new(free) })
    }

    pub(crate) fn take(&self) -> Claimed {
        self.free.lock().unwrap().pop().expect("two are enough")
    }

    pub(crate) fn cell(&self, token: &impl Token) -> &UnsafeCell<u64> {
        &self.bytes[self.table.frame_of(token).get() as usize]
    }

    pub(crate) fn read(&self, token: &impl Token) -> u64 {
        // SAFETY: loom says so where it is not so.
        self.cell(token).with(|bytes| unsafe { *bytes })
    }

    pub(crate) fn write(&self, token: &impl Token, value: u64) {
        // SAFETY: loom says so where it is not so.
        self.cell(token).with_mut(|bytes| unsafe { *bytes = value });
    }

    /// A slot is free: its frame is another's from now on.
    pub(crate) fn release(&self, claimed: Option<Claimed>) {
        let Some(claimed) = claimed else { return };
        self.write(&claimed, 999);
        self.free.lock().unwrap().push(claimed);
    }

    /// How many slots are free.
    pub(crate) fn unused(&self) -> usize {
        self.free.lock().unwrap().len()
    }

    pub(crate) fn look(&self, key: Key) -> Option<Reader> {
        match self.table.enter(&self.host, key) {
            Ok(reader) => Some(reader),
            Err(claimed) => {
                self.release(claimed);
                None
            }
        }
    }

    /// Looks twice.
    fn read_twice(&self, reader: &Reader) -> u64 {
        let seen = self.read(reader);
        thread::yield_now();
        assert_eq!(self.read(reader), seen, "what is looked at stays");
        seen
    }

    /// Looks twice, and leaves.
    pub(crate) fn look_twice(&self, reader: Reader) {
        self.read_twice(&reader);
        self.release(self.table.leave(reader));
    }

    /// Gives a slot to a page, which is clean.
    fn fill(&self, claimed: Claimed, key: Key) {
        let writer = self.table.insert(claimed, key).unwrap();
        self.write(&writer, key.index);
        let _ = self.table.finish(&self.host, writer, false);
    }

    /// Gives a slot to `B`, if no thread is there.
    fn evict(&self, id: SlotId) {
        if let Taken::Claimed(claimed) = self.table.claim(id) {
            self.fill(claimed, B);
        }
    }

    /// Writes to `A`, or to a copy that takes its place where readers are.
    pub(crate) fn write_page(&self, value: u64, dirty: bool) {
        let hold = self.table.hold(A).expect("it is there");
        let Settled::Done(mut writer) = self.table.write(&self.host, hold) else {
            panic!("it is there");
        };
        if self.table.has_readers(&writer) {
            let new = self.take();
            self.write(&new, self.read(&writer));
            let Ok((new, _, free)) = self.table.replace(&self.host, writer, new) else {
                panic!("it is there");
            };
            self.release(free);
            writer = new;
        }
        self.write(&writer, value);
        let (_, free) = self.table.finish(&self.host, writer, dirty);
        assert!(free.is_none());
    }
}

/// A reader looks for `A` while its slot is given to `B`.
pub(crate) fn look_while_evicted<W: AtomicWord + 'static>(world: &Arc<World<W>>) {
    let reader = world.look(A).expect("it is there");
    let id = reader.id();
    assert!(world.table.leave(reader).is_none());
    let theirs = world.clone();
    let evicts = spawn(1, move || theirs.evict(id));
    for key in [A, B] {
        if let Some(reader) = world.look(key) {
            assert_eq!(world.read_twice(&reader), key.index, "the bytes of another page");
            assert!(
                world.table.leave(reader).is_none(),
                "it is not the last at a page in the index"
            );
        }
    }
    evicts.join().unwrap();
    let there = [A, B].map(|key| world.look(key).map(|reader| world.table.leave(reader)).is_some());
    assert!(there[0] != there[1], "one of them is there: {there:?}");
}

/// Runs planted bugs that must be found, each in a process of its own: what loom says of a deadlock may
/// be the end of one.
pub(crate) fn finds(bugs: &[&str]) {
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
