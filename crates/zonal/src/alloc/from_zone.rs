//! One zone tried: its per-CPU pages, a refill of them, its free memory.

use super::allocator::Allocator;
use super::entry::Entry;
use crate::boot::watermark::watermark_ok;
use crate::pcp::per_cpu_pages::InSlot;
use crate::platform::Platform;
use crate::platform::stay::Stay;
use crate::policy::walk::Miss;
use crate::policy::zone::Zone;
use crate::policy::{FreeMemory, PcpPolicy, Policy, Trace, Walk};
use crate::trace::{Event, Point, or_undo};
use crate::types::mark::Mark;
use crate::types::migrate_type::MigrateType;
use crate::types::request::Request;
use crate::types::units::{Order, Pfn};
use crate::zone::AllocFlags;

impl<'m, P: Platform, S: Policy> Allocator<'m, P, S> {
    /// Tries one zone above `mark`: its cache, a refill of the cache, the buddy lists.
    pub(super) fn alloc_from<E: Entry<'m, P, S>>(
        &self,
        entry: &mut E,
        zone: &'m Zone<P, S>,
        request: &Request,
        mark: Mark,
    ) -> Result<u32, Miss> {
        let (order, migrate) = (request.order(), request.migrate_type());
        let context = self.context(zone, entry.cpu());
        let headroom = self.headroom(zone, request, mark);
        let urgent = request.is_atomic() && order > Order::ZERO;
        if S::Pcp::PASSES_LARGE && order > Order::ZERO && !urgent && headroom > 0 {
            // Where the slot cannot be entered the block comes from the zone all the same.
            if let Some(found) = self.take_large_near(entry, zone, order, migrate) {
                return found.ok_or(Miss::Nothing);
            }
        }
        let mut goes_on = order == Order::ZERO;
        while goes_on {
            let found = entry.enter_at(usize::from(zone.id.0), |own| {
                let pop = |own: &mut InSlot<'_, P, S>| self.pop(own, Some(zone), migrate);
                if let Some(index) = pop(own) {
                    return Some(index);
                }
                let mut booking = own.booking();
                let (pages, out) = booking.pages().parts();
                let filled = headroom > 0
                    && S::Pcp::refill::<P, S::Trace>(&context, pages, out, migrate, headroom);
                drop(booking);
                own.events.refills += u64::from(filled);
                if !S::Walk::FIRST {
                    let handed_out = own.events().alloc;
                    S::Walk::refilled(&self.walk, zone, &mut own.walk, handed_out);
                }
                if filled { pop(own) } else { None }
            });
            if E::OUTSIDE {
                // The edge may have moved.
                entry.forget_window();
            }
            if let Some(Some(index)) = found {
                return Ok(index);
            }
            goes_on = found.is_some() && context.stay.goes_on();
        }
        match headroom {
            // What a larger block wants more says nothing of the zone.
            0 if order == Order::ZERO => Err(Miss::BelowMark),
            0 => Err(Miss::Nothing),
            _ => self.alloc_direct(zone, request).ok_or(Miss::Nothing),
        }
    }

    /// How many frames the request may take from the zone: 0, or at least a block of its order.
    pub(crate) fn headroom(&self, zone: &Zone<P, S>, request: &Request, mark: Mark) -> u64 {
        Self::headroom_of(zone.usable(request), zone, request, mark)
    }

    /// The same where `free` frames are free that the request may use.
    fn headroom_of(free: u64, zone: &Zone<P, S>, request: &Request, mark: Mark) -> u64 {
        let (kept, reserve) = (zone.mark(mark), zone.reserve(request.limit()));
        let access = request.access();
        match watermark_ok(free, request.order(), kept, reserve, access, |_| true) {
            true => free - access.lower(kept) - reserve,
            false => 0,
        }
    }

    /// Whether the zone could serve the request but for what CPUs have freed and not counted yet. It
    /// counts what is free: O(words of a map, or orders × migrate types).
    pub(super) fn is_undercounted(&self, zone: &Zone<P, S>, request: &Request) -> bool {
        let usable = |migrate: MigrateType| match migrate {
            MigrateType::Isolate => false,
            MigrateType::Cma => request.may_use_cma(),
            MigrateType::HighAtomic => request.is_atomic(),
            _ => true,
        };
        self.headroom(zone, request, Mark::Min) == 0 && {
            let free = S::Free::frames_of(zone.view(&self.table), usable);
            Self::headroom_of(free, zone, request, Mark::Min) > 0
        }
    }

    /// Takes a block from the zone's free memory, past the per-CPU pages.
    fn alloc_direct(&self, zone: &Zone<P, S>, request: &Request) -> Option<u32> {
        let order = request.order();
        let urgent = request.is_atomic() && order > Order::ZERO;
        let flags = AllocFlags { high_atomic: urgent, ..AllocFlags::NORMAL };
        let migrate = request.migrate_type();
        let view = zone.view(&self.table);
        let index = S::Free::take_block::<P, S::Trace>(view, order, migrate, flags)?;
        self.tell_taken(self.table.pfn(index), order, migrate);
        S::Walk::charge_zone(&self.walk, zone, order.frames());
        if urgent {
            // In a hold of its own: with a claim in one it would be too long (I-7).
            S::Free::reserve_high_atomic(view, index, order);
        }
        Some(index)
    }

    /// Tells of a block that left a zone's free memory, past the per-CPU pages: it goes back if the sink panics.
    #[inline(always)]
    pub(super) fn tell_taken(&self, pfn: Pfn, order: Order, migrate: MigrateType) {
        or_undo(
            || {
                S::Trace::emit(Point::AllocZoneLocked, || Event::AllocZoneLocked {
                    pfn,
                    order,
                    migrate,
                    percpu_refill: false,
                });
            },
            || self.free_untold(pfn, order),
        );
    }
}
