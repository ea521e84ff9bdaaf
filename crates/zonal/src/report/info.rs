//! Snapshots of a zone for reports: counts, watermarks, caches, lock holds.
//!
//! ```
//! use zonal::info::ZoneInfo;
//! fn all_there(zone: &ZoneInfo) -> bool {
//!     zone.free + zone.cached <= zone.managed
//! }
//! ```

use crate::alloc::allocator::Allocator;
use crate::boot::watermark::{Mark, Watermarks};
use crate::compact::CompactEvents;
use crate::pcp::per_cpu_pages::{CpuEvents, InSlot};
use crate::platform::Platform;
use crate::policy::FreeMemory;
use crate::policy::PcpPolicy;
use crate::policy::walk::FairShare;
use crate::policy::zone::Zone;
use crate::policy::{Dirty, Policy, Walk};
use crate::types::counts::FreeCounts;
use crate::types::migrate_type::MigrateType;
use crate::types::page_state::{NR_PAGE_STATES, PageState};
use crate::types::units::{CpuId, NodeId, Order, Pfn, ZoneId};
use crate::types::zone_type::{NR_ZONE_TYPES, ZoneType};
use crate::zone::Snapshot;
use crate::zone::ZoneEvents;

/// A zone instance as it is now; exact when nothing else runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ZoneInfo {
    /// The zone instance.
    pub zone: ZoneId,
    /// Its node.
    pub node: NodeId,
    /// Its type.
    pub zone_type: ZoneType,
    /// Which instance of its type on the node, from 0.
    pub instance: u8,
    /// First frame of its span; of a zone whose memory is all to come, the first that may.
    pub start: Pfn,
    /// Frames from the first to the last, holes included.
    pub spanned: u64,
    /// Frames that exist.
    pub present: u64,
    /// Frames the allocator hands out.
    pub managed: u64,
    /// Free frames, untouched ones included, but for those in caches.
    pub free: u64,
    /// Free frames as the watermarks see them: with a map, less what CPUs have freed and not counted
    /// yet (each at most 1024 frames, all together a 64th of the zone or 64 each), and more what
    /// they took and have not (at most 64 each). What happens near the marks is counted at once.
    pub counted_free: u64,
    /// Frames in per-CPU caches.
    pub cached: u64,
    /// Of the free frames, those whose merging was skipped (I-5).
    pub merge_skipped: u64,
    /// Free frames withdrawn from requests: in isolated pageblocks. Not in `free`.
    pub isolated: u64,
    /// Free blocks by order and migrate type.
    pub blocks: FreeCounts,
    /// The watermarks.
    pub watermarks: Watermarks,
    /// Frames added to each watermark at present.
    pub boost: u64,
    /// Frames kept from requests that could have used a higher type.
    pub reserve: [u64; NR_ZONE_TYPES],
    /// Pageblocks in the high-atomic reserve.
    pub high_atomic_pageblocks: u32,
    /// Frames handed out since the start.
    pub allocated: u64,
    /// Its share in a fair walk, under presets with one.
    pub fair: Option<FairShare>,
    /// Pages by state as far as the CPUs have told, and how many may be dirty, under presets
    /// with dirty limits.
    pub pages: Option<ZonePages>,
    /// Counters kept under the zone lock.
    pub events: ZoneEvents,
    /// Counters of compaction.
    pub compaction: CompactEvents,
}

/// Pages of a zone as the host counts them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ZonePages {
    /// By [`PageState`].
    pub states: [u64; NR_PAGE_STATES],
    /// How many may be dirty now.
    pub dirty_limit: u64,
    /// How many the preset believes may be dirty: the limit it has remembered.
    pub cached_limit: Option<u64>,
}

/// One CPU's cache of one zone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CacheInfo {
    /// The CPU.
    pub cpu: CpuId,
    /// Frames in the cache.
    pub count: u64,
    /// Frames moved at once.
    pub batch: u32,
    /// Frames at which a batch is moved out.
    pub high: u32,
    /// Counters.
    pub events: CpuEvents,
}

/// Frames on the lists of isolated pageblocks.
fn isolated_in(blocks: &FreeCounts) -> u64 {
    let of_order = |order: Order| {
        u64::from(blocks[order.index()][MigrateType::Isolate.index()]) * order.frames()
    };
    Order::all().map(of_order).sum()
}

impl<'m, P: Platform, S: Policy> Allocator<'m, P, S> {
    /// How many zone instances there are; ids run from 0.
    #[must_use]
    pub const fn zone_count(&self) -> usize {
        self.zones.len()
    }

