//! A runner in place of the simulator: outcomes from a formula, at once.

#![allow(dead_code, reason = "each test program uses a part of it")]

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex};

use zonal_cfq::units::Span;
use zonal_iobench::kernel::Kernel;
use zonal_iobench::many_files::{Bonnie, Pass};
use zonal_iobench::program::Phase;
use zonal_iobench::simulated::{self, Case, PhaseOutcome};
use zonal_reproduce::facts::{self, Fact, Table};
use zonal_reproduce::io_runs::{IoKey, IoRunner, Program};
use zonal_scenario::truncate::Statistic;
use zonal_sim::machine::Machine;
use zonal_sim::outcome::{Figure, LineProfile, LockProfile, Outcome, Spin};
use zonal_sim::run::{LruLock, Preset, SimError, Spec, Workload};
use zonal_simulate::runs::{Runner, Simulator};

/// The fake, with the machines of the simulator.
#[derive(Debug, Default)]
pub(crate) struct Fake {
    /// How often each spec was run, by machine.
    pub(crate) runs: Mutex<HashMap<(String, Spec), u32>>,
    /// Scores and shares are these times as large as the published ones.
    pub(crate) off: f64,
    /// A machine that is not there.
    pub(crate) without: Option<&'static str>,
    /// A workload that fails.
    pub(crate) fails: Option<Workload>,
    /// With this number of tasks; with any if not said.
    pub(crate) fails_with: Option<u32>,
    /// A workload that panics.
    pub(crate) panics: Option<Workload>,
    /// What part of all pages comes from DMA32 where files fit, in place of what was published.
    pub(crate) dma32: Option<f64>,
    /// How often tiobench was run, by machine, kernel, threads, and whether files fit.
    pub(crate) io_runs: Mutex<HashMap<IoKey, u32>>,
    /// Figures that take the place of others: workload, preset, name, value.
    pub(crate) figures: Vec<(Workload, Preset, &'static str, f64)>,
}

/// A fake that comes out exactly as published.
pub(crate) fn exact() -> Fake {
    Fake { off: 1.0, ..Fake::default() }
}

fn kernel(preset: Preset, fact: &Fact) -> &'static [&'static str] {
    let workload = &*fact.workload;
    match preset {
        Preset::Linux416 if fact.table == Table::BatchedIrq => &["one_irq"],
        Preset::Linux416 => &["base"],
        Preset::Linux63 => &["one_zone"],
        Preset::SkipMerge => &["skip_merge"],
        Preset::Cluster => &["cluster"],
        Preset::ClusterFree if workload.starts_with("page_fault1_") => {
            &["zone_lock_series", "cluster_free"]
        }
        Preset::ClusterFree => &["cluster_free"],
        Preset::HugeBatch => &["huge_pcp_batch"],
        Preset::SplitZones => &["four_zone_instances"],
        Preset::Linux413 if fact.table == Table::BatchedIrq => &["base"],
        Preset::Linux413 | Preset::Linux316 => &[],
        Preset::FairZonePosted | Preset::LessDirty | Preset::FairZone => &[],
        Preset::Zonal => &["zonal"],
    }
}

/// All facts, read once.
static FACTS: LazyLock<Vec<Fact>> = LazyLock::new(facts::all);

