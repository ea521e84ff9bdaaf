//! `page_fault1` of will-it-scale: each task maps 128 MiB, writes to every page, unmaps it, again
//! and again; as processes, or as threads of one process.
//!
//! Tasks begin at random places of that cycle, as they would be after a while.

use super::{Needs, Stage, Workload};
use crate::coroutine::Body;
use crate::machine::Machine;
use crate::run::{SimError, Spec};
use crate::space_lock::{Mode, SpaceLock};
use crate::task::{Task, count, stopped};
use core::cell::OnceCell;
use zonal::plan::Config;
use zonal::policy::Policy;
use zonal::{Order, Pfn};

/// Pages of a mapping.
pub(crate) const MAPPED: usize = 32_768;
/// Pages set up at a time for each task, so that the tasks' frames lie mixed.
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
        let tasks = u64::from(spec.tasks);
        let sockets = u64::from(machine.topology.sockets);
        // All tasks may be on one socket; a fifth more stays free.
        let on_one = tasks.min(u64::from(machine.topology.cpus()) / sockets);
        let faults = if spec.quick { 150_000 } else { 500_000 };
        let whole_cycle = tasks * MAPPED as u64 * 5 / 4;
        Ok(Needs {
            frames_a_socket: (on_one * MAPPED as u64 * 6 / 5).max(1 << 18),
            counted: "faults",
            warm_up: whole_cycle.min(faults),
            measure: faults,
            rates: true,
        })
    }

    fn config(&self, config: Config) -> Config {
        let all = 2 * MAPPED as u32;
        Config { pcp_high: self.huge_batch.then_some(all), ..config }
    }

    fn tasks<'a, S: Policy>(&'a self, stage: &'a Stage<'a, '_, S>) -> Vec<Body<'a>> {
        let mut random = stage.random(u32::MAX);
        let mut tasks: Vec<_> = (0..stage.spec.tasks)
            .map(|cpu| {
                let mapped = Vec::with_capacity(MAPPED);
                let mut task = stage.task(cpu);
                task.others = if self.threads { stage.spec.tasks - 1 } else { 0 };
                (task, mapped, random.usize(..MAPPED))
            })
            .collect();
        populate(&mut tasks);
        let new = || SpaceLock::new(&stage.machine.kernel);
        let space: Option<&SpaceLock> = self.threads.then(|| &**self.space.get_or_init(new));
        let begin = |(task, mapped, _)| -> Body<'a> {
            match space {
                Some(space) => Box::new(move || thread(task, mapped, space)),
                None => Box::new(move || process(task, mapped)),
            }
        };
        tasks.into_iter().map(begin).collect()
    }
}

/// Gives each task what it has mapped already.
fn populate<S: Policy>(tasks: &mut [(Task<'_, '_, S>, Vec<Pfn>, usize)]) {
    let mut more = true;
    while more {
        more = false;
        for (task, mapped, wanted) in tasks.iter_mut() {
            let count = (*wanted - mapped.len()).min(TURN);
            for _ in 0..count {
                mapped.push(task.take(Order::ZERO).expect("memory for what is mapped"));
            }
            task.lru.add(&task.pages, task.cpu, &mapped[mapped.len() - count..]);
            more |= count > 0;
        }
    }
}

fn process<S: Policy>(mut task: Task<'_, '_, S>, mut mapped: Vec<Pfn>) {
    while !stopped() {
        if mapped.len() == MAPPED {
            task.map_range();
            task.unmap(&mapped, Order::ZERO);
            task.map_range();
            mapped.clear();
        }
        mapped.push(task.fault().expect("memory for what is mapped"));
        count("faults", 1);
    }
}

fn thread<S: Policy>(mut task: Task<'_, '_, S>, mut mapped: Vec<Pfn>, space: &SpaceLock) {
    while !stopped() {
        if mapped.len() == MAPPED {
            space.with(Mode::Write, || {
                task.map_range();
                task.unmap(&mapped, Order::ZERO);
            });
            space.with(Mode::Write, || task.map_range());
            mapped.clear();
        }
        let fault = space.with(Mode::Read, || task.fault());
        mapped.push(fault.expect("memory for what is mapped"));
        count("faults", 1);
    }
}
