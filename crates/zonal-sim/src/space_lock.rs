//! The lock of an address space: many readers (page faults) or one writer (mapping, unmapping).
//!
//! Who comes after a waiting writer waits too. Waiters sleep; waking one has a price.

use crate::coroutine;
use crate::engine::{self, Access};
use crate::machine::Kernel;
use crate::profile::Hold;
use crate::space::{Home, Layout};
use crate::ticks::Ticks;
use core::cell::{Cell, RefCell};
use std::collections::VecDeque;

/// How a CPU holds the lock or wants to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Read,
    Write,
}

#[derive(Clone, Copy)]
struct Waiter {
    cpu: usize,
    mode: Mode,
}

/// What it took to have the lock's line.
#[derive(Clone, Copy, Default)]
struct Paid {
    queued: Ticks,
    /// The access to it.
    touched: Ticks,
    /// Of that, its way from another cache or from memory.
    transferred: Ticks,
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
    /// Its number in the profile.
    number: u32,
}

impl SpaceLock {
    pub(crate) fn new(kernel: &Kernel) -> Box<Self> {
        let known = engine::with(|engine| {
            let class = engine.class("space");
            (class, engine.measured.number_lock(class, 0))
        });
        let (class, number) = known.unwrap_or_default();
        let lock = Box::new(Self {
            readers: Cell::new(0),
            writer: Cell::new(false),
            queue: RefCell::new(VecDeque::new()),
            arrives: Cell::default(),
            cost: Ticks::from_cycles(kernel.space_lock),
            wake: Ticks::from_cycles(kernel.wake),
            class,
            number,
        });
        engine::with(|engine| {
            engine.register("space", core::slice::from_ref(&*lock), Layout::Packed, Home::Local);
        });
        lock
    }

    /// Runs `f` with the lock held. A panic ends the whole run, so no CPU needs the lock after it.
    pub(crate) fn with<R>(&self, mode: Mode, f: impl FnOnce() -> R) -> R {
        let (coming, slept) = self.acquire(mode);
        let since = engine::now();
        let result = f();
        let held = engine::now().since(since);
        let leaving = self.release(mode);
        self.note([coming, leaving], slept, held);
        result
    }

    /// Counts a stay. Who queues for the line waits, to leave the lock too.
    fn note(&self, paid: [Paid; 2], slept: Ticks, held: Ticks) {
        let waited = paid[0].queued + slept + paid[1].queued;
        let touched = paid[0].touched + paid[1].touched;
        let transferred = paid[0].transferred + paid[1].transferred;
        engine::with_cpu(|engine, cpu| {
            let phase = engine.cpus[cpu].phase;
            engine.measured.spin(self.class, phase, waited);
            engine.measured.hold(&Hold {
                number: self.number,
                contended: waited > Ticks::default(),
                waited,
                held: held + touched,
                transferred,
            });
        });
    }

    /// Pays for the instructions and for the lock's line. The line goes to one CPU after the other,
    /// in the order in which they ask: readers do not exclude each other, but their atomics do.
    fn pay(&self) -> Paid {
        engine::with_cpu(|engine, cpu| engine.spend(cpu, self.cost));
        coroutine::pause_if_ahead();
        let paid = engine::with_cpu(|engine, cpu| {
            let asked = *engine.clock(cpu);
            let had = asked.max(self.arrives.get());
            *engine.clock(cpu) = had;
            let brought = engine.brought;
            let others_first =
                engine.touch_ordered(cpu, core::ptr::from_ref(self).addr(), Access::Update);
            let now = *engine.clock(cpu);
            self.arrives.set(now);
            let transferred = engine.brought - brought;
            (Paid { queued: had - asked, touched: now - had, transferred }, others_first)
        });
        let (paid, others_first) = paid.unwrap_or_default();
        if others_first {
            coroutine::pause();
        }
        paid
    }

    fn free_for(&self, mode: Mode) -> bool {
        !self.writer.get() && (mode == Mode::Read || self.readers.get() == 0)
    }

    /// Takes the lock. Returns what its line took, and for how long the task slept.
    fn acquire(&self, mode: Mode) -> (Paid, Ticks) {
        let paid = self.pay();
        if self.queue.borrow().is_empty() && self.free_for(mode) {
            self.enter(mode);
            return (paid, Ticks::default());
        }
        let asked = engine::now();
        engine::with_cpu(|engine, cpu| {
            self.queue.borrow_mut().push_back(Waiter { cpu, mode });
            engine.sleeps(cpu, true);
        });
        coroutine::switch();
        (paid, engine::now().since(asked))
    }

    fn enter(&self, mode: Mode) {
        match mode {
            Mode::Read => self.readers.set(self.readers.get() + 1),
            Mode::Write => self.writer.set(true),
        }
    }

    /// Leaves the lock to the CPUs that may have it now. Returns what its line took.
    fn release(&self, mode: Mode) -> Paid {
        let paid = self.pay();
        match mode {
            Mode::Read => self.readers.set(self.readers.get() - 1),
            Mode::Write => self.writer.set(false),
        }
        loop {
            let next = self.queue.borrow().front().copied();
            let Some(waiter) = next.filter(|waiter| self.free_for(waiter.mode)) else {
                return paid;
            };
            self.queue.borrow_mut().pop_front();
            self.enter(waiter.mode);
            engine::with_cpu(|engine, cpu| {
                let now = *engine.clock(cpu) + self.wake;
                let clock = engine.clock(waiter.cpu);
                *clock = (*clock).max(now);
                let clock = *clock;
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
        assert!(most.get() > 1, "no reader was inside beside another");
        let ends = engine::with(|engine| {
            engine.cpus.iter().map(|cpu| cpu.clock.cycles()).collect::<Vec<_>>()
        });
        let last = ends.expect("a machine is on this thread").into_iter().max().unwrap_or(0);
        // A line that stayed where it was for the second atomic of a turn did not move.
        let moves = f64::from(READERS * TURNS);
        assert!(last as f64 >= moves * machine.cost.near, "{last} cycles for {moves} moves");
    }
}
