//! What the virtual CPUs do, one file for each workload.
//!
//! A workload sets memory up at no cost, then its tasks run for as long as it takes to do some
//! work unmeasured, so that caches and lists are as they are in the long run, and some measured.

pub(crate) mod boot;
pub(crate) mod highalloc;
pub(crate) mod kbuild;
pub(crate) mod netperf;
pub(crate) mod page_cache;
pub(crate) mod page_fault;
pub(crate) mod parallel_free;
mod process;
pub(crate) mod replay;
pub(crate) mod thp_mix;
pub(crate) mod truncate;

use crate::any_allocator::AnyAllocator;
use crate::coroutine::{self, Body};
use crate::engine::{self, Engine};
use crate::lru::Lru;
use crate::machine::Machine;
use crate::outcome::{Figure, Outcome, Pace};
use crate::run::{Preset, SimError, Spec};
use crate::task::{Pages, Task, Work};
use crate::ticks::Ticks;
use std::rc::Rc;
use std::time::Instant;
use zonal::plan::{Config, Plan, SplitConfig};
use zonal::policy::Policy;
use zonal::{Order, ZoneType};

/// Instances of the zone type `Normal` on each node, where the preset splits it, as in the source.
const INSTANCES: u8 = 4;

/// What a workload needs of memory, and what it counts.
pub(crate) struct Needs {
    /// Frames of each socket.
    pub(crate) frames_a_socket: u64,
    /// What is counted to know when to start and to stop measuring.
    pub(crate) counted: &'static str,
    /// How much of it before measuring.
    pub(crate) warm_up: u64,
    /// How much of it while measuring.
    pub(crate) measure: u64,
    /// Whether figures are rates, named `..._per_s` or `..._score`, or counts.
    pub(crate) rates: bool,
}

/// A workload.
pub(crate) trait Workload {
    /// Memory and length.
    fn needs(&self, machine: &Machine, spec: &Spec) -> Result<Needs, SimError>;

    /// The configuration of the allocator.
    fn config(&self, config: Config) -> Config {
        config
    }

    /// Sets memory up and makes the tasks.
    fn tasks<'a>(&'a self, stage: &'a Stage<'a>) -> Vec<Body<'a>>;

    /// Why memory could not be set up, if it could not.
    fn flaw(&self) -> Option<&'static str> {
        None
    }

    /// Further figures, after all tasks have ended.
    fn figures(&self, stage: &Stage<'_>) -> Vec<Figure> {
        let _ = stage;
        Vec::new()
    }
}

/// What the tasks of a workload share.
pub(crate) struct Stage<'a> {
    pub(crate) machine: &'a Machine,
    pub(crate) spec: Spec,
    pub(crate) allocator: &'a dyn AnyAllocator,
    pub(crate) pages: Pages,
    pub(crate) lru: Rc<Lru>,
}

impl Stage<'_> {
    /// The task on a CPU, which owns the CPU's caches.
    ///
    /// # Panics
    /// If there are two for one CPU.
    pub(crate) fn task(&self, cpu: u32) -> Task<'_> {
        Task {
            cpu,
            handle: self.allocator.cpu(cpu),
            work: Work::of(&self.machine.kernel, self.spec.preset),
            pages: self.pages,
            lru: &self.lru,
            others: 0,
            unlisted: Vec::new(),
        }
    }

    /// Random choices of one task.
    pub(crate) fn random(&self, task: u32) -> fastrand::Rng {
        // No bit of the seed is lost, and no two tasks of a run have the same.
        fastrand::Rng::with_seed(self.spec.seed.rotate_left(20).wrapping_add(u64::from(task)))
    }
}

/// Runs a workload on a preset.
pub(crate) fn run<S: Policy>(
    workload: &dyn Workload,
    machine: &Machine,
    spec: &Spec,
    mut engine: Engine,
) -> Result<(Outcome, Pace), SimError> {
    let needs = workload.needs(machine, spec)?;
    // Presets that split nothing do not look at it.
    // Simulated memory is less than the machine's, where a GiB is a small part of an instance.
    let even = SplitConfig { align: Order::MAX.frames(), ..SplitConfig::default() };
    let split = even.with_instances(ZoneType::Normal, INSTANCES);
    let pcp_high = (spec.preset == Preset::HugeBatch).then_some(2 * page_fault::MAPPED as u32);
    let regions = spec.regions;
    let config = |config| workload.config(Config { split, pcp_high, regions, ..config });
    let plan = crate::world::plan::<S>(machine, needs.frames_a_socket, config)?;
    if crate::world::is_listed::<S>() {
        engine.slot_entry = Ticks::from_cycles(machine.cost.irq_toggle);
    } else {
        engine.slot_entry = Ticks::from_cycles(machine.cost.preempt_toggle);
    }
    let _installed = engine::install(engine);
    measure::<S>(workload, machine, spec, &plan, &needs)
}

