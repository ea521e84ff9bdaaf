//! Blocks of more than a frame where a CPU keeps none of them, past the slow path while no mark is
//! near: by way of its slot for the zone, to or from the pageblock that is its own for such blocks, or
//! a whole one.

use super::allocator::Allocator;
use super::entry::Entry;
use super::host::Host;
use super::undo::InHand;
use crate::frame::{FrameState, PageblockWord};
use crate::platform::stay::Stay;
use crate::platform::{Platform, StayOf};
use crate::policy::pcp::{Passed, Pushed, Taken};
use crate::policy::zone::Zone;
use crate::policy::{Compact, FreeMemory, PcpPolicy, Policy, Trace, Walk};
use crate::trace::{Event, Point, or_undo};
use crate::types::block::Block;
use crate::types::error::AllocReason;
use crate::types::migrate_type::MigrateType;
use crate::types::request::Request;
use crate::types::units::{Order, Pfn};

impl<'m, P: Host, S: Policy> Allocator<'m, P, S> {
    /// What the stacks of single frames did not serve.
    // Calls in its place, so that it has no frame of its own, and the fast path of single frames none of
    // theirs.
    #[inline(never)]
    pub(super) fn alloc_further<E: Entry<'m, P, S>>(
        &self,
        entry: &mut E,
        request: &Request,
    ) -> Result<Block, AllocReason> {
        if E::OUTSIDE
            && let Some(passage) = entry.passage()
        {
            match S::Pcp::take_outside(passage, request) {
                Taken::Yes(index, order) => return Ok(self.passed(index, order, request)),
                Taken::No => {}
                Taken::Elsewhere(index) => return self.alloc_again(entry, request, index),
            }
        }
        self.alloc_in_slot(entry, request)
    }

    /// A block of a few frames, of those that stayed with their owner or else as larger ones: a
    /// pageblock may be as small.
    // Beside `alloc_further`, as its registers are not for the passage.
    #[inline(never)]
    pub(super) fn alloc_small<E: Entry<'m, P, S>>(
        &self,
        entry: &mut E,
        request: &Request,
    ) -> Result<Block, AllocReason> {
        match self.pop_small(entry, request) {
            Some(index) => self.filled(index, request),
            // What passes outside is a pageblock.
            None if StayOf::<P>::COPIES && request.order() < self.table.pageblock_order() => {
                self.alloc_in_slot(entry, request)
            }
            None => self.alloc_further(entry, request),
        }
    }

    /// Hands out a block that was taken, with zeros where they are asked for.
    #[inline(always)]
    fn filled(&self, index: u32, request: &Request) -> Result<Block, AllocReason> {
        match request.is_zero() {
            true => self.zeroed(index, request),
            false => Ok(self.handed_out(self.table.pfn(index), request.order(), request)),
        }
    }

    #[inline(always)]
    fn alloc_in_slot<E: Entry<'m, P, S>>(
        &self,
        entry: &mut E,
        request: &Request,
    ) -> Result<Block, AllocReason> {
        match request.large() {
            Some(_) => self.alloc_large(entry, request),
            None => self.slow_path(entry, request),
        }
    }

    /// A block of a few frames that stayed with its owner outside the slot.
    #[inline(always)]
    fn pop_small<E: Entry<'m, P, S>>(&self, entry: &E, request: &Request) -> Option<u32> {
        let kind = (request.order(), request.large()?);
        S::Pcp::pop_small(entry.home_outside(request.limit())?, &self.table, kind)
    }

    /// Hands out a block that was taken outside the slot, perhaps the last of its order. It was free in the map, where
    /// any CPU could have taken it: that it left is told as of every other.
    #[inline(always)]
    fn passed(&self, index: u32, order: Order, request: &Request) -> Block {
        let pfn = self.table.pfn(index);
        self.tell_taken(pfn, order, request.migrate_type());
        if S::Compact::STAYS_AHEAD {
            // It goes back if the host panics when it is asked (I-3). Here, so that the rest is out of line.
            let in_hand = InHand::new(self, pfn, order);
            let ahead = self.can_compact();
            let _told_later = in_hand.hand_out().into_raw();
            if ahead {
                return self.alloc_ahead(index, request);
            }
        }
        self.handed_out(pfn, order, request)
    }

    /// A block was taken outside the slot where pages can be moved.
    #[cold]
    #[inline(never)]
    fn alloc_ahead(&self, index: u32, request: &Request) -> Block {
        self.look_ahead(index, request.order());
        self.handed_out(self.table.pfn(index), request.order(), request)
    }

    /// A block that was taken outside the slot is of another type by now: it goes back, and the request on.
    #[cold]
    #[inline(never)]
    fn alloc_again<E: Entry<'m, P, S>>(
        &self,
        entry: &mut E,
        request: &Request,
        index: u32,
    ) -> Result<Block, AllocReason> {
        let order = request.order();
        self.table.set_state(index, FrameState::allocated(order));
        self.free_untold(self.table.pfn(index), order);
        self.alloc_in_slot(entry, request)
    }

    /// Wakes background compaction if a block that was just taken was the last of its order.
    #[inline(always)]
    fn look_ahead(&self, index: u32, order: Order) {
        if S::Compact::STAYS_AHEAD && order.is_costly() {
            // It goes back if the host panics when it is asked, or woken (I-3).
            let in_hand = InHand::new(self, self.table.pfn(index), order);
            if self.can_compact() {
                self.stay_ahead(index, order);
            }
            let _told_later = in_hand.hand_out().into_raw();
        }
    }

    /// A plain larger block by way of the slot, or else by the slow path.
    #[inline(never)]
    fn alloc_large<E: Entry<'m, P, S>>(
        &self,
        entry: &mut E,
        request: &Request,
    ) -> Result<Block, AllocReason> {
        match self.take_large(entry, request) {
            Some(index) => self.filled(index, request),
            None => self.slow_path(entry, request),
        }
    }

    /// A plain larger block from the home zone, if it has so much that no mark is near: what is nearer
    /// to one is for the slow path.
    #[inline(always)]
    fn take_large<E: Entry<'m, P, S>>(&self, entry: &mut E, request: &Request) -> Option<u32> {
        let (order, migrate) = (request.order(), request.migrate_type());
        let zone = self.zones.get(self.home(entry, request.limit()))?;
        let slack = zone.slack();
        if slack < order.frames() {
            return None;
        }
        let index = match StayOf::<P>::COPIES {
            true => self.take_large_from::<_, false>(entry, zone, order, migrate, slack)??,
            false => self.take_large_near(entry, zone, order, migrate)??,
        };
        // What passes outside is handed out as it is.
        if E::OUTSIDE && order == self.table.pageblock_order() && !request.is_zero() {
            self.open_passage(entry, zone, request, index);
        }
        zone.search_found();
        self.look_ahead(index, order);
        Some(index)
    }

    /// Remembers where blocks like the one at `index`, which was just taken, pass outside the slot.
    #[inline(never)]
    fn open_passage<E: Entry<'m, P, S>>(
        &self,
        entry: &mut E,
        zone: &'m Zone<P, S>,
        request: &Request,
        index: u32,
    ) {
        let open = entry.passage();
        if open.as_ref().is_some_and(|open| S::Pcp::has_way(open, request, index)) {
            return;
        }
        *open = None;
        let context = self.context(zone, entry.cpu());
        let margin = entry.enter(zone.id, |own| {
            let (cache, out) = own.parts();
            S::Pcp::make_way(&context, cache, out, request.order())
        });
        if let Some(margin) = margin.flatten()
            && let Some(out) = entry.outside(zone.id)
        {
            let (zone, table) = ((&**zone, margin), &self.table);
            *entry.passage() = S::Pcp::passage(zone, out, table, request, index);
        }
    }
}

