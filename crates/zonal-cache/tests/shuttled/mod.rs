//! A cache under shuttle: the host, frames on the heap, and calls back from the frames.

use shuttle::scheduler::Scheduler;
use shuttle::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};
use shuttle::sync::{Condvar, Mutex};
use shuttle::{Runner, thread};
use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64 as Plain, Ordering};
use std::sync::{PoisonError, TryLockError};
use zonal::platform::shared_slot::{Guarded, SharedSlot};
use zonal::platform::{AtomicByte, AtomicHalf, AtomicWord, Lock, Platform};
use zonal::{CpuId, Pfn};
use zonal_cache::Setup;
use zonal_cache::evict::Evict;
use zonal_cache::frames::Frames;
use zonal_cache::host::Host;
use zonal_cache::lru::{LruLock, Whole};

pub(crate) const PAGE: usize = 4096;

/// What a call does that comes back to the cache.
type Hook = Rc<dyn Fn()>;

thread_local! {
    /// What frames do when one is asked for, and stores and policies that call it. All of a model's threads are
    /// coroutines of one. After a model that failed it stays, as a cache cannot go outside of a model.
    static HOOK: ManuallyDrop<RefCell<Option<Hook>>> =
        const { ManuallyDrop::new(RefCell::new(None)) };
}

/// A bug to be planted in the words.
#[derive(Clone, Copy, PartialEq, Eq)]
#[allow(dead_code, reason = "not every model has each")]
pub(crate) enum Bug {
    /// Whether pages that wait are still there is not looked at.
    LooksAway,
    /// Who writes to a page does not see its readers.
    Unseen,
    /// The last reader of a page that has left the index does not free it.
    NotFreed,
}

thread_local! {
    static PLANTED: Cell<Option<Bug>> = const { Cell::new(None) };
}

/// Plants a bug in a model that is being explored.
#[allow(dead_code, reason = "not every model has one")]
pub(crate) fn plant(bug: Bug) {
    PLANTED.set(Some(bug));
}

fn has(bug: Bug) -> bool {
    PLANTED.get() == Some(bug)
}

/// Sets what [`call_back`] does.
#[allow(dead_code, reason = "not every model has one")]
pub(crate) fn set_hook(hook: Option<Hook>) {
    let before = HOOK.with(|now| now.replace(hook));
    drop(before);
}

/// A call that comes back to the cache.
pub(crate) fn call_back() {
    let hook = HOOK.with(|now| now.borrow().clone());
    if let Some(hook) = hook {
        hook();
    }
}

pub(crate) struct Byte(AtomicU8);

impl AtomicByte for Byte {
    fn new(value: u8) -> Self {
        Self(AtomicU8::new(value))
    }
    zonal::forward_atomic!(u8, 0: load store swap compare_exchange);
}

pub(crate) struct Half(AtomicU32);

impl AtomicHalf for Half {
    fn new(value: u32) -> Self {
        Self(AtomicU32::new(value))
    }
    zonal::forward_atomic!(u32, 0: load store);
}

pub(crate) struct Word(AtomicU64);

/// Readers in the word of a slot, its flags, and the one of a page that has left the index.
const READERS: u64 = (1 << 20) - 1;
const FLAGS: u64 = ((1 << 10) - 1) << 40;
const DETACHED: u64 = 1 << 44;

/// Whether this may be the word of a slot.
const fn is_slot(word: u64) -> bool {
    word & FLAGS != 0 && word >> 50 == 0
}

impl AtomicWord for Word {
    fn new(value: u64) -> Self {
        Self(AtomicU64::new(value))
    }
    zonal::forward_atomic!(u64, 0: store fetch_or fetch_and swap);
    fn load(&self, order: Ordering) -> u64 {
        let now = self.0.load(order);
        let hides = has(Bug::Unseen) && is_slot(now) && order == Ordering::Acquire;
        if hides { now & !READERS } else { now }
    }
    fn fetch_add(&self, value: u64, order: Ordering) -> u64 {
        let before = self.0.fetch_add(value, order);
        match value {
            u64::MAX if has(Bug::NotFreed) && is_slot(before) => before & !DETACHED,
            _ => before,
        }
    }
    fn compare_exchange(
        &self,
        current: u64,
        new: u64,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64> {
        // Only the place of a page of a file that waits in a batch has this in its high half.
        if current >> 32 == 1 && has(Bug::LooksAway) {
            self.0.store(new, Ordering::SeqCst);
            return Ok(current);
        }
        self.0.compare_exchange(current, new, success, failure)
    }
}

pub(crate) struct ShuttleLock<T>(Mutex<T>);

impl<T> Lock<T> for ShuttleLock<T> {
    fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }
    fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        // After a panic the others go on, so that it is the one that is told of.
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
    fn try_with<R>(&self, f: impl FnOnce(&mut T) -> R) -> Option<R> {
        match self.0.try_lock() {
            Ok(mut value) => Some(f(&mut value)),
            Err(TryLockError::WouldBlock) => None,
            Err(TryLockError::Poisoned(error)) => Some(f(&mut error.into_inner())),
        }
    }
    fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap()
    }
}

/// Shuttle as a host; `WAKES` is whether it does.
pub(crate) struct ShuttleHost<const WAKES: bool> {
    lock: Mutex<()>,
    woken: Condvar,
    /// Not a point where the schedule changes.
    clock: Plain,
}

impl<const WAKES: bool> ShuttleHost<WAKES> {
    pub(crate) fn new() -> Self {
        Self { lock: Mutex::new(()), woken: Condvar::new(), clock: Plain::new(0) }
    }
}

impl<const WAKES: bool> Platform for ShuttleHost<WAKES> {
    type Byte = Byte;
    type Half = Half;
    type Word = Word;
    type Lock<T: Send> = ShuttleLock<T>;
    type Slot<T: Send> = SharedSlot<T, ShuttleLock<Guarded<T>>>;

