//! A cache of pages that can be had again, as a kernel has of files: what is given back when memory is short, by a
//! task that is woken, and by requests that may wait.

use crate::machine::{Pc, apic, cpu, interrupts};
use crate::workload::chain::Chain;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU32, AtomicU64};
use x86_64::instructions::interrupts as flag;
use zonal::Block;
use zonal::platform::Lock;
use zonal::slow_path::Shortage;
use zonal_kernel::irq_lock::IrqLock;

static PAGES: IrqLock<Chain, Pc> = IrqLock::new(Chain::new(0xcac4e));

/// 1: the task is to reclaim.
static WOKEN: AtomicU32 = AtomicU32::new(0);
/// The processor on which the task is, plus 1; 0: there is none.
static TASK: AtomicU32 = AtomicU32::new(0);

/// Frames given back by the task, and by requests themselves.
pub(crate) static BEHIND: AtomicU64 = AtomicU64::new(0);
pub(crate) static DIRECT: AtomicU64 = AtomicU64::new(0);

/// What the task gives back when it is woken, and a request at once, in frames.
const BATCH: u64 = 2048;
const AT_ONCE: u64 = 64;

/// Adds a page.
pub(crate) fn add(block: Block) {
    PAGES.with(|pages| pages.push(block));
}

/// Gives back the newest pages, up to `frames` frames; how many.
pub(crate) fn shrink(frames: u64) -> u64 {
    let mut freed = 0;
    while freed < frames {
        // One at a time, with the lock held for no more than that.
        let Some((pfn, order)) = PAGES.with(Chain::pop) else { break };
        // SAFETY: it was allocated with this order, and taken out of the cache.
        unsafe { super::free_raw(pfn, order) };
        freed += order.frames();
    }
    freed
}

/// Memory is short: the task is woken, where there is one. From handlers, too.
pub(crate) fn wake() {
    // Acquire and release: with the exchange in `task_runs`.
    let woken = WOKEN.swap(1, AcqRel) != 0;
    let task = TASK.load(Acquire);
    if !woken && task != 0 && task - 1 != cpu::number().0 {
        let target = cpu::at(task - 1).apic_id.load(Relaxed);
        flag::without_interrupts(|| apic::interrupt(target, interrupts::WAKE));
    }
}

/// A request that may wait cannot be served.
pub(crate) fn reclaim(shortage: &Shortage) -> u64 {
    let freed = shrink(shortage.request.order().frames().max(AT_ONCE));
    DIRECT.fetch_add(freed, Relaxed);
    freed
}

/// Whether the task has been woken.
pub(crate) fn is_woken() -> bool {
    WOKEN.load(Acquire) != 0
}

/// Says on which processor the task is, or that there is none.
pub(crate) fn set_task(number: Option<u32>) {
    TASK.store(number.map_or(0, |number| number + 1), Release);
}

/// The task's turn: what it does if it was woken.
pub(crate) fn task_runs() {
    if WOKEN.swap(0, AcqRel) != 0 {
        BEHIND.fetch_add(shrink(BATCH), Relaxed);
    }
}
