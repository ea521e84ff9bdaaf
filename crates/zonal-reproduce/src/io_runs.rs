//! The tables that were measured through a page cache and a disk: `tiobench`, `disk_latency`,
//! `fair_zone`, and bonnie of `batched_irq`. Their rows are read off runs on simulated machines with the page
//! cache in its real size; each distinct run is done once.
//!
//! ```
//! use zonal_reproduce::facts::{self, Table};
//! use zonal_reproduce::io_runs::needs;
//!
//! let facts = facts::all();
//! let of = |table| facts.iter().find(|fact| fact.table == table).expect("it has rows");
//! assert_eq!(needs(of(Table::Tiobench), false).len(), 1);
//! assert_eq!(needs(of(Table::DiskLatency), false).len(), 5, "over all numbers of threads");
//! assert!(needs(of(Table::ZoneLock), false).is_empty());
//! ```

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, Builder};

use zonal_cli::bar::Bar;
use zonal_cli::interrupt;
use zonal_iobench::freeing::bonnie_rates;
use zonal_iobench::iostat::Metric;
use zonal_iobench::kernel::{BASE, BASE_2017, Kernel};
use zonal_iobench::machine::Machine;
use zonal_iobench::many_files::{BONNIE_FILES, Bonnie, Pass};
use zonal_iobench::memory::ZoneName;
use zonal_iobench::program::{Phase, RANDOM, Tiobench};
use zonal_iobench::simulated::{self, Case, Outcome};

use super::facts::{Fact, Table, Unit};
use super::plan::Choice;

/// What can run tiobench and bonnie on a machine: the simulator, or something in its place in a test.
pub trait IoRunner: Sync {
    /// Runs tiobench.
    ///
    /// # Errors
    ///
    /// Why there is no outcome.
    fn run(&self, case: &Case) -> Result<Outcome, String>;

    /// Runs bonnie: files a second of each pass.
    ///
    /// # Errors
    ///
    /// Why there is no outcome.
    fn bonnie(
        &self,
        machine: &Machine,
        kernel: &Kernel,
        bonnie: &Bonnie,
    ) -> Result<Vec<(Pass, f64)>, String>;
}

/// The simulator, [`zonal_iobench`].
#[derive(Clone, Copy, Debug, Default)]
pub struct IoSimulator;

impl IoRunner for IoSimulator {
    fn run(&self, case: &Case) -> Result<Outcome, String> {
        simulated::simulate(case).map_err(|error| error.to_string())
    }

    fn bonnie(
        &self,
        machine: &Machine,
        kernel: &Kernel,
        bonnie: &Bonnie,
    ) -> Result<Vec<(Pass, f64)>, String> {
        bonnie_rates(machine, kernel, bonnie).map_err(|error| error.to_string())
    }
}

/// What runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Program {
    /// tiobench on files of twice the memory.
    Tiobench,
    /// The same on files of 80 % of memory.
    Fits,
    /// bonnie, with one thread.
    Bonnie,
}

impl Program {
    const fn name(self) -> &'static str {
        match self {
            Self::Tiobench | Self::Fits => "tiobench",
            Self::Bonnie => "bonnie",
        }
    }
}

/// A run.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct IoKey {
    /// The machine's name in the tables.
    pub machine: String,
    /// The kernel's.
    pub kernel: String,
    /// Threads.
    pub threads: u32,
    /// What runs.
    pub program: Program,
}

/// What a run came to.
#[derive(Clone, Debug)]
enum Ran {
    Tiobench(Box<Outcome>),
    Bonnie(Vec<(Pass, f64)>),
}

/// Numbers of threads that the tables have.
pub const THREADS: [u32; 5] = [1, 2, 4, 8, 16];

/// Whether a fact is of such runs.
#[must_use]
pub fn has(fact: &Fact) -> bool {
    let of_table = matches!(fact.table, Table::Tiobench | Table::DiskLatency | Table::FairZone);
    of_table || fact.workload == "bonnie"
}

