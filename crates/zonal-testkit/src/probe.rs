//! A platform that sees every lock and every callback, and reports what I-7 forbids: a callback
//! with a lock held, a lock of one kind taken inside another of its kind.
//!
//! ```
//! use zonal::CpuId;
//! use zonal::platform::Platform;
//! use zonal_testkit::host::TestHost;
//! use zonal_testkit::probe::{Mutexes, Probe};
//! use zonal_testkit::shape::Shape;
//! let host = Probe::<Mutexes>::for_shape(Shape::TwoNodes);
//! assert!(host.switch_cpu(CpuId(1)));
//! assert_eq!(host.node(host.cpu()).0, 1);
//! ```

use crate::host::TestHost;
use crate::mover::{Answer, Movers, Moving};
use crate::shape::Shape;
use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use zonal::platform::shared_slot::{Guarded, SharedSlot};
use zonal::platform::single::CellLock;
use zonal::platform::stay::{InPieces, Stay, Unbounded};
use zonal::platform::{AtomicByte, AtomicWord, FenceUnsupported, Lock, Platform};
use zonal::policy::Policy;
use zonal::slow_path::Shortage;
use zonal::{Allocator, CpuId, NodeId, Order, Pfn, ZoneId};
use zonal::{CannotZero, Immovable, Migration};

thread_local! {
    /// Zone locks and slots that this thread is inside of.
    static DEPTH: [Cell<u32>; 2] = const { [Cell::new(0), Cell::new(0)] };
    /// Locks that this thread took inside one of their kind.
    static NESTED: Cell<u32> = const { Cell::new(0) };
    /// Lines that this thread had prefetched.
    static PREFETCHED: Cell<usize> = const { Cell::new(0) };
    /// The CPU that this thread plays.
    static CPU: Cell<u32> = const { Cell::new(0) };
    /// Heavy fences that it made.
    static HEAVY_FENCES: Cell<u64> = const { Cell::new(0) };
}

/// How many zone locks and slots the calling thread is inside of.
#[must_use]
pub fn locks_held() -> u32 {
    DEPTH.with(|depth| depth.iter().map(Cell::get).sum())
}

/// Being inside a lock, to the end of the scope.
struct Inside {
    kind: usize,
}

impl Inside {
    fn new(kind: usize) -> Self {
        DEPTH.with(|depth| {
            if depth[kind].replace(depth[kind].get() + 1) > 0 {
                NESTED.with(|nested| nested.set(nested.get() + 1));
            }
        });
        Self { kind }
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        DEPTH.with(|depth| depth[self.kind].set(depth[self.kind].get() - 1));
    }
}

/// A lock that counts who is inside. `KIND` 0: zone lock; 1: slot.
#[derive(Debug)]
pub struct Counted<L, const KIND: usize>(L);

impl<T, L: Lock<T>, const KIND: usize> Lock<T> for Counted<L, KIND> {
    fn new(value: T) -> Self {
        Self(L::new(value))
    }
    fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        self.0.with(|value| {
            let _inside = Inside::new(KIND);
            f(value)
        })
    }
    fn try_with<R>(&self, f: impl FnOnce(&mut T) -> R) -> Option<R> {
        self.0.try_with(|value| {
            let _inside = Inside::new(KIND);
            f(value)
        })
    }
    fn get_mut(&mut self) -> &mut T {
        self.0.get_mut()
    }
}

/// The lock of `std`, for many threads.
#[derive(Debug)]
pub struct MutexLock<T>(Mutex<T>);

impl<T> Lock<T> for MutexLock<T> {
    fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }
    fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        f(&mut lock(&self.0))
    }
    fn try_with<R>(&self, f: impl FnOnce(&mut T) -> R) -> Option<R> {
        match self.0.try_lock() {
            Ok(mut value) => Some(f(&mut value)),
            Err(TryLockError::Poisoned(error)) => Some(f(&mut error.into_inner())),
            Err(TryLockError::WouldBlock) => None,
        }
    }
    fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Which locks a [`Probe`] is made of.
pub trait Locks: Sized + 'static {
    /// What they are called.
    const NAME: &'static str;
    /// The lock.
    type Lock<T: Send>: Lock<T>;
    /// State bytes.
    type Byte: AtomicByte;
    /// Words.
    type Word: AtomicWord;
    /// How long a CPU stays in a slot.
    type Stay: Stay;
}

/// Cells: one thread.
#[derive(Clone, Copy, Debug)]
pub struct Cells;

