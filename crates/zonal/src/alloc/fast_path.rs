//! Allocation: the fast path, and one zone tried.

use crate::alloc::allocator::Allocator;
use crate::alloc::entry::Entry;
use crate::boot::watermark::{Mark, watermark_ok};
use crate::frame::FrameState;
use crate::pcp::per_cpu_pages::CpuZone;
use crate::pcp::policy::{Here, Keeper};
use crate::platform::Platform;
use crate::policy::walk::Miss;
use crate::policy::{Policy, Trace, Walk};
use crate::trace::{Event, Point};
use crate::types::block::Block;
use crate::types::error::{AllocError, AllocReason};
use crate::types::migrate_type::MigrateType;
use crate::types::request::Request;
use crate::types::units::{ORDERS, Order, Pfn};
use crate::types::zone_type::ZoneType;
use crate::zone::instance::Zone;
use crate::zone::lists::buddy::Reach;

impl<'m, P: Platform, S: Policy> Allocator<'m, P, S> {
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
        own: &mut CpuZone<S>,
        zone: Option<&Zone<P, S>>,
        order: Order,
        migrate: MigrateType,
    ) -> Option<u32> {
        let index = S::Keeper::pop(&mut own.cache, &self.table, order, migrate)?;
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
        if order > Order::ZERO && request.is_plain() && S::Keeper::caches(order) {
            let home = self.home(entry, request.limit());
            let pop = |own: &mut CpuZone<S>| self.pop(own, self.zones.get(home), order, migrate);
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
        let here = self.here(zone, entry.cpu());
        let allowance = self.allowance(&here, request, mark);
        if S::Keeper::caches(order) {
            let found = entry.enter(zone.id, |own| {
                let pop = |own: &mut CpuZone<S>| self.pop(own, Some(zone), order, migrate);
                if let Some(index) = pop(own) {
                    return Some(index);
                }
                let filled = allowance > 0
                    && own.book(|own| {
                        S::Keeper::refill(&here, &mut own.cache, order, migrate, allowance)
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
        match allowance {
            // What a larger block wants more says nothing of the zone.
            0 if order == Order::ZERO => Err(Miss::BelowMark),
            0 => Err(Miss::Nothing),
            _ => self.alloc_direct(zone, request).ok_or(Miss::Nothing),
        }
    }

    /// How many frames the request may take from the zone's lists and clusters: 0, or at least a
    /// block of its order. Other CPUs' shards are counted only if it takes them to pass the mark:
    /// that costs O(CPUs).
    pub(crate) fn allowance(&self, here: &Here<'_, P, S>, request: &Request, mark: Mark) -> u64 {
        let zone = here.zone;
        let (kept, reserve) = (zone.mark(mark), zone.reserve(request.limit()));
        let access = request.access();
        let above = |free: u64| {
            let enough = watermark_ok(free, request.order(), kept, reserve, access, |_| true);
            enough.then(|| free - access.lower(kept) - reserve)
        };
        let listed = zone.usable(request);
        let near = above(listed + S::Keeper::shared::<P>(&zone.keeper));
        near.or_else(|| above(listed + S::Keeper::deferred(here))).unwrap_or(0)
    }

    /// Takes a block from the buddy lists, past the caches.
    fn alloc_direct(&self, zone: &Zone<P, S>, request: &Request) -> Option<u32> {
        let (order, table) = (request.order(), &self.table);
        let urgent = request.is_atomic() && order > Order::ZERO;
        let reach = Reach { high_atomic: urgent, ..Reach::NORMAL };
        let index = zone.with_buddy(|buddy| {
            let index = buddy.take(table, order, request.migrate_type(), reach)?;
            table.set_state(index, FrameState::allocated(order));
            buddy.events.direct_alloc += order.frames();
            Some(index)
        })?;
        S::Trace::emit(Point::AllocZoneLocked, || Event::AllocZoneLocked {
            pfn: table.pfn(index),
            order,
            migrate: request.migrate_type(),
            percpu_refill: false,
        });
        S::Walk::charge_zone(&self.walk, zone, order.frames());
        if urgent {
            // In a hold of its own: with a claim in one it would be too long (I-7).
            zone.with_buddy(|buddy| buddy.reserve_high_atomic(table, index, order));
        }
        Some(index)
    }
}
