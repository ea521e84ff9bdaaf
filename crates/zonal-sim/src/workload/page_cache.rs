//! `page-cache` and `page-cache-fits`: files are written, read and deleted, through the page cache
//! of a node that has two zones.
//!
//! - Source: Gorman 2014, patch 3, and Weiner's review of it: tiobench on desktops with about 8
//!   GiB. `page-cache-fits` is the run "at 80% of memory" that says where pages were allocated;
//!   `page-cache` is mmtests' usual one, with files twice as large as memory, that says how fast
//!   each zone was reclaimed, on the other machine.
//! - Mechanism: in each round all streams write a file each, read it from its beginning, and
//!   delete it. A read asks for the pages of a window ([`WINDOW`](mix::WINDOW)) at once, waits for
//!   the disk, and copies them. Writers dirty pages as fast as they can copy, until
//!   [`DIRTY`](mix::DIRTY) thousandths of memory are dirty; a flusher cleans the oldest above
//!   [`BACKGROUND`](mix::BACKGROUND). The disk does one thing after the other
//!   ([`DISK`](mix::DISK)). The last CPU is kswapd of 3.x: when woken, it frees the oldest clean
//!   pages of each zone that is not above its high watermark, from the lowest zone up, a 4096th
//!   of a zone's list or [`SWAP_CLUSTER`](mix::SWAP_CLUSTER) pages a turn, until all are. A
//!   request that finds nothing frees `SWAP_CLUSTER` pages itself.
//! - Figures: pages allocated by zone and the share of DMA32; for each zone pages that reclaim
//!   looked at a second (`..._velocity`); `alloc_cycles`, what the allocator took for a page.
//! - Scaling: 1 GiB of memory, half of that in a quick run, instead of 8, and so the watermarks;
//!   caches of CPUs and their batches are as they are. All tasks but two are streams, where
//!   tiobench has 1 to 16 in turn.
//! - Fitted, on rows of unpatched kernels: where the boundary of the zones is, on 3.16-rc1, which
//!   spreads by the size of zones; memory used for something else, on the spread of 3.0.
//! - Left out: seeks (the disk is as fast for many streams as for one), random reads and writes,
//!   pages used twice (all are inactive), readahead beyond the window, one LRU lock for each zone.

mod cache;
mod stream;

use super::process::MEMORY;
use super::{Needs, Stage, Workload};
use crate::cache::Disk;
use crate::coroutine::Body;
use crate::host::{self, Host};
use crate::machine::Machine;
use crate::mix::highalloc::HUGE_PAGEBLOCKS;
use crate::mix::page_cache as mix;
use crate::outcome::Figure;
use crate::run::{SimError, Spec};
use crate::world;
use cache::Cache;
use core::cell::{Cell, OnceCell};
use std::rc::Rc;
use stream::Stream;
use zonal::plan::Config;
use zonal::watermark::{MinFree, WatermarkConfig};
use zonal::{MigrateType, Order, Pfn, Request, ZoneType};

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

/// The workload.
pub(crate) struct PageCache {
    data: Data,
    frames: Cell<u64>,
    cache: OnceCell<Rc<Cache>>,
}

impl PageCache {
    pub(crate) fn new(data: Data) -> Self {
        Self { data, frames: Cell::new(0), cache: OnceCell::new() }
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
        let disk = Disk::new(&stage.machine.clock);
        let used = self.frames.get() * mix::USED / 1000;
        let cache = self.cache.get_or_init(|| Rc::new(Cache::new(stage, disk, used)));
        host::install(Rc::clone(cache) as Rc<dyn Host>);
        let streams = stage.spec.tasks - 2;
        let mut tasks: Vec<_> = (0..streams).map(|cpu| stage.task(cpu)).collect();
        let kernel = Request::frame().migrate(MigrateType::Unmovable).zone_limit(ZoneType::Normal);
        for _ in 0..used {
            tasks[0].ask(&kernel).expect(MEMORY);
        }
        let pages = self.frames.get() * self.data.percent / 100 / u64::from(streams);
        cache.expect(streams);
        let rounds = self.data.rounds;
        let mut bodies: Vec<Body<'a>> = Vec::new();
        for task in tasks {
            let random = stage.random(task.cpu);
            let mut stream = Stream::new(task, random, cache, stage.allocator, pages as usize);
            bodies.push(Box::new(move || {
                (0..rounds).for_each(|_| stream.round());
                cache.end();
            }));
        }
        bodies.push(Box::new(|| cache.flush(stage.allocator)));
        bodies.push(Box::new(|| cache.kswapd(stage.allocator)));
        bodies
    }

    fn figures(&self, _: &Stage<'_>) -> Vec<Figure> {
        self.cache.get().map(|cache| cache.figures()).unwrap_or_default()
    }
}
