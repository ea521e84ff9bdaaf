//! `page_fault1` of will-it-scale: each task maps 128 MiB, writes to every page, unmaps it, again
//! and again; as processes, or as threads of one process.
//!
//! The benchmark starts all tasks at once. Where they wait for a fair lock it keeps them together,
//! so that they all map for a while and then all unmap; where they do not, they drift apart
//! (`spread` of the machine). A run shows a few rounds of that. To be short, a round maps and
//! unmaps only a part of the 128 MiB, beside a part that stays, so that as much memory is in use
//! as on average in a whole cycle, and what is unmapped was mapped long before.

use super::{Needs, Stage, Workload};
use crate::coroutine::Body;
use crate::machine::Machine;
use crate::run::{SimError, Spec};
use crate::space_lock::{Mode, SpaceLock};
use crate::task::{Task, count, stopped};
use core::cell::OnceCell;
use std::collections::VecDeque;
use zonal::plan::Config;
use zonal::{Order, Pfn};

/// Pages of a mapping.
pub(crate) const MAPPED: usize = 32_768;
/// The part of a round that maps, by time, where nobody waits.
const MAPS: f64 = 0.7;
/// Pages that a task maps or unmaps at a turn while memory is aged.
const TURN: usize = 31;

/// The workload.
pub(crate) struct PageFault {
    /// Whether the tasks are threads of one process.
    pub(crate) threads: bool,
    /// Whether the per-CPU lists hold all that a task maps.
    pub(crate) huge_batch: bool,
    /// The lock of the one address space.
    space: OnceCell<Box<SpaceLock>>,
}

impl PageFault {
    pub(crate) const fn new(threads: bool, huge_batch: bool) -> Self {
        Self { threads, huge_batch, space: OnceCell::new() }
    }
}

impl Workload for PageFault {
    fn needs(&self, machine: &Machine, spec: &Spec) -> Result<Needs, SimError> {
        let sockets = u64::from(machine.topology.sockets);
        // All tasks may be on one socket; a fifth more stays free.
        let tasks = u64::from(spec.tasks);
        let on_one = tasks.min(u64::from(machine.topology.cpus()) / sockets);
        let faults = tasks * round(spec) as u64;
        Ok(Needs {
            frames_a_socket: (on_one * MAPPED as u64 * 5 / 4).max(1 << 18),
            counted: "faults",
            warm_up: faults,
            // Few tasks need more rounds to have seen as much.
            measure: faults * (60_000 / faults + 1),
            rates: true,
        })
    }

    fn config(&self, config: Config) -> Config {
        let all = 2 * MAPPED as u32;
        Config { pcp_high: self.huge_batch.then_some(all), ..config }
    }

    fn tasks<'a>(&'a self, stage: &'a Stage<'a>) -> Vec<Body<'a>> {
        let new = || SpaceLock::new(&stage.machine.kernel);
        let space: Option<&SpaceLock> = self.threads.then(|| &**self.space.get_or_init(new));
        let round = round(&stage.spec);
        let mut processes: Vec<_> = (0..stage.spec.tasks)
            .map(|cpu| {
                let mut task = stage.task(cpu);
                task.others = if self.threads { stage.spec.tasks - 1 } else { 0 };
                Process {
                    task,
                    mapped: VecDeque::with_capacity(MAPPED),
                    grows: true,
                    faults: round,
                    unmaps: round,
                }
            })
            .collect();
        let cycles = if stage.spec.quick { 1 } else { 2 };
        let (mut random, spread) = (stage.random(u32::MAX), stage.machine.kernel.spread);
        age(&mut processes, &mut random, cycles, round, spread);
        let begin = |task| -> Body<'a> {
            match space {
                Some(space) => Box::new(move || thread(task, round, space)),
                None => Box::new(move || process(task, round)),
            }
        };
        processes.into_iter().map(begin).collect()
    }
}

