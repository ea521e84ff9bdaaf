//! In place of `src/waiting.rs`: what threads wait with, on loom, and bugs that can be planted in it.

use loom::sync::atomic::{self as atomics, Ordering};
use loom::thread::Thread;
use std::cell::{Cell, OnceCell, RefCell, RefMut};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

pub(crate) use loom::sync::atomic::AtomicU8;

/// What is wrong for the calling thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Plant {
    Nothing,
    /// A lock is said to be taken, and is not.
    NoLock,
    /// A lock is left without a release.
    NoRelease,
    /// A flag is not lowered.
    KeepsPlace,
    /// A flag is looked at, and then raised.
    LooksFirst,
    /// A thread takes itself for another.
    Mistaken,
    /// The place of one that hears is left before its end: see the model.
    LeavesEarly,
}

loom::thread_local! {
    static PLANT: Cell<Plant> = Cell::new(Plant::Nothing);
    static NUMBER: Cell<usize> = Cell::new(1);
    static SEEN: Cell<(usize, u64)> = Cell::new((0, 0));
}

/// Plants a bug in what the calling thread does.
pub(crate) fn plant(plant: Plant) {
    PLANT.with(|own| own.set(plant));
}

pub(crate) fn planted(plant: Plant) -> bool {
    PLANT.with(Cell::get) == plant
}

/// Gives the calling thread a number. Two with the same are a planted bug.
pub(crate) fn be(number: usize) {
    NUMBER.with(|own| own.set(number));
}

pub(crate) fn here() -> usize {
    NUMBER.with(Cell::get)
}

/// A flag. It is stored by an exchange: of a store and an exchange of which neither has happened before
/// the other, loom takes either for the later one, also where the exchange has read what the store
/// followed.
#[derive(Debug)]
pub(crate) struct AtomicBool(atomics::AtomicBool);

impl Default for AtomicBool {
    fn default() -> Self {
        Self(atomics::AtomicBool::new(false))
    }
}

impl AtomicBool {
    pub(crate) fn load(&self, order: Ordering) -> bool {
        self.0.load(order)
    }
    pub(crate) fn store(&self, value: bool, order: Ordering) {
        if value || !planted(Plant::KeepsPlace) {
            self.0.swap(value, order);
        }
    }
    pub(crate) fn swap(&self, value: bool, order: Ordering) -> bool {
        if !planted(Plant::LooksFirst) {
            return self.0.swap(value, order);
        }
        let before = self.0.load(order);
        // By an exchange, as `store` does it.
        self.0.swap(value, order);
        before
    }
}

pub(crate) fn saw(address: usize, count: u64) -> bool {
    SEEN.with(|seen| seen.replace((address, count)) == (address, count))
}

/// Not loom's own, whose `try_lock` never fails. Loom runs one thread at a time, so what is not a
/// loom object changes together with the atomic next to it.
pub(crate) struct Mutex<T> {
    held: atomics::AtomicBool,
    sleepers: RefCell<Vec<Thread>>,
    value: RefCell<T>,
}

// SAFETY: the threads of a model are one thread of the machine.
unsafe impl<T> Sync for Mutex<T> {}
// SAFETY: as above.
unsafe impl<T> Send for Mutex<T> {}

impl<T> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mutex")
    }
}

impl<T: Default> Default for Mutex<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        let (held, sleepers) = (atomics::AtomicBool::new(false), RefCell::default());
        Self { held, sleepers, value: RefCell::new(value) }
    }

    fn acquire(&self) -> bool {
        self.held.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    fn release(&self) {
        let relaxed = planted(Plant::NoRelease);
        self.held.store(false, if relaxed { Ordering::Relaxed } else { Ordering::Release });
        self.sleepers.borrow_mut().drain(..).for_each(|thread| thread.unpark());
    }

    fn wait(&self) {
        while !self.acquire() {
            self.sleepers.borrow_mut().push(loom::thread::current());
            loom::thread::park();
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        if planted(Plant::NoLock) {
            return MutexGuard { lock: self, value: None };
        }
        self.wait();
        MutexGuard { lock: self, value: Some(self.value.borrow_mut()) }
    }

    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        if planted(Plant::NoLock) {
            return Some(MutexGuard { lock: self, value: None });
        }
        // Panics if two are inside: then the lock itself is broken.
        self.acquire().then(|| MutexGuard { lock: self, value: Some(self.value.borrow_mut()) })
    }

    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }
}

#[derive(Debug)]
pub(crate) struct MutexGuard<'a, T> {
    lock: &'a Mutex<T>,
    /// `None`: not taken.
    value: Option<RefMut<'a, T>>,
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.value.as_ref().expect("taken")
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        match &mut self.value {
            Some(value) => value,
            // SAFETY: none; the point is that it breaks the rule, in a model. Its threads only read.
            None => unsafe { &mut *self.lock.value.as_ptr() },
        }
    }
}

impl<T> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        if self.value.take().is_some() {
            self.lock.release();
        }
    }
}

/// Wakes none that is not rung for: then a lost ring is a deadlock, which loom finds.
pub(crate) struct Condvar {
    waiting: RefCell<Vec<(usize, Thread)>>,
    /// Where loom may let others go on: before a thread waits, and before one is woken.
    turns: atomics::AtomicUsize,
}

impl Default for Condvar {
    fn default() -> Self {
        Self { waiting: RefCell::default(), turns: atomics::AtomicUsize::new(0) }
    }
}

