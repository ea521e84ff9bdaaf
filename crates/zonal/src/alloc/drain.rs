//! Caches emptied, and merging that was skipped done: what was kept apart goes back to the zones,
//! for those who look for memory and for CPUs that go away.

use crate::alloc::allocator::Allocator;
use crate::alloc::build::size_cache_at;
use crate::pcp::per_cpu_pages::InSlot;
use crate::platform::stay::Stay;
use crate::platform::{Platform, StayOf};
use crate::policy::PcpPolicy;
use crate::policy::Policy;
use crate::policy::pcp::{Drainer, ZoneContext};
use crate::policy::zone::Zone;
use crate::types::units::CpuId;

impl<'m, P: Platform, S: Policy> Allocator<'m, P, S> {
    /// Gives what every CPU caches of the zone back to it; returns the frames.
    pub(crate) fn drain_zone(&self, zone: &'m Zone<P, S>) -> u64 {
        (0..self.cpus()).map(|cpu| self.drain_cache(CpuId(cpu), zone, |_| ())).sum()
    }

    /// Gives what `cpu` caches of the zone back to it, and has `then` see the empty cache; returns
    /// the frames.
    pub(crate) fn drain_cache(
        &self,
        cpu: CpuId,
        zone: &'m Zone<P, S>,
        then: impl FnOnce(&mut InSlot<'_, P, S>),
    ) -> u64 {
        let Some(cache) = self.cache_of(cpu, zone.id) else { return 0 };
        let context = self.context(zone, cpu.0 as usize);
        let drained = cache.reach(|own| {
            let given = self.drain_pages(own, &context, Drainer::Other);
            then(own);
            given
        });
        // A cache that cannot be reached keeps its frames.
        drained.unwrap_or(0)
    }

    /// The same from inside the slot.
    pub(super) fn drain_pages(
        &self,
        own: &mut InSlot<'_, P, S>,
        context: &ZoneContext<'_, P, S::Free>,
        by: Drainer,
    ) -> u64 {
        let (cache, out) = own.parts();
        let given = S::Pcp::drain(context, cache, out, by);
        // Not by what it held before and after: its owner may take frames meanwhile.
        own.events.shed += given;
        own.events.drains += u64::from(given > 0);
        given
    }

    /// The owner of a CPU leaves, and is in its slot for a zone.
    pub(super) fn leave_cache(&self, zone: usize, cpu: usize, own: &mut InSlot<'_, P, S>) {
        if let Some(zone) = self.zones.get(zone) {
            let context = self.context(zone, cpu);
            let shed = S::Pcp::leave(&context, own.parts().0);
            own.events.shed += shed;
        }
    }

    /// Empties every CPU's cache of the zone, and bounds it by what the zone manages and a low watermark.
    pub(crate) fn size_caches(&self, zone: &'m Zone<P, S>, low: u64) {
        for cpu in (0..self.cpus()).map(CpuId) {
            if StayOf::<P>::LIST != usize::MAX {
                // In a stay of its own.
                self.drain_cache(cpu, zone, |_| ());
            }
            // Emptied and bounded in one entry of its slot.
            let managed = zone.managed();
            self.drain_cache(cpu, zone, |own| size_cache_at(self.plan, own, managed, low));
        }
    }

    /// Gives everything that `cpu` caches back to the zones; returns the frames. For a
    /// CPU that goes idle or offline. `0` for a CPU that the allocator does not have.
    pub fn drain_cpu(&self, cpu: CpuId) -> u64 {
        self.zones.iter().map(|zone| self.drain_cache(cpu, zone, |_| ())).sum()
    }

    /// Gives everything that any CPU caches back to the zones, and merges what was skipped; returns
    /// the frames. Must not be called from a platform lock.
    pub fn drain_all(&self) -> u64 {
        let mut given = 0;
        for zone in self.zones {
            given += self.drain_zone(zone);
            self.merge_skipped(zone);
        }
        given
    }
}
