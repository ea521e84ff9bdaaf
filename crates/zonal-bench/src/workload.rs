//! The workloads: what each does, what it needs, and what its number means.
//!
//! ```
//! use zonal_bench::workload::Workload;
//!
//! assert_eq!(Workload::from_name("page-fault1"), Some(Workload::PageFault1));
//! assert_eq!(Workload::PageFault1.frames_per_rep(), 32768);
//! ```

use crate::options::Options;

pub mod by_cpu;
pub mod highalloc;
pub mod kbuild;
pub mod parallel_free;
pub mod thp_mix;
mod turns;

pub(crate) use turns::Turns;

/// Frames a `page-fault1` task allocates: 128 MiB, as will-it-scale maps.
pub const TASK_FRAMES: usize = 32_768;
/// Pairs in a repetition of `hot-pair`: long enough to hide the loop around it.
pub const HOT_PAIRS: usize = 1024;
/// Frames in a batch of `bulk`.
pub const BULK_BATCH: usize = 256;
/// Pairs in a repetition of `order9`.
pub const ORDER9_PAIRS: usize = 64;
/// Pairs in a repetition of `order3`.
pub const ORDER3_PAIRS: usize = 256;
/// The largest order that kernels ask for as a matter of course: stacks, network buffers.
pub const SMALL_ORDER: u8 = 3;
/// The order of a 2 MiB block.
pub const HUGE_ORDER: u8 = 9;
/// Steps in the plan of `mixed`: more than a branch predictor learns. It does learn 16 times fewer, which halves the time
/// of one thread and not of two that share an allocator (ADR 110).
pub const MIXED_STEPS: usize = 262_144;
/// Slots for live blocks in `mixed`.
pub const MIXED_SLOTS: usize = 1024;
/// Share of each order in `mixed`, in percent: mostly single frames, as in a kernel under load,
/// with stacks, slabs and rings in the middle and huge pages at the end.
pub const MIXED_ORDERS: [(u8, usize); 7] =
    [(0, 80), (1, 6), (2, 5), (3, 5), (4, 2), (6, 1), (HUGE_ORDER, 1)];
/// How full `fragment` makes the allocator, in percent.
pub const FRAGMENT_FILL: usize = 90;

/// What the threads do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Workload {
    /// Allocate one frame, free it.
    HotPair,
    /// Allocate [`TASK_FRAMES`] frames, free them in the order they came.
    PageFault1,
    /// As `page-fault1`, freed in a random order.
    RandomFree,
    /// Allocate [`BULK_BATCH`] frames with one call, free them with one call.
    Bulk,
    /// Allocate one order-3 block, free it.
    Order3,
    /// Allocate one order-9 block, free it.
    Order9,
    /// One thread allocates, another frees.
    ProducerConsumer,
    /// Blocks of several orders live and die at random, up to [`MIXED_SLOTS`] at once.
    Mixed,
    /// Fill to [`FRAGMENT_FILL`] %, free half at random, count the order-9 blocks to be had. Or
    /// by CPU: see [`by_cpu`].
    Fragment,
    /// Fill most of memory, free it on all threads at once: see [`parallel_free`].
    ParallelFree,
    /// Huge pages beside single frames: see [`thp_mix`].
    ThpMix,
    /// Huge pages from memory full of page cache: see [`highalloc`].
    StressHighalloc,
    /// The requests of a kernel build: see [`kbuild`].
    KbuildMix,
}

impl Workload {
    /// All of them, in the order `all` runs them.
    pub const ALL: [Self; 13] = [
        Self::HotPair,
        Self::PageFault1,
        Self::RandomFree,
        Self::Bulk,
        Self::Order3,
        Self::Order9,
        Self::ProducerConsumer,
        Self::Mixed,
        Self::Fragment,
        Self::ParallelFree,
        Self::ThpMix,
        Self::StressHighalloc,
        Self::KbuildMix,
    ];

