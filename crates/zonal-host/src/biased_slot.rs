//! A per-CPU slot biased towards an owner: who owns it enters without an atomic
//! read-modify-write, everybody else still gets in, slowly.
//!
//! Three ways in, mutually exclusive:
//!
//! | way | cost when no other thread is in the way |
//! |---|---|
//! | [`try_with`](Slot::try_with) on a free slot | one compare-exchange, one plain store |
//! | the owner's [`with`](OwnedSlots::with) | two plain stores, one plain load |
//! | the remote [`with`](Slot::with) on a owned slot | two read-modify-writes and a system call |
//!
//! `state` says free, locked or owned. While it is owned the owner and a remote exclude
//! each other as in Dekker's algorithm: the owner raises `inside` and looks at `revoke`, the
//! remote raises `revoke` and looks at `inside`. The fence between the two steps is
//! [asymmetric](crate::fence), so the owner's costs nothing.
//!
//! The owner gives a slot up from inside, as an owner. So while a remote holds `revoke` and
//! has seen `inside` low, the owner cannot go under it.
//!
//! An owner that finds `revoke` up says so (`inside` is aside) and waits until it is down; it
//! then raises `inside` with a full fence. So a remote that reads "aside" is alone in the slot
//! whatever the asymmetric fence does. This is the only way into a owned slot when the kernel
//! [refuses the fence](crate::fence::Refused) that it once granted: an owner that comes by lets
//! the remote in, one that does not is passed over by [`reach`](BiasedSlot::reach), while
//! [`with`](Slot::with), which has to enter, waits for it to come by or go. A remote that waits so
//! says it (`revoke` is stuck), so that `reach` does not wait behind it either.
//!
//! Source: biased locking (Kawachiya, Koseki, Onodera 2002) with Linux's `membarrier` as the
//! revoker's fence. Model-checked in `tests/loom_slot.rs`.
//!
//! ```
//! use zonal::platform::{OwnError, OwnedSlots, Slot};
//! use zonal_host::biased_slot::BiasedSlot;
//! let slots = [BiasedSlot::<u32>::new(1)];
//! match Slot::own(&slots) {
//!     Ok(mut owned) => {
//!         owned.with(0, |n| *n += 1).unwrap();
//!         assert!(slots[0].try_with(|_| ()).is_none(), "owned");
//!         assert_eq!(slots[0].with(|n: &mut u32| *n), 2, "a drain gets in");
//!     }
//!     Err(OwnError::Unsupported(why)) => println!("no owned slots here: {why}"),
//!     Err(other) => panic!("{other}"),
//! };
//! ```

use crate::birth::Birth;
use crate::fence::{Fence, Membarrier, Refused};
use crate::sync::{AtomicU8, Ordering, UnsafeCell, Wait, fence};
use std::fmt;
use std::marker::PhantomData;
use zonal::platform::{OwnError, OwnedSlots, Slot};

/// `state`: anyone may lock or own it.
const FREE: u8 = 0;
/// `state`: one thread is inside by [`Slot::try_with`] or [`Slot::with`].
const LOCKED: u8 = 1;
/// `state`: an owner has it.
const OWNED: u8 = 2;

/// `inside` and `revoke`: down and up.
const DOWN: u8 = 0;
const UP: u8 = 1;
/// `inside`: the owner is at the door, and waits for `revoke` to go down.
const ASIDE: u8 = 2;
/// `revoke`: up, and who holds it was refused the fence and waits for the owner, however long it takes.
const STUCK: u8 = 2;

/// A slot around a `T`, on cache lines of its own (two, because x86 fetches them in pairs).
#[repr(C, align(128))]
pub struct BiasedSlot<T, F = Membarrier> {
    state: AtomicU8,
    /// The owner is inside, or is about to look whether it may be.
    inside: AtomicU8,
    /// A remote is inside a owned slot, or waits for the owner to leave it.
    revoke: AtomicU8,
    birth: Birth,
    value: UnsafeCell<T>,
    fence: PhantomData<fn() -> F>,
}

