//! The machine as the rivals have it: it counts what they do to it.

use crate::machine::{Pc, cpu};
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;
use zonal::map::PhysAddr;
use zonal::{CpuId, NodeId};
use zonal_kernel::Machine;

/// What a processor has counted.
pub(crate) struct Counts {
    /// How often interrupts were masked: for a lock or a slot each time.
    masked: AtomicU64,
    fences: AtomicU64,
    /// How often a lock was looked at again, which another processor had.
    spun: AtomicU64,
}

impl Counts {
    pub(crate) const fn new() -> Self {
        Self { masked: AtomicU64::new(0), fences: AtomicU64::new(0), spun: AtomicU64::new(0) }
    }
}

fn count(what: &AtomicU64) {
    what.store(what.load(Relaxed) + 1, Relaxed);
}

/// How often this processor has masked interrupts.
pub(super) fn masked_here() -> u64 {
    cpu::own().counts.masked.load(Relaxed)
}

/// How often all processors have masked interrupts, made fences, and looked at a lock again.
pub(super) fn all() -> [u64; 3] {
    let all = || (0..cpu::count()).map(|number| &cpu::at(number).counts);
    [
        all().map(|counts| counts.masked.load(Relaxed)).sum(),
        all().map(|counts| counts.fences.load(Relaxed)).sum(),
        all().map(|counts| counts.spun.load(Relaxed)).sum(),
    ]
}

/// See the module.
pub(super) struct Counted;

impl Machine for Counted {
    #[inline(always)]
    fn cpu() -> CpuId {
        cpu::number()
    }
    #[inline(always)]
    fn node(_: CpuId) -> NodeId {
        NodeId(0)
    }
    #[inline(always)]
    fn interrupts_off() -> bool {
        count(&cpu::own().counts.masked);
        Pc::interrupts_off()
    }
    #[inline(always)]
    fn interrupts_restore(were_on: bool) {
        Pc::interrupts_restore(were_on);
    }
    fn fence() {
        count(&cpu::own().counts.fences);
        Pc::fence();
    }
    fn relax() {
        count(&cpu::own().counts.spun);
        Pc::relax();
    }
    fn address(frame: PhysAddr) -> *mut u8 {
        Pc::address(frame)
    }
}