    /// Name on the command line and in every output.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::HotPair => "hot-pair",
            Self::PageFault1 => "page-fault1",
            Self::RandomFree => "random-free",
            Self::Bulk => "bulk",
            Self::Order3 => "order3",
            Self::Order9 => "order9",
            Self::ProducerConsumer => "producer-consumer",
            Self::Mixed => "mixed",
            Self::Fragment => "fragment",
            Self::ParallelFree => "parallel-free",
            Self::ThpMix => "thp-mix",
            Self::StressHighalloc => "stress-highalloc",
            Self::KbuildMix => "kbuild-mix",
        }
    }

    /// One line for people.
    #[must_use]
    pub const fn about(self) -> &'static str {
        match self {
            Self::HotPair => "allocate one frame, free it, again and again",
            Self::PageFault1 => "allocate 32768 frames (128 MiB), free them in order",
            Self::RandomFree => "allocate 32768 frames (128 MiB), free them in random order",
            Self::Bulk => "allocate and free 256 frames at a time",
            Self::Order3 => "allocate one block of eight frames, free it",
            Self::Order9 => "allocate one 2 MiB block, free it",
            Self::ProducerConsumer => "one thread allocates, another frees",
            Self::Mixed => "blocks of orders 0 to 9 come and go at random",
            Self::Fragment => "fill to 90 %, free half, count 2 MiB blocks to be had",
            Self::ParallelFree => "fill 90 % of memory in turns, free it on all threads at once",
            Self::ThpMix => "break memory up, then 2 MiB faults beside single frames",
            Self::StressHighalloc => "2 MiB blocks from memory full of page cache",
            Self::KbuildMix => "what a kernel build asks for: orders 0 to 3, three migrate types",
        }
    }

    /// The workload called `name`.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|workload| workload.name() == name)
    }

    /// What `ns_per_frame` counts: a frame, or a block of whatever order.
    #[must_use]
    pub const fn unit(self) -> &'static str {
        match self {
            Self::Order3 | Self::Order9 | Self::Mixed | Self::KbuildMix | Self::StressHighalloc => {
                "block"
            }
            _ => "frame",
        }
    }

    /// Blocks a repetition allocates and frees on each thread, where that does not depend on the
    /// seed or the memory (0 where it does).
    #[must_use]
    pub const fn frames_per_rep(self) -> usize {
        match self {
            Self::HotPair => HOT_PAIRS,
            Self::PageFault1 | Self::RandomFree | Self::Bulk | Self::ProducerConsumer => {
                TASK_FRAMES
            }
            Self::Order3 => ORDER3_PAIRS,
            Self::Order9 => ORDER9_PAIRS,
            _ => 0,
        }
    }

    /// What the time of a row is the time of, for one [`unit`](Self::unit).
    #[must_use]
    pub const fn timed(self, options: Options) -> &'static str {
        match self {
            Self::ParallelFree => "free",
            Self::Fragment if options.by_cpu => "free",
            Self::StressHighalloc => "ask for",
            _ => "allocate and free",
        }
    }

    /// Whether a sample is one repetition, however long that takes.
    #[must_use]
    pub const fn is_whole(self) -> bool {
        matches!(self, Self::Fragment | Self::ParallelFree | Self::ThpMix | Self::StressHighalloc)
    }

    /// Most samples that are taken, whatever was asked for: a sample of `stress-highalloc` takes
    /// its delay for every block of the memory.
    #[must_use]
    pub fn most_samples(self, options: Options) -> usize {
        match options.delay {
            Some(delay) if self == Self::StressHighalloc => {
                if delay >= highalloc::LONG_DELAY {
                    1
                } else {
                    5
                }
            }
            _ => usize::MAX,
        }
    }

    /// Largest order it asks for.
    #[must_use]
    pub const fn max_order(self) -> u8 {
        match self {
            Self::Order9 | Self::Mixed | Self::Fragment | Self::ThpMix | Self::StressHighalloc => {
                HUGE_ORDER
            }
            Self::KbuildMix => kbuild::MAX_ORDER,
            Self::Order3 => SMALL_ORDER,
            _ => 0,
        }
    }

    /// Whether it needs a fixed set of frames, most of which are taken.
    #[must_use]
    pub const fn fills(self) -> bool {
        matches!(self, Self::Fragment | Self::ThpMix | Self::StressHighalloc)
    }

    /// Whether it can run on `threads` threads.
    #[must_use]
    pub const fn runs_on(self, threads: usize, options: Options) -> bool {
        match self {
            Self::ProducerConsumer | Self::ThpMix => threads >= 2 && threads.is_multiple_of(2),
            Self::Fragment if options.by_cpu => threads == by_cpu::THREADS,
            Self::Fragment => threads == 1,
            Self::StressHighalloc => threads >= 2,
            _ => threads >= 1,
        }
    }

    /// What [`runs_on`](Self::runs_on) asks for, in words.
    #[must_use]
    pub const fn threads_wanted(self, options: Options) -> &'static str {
        match self {
            Self::ProducerConsumer | Self::ThpMix => "an even number of threads",
            Self::Fragment if options.by_cpu => "two threads (--by-cpu)",
            Self::Fragment => "one thread",
            Self::StressHighalloc => "at least two threads",
            _ => "at least one thread",
        }
    }

    /// Whether `--touch` applies.
    #[must_use]
    pub const fn touches(self) -> bool {
        matches!(self, Self::PageFault1 | Self::RandomFree)
    }

    /// Most bytes one thread has allocated at once; where the workload goes by the memory there
    /// is, the least that makes sense.
    #[must_use]
    pub const fn bytes_per_thread(self) -> usize {
        match self {
            Self::PageFault1 | Self::RandomFree | Self::ThpMix => TASK_FRAMES << 12,
            Self::StressHighalloc => (highalloc::JOBS * highalloc::MAPPED.1) << 12,
            // Four processes of up to 3000 pages, the page cache, and slabs of up to 8 frames.
            Self::KbuildMix => 64 << 20,
            Self::Bulk => BULK_BATCH << 12,
            // Half the slots are taken on average, with 9 frames on average.
            Self::Mixed => (MIXED_SLOTS * 9) << 12,
            Self::HotPair | Self::Order3 | Self::ProducerConsumer => 8 << 20,
            Self::Order9 | Self::Fragment | Self::ParallelFree => 16 << 20,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_found() {
        for workload in Workload::ALL {
            assert_eq!(Workload::from_name(workload.name()), Some(workload));
        }
        assert_eq!(Workload::from_name("page-fault2"), None);
    }

    #[test]
    fn the_orders_of_mixed_add_up() {
        assert_eq!(MIXED_ORDERS.iter().map(|(_, share)| share).sum::<usize>(), 100);
    }

    #[test]
    fn pairs_need_an_even_number_of_threads() {
        let pairs = Workload::ProducerConsumer;
        let plain = Options::default();
        let by_cpu = Options { by_cpu: true, ..plain };
        assert!(!pairs.runs_on(1, plain) && pairs.runs_on(2, plain) && !pairs.runs_on(3, plain));
        assert!(!Workload::Fragment.runs_on(2, plain) && Workload::HotPair.runs_on(3, plain));
        assert!(Workload::Fragment.runs_on(2, by_cpu) && !Workload::Fragment.runs_on(1, by_cpu));
        assert!(!Workload::StressHighalloc.runs_on(1, plain));
    }
}
