//! The time-stamp counter and how fast it runs.
//!
//! Costs in a machine file are in cycles of the nominal clock. On x86-64 the time-stamp counter
//! runs at about that frequency whatever the core does; elsewhere, or if it is not constant, the
//! kernel's `cpufreq` may know.
//!
//! ```
//! use zonal_calibrate::clock::Reading;
//!
//! let Some(before) = Reading::now() else { return };
//! std::thread::sleep(std::time::Duration::from_millis(2));
//! let ghz = Reading::now().and_then(|after| before.ghz(&after)).expect("some time passed");
//! assert!((0.1..10.0).contains(&ghz));
//! ```

use std::fs;
use std::path::Path;
use std::sync::OnceLock;
use std::time::Instant;

/// The counter and the time, read together.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    tsc: u64,
    time: Instant,
}

impl Reading {
    /// Reads both; `None` if there is no counter that runs at a constant rate.
    #[must_use]
    pub fn now() -> Option<Self> {
        Some(Self { tsc: tsc()?, time: Instant::now() })
    }

    /// The counter's frequency between two readings, in GHz; `None` if no time passed.
    #[must_use]
    pub fn ghz(&self, later: &Self) -> Option<f64> {
        let ns = later.time.duration_since(self.time).as_nanos();
        let counted = later.tsc.checked_sub(self.tsc)?;
        (ns > 0).then(|| counted as f64 / ns as f64)
    }
}

#[cfg(target_arch = "x86_64")]
fn tsc() -> Option<u64> {
    static CONSTANT: OnceLock<bool> = OnceLock::new();
    let constant = *CONSTANT.get_or_init(|| {
        let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        is_constant(&text) && may_read()
    });
    // SAFETY: the instruction only reads the counter; this processor has it, and this process
    // may use it, both found out above.
    constant.then(|| unsafe { core::arch::x86_64::_rdtsc() })
}

#[cfg(not(target_arch = "x86_64"))]
fn tsc() -> Option<u64> {
    None
}

/// Whether `/proc/cpuinfo` says that there is a counter and that its rate is constant.
fn is_constant(cpuinfo: &str) -> bool {
    let flags = cpuinfo.lines().find(|line| line.starts_with("flags")).unwrap_or("");
    let has = |flag| flags.split_whitespace().any(|word| word == flag);
    has("tsc") && has("constant_tsc")
}

/// Whether this process may read the counter: a process can be denied it, and is then ended for
/// trying.
#[cfg(target_arch = "x86_64")]
fn may_read() -> bool {
    let mut mode: libc::c_int = 0;
    // SAFETY: the call writes an `int` where its argument points.
    let said = unsafe { libc::prctl(libc::PR_GET_TSC, &raw mut mode) };
    said != 0 || mode == libc::PR_TSC_ENABLE
}

/// The frequency that `cpufreq` below `root` gives for a CPU, in GHz: the base frequency, or the
/// highest.
#[must_use]
pub fn cpufreq_ghz(root: &Path, cpu: usize) -> Option<f64> {
    let folder = root.join(format!("cpu{cpu}/cpufreq"));
    let khz = |name| fs::read_to_string(folder.join(name)).ok()?.trim().parse::<f64>().ok();
    let khz: f64 = khz("base_frequency").or_else(|| khz("cpuinfo_max_freq"))?;
    (khz > 0.0).then_some(khz / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_that_is_not_constant_is_none() {
        assert!(is_constant("processor : 0\nflags\t: fpu tsc constant_tsc nonstop_tsc\n"));
        assert!(!is_constant("flags : fpu tsc nonstop_tsc\n"));
        assert!(!is_constant("flags : constant_tsc_not\n"));
        assert!(!is_constant(""));
    }

    #[test]
    fn no_cpufreq_is_none() {
        assert_eq!(cpufreq_ghz(Path::new("/nonexistent"), 0), None);
    }
}
