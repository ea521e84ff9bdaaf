//! Interrupts of the processor that this is compiled for: x86-64, aarch64, riscv64.
//!
//! For [`Machine::interrupts_off`](crate::Machine::interrupts_off) and its partner. A kernel that
//! counts its nested sections, or runs under a hypervisor with a faster way, has functions of its own. Not for
//! user space: the instructions are privileged there, and trap.
//!
//! On aarch64 these are IRQs. FIQs stay as they are, so a handler of FIQs must not allocate or free.
//!
//! x86-64 is built for its bare target and booted by the project's checks. The other two are compiled by
//! those who have their targets; nothing here runs them.
//!
//! ```no_run
//! let were_on = zonal_kernel::arch::interrupts_off();
//! // no handler runs on this CPU here
//! zonal_kernel::arch::interrupts_restore(were_on);
//! ```

use core::arch::asm;

/// Keeps interrupts from this CPU; returns whether they could come before. The compiler moves no access to
/// memory across it.
#[inline(always)]
#[must_use]
pub fn interrupts_off() -> bool {
    let before: u64;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: it pushes and pops a word of the stack (so `nostack` is not said), and clears a flag that
    // no code of the compiler depends on. Where it is privileged it traps.
    unsafe {
        asm!("pushfq", "pop {}", "cli", out(reg) before);
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: it reads mask bits and sets that of IRQs, which no code of the compiler depends on.
    unsafe {
        asm!("mrs {}, daif", "msr daifset, #2", out(reg) before, options(nostack));
    }
    #[cfg(target_arch = "riscv64")]
    // SAFETY: it reads a status word and clears a bit of it that no code of the compiler depends on.
    unsafe {
        asm!("csrrci {}, sstatus, 2", out(reg) before, options(nostack));
    }
    were_on(before)
}

/// Whether a status word from before says that interrupts could come.
const fn were_on(before: u64) -> bool {
    if cfg!(target_arch = "x86_64") {
        before & 1 << 9 != 0
    } else if cfg!(target_arch = "aarch64") {
        // The bit that masks IRQs.
        before & 1 << 7 == 0
    } else {
        before & 2 != 0
    }
}

/// Lets interrupts come again if `were_on`. The compiler moves no access to memory across it.
#[inline(always)]
pub fn interrupts_restore(were_on: bool) {
    if !were_on {
        return;
    }
    #[cfg(target_arch = "x86_64")]
    // SAFETY: it sets a flag that no code of the compiler depends on.
    unsafe {
        asm!("sti", options(nostack));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: it clears a mask bit that no code of the compiler depends on.
    unsafe {
        asm!("msr daifclr, #2", options(nostack));
    }
    #[cfg(target_arch = "riscv64")]
    // SAFETY: it sets a bit that no code of the compiler depends on.
    unsafe {
        asm!("csrsi sstatus, 2", options(nostack));
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")))]
compile_error!("zonal-kernel knows the interrupts of x86-64, aarch64 and riscv64");