// SAFETY: `&BiasedSlot` gives out `&mut T` to one thread at a time (the module's argument, and
// the models), which is no more than sending the `T` between them. `F` is never held.
unsafe impl<T: Send, F> Sync for BiasedSlot<T, F> {}

impl<T, F> fmt::Debug for BiasedSlot<T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BiasedSlot").field("state", &self.state).finish_non_exhaustive()
    }
}

/// Puts a flag (or `state`) down when it goes out of scope, by a panic too.
struct PutDown<'a>(&'a AtomicU8);

impl Drop for PutDown<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.0.store(0, Ordering::Release);
    }
}

/// Puts `inside` down when it goes out of scope, by a panic too. It keeps the slot's address,
/// not the flag's, to spare the owner's path the sum.
struct Leave<'a, T, F>(&'a BiasedSlot<T, F>);

impl<T, F> Drop for Leave<'_, T, F> {
    #[inline(always)]
    fn drop(&mut self) {
        self.0.inside.store(DOWN, Ordering::Release);
    }
}

/// What came of shutting the owner out.
enum Revoked<'a> {
    /// It is out until this is dropped.
    Held(PutDown<'a>),
    /// There is no owner any more.
    Unowned,
    /// The fence was refused, and the owner has not come by.
    Refused(Refused),
}

/// Counts a look; whether there are no more.
const fn is_last(looks: &mut Option<u32>) -> bool {
    match looks {
        Some(0) => true,
        Some(looks) => {
            *looks -= 1;
            false
        }
        None => false,
    }
}

impl<T, F: Fence> BiasedSlot<T, F> {
    /// Waits a moment for another thread. In a child of `fork` there may be none, and this is a
    /// panic: see [fork](crate::arena#children-of-fork).
    #[cold]
    fn pause(&self, wait: &mut Wait) {
        self.birth.check();
        wait.pause();
    }

    /// As [`with`](Slot::with), but if the kernel refuses the fence it waits for an owner for a
    /// moment only. For drains.
    ///
    /// # Errors
    /// [`Refused`] if the slot is owned and cannot be entered; `f` has not run.
    pub fn reach<R>(&self, f: impl FnOnce(&mut T) -> R) -> Result<R, Refused> {
        let _leave = self.enter_from_outside(Some(Wait::LOOKS))?;
        // SAFETY: `enter_from_outside` says that no other thread is in until `_leave` is dropped.
        Ok(self.value.with_mut(|value| f(unsafe { &mut *value })))
    }

