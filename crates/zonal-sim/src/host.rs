//! Who answers the allocator's callbacks: a workload that reclaims and moves pages.
//!
//! The platform has no state of its own; the running machine holds the host. Without one nothing
//! is reclaimed or moved.

use crate::engine;
use crate::platform::Sim;
use crate::task::count_taken;
use std::rc::Rc;
use zonal::page_state::PageState;
use zonal::policy::Policy;
use zonal::slow_path::Shortage;
use zonal::{Allocator, Order, Pfn};
use zonal::{Immovable, Migration};

/// What a workload does for the allocator; see [`Platform`](zonal::platform::Platform).
pub(crate) trait Host {
    /// A zone fell below its low watermark.
    fn wake_reclaim(&self);
    /// Frees frames for a request; how many.
    fn reclaim(&self, frames: &dyn Frames, shortage: &Shortage) -> u64;
    /// A block of that order was missing.
    fn wake_compaction(&self, order: Order);
    /// Moves a page.
    fn migrate(&self, page: &Migration) -> Result<(), Immovable>;
}

/// Where a host gives frames back that it reclaims in another task's request.
pub(crate) trait Frames {
    /// Frees single frames.
    fn free(&self, frames: &[Pfn]);
    /// Frees a block.
    fn free_block(&self, pfn: Pfn, order: Order);
    /// Counts pages in the state of a frame's page more or less.
    fn count(&self, pfn: Pfn, state: PageState, change: i32);
}

impl<S: Policy> Frames for Allocator<'_, Sim, S> {
    fn free(&self, frames: &[Pfn]) {
        let freed = self.free_bulk(frames);
        assert_eq!(freed.refused, 0, "frames of this workload: {:?}", freed.first_refused);
        count_taken(-(frames.len() as i64));
    }

    fn free_block(&self, pfn: Pfn, order: Order) {
        self.free_raw(pfn, order).expect("a block of this workload");
        count_taken(-(order.frames() as i64));
    }

    fn count(&self, pfn: Pfn, state: PageState, change: i32) {
        self.mod_page_state(pfn, state, change).expect("a frame of this workload");
    }
}

/// Calls the host, or answers for it if there is none.
pub(crate) fn call<R>(without: R, f: impl FnOnce(&dyn Host) -> R) -> R {
    // Not called with the engine borrowed: the host's work is charged to it.
    match engine::with(|engine| engine.host.clone()).flatten() {
        Some(host) => f(&*host),
        None => without,
    }
}

/// Makes a host that of this thread's machine, for as long as that runs.
pub(crate) fn install(host: Rc<dyn Host>) {
    engine::with(|engine| engine.host = Some(host));
}
