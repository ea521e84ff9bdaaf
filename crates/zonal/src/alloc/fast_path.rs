//! Allocation: the fast path, and one zone tried.

use crate::alloc::allocator::Allocator;
use crate::alloc::entry::Entry;
use crate::alloc::host::Host;
use crate::boot::watermark::{Mark, watermark_ok};
use crate::pcp::per_cpu_pages::PerCpuPages;
use crate::policy::FreeMemory;
use crate::policy::PcpPolicy;
use crate::policy::pcp::ZoneContext;
use crate::policy::walk::Miss;
use crate::policy::zone::Zone;
use crate::policy::{Policy, Trace, Walk};
use crate::trace::{Event, Point};
use crate::types::block::Block;
use crate::types::error::{AllocError, AllocReason};
use crate::types::migrate_type::MigrateType;
use crate::types::request::Request;
use crate::types::units::{ORDERS, Order, Pfn};
use crate::types::zone_type::ZoneType;
use crate::zone::AllocFlags;

impl<'m, P: Host, S: Policy> Allocator<'m, P, S> {
    /// Allocates through `entry`: the home zone's cache, else everything else.
    // Always inlined, like what it calls on the way to a single cached frame: the result then
    // stays in registers, and only a failure is written to memory.
    #[inline(always)]
    pub(crate) fn alloc_through<E: Entry<P, S>>(
        &self,
        entry: &mut E,
        request: &Request,
    ) -> Result<Block, AllocError> {
        if let Some(migrate) = request.single() {
            if let Some(index) = self.pop_home::<E, 0>(entry, request.limit(), migrate) {
                return Ok(self.handed_out(self.table.pfn(index), Order::ZERO, request));
            }
        } else if let Some(migrate) = request.huge()
            && let Some(index) = self.pop_home::<E, 9>(entry, request.limit(), migrate)
        {
            return Ok(self.handed_out(self.table.pfn(index), Order::HUGE, request));
        }
        match self.alloc_further(entry, request) {
            Ok(block) => Ok(block),
            Err(reason) => Err(self.explain(entry.cpu(), request, reason)),
        }
    }

    /// Takes a block of order `ORDER`, 0 or 9, from the cache of the home zone.
    #[inline(always)]
    fn pop_home<E: Entry<P, S>, const ORDER: u8>(
        &self,
        entry: &mut E,
        limit: ZoneType,
        migrate: MigrateType,
    ) -> Option<u32> {
        let home = self.home(entry, limit);
        self.pop_at::<E, ORDER>(entry, home, migrate)
    }

    /// The same, where the home zone is known. The closure is small enough to be inlined because
    /// it is for one order only.
    #[inline(always)]
    fn pop_at<E: Entry<P, S>, const ORDER: u8>(
        &self,
        entry: &mut E,
        home: usize,
        migrate: MigrateType,
    ) -> Option<u32> {
        entry.enter_at(home, move |own| {
            self.pop(own, self.zones.get(home), ORDERS[ORDER as usize], migrate)
        })?
    }

    /// Takes a block from a CPU's cache of `zone`, and charges the walk for it.
    #[inline(always)]
    pub(crate) fn pop(
        &self,
        own: &mut PerCpuPages<S>,
        zone: Option<&Zone<P, S>>,
        order: Order,
        migrate: MigrateType,
    ) -> Option<u32> {
        let index = S::Pcp::pop(&mut own.cache, &self.table, order, migrate)?;
        S::Walk::charge(&self.walk, zone, &mut own.walk, order.frames());
        Some(index)
    }

    /// The zone whose cache may answer a plain request; an index beyond all zones: none may.
    #[inline(always)]
    pub(crate) fn home<E: Entry<P, S>>(&self, entry: &E, limit: ZoneType) -> usize {
        let homes = entry.homes();
        let first = homes.first[limit.index()] as usize;
        S::Walk::home(&self.walk, self.zones, &homes.walk, limit, first)
    }

    /// The home zone's cache for a block of more than one frame, else walk and slow path.
    #[inline(never)]
    fn alloc_further<E: Entry<P, S>>(
        &self,
        entry: &mut E,
        request: &Request,
    ) -> Result<Block, AllocReason> {
        let (order, migrate) = (request.order(), request.migrate_type());
        if order > Order::ZERO && request.is_plain() && S::Pcp::caches(order) {
            let home = self.home(entry, request.limit());
            let pop =
                |own: &mut PerCpuPages<S>| self.pop(own, self.zones.get(home), order, migrate);
            if let Some(Some(index)) = entry.enter_at(home, pop) {
                return Ok(self.handed_out(self.table.pfn(index), order, request));
            }
        }
        if request.is_plain_write() && order == Order::ZERO {
            let home = self.home(entry, request.limit());
            let zone = self.zones.get(home).filter(|zone| self.may_be_dirtied(zone, request));
            if zone.is_some()
                && let Some(index) = self.pop_at::<E, 0>(entry, home, migrate)
            {
                return Ok(self.handed_out(self.table.pfn(index), order, request));
            }
        }
        if self.plan.has_vacant()
            && let Some(index) = self.pop_stand_in(entry, request)
        {
            return Ok(self.handed_out(self.table.pfn(index), order, request));
        }
        self.alloc_slowly(entry, request)
    }

