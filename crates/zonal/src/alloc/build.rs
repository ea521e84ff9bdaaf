//! Setting an allocator up from a plan.

use crate::boot::map::RangeKind;
use crate::boot::plan::{Config, Plan, ZoneSpec};
use crate::boot::tuning::Tuning;
use crate::frame::{FrameTable, PageblockWord};
use crate::pcp::per_cpu_pages::CpuZone;
use crate::pcp::policy::Keeper;
use crate::platform::{AtomicWord, Platform, Slot};
use crate::policy::{Clusters, Dirty, Policy, Walk};
use crate::types::error::BuildError;
use crate::types::migrate_type::MigrateType;
use crate::types::units::Order;
use crate::zone::instance::Zone;
use crate::zone::lists::buddy::Buddy;
use core::sync::atomic::Ordering::Relaxed;

/// Refuses memory that was used before: its pageblock words would name zones.
pub(crate) fn check_zeroed<P: Platform>(pageblocks: &[P::Word]) -> Result<(), BuildError> {
    if pageblocks.iter().any(|word| word.load(Relaxed) != 0) {
        return Err(BuildError::NotZeroed);
    }
    Ok(())
}

pub(crate) fn tuning(plan: &Plan, managed: u64) -> Tuning {
    let config = plan.config();
    let Config { cpus, depot_share, pcp_batch, pcp_high, pageblock_order, .. } = *config;
    Tuning { managed, cpus, depot_share, pcp_batch, pcp_high, pageblock_order }
}

/// The size and the batch for which a zone's clusters on the order-0 lists need the most words:
/// what it manages from the start, or that with all its later memory, which makes batches larger.
pub(crate) fn slot_room<S: Policy>(plan: &Plan, spec: &ZoneSpec) -> (u64, u32) {
    let sizes = [spec.managed, spec.managed + spec.later];
    let rooms = sizes.map(|frames| (frames, S::Keeper::batch(tuning(plan, frames))));
    let [first, whole] = rooms.map(|(frames, batch)| S::Clusters::slot_words(frames, batch));
    rooms[usize::from(whole > first)]
}

/// Sets what the zone lock guards that follows from a zone's size.
pub(crate) fn size_buddy<S: Policy>(plan: &Plan, buddy: &mut Buddy<S>, managed: u64) {
    S::Clusters::set_batch(&mut buddy.area.clusters, S::Keeper::batch(tuning(plan, managed)));
    if plan.config().highatomic {
        let one_percent = managed / 100 / plan.config().pageblock_order.frames();
        buddy.high_atomic_limit = one_percent as u32;
    }
}

/// Sets what follows from a zone's size for an empty cache of it.
pub(crate) fn size_cache<S: Policy>(plan: &Plan, own: &mut CpuZone<S>, managed: u64) {
    let tuning = tuning(plan, managed);
    S::Keeper::tune_cpu(&mut own.cache, tuning);
    S::Walk::tune_cpu(&mut own.walk, tuning);
    S::Dirty::tune_cpu(&mut own.dirty, tuning);
}

pub(crate) fn set_up_zones<P: Platform, S: Policy>(
    plan: &Plan,
    table: &FrameTable<'_, P>,
    zones: &mut [Zone<P, S>],
) {
    let mut slot_words = 0;
    for (zone, spec) in zones.iter_mut().zip(plan.zones()) {
        zone.id = spec.id;
        zone.node = spec.node;
        zone.zone_type = spec.zone_type;
        zone.instance = spec.instance;
        zone.present.store(spec.present, Relaxed);
        zone.managed.store(spec.managed, Relaxed);
        zone.set_reserve(spec.lowmem_reserve);
        zone.set_watermarks(spec.watermarks);
        let buddy = zone.buddy_mut();
        buddy.zone = spec.id;
        let (frames, batch) = slot_room::<S>(plan, spec);
        S::Clusters::tune(&mut buddy.area.clusters, slot_words, frames, batch);
        slot_words += S::Clusters::slot_words(frames, batch);
        size_buddy(plan, buddy, spec.managed);
        fill_zone(plan, table, zone, spec);
        // Nobody waited for this work.
        zone.buddy_mut().area.take_work();
        zone.with_buddy(|_| ());
    }
}

/// Makes the zone's usable memory free: whole largest blocks of ordinary memory go to the
/// frontier, the ragged ends and CMA to the lists.
fn fill_zone<P: Platform, S: Policy>(
    plan: &Plan,
    table: &FrameTable<'_, P>,
    zone: &mut Zone<P, S>,
    spec: &ZoneSpec,
) {
    let block = Order::MAX.frames() as u32;
    let step = table.pageblock_order().frames() as usize;
    for range in plan.ranges_of(spec.id).filter(|range| range.kind.is_present()) {
        let Some((start, last)) = bounds(table, &range) else { continue };
        zone.widen_span((table.pageblock_start(start), table.pageblock_start(last) + step as u32));
        let migrate = match range.kind {
            RangeKind::Cma => MigrateType::Cma,
            _ => MigrateType::Movable,
        };
        for at in (table.pageblock_start(start)..=last).step_by(step) {
            // Memory of two usable kinds in one pageblock was made one by the plan; what is
            // reclaimed later takes the type of what is there.
            if range.kind.is_usable() || table.pageblock(at).zone().is_none() {
                table.set_pageblock(at, PageblockWord::new(spec.id, migrate));
            }
        }
        if !range.kind.is_usable() {
            continue;
        }
        let end = last + 1;
        let (first, rest) = (start.next_multiple_of(block), end & !(block - 1));
        let buddy = zone.buddy_mut();
        if migrate == MigrateType::Cma || first >= rest {
            buddy.give_range(table, start, end, u32::MAX);
        } else {
            buddy.give_range(table, start, first, u32::MAX);
            buddy.frontier.push(table, first, rest);
            buddy.give_range(table, rest, end, u32::MAX);
        }
    }
}

/// First and last index of a range.
fn bounds<P: Platform>(
    table: &FrameTable<'_, P>,
    range: &crate::boot::map::Range,
) -> Option<(u32, u32)> {
    let start = table.index(range.start)?;
    (range.frames() > 0).then(|| (start, start + (range.frames() - 1) as u32))
}

pub(crate) fn tune_caches<P: Platform, S: Policy>(plan: &Plan, caches: &[P::Slot<CpuZone<S>>]) {
    for (cache, spec) in caches.iter().zip(plan.zones().iter().cycle()) {
        cache.with(|own| size_cache(plan, own, spec.managed));
    }
}
