//! Simulations for the commands: many at once, their results in the order they were asked for.
//!
//! The simulator is one thread a run, and a run follows from its machine, its spec and its seed;
//! so runs are spread over threads, and neither how many those are nor which run ends first
//! shows in any result.
//!
//! ```
//! use zonal_simulate::runs::{Pool, Runner, Simulator};
//!
//! assert!(Simulator.names().contains(&"skylake_2s_112cpu".to_owned()));
//! assert!(Pool::new(1, true).carry_out(&Simulator, &[])?.is_empty());
//! # Ok::<(), zonal_simulate::error::SimulateError>(())
//! ```

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use rayon::prelude::*;
use zonal_sim::machine::{self, Machine};
use zonal_sim::outcome::Outcome;
use zonal_sim::run::{self, SimError, Spec};

use crate::error::SimulateError;
use zonal_cli::bar::Bar;
use zonal_cli::error::LabError;
use zonal_cli::interrupt;

/// What can run a spec on a machine: the simulator, or something in its place in a test.
pub trait Runner: Sync {
    /// The names of the machines it has built in.
    fn names(&self) -> Vec<String>;

    /// A machine it has built in.
    fn machine(&self, name: &str) -> Option<Machine>;

    /// Whether `spec` can be run on `machine`, without running it.
    ///
    /// # Errors
    ///
    /// [`SimError`], which says why it cannot.
    fn check(&self, machine: &Machine, spec: &Spec) -> Result<(), SimError> {
        run::check(machine, spec)
    }

    /// Runs `spec` on `machine`.
    ///
    /// # Errors
    ///
    /// [`SimError`], which says why there is no outcome.
    fn run(&self, machine: &Machine, spec: &Spec) -> Result<Outcome, SimError>;
}

/// The simulator, [`zonal_sim`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Simulator;

impl Runner for Simulator {
    fn names(&self) -> Vec<String> {
        machine::builtins().map(|(name, _)| name.to_owned()).collect()
    }

    fn machine(&self, name: &str) -> Option<Machine> {
        machine::builtin(name)
    }

    fn run(&self, machine: &Machine, spec: &Spec) -> Result<Outcome, SimError> {
        run::run(machine, spec)
    }
}

/// The machine called `text`: one that is built in, or the file of that name.
///
/// # Errors
///
/// [`SimulateError::UnknownMachine`] if it is neither, [`SimulateError::MachineFile`] if it is a file that
/// will not do.
pub fn machine_called(runner: &impl Runner, text: &str) -> Result<Machine, SimulateError> {
    if let Some(machine) = runner.machine(text) {
        return Ok(machine);
    }
    let path = Path::new(text);
    let is_path = text.contains(std::path::MAIN_SEPARATOR) || path.extension().is_some();
    if is_path || path.is_file() {
        return Ok(Machine::load(path)?);
    }
    Err(SimulateError::UnknownMachine { name: text.into(), known: runner.names().join(", ") })
}

/// One run to do.
#[derive(Clone, Debug)]
pub struct Job {
    /// Where.
    pub machine: Arc<Machine>,
    /// What.
    pub spec: Spec,
}

/// Why a run has no outcome.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum RunError {
    /// The simulator said so.
    #[error(transparent)]
    Sim(#[from] SimError),
    /// Ctrl-C came before it began.
    #[error("not run: interrupted")]
    Interrupted,
    /// The simulator gave up: a fault in it, which must not cost the results of the other runs.
    #[error("the simulator panicked: {0}")]
    Panicked(String),
}

/// How many threads run simulations, and the bar that says how far they are.
#[derive(Clone, Copy, Debug)]
pub struct Pool {
    threads: usize,
    hidden: bool,
}

impl Pool {
    /// `threads` of them at most, one for each CPU if 0; the bar may be `hidden`.
    #[must_use]
    pub const fn new(threads: usize, hidden: bool) -> Self {
        Self { threads, hidden }
    }

    /// Runs all of `jobs`, on no more threads than they are; results are in their order.
    ///
    /// # Errors
    ///
    /// [`LabError::Machine`], before anything is run, if the threads cannot be started.
    pub fn carry_out(
        &self,
        runner: &impl Runner,
        jobs: &[Job],
    ) -> Result<Vec<Result<Outcome, RunError>>, LabError> {
        // Those that there is nothing for would only take long to start.
        let threads = self.threads.min(jobs.len());
        let threads = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
        let threads = threads.map_err(|error| LabError::Machine {
            what: "start threads to simulate on",
            source: io::Error::other(error),
        })?;
        // A run takes about as long as it has tasks.
        let all = jobs.iter().map(|job| u64::from(job.spec.tasks)).sum();
        let bar = Bar::new(all, self.hidden);
        let results = threads.install(|| {
            let each = jobs.par_iter().with_max_len(1).map(|job| {
                if interrupt::is_requested() {
                    return Err(RunError::Interrupted);
                }
                let result = guarded(runner, job);
                let spec = &job.spec;
                let what = format!("{} {} {}", job.machine.name, spec.workload, spec.tasks);
                bar.done(u64::from(spec.tasks), what);
                result
            });
            each.collect()
        });
        drop(bar);
        Ok(results)
    }
}

fn guarded(runner: &impl Runner, job: &Job) -> Result<Outcome, RunError> {
    // Nothing of a run that panicked is looked at again.
    let run = AssertUnwindSafe(|| runner.run(&job.machine, &job.spec));
    match catch_unwind(run) {
        Ok(result) => Ok(result?),
        Err(panic) => {
            let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
            let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
            Err(RunError::Panicked(text.unwrap_or_else(|| "without a message".into())))
        }
    }
}
