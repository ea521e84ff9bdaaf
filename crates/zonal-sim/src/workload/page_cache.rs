//! `page-cache` and `page-cache-fits`: files are written, read and deleted, through the page cache
//! of a node that has two zones.
//!
//! - Source: Gorman 2014, patch 3, and Weiner's review of it: tiobench on desktops with about 8
//!   GiB. `page-cache-fits` is the run "at 80% of memory" that says where pages were allocated;
//!   `page-cache` is mmtests' usual one, with files twice as large as memory, that says how fast
//!   each zone was reclaimed, on the other machine.
//! - Mechanism: the page cache is [`zonal_cache`]'s, [on virtual CPUs](crate::cache), with lists under the lock that the preset names, or another. In
//!   each round all streams write a file each, read it from its beginning, and delete it. A read asks for the pages of a window
//!   ([`WINDOW`](mix::WINDOW)) at once, waits for the disk, and copies them. Writers dirty pages as fast as
//!   they can copy; from [`BACKGROUND`](mix::BACKGROUND) thousandths of memory on a flusher cleans the oldest and writers are slowed,
//!   from [`DIRTY`](mix::DIRTY) on they write back themselves. The disk does one thing after the other
//!   ([`DISK`](mix::DISK)). The last CPU is kswapd of 3.x: when woken, it has the oldest clean
//!   pages of each zone go that is not above its high watermark, from the lowest zone up, a 4096th
//!   of a zone or [`SWAP_CLUSTER`](mix::SWAP_CLUSTER) pages a turn, until all are. A
//!   request that finds nothing frees `SWAP_CLUSTER` pages itself.
//! - Figures: pages allocated by zone and the share of DMA32; for each zone pages that reclaim
//!   looked at a second (`..._velocity`); `alloc_cycles`, what the allocator took for a page.
//! - Scaling: 1 GiB of memory, half of that in a quick run, instead of 8, and so the watermarks;
//!   caches of CPUs and their batches are as they are. All tasks but two are streams, where
//!   tiobench has 1 to 16 in turn.
//! - Fitted, on rows of unpatched kernels: where the boundary of the zones is, on 3.16-rc1, which
//!   spreads by the size of zones; memory used for something else, on the spread of 3.0.
//! - Left out: seeks (the disk is as fast for many streams as for one), random reads and writes,
//!   readahead beyond the window. Lists without a lock (`none`) the page cache has not: there each task has one of its own for
//!   each zone, as with `split`.

mod kernel;
mod stream;

use super::process::MEMORY;
use super::{Needs, Stage, Workload};
use crate::cache::{Costs, Disk, DiskFile, PerTaskOfZone, SimCache, SimFrames};
use crate::coroutine::Body;
use crate::host::{self, Host};
use crate::machine::Machine;
use crate::mix::PAGEVEC;
use crate::mix::highalloc::HUGE_PAGEBLOCKS;
use crate::mix::page_cache as mix;
use crate::outcome::Figure;
use crate::platform::Sim;
use crate::run::{LruLock, SimError, Spec};
use crate::task::{Work, count_taken};
use crate::world;
use core::cell::{Cell, RefCell};
use kernel::Kernel;
use std::rc::Rc;
use std::sync::Arc;
use stream::Stream;
use zonal::plan::Config;
use zonal::watermark::{MinFree, WatermarkConfig};
use zonal::{MigrateType, Order, Pfn, Request, ZoneType};
use zonal_cache::cache::Options;
use zonal_cache::lru::{self, PerNode, PerZone};

/// A stream, the flusher, kswapd.
const LEAST_TASKS: u32 = 3;
/// Zones of the real machines, whose smallest is left out here.
const ZONES: u64 = 3;

/// How large the files are, and the machine.
#[derive(Clone, Copy)]
pub(crate) struct Data {
    /// All files together, in percent of memory.
    percent: u64,
    /// Memory that is DMA32, in thousandths.
    dma32: u64,
    /// How often they are written, read and deleted.
    rounds: u32,
}

impl Data {
    /// Four fifths of memory.
    pub(crate) const FITS: Self = Self { percent: 80, dma32: mix::DMA32_FITS, rounds: 4 };
    /// Twice as large as memory.
    pub(crate) const TWICE: Self = Self { percent: 200, dma32: mix::DMA32_TWICE, rounds: 1 };
}

/// Says what happened.
type Says = Box<dyn FnOnce() -> Vec<Figure>>;

/// The workload.
pub(crate) struct PageCache {
    data: Data,
    frames: Cell<u64>,
    /// What the kernel says of the run at its end, and then is gone.
    says: RefCell<Option<Says>>,
}