/// The facts that a run of `spec` on `machine` is to show.
fn facts_of(machine: &str, spec: &Spec, cpus: u32) -> Vec<Fact> {
    FACTS
        .iter()
        .filter(|fact| {
            let desktops = ["desktop", "desktop_2xRAM_ext3", "second_machine"];
            let place =
                fact.machine == machine || (desktops.contains(&&*fact.machine) && cpus == 8);
            let workload = match spec.workload {
                Workload::PageFault1 if fact.table == Table::Broadwell => {
                    fact.workload == "page_fault1_processes"
                }
                Workload::PageFault1 if spec.tasks == 16 => {
                    fact.workload == "page_fault1_16_processes"
                }
                Workload::PageFault1 => fact.workload == "page_fault1_processes_full",
                Workload::PageFault1Threads => fact.workload == "page_fault1_threads",
                Workload::ParallelFree => fact.workload == "parallel_free_512g",
                Workload::ThpMix => fact.workload.starts_with("thp_mix"),
                Workload::Kbuild => fact.workload.starts_with("kbuild"),
                Workload::Boot => fact.workload == "boot",
                Workload::Truncate => fact.workload == "sparsetruncate_tiny",
                Workload::PageCache => fact.workload == "tiobench",
                Workload::PageCacheFits => fact.workload == "tiobench_80_percent",
                Workload::Netperf | Workload::Replay => false,
                Workload::StressHighalloc => {
                    fact.workload == format!("stress_highalloc_delay_{}ms", spec.delay_ms)
                }
            };
            let kernel = kernel(spec.preset, fact).contains(&&*fact.kernel);
            let tasks = fact.tasks.is_none_or(|tasks| tasks == spec.tasks);
            place && workload && kernel && tasks
        })
        .cloned()
        .collect()
}

/// Means come out as published, and the smallest rates of machines that have no means.
impl IoRunner for Fake {
    fn run(&self, case: &Case) -> Result<simulated::Outcome, String> {
        let fits = case.tiobench.pages < case.machine.frames;
        let program = if fits { Program::Fits } else { Program::Tiobench };
        let key = IoKey {
            machine: case.machine.name.into(),
            kernel: case.kernel.name.into(),
            threads: case.tiobench.threads,
            program,
        };
        *self.io_runs.lock().expect("no test panics with it").entry(key).or_default() += 1;
        let second = Span::from_millis(1000);
        let mut outcome = simulated::Outcome { elapsed: second, ..Default::default() };
        let of = |workload: &str, metric: &str| {
            let is = |fact: &&Fact| {
                (&*fact.machine, &*fact.kernel) == (case.machine.name, case.kernel.name)
                    && (&*fact.workload, &*fact.metric) == (workload, metric)
                    && fact.tasks.is_none_or(|tasks| tasks == case.tiobench.threads)
            };
            FACTS.iter().find(is).map(|fact| fact.published)
        };
        for phase in Phase::ALL {
            let workload = format!("tiobench_{}", phase.name());
            let rate = of(&workload, "mean_mb_per_s").or_else(|| of(&workload, "min_mb_per_s"));
            let rate = rate.unwrap_or_default() * self.off;
            let elapsed = Span((1e9 * 1e6 / (rate * 256.0)) as u64);
            outcome.phases[phase as usize] = PhaseOutcome { blocks: 1_000_000, elapsed, hits: 0 };
        }
        let pair = |workload, names: [&str; 2]| {
            names.map(|name| (of(workload, name).unwrap_or_default() * self.off) as u64)
        };
        outcome.allocated = pair("tiobench_80_percent", ["dma32_allocs", "normal_allocs"]);
        if let Some(part) = self.dma32 {
            outcome.allocated = [part, 1.0 - part].map(|part| (part * 3e6) as u64);
        }
        outcome.scanned = pair("tiobench", ["dma32_velocity", "normal_velocity"]);
        Ok(outcome)
    }

    fn bonnie(
        &self,
        machine: &zonal_iobench::machine::Machine,
        kernel: &Kernel,
        bonnie: &Bonnie,
    ) -> Result<Vec<(Pass, f64)>, String> {
        assert_eq!(bonnie.pages * u64::from(bonnie.files) / machine.frames, 1, "and a bit");
        let rate = |pass: Pass| {
            let is = |fact: &&Fact| {
                (&*fact.workload, &*fact.kernel, &*fact.metric)
                    == ("bonnie", kernel.name, pass.name())
            };
            let found = FACTS.iter().find(is).ok_or("not published")?;
            Ok((pass, found.published * self.off))
        };
        Pass::ALL.into_iter().map(rate).collect()
    }
}

impl Runner for Fake {
    fn names(&self) -> Vec<String> {
        let mut names = Simulator.names();
        names.retain(|name| Some(&**name) != self.without);
        names
    }

    fn machine(&self, name: &str) -> Option<Machine> {
        Simulator.machine(name).filter(|_| Some(name) != self.without)
    }