    fn cpu(&self) -> CpuId {
        // Threads move about.
        CpuId(self.clock.load(Ordering::Relaxed) as u32 % 2)
    }
    fn relax() {
        thread::yield_now();
    }
}

// SAFETY: shuttle's atomics and its mutex.
unsafe impl<const WAKES: bool> Host for ShuttleHost<WAKES> {
    type Mutex<T: Send> = ShuttleLock<T>;
    const GUESSES: bool = true;

    fn lanes(&self) -> u32 {
        2
    }

    fn wait(&self, _: usize, pending: &dyn Fn() -> bool) {
        let mut lock = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        while pending() {
            lock = self.woken.wait(lock).unwrap_or_else(PoisonError::into_inner);
        }
    }
    fn wake(&self, _: usize) {
        if WAKES {
            drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner));
            self.woken.notify_all();
        }
    }
    fn now(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::Relaxed)
    }
}

/// The schedules of a model are those of one seed, so that a failure comes again and a canary is no matter of luck;
/// `SHUTTLE_RANDOM_SEED=N` gives others.
pub(crate) const SEED: u64 = 1;

/// A page of memory.
#[repr(align(4096))]
struct Memory(#[expect(dead_code, reason = "reached by its address")] [u8; PAGE]);

/// Frames on the heap: as many as the bound allows at first.
pub(crate) struct Heap {
    at: NonNull<Memory>,
    count: usize,
    /// Which are free. Not points where the schedule changes.
    free: std::sync::Mutex<Vec<u64>>,
}

// SAFETY: an address; what is done with it is settled by `Frames`.
unsafe impl Send for Heap {}
// SAFETY: as above.
unsafe impl Sync for Heap {}

impl Heap {
    pub(crate) fn new(count: usize) -> Self {
        let memory: Box<[Memory]> = (0..count).map(|_| Memory([0xEE; PAGE])).collect();
        let at = NonNull::new(Box::into_raw(memory).cast()).expect("an address");
        Self { at, count, free: std::sync::Mutex::new((1..=count as u64).collect()) }
    }
}

impl Drop for Heap {
    fn drop(&mut self) {
        let lost = self.count - self.free.lock().expect("whole").len();
        // SAFETY: made by `new` of as many, and the last user goes.
        let memory = unsafe {
            Box::from_raw(std::ptr::slice_from_raw_parts_mut(self.at.as_ptr(), self.count))
        };
        drop(memory);
        assert!(lost == 0 || std::thread::panicking(), "{lost} frames are lost");
    }
}

// SAFETY: a frame is taken off the list and put back; each is a page of the memory.
unsafe impl Frames for Heap {
    type Trace = zonal::policy::trace::Off;

    fn alloc(&self) -> Option<Pfn> {
        call_back();
        self.free.lock().expect("whole").pop().map(Pfn::new)
    }
    /// Four in a row, as a block of memory has them, where there are such and more are not wanted.
    fn alloc_some(&self, frames: &mut [Pfn]) -> usize {
        let mut count = 0;
        while count < frames.len() {
            let rest = &mut frames[count..];
            let mut free = self.free.lock().expect("whole");
            let is_free = |frame: u64| free.contains(&frame);
            let row = (4..=self.count as u64).step_by(4).find(|&at| (at..at + 4).all(is_free));
            if let (Some(at), [_, _, _, _, ..]) = (row, &*rest) {
                free.retain(|frame| !(at..at + 4).contains(frame));
                rest.iter_mut().zip(at..at + 4).for_each(|(frame, at)| *frame = Pfn::new(at));
                count += 4;
                continue;
            }
            drop(free);
            let Some(frame) = self.alloc() else { break };
            rest[0] = frame;
            count += 1;
        }
        count
    }
    unsafe fn free(&self, frames: &[Pfn]) {
        let mut free = self.free.lock().expect("whole");
        for frame in frames {
            assert!(!free.contains(&frame.get()), "{frame:?} is freed twice");
            // SAFETY: free: no reference into it is left.
            unsafe { self.address(*frame).write_bytes(0xEE, PAGE) };
            free.push(frame.get());
        }
    }
    /// Two zones of one node each, in turn.
    fn zones(&self) -> (usize, usize) {
        (2, 2)
    }
    fn zone_of(&self, frame: Pfn) -> (usize, usize) {
        (frame.get() as usize % 2, frame.get() as usize % 2)
    }
    fn address(&self, frame: Pfn) -> NonNull<u8> {
        assert!((1..=self.count as u64).contains(&frame.get()), "{frame:?}");
        // SAFETY: it is one of the memory's.
        unsafe { self.at.add(frame.get() as usize - 1) }.cast()
    }
}

pub(crate) struct Shuttled<E, const WAKES: bool, L = Whole>(PhantomData<fn() -> (E, L)>);

impl<E: Evict, const WAKES: bool, L: LruLock> Setup for Shuttled<E, WAKES, L> {
    type Host = ShuttleHost<WAKES>;
    type Frames = Heap;
    type Evict = E;
    type Lru = L;
}

/// Runs a model under random schedules.
pub(crate) fn explore(
    scheduler: impl Scheduler + 'static,
    model: impl Fn() + Send + Sync + 'static,
) {
    // What a model that failed has left on this thread.
    PLANTED.set(None);
    std::mem::forget(HOOK.with(|hook| hook.take()));
    let mut config = shuttle::Config::new();
    config.stack_size = 1 << 20;
    config.silence_warnings = true;
    config.max_steps = shuttle::MaxSteps::FailAfter(3_000_000);
    Runner::new(scheduler, config).run(model);
}