impl PageCache {
    pub(crate) fn new(data: Data) -> Self {
        Self { data, frames: Cell::new(0), says: RefCell::default() }
    }
}

impl PageCache {
    /// The tasks, over a cache whose lists are under the lock that `L` says.
    fn on<'a, L: lru::LruLock>(&'a self, stage: &'a Stage<'a>) -> Vec<Body<'a>> {
        let used = self.frames.get() * mix::USED / 1000;
        let kernel = Request::frame().migrate(MigrateType::Unmovable).zone_limit(ZoneType::Normal);
        for _ in 0..used {
            stage.allocator.alloc_shared(&kernel).expect(MEMORY);
        }
        count_taken(used as i64);
        let streams = stage.spec.tasks - 2;
        let work = Work::of(&stage.machine.kernel, stage.spec.preset);
        let host = Sim::new(stage.machine.topology);
        let options = Options {
            pages: (self.frames.get() - used) as usize,
            window: 0,
            dirty_percent: mix::DIRTY / 10,
            background_percent: mix::BACKGROUND / 10,
            ..Options::default()
        };
        let frames = SimFrames::new(Costs::of_dropping(&work));
        let cache = SimCache::<L>::with_parts(host, frames, options).expect(MEMORY);
        let disk = Arc::new(Disk::new(&stage.machine.clock));
        let kernel = Rc::new(Kernel::new(stage, cache, disk, streams));
        host::install(Rc::clone(&kernel) as Rc<dyn Host>);
        let pages = self.frames.get() * self.data.percent / 100 / u64::from(streams);
        let rounds = self.data.rounds;
        let mut bodies: Vec<Body<'a>> = Vec::new();
        for cpu in 0..streams {
            let file = kernel.cache.open(DiskFile::new(&kernel.disk, 0)).expect("it is empty");
            let mut stream = Stream::new(stage.random(cpu), &kernel, file, pages as usize);
            let kernel = kernel.clone();
            bodies.push(Box::new(move || {
                (0..rounds).for_each(|_| stream.round());
                kernel.end(host);
            }));
        }
        let flusher = kernel.clone();
        bodies.push(Box::new(move || flusher.flush()));
        let kswapd = kernel.clone();
        bodies.push(Box::new(move || kswapd.kswapd(stage.allocator)));
        *self.says.borrow_mut() = Some(Box::new(move || kernel.figures()));
        bodies
    }
}

impl Workload for PageCache {
    fn needs(&self, machine: &Machine, spec: &Spec) -> Result<Needs, SimError> {
        if spec.tasks < LEAST_TASKS {
            let reason = format!("it takes at least {LEAST_TASKS} tasks");
            return Err(spec.misfit(machine, reason));
        }
        if machine.topology.sockets != 1 {
            return Err(spec.misfit(machine, "it is for machines with one socket"));
        }
        let frames = if spec.quick { 1 << 17 } else { 1 << 18 };
        self.frames.set(frames);
        Ok(Needs {
            frames_a_socket: frames,
            counted: "pages",
            warm_up: 0,
            measure: u64::MAX,
            rates: false,
        })
    }

    /// Watermarks as Linux has them where huge pages are transparent, in proportion to memory.
    fn config(&self, config: Config) -> Config {
        let frames = self.frames.get();
        let real = (ZONES * HUGE_PAGEBLOCKS) << Order::HUGE.get();
        let min_free = MinFree::Frames(real * frames / mix::REAL_FRAMES);
        let dma32 = (frames * self.data.dma32 / 1000).next_multiple_of(world::LARGEST);
        let dma32_limit = Pfn::new((world::START >> 12) + dma32);
        let watermarks = WatermarkConfig { min_free, ..config.watermarks };
        Config { dma32_limit, watermarks, ..config }
    }

    fn tasks<'a>(&'a self, stage: &'a Stage<'a>) -> Vec<Body<'a>> {
        match stage.spec.lru {
            LruLock::Zone => self.on::<PerZone<PAGEVEC>>(stage),
            // There is one node.
            LruLock::Whole | LruLock::Node => self.on::<PerNode<PAGEVEC>>(stage),
            LruLock::Split | LruLock::None => self.on::<PerTaskOfZone<PAGEVEC>>(stage),
        }
    }

    fn figures(&self, _: &Stage<'_>) -> Vec<Figure> {
        let says = self.says.borrow_mut().take();
        says.map(|says| says()).unwrap_or_default()
    }
}
