//! The two ways into a CPU's caches behind one trait: the shared try-lock and the owned claim.

use crate::cpu_zone::CpuZone;
use crate::platform::{OwnedSlots, Platform, Slot};
use crate::policy::Policy;
use crate::units::ZoneId;
use crate::zone_type::{NR_ZONE_TYPES, ZoneType};

pub(crate) trait Entry<P: Platform, S: Policy> {
    /// Runs `f` on the CPU's cache of `zone`; `None` if somebody else is inside.
    fn enter<R>(&mut self, zone: ZoneId, f: impl FnOnce(&mut CpuZone<S>) -> R) -> Option<R>;
    /// The CPU whose caches these are.
    fn cpu(&self) -> usize;
    /// The zone that a plain request tries first; a number beyond all zones if there is none.
    fn home(&self, limit: ZoneType) -> ZoneId;
}

/// For each zone limit, the zone that a request tries first.
pub(crate) type Homes = [u8; NR_ZONE_TYPES];

/// Anyone, on the CPU that the platform named.
pub(crate) struct SharedEntry<'a, P: Platform, S: Policy> {
    caches: &'a [P::Slot<CpuZone<S>>],
    zones: usize,
    cpu: usize,
    homes: &'a Homes,
}

impl<'a, P: Platform, S: Policy> SharedEntry<'a, P, S> {
    #[inline(always)]
    pub(crate) fn new(
        caches: &'a [P::Slot<CpuZone<S>>],
        zones: usize,
        cpu: usize,
        homes: &'a Homes,
    ) -> Self {
        Self { caches, zones, cpu, homes }
    }
}

impl<P: Platform, S: Policy> Entry<P, S> for SharedEntry<'_, P, S> {
    #[inline(always)]
    fn enter<R>(&mut self, zone: ZoneId, f: impl FnOnce(&mut CpuZone<S>) -> R) -> Option<R> {
        self.caches.get(self.cpu * self.zones + zone.0 as usize)?.try_with(f)
    }
    #[inline(always)]
    fn cpu(&self) -> usize {
        self.cpu
    }
    #[inline(always)]
    fn home(&self, limit: ZoneType) -> ZoneId {
        ZoneId(self.homes[limit.index()])
    }
}

/// The owner of a CPU's caches, with what it needs to know of its CPU's node.
pub(crate) struct OwnedEntry<O> {
    pub(crate) owned: O,
    pub(crate) cpu: usize,
    pub(crate) homes: Homes,
}

impl<P: Platform, S: Policy, O: OwnedSlots<CpuZone<S>>> Entry<P, S> for OwnedEntry<O> {
    #[inline(always)]
    fn enter<R>(&mut self, zone: ZoneId, f: impl FnOnce(&mut CpuZone<S>) -> R) -> Option<R> {
        self.owned.with(zone.0 as usize, f)
    }
    #[inline(always)]
    fn cpu(&self) -> usize {
        self.cpu
    }
    #[inline(always)]
    fn home(&self, limit: ZoneType) -> ZoneId {
        ZoneId(self.homes[limit.index()])
    }
}
