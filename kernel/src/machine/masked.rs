//! How long the allocator masks interrupts, by the processor's clock: instructions, where the emulator counts
//! them. For one processor, which plays many.

use core::arch::asm;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicU32, AtomicU64};
use zonal::CpuId;

/// Processors that the allocator has.
pub(crate) const CPUS: u32 = 64;

/// The one that is played.
static CPU: AtomicU32 = AtomicU32::new(0);
/// When interrupts were masked last.
static SINCE: AtomicU64 = AtomicU64::new(0);
/// The longest stretches since the last look: where each ended, and how long it was.
static LONGEST: [[AtomicU64; 2]; SITES] = [const { [const { AtomicU64::new(0) }; 2] }; SITES];
const SITES: usize = 64;

pub(crate) fn play(cpu: u32) {
    CPU.store(cpu, Relaxed);
}

pub(crate) fn cpu() -> CpuId {
    CpuId(CPU.load(Relaxed))
}

fn clock() -> u64 {
    // SAFETY: it reads the processor's clock.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// They are masked from now on.
#[inline(always)]
pub(crate) fn begin() {
    SINCE.store(clock(), Relaxed);
}

/// They are let in.
#[inline(always)]
pub(crate) fn end() {
    let ticks = clock() - SINCE.load(Relaxed);
    let here: u64;
    // SAFETY: it only says where it is.
    unsafe { asm!("lea {}, [rip]", out(reg) here, options(nomem, nostack, preserves_flags)) };
    note(here, ticks);
}

#[inline(never)]
fn note(site: u64, ticks: u64) {
    let own = LONGEST.iter().find(|[at, _]| [0, site].contains(&at.load(Relaxed)));
    // The last has what there is no room for.
    let [at, longest] = own.unwrap_or(&LONGEST[SITES - 1]);
    at.store(site, Relaxed);
    longest.fetch_max(ticks, Relaxed);
}

/// The stretches since the last look, where each ended and its length.
pub(crate) fn take() -> [(u64, u64); SITES] {
    LONGEST.each_ref().map(|[at, longest]| (at.swap(0, Relaxed), longest.swap(0, Relaxed)))
}
