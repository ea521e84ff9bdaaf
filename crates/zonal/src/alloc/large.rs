//! Blocks of more than a frame where a CPU keeps none of them: by way of its slot for the zone, to
//! or from the pageblock that is its own for such blocks, or a whole one.

use super::allocator::Allocator;
use super::entry::Entry;
use super::host::Host;
use super::undo::InHand;
use crate::frame::{FrameState, PageblockWord};
use crate::platform::Platform;
use crate::policy::zone::Zone;
use crate::policy::{FreeMemory, PcpPolicy, Policy, Trace, Walk};
use crate::trace::{Event, Point, or_undo};
use crate::types::mark::Mark;
use crate::types::migrate_type::MigrateType;
use crate::types::request::Request;
use crate::types::units::{Order, Pfn};

impl<'m, P: Host, S: Policy> Allocator<'m, P, S> {
    /// A plain larger block from the home zone above its low watermark.
    #[inline]
    pub(super) fn take_large<E: Entry<'m, P, S>>(
        &self,
        entry: &mut E,
        request: &Request,
    ) -> Option<u32> {
        let (order, migrate) = (request.order(), request.migrate_type());
        let plain = request.is_plain_but_zero() && !request.is_atomic() && migrate.is_requestable();
        if order == Order::ZERO || !plain {
            return None;
        }
        let limit = request.limit();
        let zone = self.zones.get(self.home(entry, limit))?;
        let kept = zone.mark(Mark::Low).saturating_add(zone.reserve(limit));
        if zone.usable(request) < kept.saturating_add(order.frames()) {
            return None;
        }
        let index = self.take_large_from(entry, zone, order, migrate)??;
        zone.search_found();
        let in_hand = InHand::new(self, self.table.pfn(index), order);
        self.stay_ahead(index, order);
        let _told_later = in_hand.hand_out().into_raw();
        Some(index)
    }
}

impl<'m, P: Platform, S: Policy> Allocator<'m, P, S> {
    /// A larger block from a zone, whose marks allow it; `None` if the slot cannot be entered.
    #[inline]
    pub(super) fn take_large_from<E: Entry<'m, P, S>>(
        &self,
        entry: &mut E,
        zone: &'m Zone<P, S>,
        order: Order,
        migrate: MigrateType,
    ) -> Option<Option<u32>> {
        let context = self.context(zone, entry.cpu());
        entry.enter_at(usize::from(zone.id.0), |own| {
            let (cache, out) = own.parts();
            let taken = S::Pcp::take_large::<P, S::Trace>(&context, cache, out, order, migrate);
            let (index, came) = taken?;
            own.events.filled += came;
            S::Walk::charge(&self.walk, Some(zone), &mut own.walk, order.frames());
            Some(index)
        })
    }

    /// Frees a larger block. `false`, and nothing has changed, if it may not be freed so.
    #[inline(never)]
    pub(super) fn put_large<E: Entry<'m, P, S>>(
        &self,
        entry: &mut E,
        pfn: Pfn,
        order: Order,
    ) -> bool {
        let offset = self.table.offset(pfn);
        let word = self.table.pageblock_at(offset);
        let Some((zone, migrate)) = word.and_then(PageblockWord::cached_in) else { return false };
        let Some(zone) = self.zone(zone) else { return false };
        let context = self.context(zone, entry.cpu());
        let put = entry.enter(zone.id, |own| {
            let (from, to) = (FrameState::allocated(order), FrameState::cached(order));
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
