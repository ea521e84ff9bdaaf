//! All processors at one task: begun together, waited for by the first. And what they have to do
//! for each other when page tables change.

use super::{apic, cpu, interrupts};
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicU32};
use x86_64::instructions::{hlt, interrupts as flag, tlb};

/// What they do: a function of the processor's number.
pub(crate) type Task = fn(u32);

/// The task, as a pointer to a function.
static TASK: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());
/// How many tasks there have been.
static TURN: AtomicU32 = AtomicU32::new(0);
/// How many processors are at it still.
static BUSY: AtomicU32 = AtomicU32::new(0);

/// Sleeps until an interrupt comes, unless `ready`. The two cannot be told apart by an interrupt
/// between them: it ends the `hlt`.
pub(crate) fn sleep_unless(ready: impl Fn() -> bool) {
    flag::disable();
    if ready() {
        flag::enable();
    } else {
        flag::enable_and_hlt();
    }
}

/// Has all processors run `task`, and returns when all have.
pub(crate) fn run(task: Task) {
    let count = cpu::count();
    BUSY.store(count, Relaxed);
    TASK.store(task as *mut (), Relaxed);
    // Release: pairs with the acquire in `work`: they see the task.
    TURN.fetch_add(1, Release);
    if count > 1 {
        flag::without_interrupts(|| apic::interrupt_others(interrupts::WAKE));
    }
    flag::enable();
    take_part(0, task);
    // Acquire: pairs with the releases in `take_part`: what they did is seen.
    while BUSY.load(Acquire) != 0 {
        sleep_unless(|| BUSY.load(Acquire) == 0);
    }
}

fn take_part(number: u32, task: Task) {
    task(number);
    if BUSY.fetch_sub(1, AcqRel) == 1 && number != 0 {
        let first = cpu::at(0).apic_id.load(Relaxed);
        flag::without_interrupts(|| apic::interrupt(first, interrupts::WAKE));
    }
}

/// What a woken processor does from then on.
pub(crate) fn work() -> ! {
    let number = cpu::number().0;
    let mut turn = 0;
    loop {
        while TURN.load(Acquire) == turn {
            sleep_unless(|| TURN.load(Acquire) != turn);
        }
        turn = TURN.load(Acquire);
        // SAFETY: `run` stored a `Task`, and stores the next one when all have done this one.
        let task = unsafe { core::mem::transmute::<*mut (), Task>(TASK.load(Relaxed)) };
        take_part(number, task);
    }
}

/// Waits until all processors are here, with interrupts let in.
pub(crate) fn meet() {
    static HERE: AtomicU32 = AtomicU32::new(0);
    let count = cpu::count();
    let arrived = HERE.fetch_add(1, AcqRel);
    let end = (arrived / count + 1) * count;
    if arrived + 1 == end && count > 1 {
        flag::without_interrupts(|| apic::interrupt_others(interrupts::WAKE));
    }
    // Numbers only grow, so a processor that is late still sees that all were here. They sleep: an
    // emulator's processors share fewer real ones.
    while HERE.load(Acquire) < end {
        sleep_unless(|| HERE.load(Acquire) >= end);
    }
}

/// Waits a moment for another processor.
pub(crate) fn idle() {
    if cpu::count() == 1 { hlt() } else { core::hint::spin_loop() }
}

/// How many have not flushed yet.
static FLUSHES_LEFT: AtomicU32 = AtomicU32::new(0);
/// 1 while a processor has the others flush: one at a time.
static FLUSHER: AtomicU32 = AtomicU32::new(0);

/// Has all other processors forget what they know of page tables. With interrupts let in: two
/// who wait for each other answer each other.
pub(crate) fn flush_others() {
    let others = cpu::count() - 1;
    if others == 0 {
        return;
    }
    // Acquire: pairs with the release below: the counter is ours.
    while FLUSHER.compare_exchange(0, 1, Acquire, Relaxed).is_err() {
        core::hint::spin_loop();
    }
    FLUSHES_LEFT.store(others, Release);
    flag::without_interrupts(|| apic::interrupt_others(interrupts::FLUSH));
    // Acquire: pairs with the release in `flush_own`.
    while FLUSHES_LEFT.load(Acquire) != 0 {
        core::hint::spin_loop();
    }
    FLUSHER.store(0, Release);
}

/// This processor's part, when it was asked.
pub(crate) fn flush_own() {
    tlb::flush_all();
    FLUSHES_LEFT.fetch_sub(1, Release);
}
