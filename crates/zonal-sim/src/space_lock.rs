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
    /// When the lock's line is where it was last asked for.
    arrives: Cell<Ticks>,
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
            arrives: Cell::default(),
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

    /// Pays for the instructions and for the lock's line. The line goes to one CPU after the other,
    /// in the order in which they ask: readers do not exclude each other, but their atomics do.
    fn pay(&self) {
        engine::with_cpu(|engine, cpu| engine.spend(cpu, self.cost));
        coroutine::pause_if_ahead();
        let others_first = engine::with_cpu(|engine, cpu| {
            let clock = engine.clock(cpu);
            *clock = (*clock).max(self.arrives.get());
            let others_first = engine.touch(cpu, core::ptr::from_ref(self).addr(), Access::Update);
            self.arrives.set(*engine.clock(cpu));
            others_first
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coroutine::{Body, run_all};
    use crate::engine::Engine;
    use crate::machine;
    use crate::schedule::Schedule;

    /// Readers are inside together, but each waits for the lock's line, twice a turn.
    #[test]
    fn the_line_goes_from_one_reader_to_the_next() {
        const READERS: u32 = 16;
        const TURNS: u32 = 100;
        let machine = machine::builtin("broadwell_2s_40cpu").expect("it is built in");
        let _installed = engine::install(Engine::new(&machine, READERS, Schedule::by_clock()));
        let lock = SpaceLock::new(&machine.kernel);
        let most = Cell::new(0);
        let body = |_| -> Body<'_> {
            Box::new(|| {
                for _ in 0..TURNS {
                    lock.with(Mode::Read, || most.set(most.get().max(lock.readers.get())));
                }
            })
        };
        run_all((0..READERS).map(body).collect(), |_| ()).expect("they all end");
        assert!(most.get() > 1, "nobody was inside beside somebody else");
        let ends = engine::with(|engine| {
            engine.cpus.iter().map(|cpu| cpu.clock.cycles()).collect::<Vec<_>>()
        });
        let last = ends.expect("a machine is on this thread").into_iter().max().unwrap_or(0);
        // A line that stayed where it was for the second atomic of a turn did not move.
        let moves = f64::from(READERS * TURNS);
        assert!(last as f64 >= moves * machine.cost.near, "{last} cycles for {moves} moves");
    }
}
