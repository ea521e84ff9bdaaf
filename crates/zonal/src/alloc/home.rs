//! The caches of a CPU's home zones, looked up once: for a host whose CPUs have something of their own at hand.
//!
//! A request without more finds its CPU's number, the node, the home zone and its cache each time, which is a third
//! of what a cached frame costs. A kernel that keeps a [`HomeCaches`] where a CPU finds it at once is spared that.
//!
//! ```
//! # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example/mod.rs")); }
//! use zonal::{CpuId, Order, Request};
//! # example::with_small::<zonal::preset::Zonal>(|allocator| {
//! let home = allocator.home_caches(CpuId(0)).unwrap();
//! assert!(home.alloc_cached(&Request::frame()).is_none(), "nothing is cached yet");
//! let frame = allocator.alloc(&Request::frame()).unwrap();
//! allocator.free(frame).unwrap();
//! assert!(home.alloc_cached(&Request::frame()).is_some());
//! assert!(allocator.home_caches(CpuId(1000)).is_none(), "no such CPU");
//! # });
//! ```

use crate::alloc::allocator::Allocator;
use crate::alloc::host::Host;
use crate::pcp::per_cpu_pages::{OutsideSlot, PerCpuPages};
use crate::platform::{Platform, Slot};
use crate::policy::{PcpPolicy, Policy, Walk};
use crate::types::block::Block;
use crate::types::request::Request;
use crate::types::units::{CpuId, Order};
use crate::types::zone_type::NR_ZONE_TYPES;
use core::fmt;

/// Caches of one CPU: those that its plain requests try first. Anyone may use them, as anyone may be taken for being
/// on that CPU: see the [module](self).
pub struct HomeCaches<'a, 'm, P: Platform, S: Policy> {
    allocator: &'a Allocator<'m, P, S>,
    /// For each zone limit.
    slots: [Option<&'m P::Slot<PerCpuPages<S>>>; NR_ZONE_TYPES],
    /// And what of them lies outside, or of another where there is none.
    outside: [&'m OutsideSlot<P, S>; NR_ZONE_TYPES],
}

impl<'m, P: Platform, S: Policy> Allocator<'m, P, S> {
    /// The caches that plain requests of a CPU try first, by the node that the host names for it now; `None` for a CPU
    /// that the allocator does not have.
    #[must_use]
    pub fn home_caches(&self, cpu: CpuId) -> Option<HomeCaches<'_, 'm, P, S>> {
        let (at, zones) = (cpu.0 as usize, self.zones.len());
        let own = self.caches.of_cpu(at, zones)?;
        let (homes, any) = (self.homes_now(at).first, own.outside.first()?);
        Some(HomeCaches {
            allocator: self,
            slots: homes.map(|zone| own.slots.get(zone as usize)),
            outside: homes.map(|zone| own.outside.get(zone as usize).unwrap_or(any)),
        })
    }
}

impl<'a, 'm, P: Host, S: Policy> HomeCaches<'a, 'm, P, S> {
    /// As [`Allocator::alloc_cached`], on that CPU.
    #[inline(always)]
    #[must_use]
    pub fn alloc_cached(&self, request: &Request) -> Option<Block> {
        let allocator = self.allocator;
        if !S::Walk::FIRST {
            // Its home zone is another one from time to time.
            return allocator.alloc_cached(request);
        }
        let migrate = request.single()?;
        let limit = request.limit().index();
        let (slot, out) = (self.slots[limit]?, self.outside[limit]);
        let pop = |own: &mut PerCpuPages<S>| {
            S::Pcp::pop(&mut own.cache, &out.0, &allocator.table, migrate)
        };
        let index = slot.try_with(pop)??;
        Some(allocator.handed_out(allocator.table.pfn(index), Order::ZERO, request))
    }

    /// The allocator.
    #[must_use]
    pub const fn allocator(&self) -> &'a Allocator<'m, P, S> {
        self.allocator
    }
}

impl<P: Platform, S: Policy> fmt::Debug for HomeCaches<'_, '_, P, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HomeCaches").finish_non_exhaustive()
    }
}
