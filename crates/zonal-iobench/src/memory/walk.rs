//! Which zone a page is taken from: the walk of each kernel, then the slow path's.

use crate::kernel::{DirtyLimit, Walk};
use crate::machine::DIRTY_PERCENT;

use super::{Memory, ZoneName};

/// What a walk over the zones met on its way.
#[derive(Clone, Copy, Debug, Default)]
struct Met {
    depleted: usize,
    low: usize,
    dirty: usize,
}

impl Memory {
    /// The zone for a page. Background reclaim is wanted if no zone was good enough at once.
    pub(super) fn walk(&mut self, writes: bool) -> Option<ZoneName> {
        let chosen = match self.kernel.walk {
            Walk::FirstFit => self.pass(writes, false).ok(),
            Walk::Fair(_) => self.fair(writes).or_else(|| self.pass(writes, false).ok()),
            Walk::FairOnePass(_) => self.fair(writes),
            Walk::Posted => self.posted(writes),
        };
        if let Some(zone) = chosen {
            self.count(zone);
            return chosen;
        }
        self.wants_kswapd = true;
        let above_min = |name: &ZoneName| {
            let zone = self.zone(*name);
            zone.is_above(zone.min, true)
        };
        let zone = ZoneName::FROM_TOP.into_iter().find(above_min)?;
        self.count(zone);
        Some(zone)
    }

    fn count(&mut self, zone: ZoneName) {
        if self.kernel.walk == Walk::FirstFit {
            return;
        }
        let zone = self.zone_mut(zone);
        zone.left -= 1;
        // As posted: the flag is set when exactly nothing is left.
        zone.is_depleted |= zone.left == 0;
    }

    /// The first zone that is not used up, if it matters, within its dirty limit, and above its low
    /// watermark.
    fn pass(&mut self, writes: bool, by_batch: bool) -> Result<ZoneName, Met> {
        let posted = self.kernel.walk == Walk::Posted;
        let mut met = Met::default();
        for name in ZoneName::FROM_TOP {
            let zone = self.zone(name);
            let is_depleted = if posted { zone.is_depleted } else { zone.left <= 0 };
            if by_batch && is_depleted {
                met.depleted += 1;
            } else if writes && !self.may_be_dirty(name) {
                met.dirty += 1;
            } else if !self.zone(name).is_above(self.zone(name).low, true) {
                met.low += 1;
            } else {
                return Ok(name);
            }
        }
        Err(met)
    }

    /// By batches; if that fails, these are filled again.
    fn fair(&mut self, writes: bool) -> Option<ZoneName> {
        let found = self.pass(writes, true);
        if found.is_err() {
            self.fill_batches();
        }
        found.ok()
    }

    /// As patch 3 does it, and patch 4 where it is there.
    fn posted(&mut self, writes: bool) -> Option<ZoneName> {
        let met = match self.pass(writes, true) {
            Ok(zone) => return Some(zone),
            Err(met) => met,
        };
        let is_used_up = met.depleted == ZoneName::FROM_TOP.len();
        if met.low > 0 || is_used_up {
            self.fill_batches();
        }
        let past_limits = self.kernel.dirty == DirtyLimit::Cached && met.dirty > 0;
        if met.low > 0 || is_used_up || past_limits {
            return self.pass(writes && !past_limits, false).ok();
        }
        None
    }

    fn fill_batches(&mut self) {
        for zone in &mut self.zones {
            zone.left = zone.batch as i64;
            zone.is_depleted = false;
        }
    }

    /// Whether a zone is within its part of the dirty limit.
    fn may_be_dirty(&mut self, name: ZoneName) -> bool {
        let zone = self.zone(name);
        let dirty = zone.dirty + zone.writeback;
        let limit = || self.dirtyable(zone) * DIRTY_PERCENT.0 / 100;
        match self.kernel.dirty {
            DirtyLimit::None => true,
            DirtyLimit::Exact => dirty <= limit(),
            DirtyLimit::Cached => {
                let is_within = dirty <= zone.cached_limit;
                if !is_within {
                    let limit = limit();
                    self.zone_mut(name).cached_limit = limit;
                }
                is_within
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::Kernel;
    use crate::machine::MACHINES;

    fn memory(kernel: &str) -> Memory {
        let kernel = Kernel::named(kernel).expect("it is in the tables");
        Memory::new(&MACHINES[0], &kernel, 1 << 20)
    }

    /// The zones of the first pages.
    fn spread(memory: &mut Memory, pages: u32) -> [u64; 2] {
        for page in 0..pages {
            assert!(memory.allocate(page, false).is_some(), "page {page}");
        }
        [ZoneName::Dma32, ZoneName::Normal].map(|name| memory.zone(name).allocated)
    }

    #[test]
    fn first_fit_takes_all_from_normal() {
        assert_eq!(spread(&mut memory("3.0"), 100_000), [0, 100_000]);
    }

    #[test]
    fn batches_spread_by_the_size_of_zones() {
        let mut memory = memory("3.16-rc1");
        let [dma32, normal] = spread(&mut memory, 100_000);
        let batches = [ZoneName::Dma32, ZoneName::Normal].map(|name| memory.zone(name).batch);
        let share = batches[0] as f64 / (batches[0] + batches[1]) as f64;
        let got = dma32 as f64 / (dma32 + normal) as f64;
        assert!((share - 0.375).abs() < 0.001 && (got - share).abs() < 0.02, "{got} {share}");
    }

    #[test]
    fn quarters_last_as_long_as_they_are() {
        for kernel in ["fairzone", "bigbatches", "bigbatches1node"] {
            let mut memory = memory(kernel);
            let quarter = memory.zone(ZoneName::Normal).batch as u32;
            assert_eq!(spread(&mut memory, quarter + 10), [10, u64::from(quarter)], "{kernel}");
        }
    }

    #[test]
    fn low_zones_wake_reclaim_and_the_lowest_gives_nothing() {
        let mut memory = memory("3.0");
        for zone in &mut memory.zones {
            zone.free = zone.low + zone.reserve;
        }
        assert!(memory.allocate(0, false).is_some() && memory.takes_wish());
        assert!(!memory.takes_wish());
        for zone in &mut memory.zones {
            zone.free = zone.min + zone.reserve;
        }
        assert_eq!(memory.allocate(1, false), None);
        assert!(memory.takes_wish());
    }

    #[test]
    fn dirty_pages_spread_by_the_limits_of_zones() {
        let mut memory = memory("3.16-rc1");
        for page in 0..400_000 {
            memory.allocate(page, true).expect("most is free");
            assert!(memory.set_dirty(page));
        }
        let [dma32, normal] = [ZoneName::Dma32, ZoneName::Normal].map(|it| memory.zone(it).dirty);
        assert!(dma32 > 0 && normal > dma32 && dma32 + normal == 400_000, "{dma32} {normal}");
        assert!(memory.begin_writeback(7) && !memory.begin_writeback(7));
        memory.end_writeback(7);
        assert_eq!(memory.dirty(), (399_999, 0));
    }
}