    /// Enters the slot, owned or not; where the fence is refused it looks for the owner at most
    /// `looks` times. Until what it returns is dropped, no other thread is in.
    ///
    /// Either we have locked `state`, as in `try_with`; or it is owned and we hold `revoke`, and
    /// have seen `inside` down after the heavy fence, or aside: an owner that comes now sees
    /// `revoke` and waits, also to give the slot up, so `state` stays owned and no thread locks
    /// it; and other remotes wait for `revoke`.
    #[inline]
    fn enter_from_outside(&self, looks: Option<u32>) -> Result<PutDown<'_>, Refused> {
        let mut wait = Wait::default();
        loop {
            match self.state.compare_exchange(FREE, LOCKED, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Ok(PutDown(&self.state)),
                Err(OWNED) => match self.revoke(looks) {
                    Revoked::Held(held) => return Ok(held),
                    Revoked::Unowned => {}
                    Revoked::Refused(refused) => return Err(refused),
                },
                Err(_) => self.await_unlocked(&mut wait),
            }
        }
    }

    /// Shuts the owner out.
    #[cold]
    fn revoke(&self, mut looks: Option<u32>) -> Revoked<'_> {
        let mut wait = Wait::default();
        // Looks before it tries, to leave the line with the thread inside.
        loop {
            let seen = self.revoke.load(Ordering::Relaxed);
            let swap =
                || self.revoke.compare_exchange(DOWN, UP, Ordering::Acquire, Ordering::Relaxed);
            if seen == DOWN && swap().is_ok() {
                break;
            }
            // Who holds it waits for the owner, as this would.
            if seen == STUCK && is_last(&mut looks) {
                return Revoked::Refused(Refused);
            }
            self.pause(&mut wait);
        }
        let held = PutDown(&self.revoke);
        let fenced = F::heavy();
        if fenced.is_err() {
            if looks.is_none() {
                self.revoke.store(STUCK, Ordering::Relaxed);
            }
            // Against the owner's in `step_aside`: if it has left the door, this is seen below.
            fence(Ordering::SeqCst);
        }
        // Acquire: an owner that has left, and what it did, comes before us.
        loop {
            match (self.inside.load(Ordering::Acquire), fenced) {
                (ASIDE, _) | (DOWN, Ok(())) => break,
                (_, Ok(())) => {}
                (_, Err(_)) if self.state.load(Ordering::Acquire) != OWNED => {
                    return Revoked::Unowned;
                }
                (_, Err(refused)) if is_last(&mut looks) => return Revoked::Refused(refused),
                (_, Err(_)) => {}
            }
            self.pause(&mut wait);
        }
        // An owner that gave up before it saw `revoke` did so inside, so this read shows it.
        // An owner since then is as good as the old one: it has not been in.
        match self.state.load(Ordering::Acquire) {
            OWNED => {
                if fenced.is_err() {
                    // It waits no more: those behind it wait for it alone.
                    self.revoke.store(UP, Ordering::Relaxed);
                }
                Revoked::Held(held)
            }
            _ => Revoked::Unowned,
        }
    }

    /// Raises `inside`, in the order the fences ask for; whether no remote is in the way.
    #[inline(always)]
    fn knock(&self) -> bool {
        self.inside.store(UP, Ordering::Relaxed);
        F::light();
        // Acquire: what the last remote did comes before us.
        self.revoke.load(Ordering::Acquire) == DOWN
    }

    /// Enters as the owner: `inside` is up and `revoke` was seen down after it.
    #[inline(always)]
    fn enter(&self) -> Leave<'_, T, F> {
        if !self.knock() {
            self.step_aside();
        }
        Leave(self)
    }

    #[cold]
    #[inline(never)]
    fn step_aside(&self) {
        let mut wait = Wait::default();
        loop {
            // Release: a remote that sees it comes after what we did.
            self.inside.store(ASIDE, Ordering::Release);
            while self.revoke.load(Ordering::Acquire) != DOWN {
                self.pause(&mut wait);
            }
            self.inside.store(UP, Ordering::Relaxed);
            // Either the next remote sees that we are not aside any more, or we see the remote:
            // also one whose heavy fence was refused.
            fence(Ordering::SeqCst);
            if self.revoke.load(Ordering::Acquire) == DOWN {
                return;
            }
        }
    }

    /// Only looks, to leave the line with the thread that has the slot locked.
    #[cold]
    fn await_unlocked(&self, wait: &mut Wait) {
        while self.state.load(Ordering::Relaxed) == LOCKED {
            self.pause(wait);
        }
    }

    /// Makes a slot without an owner owned; waits for the thread that has it locked.
    fn take(&self) -> Result<(), OwnError> {
        let mut wait = Wait::default();
        loop {
            match self.state.compare_exchange(FREE, OWNED, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Ok(()),
                Err(OWNED) => return Err(OwnError::Taken),
                Err(_) => self.await_unlocked(&mut wait),
            }
        }
    }
}

impl<T: Send, F: Fence> Slot<T> for BiasedSlot<T, F> {
    type Owned<'a>
        = Owner<'a, T, F>
    where
        Self: 'a;
    type Stay = zonal::platform::stay::Unbounded;

    fn new(value: T) -> Self {
        Self {
            state: AtomicU8::new(FREE),
            inside: AtomicU8::new(DOWN),
            revoke: AtomicU8::new(DOWN),
            birth: Birth::default(),
            value: UnsafeCell::new(value),
            fence: PhantomData,
        }
    }

