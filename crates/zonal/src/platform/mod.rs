//! The ground of a host: atomics, locks, per-CPU slots, the CPU number. What the allocator calls
//! its host back for is in [`Host`](crate::Host), above it.
//!
//! The allocator has one source and no `cfg`; threads, a kernel, the simulator and a model
//! checker each implement [`Platform`]. What a host promises is written at each method; the
//! core relies on nothing else. May import `types`. What state there is belongs to the host.
//!
//! | host | atomics | lock | slot | fences |
//! |---|---|---|---|---|
//! | [`single::SingleThread`] | `core` | `RefCell` | the lock again | full |
//! | `zonal-host` | `core` | spins, then parks | biased towards an owner | compiler's, `membarrier` |
//! | loom | loom's | loom's mutex | the lock again | loom's, full |
//!
//! ```
//! use zonal::platform::{Lock, Platform, single::SingleThread};
//! let lock = <SingleThread as Platform>::Lock::<u32>::new(1);
//! assert_eq!(lock.with(|n| { *n += 1; *n }), 2);
//! ```

mod forward;
pub mod plain;
pub mod shared_slot;
pub mod single;
pub mod stay;

use crate::types::units::{CpuId, NodeId};
use core::fmt;
use core::sync::atomic::{Ordering, fence};

/// An 8-bit atomic. All zero bytes must be the value 0, so that a host can hand over fresh
/// zeroed memory as a table of these.
pub trait AtomicByte: Send + Sync {
    /// An atomic that holds `value`.
    fn new(value: u8) -> Self;
    /// Reads it.
    fn load(&self, order: Ordering) -> u8;
    /// Writes it.
    fn store(&self, value: u8, order: Ordering);
    /// Writes it; returns what was there before.
    fn swap(&self, value: u8, order: Ordering) -> u8;
    /// Writes `new` if `current` is there.
    ///
    /// # Errors
    /// What is there instead. Unlike the weak form it never fails while `current` is there.
    fn compare_exchange(
        &self,
        current: u8,
        new: u8,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u8, u8>;
}

/// A 32-bit atomic, for what there is much of and what one CPU writes: it has no
/// read-modify-writes.
pub trait AtomicHalf: Send + Sync {
    /// An atomic that holds `value`.
    fn new(value: u32) -> Self;
    /// An array of 0. A host whose `new` is const makes them a constant: built for size, an array that a closure fills is made on
    /// the stack and copied twice.
    #[inline(always)]
    #[must_use]
    fn zeros<const N: usize>() -> [Self; N]
    where
        Self: Sized,
    {
        core::array::from_fn(|_| Self::new(0))
    }
    /// Reads it.
    fn load(&self, order: Ordering) -> u32;
    /// Writes it.
    fn store(&self, value: u32, order: Ordering);
}

/// A 64-bit atomic. All zero bytes must be the value 0.
pub trait AtomicWord: Send + Sync {
    /// An atomic that holds `value`.
    fn new(value: u64) -> Self;
    /// An array of 0. A host whose `new` is const makes them a constant: built for size, an array that a closure fills is made on
    /// the stack and copied twice.
    #[inline(always)]
    #[must_use]
    fn zeros<const N: usize>() -> [Self; N]
    where
        Self: Sized,
    {
        core::array::from_fn(|_| Self::new(0))
    }
    /// Reads it.
    fn load(&self, order: Ordering) -> u64;
    /// Writes it.
    fn store(&self, value: u64, order: Ordering);
    /// Adds, wrapping; returns what was there before.
    fn fetch_add(&self, value: u64, order: Ordering) -> u64;
    /// Sets the bits of `mask`; returns what was there before.
    fn fetch_or(&self, mask: u64, order: Ordering) -> u64;
    /// Clears the bits that `mask` does not have; returns what was there before.
    fn fetch_and(&self, mask: u64, order: Ordering) -> u64;
    /// Writes it; returns what was there before.
    fn swap(&self, value: u64, order: Ordering) -> u64;
    /// Writes `new` if `current` is there.
    ///
    /// # Errors
    /// What is there instead. Unlike the weak form it never fails while `current` is there.
    fn compare_exchange(
        &self,
        current: u64,
        new: u64,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64>;
}

/// A mutual-exclusion lock around a `T`, with closure access so that a host can bracket the
/// hold (interrupts off, preemption off, cost accounting).
///
/// The core never takes a lock of the same kind inside another and never calls the host back
/// inside a closure (I-7).
pub trait Lock<T> {
    /// A lock around `value`, not held.
    fn new(value: T) -> Self;
    /// Waits for the lock, then runs `f` with it held.
    fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R;
    /// Runs `f` if the lock is free this moment; never waits.
    fn try_with<R>(&self, f: impl FnOnce(&mut T) -> R) -> Option<R>;
    /// Access without locking, for a caller that has the lock to itself.
    fn get_mut(&mut self) -> &mut T;
}

/// A per-CPU slot around a `T`: reached by anyone through a try-lock, or owned by one owner
/// who then enters it without an atomic read-modify-write.
///
/// Mutual exclusion holds between all the ways in; [`with`](Slot::with) reaches the contents
/// even of a owned slot whose owner is idle.
pub trait Slot<T>: Sized {
    /// What an owner holds: entry to the slots that it owns.
    type Owned<'a>: OwnedSlots<T>
    where
        Self: 'a;
    /// How long a CPU stays inside at once: [`Unbounded`](stay::Unbounded), unless it keeps away by it who
    /// must not wait.
    type Stay: stay::Stay;

