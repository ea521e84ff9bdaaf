//! Allocation: the fast path, and one zone tried.

use crate::allocator::{Allocator, NO_ZONE};
use crate::block::Block;
use crate::buddy::Reach;
use crate::entry::Entry;
use crate::error::{AllocError, AllocReason};
use crate::frame::FrameState;
use crate::keeper::Keeper;
use crate::migrate::MigrateType;
use crate::platform::Platform;
use crate::policy::trace::Event;
use crate::policy::{Policy, Trace};
use crate::request::Request;
use crate::units::{Order, Pfn, ZoneId};
use crate::watermark::{Mark, watermark_ok};
use crate::zone::Zone;

impl<'m, P: Platform, S: Policy> Allocator<'m, P, S> {
    /// Allocates through `entry`: the home zone's cache, else everything else.
    #[inline]
    pub(crate) fn alloc_through<E: Entry<P, S>>(
        &self,
        entry: &mut E,
        request: &Request,
    ) -> Result<Block, AllocError> {
        let (order, migrate) = (request.order(), request.migrate_type());
        if request.is_plain() && S::Keeper::caches(order) {
            let node = self.node_of(entry.cpu());
            let home = self.homes[node.0 as usize][request.limit().index()];
            if home != NO_ZONE {
                let found = entry.enter(ZoneId(home), |here| {
                    let index = S::Keeper::pop(&mut here.cache, &self.table, order, migrate)?;
                    here.events.alloc += order.frames();
                    Some(index)
                });
                if let Some(Some(index)) = found {
                    return Ok(self.handed_out(self.table.pfn(index), order, migrate));
                }
            }
        }
        self.alloc_slowly(entry, request)
    }

    #[inline]
    fn handed_out(&self, pfn: Pfn, order: Order, migrate: MigrateType) -> Block {
        S::Trace::emit(|| Event::Alloc { pfn, order, migrate });
        Block::new(pfn, order)
    }

    /// Walk and slow path, then what the request wants done with the block.
    #[cold]
    #[inline(never)]
    fn alloc_slowly<E: Entry<P, S>>(
        &self,
        entry: &mut E,
        request: &Request,
    ) -> Result<Block, AllocError> {
        let (order, migrate) = (request.order(), request.migrate_type());
        if !migrate.is_requestable() {
            return Err(self.explain(request, AllocReason::NotRequestable, &[], Mark::Low));
        }
        let index = self.alloc_anywhere(entry, request)?;
        let block = self.handed_out(self.table.pfn(index), order, migrate);
        if request.is_zero() && self.platform.zero(block.pfn(), order).is_err() {
            let (pfn, order) = block.into_raw();
            let undone = self.free_through(entry, pfn, order);
            debug_assert!(undone.is_ok(), "a block just allocated can be freed");
            return Err(self.explain(request, AllocReason::CannotZero, &[], Mark::Low));
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
    ) -> Option<u32> {
        let (order, migrate) = (request.order(), request.migrate_type());
        let here = self.here(zone, entry.cpu());
        let allowance = self.allowance(zone, request, mark);
        if S::Keeper::caches(order) {
            let found = entry.enter(zone.id, |own| {
                let mut pop = || S::Keeper::pop(&mut own.cache, &self.table, order, migrate);
                if let Some(index) = pop() {
                    own.events.alloc += order.frames();
                    return Some(index);
                }
                if allowance == 0
                    || !S::Keeper::refill(&here, &mut own.cache, order, migrate, allowance)
                {
                    return None;
                }
                own.events.refills += 1;
                own.events.alloc += order.frames();
                S::Keeper::pop(&mut own.cache, &self.table, order, migrate)
            });
            if let Some(Some(index)) = found {
                return Some(index);
            }
        }
        if allowance == 0 { None } else { self.alloc_direct(zone, request) }
    }

    /// How many frames the request may take from the zone's lists and shared clusters:
    /// 0, or at least a block of its order.
    pub(crate) fn allowance(&self, zone: &Zone<P, S>, request: &Request, mark: Mark) -> u64 {
        let free = zone.usable(request) + S::Keeper::shared::<P>(&zone.keeper);
        let (mark, reserve) = (zone.mark(mark), zone.reserve[request.limit().index()]);
        let access = request.access();
        if !watermark_ok(free, request.order(), mark, reserve, access, |_| true) {
            return 0;
        }
        free - access.lower(mark) - reserve
    }

    /// Takes a block from the buddy lists, past the caches.
    fn alloc_direct(&self, zone: &Zone<P, S>, request: &Request) -> Option<u32> {
        let (order, table) = (request.order(), &self.table);
        let urgent = request.is_atomic() && order > Order::ZERO;
        let reach = Reach { high_atomic: urgent, ..Reach::NORMAL };
        zone.with_buddy(|buddy| {
            let index = buddy.take(table, order, request.migrate_type(), reach)?;
            table.set_state(index, FrameState::allocated(order));
            buddy.events.direct_alloc += order.frames();
            if urgent {
                buddy.reserve_high_atomic(table, index);
            }
            Some(index)
        })
    }
}
