//! Frames of the simulated allocator, as a page cache has them: without bytes.

use crate::current;
use crate::engine;
use crate::machine::Kernel;
use crate::profile::Phase;
use crate::task::{Work, count_taken, during, spend};
use crate::ticks::Ticks;
use core::ops::Range;
use core::ptr::NonNull;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;
use zonal::page_state::PageState;
use zonal::policy::trace::Off;
use zonal::{MigrateType, Pfn, Request, ZoneType};
use zonal_cache::frames::Frames;

/// What page cache asks for.
const FILE_PAGE: Request =
    Request::frame().migrate(MigrateType::Movable).zone_limit(ZoneType::Movable);

/// What is done to a page besides what the cache and the allocator do, by the kernel around them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Costs {
    /// When it goes.
    pub(crate) free: Ticks,
    /// Whether the allocator is told that it is a page of a file: limits on dirty pages go by how many there are.
    pub(crate) is_counted: bool,
}

impl Costs {
    /// Of files that are truncated.
    pub(crate) fn of_truncating(kernel: &Kernel) -> Self {
        Self { free: Ticks::from_cycles(kernel.truncate_page), is_counted: false }
    }

    /// Of pages that are unmapped, or taken out of a tree, one by one.
    pub(crate) const fn of_dropping(work: &Work) -> Self {
        Self { free: work.drop_page(), is_counted: true }
    }
}

/// Where a zone is, and what it gave.
struct Zone {
    frames: Range<u64>,
    node: usize,
    /// Relaxed, as the words below: all CPUs of a machine are on one thread.
    allocated: AtomicU64,
}

/// What the allocator did for a cache.
#[derive(Clone, Debug, Default)]
pub(crate) struct Asked {
    /// Frames that it gave, by zone.
    pub(crate) by_zone: Vec<u64>,
    /// What it took for all requests, without what was reclaimed in their middle.
    pub(crate) took: Ticks,
}

/// Frames of the [allocator](current) of this thread's machine.
pub(crate) struct SimFrames {
    costs: Costs,
    zones: Vec<Zone>,
    took: AtomicU64,
}

impl SimFrames {
    /// Those of this thread's allocator.
    pub(crate) fn new(costs: Costs) -> Self {
        let zones = current::with(|allocator| {
            let zones = allocator.zones().map(|zone| Zone {
                frames: zone.start.get()..zone.start.get() + zone.spanned,
                node: usize::from(zone.node.0),
                allocated: AtomicU64::new(0),
            });
            zones.collect::<Vec<_>>()
        });
        Self { costs, zones: zones.unwrap_or_default(), took: AtomicU64::new(0) }
    }

    /// What the allocator has done for it.
    pub(crate) fn asked(&self) -> Asked {
        let by_zone = self.zones.iter().map(|zone| zone.allocated.load(Relaxed)).collect();
        Asked { by_zone, took: Ticks(self.took.load(Relaxed)) }
    }

    fn count_file(&self, frame: Pfn, change: i32) {
        if self.costs.is_counted {
            self.count(frame, PageState::InactiveFile, change);
        }
    }

    fn ask(&self, request: &Request) -> Option<Pfn> {
        let (began, reclaiming) = (engine::now(), reclaiming());
        let ask = || current::with(|allocator| allocator.alloc_shared(request).ok()).flatten();
        let frame = during(Phase::Alloc, 1, 1, ask);
        let took = (engine::now() - began).since(self::reclaiming() - reclaiming);
        let _ = self.took.fetch_add(took.0, Relaxed);
        match frame {
            Some(frame) => {
                touch(frame);
                self.count_file(frame, 1);
                if let Some(zone) = self.zones.get(self.zone_of(frame).0) {
                    let _ = zone.allocated.fetch_add(1, Relaxed);
                }
            }
            None => count_taken(-1),
        }
        frame
    }
}

/// What the CPU that runs has spent in direct reclaim.
fn reclaiming() -> Ticks {
    engine::with_cpu(|engine, cpu| engine.cache.reclaiming(cpu)).unwrap_or_default()
}

/// Writes to the `struct page` of a frame, where the machine has such.
fn touch(frame: Pfn) {
    if let Some(pages) = engine::with(|engine| engine.cache.pages).flatten() {
        pages.touch(frame, true);
    }
}

// SAFETY: the allocator gives a frame out once until it is freed; that there is no byte behind it is said.
unsafe impl Frames for SimFrames {
    type Trace = Off;
    const HAS_BYTES: bool = false;

    fn alloc(&self) -> Option<Pfn> {
        self.ask(&FILE_PAGE)
    }

    fn alloc_to_write(&self, less_throttled: bool) -> Option<Pfn> {
        let request = FILE_PAGE.write();
        self.ask(&if less_throttled { request.less_throttled() } else { request })
    }

    unsafe fn free(&self, frames: &[Pfn]) {
        for &frame in frames {
            spend(self.costs.free);
            touch(frame);
            self.count_file(frame, -1);
        }
        let free = || current::with(|allocator| allocator.free_shared(frames));
        // After its run an allocator has no frames any more.
        if let Some(freed) = during(Phase::Free, frames.len() as u64, -(frames.len() as i64), free)
        {
            assert_eq!(freed.refused, 0, "frames of this cache: {:?}", freed.first_refused);
        }
    }

    fn address(&self, frame: Pfn) -> NonNull<u8> {
        panic!("there is nothing at {frame:?}")
    }

    fn count(&self, frame: Pfn, state: PageState, change: i32) {
        current::with(|allocator| allocator.count(frame, state, change));
    }

    fn zones(&self) -> (usize, usize) {
        let nodes = self.zones.iter().map(|zone| zone.node + 1).max();
        (self.zones.len().max(1), nodes.unwrap_or(1))
    }

    fn zone_of(&self, frame: Pfn) -> (usize, usize) {
        let zone = self.zones.iter().position(|zone| zone.frames.contains(&frame.get()));
        let zone = zone.unwrap_or(0);
        (zone, self.zones.get(zone).map_or(0, |zone| zone.node))
    }
}
