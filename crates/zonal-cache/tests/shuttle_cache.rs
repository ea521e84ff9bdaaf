//! The whole cache under random schedules: three threads that read, write, pin, sync, invalidate and
//! truncate with room for fewer pages than they use and a store that fails now and then. Every access to an atomic, every
//! lock and every operation of the store is a point where the schedule may change.
//!
//! ```text
//! RUSTFLAGS="--cfg shuttle" cargo test --release -p zonal-cache --test shuttle_cache
//! ```
#![cfg(shuttle)]

use shuttle::rand::{Rng, thread_rng};
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};
use shuttle::sync::{Condvar, Mutex};
use shuttle::{Runner, thread};
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::TryLockError;
use std::sync::atomic::{AtomicU64 as Plain, Ordering};
use zonal::platform::shared_slot::{Guarded, SharedSlot};
use zonal::platform::{AtomicByte, AtomicHalf, AtomicWord, Lock, Platform};
use zonal::{CpuId, Pfn};
use zonal_cache::cache::Options;
use zonal_cache::evict::Evict;
use zonal_cache::frames::Frames;
use zonal_cache::host::Host;
use zonal_cache::store::StoreError;
use zonal_cache::{
    CacheError, FaultyStore, File, MemoryStore, MultiGen, PageCache, S3Fifo, Setup, Sieve, TwoLists,
};

const PAGE: usize = 4096;
const BOUND: usize = 16;
const PAGES: u64 = 24;
const THREADS: u64 = 3;
const STEPS: usize = 14;
const SCHEDULES: usize = 1000;

struct Byte(AtomicU8);

impl AtomicByte for Byte {
    fn new(value: u8) -> Self {
        Self(AtomicU8::new(value))
    }
    zonal::forward_atomic!(u8, 0: load store swap compare_exchange);
}

struct Half(AtomicU32);

impl AtomicHalf for Half {
    fn new(value: u32) -> Self {
        Self(AtomicU32::new(value))
    }
    zonal::forward_atomic!(u32, 0: load store);
}

struct Word(AtomicU64);

impl AtomicWord for Word {
    fn new(value: u64) -> Self {
        Self(AtomicU64::new(value))
    }
    zonal::forward_atomic!(u64, 0: load store fetch_add fetch_or fetch_and swap compare_exchange);
}

struct ShuttleLock<T>(Mutex<T>);

impl<T> Lock<T> for ShuttleLock<T> {
    fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }
    fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        f(&mut self.0.lock().unwrap())
    }
    fn try_with<R>(&self, f: impl FnOnce(&mut T) -> R) -> Option<R> {
        match self.0.try_lock() {
            Ok(mut value) => Some(f(&mut value)),
            Err(TryLockError::WouldBlock) => None,
            Err(error @ TryLockError::Poisoned(_)) => panic!("{error}"),
        }
    }
    fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap()
    }
}

/// Shuttle as a host; `WAKES` is whether it does.
struct ShuttleHost<const WAKES: bool> {
    lock: Mutex<()>,
    woken: Condvar,
    /// Not a point where the schedule changes.
    clock: Plain,
}

impl<const WAKES: bool> Platform for ShuttleHost<WAKES> {
    type Byte = Byte;
    type Half = Half;
    type Word = Word;
    type Lock<T: Send> = ShuttleLock<T>;
    type Slot<T: Send> = SharedSlot<T, ShuttleLock<Guarded<T>>>;

    fn cpu(&self) -> CpuId {
        CpuId(0)
    }
    fn relax() {
        thread::yield_now();
    }
}

// SAFETY: shuttle's atomics and its mutex.
unsafe impl<const WAKES: bool> Host for ShuttleHost<WAKES> {
    type Mutex<T: Send> = ShuttleLock<T>;

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
        self.clock.fetch_add(1, Ordering::Relaxed)
    }
}

/// A page of memory.
#[repr(align(4096))]
struct Memory(#[expect(dead_code, reason = "reached by its address")] [u8; PAGE]);

/// Frames on the heap: as many as the bound allows.
struct Heap {
    at: NonNull<Memory>,
    /// Which are free. Not points where the schedule changes.
    free: std::sync::Mutex<Vec<u64>>,
}

// SAFETY: an address; what is done with it is settled by `Frames`.
unsafe impl Send for Heap {}
// SAFETY: as above.
unsafe impl Sync for Heap {}

impl Heap {
    fn new() -> Self {
        let memory: Box<[Memory]> = (0..BOUND).map(|_| Memory([0xEE; PAGE])).collect();
        let at = NonNull::new(Box::into_raw(memory).cast()).expect("an address");
        Self { at, free: std::sync::Mutex::new((1..=BOUND as u64).collect()) }
    }
}

impl Drop for Heap {
    fn drop(&mut self) {
        let lost = BOUND - self.free.lock().expect("whole").len();
        // SAFETY: made by `new` of as many, and the last user goes.
        let memory =
            unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(self.at.as_ptr(), BOUND)) };
        drop(memory);
        assert!(lost == 0 || std::thread::panicking(), "{lost} frames are lost");
    }
}

