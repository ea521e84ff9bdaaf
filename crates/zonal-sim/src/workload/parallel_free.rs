//! Freeing a huge mapping in parallel, as the 2018 series measured it: one process has mapped two
//! thirds of memory and exits; each task unmaps and frees its part.
//!
//! Only a stretch of it is simulated, of the size that the run needs: once the metadata of what
//! is freed exceeds the caches many times, more of it changes nothing. A machine that has less
//! memory maps two thirds of that.

use super::{Needs, Stage, Workload};
use crate::coroutine::{self, Body};
use crate::machine::Machine;
use crate::run::{SimError, Spec};
use crate::task::{Task, count, stopped};
use zonal::{Order, Pfn};

/// Pages that a worker frees at a time: what unmapping gathers.
const BATCH: usize = 512;

/// Batches that each task frees at least.
const LEAST: u64 = 4;

/// The workload.
pub(crate) struct ParallelFree;

impl ParallelFree {
    fn pages(machine: &Machine, spec: &Spec) -> u64 {
        let memory = machine.topology.frames_a_socket() * u64::from(machine.topology.sockets);
        let stretch = if spec.quick { 2 << 20 } else { 4 << 20 };
        stretch.min(memory * 2 / 3)
    }
}

impl Workload for ParallelFree {
    fn needs(&self, machine: &Machine, spec: &Spec) -> Result<Needs, SimError> {
        let pages = Self::pages(machine, spec);
        let least = u64::from(spec.tasks) * LEAST * BATCH as u64;
        if pages < least {
            let mib = (least * 3 / 2).div_ceil(1 << 8);
            return Err(spec.misfit(machine, format!("it takes {mib} MiB of memory")));
        }
        Ok(Needs {
            frames_a_socket: pages * 3 / 2 / u64::from(machine.topology.sockets),
            counted: "freed",
            warm_up: pages / 10,
            measure: pages * 7 / 10,
            rates: true,
        })
    }

    fn tasks<'a>(&'a self, stage: &'a Stage<'a>) -> Vec<Body<'a>> {
        let tasks = stage.spec.tasks;
        let part = (Self::pages(stage.machine, &stage.spec) / u64::from(tasks)) as usize;
        let task = |cpu| -> Body<'a> {
            let mut task = stage.task(cpu);
            let mapped: Vec<_> =
                (0..part).map(|_| task.take(Order::ZERO).expect("two thirds of memory")).collect();
            stage.lru.add(&stage.pages, cpu, &mapped);
            Box::new(move || free(task, &mapped))
        };
        (0..tasks).map(task).collect()
    }
}

fn free(mut task: Task<'_>, mapped: &[Pfn]) {
    for batch in mapped.chunks(BATCH) {
        if stopped() {
            return;
        }
        coroutine::pause_if_early();
        task.unmap(batch, Order::ZERO);
        count("freed", batch.len() as u64);
    }
}