    /// A slot around `value`, not owned.
    fn new(value: T) -> Self;
    /// Runs `f` if no CPU is inside and it has no owner; never waits.
    fn try_with<R>(&self, f: impl FnOnce(&mut T) -> R) -> Option<R>;
    /// Waits for the CPU that is inside, then runs `f`, owned or not. For drains: it may be slow,
    /// and must not be called by the owner from inside its own slot.
    /// An interrupt handler that allocates may get here too: a host that lets interrupts into
    /// its slots must not let their handlers wait for the slot they interrupted.
    fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R;
    /// As [`with`](Self::with), for callers that can do without: `None`, and `f` has not run, if
    /// the host cannot get into a owned slot now. It counts these cases; the cache is passed
    /// over. The default always gets in.
    fn reach<R>(&self, f: impl FnOnce(&mut T) -> R) -> Option<R> {
        Some(self.with(f))
    }
    /// Makes the caller the owner of all of `slots` until what is returned is dropped.
    ///
    /// # Errors
    /// [`OwnError`] if one of them is owned already or the host has no such path; then
    /// none is owned.
    fn own(slots: &[Self]) -> Result<Self::Owned<'_>, OwnError>;
}

/// The owner's way into the slots that it has.
pub trait OwnedSlots<T> {
    /// Enters the owned slot `index` and runs `f`; `None` for an index that it does not have.
    fn with<R>(&mut self, index: usize, f: impl FnOnce(&mut T) -> R) -> Option<R>;
}

/// Why a slot could not be owned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum OwnError {
    /// Another owner has it.
    Taken,
    /// The CPU number is beyond the slots the allocator was built with.
    NoSuchCpu,
    /// The host cannot order an owner's plain stores against a remote drain.
    Unsupported(&'static str),
}

impl fmt::Display for OwnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Taken => f.write_str("the CPU slot is owned by another handle"),
            Self::NoSuchCpu => f.write_str("the allocator has no slot for that CPU"),
            Self::Unsupported(what) => write!(f, "this host has no owned CPU slots: {what}"),
        }
    }
}

impl core::error::Error for OwnError {}

/// The host has no pair of fences of which one is cheap, so nothing is known about what other CPUs
/// have seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FenceUnsupported(
    /// What is missing.
    pub &'static str,
);

impl fmt::Display for FenceUnsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "this host has no pair of fences: {}", self.0)
    }
}

impl core::error::Error for FenceUnsupported {}

/// Which way numbers go that follow each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// Each is one above the one before.
    Up,
    /// Each is one below the one before.
    Down,
}

impl Direction {
    /// The number `steps` after `first`, modulo 2^32.
    #[must_use]
    #[inline(always)]
    pub const fn after(self, first: u32, steps: u32) -> u32 {
        match self {
            Self::Up => first.wrapping_add(steps),
            Self::Down => first.wrapping_sub(steps),
        }
    }

    /// The other way.
    #[inline(always)]
    pub(crate) const fn turned(self) -> Self {
        match self {
            Self::Up => Self::Down,
            Self::Down => Self::Up,
        }
    }
}

