//! A platform for any number of threads that sees every lock and every callback, and reports what I-7 forbids: a callback
//! with a lock held, a lock of one kind taken inside another of its kind.
//! Its tables can be [sealed](crate::sealed).
//!
//! ```
//! use zonal::CpuId;
//! use zonal::platform::Platform;
//! use zonal_testkit::host::TestHost;
//! use zonal_testkit::probe::Probe;
//! use zonal_testkit::shape::Shape;
//! let host = <Probe>::for_shape(Shape::TwoNodes);
//! assert!(host.switch_cpu(CpuId(1)));
//! assert_eq!(host.node(host.cpu()).0, 1);
//! ```

use crate::host::TestHost;
use crate::mover::{Answer, Movers, Moving};
use crate::sealed::{SealedByte, SealedWord};
use crate::shape::Shape;
use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use zonal::platform::shared_slot::{Guarded, SharedSlot};
use zonal::platform::stay::{Stay, Unbounded};
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

/// The lock of `std`. To wait for oneself is a panic, and not for ever.
#[derive(Debug)]
pub struct MutexLock<T> {
    mutex: Mutex<T>,
    /// The thread that is inside, by where its number of locks lies; 0: none.
    holder: AtomicUsize,
}

impl<T> MutexLock<T> {
    /// Runs `f` with the lock held.
    fn hold<R>(&self, mut guard: MutexGuard<'_, T>, f: impl FnOnce(&mut T) -> R) -> R {
        // Declared after the guard, and so gone before it.
        let _holding = Holding::new(&self.holder);
        f(&mut guard)
    }
}

/// Says who is inside, to the end of the scope.
struct Holding<'a>(&'a AtomicUsize);

impl<'a> Holding<'a> {
    fn new(holder: &'a AtomicUsize) -> Self {
        holder.store(this_thread(), Ordering::Relaxed);
        Self(holder)
    }
}

impl Drop for Holding<'_> {
    fn drop(&mut self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

/// No other thread that is there has this number.
fn this_thread() -> usize {
    DEPTH.with(|depth| std::ptr::from_ref(depth).addr())
}

impl<T> Lock<T> for MutexLock<T> {
    fn new(value: T) -> Self {
        Self { mutex: Mutex::new(value), holder: AtomicUsize::new(0) }
    }
    fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        // Relaxed: a thread reads its own number only where it has written it.
        let holder = self.holder.load(Ordering::Relaxed);
        assert_ne!(holder, this_thread(), "a lock that this thread holds is taken again");
        self.hold(lock(&self.mutex), f)
    }
    fn try_with<R>(&self, f: impl FnOnce(&mut T) -> R) -> Option<R> {
        match self.mutex.try_lock() {
            Ok(guard) => Some(self.hold(guard, f)),
            Err(TryLockError::Poisoned(error)) => Some(self.hold(error.into_inner(), f)),
            Err(TryLockError::WouldBlock) => None,
        }
    }
    fn get_mut(&mut self) -> &mut T {
        self.mutex.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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

/// What the tables of a [`Probe`] are made of.
pub trait Tables: Sized + 'static {
    /// State bytes.
    type Byte: AtomicByte;
    /// Words.
    type Word: AtomicWord;
}

/// Entries that can be [sealed](crate::sealed).
#[derive(Clone, Copy, Debug)]
pub struct Sealable;

impl Tables for Sealable {
    type Byte = SealedByte;
    type Word = SealedWord;
}

/// Entries as other hosts have them: for tables that the test lays out, of pages that it guards itself.
#[derive(Clone, Copy, Debug)]
pub struct Plain;

impl Tables for Plain {
    type Byte = AtomicU8;
    type Word = AtomicU64;
}

/// The platform; with [`InPieces`](zonal::platform::stay::InPieces) as a kernel that masks interrupts in its slots.
#[derive(Debug)]
pub struct Probe<Y = Unbounded, T = Sealable> {
    shape: Shape,
    calls: Mutex<Calls>,
    movers: Movers,
    /// Blocks that the next reclaim frees.
    pledged: Mutex<Vec<(Pfn, Order)>>,
    redeemed: Mutex<Vec<(Pfn, Order)>>,
    faults: Mutex<Vec<String>>,
    can_zero: AtomicBool,
    /// Whether it says that it zeroed, and did not.
    forgets: AtomicBool,
    /// Callbacks until one panics, or fails; 0: none will.
    fuse: AtomicU64,
    /// Whether that one fails, and does not panic.
    fails: AtomicBool,
    kind: PhantomData<fn() -> (Y, T)>,
}

impl<Y: Stay, T: Tables> Probe<Y, T> {
    /// What the allocator asked for since the last call.
    pub fn take_calls(&self) -> Calls {
        std::mem::take(&mut *lock(&self.calls))
    }

    /// Whether [`zero`](zonal::Host::zero) succeeds; it does at first.
    pub fn set_can_zero(&self, can: bool) {
        self.can_zero.store(can, Ordering::Relaxed);
    }

    /// Whether it says that it has zeroed, and has not; it does not at first.
    pub fn set_forgets_to_zero(&self, forgets: bool) {
        self.forgets.store(forgets, Ordering::Relaxed);
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

impl<Y: Stay, T: Tables> Platform for Probe<Y, T> {
    type Byte = T::Byte;
    type Half = AtomicU32;
    type Word = T::Word;
    type Lock<V: Send> = Counted<MutexLock<V>, 0>;
    type Slot<V: Send> = SharedSlot<V, Counted<MutexLock<Guarded<V>>, 1>, Y>;

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

    fn prefetch<V>(_: &V) {
        PREFETCHED.set(PREFETCHED.get() + 1);
    }
}

/// How many lines this thread had prefetched since it asked last.
#[must_use]
pub fn take_prefetches() -> usize {
    PREFETCHED.take()
}

impl<Y: Stay, T: Tables> zonal::Host for Probe<Y, T> {
    fn zero(&self, pfn: Pfn, order: Order) -> Result<(), CannotZero> {
        let forgets = self.forgets.load(Ordering::Relaxed);
        let book = |calls: &mut Calls| calls.zeroed.extend((!forgets).then_some((pfn, order)));
        let goes_on = self.called("zero", book);
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

impl<Y: Stay, T: Tables> TestHost for Probe<Y, T> {
    const NAME: &'static str = if Y::LIST == usize::MAX { "Probe" } else { "Probe<InPieces>" };

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
            forgets: AtomicBool::new(false),
            fuse: AtomicU64::new(0),
            fails: AtomicBool::new(false),
            kind: PhantomData,
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

    fn zeroed(&self) -> Option<Vec<(Pfn, Order)>> {
        let zeroed = std::mem::take(&mut lock(&self.calls).zeroed);
        self.can_zero.load(Ordering::Relaxed).then_some(zeroed)
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    #[test]
    fn a_thread_does_not_wait_for_itself() {
        let mutex = MutexLock::new(0);
        let twice = || mutex.with(|_| mutex.with(|value| *value += 1));
        assert!(catch_unwind(AssertUnwindSafe(twice)).is_err());
        assert_eq!(mutex.with(|_| mutex.try_with(|_| ())), None, "as in a slot");
        assert_eq!(mutex.with(|value| *value), 0, "and goes on after a panic");
    }
}
