//! Mechanisms of a preset that the machine's memory leaves off, which the figures have to be read with.

use crate::platform::Sim;
use zonal::policy::{FreeMemory, Policy, Split};
use zonal::{Allocator, CpuId, ZoneId};

/// Those of an allocator that was just set up, a sentence each; none if all that the preset has is on.
pub(crate) fn mechanisms<S: Policy>(allocator: &Allocator<'_, Sim, S>) -> Vec<String> {
    let ids = || (0..allocator.zone_count()).map(|id| ZoneId(id as u8));
    let cpus = allocator.cpus();
    let caches = ids()
        .flat_map(|zone| (0..cpus).filter_map(move |cpu| allocator.cache_info(zone, CpuId(cpu))));
    let caches: Vec<_> = caches.map(|cache| (cache.high, cache.batch)).collect();
    let mut off = Vec::new();
    let mut note = |what: &str, count: usize, why: &str| {
        if count > 0 {
            off.push(format!("{what} of {count} of {} caches: {why}", caches.len()));
        }
    };
    let empty = caches.iter().filter(|(high, _)| *high == 0).count();
    match S::Free::LOCKED {
        true => note("lists", empty, "they hold nothing"),
        false => note("stacks", empty, "less than 3 MiB of the zone for each CPU"),
    }
    if S::Free::CUTS_BATCHES {
        let single = caches.iter().filter(|(_, batch)| *batch <= 1).count();
        note("clusters", single, "batches of one frame");
    }
    if <S::Split as Split>::LANES > 1 {
        let zones: Vec<_> = ids().filter_map(|id| allocator.zone_info(id)).collect();
        let types = zones.iter().filter(|zone| zone.instance == 0).count();
        let split = zones.iter().filter(|zone| zone.instance == 1).count();
        if split < types {
            let whole = types - split;
            off.push(format!("splitting of {whole} of {types} zone types: one instance each"));
        }
    }
    off
}
