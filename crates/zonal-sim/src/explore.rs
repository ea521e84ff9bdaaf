//! Random schedules: the same virtual CPUs, but any of them may go on at any access.
//!
//! What runs is the allocator's own source; what decides is a seed. A run that goes wrong goes
//! wrong again with the same seed.
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
use crate::machine;
use crate::run::SimError;
use crate::schedule::Schedule;

pub use crate::coroutine::Body;

/// What a seed decides before the run: the swarm's options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// The seed of the schedule.
    pub seed: u64,
    /// At an access another CPU goes on with a probability of so many in 1024: 1 to 1024.
    pub switch_in_1024: u32,
}

impl Options {
    /// Options drawn from the seed: runs with few switches find other races than runs with many.
    #[must_use]
    pub fn from_seed(seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        Self { seed, switch_in_1024: 1 << random.u32(2..=9) }
    }
}

/// Runs each body on a virtual CPU of its own, in an order that the options decide.
///
/// A panic in a body is passed on; the others are unwound.
///
/// # Errors
/// [`SimError::Deadlock`] if all that are left wait for each other; [`SimError::Tasks`] without
/// bodies or with more than 8.
///
/// # Panics
/// If a body panics, or if this thread runs a machine already.
pub fn explore(options: Options, bodies: Vec<Body<'_>>) -> Result<(), SimError> {
    let machine = machine::builtin("desktop_8cpu_4g").expect("it is built in");
    let (asked, cpus) = (bodies.len() as u32, machine.topology.cpus());
    if asked == 0 || asked > cpus {
        return Err(SimError::Tasks { machine: machine.name, asked, cpus });
    }
    let schedule = Schedule::random(options.seed, options.switch_in_1024);
    let _installed = engine::install(Engine::new(&machine, asked, schedule));
    coroutine::run_all(bodies, |_| ())
}
