//! The CPUs of the machine: which there are, pinning to them, and what a thread got of one.
//!
//! Everything here is Linux: affinity masks, `RUSAGE_THREAD`, the thread CPU clock.
//!
//! ```
//! let cpus = zonal_bench::machine::cpus()?;
//! assert!(!cpus.is_empty());
//! # Ok::<(), std::io::Error>(())
//! ```

use core::mem::MaybeUninit;
use core::time::Duration;
use std::io;

/// The CPUs this process may run on, ascending.
///
/// # Errors
///
/// If the kernel will not say.
pub fn cpus() -> io::Result<Vec<usize>> {
    let mut set = MaybeUninit::<libc::cpu_set_t>::zeroed();
    let size = size_of::<libc::cpu_set_t>();
    // SAFETY: the pointer is to `size` writable bytes, which is all the call asks for.
    let result = unsafe { libc::sched_getaffinity(0, size, set.as_mut_ptr()) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a `cpu_set_t` is an array of integers, and all of it was zeroed.
    let set = unsafe { set.assume_init() };
    // SAFETY: the index stays below the number of bits in the set.
    let in_set = |cpu: &usize| unsafe { libc::CPU_ISSET(*cpu, &set) };
    Ok((0..size * 8).filter(in_set).collect())
}

/// Pins the calling thread to `cpu`.
///
/// # Errors
///
/// If the CPU does not exist or is not allowed.
pub fn pin(cpu: usize) -> io::Result<()> {
    let size = size_of::<libc::cpu_set_t>();
    if cpu >= size * 8 {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: a `cpu_set_t` is an array of integers, for which all zeros is a value.
    let mut set = unsafe { MaybeUninit::<libc::cpu_set_t>::zeroed().assume_init() };
    // SAFETY: `cpu` is below the number of bits in the set, checked above.
    unsafe { libc::CPU_SET(cpu, &mut set) };
    // SAFETY: the pointer is to `size` readable bytes.
    let result = unsafe { libc::sched_setaffinity(0, size, &raw const set) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// What the calling thread has used of its CPU so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    /// Time on a CPU.
    pub cpu: Duration,
    /// Times it was put off the CPU while it wanted to run.
    pub involuntary: u64,
    /// Times it gave the CPU up itself, by waiting.
    pub voluntary: u64,
}

impl Usage {
    /// Reads the counters of the calling thread; zeros if the kernel will not say, which makes
    /// the sample count as undisturbed.
    #[must_use]
    pub fn now() -> Self {
        let mut usage = MaybeUninit::<libc::rusage>::zeroed();
        // SAFETY: the pointer is to a writable `rusage`.
        let said = unsafe { libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr()) };
        // SAFETY: an `rusage` is made of integers, and all of it was zeroed.
        let usage = unsafe { usage.assume_init() };
        if said != 0 {
            return Self::default();
        }
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the pointer is to a writable `timespec`.
        unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
        Self {
            cpu: Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32),
            involuntary: usage.ru_nivcsw.unsigned_abs(),
            voluntary: usage.ru_nvcsw.unsigned_abs(),
        }
    }

    /// Whether a thread lost its CPU between `self` and `later`, `wall` apart: it was switched
    /// away against its will, or it lacks more than a tenth of the time without having waited.
    #[must_use]
    pub fn lost_cpu(&self, later: &Self, wall: Duration) -> bool {
        let waited = later.voluntary != self.voluntary;
        let cpu = later.cpu.saturating_sub(self.cpu);
        later.involuntary != self.involuntary || (!waited && wall > cpu + cpu / 10)
    }
}

/// Runs `run` on a CPU that another thread of this process wants all the time.
#[cfg(test)]
pub(crate) fn on_a_crowded_cpu<R: Send>(run: impl FnOnce() -> R + Send) -> R {
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    let cpu = *cpus().expect("affinity").last().expect("a CPU");
    // Relaxed: it says nothing else.
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            pin(cpu).expect("an allowed CPU");
            while !over.load(Relaxed) {
                core::hint::spin_loop();
            }
        });
        let run = scope.spawn(|| {
            pin(cpu).expect("an allowed CPU");
            run()
        });
        let result = run.join();
        over.store(true, Relaxed);
        result.expect("it runs")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(cpu_ms: u64, involuntary: u64, voluntary: u64) -> Usage {
        Usage { cpu: Duration::from_millis(cpu_ms), involuntary, voluntary }
    }

    #[test]
    fn losing_the_cpu_is_told_from_waiting() {
        let start = usage(0, 0, 0);
        let wall = Duration::from_millis(10);
        assert!(!start.lost_cpu(&usage(10, 0, 0), wall), "ran all the time");
        assert!(start.lost_cpu(&usage(10, 1, 0), wall), "switched away");
        assert!(start.lost_cpu(&usage(5, 0, 0), wall), "half the time is missing");
        assert!(!start.lost_cpu(&usage(5, 0, 3), wall), "it waited for a lock");
    }

    #[test]
    fn a_thread_can_be_pinned_to_each_cpu_and_to_no_other() {
        for cpu in cpus().expect("affinity") {
            pin(cpu).expect("an allowed CPU");
        }
        assert!(pin(usize::MAX).is_err());
    }

    #[test]
    fn usage_grows() {
        let before = Usage::now();
        let start = std::time::Instant::now();
        while start.elapsed() < Duration::from_millis(5) {
            core::hint::spin_loop();
        }
        assert!(Usage::now().cpu > before.cpu);
    }
}