/// Pages that each task maps and unmaps in one round.
const fn round(spec: &Spec) -> usize {
    if spec.quick { MAPPED / 16 } else { MAPPED / 4 }
}

/// A task and what it has mapped, oldest first.
struct Process<'a> {
    task: Task<'a>,
    mapped: VecDeque<Pfn>,
    /// Whether it maps or unmaps while memory is aged.
    grows: bool,
    /// Faults and pages to unmap that are left of the first round.
    faults: usize,
    unmaps: usize,
}

impl Process<'_> {
    fn map_free(&mut self, count: usize) {
        for _ in 0..count {
            self.mapped.push_back(self.task.take(Order::ZERO).expect("memory for what is mapped"));
        }
    }

    fn unmap_free(&mut self, count: usize) {
        let frames: Vec<_> = self.mapped.drain(..count).collect();
        self.task.give(&frames, Order::ZERO);
    }

    /// A few steps of the whole cycle at no cost.
    fn age(&mut self) {
        if self.grows {
            self.map_free(TURN.min(MAPPED - self.mapped.len()));
            self.grows = self.mapped.len() < MAPPED;
        } else {
            self.unmap_free(TURN.min(self.mapped.len()));
            self.grows = self.mapped.is_empty();
        }
    }

    /// Is at a place of a round, beside `resident` pages, with what is mapped listed.
    fn settle(&mut self, resident: usize, round: usize, place: f64) {
        if place < MAPS {
            self.faults = round - (round as f64 * place / MAPS) as usize;
            self.mapped_now(resident + round - self.faults);
        } else {
            self.unmaps = (round as f64 * (1.0 - place) / (1.0 - MAPS)) as usize;
            self.faults = 0;
            self.mapped_now(resident + self.unmaps);
        }
    }

    fn mapped_now(&mut self, wanted: usize) {
        self.map_free(wanted.saturating_sub(self.mapped.len()));
        self.unmap_free(self.mapped.len() - wanted);
        self.task.lru.add(&self.task.pages, self.task.cpu, self.mapped.make_contiguous());
    }

    fn fault(&mut self) {
        self.mapped.push_back(self.task.fault().expect("memory for what is mapped"));
        count("faults", 1);
    }

    /// Unmaps the oldest pages, as one range.
    fn unmap(&mut self, round: usize) {
        let count = core::mem::replace(&mut self.unmaps, round);
        let frames: Vec<_> = self.mapped.drain(..count).collect();
        self.task.map_range();
        self.task.unmap(&frames, Order::ZERO);
    }
}

/// Brings memory to where it is after a while: tasks begin at random places of the cycle and
/// take turns; then all go to the
/// beginning of a round, or to some place in it.
fn age(
    processes: &mut [Process<'_>],
    random: &mut fastrand::Rng,
    cycles: usize,
    round: usize,
    spread: f64,
) {
    let steps = 2 * MAPPED.div_ceil(TURN);
    let mut waits: Vec<_> = processes.iter().map(|_| random.usize(..steps)).collect();
    for _ in 0..steps * (cycles + 1) {
        for (process, wait) in processes.iter_mut().zip(&mut waits) {
            if *wait > 0 {
                *wait -= 1;
            } else {
                process.age();
            }
        }
    }
    let resident = (MAPPED - round) / 2;
    for process in processes {
        process.settle(resident, round, random.f64() * spread);
    }
}

fn process(mut process: Process<'_>, round: usize) {
    while !stopped() {
        for _ in 0..core::mem::replace(&mut process.faults, round) {
            process.fault();
        }
        process.unmap(round);
        process.task.map_range();
    }
}

fn thread(mut process: Process<'_>, round: usize, space: &SpaceLock) {
    while !stopped() {
        for _ in 0..core::mem::replace(&mut process.faults, round) {
            space.with(Mode::Read, || process.fault());
        }
        space.with(Mode::Write, || process.unmap(round));
        space.with(Mode::Write, || process.task.map_range());
    }
}
