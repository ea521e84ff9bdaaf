//! `kbuild`: `make -j` with as many jobs as CPUs.
//!
//! - Source: Lu 2018, patch 4 (how often a batch that per-CPU lists give back is of a single
//!   migrate type, on a desktop); Huang 2023 (waiting for the zone lock with `-j224`, one zone
//!   or four instances of it).
//! - Mechanism: every CPU runs compilers and small processes in turns, each for a burst of page
//!   faults. Between two faults a process computes for
//!   [`compute`](crate::machine::Kernel::compute) cycles, which is how hard a build is on the
//!   allocator: a constant of each machine. One fault in eight is a read into the page
//!   cache, which stays until 4096 newer pages were read; page tables, stacks and slabs come
//!   with it. See [`process`](super::process).
//! - Scaling: a build takes minutes, a run is a stretch of it, of a number of page faults. It
//!   begins with the page cache full and processes at any point of their way. Counts of batches are
//!   those of the run with its warm-up; their shares can be compared with the source's.
//! - Left out: the kernel's own work but for memory, waiting for the disk, other programs,
//!   processes that move to another CPU (so a page is freed on the CPU that allocated it), and
//!   memory pressure: the page cache is kept small.

use super::process::{Batches, Mix, Processes};
use super::{Needs, Stage, Workload};
use crate::coroutine::Body;
use crate::machine::Machine;
use crate::mix::kbuild::{BURST, CACHE_FRAMES, CACHE_ONE_IN, SLAB_BLOCKS, SMALL_ONE_IN};
use crate::outcome::Figure;
use crate::run::{SimError, Spec};
use crate::task::{idle, stopped};
use crate::ticks::Ticks;
use core::cell::Cell;
use zonal::Order;

/// Frames of each task: it uses 8300 on average (four compilers, its part of the cache, slabs),
/// and many tasks seldom use more than that together. Little is free, as on a machine whose page
/// cache has filled memory, so that what is allocated was freed before, by any process.
const FRAMES: u64 = 9_600;
/// Frames for each task that hold files no process reads any more, in largest blocks, from the
/// first to the last moment: the machine of the source has a hundred times as much memory as the
/// build uses. Their content is not simulated, but a zone is as large with them as the bounds
/// expect that follow its size.
const HELD: u64 = 16_384;
/// Bursts of every task before the clock starts: a dozen processes come and go, so that lists
/// and caches are as a build leaves them and no longer as memory was before it.
const SETTLING: usize = 500;

const MIX: Mix = Mix {
    small_one_in: SMALL_ONE_IN,
    cache_one_in: CACHE_ONE_IN,
    cache_frames: CACHE_FRAMES,
    slab_blocks: SLAB_BLOCKS,
    stays_one_in: 0,
};

/// The workload.
#[derive(Default)]
pub(crate) struct Kbuild {
    before: Cell<Batches>,
    after: Cell<Option<Batches>>,
}

impl Workload for Kbuild {
    fn needs(&self, machine: &Machine, spec: &Spec) -> Result<Needs, SimError> {
        let frames = machine.topology.frames_for_all(spec.tasks, FRAMES + HELD);
        let faults = if spec.quick { 200_000 } else { 800_000 };
        Ok(Needs {
            frames_a_socket: frames.max(1 << 18),
            counted: "faults",
            warm_up: faults,
            measure: faults,
            rates: true,
        })
    }

    fn tasks<'a>(&'a self, stage: &'a Stage<'a>) -> Vec<Body<'a>> {
        let new = |cpu| Processes::new(stage.task(cpu), stage.random(cpu), MIX, usize::MAX);
        let mut all: Vec<_> = (0..stage.spec.tasks).map(new).collect();
        let blocks = HELD / Order::MAX.frames();
        for processes in &mut all {
            for _ in 0..blocks {
                processes.task.take(Order::MAX).expect("memory is empty and large enough");
            }
        }
        // At no cost, in turns: a page cache among scattered free memory, as after hours of use,
        // then processes at any point of their way.
        for _ in (0..CACHE_FRAMES * 3 / 2).step_by(BURST) {
            for processes in &mut all {
                (0..BURST).for_each(|_| processes.read_page());
            }
        }
        for processes in &mut all {
            processes.scatter(CACHE_FRAMES);
            processes.begin_midway();
        }
        while all.iter_mut().fold(false, |more, processes| processes.catch_up() | more) {}
        for _ in 0..SETTLING {
            for processes in &mut all {
                processes.burst();
            }
        }
        self.before.set(Batches::of(stage.allocator));
        let body = |mut processes: Processes<'a>| -> Body<'a> {
            Box::new(move || {
                // CPUs do not start at the same moment.
                let part = processes.random.f64() * BURST as f64;
                idle(Ticks((processes.task.work.compute.0 as f64 * part) as u64));
                while !stopped() && processes.burst() {}
                if self.after.get().is_none() {
                    self.after.set(Some(Batches::of(stage.allocator)));
                }
                processes.end();
            })
        };
        all.into_iter().map(body).collect()
    }

    fn figures(&self, _: &Stage<'_>) -> Vec<Figure> {
        let after = self.after.get().unwrap_or_default();
        after.since(&self.before.get()).figures()
    }
}
