//! The lock of an address space: many readers (page faults) or one writer (mapping, unmapping).
//!
//! Who comes after a waiting writer waits too. Waiters sleep; waking one has a price.

use crate::coroutine;
use crate::engine::{self, Access};
use crate::machine::Kernel;
use crate::space::{Home, Layout};
use crate::ticks::Ticks;
use core::cell::{Cell, RefCell};
use std::collections::VecDeque;

/// How somebody holds the lock or wants to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Read,
    Write,
}

#[derive(Clone, Copy)]
struct Waiter {
    cpu: usize,
    mode: Mode,
    since: Ticks,
}

/// The lock. Boxed, so that its line stays where it is.
pub(crate) struct SpaceLock {
    readers: Cell<u32>,
    writer: Cell<bool>,
    queue: RefCell<VecDeque<Waiter>>,
    cost: Ticks,
    wake: Ticks,
    class: u8,
}

impl SpaceLock {
    pub(crate) fn new(kernel: &Kernel) -> Box<Self> {
        let class = engine::with(|engine| engine.class("space")).unwrap_or(0);
        let lock = Box::new(Self {
            readers: Cell::new(0),
            writer: Cell::new(false),
            queue: RefCell::new(VecDeque::new()),
            cost: Ticks::from_cycles(kernel.space_lock),
            wake: Ticks::from_cycles(kernel.wake),
            class,
        });
        engine::with(|engine| {
            engine.register("space", core::slice::from_ref(&*lock), Layout::Packed, Home::Local);
        });
        lock
    }

    /// Runs `f` with the lock held.
    pub(crate) fn with<R>(&self, mode: Mode, f: impl FnOnce() -> R) -> R {
        self.acquire(mode);
        let result = f();
        self.release(mode);
        result
    }

    /// Pays for the instructions and for the lock's line, before others that come later.
    fn pay(&self) {
        coroutine::pause_if_early();
        let others_first = engine::with_cpu(|engine, cpu| {
            engine.spend(cpu, self.cost);
            engine.touch(cpu, core::ptr::from_ref(self).addr(), Access::Update)
        });
        if others_first == Some(true) {
            coroutine::pause();
        }
    }

    fn free_for(&self, mode: Mode) -> bool {
        !self.writer.get() && (mode == Mode::Read || self.readers.get() == 0)
    }

    fn acquire(&self, mode: Mode) {
        self.pay();
        if self.queue.borrow().is_empty() && self.free_for(mode) {
            self.enter(mode);
            return;
        }
        engine::with_cpu(|engine, cpu| {
            let since = *engine.clock(cpu);
            self.queue.borrow_mut().push_back(Waiter { cpu, mode, since });
            engine.sleeps(cpu, true);
        });
        coroutine::switch();
    }

    fn enter(&self, mode: Mode) {
        match mode {
            Mode::Read => self.readers.set(self.readers.get() + 1),
            Mode::Write => self.writer.set(true),
        }
    }

    fn release(&self, mode: Mode) {
        self.pay();
        match mode {
            Mode::Read => self.readers.set(self.readers.get() - 1),
            Mode::Write => self.writer.set(false),
        }
        loop {
            let next = self.queue.borrow().front().copied();
            let Some(waiter) = next.filter(|waiter| self.free_for(waiter.mode)) else { return };
            self.queue.borrow_mut().pop_front();
            self.enter(waiter.mode);
            engine::with_cpu(|engine, cpu| {
                let now = *engine.clock(cpu) + self.wake;
                let clock = engine.clock(waiter.cpu);
                *clock = (*clock).max(now);
                let (clock, phase) = (*clock, engine.cpus[waiter.cpu].phase);
                engine.measured.spin(self.class, phase, clock.since(waiter.since));
                engine.sleeps(waiter.cpu, false);
                engine.schedule.push(waiter.cpu, clock);
            });
        }
    }
}