    /// A zone as it is now, or `None` for an id beyond [`zone_count`](Self::zone_count).
    /// Visits every CPU's cache: O(CPUs).
    #[must_use]
    pub fn zone_info(&self, id: ZoneId) -> Option<ZoneInfo> {
        let zone = self.zone(id)?;
        let (planned, (start, end)) = (&self.plan.zones()[id.0 as usize], zone.span());
        let Snapshot { counts, free, events, high_atomic_pageblocks, merge_skipped } =
            S::Free::snapshot(self.view(zone));
        Some(ZoneInfo {
            zone: id,
            node: zone.node,
            zone_type: zone.zone_type,
            instance: zone.instance,
            start: if end > start { self.table.pfn(start) } else { planned.start },
            spanned: u64::from(end - start),
            present: zone.present(),
            managed: zone.managed(),
            free,
            counted_free: zone.free(),
            cached: self.cached_in(zone),
            merge_skipped: u64::from(merge_skipped),
            isolated: isolated_in(&counts),
            blocks: counts,
            watermarks: zone.watermarks(),
            boost: zone.boost(),
            reserve: ZoneType::ALL.map(|limit| zone.reserve(limit)),
            high_atomic_pageblocks,
            allocated: self.sum_over_caches(zone, |own| own.events().alloc) + events.direct_alloc,
            fair: S::Walk::share(&self.walk, zone),
            pages: self.pages_in(zone),
            events,
            compaction: zone.compaction.events(),
        })
    }

    /// A figure of every CPU's cache of a zone, summed up.
    pub(crate) fn sum_over_caches(
        &self,
        zone: &Zone<P, S>,
        figure: impl Fn(&mut InSlot<'_, P, S>) -> u64,
    ) -> u64 {
        self.caches_in(zone.id).filter_map(|cache| cache.reach(&figure)).sum()
    }

    fn pages_in(&self, zone: &Zone<P, S>) -> Option<ZonePages> {
        let states = S::Dirty::states(&zone.dirty)?;
        Some(ZonePages {
            states: PageState::ALL.map(|state| states.get(state)),
            dirty_limit: self.dirty_limit(zone.id)?,
            cached_limit: S::Dirty::remembered(&zone.dirty),
        })
    }

    /// One CPU's cache of a zone.
    #[must_use]
    pub fn cache_info(&self, id: ZoneId, cpu: CpuId) -> Option<CacheInfo> {
        let cache = self.cache_of(cpu, id)?;
        cache.reach(|own| {
            let (batch, high) = S::Pcp::limits(&own.cache);
            let count = own.cached();
            CacheInfo { cpu, count, batch, high, events: own.events() }
        })
    }

    /// Pageblocks of a zone by migrate type. O(pageblocks of the zone).
    #[must_use]
    pub fn pageblock_counts(
        &self,
        id: ZoneId,
    ) -> [u64; crate::types::migrate_type::NR_MIGRATE_TYPES] {
        let mut counts = [0; crate::types::migrate_type::NR_MIGRATE_TYPES];
        let step = self.table.pageblock_order().frames() as usize;
        for index in (0..self.table.frames()).step_by(step) {
            let word = self.table.pageblock(index);
            if word.zone() == Some(id) {
                counts[word.migrate().index()] += 1;
            }
        }
        counts
    }

    /// Free frames of a zone as its watermarks see them ([`ZoneInfo::counted_free`]), and the watermarks
    /// with the [boost](ZoneInfo::boost): what a thread looks at that reclaims in the background.
    /// `None` for an unknown zone. O(1).
    #[must_use]
    pub fn zone_level(&self, id: ZoneId) -> Option<(u64, Watermarks)> {
        let zone = self.zone(id)?;
        let [min, low, high] = [Mark::Min, Mark::Low, Mark::High].map(|mark| zone.mark(mark));
        Some((zone.free(), Watermarks { min, low, high }))
    }

    /// Sets a zone's watermarks (frames), until memory comes or goes. Where the bounds of per-CPU pages follow from
    /// the low one ([`BY_WATERMARK`](PcpPolicy::BY_WATERMARK)) they are drained and bounded anew: O(CPUs), and not
    /// to be called from a platform lock. `false`, and no change, for an unknown zone or marks out of order.
    pub fn set_watermarks(&self, id: ZoneId, marks: Watermarks) -> bool {
        let ordered = marks.min <= marks.low && marks.low <= marks.high;
        match self.zone(id) {
            Some(zone) if ordered => {
                zone.set_watermarks(marks);
                if S::Pcp::BY_WATERMARK {
                    self.size_caches(zone, marks.low);
                }
                true
            }
            _ => false,
        }
    }

    /// Raises all watermarks of a zone by `frames`, `u32::MAX` at most, until set again (0: not at all).
    /// `false` for an unknown zone.
    pub fn set_watermark_boost(&self, id: ZoneId, frames: u64) -> bool {
        self.zone(id).map(|zone| zone.set_boost(frames)).is_some()
    }
}
