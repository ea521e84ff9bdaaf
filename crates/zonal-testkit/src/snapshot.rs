//! All that can be seen of an allocator at one moment. Plain data: a test can damage a copy
//! and look whether the checkers notice.
//!
//! ```
//! use zonal::platform::single::SingleThread;
//! use zonal::preset::Zonal;
//! use zonal_testkit::shape::Shape;
//! use zonal_testkit::snapshot::Snapshot;
//! use zonal_testkit::world::with_world;
//! with_world::<SingleThread, Zonal, _>(Shape::Flat, |world| {
//!     let snapshot = Snapshot::of(&world.allocator);
//!     assert_eq!(snapshot.found.len(), 2, "two untouched largest blocks");
//! });
//! ```

use zonal::frame::FrameState;
use zonal::info::{CacheInfo, ZoneInfo};
use zonal::inspect::Place;
use zonal::map::RangeKind;
use zonal::platform::Platform;
use zonal::policy::Policy;
use zonal::{Allocator, CpuId, MigrateType, Order, Pfn, ZoneId};

/// A block that is not handed out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Found {
    /// The zone in whose lists or caches it was found.
    pub zone: ZoneId,
    /// Its first frame.
    pub pfn: Pfn,
    /// Where.
    pub place: Place,
}

/// See the [module](self). Exact only when nothing else runs.
#[derive(Clone, PartialEq, Debug)]
pub struct Snapshot {
    /// First frame of the frame table.
    pub base: Pfn,
    /// Size of a pageblock.
    pub pageblock_order: Order,
    /// State bytes, from `base` on.
    pub states: Vec<FrameState>,
    /// What the memory map says of each frame; of what has come or was released, that it is usable.
    pub kinds: Vec<Option<RangeKind>>,
    /// Zone and migrate type of each pageblock.
    pub pageblocks: Vec<Option<(ZoneId, MigrateType)>>,
    /// All blocks that are not handed out, list by list, in the order of the lists.
    pub found: Vec<Found>,
    /// The zones, by id.
    pub zones: Vec<ZoneInfo>,
    /// The caches, zone by zone and CPU by CPU.
    pub caches: Vec<(ZoneId, CacheInfo)>,
}

impl Snapshot {
    /// Takes one.
    ///
    /// # Panics
    /// If more blocks are found than there are frames.
    #[must_use]
    pub fn of<P: Platform, S: Policy>(allocator: &Allocator<'_, P, S>) -> Self {
        let plan = allocator.plan();
        let (base, frames) = (plan.base(), plan.frames());
        let pageblock_order = plan.config().pageblock_order;
        let pfns = || (0..frames).map(|at| Pfn::new(base.get() + at));
        let mut kinds = vec![None; frames as usize];
        for range in plan.map().ranges() {
            for pfn in range.start.get()..range.end.get() {
                if let Some(kind) = kinds.get_mut(pfn.wrapping_sub(base.get()) as usize) {
                    *kind = Some(range.kind);
                }
            }
        }
        for (kind, pfn) in kinds.iter_mut().zip(pfns()) {
            let withheld = allocator.frame_state(pfn) == Some(FrameState::WITHHELD);
            if !kind.is_some_and(RangeKind::is_usable) && allocator.is_online(pfn) && !withheld {
                *kind = Some(RangeKind::Usable);
            }
        }
        let step = pageblock_order.frames() as usize;
        let ids = || (0..allocator.zone_count() as u8).map(ZoneId);
        let mut found = Vec::new();
        for zone in ids() {
            let visit = &mut |pfn, place| {
                // A damaged list may go round in circles.
                assert!(found.len() as u64 <= frames, "I-1: more blocks than frames");
                found.push(Found { zone, pfn, place });
            };
            allocator.visit_free(zone, visit);
        }
        let cpus = || (0..allocator.cpus()).map(CpuId);
        let cache = |zone, cpu| Some((zone, allocator.cache_info(zone, cpu)?));
        Self {
            base,
            pageblock_order,
            states: pfns().filter_map(|pfn| allocator.frame_state(pfn)).collect(),
            kinds,
            pageblocks: pfns().step_by(step).map(|pfn| allocator.pageblock_of(pfn)).collect(),
            found,
            zones: ids().filter_map(|zone| allocator.zone_info(zone)).collect(),
            caches: ids().flat_map(|zone| cpus().filter_map(move |cpu| cache(zone, cpu))).collect(),
        }
    }

    /// Position of a frame in the per-frame vectors, if it is in the table.
    #[must_use]
    pub fn index(&self, pfn: Pfn) -> Option<usize> {
        let at = pfn.get().checked_sub(self.base.get())? as usize;
        (at < self.states.len()).then_some(at)
    }

    /// Zone and migrate type of the pageblock of frame `at`.
    #[must_use]
    pub fn pageblock(&self, at: usize) -> Option<(ZoneId, MigrateType)> {
        *self.pageblocks.get(at >> self.pageblock_order.get())?
    }

    /// Whether the allocator hands out frame `at`.
    #[must_use]
    pub fn is_managed(&self, at: usize) -> bool {
        self.kinds.get(at).is_some_and(|kind| kind.is_some_and(RangeKind::is_usable))
    }

    /// Without what looking alone changes: the histogram of lock holds.
    #[must_use]
    pub fn without_holds(&self) -> Self {
        let mut rest = self.clone();
        for zone in &mut rest.zones {
            zone.events.holds = Default::default();
            zone.events.hold_max = 0;
        }
        rest
    }
}