impl Locks for Cells {
    const NAME: &'static str = "Probe<Cells>";
    type Lock<T: Send> = CellLock<T>;
    type Byte = AtomicU8;
    type Word = AtomicU64;
    type Stay = Unbounded;
}

/// Mutexes: any number of threads.
#[derive(Clone, Copy, Debug)]
pub struct Mutexes;

impl Locks for Mutexes {
    const NAME: &'static str = "Probe<Mutexes>";
    type Lock<T: Send> = MutexLock<T>;
    type Byte = AtomicU8;
    type Word = AtomicU64;
    type Stay = Unbounded;
}

/// Those of `L`, with stays in pieces: as in a kernel that masks interrupts in its slots.
#[derive(Clone, Copy, Debug)]
pub struct Pieces<L>(PhantomData<fn() -> L>);

impl<L: Locks> Locks for Pieces<L> {
    const NAME: &'static str = "Probe<Pieces>";
    type Lock<T: Send> = L::Lock<T>;
    type Byte = L::Byte;
    type Word = L::Word;
    type Stay = InPieces;
}

/// What the allocator asked of the host.
#[derive(Clone, Debug, Default)]
pub struct Calls {
    /// Zones for which reclaim was woken.
    pub woken: Vec<ZoneId>,
    /// Shortages with which reclaim was called.
    pub reclaims: Vec<Shortage>,
    /// Zones for which compaction was woken, and the orders.
    pub compaction_woken: Vec<(ZoneId, Order)>,
    /// Pages that were to be moved.
    pub migrations: Vec<Migration>,
    /// Blocks that were to be zeroed.
    pub zeroed: Vec<(Pfn, Order)>,
}

/// The platform.
#[derive(Debug)]
pub struct Probe<L: Locks> {
    shape: Shape,
    calls: Mutex<Calls>,
    movers: Movers,
    /// Blocks that the next reclaim frees.
    pledged: Mutex<Vec<(Pfn, Order)>>,
    redeemed: Mutex<Vec<(Pfn, Order)>>,
    faults: Mutex<Vec<String>>,
    can_zero: AtomicBool,
    /// Callbacks until one panics, or fails; 0: none will.
    fuse: AtomicU64,
    /// Whether that one fails, and does not panic.
    fails: AtomicBool,
    locks: PhantomData<fn() -> L>,
}

impl<L: Locks> Probe<L> {
    /// What the allocator asked for since the last call.
    pub fn take_calls(&self) -> Calls {
        std::mem::take(&mut *lock(&self.calls))
    }

    /// Whether [`zero`](zonal::Host::zero) succeeds; it does at first.
    pub fn set_can_zero(&self, can: bool) {
        self.can_zero.store(can, Ordering::Relaxed);
    }

    /// Has the `nth` callback from now on panic, once: the next is the first. 0: none.
    pub fn panic_at(&self, nth: u64) {
        self.fails.store(false, Ordering::Relaxed);
        self.fuse.store(nth, Ordering::Relaxed);
    }

    /// Has it fail: refuse to zero or to move, free nothing. A wake does nothing in any case.
    pub fn fail_at(&self, nth: u64) {
        self.fails.store(true, Ordering::Relaxed);
        self.fuse.store(nth, Ordering::Relaxed);
    }

    /// Whether a callback is still to panic, or to fail.
    pub fn is_to_panic(&self) -> bool {
        self.fuse.load(Ordering::Relaxed) > 0
    }

    /// Heavy fences that this thread made since the last call.
    #[must_use]
    pub fn take_heavy_fences() -> u64 {
        HEAVY_FENCES.take()
    }

    /// What it does when it is asked to move pages; it cannot at first.
    pub const fn movers(&self) -> &Movers {
        &self.movers
    }

    /// Books a callback, and a fault if it comes with a lock held. Whether it is to go on; if not it fails.
    fn called(&self, what: &str, book: impl FnOnce(&mut Calls)) -> bool {
        let held = locks_held();
        if held > 0 {
            lock(&self.faults).push(format!("{what} was called with {held} lock(s) held"));
        }
        book(&mut lock(&self.calls));
        let burn = |left: u64| left.checked_sub(1);
        let left = self.fuse.fetch_update(Ordering::Relaxed, Ordering::Relaxed, burn);
        let fails = self.fails.load(Ordering::Relaxed);
        assert!(left != Ok(1) || fails, "planted: {what} panics");
        left != Ok(1)
    }