// SAFETY: the threads of a model are one thread of the machine.
unsafe impl Sync for Condvar {}
// SAFETY: as above.
unsafe impl Send for Condvar {}

impl fmt::Debug for Condvar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Condvar")
    }
}

/// Whether a wait was for too long: never.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TimedOut;

impl TimedOut {
    pub(crate) const fn timed_out(self) -> bool {
        let Self = self;
        false
    }
}

impl Condvar {
    pub(crate) fn notify_one(&self) {
        self.turns.fetch_add(1, Ordering::Relaxed);
        let mut waiting = self.waiting.borrow_mut();
        let first = if waiting.is_empty() { None } else { Some(waiting.remove(0)) };
        drop(waiting);
        if let Some((_, thread)) = first {
            thread.unpark();
        }
    }

    pub(crate) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        let turn = self.turns.fetch_add(1, Ordering::Relaxed);
        self.waiting.borrow_mut().push((turn, loom::thread::current()));
        let lock = guard.lock;
        drop(guard.value.take());
        lock.release();
        while self.waiting.borrow().iter().any(|(other, _)| *other == turn) {
            loom::thread::park();
        }
        lock.wait();
        guard.value = Some(lock.value.borrow_mut());
    }

    pub(crate) fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, _: Duration) -> TimedOut {
        self.wait(guard);
        TimedOut
    }
}

thread_local! {
    static SPARE: RefCell<Vec<atomics::AtomicUsize>> = const { RefCell::new(Vec::new()) };
}

/// Makes as many words as the model will take. Loom has no constants, and wants its objects made before
/// threads share them.
pub(crate) fn provide(words: usize) {
    SPARE.set((0..words).map(|_| atomics::AtomicUsize::new(0)).collect());
}

/// One of those [provided](provide), from when it is used first. 0.
#[derive(Debug)]
pub(crate) struct AtomicUsize(OnceCell<atomics::AtomicUsize>);

// SAFETY: the threads of a model are one thread of the machine.
unsafe impl Sync for AtomicUsize {}

impl AtomicUsize {
    pub(crate) const fn new(value: usize) -> Self {
        assert!(value == 0, "made of zeroes");
        Self(OnceCell::new())
    }
    fn get(&self) -> &atomics::AtomicUsize {
        self.0.get_or_init(|| SPARE.with_borrow_mut(|spare| spare.pop().expect("provided")))
    }
    pub(crate) fn load(&self, order: Ordering) -> usize {
        self.get().load(order)
    }
    pub(crate) fn store(&self, value: usize, order: Ordering) {
        self.get().store(value, order);
    }
    pub(crate) fn swap(&self, value: usize, order: Ordering) -> usize {
        self.get().swap(value, order)
    }
}

/// Said to be there once it was released.
#[derive(Debug)]
pub(crate) struct OnceLock<T> {
    there: AtomicUsize,
    making: AtomicUsize,
    value: OnceCell<T>,
}

impl<T> OnceLock<T> {
    pub(crate) const fn new() -> Self {
        let (there, making) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Self { there, making, value: OnceCell::new() }
    }
    pub(crate) fn get(&self) -> Option<&T> {
        if self.there.load(Ordering::Acquire) == 0 { None } else { self.value.get() }
    }
    pub(crate) fn get_or_init(&self, f: impl FnOnce() -> T) -> &T {
        if let Some(value) = self.get() {
            return value;
        }
        // Exchanges, each of which sees what was done before the one before it.
        self.making.swap(1, Ordering::AcqRel);
        let value = self.value.get_or_init(f);
        self.making.swap(2, Ordering::AcqRel);
        self.there.store(1, Ordering::Release);
        value
    }
}

/// Loom's threads, and scopes that no model uses.
pub(crate) mod thread {
    use super::{PLANT, Plant, plant, planted};
    use loom::thread::Thread;
    use std::cell::Cell;
    use std::io;
    use std::marker::PhantomData;

    pub(crate) use loom::thread::{JoinHandle, yield_now};
    pub(crate) use std::thread::panicking;

    pub(crate) fn current() -> Thread {
        if planted(Plant::Mistaken) {
            return loom::thread::spawn(|| ()).thread().clone();
        }
        loom::thread::current()
    }

    #[derive(Debug)]
    pub(crate) struct Builder;

    impl Builder {
        pub(crate) fn new() -> Self {
            Self
        }
        pub(crate) fn name(self, _: String) -> Self {
            self
        }
        pub(crate) fn spawn(self, f: impl FnOnce() + 'static) -> io::Result<JoinHandle<()>> {
            let bug = PLANT.with(Cell::get);
            Ok(loom::thread::spawn(move || {
                plant(bug);
                f();
            }))
        }
        pub(crate) fn spawn_scoped<'scope>(
            self,
            _: &'scope Scope<'scope, '_>,
            _: impl FnOnce() + 'scope,
        ) -> io::Result<ScopedJoinHandle<'scope, ()>> {
            Err(io::ErrorKind::Unsupported.into())
        }
    }

    #[derive(Debug)]
    pub(crate) struct Scope<'scope, 'env>(PhantomData<(&'scope (), &'env ())>);

    #[derive(Debug)]
    pub(crate) struct ScopedJoinHandle<'scope, T>(JoinHandle<T>, PhantomData<&'scope ()>);

    impl<T> ScopedJoinHandle<'_, T> {
        pub(crate) fn thread(&self) -> &loom::thread::Thread {
            self.0.thread()
        }
        pub(crate) fn join(self) -> std::thread::Result<T> {
            self.0.join()
        }
    }
}
