//! `page_fault1` of will-it-scale: each task maps 128 MiB, writes to every page, unmaps it, again
//! and again; as processes, or as threads of one process.
//!
//! The benchmark starts all tasks at once. Where they wait for a fair lock it keeps them together,
//! so that they nearly all map for a while and then all unmap, and what is free merges. A run shows a
//! whole cycle of that. Where they hardly wait they drift apart (`spread` of the machine is 1), and as
//! much memory is free at any time: then a round maps and unmaps a part of the 128 MiB, beside a part
//! that stays, as much as on average in a whole cycle, and what is unmapped was mapped long before.
//!
//! Before that memory is aged: the tasks go through some cycles in turns, at no cost in virtual time,
//! so that free lists are in the order, or disorder, in which the preset and these tasks leave them.

use super::{Needs, Stage, Workload};
use crate::coroutine::Body;
use crate::machine::Machine;
use crate::run::{SimError, Spec};
use crate::space_lock::{Mode, SpaceLock};
use crate::task::{Task, count, stopped};
use core::cell::OnceCell;
use std::collections::VecDeque;
use zonal::{MigrateType, Order, Pfn, Request};

/// Pages of a mapping.
pub(crate) const MAPPED: usize = 32_768;
/// The part of a cycle that maps, by time, where no CPU waits.
const MAPS: f64 = 0.7;
/// Page faults to a page table: the mapping is dense.
const FAULTS_PER_TABLE: usize = 512;
/// Pages that a task maps at a turn while memory is aged, on average.
const TURN: usize = 31;
/// Cycles before the run: what 112 tasks go through in the five seconds that the benchmark takes.
const AGE: usize = 10;
/// The same where tasks are apart: memory then looks the same after two.
const AGE_APART: usize = 2;

/// The workload.
pub(crate) struct PageFault {
    /// Whether the tasks are threads of one process.
    pub(crate) threads: bool,
    /// The lock of the one address space.
    space: OnceCell<Box<SpaceLock>>,
}

impl PageFault {
    pub(crate) const fn new(threads: bool) -> Self {
        Self { threads, space: OnceCell::new() }
    }
}

impl Workload for PageFault {
    fn needs(&self, machine: &Machine, spec: &Spec) -> Result<Needs, SimError> {
        // A fifth stays free.
        let frames = machine.topology.frames_for_all(spec.tasks, MAPPED as u64 * 5 / 4);
        let faults = u64::from(spec.tasks) * Cycle::of(machine, spec).round as u64;
        Ok(Needs {
            frames_a_socket: frames.max(1 << 18),
            counted: "faults",
            warm_up: faults,
            // Few tasks need more rounds to have seen as much.
            measure: faults * (60_000 / faults + 1),
            rates: true,
        })
    }

    fn tasks<'a>(&'a self, stage: &'a Stage<'a>) -> Vec<Body<'a>> {
        let new = || SpaceLock::new(&stage.machine.kernel);
        let space: Option<&SpaceLock> = self.threads.then(|| &**self.space.get_or_init(new));
        let cycle = Cycle::of(stage.machine, &stage.spec);
        let process = |cpu| {
            let mut task = stage.task(cpu);
            task.others = if self.threads { stage.spec.tasks - 1 } else { 0 };
            Process::new(task, cycle)
        };
        let mut processes: Vec<_> = (0..stage.spec.tasks).map(process).collect();
        age(&mut processes, &mut stage.random(u32::MAX), stage.machine.kernel.spread);
        let begin = |process: Process<'a>| -> Body<'a> {
            match space {
                Some(space) => Box::new(move || thread(process, space)),
                None => Box::new(move || run(process)),
            }
        };
        processes.into_iter().map(begin).collect()
    }
}

/// What a task does again and again.
#[derive(Clone, Copy)]
struct Cycle {
    /// Whether tasks are anywhere in their cycles.
    apart: bool,
    /// Pages of its mapping.
    pages: usize,
    /// Pages that it maps and unmaps in one round.
    round: usize,
}

impl Cycle {
    fn of(machine: &Machine, spec: &Spec) -> Self {
        let apart = machine.kernel.spread >= 1.0;
        let (pages, round) = match (apart, spec.quick) {
            (true, true) => (MAPPED, MAPPED / 16),
            (true, false) => (MAPPED, MAPPED / 4),
            (false, true) => (MAPPED / 4, MAPPED / 4),
            (false, false) => (MAPPED, MAPPED),
        };
        Self { apart, pages, round }
    }
}

/// A task and what it has mapped, oldest first.
struct Process<'a> {
    task: Task<'a>,
    cycle: Cycle,
    mapped: VecDeque<Pfn>,
    tables: Vec<Pfn>,
    /// Whether it maps or unmaps while memory is aged.
    maps: bool,
    /// Faults and pages to unmap that are left of the first round.
    faults: usize,
    unmaps: usize,
}

