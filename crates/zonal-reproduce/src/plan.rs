//! From published numbers to the runs that show what the simulator makes of them.
//!
//! A fact has a run (a machine and a spec) and a reading of its outcome; facts of the same kernel
//! share the run, and each distinct run is done once.
//!
//! ```
//! use zonal_reproduce::{facts, plan::{Choice, Planner}};
//! use zonal_simulate::runs::Simulator;
//!
//! let facts = facts::all();
//! let planner = Planner::new(&Simulator, &facts, Choice { seed: 1, quick: false });
//! let fact = facts.iter().find(|fact| fact.metric == "zone_lock_spin_free").expect("published");
//! assert_eq!(planner.measure(fact)?.key.spec.tasks, 112);
//! # Ok::<(), String>(())
//! ```

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use zonal_sim::machine::Machine;
use zonal_sim::outcome::Outcome;
use zonal_sim::run::{LruLock, Preset, Spec, Workload};

use super::facts::{Fact, Table, Unit};
use zonal_cli::error::LabError;
use zonal_scenario::truncate::Statistic;
use zonal_simulate::runs::{Job, Pool, Runner};

/// Why there is no number of a row that `--quick` leaves out.
pub(super) const LEFT_OUT: &str = "not run with --quick";

/// Numbers of tasks that are simulated with `--quick`.
pub const QUICK_TASKS: [u32; 11] = [1, 2, 5, 8, 10, 11, 15, 20, 21, 30, 40];

/// Runs of a workload whose numbers differ much from seed to seed.
const SEVERAL: u32 = 6;

/// The metric that says how long the run of the counts was.
pub const LENGTH: &str = "free_pcppages_bulk_calls";

/// What holds for all runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The seed.
    pub seed: u64,
    /// Shorter runs, and fewer of them.
    pub quick: bool,
}

/// A run: which machine, which spec.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// The machine's name.
    pub machine: String,
    /// What runs.
    pub spec: Spec,
}

impl Key {
    /// The seeds of the runs whose mean is shown.
    fn seeds(&self) -> impl ExactSizeIterator<Item = u64> {
        let several = matches!(
            self.spec.workload,
            Workload::ThpMix | Workload::StressHighalloc | Workload::PageFault1Threads
        );
        let runs = if several && !self.spec.quick { SEVERAL } else { 1 };
        let first = self.spec.seed;
        (0..runs).map(move |run| first.wrapping_add(run.into()))
    }
}

