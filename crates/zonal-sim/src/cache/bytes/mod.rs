//! Bytes on virtual CPUs: random steps of several at once beside a model of each file.
//!
//! The simulator's frames and files have no bytes; these have. Virtual CPUs read, write, cut, zero, pin and sync two files
//! of one cache that is smaller than they are, one more writes behind, and the disk fails on demand. What each read gives,
//! what lasts after each sync and what is there at the end is compared to the [`model`]. A run follows from its
//! policy, its schedule and its seed, which are printed where one fails. `ZONAL_TEST_EFFORT` makes more of them.

mod disk;
mod frames;
mod model;
mod run;

use crate::cache::Lists;
use crate::engine::{self, Engine};
use crate::explore::{Options, explore};
use crate::machine::{self, Machine};
use crate::schedule::Schedule;
use crate::{coroutine, world};
use run::{Case, Had, run};
use zonal::plan::Plan;
use zonal::preset::Linux416;
use zonal_cache::evict::Evict;
use zonal_cache::{MultiGen, S3Fifo, Sieve, TwoLists};

/// Virtual CPUs that use the files.
const CPUS: usize = 3;
/// Runs of each kind, and the most until what is wrong on purpose is found.
const RUNS: u64 = 12;
const MOST_RUNS: u64 = 60;

/// What is wrong on purpose, to see that it is found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Lie {
    No,
    /// The first two pages of a write are in each other's place.
    Swapped,
    /// A write of one page does nothing.
    Lost,
    /// What was written is there when the next page is.
    Late,
    /// A write that fails says that it went well.
    Refused,
    /// A read has a wrong byte.
    Read,
    /// A short read says that it was whole.
    Whole,
    /// What was cut off comes back.
    Cut,
    /// A flush does nothing.
    Flush,
    /// A page that is read has the bytes of another frame.
    Frames,
    /// A frame does not go back.
    Kept,
}

impl Lie {
    /// Whether the disk has to have faults for it.
    const fn is_of_faults(self) -> bool {
        matches!(self, Self::Refused | Self::Whole)
    }

    /// What is said of it, by one of the comparisons that are there for it.
    const fn shows_as(self) -> &'static [&'static str] {
        match self {
            Self::Kept => &["frames are not back"],
            Self::Flush => &["do not last", "last, not"],
            _ => &["wrong:", "do not last", "last, not"],
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Order {
    /// By clocks, in the time that each access takes.
    Clocks,
    /// Any virtual CPU goes on at any access.
    Random,
}

/// The machine of all runs.
struct Lab {
    machine: Machine,
    plan: Plan,
}

impl Lab {
    fn new() -> Self {
        let machine = machine::builtin("desktop_8cpu_4g").expect("it is built in");
        let plan = world::plan::<Linux416>(&machine, 1024, |config| config);
        Self { plan: plan.expect("it can be planned"), machine }
    }

    fn run<E: Evict>(&self, order: Order, case: Case) -> Result<Had, String> {
        let Self { machine, plan } = self;
        let said = match order {
            Order::Clocks => {
                let cpus = CPUS as u32 + 1;
                let _installed = engine::install(Engine::new(machine, cpus, Schedule::by_clock()));
                world::with_allocator::<Linux416, _>(machine, plan, |allocator, _| {
                    run::<E>(allocator, machine, case, |bodies| {
                        let done = coroutine::run_all(bodies, |_| ());
                        done.map_err(|error| error.to_string())
                    })
                })
            }
            Order::Random => {
                world::with_allocator_alone::<Linux416, _>(machine, plan, |allocator| {
                    run::<E>(allocator, machine, case, |bodies| {
                        let done = explore(Options::from_seed(case.seed), bodies);
                        done.map(drop).map_err(|error| error.to_string())
                    })
                })
            }
        };
        said.expect("there is memory")
    }
}

fn effort() -> u64 {
    std::env::var("ZONAL_TEST_EFFORT").ok().and_then(|it| it.parse().ok()).unwrap_or(1)
}

/// Runs of a policy in an order, every other one with faults.
fn check<E: Evict>(order: Order) {
    let (lab, mut all) = (Lab::new(), Had::default());
    for seed in 0..RUNS * effort() {
        let case = Case { seed, faulty: seed % 2 == 1, lie: Lie::No };
        let had = lab.run::<E>(order, case);
        all = all
            .with(had.unwrap_or_else(|said| panic!("{} by {order:?}, {case:?}: {said}", E::NAME)));
    }
    // Something of all that there is to be met.
    let Had { evicted, written, copied, choices, blocks, counts, .. } = all;
    for count in [evicted, written, copied, choices, counts.beside] {
        assert!(count > 0, "{all:?}");
    }
    for count in [counts.reads, counts.short, counts.writes, counts.lens, counts.flushes] {
        assert!(count > 0, "{all:?}");
    }
    assert!(blocks > 0 || !E::BLOCKS, "{all:?}");
}

macro_rules! runs {
    ($($name:ident: $policy:ident by $order:ident;)*) => {$(
        #[test]
        fn $name() {
            check::<$policy>(Order::$order);
        }
    )*};
}

runs! {
    two_lists_by_clocks: TwoLists by Clocks;
    lists_that_cost_by_clocks: Lists by Clocks;
    s3_fifo_by_clocks: S3Fifo by Clocks;
    sieve_by_clocks: Sieve by Clocks;
    multi_gen_by_clocks: MultiGen by Clocks;
    two_lists_at_random: TwoLists by Random;
    lists_that_cost_at_random: Lists by Random;
    s3_fifo_at_random: S3Fifo by Random;
    sieve_at_random: Sieve by Random;
    multi_gen_at_random: MultiGen by Random;
}

#[test]
fn a_seed_is_the_same_run_each_time() {
    let lab = Lab::new();
    for order in [Order::Clocks, Order::Random] {
        let run = |seed| lab.run::<Sieve>(order, Case { seed, faulty: true, lie: Lie::No });
        let first = run(1);
        assert_eq!(first, run(1), "to the cycle");
        assert_ne!(first, run(2));
    }
}

/// Runs until one finds what is wrong on purpose.
fn finds(lie: Lie) {
    let lab = Lab::new();
    for order in [Order::Clocks, Order::Random] {
        let run = |seed| lab.run::<Sieve>(order, Case { seed, faulty: lie.is_of_faults(), lie });
        let said = (0..MOST_RUNS).find_map(|seed| run(seed).err());
        let said = said.unwrap_or_else(|| panic!("{lie:?} by {order:?} was not found"));
        assert!(lie.shows_as().iter().any(|text| said.contains(text)), "{lie:?}: {said}");
    }
}

macro_rules! canaries {
    ($($name:ident: $lie:ident;)*) => {$(
        #[test]
        fn $name() {
            finds(Lie::$lie);
        }
    )*};
}

canaries! {
    canary_two_pages_in_each_others_place: Swapped;
    canary_a_write_that_is_lost: Lost;
    canary_a_write_that_comes_late: Late;
    canary_a_write_that_fails_in_secret: Refused;
    canary_a_wrong_byte: Read;
    canary_a_short_read_that_says_it_was_whole: Whole;
    canary_bytes_that_come_back: Cut;
    canary_a_flush_that_does_nothing: Flush;
    canary_bytes_of_another_frame: Frames;
    canary_a_frame_that_is_kept: Kept;
}
