//! The benchmarks on a machine of the tables: threads, page cache, reclaim, flusher, scheduler and disk on
//! one virtual clock.
//!
//! A thread that reads asks for a window of 128 KiB when it comes to the first page of the one before,
//! and waits for what is not there; a thread that writes dirties pages as fast as it can copy, until
//! it is slowed down to what the disk takes. Files grow side by side, in pieces of 4 MiB.
//!
//! Left out: the file system's own blocks, but for a record in its log at each fsync; the first small
//! windows of readahead; other memory and programs; contention for CPUs; what else CFQ of 3.0 does
//! differently from that of 3.16.
//!
//! ```
//! use zonal_iobench::kernel::Kernel;
//! use zonal_iobench::machine::{MACHINES, Machine};
//! use zonal_iobench::program::{Phase, Tiobench};
//! use zonal_iobench::simulated::{Case, simulate};
//!
//! // A hundredth of the machine.
//! let machine = Machine { frames: MACHINES[0].frames / 100, ..MACHINES[0] };
//! let kernel = Kernel::named("3.0").expect("it is in the tables");
//! let tiobench = Tiobench { threads: 2, pages: 2 * machine.frames, random: 20, seed: 1 };
//! let outcome = simulate(&Case { machine, kernel, tiobench })?;
//! assert!(outcome.mib_s(Phase::SeqRead) > 10.0);
//! # Ok::<(), zonal_iobench::error::IobenchError>(())
//! ```

mod bonnie;
mod dbench;
mod engine;
mod flusher;
mod queue;
mod reader;
mod remover;
mod writer;

pub use bonnie::{BonnieCase, PassOutcome, bonnie};
pub use dbench::{DbenchCase, dbench};
pub use remover::RemovalCosts;

use zonal_cfq::units::Span;

use crate::error::IobenchError;
use crate::iostat::Iostat;
use crate::kernel::Kernel;
use crate::machine::Machine;
use crate::memory::ZoneName;
use crate::program::{Phase, Tiobench};

/// What is simulated.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// On which machine.
    pub machine: Machine,
    /// Under which kernel.
    pub kernel: Kernel,
    /// What runs.
    pub tiobench: Tiobench,
}

/// What a phase came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PhaseOutcome {
    /// Blocks of all threads.
    pub blocks: u64,
    /// From the first thread's beginning to the last one's end.
    pub elapsed: Span,
    /// Blocks that were cached.
    pub hits: u64,
}

impl PhaseOutcome {
    /// Blocks a second.
    #[must_use]
    pub fn per_second(&self) -> f64 {
        self.blocks as f64 / (self.elapsed.0.max(1) as f64 / 1e9)
    }
}

/// What a run came to.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// By [`Phase`].
    pub phases: [PhaseOutcome; 4],
    /// Of the whole run.
    pub iostat: Iostat,
    /// Pages that requests got, by [`ZoneName`].
    pub allocated: [u64; 2],
    /// Pages that reclaim looked at.
    pub scanned: [u64; 2],
    /// Time from the beginning of the first phase to the end of the last.
    pub elapsed: Span,
    /// Times that reclaim in the background was woken, and that it went on after a nap.
    pub kswapd: (u64, u64),
    /// Pages that tasks had to look at by themselves to get room.
    pub direct: u64,
}

impl Outcome {
    /// MiB/s of a phase, as tiobench has it.
    #[must_use]
    pub fn mib_s(&self, phase: Phase) -> f64 {
        self.phases[phase as usize].per_second() / 256.0
    }

    /// What part of all pages that requests got is DMA32's, in percent.
    #[must_use]
    pub fn dma32_share(&self) -> f64 {
        share(self.allocated)
    }

    /// What part of all pages that reclaim looked at is.
    #[must_use]
    pub fn dma32_scanned_share(&self) -> f64 {
        share(self.scanned)
    }

    /// Takes the counts and intervals of another run in; its phases not.
    pub fn append(&mut self, other: &Self) {
        self.iostat.append(&other.iostat);
        for zone in [ZoneName::Dma32, ZoneName::Normal] {
            self.allocated[zone as usize] += other.allocated[zone as usize];
            self.scanned[zone as usize] += other.scanned[zone as usize];
        }
        self.elapsed += other.elapsed;
        self.kswapd.0 += other.kswapd.0;
        self.kswapd.1 += other.kswapd.1;
        self.direct += other.direct;
    }
}

fn share([dma32, normal]: [u64; 2]) -> f64 {
    dma32 as f64 * 100.0 / (dma32 + normal).max(1) as f64
}

/// Runs all phases from a machine whose page cache is empty.
///
/// # Errors
///
/// [`IobenchError`], if files do not fit on the disk, or in the model's table of pages.
pub fn simulate(case: &Case) -> Result<Outcome, IobenchError> {
    let Case { machine, kernel, tiobench } = case;
    let threads = tiobench.threads.max(1);
    engine::Engine::new(machine, kernel, threads, tiobench.file_pages())?.run(tiobench)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_two_runs_are_those_of_both() {
        let run = Outcome { kswapd: (3, 2), direct: 5, allocated: [7, 9], ..Outcome::default() };
        let mut both = run.clone();
        both.append(&run);
        assert_eq!((both.kswapd, both.direct, both.allocated), ((6, 4), 10, [14, 18]));
    }
}