    fn run(&self, machine: &Machine, spec: &Spec) -> Result<Outcome, SimError> {
        let key = (machine.name.clone(), *spec);
        *self.runs.lock().expect("no test panics with it").entry(key).or_default() += 1;
        let fails = self.fails_with.is_none_or(|tasks| tasks == spec.tasks);
        if fails && self.fails == Some(spec.workload) {
            return Err(SimError::Deadlock { cycle: 17 });
        }
        assert!(self.panics != Some(spec.workload), "a fault of the fake");
        let mut outcome = Outcome {
            machine: machine.name.clone(),
            workload: spec.workload.name().into(),
            preset: spec.preset.name().into(),
            tasks: spec.tasks,
            seed: spec.seed,
            cycles: 1_000_000,
            seconds: 0.001,
            locks: vec![
                LockProfile {
                    class: "zone",
                    index: 0,
                    taken: 9,
                    waited: 800_000,
                    ..LockProfile::default()
                },
                LockProfile {
                    class: "zone",
                    index: 1,
                    taken: 4,
                    waited: 7,
                    ..LockProfile::default()
                },
            ],
            off: match spec.preset {
                Preset::SplitZones => vec!["splitting of all of it: a fake's".into()],
                _ => Vec::new(),
            },
            lines: vec![LineProfile {
                class: "frames",
                near: 3,
                queued: 20,
                cycles: 500,
                ..LineProfile::default()
            }],
            ..Outcome::default()
        };
        let score = if spec.preset == Preset::Zonal { 10.9e6 } else { 10.0e6 };
        let apart = matches!(spec.lru, LruLock::Split | LruLock::None);
        let score = if apart { 6.0 * score } else { score };
        self.fill(machine, spec, &mut outcome, score);
        Ok(outcome)
    }
}

impl Fake {
    fn fill(&self, machine: &Machine, spec: &Spec, outcome: &mut Outcome, score: f64) {
        let mut figures: HashMap<String, f64> = HashMap::from([("faults_per_s".into(), score)]);
        if machine.topology.cpus() == 40 {
            let tasks = f64::from(spec.tasks);
            figures.insert("faults_per_s".into(), 5.9e5 * tasks / (1.0 + tasks / 70.0));
        }
        figures.insert("order0_score".into(), 5.5e6);
        figures.insert("thp_score".into(), 10.6e6);
        let mut spin = |lock, during, percent: f64| {
            outcome.spins.push(Spin::new(lock, during, (percent * 10_000.0).round() as u64));
        };
        for fact in facts_of(&machine.name, spec, machine.topology.cpus()) {
            let value = fact.published * self.off;
            match &*fact.metric {
                "zone_lock_spin_alloc" => spin("zone", "alloc", value),
                "zone_lock_spin_free" => spin("zone", "free", value),
                "zone_lock_spin" if spec.workload == Workload::PageFault1 && spec.tasks == 112 => {
                    spin("zone", "other", if value > 0.0 { 3.0 * self.off } else { 0.0 });
                }
                "zone_lock_spin" => spin("zone", "free", value),
                "lru_lock_spin" => spin("lru", "other", value),
                "score_change" => {
                    figures.insert("faults_per_s".into(), score * (1.0 + value / 100.0));
                }
                "processes_faults_per_s" | "threads_faults_per_s" => {
                    figures.insert("faults_per_s".into(), value);
                }
                name => {
                    let of_files = Statistic::named(name).map(Statistic::figure);
                    let name = of_files.unwrap_or(name);
                    // Half as long a run: the counts have to be scaled.
                    let counted = matches!(fact.unit, facts::Unit::Count | facts::Unit::Pages);
                    figures.insert(name.into(), if counted { value / 2.0 } else { value });
                }
            }
        }
        for (workload, preset, name, value) in &self.figures {
            if (*workload, *preset) == (spec.workload, spec.preset) {
                figures.insert((*name).into(), *value);
            }
        }
        let mut figures: Vec<Figure> =
            figures.into_iter().map(|(name, value)| Figure { name, value, unit: "1/s" }).collect();
        figures.sort_by(|a, b| a.name.cmp(&b.name));
        outcome.figures = figures;
    }
}
