//! `boot`: what a desktop's start asks of memory, once, on a machine whose memory is untouched.
//!
//! - Source: Lu 2018, patch 4, counted on a desktop after boot how often a batch that per-CPU
//!   lists give back is of a single migrate type.
//! - Mechanism, as any Linux desktop starts: (1) the initial RAM disk is unpacked into unmovable
//!   pages, as its file system (ramfs) asks for them; (2) drivers come up, with kernel objects that
//!   stay and buffers that go; (3) the RAM disk's pages are freed at once; (4) hundreds of short
//!   processes run, as device managers and start scripts have them, and some daemons that stay;
//!   files are read and stay cached, with dentries and inodes beside them; (5) a splash screen, a
//!   login and a desktop follow each other, drawn in buffers of single reclaimable pages, as Intel's
//!   graphics driver asks for them. CPUs share all of it evenly.
//! - The numbers below are assumed, of the size that desktops of that time show in `dmesg`, `ps`
//!   and `free` after a start; but for the number of processes they are not fitted to the source's
//!   counts. Sizes and orders of processes and slabs are those of
//!   [`mix::kbuild`](crate::mix::kbuild).
//! - Scaling: none, but memory beyond 4 GiB is left out, since nothing of it would be touched.
//! - Left out: the LRU lists of the RAM disk's and the screens' pages, from which nothing is
//!   reclaimed; waiting for devices, networks and disks, and what the kernel takes before it has
//!   its page allocator.

use super::process::{Batches, MEMORY, Mix, Processes};
use super::{Needs, Stage, Workload};
use crate::coroutine::Body;
use crate::machine::Machine;
use crate::mix::kbuild::SMALL_ONE_IN;
use crate::outcome::Figure;
use crate::run::{SimError, Spec};
use crate::task::Task;
use zonal::{MigrateType, Order, Pfn, Request};

/// Pages of the initial RAM disk, unpacked: 48 MiB.
const RAM_DISK: usize = 12_288;
/// Slab blocks of drivers and early kernel objects.
const DRIVERS: usize = 8_192;
/// One of these blocks in this many is a buffer that is freed when its driver is up.
const BUFFER_ONE_IN: usize = 4;
/// Processes: as many as make the per-CPU lists give back about as often as in the source, whose
/// number of calls is given and not predicted.
const PROCESSES: usize = 225;
/// File pages that are read ahead, in no process's page fault: 160 MiB.
const READ: usize = 40_960;
/// File pages to a block of dentries and inodes.
const PAGES_PER_SLAB: usize = 16;
/// Screens that follow each other; the last one stays.
const SCREENS: usize = 3;
/// Buffers of a screen: what is shown, what is drawn next, and as much for windows.
const BUFFERS: usize = 4;
/// Pages of a buffer: 1920 by 1080 pixels of four bytes.
const BUFFER: usize = 2_025;
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
pub(crate) struct Boot;

impl Workload for Boot {
    fn needs(&self, machine: &Machine, spec: &Spec) -> Result<Needs, SimError> {
        let frames = machine.topology.frames().min(4 << 18);
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
            Box::new(move || start(&mut processes, share))
        };
        (0..stage.spec.tasks).map(body).collect()
    }

    fn figures(&self, stage: &Stage<'_>) -> Vec<Figure> {
        Batches::of(stage.allocator).figures()
    }
}

/// Pages that the kernel fills for itself.
fn filled(task: &mut Task<'_>, pages: usize, migrate: MigrateType) -> Vec<Pfn> {
    let request = Request::frame().migrate(migrate);
    let mut page = || {
        task.copy_page();
        task.cache_page(&request).expect(MEMORY)
    };
    (0..pages).map(|_| page()).collect()
}

/// A CPU's share of the start.
fn start(processes: &mut Processes<'_>, share: impl Fn(usize) -> usize) {
    let ram_disk = filled(&mut processes.task, share(RAM_DISK), MigrateType::Unmovable);
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
    processes.task.give(&ram_disk, Order::ZERO);
    let (all, mut screen, mut screens) = (share(READ), Vec::new(), SCREENS);
    let mut to_read = all;
    while processes.burst() || to_read > 0 {
        if screens > 0 && to_read * SCREENS <= all * screens {
            screens -= 1;
            let pages = share(BUFFERS) * BUFFER;
            let next = filled(&mut processes.task, pages, MigrateType::Reclaimable);
            processes.task.give(&core::mem::replace(&mut screen, next), Order::ZERO);
        }
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