// SAFETY: a frame is taken off the list and put back; each is a page of the memory.
unsafe impl Frames for Heap {
    fn alloc(&self) -> Option<Pfn> {
        self.free.lock().expect("whole").pop().map(Pfn::new)
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
    fn address(&self, frame: Pfn) -> NonNull<u8> {
        assert!((1..=BOUND as u64).contains(&frame.get()), "{frame:?}");
        // SAFETY: it is one of the memory's.
        unsafe { self.at.add(frame.get() as usize - 1) }.cast()
    }
}

struct Shuttled<E, const WAKES: bool>(PhantomData<fn() -> E>);

impl<E: Evict, const WAKES: bool> Setup for Shuttled<E, WAKES> {
    type Host = ShuttleHost<WAKES>;
    type Frames = Heap;
    type Evict = E;
}

fn stamped(index: u64, version: u64) -> Vec<u8> {
    [index.to_le_bytes(), version.to_le_bytes()].concat().repeat(PAGE / 16)
}

fn version(bytes: &[u8], index: u64) -> u64 {
    let version = u64::from_le_bytes(bytes[8..16].try_into().expect("eight"));
    let whole = if version == 0 { vec![0; PAGE] } else { stamped(index, version) };
    assert!(bytes == whole, "page {index} has bytes of another");
    version
}

/// Steps of a thread that alone writes the pages that are `own` modulo [`THREADS`].
fn work<S: Setup>(file: &File<S>, other: &File<S>, own: u64, versions: &mut [u64]) {
    let mut bytes = vec![0; PAGE];
    let at = |index: u64| index * PAGE as u64;
    for _ in 0..STEPS {
        let index = thread_rng().gen_range(0..PAGES);
        let mine = index / THREADS * THREADS + own;
        match thread_rng().gen_range(0..12) {
            0..4 => {
                let new = versions[mine as usize] + 1;
                match file.write_at(&stamped(mine, new), at(mine)) {
                    Ok(_) => versions[mine as usize] = new,
                    Err(error) => assert!(matches!(error, CacheError::NoRoom { .. }), "{error}"),
                }
            }
            4..7 => {
                if let Ok(got) = file.read_at(&mut bytes, at(index)) {
                    assert_eq!(got, PAGE);
                    let seen = version(&bytes, index);
                    let is_mine = index % THREADS == own;
                    assert!(!is_mine || seen == versions[index as usize], "page {index} is old");
                }
            }
            7 => {
                if let Ok(pinned) = file.pin(at(index)..at((index + 2).min(PAGES))) {
                    let look = || pinned.pieces().zip(index..).map(|(page, at)| version(page, at));
                    let before: Vec<u64> = look().collect();
                    thread::yield_now();
                    assert!(look().eq(before), "what is pinned has changed");
                }
            }
            8 => {
                let _ = file.sync();
            }
            9 => {
                file.invalidate(at(index)..at(index + 4));
            }
            10 => {
                let _ = other.write_at(&[1; 5000], index * 1000);
            }
            _ => {
                let _ = other.truncate(index * 1000);
            }
        }
    }
}

fn model<E: Evict, const WAKES: bool>() {
    let host =
        ShuttleHost::<WAKES> { lock: Mutex::new(()), woken: Condvar::new(), clock: Plain::new(0) };
    let options = Options { pages: BOUND, window: 4, ..Options::default() };
    let cache = PageCache::<Shuttled<E, WAKES>>::with_parts(host, Heap::new(), options);
    let cache = cache.expect("a cache");
    let memory = std::sync::Arc::new(MemoryStore::from(vec![0; PAGES as usize * PAGE]));
    let well = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let faults = well.clone();
    let store = FaultyStore::new(memory.clone(), move |_| {
        thread::yield_now();
        let fails = !faults.load(Ordering::Relaxed) && thread_rng().gen_range(0..16) == 0;
        fails.then_some(StoreError::IO)
    });
    let file = cache.open(store).expect("a file");
    let other = cache.open(MemoryStore::default()).expect("a file");
    let workers: Vec<_> = (0..THREADS)
        .map(|own| {
            let (file, other) = (file.clone(), other.clone());
            thread::spawn(move || {
                let mut versions = vec![0; PAGES as usize];
                work(&file, &other, own, &mut versions);
                versions
            })
        })
        .collect();
    let versions: Vec<Vec<u64>> = workers.into_iter().map(|it| it.join().unwrap()).collect();
    well.store(true, Ordering::Relaxed);
    let _ = file.sync();
    file.sync().expect("the store is well");
    let durable = memory.durable();
    for index in 0..PAGES {
        let want = versions[(index % THREADS) as usize][index as usize];
        let seen = version(&durable[index as usize * PAGE..][..PAGE], index);
        assert_eq!(seen, want, "page {index} of the store");
    }
    assert_eq!(cache.stats().dirty, other.dirty_pages() as u64);
}

fn explore<E: Evict, const WAKES: bool>(scheduler: impl Scheduler + 'static) {
    let mut config = shuttle::Config::new();
    config.stack_size = 1 << 20;
    config.silence_warnings = true;
    config.max_steps = shuttle::MaxSteps::FailAfter(3_000_000);
    Runner::new(scheduler, config).run(model::<E, WAKES>);
}

#[test]
fn two_lists() {
    explore::<TwoLists, true>(RandomScheduler::new(SCHEDULES));
}

#[test]
fn s3_fifo() {
    explore::<S3Fifo, true>(RandomScheduler::new(SCHEDULES));
}

#[test]
fn sieve() {
    explore::<Sieve, true>(RandomScheduler::new(SCHEDULES));
}

#[test]
fn multi_gen() {
    explore::<MultiGen, true>(RandomScheduler::new(SCHEDULES));
}

#[test]
fn sieve_few_switches() {
    explore::<Sieve, true>(PctScheduler::new(3, SCHEDULES));
}

#[test]
#[should_panic(expected = "deadlock")]
fn canary_threads_that_are_not_woken_are_found() {
    explore::<Sieve, false>(RandomScheduler::new(SCHEDULES));
}