impl<'m, P: Platform, S: Policy> Allocator<'m, P, S> {
    /// As [`take_large_from`](Self::take_large_from) on the slow path.
    #[inline(never)]
    pub(super) fn take_large_near<E: Entry<'m, P, S>>(
        &self,
        entry: &mut E,
        zone: &'m Zone<P, S>,
        order: Order,
        migrate: MigrateType,
    ) -> Option<Option<u32>> {
        self.take_large_from::<_, true>(entry, zone, order, migrate, zone.slack())
    }

    /// A larger block from a zone, whose marks allow it and which has `slack` above them all; `None` if
    /// the slot cannot be entered. `NEAR` makes two functions of it, one for each caller.
    #[inline(always)]
    fn take_large_from<E: Entry<'m, P, S>, const NEAR: bool>(
        &self,
        entry: &mut E,
        zone: &'m Zone<P, S>,
        order: Order,
        migrate: MigrateType,
        slack: u64,
    ) -> Option<Option<u32>> {
        let context = self.context(zone, entry.cpu());
        loop {
            let found = entry.enter_at(usize::from(zone.id.0), |own| {
                let (cache, out) = own.parts();
                let wanted = (order, migrate, slack);
                let taken = S::Pcp::take_large::<P, S::Trace>(&context, cache, out, wanted);
                let (index, came) = taken?;
                own.events.filled += came;
                S::Walk::charge(&self.walk, Some(zone), &mut own.walk, order.frames());
                Some(index)
            });
            if !context.stay.goes_on() || found != Some(None) {
                return found;
            }
        }
    }

    /// Frees a larger block. `false`, and nothing has changed, if it may not be freed so.
    #[inline(never)]
    pub(super) fn put_large<E: Entry<'m, P, S>>(
        &self,
        entry: &mut E,
        pfn: Pfn,
        order: Order,
    ) -> bool {
        if E::OUTSIDE
            && let Some(passage) = entry.passage()
        {
            let told = move || S::Trace::emit(Point::Free, move || Event::Free { pfn, order });
            match S::Pcp::put_outside(passage, pfn, order, told) {
                Passed::Yes => return true,
                Passed::No => {}
                Passed::Elsewhere(index) => return self.look_after(index, false),
                Passed::Twice(index) => return self.look_after(index, true),
            }
        }
        self.put_large_in_slot(entry, pfn, order)
    }

    /// Frees a block of a few frames: it stays with its owner, or goes as larger ones do.
    // Beside `put_large`, as `alloc_small`.
    #[inline(never)]
    pub(super) fn put_small<E: Entry<'m, P, S>>(
        &self,
        entry: &mut E,
        pfn: Pfn,
        order: Order,
    ) -> bool {
        match self.push_small(entry, pfn, order) {
            Pushed::Yes => true,
            Pushed::No if StayOf::<P>::COPIES && order < self.table.pageblock_order() => {
                self.put_large_in_slot(entry, pfn, order)
            }
            Pushed::No => self.put_large(entry, pfn, order),
            Pushed::Elsewhere(index) => {
                self.free_again(entry, index, order);
                true
            }
        }
    }

    /// Keeps a block of a few frames for an owner outside the slot.
    #[inline(always)]
    fn push_small<E: Entry<'m, P, S>>(&self, entry: &E, pfn: Pfn, order: Order) -> Pushed {
        let offset = self.table.offset(pfn);
        let place = self.table.pageblock_at(offset).and_then(PageblockWord::cached_in);
        let Some((zone, migrate)) = place else { return Pushed::No };
        let Some(out) = entry.outside(zone) else { return Pushed::No };
        let told = move || S::Trace::emit(Point::Free, move || Event::Free { pfn, order });
        S::Pcp::push_small(out, &self.table, (order, migrate), offset, told)
    }

    /// A block was freed outside the slot, and is of another type by now or was free already.
    #[cold]
    #[inline(never)]
    fn look_after(&self, index: u32, twice: bool) -> bool {
        let zone = self.table.pageblock(index).zone().and_then(|id| self.zone(id));
        if let Some(zone) = zone {
            S::Pcp::look_after(zone.view(&self.table), index, twice);
        }
        true
    }

    /// As [`put_large`](Self::put_large), by way of the slot.
    #[inline(never)]
    fn put_large_in_slot<E: Entry<'m, P, S>>(&self, entry: &mut E, pfn: Pfn, order: Order) -> bool {
        let offset = self.table.offset(pfn);
        let word = self.table.pageblock_at(offset);
        let Some((zone, migrate)) = word.and_then(PageblockWord::cached_in) else { return false };
        let Some(zone) = self.zone(zone) else { return false };
        let context = self.context(zone, entry.cpu());
        let put = entry.enter(zone.id, |own| {
            let to = S::Pcp::put_as(&own.cache, order);
            let from = FrameState::allocated(order);
            if !S::Free::release(&self.table, offset, from, to) {
                return false;
            }
            or_undo(
                || S::Trace::emit(Point::Free, move || Event::Free { pfn, order }),
                || _ = self.table.replace_state_at(offset, to, from),
            );
            own.events.free += order.frames();
            // No truncation: the state was found, so the offset is an index.
            let index = offset as u32;
            let (cache, out) = own.parts();
            let put = S::Pcp::put_large(&context, cache, out, order, migrate, index);
            own.events.shed += put;
            true
        });
        put == Some(true)
    }
}
