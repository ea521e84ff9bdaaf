//! Queued spinlocks in virtual time.
//!
//! The next CPU is the one with the smallest clock, so CPUs come to a lock in the order of their
//! arrival. One that holds it runs to the end of its hold without a break, if it waits for
//! no other CPU, and leaves the time when the lock became free; a CPU that comes before that time
//! waits until then. A holder that does wait for another keeps the lock, and those who come
//! meanwhile queue. Either way the lock is had in the order of arrival, each time for the price of
//! its line, and of the first lines of what it guards.

use crate::coroutine;
use crate::engine::{self, Access, Engine};
use crate::lines::LINE;
use crate::profile::Hold;
use crate::ticks::Ticks;
use core::cell::{Cell, RefCell};
use std::collections::VecDeque;

/// Lines of what a lock guards that a holder surely needs.
const GUARDED_LINES: usize = 3;

/// A lock around a `T`. It must stay where it is once it was taken.
#[derive(Debug)]
pub struct SimLock<T> {
    state: State,
    value: RefCell<T>,
}

/// The lock without what it guards.
#[derive(Debug, Default)]
pub(crate) struct State {
    held: Cell<bool>,
    /// When the last holder left, or will have left.
    free_at: Cell<Ticks>,
    /// When the holder got it, and what it paid for lines to get it.
    since: Cell<Ticks>,
    waited: Cell<Ticks>,
    transferred: Cell<Ticks>,
    contended: Cell<bool>,
    /// Its number and class in the profile, from the first time it was taken.
    known: Cell<Option<(u32, u8)>>,
    queue: RefCell<VecDeque<(usize, Ticks)>>,
}

impl<T> SimLock<T> {
    fn lines(&self) -> impl Iterator<Item = usize> + use<T> {
        let start = self.value.as_ptr().addr();
        (0..size_of::<T>().div_ceil(LINE).min(GUARDED_LINES)).map(move |line| start + line * LINE)
    }
}

impl<T> zonal::platform::Lock<T> for SimLock<T> {
    fn new(value: T) -> Self {
        Self { state: State::default(), value: RefCell::new(value) }
    }

    fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        let _hold = self.state.acquire(self.lines());
        f(&mut self.value.borrow_mut())
    }

    fn try_with<R>(&self, f: impl FnOnce(&mut T) -> R) -> Option<R> {
        let _hold = self.state.try_acquire(self.lines())?;
        Some(f(&mut self.value.borrow_mut()))
    }

    fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }
}

/// The lock is held, until this is dropped.
pub(crate) struct Held<'a>(&'a State);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.release();
    }
}

/// A CPU is in a slot, until this is dropped.
pub(crate) struct Stay<'a>(&'a State);

impl Drop for Stay<'_> {
    fn drop(&mut self) {
        self.0.held.set(self.0.wake_next());
    }
}

impl State {
    /// Whether a CPU holds it at the time of the one that asks.
    pub(crate) fn busy(&self) -> bool {
        let now = engine::with_cpu(|engine, cpu| *engine.clock(cpu));
        self.held.get() || now.is_some_and(|now| now < self.free_at.get())
    }

    /// Waits for the lock.
    pub(crate) fn acquire(&self, guarded: impl Iterator<Item = usize>) -> Held<'_> {
        let arrived = self.arrive();
        if self.held.get() {
            // Only a virtual CPU can meet a holder: without them nothing is put aside.
            engine::with_cpu(|_, cpu| self.queue.borrow_mut().push_back((cpu, arrived)));
            coroutine::switch();
        }
        self.enter(arrived, guarded)
    }

    /// Takes the lock if no CPU has it.
    pub(crate) fn try_acquire(&self, guarded: impl Iterator<Item = usize>) -> Option<Held<'_>> {
        let arrived = self.arrive();
        if self.busy() {
            return None;
        }
        Some(self.enter(arrived, guarded))
    }

    /// Enters without a price for the lock itself, for a slot that is its CPU's own.
    pub(crate) fn stay(&self) -> Stay<'_> {
        if self.held.get() {
            engine::with_cpu(|engine, cpu| {
                let arrived = *engine.clock(cpu);
                self.queue.borrow_mut().push_back((cpu, arrived));
            });
            coroutine::switch();
        }
        self.held.set(true);
        Stay(self)
    }

    /// The same if no CPU is inside.
    pub(crate) fn try_stay(&self) -> Option<Stay<'_>> {
        (!self.held.replace(true)).then(|| Stay(self))
    }

    /// The head of the queue goes on, now.
    fn wake_next(&self) -> bool {
        if self.queue.borrow().is_empty() {
            return false;
        }
        let woken = engine::with_cpu(|engine, cpu| {
            let now = *engine.clock(cpu);
            let (next, _) = self.queue.borrow_mut().pop_front()?;
            let clock = engine.clock(next);
            *clock = (*clock).max(now);
            let clock = *clock;
            engine.schedule.push(next, clock);
            Some(())
        });
        woken.flatten().is_some()
    }

    /// The CPU comes to the lock: not before all others that come earlier.
    fn arrive(&self) -> Ticks {
        engine::with_cpu(|engine, cpu| {
            let lock = engine.lock_cost;
            engine.spend(cpu, lock);
        });
        coroutine::pause_if_ahead();
        engine::now()
    }

    fn enter(&self, arrived: Ticks, guarded: impl Iterator<Item = usize>) -> Held<'_> {
        self.held.set(true);
        engine::with_cpu(|engine, cpu| {
            let free_at = self.free_at.get();
            let clock = engine.clock(cpu);
            *clock = (*clock).max(free_at);
            let got = *clock;
            let contended = got > arrived;
            let (_, class) = self.known(engine);
            let brought = engine.brought;
            engine.touch_ordered(cpu, core::ptr::from_ref(self).addr(), Access::Update);
            let waited =
                if contended { engine.clock(cpu).since(arrived) } else { Ticks::default() };
            let phase = engine.cpus[cpu].phase;
            engine.measured.spin(class, phase, waited);
            for line in guarded {
                engine.touch_ordered(cpu, line, Access::Store);
            }
            engine.cpus[cpu].holding += 1;
            self.since.set(if contended { arrived + waited } else { got });
            self.waited.set(waited);
            self.contended.set(contended);
            self.transferred.set(engine.brought - brought);
        });
        Held(self)
    }

    fn release(&self) {
        engine::with_cpu(|engine, cpu| {
            let now = *engine.clock(cpu);
            let (number, _) = self.known(engine);
            engine.cpus[cpu].holding = engine.cpus[cpu].holding.saturating_sub(1);
            // A random schedule knows no time, only whether a CPU is inside.
            self.free_at.set(if engine.schedule.is_random() { Ticks::default() } else { now });
            engine.measured.hold(&Hold {
                number,
                contended: self.contended.get(),
                waited: self.waited.get(),
                held: now.since(self.since.get()),
                transferred: self.transferred.get(),
            });
        });
        // With a queue the lock goes to its head without becoming free in between.
        self.held.set(self.wake_next());
    }

    /// The lock's number and class in the profile.
    fn known(&self, engine: &mut Engine) -> (u32, u8) {
        self.known.get().unwrap_or_else(|| {
            let item = engine.item_at(core::ptr::from_ref(self).addr());
            let (class, index) = item.unwrap_or_else(|| (engine.class("other"), 0));
            let known = (engine.measured.number_lock(class, index), class);
            self.known.set(Some(known));
            known
        })
    }
}

#[cfg(test)]
#[path = "lock_tests.rs"]
mod tests;