fn measure<S: Policy>(
    workload: &dyn Workload,
    machine: &Machine,
    spec: &Spec,
    plan: &Plan,
    needs: &Needs,
) -> Result<(Outcome, Pace), SimError> {
    crate::world::with_allocator::<S, _>(machine, plan, |allocator, pages| {
        let lru = Lru::new(spec.lru, &pages, machine.topology.cpus());
        let lru = Rc::new(lru?);
        let stage = Stage { machine, spec: *spec, allocator, pages, lru };
        let mut stopwatch = Stopwatch::new(needs);
        let tasks = workload.tasks(&stage);
        if let Some(flaw) = workload.flaw() {
            return Err(spec.misfit(machine, flaw));
        }
        let off = crate::off::mechanisms(allocator);
        // What was done to set memory up does not count.
        engine::with(|engine| engine.measured.clear());
        let began = Instant::now();
        coroutine::run_all(tasks, |cpu| stopwatch.look(cpu))?;
        let operations = engine::with(|engine| engine.page_operations).unwrap_or(0);
        let pace = Pace { page_operations: operations, took: began.elapsed() };
        let mut outcome = stopwatch.outcome(machine, spec, S::NAME);
        outcome.figures.extend(workload.figures(&stage));
        outcome.figures.sort_by(|a, b| a.name.cmp(&b.name));
        outcome.off = off;
        accounted_for(&stage)?;
        Ok((outcome, pace))
    })?
}

/// Whether every frame is free, but for those that the workload took and has not given back.
///
/// # Errors
/// [`SimError::FramesLost`].
fn accounted_for(stage: &Stage<'_>) -> Result<(), SimError> {
    let taken = engine::with(|engine| engine.taken).unwrap_or(0);
    let (mut managed, mut free) = (0, 0);
    for zone in stage.allocator.zones() {
        managed += zone.managed;
        free += zone.free + zone.cached + zone.isolated;
    }
    match free.checked_add_signed(taken) {
        Some(known) if known == managed => Ok(()),
        known => {
            let known = known.unwrap_or(0);
            Err(SimError::FramesLost { workload: stage.spec.workload, managed, known })
        }
    }
}

/// Says when to begin and to end measuring.
struct Stopwatch<'a> {
    needs: &'a Needs,
    began: Option<Ticks>,
    outcome: Option<Outcome>,
    took: Ticks,
}

impl<'a> Stopwatch<'a> {
    fn new(needs: &'a Needs) -> Self {
        Self { needs, began: None, outcome: None, took: Ticks::default() }
    }

    /// Called before each turn of a CPU: the one with the smallest clock.
    fn look(&mut self, cpu: usize) {
        if self.outcome.is_some() {
            return;
        }
        engine::with(|engine| {
            let counts = engine.measured.counts();
            let done = counts.iter().find(|(name, _)| *name == self.needs.counted);
            let done = done.map_or(0, |(_, count)| *count);
            let now = engine.cpus[cpu].clock;
            match self.began {
                None if done >= self.needs.warm_up => {
                    engine.measured.clear();
                    self.began = Some(now);
                }
                Some(began) if done >= self.needs.measure => {
                    engine.stopped = true;
                    self.take(engine, now.since(began));
                }
                _ => (),
            }
        });
    }

    fn take(&mut self, engine: &Engine, took: Ticks) {
        let measured = &engine.measured;
        self.took = took;
        self.outcome = Some(Outcome {
            cycles: took.cycles() * engine.cpus.len() as u64,
            figures: measured.counts().iter().map(|&(name, count)| figure(name, count)).collect(),
            spins: measured.spins(),
            locks: measured.locks(),
            lines: measured.lines(),
            ..Outcome::default()
        });
    }