impl<'a> Process<'a> {
    fn new(task: Task<'a>, cycle: Cycle) -> Self {
        let mapped = VecDeque::with_capacity(cycle.pages);
        let (faults, unmaps) = (cycle.round, cycle.round);
        Self { task, cycle, mapped, tables: Vec::new(), maps: true, faults, unmaps }
    }

    fn map_free(&mut self, count: usize) {
        for _ in 0..count {
            self.grow_table();
            self.mapped.push_back(self.task.take(Order::ZERO).expect("memory for what is mapped"));
        }
    }

    fn unmap_free(&mut self, count: usize) {
        let frames: Vec<_> = self.mapped.drain(..count).collect();
        self.task.give(&frames, Order::ZERO);
    }

    /// A few steps of the whole cycle at no cost.
    fn turn(&mut self, random: &mut fastrand::Rng) {
        let count = random.usize(1..2 * TURN);
        if self.maps {
            self.map_free(count.min(self.cycle.pages - self.mapped.len()));
            self.maps = self.mapped.len() < self.cycle.pages;
        } else {
            let faster = count as f64 * MAPS / (1.0 - MAPS);
            self.unmap_free((faster as usize).min(self.mapped.len()));
            self.maps = self.mapped.is_empty();
            if self.maps {
                self.free_tables();
            }
        }
    }

    /// Begins its first round: where aging has left it, or at a place of it, from 0 to 1. What is
    /// mapped is listed.
    fn settle(&mut self, place: f64) {
        let Cycle { apart, pages, round } = self.cycle;
        // As much stays as is mapped on average beside a round.
        let resident = (pages - round) / 2;
        if !apart {
            self.faults = if self.maps { pages - self.mapped.len() } else { 0 };
        } else if place < MAPS {
            self.faults = round - (round as f64 * place / MAPS) as usize;
            self.mapped_now(resident + round - self.faults);
        } else {
            self.unmaps = (round as f64 * (1.0 - place) / (1.0 - MAPS)) as usize;
            self.faults = 0;
            self.mapped_now(resident + self.unmaps);
        }
        self.task.lru.add(&self.task.pages, self.task.cpu, self.mapped.make_contiguous());
    }

    fn mapped_now(&mut self, wanted: usize) {
        self.map_free(wanted.saturating_sub(self.mapped.len()));
        self.unmap_free(self.mapped.len() - wanted);
    }

    /// At one fault in [`FAULTS_PER_TABLE`] a page table is new.
    fn grow_table(&mut self) {
        if self.mapped.len().is_multiple_of(FAULTS_PER_TABLE) {
            let request = Request::frame().migrate(MigrateType::Unmovable);
            self.tables.push(self.task.ask(&request).expect("memory for page tables"));
        }
    }

    fn free_tables(&mut self) {
        self.task.give(&self.tables, Order::ZERO);
        self.tables.clear();
    }

    fn fault(&mut self) {
        self.grow_table();
        self.mapped.push_back(self.task.fault().expect("memory for what is mapped"));
        count("faults", 1);
    }

    /// The faults of a round that are left.
    fn left(&mut self) -> usize {
        core::mem::replace(&mut self.faults, self.cycle.round)
    }

    /// Unmaps the oldest pages, as one range.
    fn unmap(&mut self) {
        let count = core::mem::replace(&mut self.unmaps, self.cycle.round);
        let frames: Vec<_> = self.mapped.drain(..count.min(self.mapped.len())).collect();
        self.task.map_range();
        self.task.unmap(&frames, Order::ZERO);
        self.free_tables();
    }
}

/// Brings memory to where it is after a while: tasks begin as far apart in the whole cycle as
/// `spread` says, and take turns; then each begins its first round.
fn age(processes: &mut [Process<'_>], random: &mut fastrand::Rng, spread: f64) {
    let Some(&Process { cycle, .. }) = processes.first() else { return };
    let steps = (cycle.pages as f64 / MAPS) as usize / TURN;
    let mut waits: Vec<_> =
        processes.iter().map(|_| (random.f64() * spread * steps as f64) as usize).collect();
    for _ in 0..steps * if cycle.apart { AGE_APART } else { AGE } {
        for (process, wait) in processes.iter_mut().zip(&mut waits) {
            match wait.checked_sub(1) {
                Some(left) => *wait = left,
                None => process.turn(random),
            }
        }
    }
    for process in processes {
        process.settle(random.f64() * spread);
    }
}

/// Maps and unmaps for as long as it takes.
fn run(mut process: Process<'_>) {
    while !stopped() {
        (0..process.left()).for_each(|_| process.fault());
        process.unmap();
        process.task.map_range();
    }
}

/// As [`run`], in an address space that others share.
fn thread(mut process: Process<'_>, space: &SpaceLock) {
    while !stopped() {
        for _ in 0..process.left() {
            space.with(Mode::Read, || process.fault());
        }
        space.with(Mode::Write, || process.unmap());
        space.with(Mode::Write, || process.task.map_range());
    }
}
