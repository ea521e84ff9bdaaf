//! Allocation: the fast path.

use crate::alloc::allocator::Allocator;
use crate::alloc::entry::Entry;
use crate::alloc::host::Host;
use crate::pcp::per_cpu_pages::InSlot;
use crate::platform::Platform;
use crate::policy::PcpPolicy;
use crate::policy::zone::Zone;
use crate::policy::{Policy, Trace, Walk};
use crate::trace::{Event, Point, or_undo};
use crate::types::block::Block;
use crate::types::error::AllocError;
use crate::types::migrate_type::MigrateType;
use crate::types::request::Request;
use crate::types::units::{Order, Pfn};
use crate::types::zone_type::ZoneType;

impl<'m, P: Host, S: Policy> Allocator<'m, P, S> {
    /// Allocates a block through the try-lock path of the current CPU's cache.
    ///
    /// # Errors
    /// [`AllocError`] says why, how many zones were tried, and the first of them; what they had is
    /// [`explain`](Allocator::explain)'s to say.
    #[inline(always)]
    pub fn alloc(&self, request: &Request) -> Result<Block, AllocError> {
        self.alloc_through::<_, true>(&mut self.shared_entry(), request)
    }

    /// As [`alloc`](Self::alloc), for those who keep the pfn by other means.
    ///
    /// # Errors
    /// As [`alloc`](Self::alloc).
    #[inline(always)]
    pub fn alloc_raw(&self, request: &Request) -> Result<Pfn, AllocError> {
        self.alloc(request).map(|block| block.into_raw().0)
    }

    /// The first thing that [`alloc`](Self::alloc) tries, and nothing else: a single frame that this CPU has
    /// of its home zone. `None` if it has none, or the request wants more than that;
    /// [`alloc_uncached`](Self::alloc_uncached) then goes on. For hosts that keep what follows out of line. O(1),
    /// without a loop.
    #[inline(always)]
    #[must_use]
    pub fn alloc_cached(&self, request: &Request) -> Option<Block> {
        let popped = self.pop_home(&mut self.shared_entry(), request.limit(), request.single()?);
        popped.map(|index| self.handed_out(self.table.pfn(index), Order::ZERO, request))
    }

    /// All that [`alloc`](Self::alloc) tries after [`alloc_cached`](Self::alloc_cached).
    ///
    /// # Errors
    /// As [`alloc`](Self::alloc).
    #[inline(always)]
    pub fn alloc_uncached(&self, request: &Request) -> Result<Block, AllocError> {
        self.alloc_through::<_, false>(&mut self.shared_entry(), request)
    }

    /// Allocates through `entry`: the home zone's cache, but for hosts that have tried it (not `CACHED`), else the slow path,
    /// through the pages of larger orders where there are some.
    // Always inlined, like what it calls on the way to a single cached frame: the result then
    // stays in registers, and only a failure is written to memory.
    #[inline(always)]
    pub(crate) fn alloc_through<E: Entry<'m, P, S>, const CACHED: bool>(
        &self,
        entry: &mut E,
        request: &Request,
    ) -> Result<Block, AllocError> {
        if CACHED && let Some(migrate) = request.single() {
            let limit = request.limit();
            let popped = if E::OUTSIDE {
                let home = entry.home_outside(limit);
                home.and_then(|out| S::Pcp::pop_outside(out, &self.table, migrate))
            } else {
                self.pop_home(entry, limit, migrate)
            };
            if let Some(index) = popped {
                return Ok(self.handed_out(self.table.pfn(index), Order::ZERO, request));
            }
            cold();
        }
        let further = match S::Pcp::PASSES_LARGE {
            true if E::OUTSIDE && request.is_small(S::Pcp::SMALL) => {
                self.alloc_small(entry, request)
            }
            true => self.alloc_further(entry, request),
            false => self.slow_path(entry, request),
        };
        match further {
            Ok(block) => Ok(block),
            Err(reason) => Err(self.refused(entry.seat(), request, reason)),
        }
    }
}

/// The branch that calls it is laid out of the way.
#[cold]
#[inline(always)]
pub(super) const fn cold() {}

impl<'m, P: Platform, S: Policy> Allocator<'m, P, S> {
    /// Takes a frame from the cache of the home zone.
    #[inline(always)]
    pub(super) fn pop_home<E: Entry<'m, P, S>>(
        &self,
        entry: &mut E,
        limit: ZoneType,
        migrate: MigrateType,
    ) -> Option<u32> {
        let home = self.home(entry, limit);
        self.pop_at(entry, home, migrate)
    }

    /// The same, where the home zone is known.
    #[inline(always)]
    pub(super) fn pop_at<E: Entry<'m, P, S>>(
        &self,
        entry: &mut E,
        home: usize,
        migrate: MigrateType,
    ) -> Option<u32> {
        entry.enter_at(home, move |own| self.pop(own, self.zones.get(home), migrate))?
    }

    /// Takes a frame from a CPU's cache of `zone`, and charges the walk for it.
    #[inline(always)]
    pub(crate) fn pop(
        &self,
        own: &mut InSlot<'_, P, S>,
        zone: Option<&Zone<P, S>>,
        migrate: MigrateType,
    ) -> Option<u32> {
        let (cache, out) = own.parts();
        let index = S::Pcp::pop(cache, out, &self.table, migrate)?;
        S::Walk::charge(&self.walk, zone, &mut own.walk, 1);
        Some(index)
    }

    /// The zone whose cache may answer a plain request; an index beyond all zones: none may.
    #[inline(always)]
    pub(crate) fn home<E: Entry<'m, P, S>>(&self, entry: &E, limit: ZoneType) -> usize {
        let homes = entry.homes();
        let first = homes.first[limit.index()] as usize;
        S::Walk::home(&self.walk, self.zones, &homes.walk, limit, first)
    }

    #[inline(always)]
    pub(super) fn handed_out(&self, pfn: Pfn, order: Order, request: &Request) -> Block {
        // By value: a request whose address went to the sink would have to be in memory.
        let request = request.anywhere();
        or_undo(
            || S::Trace::emit(Point::Alloc, move || Event::alloc(pfn, &request)),
            || self.free_untold(pfn, order),
        );
        Block::new(pfn, order)
    }
}