/// How a number is read off an outcome.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reading {
    /// A figure.
    Figure(&'static str),
    /// A figure's change against the base's, in percent.
    Change(&'static str),
    /// Waiting for the locks of a class, in percent of all cycles; while doing one thing only.
    Spin(&'static str, Option<&'static str>),
    /// A figure, for a run in which [`LENGTH`] is this.
    Scaled(&'static str, f64),
    /// Pages allocated in a zone, for a run in which those of both zones are this.
    Spread(&'static str, f64),
}

/// The run that shows a number, and where in it.
#[derive(Clone, Debug, PartialEq)]
pub struct Measure {
    /// The run.
    pub key: Key,
    /// The run of the base kernel.
    pub base: Key,
    /// Where to look.
    pub reading: Reading,
}

/// Plans runs.
#[derive(Debug)]
pub struct Planner {
    machines: BTreeMap<String, Arc<Machine>>,
    lengths: HashMap<(String, String), f64>,
    /// Pages of all zones, by machine and kernel.
    pages: HashMap<(String, String), f64>,
    choice: Choice,
}

/// The machine of the simulator that stands for one of the sources, where they have two names.
fn stand_in(machine: &str) -> &str {
    // Nothing is said of the other desktops; this is the only one described.
    match machine {
        "desktop" | "desktop_2xRAM_ext3" | "second_machine" => "desktop_8cpu_4g",
        _ => machine,
    }
}

/// The preset of the kernel that one of a table is compared with.
fn base(table: Table, kernel: &str) -> Preset {
    match table {
        Table::ZoneLock if matches!(kernel, "one_zone" | "four_zone_instances") => Preset::Linux63,
        Table::ZoneLock | Table::Broadwell => Preset::Linux416,
        Table::FairZone => Preset::Linux316,
        Table::BatchedIrq => Preset::Linux413,
        // Not of this simulator.
        Table::Tiobench | Table::DiskLatency => Preset::Linux316,
    }
}

fn preset(table: Table, kernel: &str) -> Option<Preset> {
    Some(match kernel {
        "base" | "one_zone" | "3.16-rc1" => base(table, kernel),
        // Another I/O scheduler, the same allocator.
        "cfq600" => Preset::Linux316,
        "fairzone" => Preset::FairZonePosted,
        // First fit, and a list of pages freed in one go.
        "3.0" | "one_irq" => Preset::Linux416,
        "skip_merge" => Preset::SkipMerge,
        "cluster" => Preset::Cluster,
        "cluster_free" | "zone_lock_series" => Preset::ClusterFree,
        "huge_pcp_batch" => Preset::HugeBatch,
        "four_zone_instances" => Preset::SplitZones,
        _ => return None,
    })
}

/// A workload of the sources: what runs, on how many CPUs if not on all, with which delay.
fn workload(name: &str) -> Option<(Workload, Option<u32>, u32)> {
    Some(match name {
        "page_fault1_processes_full" | "page_fault1_processes" => (Workload::PageFault1, None, 0),
        "page_fault1_threads" => (Workload::PageFault1Threads, None, 0),
        "page_fault1_16_processes" => (Workload::PageFault1, Some(16), 0),
        "parallel_free_512g" => (Workload::ParallelFree, None, 0),
        "thp_mix_56_order0_56_thp" => (Workload::ThpMix, Some(112), 0),
        "stress_highalloc_delay_100ms" => (Workload::StressHighalloc, None, 100),
        "stress_highalloc_delay_1ms" => (Workload::StressHighalloc, None, 1),
        "kbuild" => (Workload::Kbuild, None, 0),
        "kbuild_j224" => (Workload::Kbuild, Some(224), 0),
        "boot" => (Workload::Boot, None, 0),
        "tiobench_80_percent" => (Workload::PageCacheFits, None, 0),
        "tiobench" => (Workload::PageCache, None, 0),
        "sparsetruncate_tiny" => (Workload::Truncate, Some(1), 0),
        _ => return None,
    })
}

/// The lock of the LRU lists of the kernels that a workload was published of: one for all presets of a table, so
/// that their allocators alone differ. 3.0 and 3.16 have one a zone. That of 6.3 is an owner's on a node, and a
/// benchmark is one owner.
const fn lru_lock(workload: Workload) -> LruLock {
    match workload {
        Workload::PageCache | Workload::PageCacheFits => LruLock::Zone,
        _ => LruLock::Node,
    }
}

impl Planner {
    /// A planner for `facts`, with the machines that `runner` has built in.
    #[must_use]
    pub fn new(runner: &impl Runner, facts: &[Fact], choice: Choice) -> Self {
        let machines = runner.names().into_iter().filter_map(|name| {
            let machine = runner.machine(&name)?;
            Some((name, Arc::new(machine)))
        });
        let lengths = facts.iter().filter(|fact| fact.metric == LENGTH);
        let lengths = lengths
            .map(|fact| ((fact.machine.clone(), fact.workload.clone()), fact.published))
            .collect();
        let mut pages = HashMap::new();
        for fact in facts.iter().filter(|fact| fact.unit == Unit::Pages) {
            *pages.entry((fact.machine.clone(), fact.kernel.clone())).or_default() +=
                fact.published;
        }
        Self { machines: machines.collect(), lengths, pages, choice }
    }

    /// The machine of that name.
    #[must_use]
    pub fn machine(&self, name: &str) -> Option<&Arc<Machine>> {
        self.machines.get(name)
    }

    /// A run on a machine of the sources, on all of its CPUs if `tasks` is not given; `None`
    /// if the machine is not built in.
    #[must_use]
    pub fn key(&self, machine: &str, workload: Workload, preset: Preset) -> Option<Key> {
        let machine = stand_in(machine);
        let tasks = self.machines.get(machine)?.topology.cpus();
        let Choice { seed, quick } = self.choice;
        let lru = lru_lock(workload);
        let spec = Spec {
            workload,
            preset,
            tasks,
            seed,
            lru,
            quick,
            delay_ms: 0,
            after: None,
            regions: None,
        };
        Some(Key { machine: machine.into(), spec })
    }

    /// The run of a workload that is called so in the tables, as [`key`](Self::key).
    pub(super) fn key_of(&self, machine: &str, published: &str, preset: Preset) -> Option<Key> {
        let (workload, tasks, delay_ms) = workload(published)?;
        let mut key = self.key(machine, workload, preset)?;
        key.spec.delay_ms = delay_ms;
        key.spec.tasks = tasks.unwrap_or(key.spec.tasks);
        Some(key)
    }

    /// The run that shows `fact`.
    ///
    /// # Errors
    ///
    /// Why there is none.
    pub fn measure(&self, fact: &Fact) -> Result<Measure, String> {
        let preset = preset(fact.table, &fact.kernel)
            .ok_or_else(|| format!("no preset stands for the kernel {}", fact.kernel))?;
        if workload(&fact.workload).is_none() {
            return Err(format!("the simulator has no workload {}", fact.workload));
        }
        let reading = self.reading(fact)?;
        let mut key = self
            .key_of(&fact.machine, &fact.workload, preset)
            .ok_or_else(|| format!("no machine {} is built in", stand_in(&fact.machine)))?;
        key.spec.tasks = fact.tasks.unwrap_or(key.spec.tasks);
        if self.skips(fact) {
            return Err(LEFT_OUT.into());
        }
        let mut base = key.clone();
        base.spec.preset = self::base(fact.table, &fact.kernel);
        Ok(Measure { key, base, reading })
    }

    /// Whether the fact is among those that `--quick` leaves out.
    fn skips(&self, fact: &Fact) -> bool {
        let kept = |tasks: u32| QUICK_TASKS.contains(&tasks);
        let one_of_many = fact.table == Table::Broadwell && !fact.tasks.is_some_and(kept);
        // A shorter run asks for so few blocks that nearly all are there.
        self.choice.quick && (one_of_many || fact.workload.starts_with("stress_highalloc"))
    }

    fn reading(&self, fact: &Fact) -> Result<Reading, String> {
        Ok(match &*fact.metric {
            "zone_lock_spin" => Reading::Spin("zone", None),
            "zone_lock_spin_alloc" => Reading::Spin("zone", Some("alloc")),
            "zone_lock_spin_free" => Reading::Spin("zone", Some("free")),
            "lru_lock_spin" => Reading::Spin("lru", None),
            "score_change" => Reading::Change("faults_per_s"),
            "processes_faults_per_s" | "threads_faults_per_s" => Reading::Figure("faults_per_s"),
            "order0_score" => Reading::Figure("order0_score"),
            "thp_score" => Reading::Figure("thp_score"),
            "success_rate" => Reading::Figure("success_rate"),
            "mean_time_per_huge_page" => Reading::Figure("mean_time_per_huge_page"),
            LENGTH => self.scaled(fact, LENGTH),
            "single_mt" => self.scaled(fact, "single_mt"),
            "single_mt_unmovable" => self.scaled(fact, "single_mt_unmovable"),
            "single_mt_movable" => self.scaled(fact, "single_mt_movable"),
            "single_mt_reclaimable" => self.scaled(fact, "single_mt_reclaimable"),
            "dma32_allocs" => self.spread(fact, "dma32_allocs"),
            "normal_allocs" => self.spread(fact, "normal_allocs"),
            "dma32_share" => Reading::Figure("dma32_share"),
            "dma32_velocity" => Reading::Figure("dma32_velocity"),
            "normal_velocity" => Reading::Figure("normal_velocity"),
            "dma32_velocity_share" => Reading::Figure("dma32_velocity_share"),
            other => match Statistic::named(other) {
                Some(statistic) if fact.table == Table::BatchedIrq => {
                    Reading::Figure(statistic.figure())
                }
                _ => return Err(format!("the simulator does not measure {other}")),
            },
        })
    }

    fn spread(&self, fact: &Fact, figure: &'static str) -> Reading {
        let pages = self.pages.get(&(fact.machine.clone(), fact.kernel.clone()));
        pages.map_or(Reading::Figure(figure), |pages| Reading::Spread(figure, *pages))
    }

    fn scaled(&self, fact: &Fact, figure: &'static str) -> Reading {
        let length = self.lengths.get(&(fact.machine.clone(), fact.workload.clone()));
        length.map_or(Reading::Figure(figure), |length| Reading::Scaled(figure, *length))
    }
}

/// The outcomes of runs, each done once.
#[derive(Debug, Default)]
pub struct Runs {
    done: HashMap<Key, Result<Outcome, String>>,
    /// Runs, of which a mean is made of several.
    count: usize,
}

impl Runs {
    /// Does all of `keys`, which may repeat themselves.
    ///
    /// # Errors
    ///
    /// As [`Pool::carry_out`].
    pub fn carry_out(
        planner: &Planner,
        runner: &impl Runner,
        pool: &Pool,
        keys: impl IntoIterator<Item = Key>,
    ) -> Result<Self, LabError> {
        let mut distinct: Vec<Key> = Vec::new();
        let mut jobs: Vec<Job> = Vec::new();
        let mut seen = std::collections::HashSet::new();
        for key in keys {
            let Some(machine) = planner.machine(&key.machine) else { continue };
            if seen.insert(key.clone()) {
                jobs.extend(key.seeds().map(|seed| Job {
                    machine: Arc::clone(machine),
                    spec: Spec { seed, ..key.spec },
                }));
                distinct.push(key);
            }
        }
        let mut results = pool.carry_out(runner, &jobs)?.into_iter();
        let mean = |key: Key| {
            // All of them, also behind one that failed: the next key's follow.
            let runs: Vec<_> = results.by_ref().take(key.seeds().len()).collect();
            let runs: Result<Vec<_>, _> = runs.into_iter().collect();
            let runs = runs.map_err(|error| error.to_string());
            let mean = runs.and_then(|runs| Outcome::mean(runs).ok_or("not run".into()));
            (key, mean)
        };
        Ok(Self { done: distinct.into_iter().map(mean).collect(), count: jobs.len() })
    }

    /// The outcome of a run.
    ///
    /// # Errors
    ///
    /// Why there is none.
    pub fn outcome(&self, key: &Key) -> Result<&Outcome, String> {
        match self.done.get(key) {
            Some(Ok(outcome)) => Ok(outcome),
            Some(Err(why)) => Err(why.clone()),
            None => Err("not run".into()),
        }
    }

    /// How many runs there were, all those counted that a mean is of.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    /// Whether there is a number that is the mean of several runs.
    #[must_use]
    pub fn has_means(&self) -> bool {
        self.count > self.done.len()
    }

    /// Runs that failed, and why, in the order of their names.
    #[must_use]
    pub fn failures(&self) -> Vec<String> {
        let failed = self.done.iter().filter_map(|(key, result)| {
            let why = result.as_ref().err()?;
            let Spec { workload, preset, tasks, .. } = key.spec;
            let preset = preset.name();
            Some(format!("{preset} on {tasks} CPUs of {} in {workload}: {why}", key.machine))
        });
        let mut failed: Vec<String> = failed.collect();
        failed.sort_unstable();
        failed
    }

    /// What `measure` shows.
    ///
    /// # Errors
    ///
    /// Why it shows nothing.
    pub fn read(&self, measure: &Measure) -> Result<f64, String> {
        let outcome = self.outcome(&measure.key)?;
        match measure.reading {
            Reading::Figure(name) => figure(outcome, name),
            Reading::Spin(lock, None) => Ok(outcome.spin_percent(lock)),
            Reading::Spin(lock, Some(during)) => Ok(outcome.spin_percent_during(lock, during)),
            Reading::Change(name) => {
                let base = figure(self.outcome(&measure.base)?, name)?;
                change(figure(outcome, name)?, base)
            }
            Reading::Scaled(name, length) => {
                Ok(figure(outcome, name)? * ratio(length, figure(outcome, LENGTH)?)?)
            }
            Reading::Spread(name, pages) => {
                let all = figure(outcome, "dma32_allocs")? + figure(outcome, "normal_allocs")?;
                Ok(figure(outcome, name)? * ratio(pages, all)?)
            }
        }
    }
}

/// A figure of an outcome.
///
/// # Errors
///
/// That it has none of that name, or no number.
pub fn figure(outcome: &Outcome, name: &str) -> Result<f64, String> {
    let value = outcome.figure(name).filter(|value| value.is_finite());
    value.ok_or_else(|| format!("the run shows no {name}"))
}

fn ratio(value: f64, of: f64) -> Result<f64, String> {
    if of > 0.0 { Ok(value / of) } else { Err("what it is compared with is nothing".into()) }
}

/// The change from `base` to `value` in percent.
///
/// # Errors
///
/// That there is no base.
pub fn change(value: f64, base: f64) -> Result<f64, String> {
    Ok((ratio(value, base)? - 1.0) * 100.0)
}