/// The runs that show a fact, or what the base has for it; none if it is of another kind.
#[must_use]
pub fn needs(fact: &Fact, of_base: bool) -> Vec<IoKey> {
    if !has(fact) {
        return Vec::new();
    }
    let program = match &*fact.workload {
        "bonnie" => Program::Bonnie,
        "tiobench_80_percent" => Program::Fits,
        _ => Program::Tiobench,
    };
    // The whole series is what its last patch makes of it.
    let kernel = match (of_base, program, &*fact.kernel) {
        (true, Program::Bonnie, _) => BASE_2017,
        (true, ..) => BASE,
        (false, _, "series") => "lessdirty",
        (false, _, kernel) => kernel,
    };
    let key = |threads| {
        let (machine, kernel) = (fact.machine.clone(), kernel.to_owned());
        IoKey { machine, kernel, threads, program }
    };
    match (program, fact.tasks) {
        (Program::Bonnie, _) => vec![key(1)],
        (_, Some(threads)) => vec![key(threads)],
        (_, None) => THREADS.map(key).into(),
    }
}

/// The outcomes of runs.
#[derive(Debug, Default)]
pub struct IoRuns {
    done: HashMap<IoKey, Result<Ran, String>>,
    /// Published pages of both zones, by machine and kernel.
    pages: HashMap<(String, String), f64>,
}

/// Does a run.
fn run(runner: &dyn IoRunner, key: &IoKey, choice: Choice) -> Result<Ran, String> {
    let machine = Machine::named(&key.machine)
        .ok_or_else(|| format!("no machine stands for {}", key.machine))?;
    let kernel = Kernel::named(&key.kernel)
        .ok_or_else(|| format!("the model has no kernel {}", key.kernel))?;
    let part = if choice.quick { 16 } else { 1 };
    let machine = Machine { frames: machine.frames / u64::from(part), ..machine };
    let pages = match key.program {
        Program::Bonnie => {
            let bonnie = Bonnie::twice(machine.frames, BONNIE_FILES / part, choice.seed);
            return Ok(Ran::Bonnie(runner.bonnie(&machine, &kernel, &bonnie)?));
        }
        Program::Fits => machine.frames * 4 / 5,
        Program::Tiobench => machine.frames * 2,
    };
    let tiobench = Tiobench { threads: key.threads, pages, random: RANDOM, seed: choice.seed };
    let outcome = runner.run(&Case { machine, kernel, tiobench })?;
    Ok(Ran::Tiobench(Box::new(outcome)))
}

impl IoRuns {
    /// Does the runs that `facts` need, on a number of threads; `all` has what they are scaled to.
    #[must_use]
    pub fn carry_out(
        runner: &dyn IoRunner,
        facts: &[&Fact],
        all: &[Fact],
        choice: Choice,
        (jobs, hidden): (usize, bool),
    ) -> Self {
        let mut keys: Vec<IoKey> = Vec::new();
        for key in facts.iter().flat_map(|fact| [false, true].map(|base| needs(fact, base))) {
            key.into_iter().for_each(|key| {
                if !keys.contains(&key) {
                    keys.push(key);
                }
            });
        }
        let mut pages = HashMap::new();
        for fact in all.iter().filter(|fact| fact.unit == Unit::Pages) {
            *pages.entry((fact.machine.clone(), fact.kernel.clone())).or_default() +=
                fact.published;
        }
        let cpus = thread::available_parallelism().map_or(1, usize::from);
        let jobs = if jobs == 0 { cpus } else { jobs }.min(keys.len());
        let bar = Bar::new(keys.len() as u64, hidden || keys.is_empty());
        // Relaxed: each number is taken once whatever the order; results go through the lock.
        let next = AtomicUsize::new(0);
        let done = Mutex::new(HashMap::new());
        on_threads(jobs, Builder::new, || {
            while let Some(key) = keys.get(next.fetch_add(1, Ordering::Relaxed)) {
                let result = guarded(runner, key, choice);
                bar.done(1, format!("{} {} {}", key.machine, key.kernel, key.threads));
                if let Ok(mut done) = done.lock() {
                    done.insert(key.clone(), result);
                }
            }
        });
        Self { done: done.into_inner().unwrap_or_default(), pages }
    }

    /// How many runs there were.
    #[must_use]
    pub fn count(&self) -> usize {
        self.done.len()
    }

