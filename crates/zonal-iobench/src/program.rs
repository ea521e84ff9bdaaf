//! tiobench: what its threads do, block after block. The simulated machine and the real files are both
//! driven by this.
//!
//! Source: tiobench as mmtests runs it, as far as the tables and its usual configuration tell: each
//! thread has a file of its own, all together have twice the memory; in turn all threads write their
//! file, write anywhere in it, read it, read anywhere in it, 4 KiB at a time. What writes ends with an
//! fsync, which is timed, too.
//!
//! ```
//! use zonal_iobench::program::{Phase, Tiobench};
//!
//! let tiobench = Tiobench { threads: 2, pages: 100, random: 7, seed: 1 };
//! assert!(tiobench.blocks(Phase::SeqRead, 1).eq(0..50));
//! assert_eq!(tiobench.blocks(Phase::RandWrite, 0).count(), 4);
//! assert!(tiobench.blocks(Phase::RandRead, 0).all(|page| page < 50));
//! ```

/// What is timed, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// A file is written from its beginning.
    SeqWrite,
    /// Blocks of it are written anywhere.
    RandWrite,
    /// It is read from its beginning.
    SeqRead,
    /// Blocks of it are read anywhere.
    RandRead,
}

impl Phase {
    /// All of them, as they follow each other.
    pub const ALL: [Self; 4] = [Self::SeqWrite, Self::RandWrite, Self::SeqRead, Self::RandRead];

    /// Its name in the tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::SeqWrite => "SeqWrite",
            Self::RandWrite => "RandWrite",
            Self::SeqRead => "SeqRead",
            Self::RandRead => "RandRead",
        }
    }

    /// Whether it writes, and ends with an fsync.
    #[must_use]
    pub const fn writes(self) -> bool {
        matches!(self, Self::SeqWrite | Self::RandWrite)
    }

    /// Whether blocks follow each other.
    #[must_use]
    pub const fn is_sequential(self) -> bool {
        matches!(self, Self::SeqWrite | Self::SeqRead)
    }
}

/// A run of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tiobench {
    /// Threads, each with a file.
    pub threads: u32,
    /// Pages of 4 KiB that all files have together.
    pub pages: u64,
    /// Blocks anywhere, of all threads together: 4000 by default.
    pub random: u64,
    /// Seed of these.
    pub seed: u64,
}

/// Blocks anywhere that all threads together write and read, as tiobench has them by default.
pub const RANDOM: u64 = 4000;

impl Tiobench {
    /// Pages of a thread's file, at least one.
    #[must_use]
    pub fn file_pages(&self) -> u64 {
        (self.pages / u64::from(self.threads.max(1))).max(1)
    }

    /// The pages of its file that a thread writes or reads, in order.
    #[must_use]
    pub fn blocks(&self, phase: Phase, thread: u32) -> Blocks {
        let pages = self.file_pages();
        if phase.is_sequential() {
            return Blocks::in_order(pages);
        }
        let seed = self.seed.wrapping_mul(1000).wrapping_add(u64::from(thread));
        let seed = seed.wrapping_mul(4).wrapping_add(phase as u64);
        let dice = fastrand::Rng::with_seed(seed);
        let end = self.random.div_ceil(u64::from(self.threads.max(1)));
        Blocks { next: 0, end, anywhere: Some((dice, pages)) }
    }
}

/// The blocks of a thread in a phase.
#[derive(Clone, Debug)]
pub struct Blocks {
    next: u64,
    end: u64,
    anywhere: Option<(fastrand::Rng, u64)>,
}

impl Blocks {
    /// The first pages, this many, one after the other.
    #[must_use]
    pub const fn in_order(pages: u64) -> Self {
        Self { next: 0, end: pages, anywhere: None }
    }
}

impl Iterator for Blocks {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        if self.next == self.end {
            return None;
        }
        self.next += 1;
        Some(match &mut self.anywhere {
            None => self.next - 1,
            Some((dice, pages)) => dice.u64(..*pages),
        })
    }
}
