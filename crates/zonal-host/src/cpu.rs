//! Which CPU a thread runs on, how many there are, and staying on one.
//!
//! The kernel keeps the CPU number of every thread that has registered for restartable
//! sequences in that thread's memory; glibc (2.35 and later) registers each thread and says
//! where. Reading it is one load. Elsewhere `sched_getcpu` answers, in tens of nanoseconds.
//!
//! ```
//! use zonal_host::cpu;
//! let cpu = cpu::allowed()?[0];
//! cpu::pin_to(cpu)?;
//! assert_eq!(cpu::current(), cpu);
//! # Ok::<(), cpu::AffinityError>(())
//! ```

use crate::errno::Errno;
use crate::sys::{Calls, Kernel};
use std::fmt;
use std::mem;
use zonal::CpuId;

/// The CPU the caller runs on, this moment: it may have moved when this returns. CPU 0 if the
/// kernel does not say. Costs one or two nanoseconds with glibc 2.35 on x86-64.
#[must_use]
#[inline(always)]
pub fn current() -> CpuId {
    match rseq::cpu() {
        Some(cpu) => CpuId(cpu),
        None => asked(),
    }
}

/// The same by the C library.
#[cold]
#[inline(never)]
fn asked() -> CpuId {
    rseq::find();
    // SAFETY: takes nothing and touches no memory of the caller.
    let cpu = unsafe { libc::sched_getcpu() };
    CpuId(u32::try_from(cpu).unwrap_or(0))
}

#[cfg(all(target_arch = "x86_64", target_env = "gnu", not(target_feature = "crt-static")))]
mod rseq {
    use std::arch::asm;
    use std::sync::atomic::{AtomicIsize, Ordering};

    /// Distance of the thread's rseq area from the thread pointer, or one of the two below.
    /// Relaxed throughout: every thread that computes it gets the same.
    static OFFSET: AtomicIsize = AtomicIsize::new(UNKNOWN);
    const UNKNOWN: isize = isize::MIN;
    const ABSENT: isize = isize::MIN + 1;

    #[inline(always)]
    pub(super) fn cpu() -> Option<u32> {
        let offset = OFFSET.load(Ordering::Relaxed);
        if offset <= ABSENT {
            return None;
        }
        let cpu: u32;
        // SAFETY: glibc says that each thread has a `struct rseq` of at least 8 bytes at this
        // offset from the thread pointer, which `fs` holds; `cpu_id` is the second 32-bit
        // field. The load writes nothing but its register.
        unsafe {
            asm!(
                "mov {cpu:e}, dword ptr fs:[{offset} + 4]",
                cpu = out(reg) cpu,
                offset = in(reg) offset,
                options(nostack, preserves_flags, readonly),
            );
        }
        // The kernel's "not registered" and "registration failed" are negative.
        (cpu <= i32::MAX as u32).then_some(cpu)
    }

    /// Asks the dynamic linker, once: the symbols do not exist in older C libraries.
    pub(super) fn find() {
        if OFFSET.load(Ordering::Relaxed) != UNKNOWN {
            return;
        }
        // SAFETY: the name is a C string.
        let size = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_size".as_ptr()) };
        // SAFETY: the name is a C string.
        let offset = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_offset".as_ptr()) };
        let mut found = ABSENT;
        if !size.is_null() && !offset.is_null() {
            // SAFETY: glibc's ABI: `const unsigned int __rseq_size`, 0 if threads are not
            // registered; constant since before main.
            let size = unsafe { size.cast::<u32>().read() };
            // SAFETY: glibc's ABI: `const ptrdiff_t __rseq_offset`; constant since before main.
            let offset = unsafe { offset.cast::<isize>().read() };
            if size >= 8 {
                found = offset;
            }
        }
        OFFSET.store(found, Ordering::Relaxed);
    }
}

/// Other C libraries have no such area; on other processors glibc's `sched_getcpu` reads it.
#[cfg(not(all(target_arch = "x86_64", target_env = "gnu", not(target_feature = "crt-static"))))]
mod rseq {
    #[inline(always)]
    pub(super) fn cpu() -> Option<u32> {
        None
    }
    pub(super) fn find() {}
}

/// How many CPUs the machine may have: their numbers are below this. At least 1. Reads a file of the kernel's.
#[must_use]
pub fn possible() -> u32 {
    let list = std::fs::read_to_string("/sys/devices/system/cpu/possible");
    list.ok().and_then(|list| beyond(&list)).unwrap_or_else(counted)
}

