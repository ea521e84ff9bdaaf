//! Random schedules: the same virtual CPUs, but any of them may go on at any access.
//!
//! What runs is the allocator's own source; what decides is a seed. A run that goes wrong goes
//! wrong again with the same seed. Accesses are sequentially consistent: a missing acquire or
//! release is not found here.
//!
//! ```
//! use core::sync::atomic::Ordering::Relaxed;
//! use zonal::platform::{AtomicWord, Platform};
//! use zonal_sim::explore::{Options, explore};
//! use zonal_sim::platform::Sim;
//!
//! // Two CPUs that add one, with a gap between load and store: some schedule loses one of them.
//! let lost = (0..100).any(|seed| {
//!     let word = <Sim as Platform>::Word::new(0);
//!     let add = || word.store(word.load(Relaxed) + 1, Relaxed);
//!     explore(Options::from_seed(seed), vec![Box::new(add), Box::new(add)]).unwrap();
//!     word.load(Relaxed) == 1
//! });
//! assert!(lost);
//! ```

use crate::coroutine;
use crate::engine::{self, Engine};
use crate::machine::{self, Machine};
use crate::schedule::{Random, Schedule};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::LazyLock;

pub use crate::coroutine::Body;

/// Costs play no part here, so any machine does.
static MACHINE: LazyLock<Machine> =
    LazyLock::new(|| machine::builtin("desktop_8cpu_4g").expect("it is built in"));

/// How many times as many accesses as a run what is done [`alone`] may make.
const ALONE: u64 = 16;

/// The most virtual CPUs of an exploration.
pub const MAX_CPUS: u32 = 8;

/// What a seed decides before the run: the swarm's options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// The seed of the schedule.
    pub seed: u64,
    /// At an access another CPU goes on with this probability in 1024: 1 to 1024.
    pub switch_in_1024: u32,
    /// A CPU that rarely goes on: the others overtake it many times, wherever it is. Of fewer bodies
    /// than that it is the one of the rest: of 3, CPU 1 for 7.
    pub slow: Option<u32>,
    /// After this many accesses [`stopped`] says so; after as many again the run is given up.
    pub accesses: u64,
}

impl Options {
    /// Accesses that a run of [`from_seed`](Self::from_seed) has.
    pub const ACCESSES: u64 = 10_000_000;

    /// Options drawn from the seed: runs with few switches find other races than runs with
    /// many, and runs in which one CPU hardly gets on others again.
    #[must_use]
    pub fn from_seed(seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let switch_in_1024 = 1 << random.u32(2..=9);
        let slow = random.bool().then(|| random.u32(..MAX_CPUS));
        Self { seed, switch_in_1024, slow, accesses: Self::ACCESSES }
    }
}

/// What a run did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Explored {
    /// A hash of every choice: who went on, and after how many accesses.
    pub trace: u64,
}

/// Why a run did not come to its end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExploreError {
    /// No bodies, or too many.
    #[error("{asked} virtual CPUs asked for; an exploration has 1 to {MAX_CPUS}")]
    Cpus {
        /// How many bodies there were.
        asked: usize,
    },
    /// All that have not returned wait for each other.
    #[error("deadlock: the virtual CPUs {waiting:?} wait for each other")]
    Deadlock {
        /// Who they are.
        waiting: Vec<u32>,
    },
    /// A CPU waits in a loop for what does not come, or goes round in circles.
    #[error("no end: the virtual CPUs {running:?} still run after {accesses} accesses")]
    Endless {
        /// Who has not returned.
        running: Vec<u32>,
        /// Accesses made.
        accesses: u64,
    },
    /// A body panicked; the others were asked to stop.
    #[error("panic: {message}")]
    Panicked {
        /// What it said.
        message: String,
    },
}

/// Runs each body on a virtual CPU of its own, in an order that the options decide.
///
/// # Errors
/// [`ExploreError`]. Bodies that cannot go on are unwound: what they drop then may take locks,
/// but not wait for another virtual CPU.
///
/// # Panics
/// If this thread runs a machine already.
pub fn explore(options: Options, bodies: Vec<Body<'_>>) -> Result<Explored, ExploreError> {
    let asked = bodies.len();
    if asked == 0 || asked > MAX_CPUS as usize {
        return Err(ExploreError::Cpus { asked });
    }
    let Options { seed, switch_in_1024, slow, accesses } = options;
    let slow = slow.map(|slow| slow % asked as u32);
    let random = Random::new(seed, switch_in_1024, slow, accesses.max(1));
    let mut engine = Engine::new(&MACHINE, asked as u32, Schedule::Random(random));
    // Locks remember the class of their first machine: here it is the same in all.
    engine.class("other");
    let _installed = engine::install(engine);
    let step = |_| {
        engine::with(|engine| {
            let late = matches!(&engine.schedule, Schedule::Random(random) if random.is_late());
            engine.stopped |= late;
        });
    };
    match catch_unwind(AssertUnwindSafe(|| coroutine::run_all(bodies, step))) {
        Ok(Ok(())) => Ok(Explored { trace: random_of(|random| random.trace()).unwrap_or(0) }),
        Ok(Err(_)) => Err(stuck(accesses)),
        Err(payload) => Err(ExploreError::Panicked { message: message(&*payload) }),
    }
}

/// The virtual CPU that the caller runs on; `None` outside of a run.
#[must_use]
pub fn current() -> Option<u32> {
    engine::with_cpu(|_, cpu| cpu as u32)
}

/// Whether a body should return as soon as it can: another has panicked, or the run was long
/// enough.
#[must_use]
pub fn stopped() -> bool {
    engine::with(|engine| engine.stopped) == Some(true)
}

/// The schedule draws who goes on, maybe the caller. No effect outside of a run.
pub fn yield_now() {
    coroutine::pause();
}

/// Runs `f` while no other CPU goes on, whatever it accesses. For checks when no other virtual CPU
/// is inside of what is checked: `f` must not wait for one.
///
/// # Panics
/// If `f` makes 16 times as many accesses as the run may; they are not counted as the run's.
pub fn alone<R>(f: impl FnOnce() -> R) -> R {
    /// Others go on again, even after a panic.
    struct Back(u64);
    impl Drop for Back {
        fn drop(&mut self) {
            engine::set_quiet(self.0);
        }
    }
    let accesses = random_of(|random| random.budget()).unwrap_or(0).saturating_mul(ALONE);
    let _back = Back(engine::set_quiet(accesses));
    f()
}

fn random_of<R>(f: impl FnOnce(&mut Random) -> R) -> Option<R> {
    engine::with(|engine| match &mut engine.schedule {
        Schedule::Random(random) => Some(f(random)),
        Schedule::Clock { .. } => None,
    })
    .flatten()
}

fn stuck(accesses: u64) -> ExploreError {
    let cpus = engine::with(|engine| {
        let left = engine.cpus.iter().enumerate().filter(|(_, cpu)| !cpu.done);
        left.map(|(cpu, _)| cpu as u32).collect::<Vec<_>>()
    });
    let left = cpus.unwrap_or_default();
    if random_of(|random| random.is_over()) == Some(true) {
        return ExploreError::Endless { running: left, accesses: accesses.saturating_mul(2) };
    }
    ExploreError::Deadlock { waiting: left }
}

fn message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("without a text").to_owned()
}