    /// Frees what was pledged; returns the frames.
    fn redeem<S: Policy>(&self, allocator: &Allocator<'_, Self, S>) -> u64 {
        let blocks = std::mem::take(&mut *lock(&self.pledged));
        let mut frames = 0;
        for (pfn, order) in blocks {
            match allocator.free_raw(pfn, order) {
                Ok(()) => {
                    frames += order.frames();
                    lock(&self.redeemed).push((pfn, order));
                }
                Err(error) => lock(&self.faults).push(format!("a pledged block: {error}")),
            }
        }
        frames
    }
}

impl<L: Locks> Platform for Probe<L> {
    type Byte = L::Byte;
    type Half = AtomicU32;
    type Word = L::Word;
    type Lock<T: Send> = Counted<L::Lock<T>, 0>;
    type Slot<T: Send> = SharedSlot<T, Counted<L::Lock<Guarded<T>>, 1>, L::Stay>;

    fn cpu(&self) -> CpuId {
        CpuId(CPU.with(Cell::get))
    }

    fn node(&self, cpu: CpuId) -> NodeId {
        self.shape.node_of(cpu)
    }

    fn heavy_fence() -> Result<(), FenceUnsupported> {
        HEAVY_FENCES.set(HEAVY_FENCES.get() + 1);
        fence(Ordering::SeqCst);
        Ok(())
    }

    fn prefetch<T>(_: &T) {
        PREFETCHED.set(PREFETCHED.get() + 1);
    }
}

/// How many lines this thread had prefetched since it asked last.
#[must_use]
pub fn take_prefetches() -> usize {
    PREFETCHED.take()
}

impl<L: Locks> zonal::Host for Probe<L> {
    fn zero(&self, pfn: Pfn, order: Order) -> Result<(), CannotZero> {
        let goes_on = self.called("zero", |calls| calls.zeroed.push((pfn, order)));
        let can = goes_on && self.can_zero.load(Ordering::Relaxed);
        if can { Ok(()) } else { Err(CannotZero) }
    }

    fn wake_reclaim(&self, zone: ZoneId) {
        _ = self.called("wake_reclaim", |calls| calls.woken.push(zone));
    }

    fn reclaim<S: Policy>(&self, allocator: &Allocator<'_, Self, S>, shortage: &Shortage) -> u64 {
        let goes_on = self.called("reclaim", |calls| calls.reclaims.push(*shortage));
        if goes_on { self.redeem(allocator) } else { 0 }
    }

    fn wake_compaction(&self, zone: ZoneId, order: Order) {
        _ = self.called("wake_compaction", |calls| calls.compaction_woken.push((zone, order)));
    }

    fn can_migrate(&self) -> bool {
        self.called("can_migrate", |_| ()) && self.movers.moving() != Moving::Cannot
    }

    fn migrate<S: Policy>(
        &self,
        allocator: &Allocator<'_, Self, S>,
        page: &Migration,
    ) -> Result<(), Immovable> {
        if !self.called("migrate", |calls| calls.migrations.push(*page)) {
            return Err(Immovable);
        }
        match self.movers.answer(page) {
            Answer::Moved => Ok(()),
            Answer::Stays => Err(Immovable),
            Answer::Lie { free, moved } => {
                // Past the model: the test that asked for the lie books it.
                let freed = allocator.free_raw(free, page.order);
                freed.unwrap_or_else(|error| lock(&self.faults).push(format!("a lie: {error}")));
                if moved { Ok(()) } else { Err(Immovable) }
            }
        }
    }
}

impl<L: Locks> TestHost for Probe<L> {
    const NAME: &'static str = L::NAME;

    fn for_shape(shape: Shape) -> Self {
        CPU.with(|cpu| cpu.set(0));
        Self {
            shape,
            calls: Mutex::default(),
            movers: Movers::default(),
            pledged: Mutex::default(),
            redeemed: Mutex::default(),
            faults: Mutex::default(),
            can_zero: AtomicBool::new(true),
            fuse: AtomicU64::new(0),
            fails: AtomicBool::new(false),
            locks: PhantomData,
        }
    }

    fn switch_cpu(&self, cpu: CpuId) -> bool {
        CPU.with(|own| own.set(cpu.0));
        true
    }

    fn pledge(&self, pfn: Pfn, order: Order) -> bool {
        lock(&self.pledged).push((pfn, order));
        true
    }

    fn redeemed(&self) -> Vec<(Pfn, Order)> {
        std::mem::take(&mut *lock(&self.redeemed))
    }

    fn faults(&self) -> Vec<String> {
        let mut faults = std::mem::take(&mut *lock(&self.faults));
        let nested = NESTED.take();
        if nested > 0 {
            faults.push(format!("{nested} lock(s) taken inside a lock of the same kind"));
        }
        faults
    }
}
