//! Setting an allocator up from a plan.

use crate::boot::map::{PfnRange, round_down};
use crate::boot::plan::{Config, Plan};
use crate::boot::tuning::Tuning;
use crate::frame::FrameState;
use crate::pcp::per_cpu_pages::{Cache, InSlot};
use crate::platform::{AtomicWord, Platform};
use crate::policy::FreeMemory;
use crate::policy::PcpPolicy;
use crate::policy::zone::Zone;
use crate::policy::{Dirty, Policy, Walk};
use crate::types::error::BuildError;
use crate::types::units::Pfn;
use crate::types::zone_type::ZoneType;
use crate::zone::tables::{NR_FREE_WORDS, ZoneTables};
use core::sync::atomic::Ordering::Relaxed;

/// Refuses memory that was used before: its pageblock words would name zones.
pub(crate) fn check_zeroed<P: Platform>(pageblocks: &[P::Word]) -> Result<(), BuildError> {
    if pageblocks.iter().any(|word| word.load(Relaxed) != 0) {
        return Err(BuildError::NotZeroed);
    }
    Ok(())
}

/// Marks the frames that are not the allocator's in the pageblocks that are a zone's: those around what is
/// usable, and what is reclaimed later. O(ranges × frames of a pageblock + frames reclaimed later).
pub(crate) fn withhold<P: Platform>(plan: &Plan, table: &ZoneTables<'_, P>) {
    let size = table.pageblock_order().frames();
    let fill = |range: PfnRange, state| {
        if let Some(first) = table.index(range.start) {
            table.fill_states(first, range.frames() as usize, state);
        }
    };
    for range in plan.map().present() {
        for edge in [range.start, range.end].into_iter().filter(|edge| edge.get() % size != 0) {
            let start = round_down(edge, size);
            let block = PfnRange::new(start, Pfn::new(start.get() + size));
            fill(block, FrameState::WITHHELD);
            let usable = plan.map().usable().filter_map(|range| range.clip(block));
            usable.for_each(|range| fill(range.pfns(), FrameState::INNER));
        }
        if !range.kind.is_usable() {
            fill(range.pfns(), FrameState::WITHHELD);
        }
    }
}

pub(crate) fn tuning(plan: &Plan, managed: u64) -> Tuning {
    let config = plan.config();
    let Config { cpus, pcp_batch, pcp_high, regions, pageblock_order, .. } = *config;
    let lowmem = plan.zones().iter().filter(|zone| zone.zone_type != ZoneType::Movable);
    let lowmem = lowmem.map(|zone| zone.managed).sum::<u64>().max(1);
    let low = plan.config().watermarks.marks(ZoneType::Normal, managed, lowmem).low;
    let cpus_of_node = cpus.div_ceil(plan.nodes().bits().count_ones().max(1));
    Tuning { managed, cpus, cpus_of_node, low, pcp_batch, pcp_high, regions, pageblock_order }
}

/// How many frames per-CPU pages move at once in a zone, from how many it manages.
pub(crate) fn batch<S: Policy>(plan: &Plan) -> impl Fn(u64) -> u32 {
    |managed| S::Pcp::batch(tuning(plan, managed))
}

/// Sets what follows from a zone's size and its low watermark for an empty cache of it.
pub(crate) fn size_cache_at<P: Platform, S: Policy>(
    plan: &Plan,
    own: &mut InSlot<'_, P, S>,
    managed: u64,
    low: u64,
) {
    tune::<P, S>(own, Tuning { low, ..tuning(plan, managed) });
}

fn tune<P: Platform, S: Policy>(own: &mut InSlot<'_, P, S>, tuning: Tuning) {
    let (cache, out) = own.parts();
    S::Pcp::tune_cpu(cache, out, tuning);
    S::Walk::tune_cpu(&mut own.walk, tuning);
    S::Dirty::tune_cpu(&mut own.dirty, tuning);
}

pub(crate) fn set_up_zones<P: Platform, S: Policy>(
    plan: &Plan,
    table: &ZoneTables<'_, P>,
    zones: &mut [Zone<P, S>],
) {
    let mut used = [0; NR_FREE_WORDS];
    for (zone, spec) in zones.iter_mut().zip(plan.zones()) {
        zone.plan(spec);
        zone.set_watermarks(spec.watermarks);
        S::Free::set_up(zone, table, plan, spec, &batch::<S>(plan), &mut used);
    }
}

pub(crate) fn tune_caches<'a, P: Platform + 'a, S: Policy>(
    plan: &Plan,
    caches: impl Iterator<Item = Cache<'a, P, S>>,
) {
    for (cache, spec) in caches.zip(plan.zones().iter().cycle()) {
        let low = spec.watermarks.low;
        cache.with(|own| size_cache_at(plan, own, spec.managed, low));
    }
}
