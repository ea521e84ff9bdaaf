//! `truncate`: files whose pages are all in the page cache are truncated, one after the other.
//!
//! - Source: Gorman 2017, patch 1 (what it saves to turn interrupts off once for a list of pages),
//!   measured with mmtests' `sparsetruncate-tiny`: 16 directories of 16 files of 4 MiB; the time
//!   that truncating each takes.
//! - Mechanism: for each list of 14 pages ([`PAGEVEC`] of Linux 4.14) the pages leave the page
//!   cache's tree ([`truncate_page`](crate::machine::Kernel::truncate_page) each, and a write to
//!   the `struct page`), then the LRU lists under their lock, then they are freed as one list. The
//!   `struct page`s of all files together exceed the caches, so those of a file come from memory.
//! - Figures: what the table says of the times that files take; entries of a CPU's cache (interrupt
//!   toggles, with presets that keep lists) for each page freed.
//! - Scaling: none, on one task. Where the files of all tasks would take more than three quarters
//!   of memory, each has as many as that allows.
//! - Left out: creating the files, which is not timed either; the file system's and the system
//!   call's own work, which is in `truncate_page`; interrupts, other programs and the disk, so that
//!   files differ less here than they did there.

use super::process::MEMORY;
use super::{Needs, Stage, Workload};
use crate::coroutine::{self, Body};
use crate::engine;
use crate::machine::Machine;
use crate::mix::PAGEVEC;
use crate::outcome::Figure;
use crate::run::{SimError, Spec};
use crate::task::{Task, count, spend};
use crate::ticks::Ticks;
use core::cell::RefCell;
use zonal::info::ZoneInfo;
use zonal::{CpuEvents, CpuId, Order, Pfn};
use zonal_scenario::truncate::{self, Statistic, Times};

/// Files of a task.
const FILES: u64 = truncate::FILES as u64;
/// Files that are truncated first, unmeasured.
const WARM_UP: u64 = 16;
/// Files without which there is nothing to measure.
const LEAST: u64 = 2 * WARM_UP;
/// Pages of a file.
const PAGES: u64 = truncate::PAGES as u64;

/// The workload.
#[derive(Default)]
pub(crate) struct Truncate {
    /// How long each file took.
    took: RefCell<Vec<Ticks>>,
}

impl Truncate {
    fn files(machine: &Machine, spec: &Spec) -> u64 {
        let on_one = machine.topology.on_one_socket(spec.tasks);
        // A quarter stays free.
        let room = machine.topology.frames_a_socket() * 3 / 4 / (on_one * PAGES);
        room.min(if spec.quick { FILES / 4 } else { FILES })
    }
}

impl Workload for Truncate {
    fn needs(&self, machine: &Machine, spec: &Spec) -> Result<Needs, SimError> {
        let files = Self::files(machine, spec);
        if files < LEAST {
            let reason = format!("it has room for {files} files a task, of at least {LEAST}");
            return Err(spec.misfit(machine, reason));
        }
        Ok(Needs {
            frames_a_socket: machine.topology.frames_for_all(spec.tasks, files * PAGES * 4 / 3),
            counted: "files",
            warm_up: 0,
            measure: files * u64::from(spec.tasks),
            rates: false,
        })
    }

    fn tasks<'a>(&'a self, stage: &'a Stage<'a>) -> Vec<Body<'a>> {
        let files = Self::files(stage.machine, &stage.spec);
        let page = Ticks::from_cycles(stage.machine.kernel.truncate_page);
        let task = |cpu| -> Body<'a> {
            let mut task = stage.task(cpu);
            let pages: Vec<Pfn> =
                (0..files * PAGES).map(|_| task.take(Order::ZERO).expect(MEMORY)).collect();
            stage.lru.add(&stage.pages, cpu, &pages);
            Box::new(move || {
                for (nth, file) in (0_u64..).zip(pages.chunks(PAGES as usize)) {
                    let began = engine::now();
                    truncate(&mut task, file, page);
                    if nth >= WARM_UP {
                        self.took.borrow_mut().push(engine::now() - began);
                    }
                    count("files", 1);
                }
            })
        };
        (0..stage.spec.tasks).map(task).collect()
    }

    fn figures(&self, stage: &Stage<'_>) -> Vec<Figure> {
        let us = |time: &Ticks| stage.machine.clock.ns(*time) / 1e3;
        let times = Times::new(self.took.borrow().iter().map(us));
        let events = listed(stage);
        let entries = events.bulk_entries as f64 / events.bulk_frames.max(1) as f64;
        let figure = |statistic: Statistic| {
            Figure::new(statistic.figure(), times.of(statistic), statistic.unit())
        };
        let mut figures: Vec<_> = Statistic::ALL.into_iter().map(figure).collect();
        figures.push(Figure::new("toggles_a_page", entries, "count"));
        figures
    }
}

/// Takes a file's pages out of the page cache, list by list, and frees them.
fn truncate(task: &mut Task<'_>, file: &[Pfn], page: Ticks) {
    for list in file.chunks(PAGEVEC) {
        coroutine::pause_if_early();
        for &pfn in list {
            spend(page);
            task.pages.touch(pfn, true);
        }
        task.lru.delete(&task.pages, task.cpu, list);
        task.give_list(list);
    }
}

/// What all CPUs' caches counted.
fn listed(stage: &Stage<'_>) -> CpuEvents {
    let allocator = stage.allocator;
    let of_zone = |zone: ZoneInfo| {
        let cpus = (0..allocator.cpus()).map(CpuId);
        cpus.filter_map(move |cpu| allocator.cache_info(zone.zone, cpu))
    };
    let caches = allocator.zones().flat_map(of_zone);
    caches.map(|cache| cache.events).fold(CpuEvents::default(), CpuEvents::plus)
}
