//! Virtual CPUs: coroutines that are resumed in the order of the schedule.

use crate::engine::{self, Engine};
use crate::run::SimError;
use core::cell::{Cell, RefCell};
use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// What a virtual CPU runs.
pub type Body<'a> = Box<dyn FnOnce() + 'a>;

type Suspender = Yielder<(), ()>;

/// Bytes of a virtual CPU's stack. It is mapped, and costs memory only where it is used.
const STACK: usize = 512 << 10;

thread_local! {
    /// The way out of the coroutine that runs on this thread; null outside of any.
    static RUNNING: Cell<*const Suspender> = const { Cell::new(core::ptr::null()) };
    /// Stacks of earlier runs: mapping and unmapping them took a quarter of a short run.
    static STACKS: RefCell<Vec<DefaultStack>> = const { RefCell::new(Vec::new()) };
}

/// Stacks that a thread keeps: as many as an exploration has virtual CPUs.
const KEPT_STACKS: usize = crate::explore::MAX_CPUS as usize;

/// Others go on; returns when the schedule comes back to this CPU. The caller has put
/// the CPU into the schedule, or has left it where another CPU will find and wake it.
pub(crate) fn switch() {
    let running = RUNNING.get();
    assert!(!running.is_null(), "only a virtual CPU can wait");
    // SAFETY: `RUNNING` is set by the wrapper around a coroutine's body, to a yielder that lives
    // on that coroutine's stack until the body has returned, and set again below whenever the
    // coroutine goes on; `run_all` clears it whenever no coroutine runs. So here it is the
    // yielder of the coroutine that this call is made from.
    let suspender = unsafe { &*running };
    suspender.suspend(());
    RUNNING.set(running);
}

/// The CPU that runs lets others go on, if they are before it. While its stack is unwound it
/// does not: it waits then only for locks.
pub(crate) fn pause() {
    if std::thread::panicking() {
        return;
    }
    let waits = engine::with_cpu(|engine, cpu| {
        let clock = *engine.clock(cpu);
        engine.next = engine.schedule.exchange(cpu, clock);
    });
    if waits.is_some() {
        switch();
    }
}

/// The CPU that runs lets others go on, if they are further behind than the lookahead.
pub(crate) fn pause_if_early() {
    if engine::with_cpu(Engine::is_early) == Some(true) {
        pause();
    }
}

/// The CPU that runs lets all others go on that are behind it, unless it holds a lock.
pub(crate) fn pause_if_ahead() {
    if engine::with_cpu(Engine::is_ahead) == Some(true) {
        pause();
    }
}

/// The virtual CPUs of a run. Those that have not returned are unwound when this is dropped.
struct Crew(Vec<Coroutine<(), (), ()>>);

impl Drop for Crew {
    fn drop(&mut self) {
        // From now on no CPU waits for another: what an unwound stack drops finds no CPU.
        let holding = engine::with(|engine| {
            engine.current = None;
            engine.cpus.iter().map(|cpu| cpu.holding).collect::<Vec<_>>()
        });
        RUNNING.set(core::ptr::null());
        let holding = holding.unwrap_or_default();
        let mut order: Vec<usize> = (0..self.0.len()).collect();
        // Who is inside of a lock leaves it before those who may want it on their way out.
        order.sort_by_key(|&cpu| core::cmp::Reverse(holding.get(cpu).copied()));
        for cpu in order {
            self.0[cpu].force_unwind();
        }
        STACKS.with_borrow_mut(|stacks| {
            let room = KEPT_STACKS.saturating_sub(stacks.len());
            // All have returned: `into_stack` panics otherwise.
            stacks.extend(self.0.drain(..).take(room).map(Coroutine::into_stack));
        });
    }
}

/// Runs one body on each virtual CPU of this thread's machine until all have returned.
///
/// `step` is called before each turn with the CPU that is to run.
///
/// A panic in a body is passed on: at once, or under a random schedule when the others have
/// returned, which are asked to stop.
///
/// # Errors
/// [`SimError::Deadlock`] if all that are left wait for each other; they are unwound.
pub(crate) fn run_all(bodies: Vec<Body<'_>>, mut step: impl FnMut(usize)) -> Result<(), SimError> {
    let mut waiting = bodies.len();
    let mut crew = Crew(bodies.into_iter().map(coroutine).collect());
    let random = engine::with(|engine| {
        for cpu in 0..waiting {
            let clock = *engine.clock(cpu);
            engine.schedule.push(cpu, clock);
        }
        engine.schedule.is_random()
    });
    let mut panicked = None;
    while waiting > 0 {
        let next = engine::with(|engine| engine.next.take().or_else(|| engine.schedule.pop()));
        let Some(cpu) = next.flatten() else {
            let stuck = deadlock();
            drop(crew);
            return panicked.map_or(Err(stuck), |payload| resume_unwind(payload));
        };
        step(cpu);
        engine::with(|engine| {
            engine.current = Some(cpu);
            engine.turn_began = engine.cpus[cpu].clock;
        });
        let turn = catch_unwind(AssertUnwindSafe(|| crew.0[cpu].resume(())));
        engine::with(|engine| engine.current = None);
        RUNNING.set(core::ptr::null());
        let returned = match turn {
            Ok(turn) => matches!(turn, CoroutineResult::Return(())),
            Err(payload) if random == Some(true) => {
                engine::with(|engine| engine.stopped = true);
                panicked.get_or_insert(payload);
                true
            }
            Err(payload) => resume_unwind(payload),
        };
        if returned {
            engine::with(|engine| engine.cpus[cpu].done = true);
            waiting -= 1;
        }
    }
    panicked.map_or(Ok(()), |payload| resume_unwind(payload))
}

fn coroutine(body: Body<'_>) -> Coroutine<(), (), ()> {
    let wrapped = move |suspender: &Suspender, (): ()| {
        RUNNING.set(core::ptr::from_ref(suspender));
        body();
    };
    let kept = STACKS.with_borrow_mut(Vec::pop);
    let stack = kept.unwrap_or_else(|| {
        DefaultStack::new(STACK).expect("half a MiB of address space for a stack")
    });
    // SAFETY: what `body` borrows outlives the call of `run_all`, whose argument it is. The
    // coroutine is a local of `run_all`, is not moved out of it and not forgotten, so it has
    // returned or is dropped (which unwinds its stack) before `run_all` is left.
    unsafe { Coroutine::with_stack_unchecked(stack, wrapped) }
}

fn deadlock() -> SimError {
    let last = engine::with(|engine| {
        let waiting = engine.cpus.iter().filter(|cpu| !cpu.done);
        waiting.map(|cpu| cpu.clock).max().unwrap_or_default()
    });
    SimError::Deadlock { cycle: last.unwrap_or_default().cycles() }
}
