// Included by tests and by examples of the documentation.
//
// A machine made of threads: each is a CPU, memory is a region of the heap, and interrupts are a
// flag of the thread. A handler may be set, which runs when interrupts are let in: as late as it can.

use std::alloc::{Layout, alloc_zeroed};
use std::cell::Cell;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use zonal::map::PhysAddr;
use zonal::{CpuId, NodeId};
use zonal_kernel::Machine;

/// Where physical address 0 is.
static BASE: AtomicPtr<u8> = AtomicPtr::new(std::ptr::null_mut());
const ALIGN: usize = 2 << 20;
static BYTES: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static CPU: Cell<u32> = const { Cell::new(0) };
    static ON: Cell<bool> = const { Cell::new(true) };
    static HANDLER: Cell<Option<fn()>> = const { Cell::new(None) };
}

/// Gives the machine `bytes` of memory, from address 0 on, once; returns where it ends.
pub(crate) fn memory(bytes: usize) -> u64 {
    // Aligned by hand: memory that is asked for with an alignment is filled with zero bytes one by one.
    let layout = Layout::from_size_align(bytes + ALIGN, 1).expect("a size");
    // SAFETY: not of size 0.
    let start = unsafe { alloc_zeroed(layout) };
    let base = start.wrapping_add(start.align_offset(ALIGN));
    assert!(!start.is_null() && BYTES.swap(bytes, Ordering::Relaxed) == 0, "one memory a process");
    BASE.store(base, Ordering::Release);
    bytes as u64
}

/// This thread is CPU `cpu` from now on.
#[allow(dead_code, reason = "not all who include this file have several CPUs")]
pub(crate) fn run_on(cpu: u32) {
    CPU.set(cpu);
}

/// `handler` runs on this thread whenever interrupts are let in.
#[allow(dead_code, reason = "not all who include this file have handlers")]
pub(crate) fn on_interrupt(handler: Option<fn()>) {
    HANDLER.set(handler);
}

/// Whether interrupts may come.
#[allow(dead_code, reason = "not all who include this file look")]
pub(crate) fn interrupts_are_on() -> bool {
    ON.get()
}

pub(crate) struct Fake;

impl Machine for Fake {
    fn cpu() -> CpuId {
        CpuId(CPU.get())
    }
    fn node(cpu: CpuId) -> NodeId {
        NodeId((cpu.0 % 2) as u8)
    }
    fn interrupts_off() -> bool {
        // One that comes at the last moment.
        interrupt();
        ON.replace(false)
    }
    fn interrupts_restore(were_on: bool) {
        assert!(!ON.get(), "let in twice, or not kept away");
        ON.set(were_on);
        interrupt();
    }
    fn address(frame: PhysAddr) -> *mut u8 {
        assert!(frame.0 < BYTES.load(Ordering::Relaxed) as u64, "{frame} is no memory");
        BASE.load(Ordering::Acquire).wrapping_add(frame.0 as usize)
    }
}

/// Runs the handler, with interrupts kept away, unless they are.
fn interrupt() {
    let Some(handler) = HANDLER.get().filter(|_| ON.get()) else { return };
    HANDLER.set(None);
    let before = ON.replace(false);
    handler();
    ON.set(before);
    HANDLER.set(Some(handler));
}