/// How long a CPU stays in the slots of a host.
pub(crate) type StayOf<P> = <<P as Platform>::Slot<()> as Slot<()>>::Stay;

/// A host: see the [module](self).
pub trait Platform: Sized {
    /// State bytes of the frame table.
    type Byte: AtomicByte;
    /// The frames that a CPU keeps.
    type Half: AtomicHalf;
    /// Link words, pageblock words, counters.
    type Word: AtomicWord;
    /// The zone lock.
    type Lock<T: Send>: Lock<T>;
    /// The per-CPU caches.
    type Slot<T: Send>: Slot<T>;

    /// The CPU the caller runs on. A hint: a wrong answer is slow, never unsound.
    fn cpu(&self) -> CpuId;

    /// The node that a CPU is on. Asked for each CPU when the allocator is built, and again for an
    /// [`owner`](crate::Allocator::handle) and for [`home_caches`](crate::Allocator::home_caches) when they are made;
    /// no request asks. A CPU whose node changes afterwards is served from the old one first: slow, never unsound.
    /// The default: one node.
    fn node(&self, cpu: CpuId) -> NodeId {
        let _ = cpu;
        NodeId(0)
    }

    /// Waits a moment for another CPU. With the zone lock held that one will soon be done and needs
    /// nothing from this one; a request that waits to compact holds nothing, and looks a few thousand
    /// times at most.
    #[inline]
    fn relax() {
        core::hint::spin_loop();
    }

    /// Begins to bring the cache line of `what`, which will soon be read. A hint, which reads nothing and
    /// costs an instruction; the default does nothing.
    #[inline(always)]
    fn prefetch<T>(what: &T) {
        let _ = what;
    }

    /// The frequent side of a pair of fences of which the frequent one may be cheap.
    ///
    /// For every light fence on one CPU and every [heavy](Self::heavy_fence) one on another that
    /// returns `Ok`: either what comes before the heavy one is visible to what follows the light
    /// one, or what comes before the light one is visible to what follows the heavy one. Two light
    /// ones order nothing. The default is a full fence.
    #[inline]
    fn light_fence() {
        fence(Ordering::SeqCst);
    }

    /// The rare side: it may take microseconds (a system call, an interrupt on every CPU). It is called
    /// outside locks, but a drain calls it in the slot that it empties: a CPU that waits for a slot must be
    /// able to take part. The default is a full fence.
    ///
    /// # Errors
    /// [`FenceUnsupported`] if the host has no such pair: then nothing was ordered. It says the
    /// same every time it is asked.
    #[inline]
    fn heavy_fence() -> Result<(), FenceUnsupported> {
        fence(Ordering::SeqCst);
        Ok(())
    }

    /// Writes `value` to each of them, as by relaxed stores in any order. A host may write several at once.
    #[inline(always)]
    fn fill(bytes: &[Self::Byte], value: u8) {
        bytes.iter().for_each(|byte| byte.store(value, Ordering::Relaxed));
    }

    /// Replaces `from` by `to` in each of them, the first one first, up to one that is something else; returns
    /// how many. Each is replaced as by a relaxed compare-exchange: of two CPUs that replace one byte at the same
    /// instant one is told that it did. A host may replace several at once.
    #[inline(always)]
    fn replace_run(bytes: &[Self::Byte], from: u8, to: u8) -> usize {
        let replaces = |byte: &Self::Byte| {
            byte.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        };
        bytes.iter().take_while(|byte| replaces(byte)).count()
    }

    /// Writes numbers that follow each other, from `first` on, as by relaxed stores in any order.
    #[inline(always)]
    fn write_run(halves: &[Self::Half], first: u32, direction: Direction) {
        halves
            .iter()
            .zip(0..)
            .for_each(|(half, at)| half.store(direction.after(first, at), Ordering::Relaxed));
    }

    /// Whether they are numbers that follow each other, as by relaxed loads in any order.
    #[inline(always)]
    fn is_run(halves: &[Self::Half], direction: Direction) -> bool {
        let Some(first) = halves.first().map(|half| half.load(Ordering::Relaxed)) else {
            return true;
        };
        let follows = |(half, at): (&Self::Half, u32)| {
            half.load(Ordering::Relaxed) == direction.after(first, at)
        };
        halves.iter().zip(0..).skip(1).all(follows)
    }
}