    #[inline(always)]
    fn handed_out(&self, pfn: Pfn, order: Order, request: &Request) -> Block {
        // By value: a request whose address went to the sink would have to be in memory.
        let request = request.anywhere();
        S::Trace::emit(Point::Alloc, move || Event::alloc(pfn, &request));
        Block::new(pfn, order)
    }

    /// Walk and slow path, then what the request wants done with the block.
    #[inline(never)]
    fn alloc_slowly<E: Entry<P, S>>(
        &self,
        entry: &mut E,
        request: &Request,
    ) -> Result<Block, AllocReason> {
        let (order, migrate) = (request.order(), request.migrate_type());
        if !migrate.is_requestable() {
            return Err(AllocReason::NotRequestable);
        }
        let index = self.alloc_anywhere(entry, request)?;
        let block = self.handed_out(self.table.pfn(index), order, request);
        if request.is_zero() && self.platform.zero(block.pfn(), order).is_err() {
            let (pfn, order) = block.into_raw();
            let undone = self.free_through(entry, pfn, order);
            debug_assert!(undone.is_ok(), "a block just allocated can be freed");
            return Err(AllocReason::CannotZero);
        }
        Ok(block)
    }

    /// Tries one zone above `mark`: its cache, a refill of the cache, the buddy lists.
    pub(crate) fn alloc_in<E: Entry<P, S>>(
        &self,
        entry: &mut E,
        zone: &'m Zone<P, S>,
        request: &Request,
        mark: Mark,
    ) -> Result<u32, Miss> {
        let (order, migrate) = (request.order(), request.migrate_type());
        let context = self.context(zone, entry.cpu());
        let headroom = self.headroom(&context, request, mark);
        if S::Pcp::caches(order) {
            let found = entry.enter(zone.id, |own| {
                let pop = |own: &mut PerCpuPages<S>| self.pop(own, Some(zone), order, migrate);
                if let Some(index) = pop(own) {
                    return Some(index);
                }
                let filled = headroom > 0
                    && own.book(|own| {
                        S::Pcp::refill::<P, S::Trace>(
                            &context,
                            &mut own.cache,
                            order,
                            migrate,
                            headroom,
                        )
                    });
                own.events.refills += u64::from(filled);
                let handed_out = own.events().alloc;
                S::Walk::refilled(&self.walk, zone, &mut own.walk, handed_out);
                if filled { pop(own) } else { None }
            });
            if let Some(Some(index)) = found {
                return Ok(index);
            }
        }
        match headroom {
            // What a larger block wants more says nothing of the zone.
            0 if order == Order::ZERO => Err(Miss::BelowMark),
            0 => Err(Miss::Nothing),
            _ => self.alloc_direct(zone, request).ok_or(Miss::Nothing),
        }
    }

    /// How many frames the request may take from the zone's lists and clusters: 0, or at least a
    /// block of its order. Other CPUs' shards are counted only if it takes them to pass the mark:
    /// that costs O(CPUs).
    pub(crate) fn headroom(
        &self,
        context: &ZoneContext<'_, P, S::Free, S::Pcp>,
        request: &Request,
        mark: Mark,
    ) -> u64 {
        let zone = context.zone;
        let (kept, reserve) = (zone.mark(mark), zone.reserve(request.limit()));
        let access = request.access();
        let above = |free: u64| {
            let enough = watermark_ok(free, request.order(), kept, reserve, access, |_| true);
            enough.then(|| free - access.lower(kept) - reserve)
        };
        let listed = zone.usable(request);
        let near = above(listed + S::Pcp::shared::<P>(context.part));
        near.or_else(|| above(listed + S::Pcp::deferred(context))).unwrap_or(0)
    }

    /// Takes a block from the zone's free memory, past the per-CPU pages.
    fn alloc_direct(&self, zone: &Zone<P, S>, request: &Request) -> Option<u32> {
        let order = request.order();
        let urgent = request.is_atomic() && order > Order::ZERO;
        let flags = AllocFlags { high_atomic: urgent, ..AllocFlags::NORMAL };
        let migrate = request.migrate_type();
        let view = zone.view(&self.table);
        let index = S::Free::take_block::<P, S::Trace>(view, order, migrate, flags)?;
        S::Trace::emit(Point::AllocZoneLocked, || Event::AllocZoneLocked {
            pfn: self.table.pfn(index),
            order,
            migrate,
            percpu_refill: false,
        });
        S::Walk::charge_zone(&self.walk, zone, order.frames());
        if urgent {
            // In a hold of its own: with a claim in one it would be too long (I-7).
            S::Free::reserve_high_atomic(view, index, order);
        }
        Some(index)
    }

    /// What the cache of the home zone would have for a plain request, from that of the zone that
    /// stands in for it while it has no memory.
    #[cold]
    #[inline(never)]
    pub(crate) fn pop_stand_in<E: Entry<P, S>>(
        &self,
        entry: &mut E,
        request: &Request,
    ) -> Option<u32> {
        let (order, migrate) = (request.order(), request.migrate_type());
        let home = self.zones.get(self.home(entry, request.limit()))?;
        if !request.is_plain() || !S::Pcp::caches(order) || self.has_memory(home) {
            return None;
        }
        let zone = self.first_zone(entry.cpu(), request)?;
        entry.enter(zone.id, |own| self.pop(own, Some(zone), order, migrate))?
    }
}
