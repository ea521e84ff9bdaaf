//! `replay`: what the CPUs of a trace asked of the allocator, in the order of the trace for each
//! CPU, as fast as they can.
//!
//! - Mechanism: a task a CPU. A free waits until its block was allocated. A request that is
//!   refused is made again when all that comes before it in the trace is done; if it is
//!   refused then, it has failed. Blocks that the trace does not free are left.
//! - Figures: `operations`, `failures`, `peak_frames`, `hold_max` (the most work in one hold of a
//!   zone lock), and for each zone `allocs_zone_<id>`, blocks allocated in it.
//! - Left out: what the CPUs did between the events of the trace, and zeroing.

use super::{Needs, Stage, Workload};
use crate::coroutine::{self, Body};
use crate::engine;
use crate::machine::Machine;
use crate::outcome::Figure;
use crate::replay::{Action, Script, Step, Steps, insist};
use crate::run::{SimError, Spec};
use crate::sleeper::Sleeper;
use crate::task::{Task, count, idle};
use crate::ticks::Ticks;
use core::cell::{Cell, RefCell};
use zonal::{Order, Pfn};

/// How long a refused request waits before it is made again.
const AGAIN: Ticks = Ticks(2_000 * Ticks::PER_CYCLE);

/// The workload.
pub(crate) struct Replay<'s> {
    script: &'s Script,
    frames: u64,
    blocks: Vec<Cell<Block>>,
    /// Which task waits for a block.
    waiting: RefCell<Vec<(usize, usize)>>,
    sleepers: Vec<Sleeper>,
    /// The step each task is at.
    at: Vec<Cell<u32>>,
    live: Cell<u64>,
    peak: Cell<u64>,
}

#[derive(Clone, Copy, PartialEq)]
enum Block {
    Awaited,
    Refused,
    There(Pfn),
    /// Freed since.
    Was(Pfn),
}

impl<'s> Replay<'s> {
    /// On `frames` frames, with `tasks` tasks.
    pub(crate) fn new(script: &'s Script, frames: u64, tasks: u32) -> Self {
        let tasks = 0..tasks;
        Self {
            script,
            frames,
            blocks: vec![Cell::new(Block::Awaited); script.blocks()],
            waiting: RefCell::default(),
            sleepers: tasks.clone().map(|_| Sleeper::default()).collect(),
            at: tasks.map(|_| Cell::new(0)).collect(),
            live: Cell::new(0),
            peak: Cell::new(0),
        }
    }

    fn run(&self, own: usize, mut task: Task<'_>, steps: &Steps<'_>) {
        for step in steps.iter() {
            self.at[own].set(step.at);
            coroutine::pause_if_early();
            match step.action {
                Action::Alloc(request) => {
                    let are_others_before = || self.at.iter().any(|at| at.get() < step.at);
                    let got = insist(|| task.ask(&request), are_others_before, || idle(AGAIN));
                    self.arrived(&step, got.ok(), request.order());
                }
                Action::Free => self.free(own, &mut task, &step),
            }
            count("operations", 1);
        }
        self.at[own].set(u32::MAX);
    }

    fn arrived(&self, step: &Step, got: Option<Pfn>, order: Order) {
        let at = step.block.index();
        self.blocks[at].set(got.map_or(Block::Refused, Block::There));
        match got {
            Some(_) => self.live.set(self.live.get() + order.frames()),
            None => count("failures", 1),
        }
        self.peak.set(self.peak.get().max(self.live.get()));
        let mut waiting = self.waiting.borrow_mut();
        if let Some(found) = waiting.iter().position(|&(block, _)| block == at) {
            let (_, task) = waiting.swap_remove(found);
            self.sleepers[task].wake(Ticks::default());
        }
    }

    fn free(&self, own: usize, task: &mut Task<'_>, step: &Step) {
        let block = &self.blocks[step.block.index()];
        if block.get() == Block::Awaited {
            self.waiting.borrow_mut().push((step.block.index(), own));
            self.sleepers[own].sleep();
        }
        if let Block::There(pfn) = block.get() {
            let order = self.script.order_of(step.block);
            block.set(Block::Was(pfn));
            // Before it is given back: the task that gets it counts it again.
            self.live.set(self.live.get() - order.frames());
            task.give(&[pfn], order);
        }
    }
}

impl Workload for Replay<'_> {
    fn needs(&self, machine: &Machine, spec: &Spec) -> Result<Needs, SimError> {
        let wanted = self.script.peak_frames();
        if wanted > self.frames {
            let reason = format!("it has {wanted} frames in use at once, of {}", self.frames);
            return Err(spec.misfit(machine, reason));
        }
        Ok(Needs {
            frames_a_socket: self.frames / u64::from(machine.topology.sockets),
            counted: "operations",
            warm_up: 0,
            measure: u64::MAX,
            rates: false,
        })
    }

    fn tasks<'a>(&'a self, stage: &'a Stage<'a>) -> Vec<Body<'a>> {
        let folded = self.script.folded(stage.spec.tasks as usize).into_iter().enumerate();
        let task = |(own, steps): (usize, Steps<'a>)| -> Body<'a> {
            let task = stage.task(own as u32);
            Box::new(move || self.run(own, task, &steps))
        };
        folded.map(task).collect()
    }

    fn figures(&self, stage: &Stage<'_>) -> Vec<Figure> {
        let figure = |name: &str, value: u64| Figure::new(name, value as f64, "count");
        let mut figures = vec![figure("peak_frames", self.peak.get())];
        let mut hold_max = 0;
        for zone in stage.allocator.zones() {
            hold_max = hold_max.max(zone.events.hold_max);
            let (from, to) = (zone.start.get(), zone.start.get() + zone.spanned);
            let inside = self.blocks.iter().filter(|block| match block.get() {
                Block::There(pfn) | Block::Was(pfn) => (from..to).contains(&pfn.get()),
                Block::Awaited | Block::Refused => false,
            });
            figures.push(figure(&format!("allocs_zone_{}", zone.zone.0), inside.count() as u64));
        }
        figures.push(figure("hold_max", hold_max.into()));
        if engine::with(|engine| engine.measured.counts().iter().all(|it| it.0 != "failures"))
            != Some(false)
        {
            figures.push(figure("failures", 0));
        }
        figures
    }
}
