//! Frames of the simulated allocator, as a page cache has them: without bytes.

use crate::current;
use crate::engine;
use crate::machine::Kernel;
use crate::profile::Phase;
use crate::task::{count_taken, during, spend};
use crate::ticks::Ticks;
use core::ops::Range;
use core::ptr::NonNull;
use zonal::page_state::PageState;
use zonal::policy::trace::Off;
use zonal::{MigrateType, Pfn, Request, ZoneType};
use zonal_cache::frames::Frames;

/// What is done to a page besides what the cache and the allocator do, by the kernel around them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Costs {
    /// When it goes.
    pub(crate) free: Ticks,
}

impl Costs {
    /// Of files that are truncated.
    pub(crate) fn of_truncating(kernel: &Kernel) -> Self {
        Self { free: Ticks::from_cycles(kernel.truncate_page) }
    }
}

/// Frames of the [allocator](current) of this thread's machine.
pub(crate) struct SimFrames {
    costs: Costs,
    /// Where zones are, and their nodes.
    zones: Vec<(Range<u64>, usize)>,
}

impl SimFrames {
    /// Those of this thread's allocator.
    pub(crate) fn new(costs: Costs) -> Self {
        let zones = current::with(|allocator| {
            let frames = |start: Pfn, spanned| start.get()..start.get() + spanned;
            let zones = allocator.zones();
            let zones =
                zones.map(|zone| (frames(zone.start, zone.spanned), usize::from(zone.node.0)));
            zones.collect::<Vec<_>>()
        });
        Self { costs, zones: zones.unwrap_or_default() }
    }
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
        const FILE_PAGE: Request =
            Request::frame().migrate(MigrateType::Movable).zone_limit(ZoneType::Movable);
        let ask = || current::with(|allocator| allocator.alloc_shared(&FILE_PAGE).ok()).flatten();
        let frame = during(Phase::Alloc, 1, 1, ask);
        match frame {
            Some(frame) => touch(frame),
            None => count_taken(-1),
        }
        frame
    }

    unsafe fn free(&self, frames: &[Pfn]) {
        for &frame in frames {
            spend(self.costs.free);
            touch(frame);
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
        let nodes = self.zones.iter().map(|(_, node)| node + 1).max();
        (self.zones.len().max(1), nodes.unwrap_or(1))
    }

    fn zone_of(&self, frame: Pfn) -> (usize, usize) {
        let zone = self.zones.iter().position(|(at, _)| at.contains(&frame.get())).unwrap_or(0);
        (zone, self.zones.get(zone).map_or(0, |(_, node)| *node))
    }
}
