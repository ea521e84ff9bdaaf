//! `boot`: what a desktop's start asks of memory, once, on a machine whose memory is untouched.
//!
//! - Source: Lu 2018, patch 4, counted on a desktop after boot how often a batch that per-CPU
//!   lists give back is of a single migrate type.
//! - Mechanism, as any Linux desktop starts: (1) the initial RAM disk is unpacked into the page
//!   cache; (2) drivers come up, with kernel objects that stay and buffers that go; (3) the RAM
//!   disk's pages are freed at once; (4) hundreds of short processes run, as device managers and
//!   start scripts have them, and some daemons that stay; files are read and stay cached, with
//!   dentries and inodes beside them. CPUs share all of it evenly.
//! - The numbers below are assumed, of the size that desktops of that time show in `dmesg`, `ps`
//!   and `free` after a start; they are not fitted to the source's counts. Sizes and orders of
//!   processes and slabs are those of [`mix::kbuild`](crate::mix::kbuild).
//! - Scaling: none, but memory beyond 4 GiB is left out, since nothing of it would be touched.
//! - Left out: waiting for devices, networks and disks, and what the kernel takes before it has
//!   its page allocator.

use super::process::{Batches, MEMORY, Mix, Processes, accounted_for, add};
use super::{Needs, Stage, Workload};
use crate::coroutine::Body;
use crate::machine::Machine;
use crate::mix::kbuild::SMALL_ONE_IN;
use crate::outcome::Figure;
use crate::run::{SimError, Spec};
use core::cell::Cell;
use zonal::{MigrateType, Order};

/// Pages of the initial RAM disk, unpacked: 48 MiB.
const RAM_DISK: usize = 12_288;
/// Slab blocks of drivers and early kernel objects.
const DRIVERS: usize = 8_192;
/// One of these blocks in so many is a buffer that is freed when its driver is up.
const BUFFER_ONE_IN: usize = 4;
/// Processes.
const PROCESSES: usize = 800;
/// File pages that are read ahead by nobody's page fault: 160 MiB.
const READ: usize = 40_960;
/// File pages to a block of dentries and inodes.
const PAGES_PER_SLAB: usize = 16;
/// File pages read between two bursts of page faults.
const READ_AT_ONCE: usize = 32;

const MIX: Mix = Mix {
    // The other way round than in a build: most are small.
    small_one_in: SMALL_ONE_IN - 1,
    cache_one_in: 8,
    cache_frames: usize::MAX,
    slab_blocks: usize::MAX,
    stays_one_in: 8,
};

/// The workload.
#[derive(Default)]
pub(crate) struct Boot {
    /// Frames in use at the end.
    held: Cell<u64>,
}

impl Workload for Boot {
    fn needs(&self, machine: &Machine, spec: &Spec) -> Result<Needs, SimError> {
        let frames = (machine.topology.memory_gib.min(4.0) * f64::from(1u32 << 18)) as u64;
        if frames < 3 << 18 {
            return Err(spec.misfit(machine, "it takes 3 GiB of memory"));
        }
        Ok(Needs {
            frames_a_socket: frames / u64::from(machine.topology.sockets),
            counted: "faults",
            warm_up: 0,
            measure: u64::MAX,
            rates: false,
        })
    }

    fn tasks<'a>(&'a self, stage: &'a Stage<'a>) -> Vec<Body<'a>> {
        let tasks = stage.spec.tasks as usize;
        let body = |cpu: u32| -> Body<'a> {
            // The first CPUs take what does not divide.
            let share = move |all: usize| all / tasks + usize::from((cpu as usize) < all % tasks);
            let (task, random) = (stage.task(cpu), stage.random(cpu));
            let mut processes = Processes::new(task, random, MIX, share(PROCESSES));
            Box::new(move || {
                start(&mut processes, share);
                add(&self.held, processes.held());
            })
        };
        (0..stage.spec.tasks).map(body).collect()
    }

    fn figures(&self, stage: &Stage<'_>) -> Result<Vec<Figure>, SimError> {
        accounted_for(stage, self.held.get())?;
        Ok(Batches::of(stage.allocator).figures())
    }
}

/// A CPU's share of the start.
fn start(processes: &mut Processes<'_>, share: impl Fn(usize) -> usize) {
    let ram_disk: Vec<_> =
        (0..share(RAM_DISK)).map(|_| processes.task.fault().expect(MEMORY)).collect();
    let mut buffers = Vec::new();
    for _ in 0..share(DRIVERS) {
        let block = processes.slab(MigrateType::Unmovable);
        if processes.one_in(BUFFER_ONE_IN) {
            buffers.push(block);
        } else {
            processes.keep(block);
        }
    }
    processes.give(&buffers);
    processes.task.list();
    processes.task.release(&ram_disk, Order::ZERO);
    let mut to_read = share(READ);
    while processes.burst() || to_read > 0 {
        let read = to_read.min(READ_AT_ONCE);
        to_read -= read;
        for page in 0..read {
            processes.read_page();
            if page % PAGES_PER_SLAB == 0 {
                let block = processes.slab(MigrateType::Reclaimable);
                processes.keep(block);
            }
        }
    }
}
