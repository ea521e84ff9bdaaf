//! `truncate`: files whose pages are all in the page cache are truncated, one after the other.
//!
//! - Source: Gorman 2017, patch 1 (what it saves to turn interrupts off once for a list of pages),
//!   measured with mmtests' `sparsetruncate-tiny`: 16 directories of 16 files of 4 MiB; the time
//!   that truncating each takes.
//! - Mechanism: the page cache is [`zonal_cache`]'s, [on virtual CPUs](crate::cache). A file that is truncated
//!   leaves its index, and then, a list of 14 pages at a time ([`PAGEVEC`] of Linux 4.14), the LRU lists under their lock
//!   and the page cache: they are freed as one list. What the kernel does besides is
//!   [`truncate_page`](crate::machine::Kernel::truncate_page) each. The `struct page`s of all files together exceed
//!   the caches, so those of a file come from memory.
//! - Figures: what the table says of the times that files take; entries of a CPU's cache (interrupt
//!   toggles, with presets that keep lists) for each page freed.
//! - Scaling: none, on one task. Where the files of all tasks would take more than three quarters
//!   of memory, each has as many as that allows.
//! - Lists without a lock (`none`) the page cache has not: there each task has one of its own, as with `split`.
//! - Left out: creating and reading the files, which is not timed either; the file system's and the system
//!   call's own work, which is in `truncate_page`; interrupts, other programs and the disk, so that
//!   files differ less here than they did there.

use super::process::MEMORY;
use super::{Needs, Stage, Workload};
use crate::cache::{Costs, Disk, DiskFile, PerTask, SimCache, SimFile, SimFrames};
use crate::coroutine::{self, Body};
use crate::engine;
use crate::machine::Machine;
use crate::mix::PAGEVEC;
use crate::outcome::Figure;
use crate::platform::Sim;
use crate::run::{LruLock, SimError, Spec};
use crate::task::count;
use crate::ticks::Ticks;
use core::cell::RefCell;
use std::sync::Arc;
use zonal::info::ZoneInfo;
use zonal::{CpuEvents, CpuId};
use zonal_cache::cache::Options;
use zonal_cache::frames::PAGE;
use zonal_cache::lru::{self, PerNode, PerOwner};
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

    /// The tasks, over a cache whose lists are under the lock that `L` says.
    fn on<'a, L: lru::LruLock>(&'a self, stage: &'a Stage<'a>) -> Vec<Body<'a>> {
        let (machine, tasks) = (stage.machine, stage.spec.tasks);
        let files = Self::files(machine, &stage.spec);
        let pages = (files * PAGES * u64::from(tasks)) as usize;
        let options = Options { pages, window: 0, ..Options::default() };
        let frames = SimFrames::new(Costs::of_truncating(&machine.kernel));
        let host = Sim::new(machine.topology);
        let cache = SimCache::<L>::with_parts(host, frames, options).expect(MEMORY);
        let disk = Arc::new(Disk::new(&machine.clock));
        // One after the other, so that files of tasks are owned by locks of their own where there are such.
        let mut cached: Vec<Vec<SimFile<L>>> = (0..tasks).map(|_| Vec::new()).collect();
        for _ in 0..files {
            for (cpu, cached) in (0..).zip(&mut cached) {
                engine::set_up_for(cpu);
                let file = cache.open(DiskFile::new(&disk, PAGES)).expect("it has a length");
                read(&file);
                cached.push(file);
            }
        }
        engine::set_up_for(0);
        let task = |files: Vec<SimFile<L>>| -> Body<'a> {
            Box::new(move || {
                for (nth, file) in (0_u64..).zip(&files) {
                    coroutine::pause_if_early();
                    let began = engine::now();
                    file.truncate(0).expect("the store is the disk's");
                    if nth >= WARM_UP {
                        self.took.borrow_mut().push(engine::now() - began);
                    }
                    count("files", 1);
                }
            })
        };
        cached.into_iter().map(task).collect()
    }
}

/// Has a file be in memory, as a whole.
fn read<L: lru::LruLock>(file: &SimFile<L>) {
    let mut into = vec![0; PAGES as usize * PAGE];
    assert_eq!(file.read_at(&mut into, 0), Ok(into.len()), "{MEMORY}");
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
        match stage.spec.lru {
            // One list, and batches all the same.
            LruLock::Whole => self.on::<PerOwner<PAGEVEC, 1>>(stage),
            // The memory of a node is one zone.
            LruLock::Zone | LruLock::Node => self.on::<PerNode<PAGEVEC>>(stage),
            LruLock::Split | LruLock::None => self.on::<PerTask<PAGEVEC>>(stage),
        }
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
