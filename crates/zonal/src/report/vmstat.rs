//! `/proc/vmstat`: counters over the whole allocator.

use super::zones;
use crate::alloc::allocator::Allocator;
use crate::compact::CompactEvents;
use crate::pcp::per_cpu_pages::CpuEvents;
use crate::platform::Platform;
use crate::policy::Policy;
use crate::types::migrate_type::MigrateType;
use crate::types::units::{CpuId, ZoneId};
use crate::types::zone_type::{NR_ZONE_TYPES, ZoneType};
use core::fmt;

/// Prints as `/proc/vmstat`: a name and a value a line. O(CPUs × zones).
///
/// | name | meaning |
/// |---|---|
/// | `nr_free_pages`, `nr_free_cma` | free frames on the buddy lists; of these, in CMA pageblocks |
/// | `pgalloc_dma` … `pgalloc_movable`, `pgfree` | frames handed out by zone type, given back |
/// | `compact_migrate_scanned`, `compact_free_scanned` | frames that the scanners looked at |
/// | `compact_isolated` | frames taken in hand to be moved, and frames to move them to |
/// | `compact_stall`, `_fail`, `_success` | times a request waited for compaction; in vain; not in vain |
/// | `compact_daemon_wake` | times a background thread had a zone compacted |
/// | `pgmigrate_success`, `pgmigrate_fail` | frames that the host moved, or would not move |
/// | `zonal_migrate_mismatches` | answers of the host that did not fit what had become of the frames |
/// | `zonal_isolated` | free frames in isolated pageblocks |
/// | `zonal_cached` | frames in per-CPU caches |
/// | `zonal_highatomic_pageblocks` | pageblocks in the high-atomic reserve |
/// | `zonal_pcp_alloc`, `zonal_pcp_free` | of `pgalloc` and `pgfree`, the frames through the per-CPU caches |
/// | `zonal_pcp_refill`, `_spill`, `_drain` | times a cache was filled, gave a batch away, was emptied |
/// | `zonal_bulk_free_frames`, `zonal_bulk_free_entries` | frames of lists that caches took; times a cache's slot was entered for them |
/// | `zonal_direct_alloc`, `zonal_direct_free` | frames past the per-CPU caches |
/// | `zonal_pageblock_claim`, `zonal_block_steal` | fallbacks to another migrate type, both ways |
/// | `zonal_refused` | stale copies of frames that a cache gave back |
/// | `zonal_hold_max` | the most work (list operations, frames scanned) in one hold of a zone lock |
/// | `zonal_hold_lt_1`, `_2`, `_4` … `_2048`, `zonal_hold_ge_2048` | holds with less work than that, and not less than the line before |
///
/// A drain counts where it takes frames out; a cache that it [cannot
/// reach](crate::platform::Slot::reach) keeps its frames and is left out of the counts.
///
/// When nothing else runs, the `pgalloc` lines less `pgfree` are the frames in use. Reading a
/// zone's counts is itself a hold of its lock without work.
///
/// ```
/// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example/mod.rs")); }
/// use zonal::{Order, Request, report::VmStat};
/// # example::with_small::<zonal::preset::Zonal>(|allocator| {
/// let block = allocator.alloc(&Request::new(Order::HUGE)).unwrap();
/// assert!(VmStat(allocator).to_string().contains("\npgalloc_dma32 512\n"));
/// # allocator.free(block).unwrap();
/// # });
/// ```
pub struct VmStat<'a, 'm, P: Platform, S: Policy>(pub &'a Allocator<'m, P, S>);

/// Upper bounds of the work histogram's buckets; the last bucket has none.
const HOLD_BOUNDS: [u32; 12] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048];

/// What is summed over zones and CPUs.
#[derive(Default)]
struct Totals {
    free: u64,
    free_cma: u64,
    cached: u64,
    isolated: u64,
    high_atomic: u64,
    alloc: [u64; NR_ZONE_TYPES],
    pcp: CpuEvents,
    compaction: CompactEvents,
    direct_alloc: u64,
    direct_free: u64,
    claimed: u64,
    stolen: u64,
    refused: u64,
    holds: [u64; HOLD_BOUNDS.len() + 1],
    hold_max: u32,
}

