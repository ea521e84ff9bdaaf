//! The rings of recordings, by CPU.

use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;

use zonal_trace::ring::{Ring, words_for};

use crate::error::ReplayError;

/// CPUs that a process may be allowed: bits of Linux's `cpu_set_t`.
const CPUS: usize = 1024;

pub(super) type CpuRing = Ring<'static, AtomicU64>;

/// A ring for each CPU that was recorded on, made by the first recording that has it and kept.
pub(super) struct Rings {
    by_cpu: [OnceLock<CpuRing>; CPUS],
    /// The CPU whose ring is also that of CPUs without: the thread that waits for the workload may
    /// be on any.
    first: OnceLock<usize>,
}

impl Rings {
    pub(super) const fn new() -> Self {
        Self { by_cpu: [const { OnceLock::new() }; CPUS], first: OnceLock::new() }
    }

    /// The ring for what happens on a CPU; `None` before any is made.
    pub(super) fn of(&self, cpu: usize) -> Option<&CpuRing> {
        self.own(cpu).or_else(|| self.own(*self.first.get()?))
    }

    /// All there are, each with its CPU.
    pub(super) fn all(&self) -> impl Iterator<Item = (usize, &CpuRing)> {
        self.by_cpu.iter().enumerate().filter_map(|(cpu, ring)| Some((cpu, ring.get()?)))
    }

    /// Makes those of `cpus` that are not there yet, for `events` events each, in at most
    /// `available` bytes.
    ///
    /// # Errors
    ///
    /// [`ReplayError::RingsNeedMore`]; then none is made.
    pub(super) fn make(
        &self,
        cpus: &[usize],
        events: usize,
        available: u64,
    ) -> Result<(), ReplayError> {
        let missing = cpus.iter().copied().filter(|cpu| self.own(*cpu).is_none());
        let missing: Vec<usize> = missing.collect();
        let each = (words_for(events) as u64).saturating_mul(size_of::<AtomicU64>() as u64);
        let needed = each.saturating_mul(missing.len() as u64);
        let more = || ReplayError::RingsNeedMore { events, cpus: missing.len(), needed };
        if needed > available {
            return Err(more());
        }
        let words: Option<Vec<_>> = missing.iter().map(|_| zeros(words_for(events))).collect();
        for (cpu, words) in missing.iter().zip(words.ok_or_else(more)?) {
            if let Some(ring) = self.by_cpu.get(*cpu) {
                // It lives as long as the process.
                ring.get_or_init(|| Ring::new(words.leak()));
                self.first.get_or_init(|| *cpu);
            }
        }
        Ok(())
    }

    fn own(&self, cpu: usize) -> Option<&CpuRing> {
        self.by_cpu.get(cpu)?.get()
    }
}

/// `None`: there is no memory for them.
fn zeros(words: usize) -> Option<Vec<AtomicU64>> {
    let mut zeros = Vec::new();
    zeros.try_reserve_exact(words).ok()?;
    zeros.resize_with(words, AtomicU64::default);
    Some(zeros)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(rings: &Rings) -> Vec<(usize, u64)> {
        rings.all().map(|(cpu, ring)| (cpu, ring.capacity())).collect()
    }

    #[test]
    fn only_chosen_cpus_have_rings() {
        let rings = Rings::new();
        assert!(rings.of(3).is_none());
        rings.make(&[3, 223], 100, u64::MAX).expect("a few KiB");
        assert_eq!(made(&rings), [(3, 128), (223, 128)]);
        let at = |cpu| std::ptr::from_ref(rings.of(cpu).expect("there are some"));
        assert_ne!(at(3), at(223));
        assert_eq!([at(0), at(222), at(5000)], [at(3); 3], "of others, the first");
        // Those that are there stay as they are, and need nothing.
        let before = at(223);
        rings.make(&[3, 223], 1000, 0).expect("nothing");
        rings.make(&[0, 3, 223], 8, 1000).expect("one of 384 bytes");
        assert_eq!(made(&rings), [(0, 8), (3, 128), (223, 128)]);
        assert_eq!(at(223), before);
    }

    #[test]
    fn rings_that_do_not_fit_are_refused() {
        let rings = Rings::new();
        let refused = |cpus: &[usize], events, available| match rings
            .make(cpus, events, available)
            .expect_err("too many")
        {
            ReplayError::RingsNeedMore { events: asked, cpus, needed } => {
                assert_eq!(asked, events);
                (cpus, needed)
            }
            other => panic!("{other}"),
        };
        // 128 bytes beside the cells of 32.
        assert_eq!(refused(&[0, 7], 1 << 20, 64 << 20), (2, (64 << 20) + 256));
        // More than any address space.
        assert_eq!(refused(&[7], 1 << 58, u64::MAX), (1, (1 << 63) + 128));
        assert_eq!(made(&rings), []);
    }
}
