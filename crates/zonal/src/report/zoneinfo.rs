//! `/proc/zoneinfo`: each zone's size, watermarks, reserve and per-CPU caches.

use super::{ZoneHead, zones};
use crate::alloc::allocator::Allocator;
use crate::boot::map::RangeKind;
use crate::platform::Platform;
use crate::policy::Policy;
use crate::report::info::{CacheInfo, ZoneInfo};
use crate::types::migrate_type::MigrateType;
use crate::types::page_state::PageState;
use crate::types::units::{CpuId, Order, ZoneId};
use core::fmt;

/// Prints as `/proc/zoneinfo`. `min`, `low` and `high` include the boost, as they do in Linux;
/// `protection` is the lowmem reserve by zone type, DMA first. O(CPUs) a zone.
///
/// Zonal's own lines: frames in per-CPU caches (not part of `nr_free_pages`), the frames it handed
/// out, whether a fair walk passes it over, how many of its pages may be dirty, pageblocks in the
/// high-atomic reserve, and the counters of each CPU's cache.
///
/// ```
/// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example/mod.rs")); }
/// use zonal::report::ZoneStatus;
/// # example::with_small::<zonal::preset::Zonal>(|allocator| {
/// let text = ZoneStatus(allocator).to_string();
/// assert!(text.starts_with("Node 0, zone      DMA\n  pages free     4096\n        boost    0\n"));
/// assert!(text.contains("\n        protection: (0, 48, 48, 48)\n      nr_free_pages 4096\n"));
/// assert!(text.contains("\n  pagesets\n    cpu: 0\n              count:    0\n"));
/// # });
/// ```
pub struct ZoneStatus<'a, 'm, P: Platform, S: Policy>(pub &'a Allocator<'m, P, S>);

impl<P: Platform, S: Policy> fmt::Display for ZoneStatus<'_, '_, P, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for zone in zones(self.0) {
            writeln!(f, "{}", ZoneHead(&zone))?;
            self.pages(f, &zone)?;
            statistics(f, &zone)?;
            writeln!(f, "  pagesets")?;
            for cpu in (0..self.0.cpus()).map(CpuId) {
                if let Some(cache) = self.0.cache_info(zone.zone, cpu) {
                    pageset(f, &cache)?;
                }
            }
            writeln!(f, "  start_pfn:           {}", zone.start.get())?;
        }
        Ok(())
    }
}

impl<P: Platform, S: Policy> ZoneStatus<'_, '_, P, S> {
    fn pages(&self, f: &mut fmt::Formatter<'_>, zone: &ZoneInfo) -> fmt::Result {
        let marks = zone.watermarks.boosted(zone.boost);
        writeln!(f, "  pages free     {}", zone.free)?;
        let lines = [
            ("boost", zone.boost),
            ("min", marks.min),
            ("low", marks.low),
            ("high", marks.high),
            ("spanned", zone.spanned),
            ("present", zone.present),
            ("managed", zone.managed),
            ("cma", self.cma_frames(zone.zone)),
        ];
        for (name, frames) in lines {
            writeln!(f, "        {name:<8} {frames}")?;
        }
        let [dma, dma32, normal, movable] = zone.reserve;
        writeln!(f, "        protection: ({dma}, {dma32}, {normal}, {movable})")
    }

    fn cma_frames(&self, zone: ZoneId) -> u64 {
        let ranges = self.0.plan().ranges_of(zone);
        ranges.filter(|range| range.kind == RangeKind::Cma).map(|range| range.frames()).sum()
    }
}

fn statistics(f: &mut fmt::Formatter<'_>, zone: &ZoneInfo) -> fmt::Result {
    let lines = [
        ("nr_free_pages", zone.free),
        ("nr_free_cma", free_of(zone, MigrateType::Cma)),
        ("zonal_cached", zone.cached),
        ("zonal_highatomic_pageblocks", u64::from(zone.high_atomic_pageblocks)),
    ];
    for (name, value) in lines {
        writeln!(f, "      {name:<12} {value}")?;
    }
    if let Some(pages) = &zone.pages {
        for (state, pages) in PageState::ALL.into_iter().zip(pages.states) {
            writeln!(f, "      {:<12} {pages}", state.name())?;
        }
        writeln!(f, "      zonal_dirty_limit {}", pages.cached_limit.unwrap_or(pages.dirty_limit))?;
    }
    if let Some(share) = zone.fair {
        writeln!(f, "      {:<12} {}", "nr_alloc_batch", share.batch)?;
        writeln!(f, "      zonal_fair_depleted {}", u8::from(share.depleted))?;
    }
    writeln!(f, "      zonal_allocated {}", zone.allocated)
}

fn pageset(f: &mut fmt::Formatter<'_>, cache: &CacheInfo) -> fmt::Result {
    writeln!(f, "    cpu: {}", cache.cpu)?;
    let lines = [
        ("count:", cache.count),
        ("high:", u64::from(cache.high)),
        ("batch:", u64::from(cache.batch)),
        ("zonal_alloc:", cache.events.alloc),
        ("zonal_free:", cache.events.free),
        ("zonal_refill:", cache.events.refills),
        ("zonal_spill:", cache.events.spills),
        ("zonal_drain:", cache.events.drains),
    ];
    for (name, value) in lines {
        writeln!(f, "              {name:<9} {value}")?;
    }
    Ok(())
}

/// Free frames of one migrate type on the zone's buddy lists.
pub(super) fn free_of(zone: &ZoneInfo, migrate: MigrateType) -> u64 {
    let rows = Order::all().zip(&zone.blocks);
    rows.map(|(order, row)| u64::from(row[migrate.index()]) * order.frames()).sum()
}