    /// What was measured; all of it, if the work ended before.
    fn outcome(mut self, machine: &Machine, spec: &Spec, preset: &str) -> Outcome {
        if self.outcome.is_none() {
            engine::with(|engine| {
                let end = engine.cpus.iter().map(|cpu| cpu.clock).max().unwrap_or_default();
                self.take(engine, end.since(self.began.unwrap_or_default()));
            });
        }
        let mut outcome = self.outcome.unwrap_or_default();
        outcome.seconds = machine.clock.seconds(self.took);
        if self.needs.rates {
            for figure in &mut outcome.figures {
                figure.value /= outcome.seconds;
                // A score is a rate by its name.
                if !figure.name.ends_with("_score") {
                    figure.name.push_str("_per_s");
                }
                figure.unit = "1/s";
            }
        }
        Outcome {
            machine: machine.name.clone(),
            workload: spec.workload.name().to_owned(),
            preset: preset.to_owned(),
            tasks: spec.tasks,
            seed: spec.seed,
            ..outcome
        }
    }
}

fn figure(name: &str, count: u64) -> Figure {
    Figure::new(name, count as f64, "count")
}

/// Runs a workload, with one task and under the default preset.
#[cfg(test)]
pub(crate) fn run_alone(
    work: &dyn Workload,
    machine: &Machine,
    workload: crate::run::Workload,
) -> Result<(Outcome, Pace), SimError> {
    run_alone_under::<zonal::preset::Zonal>(work, machine, workload)
}

/// [`run_alone`] under another preset.
#[cfg(test)]
fn run_alone_under<S: Policy>(
    work: &dyn Workload,
    machine: &Machine,
    workload: crate::run::Workload,
) -> Result<(Outcome, Pace), SimError> {
    let (preset, lru) = (Preset::Zonal, crate::run::LruLock::Node);
    let spec = Spec {
        workload,
        preset,
        tasks: 1,
        seed: 1,
        lru,
        delay_ms: 0,
        quick: true,
        after: None,
        regions: None,
    };
    let engine = Engine::new(machine, 1, crate::schedule::Schedule::by_clock());
    run::<S>(work, machine, &spec, engine)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine;
    use crate::run::Workload as Name;
    use zonal::{Order, Request};

    /// Takes a frame, and as many uncounted ones as it says; of a number of frames.
    struct Leak(u64, Option<&'static str>, u64);

    impl Workload for Leak {
        fn needs(&self, _: &Machine, _: &Spec) -> Result<Needs, SimError> {
            let counted = "faults";
            Ok(Needs { frames_a_socket: self.2, counted, warm_up: 0, measure: 9, rates: false })
        }

        fn flaw(&self) -> Option<&'static str> {
            self.1
        }

        fn tasks<'a>(&'a self, stage: &'a Stage<'a>) -> Vec<Body<'a>> {
            let mut task = stage.task(0);
            vec![Box::new(move || {
                task.take(Order::ZERO).expect("memory is empty");
                for _ in 0..self.0 {
                    task.handle.alloc_raw(&Request::frame()).expect("memory is empty");
                }
            })]
        }
    }

    #[test]
    fn a_lost_frame_is_an_error() {
        let machine = machine::builtin("desktop_8cpu_4g").expect("it is built in");
        let leaking = |frames, flaw| run_alone(&Leak(frames, flaw, 4096), &machine, Name::Kbuild);
        assert!(leaking(0, None).is_ok(), "it has one");
        let lost = leaking(1, None).expect_err("one more is gone");
        assert_eq!(lost.to_string(), "after kbuild 4095 of 4096 frames are accounted for");
        let flaw = leaking(0, Some("it is too odd")).expect_err("it could not be set up");
        assert!(flaw.to_string().ends_with("desktop_8cpu_4g: it is too odd"), "{flaw}");
    }

    #[test]
    fn what_is_off_is_told() {
        use zonal::preset::{ClusterFree, SplitZones, Zonal};
        /// What is off with a number of frames on eight CPUs.
        fn off<S: Policy>(frames: u64) -> Vec<String> {
            let machine = machine::builtin("desktop_8cpu_4g").expect("it is built in");
            let run = run_alone_under::<S>(&Leak(0, None, frames), &machine, Name::Kbuild);
            run.expect("it runs").0.off
        }
        let none: Vec<String> = Vec::new();
        let large = 1 << 18;
        assert_eq!(
            off::<Zonal>(4096),
            ["stacks of 8 of 8 caches: less than 3 MiB of the zone for each CPU"]
        );
        assert_eq!(off::<Zonal>(8 * 768), none, "3 MiB each");
        assert_eq!(off::<Zonal>(large), none);
        assert_eq!(off::<ClusterFree>(1024), ["clusters of 8 of 8 caches: batches of one frame"]);
        assert_eq!(off::<ClusterFree>(large), none);
        assert_eq!(off::<SplitZones>(2048), none, "two instances");
        assert_eq!(off::<SplitZones>(1024), ["splitting of 1 of 1 zone types: one instance each"]);
    }
}