    /// Runs that failed, and why.
    #[must_use]
    pub fn failures(&self) -> Vec<String> {
        let failed = self.done.iter().filter_map(|(key, result)| {
            let why = result.as_ref().err()?;
            let IoKey { machine, kernel, threads, program } = key;
            Some(format!("{} {machine} {kernel} {threads}: {why}", program.name()))
        });
        let mut failed: Vec<String> = failed.collect();
        failed.sort_unstable();
        failed
    }

    /// What the runs show of a fact, or what the base's do.
    ///
    /// # Errors
    ///
    /// Why there is nothing.
    pub fn read(&self, fact: &Fact, of_base: bool) -> Result<f64, String> {
        let unknown = || format!("the model does not measure {}", fact.metric);
        let mut all = Outcome::default();
        let keys = needs(fact, of_base);
        for key in &keys {
            let ran = self.done.get(key).ok_or("not run")?.as_ref().map_err(Clone::clone)?;
            match ran {
                Ran::Bonnie(passes) => {
                    let pass = passes.iter().find(|(pass, _)| pass.name() == fact.metric);
                    return pass.map(|(_, rate)| *rate).ok_or_else(unknown);
                }
                Ran::Tiobench(outcome) if keys.len() == 1 => all.clone_from(outcome),
                Ran::Tiobench(outcome) => all.append(outcome),
            }
        }
        let velocity = |zone: ZoneName| {
            all.scanned[zone as usize] as f64 / (all.elapsed.0.max(1) as f64 / 1e9)
        };
        let pages = |part: f64| {
            let both = self.pages.get(&(fact.machine.clone(), fact.kernel.clone()));
            both.map(|both| both * part / 100.0).ok_or_else(|| "no pages are published".to_owned())
        };
        match &*fact.metric {
            "dma32_allocs" => pages(all.dma32_share()),
            "normal_allocs" => pages(100.0 - all.dma32_share()),
            "dma32_share" => Ok(all.dma32_share()),
            "dma32_velocity" => Ok(velocity(ZoneName::Dma32)),
            "normal_velocity" => Ok(velocity(ZoneName::Normal)),
            "dma32_velocity_share" => Ok(all.dma32_scanned_share()),
            metric => {
                let (stat, what) = metric.split_once('_').ok_or_else(unknown)?;
                if what == "mb_per_s" {
                    let phase = Phase::ALL.into_iter().find(|phase| {
                        fact.workload.strip_prefix("tiobench_") == Some(phase.name())
                    });
                    return phase.map(|phase| all.mib_s(phase)).ok_or_else(unknown);
                }
                let metric = Metric::ALL.into_iter().find(|metric| metric.name() == what);
                let metric = metric.ok_or_else(unknown)?;
                let of =
                    if stat == "max" { all.iostat.max(metric) } else { all.iostat.mean(metric) };
                Ok(of)
            }
        }
    }
}

/// Does work that threads share on `jobs` of them, of which the calling one is the first, or on those that the system
/// gives.
fn on_threads(jobs: usize, builder: impl Fn() -> Builder, work: impl Fn() + Sync) {
    thread::scope(|scope| {
        // They end with the scope.
        let is_refused = |_: &usize| builder().spawn_scoped(scope, &work).is_err();
        (1..jobs).find(is_refused);
        work();
    });
}

fn guarded(runner: &dyn IoRunner, key: &IoKey, choice: Choice) -> Result<Ran, String> {
    if interrupt::is_requested() {
        return Err("not run: interrupted".into());
    }
    // Nothing of a run that panicked is looked at again.
    let run = AssertUnwindSafe(|| run(runner, key, choice));
    catch_unwind(run).unwrap_or_else(|_| Err("the simulator panicked".into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No address space has room for such a stack.
    #[test]
    fn threads_that_are_refused_leave_their_work_to_the_others() {
        let done = AtomicUsize::new(0);
        let work = || {
            done.fetch_add(1, Ordering::Relaxed);
        };
        on_threads(3, Builder::new, work);
        assert_eq!(done.swap(0, Ordering::Relaxed), 3);
        let asked = AtomicUsize::new(0);
        let builder = || {
            let first = asked.fetch_add(1, Ordering::Relaxed) == 0;
            Builder::new().stack_size(if first { 1 << 20 } else { 1 << 60 })
        };
        on_threads(5, builder, work);
        assert_eq!(done.load(Ordering::Relaxed), 2);
    }
}