impl Totals {
    fn of<P: Platform, S: Policy>(allocator: &Allocator<'_, P, S>) -> Self {
        let mut total = Self::default();
        for zone in zones(allocator) {
            let pcp = pcp_events(allocator, zone.zone);
            total.free += zone.free;
            total.free_cma += super::zoneinfo::free_of(&zone, MigrateType::Cma);
            total.cached += zone.cached;
            total.isolated += zone.isolated;
            total.compaction = total.compaction.plus(zone.compaction);
            total.high_atomic += u64::from(zone.high_atomic_pageblocks);
            total.alloc[zone.zone_type.index()] += pcp.alloc + zone.events.direct_alloc;
            total.pcp = total.pcp.plus(pcp);
            total.direct_alloc += zone.events.direct_alloc;
            total.direct_free += zone.events.direct_free;
            total.claimed += zone.events.claimed;
            total.stolen += zone.events.stolen;
            total.refused += zone.events.refused;
            total.hold_max = total.hold_max.max(zone.events.hold_max);
            for (sum, holds) in total.holds.iter_mut().zip(zone.events.holds) {
                *sum += holds;
            }
        }
        total
    }
}

/// The counters of every CPU's cache of a zone.
fn pcp_events<P: Platform, S: Policy>(allocator: &Allocator<'_, P, S>, zone: ZoneId) -> CpuEvents {
    let caches = (0..allocator.cpus()).filter_map(|cpu| allocator.cache_info(zone, CpuId(cpu)));
    caches.fold(CpuEvents::default(), |sum, cache| sum.plus(cache.events))
}

/// The zone type in the name of a `pgalloc` counter.
const fn suffix(zone_type: ZoneType) -> &'static str {
    match zone_type {
        ZoneType::Dma => "dma",
        ZoneType::Dma32 => "dma32",
        ZoneType::Normal => "normal",
        ZoneType::Movable => "movable",
    }
}

impl<P: Platform, S: Policy> fmt::Display for VmStat<'_, '_, P, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total = Totals::of(self.0);
        writeln!(f, "nr_free_pages {}", total.free)?;
        writeln!(f, "nr_free_cma {}", total.free_cma)?;
        for (zone_type, frames) in ZoneType::ALL.into_iter().zip(total.alloc) {
            writeln!(f, "pgalloc_{} {frames}", suffix(zone_type))?;
        }
        let compaction = total.compaction;
        let lines = [
            ("pgfree", total.pcp.free + total.direct_free),
            ("pgmigrate_success", compaction.migrate_success),
            ("pgmigrate_fail", compaction.migrate_fail),
            ("compact_migrate_scanned", compaction.migrate_scanned),
            ("compact_free_scanned", compaction.free_scanned),
            ("compact_isolated", compaction.isolated),
            ("compact_stall", compaction.stall),
            ("compact_fail", compaction.fail),
            ("compact_success", compaction.success),
            ("compact_daemon_wake", compaction.daemon_wake),
            ("zonal_migrate_mismatches", compaction.migrate_mismatches),
            ("zonal_isolated", total.isolated),
            ("zonal_cached", total.cached),
            ("zonal_highatomic_pageblocks", total.high_atomic),
            ("zonal_pcp_alloc", total.pcp.alloc),
            ("zonal_pcp_free", total.pcp.free),
            ("zonal_pcp_refill", total.pcp.refills),
            ("zonal_pcp_spill", total.pcp.spills),
            ("zonal_pcp_drain", total.pcp.drains),
            ("zonal_bulk_free_frames", total.pcp.bulk_frames),
            ("zonal_bulk_free_entries", total.pcp.bulk_entries),
            ("zonal_direct_alloc", total.direct_alloc),
            ("zonal_direct_free", total.direct_free),
            ("zonal_pageblock_claim", total.claimed),
            ("zonal_block_steal", total.stolen),
            ("zonal_refused", total.refused),
            ("zonal_hold_max", u64::from(total.hold_max)),
        ];
        for (name, value) in lines {
            writeln!(f, "{name} {value}")?;
        }
        let [below @ .., most] = total.holds;
        for (bound, holds) in HOLD_BOUNDS.into_iter().zip(below) {
            writeln!(f, "zonal_hold_lt_{bound} {holds}")?;
        }
        writeln!(f, "zonal_hold_ge_2048 {most}")
    }
}