/// The number after the last of a list as the kernel writes them: where some are missing more than there are.
fn beyond(list: &str) -> Option<u32> {
    crate::numa::numbers(list).into_iter().max()?.checked_add(1)
}

/// How many the C library counts.
fn counted() -> u32 {
    // SAFETY: takes a number, touches no memory of the caller.
    let count = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) };
    u32::try_from(count).unwrap_or(1).max(1)
}

/// How many CPUs the process may use at once: its affinity and cgroup quota. At least 1.
#[must_use]
pub fn available() -> u32 {
    std::thread::available_parallelism().map_or(1, |count| count.get() as u32)
}

/// The CPUs the calling thread may run on, by number. Not empty.
///
/// # Errors
/// [`AffinityError::Os`] if the kernel does not say.
pub fn allowed() -> Result<Vec<CpuId>, AffinityError> {
    // SAFETY: cpu_set_t is an array of integers, for which zero is a value.
    let mut set: libc::cpu_set_t = unsafe { mem::zeroed() };
    Kernel::get_affinity(&mut set).map_err(AffinityError::Os)?;
    // SAFETY: reads a bit of `set` whose number is below the set's size.
    let is_set = |cpu: &usize| unsafe { libc::CPU_ISSET(*cpu, &set) };
    Ok((0..SET_BITS).filter(is_set).map(|cpu| CpuId(cpu as u32)).collect())
}

const SET_BITS: usize = libc::CPU_SETSIZE as usize;

/// Keeps the calling thread on `cpu` from now on.
///
/// # Errors
/// [`AffinityError::NotAllowed`] if there is no such CPU or the process may not use it;
/// [`AffinityError::Os`] for anything else the kernel objects to. Nothing has changed then.
pub fn pin_to(cpu: CpuId) -> Result<(), AffinityError> {
    let number = cpu.0 as usize;
    if number >= SET_BITS {
        return Err(AffinityError::NotAllowed { cpu });
    }
    // SAFETY: cpu_set_t is an array of integers, for which zero is a value.
    let mut set: libc::cpu_set_t = unsafe { mem::zeroed() };
    // SAFETY: sets a bit of `set`; the number is below the set's size.
    unsafe { libc::CPU_SET(number, &mut set) };
    Kernel::set_affinity(&set).map_err(|errno| match errno {
        Errno::INVALID => AffinityError::NotAllowed { cpu },
        other => AffinityError::Os(other),
    })
}

/// Why a thread could not be kept on a CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum AffinityError {
    /// The CPU does not exist, is offline, or outside what the process may use.
    NotAllowed {
        /// The CPU wanted.
        cpu: CpuId,
    },
    /// The kernel refused for another reason.
    Os(Errno),
}

impl fmt::Display for AffinityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAllowed { cpu } => {
                write!(f, "CPU {cpu} does not exist, or this process may not use it")
            }
            Self::Os(errno) => write!(f, "CPU affinity: {errno}"),
        }
    }
}

impl std::error::Error for AffinityError {}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn both_ways_agree_on_a_pinned_thread() {
        for cpu in allowed().unwrap() {
            std::thread::spawn(move || {
                pin_to(cpu).unwrap();
                assert_eq!(current(), cpu);
                assert_eq!(asked(), cpu);
                assert_eq!(allowed().unwrap(), [cpu]);
            })
            .join()
            .unwrap();
        }
    }

    #[test]
    fn numbers_are_below_the_count() {
        assert!(available() >= 1);
        assert!(allowed().unwrap().iter().all(|cpu| cpu.0 < possible()));
        assert!(current().0 < possible());
    }

    #[test]
    fn numbers_may_be_missing() {
        let lists = ["0-3,8", "0", "0-1\n", "2,0", "", "\n", "junk", "4294967295"];
        let beyond = lists.map(beyond);
        assert_eq!(beyond, [Some(9), Some(1), Some(2), Some(3), None, None, None, None]);
        assert!(counted() >= 1);
    }

    #[test]
    fn impossible_cpus_are_refused() {
        for number in [SET_BITS as u32 - 1, SET_BITS as u32, u32::MAX] {
            let cpu = CpuId(number);
            let error = pin_to(cpu).unwrap_err();
            assert_eq!(error, AffinityError::NotAllowed { cpu });
            assert!(error.to_string().starts_with(&format!("CPU {number} does not exist")));
        }
    }
}