    #[inline(always)]
    fn try_with<R>(&self, f: impl FnOnce(&mut T) -> R) -> Option<R> {
        let lock = self.state.compare_exchange(FREE, LOCKED, Ordering::Acquire, Ordering::Relaxed);
        if lock.is_err() {
            return None;
        }
        let _unlock = PutDown(&self.state);
        // SAFETY: `state` went from free to locked by our hand and only we put it back, after
        // `f`. Until then no other try_with or take succeeds, and a remote `with` touches the
        // value only after it has locked or while `state` is owned.
        Some(self.value.with_mut(|value| f(unsafe { &mut *value })))
    }

    /// Where the kernel [refuses](crate::fence::Refused) the fence it waits until an owner comes
    /// by or goes; [`reach`](Self::reach) does not.
    fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        let _leave = loop {
            if let Ok(leave) = self.enter_from_outside(None) {
                break leave;
            }
        };
        // SAFETY: `enter_from_outside` says that no other thread is in until `_leave` is dropped.
        self.value.with_mut(|value| f(unsafe { &mut *value }))
    }

    fn reach<R>(&self, f: impl FnOnce(&mut T) -> R) -> Option<R> {
        Self::reach(self, f).ok()
    }

    fn own(slots: &[Self]) -> Result<Self::Owned<'_>, OwnError> {
        F::available().map_err(OwnError::Unsupported)?;
        for (done, slot) in slots.iter().enumerate() {
            if let Err(error) = slot.take() {
                give_up(&slots[..done]);
                return Err(error);
            }
        }
        let last = slots.first().ok_or(OwnError::NoSuchCpu)?;
        Ok(Owner { slots, last, last_index: 0 })
    }
}

/// The owner of a run of slots; dropping it gives them up.
///
/// It may move to another thread; what the move synchronises with carries the slots along.
pub struct Owner<'a, T, F: Fence = Membarrier> {
    /// Every one of them is owned, and by this value alone.
    slots: &'a [BiasedSlot<T, F>],
    /// The slot entered last, and which it is: most owners stay with one.
    last: &'a BiasedSlot<T, F>,
    last_index: usize,
}

impl<T, F: Fence> Owner<'_, T, F> {
    #[cold]
    #[inline(never)]
    fn turn_to(&mut self, index: usize) -> Option<()> {
        self.last = self.slots.get(index)?;
        self.last_index = index;
        Some(())
    }
}

impl<T, F: Fence> fmt::Debug for Owner<'_, T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Owner").field("slots", &self.slots.len()).finish()
    }
}

impl<T, F: Fence> OwnedSlots<T> for Owner<'_, T, F> {
    #[inline(always)]
    fn with<R>(&mut self, index: usize, f: impl FnOnce(&mut T) -> R) -> Option<R> {
        if index != self.last_index {
            self.turn_to(index)?;
        }
        let slot = self.last;
        let _leave = slot.enter();
        // SAFETY: the slot is owned by us, so no thread has `state` locked; `&mut self` means we
        // are inside once; and `enter` has seen `revoke` down with `inside` up and a light
        // fence between, so a remote that raises it later sees `inside` and waits.
        Some(slot.value.with_mut(|value| f(unsafe { &mut *value })))
    }
}

impl<T, F: Fence> Drop for Owner<'_, T, F> {
    fn drop(&mut self) {
        give_up(self.slots);
    }
}

/// Gives up slots that the caller owns.
fn give_up<T, F: Fence>(slots: &[BiasedSlot<T, F>]) {
    for slot in slots {
        let leave = slot.enter();
        // Locked first: `inside` must be down before another owner can have the slot and
        // raise it, and no remote may take the slot for owned in between.
        slot.state.store(LOCKED, Ordering::Relaxed);
        drop(leave);
        slot.state.store(FREE, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
#[path = "biased_slot_tests.rs"]
mod tests;
