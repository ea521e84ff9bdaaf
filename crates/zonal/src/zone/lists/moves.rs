//! Pages that move: places to move them to, and the blocks that form where they were.

use super::ListGuard;
use super::clusters::Clusters;
use super::merge::Merge;
use crate::boot::watermark::watermark_ok;
use crate::frame::{FrameKind, FrameState};
use crate::platform::Platform;
use crate::types::mark::Mark;
use crate::types::migrate_type::MigrateType;
use crate::types::request::Request;
use crate::types::units::Order;
use crate::zone::Vacated;

impl<P: Platform, M: Merge, C: Clusters> ListGuard<'_, P, M, C> {
    /// Takes the free block at `index` as a place to move a block of `order` to, and marks it
    /// allocated: its owner may free it as soon as the host gave it to that owner. `false` if it is
    /// not what it looked like.
    pub(super) fn take_target(&mut self, index: u32, order: Order, wanted: Order) -> bool {
        let (state, migrate) = (self.table.state(index), self.table.pageblock(index).migrate());
        let fits = state.kind() == FrameKind::Free && (order..wanted).contains(&state.order());
        if fits {
            self.remove(index, state.order(), migrate);
            self.expand(index, state.order(), order, migrate);
            self.table.set_state(index, FrameState::allocated(order));
            self.events.direct_alloc += order.frames();
        }
        fits
    }

    /// Frees the block at `from`, if it is allocated with `order`.
    pub(super) fn vacate_block(
        &mut self,
        from: u32,
        order: Order,
        wanted: Order,
        request: Option<&Request>,
    ) -> Option<Vacated> {
        let allocated = FrameState::allocated(order);
        if !self.table.replace_state(from, allocated, FrameState::INNER) {
            return None;
        }
        self.events.direct_free += order.frames();
        let formed = self.free_block_in_parts(from, order) >= wanted;
        Some(self.end_of_move(from, formed, request))
    }

    /// Whether a block of `wanted` has formed around `start`.
    pub(super) fn formed_at(
        &mut self,
        start: u32,
        wanted: Order,
        request: Option<&Request>,
    ) -> Vacated {
        let large = |state: FrameState| state.kind() == FrameKind::Free && state.order() >= wanted;
        let formed = self.table.locate(start).is_some_and(|(_, state)| large(state));
        self.end_of_move(start, formed, request)
    }

    fn end_of_move(&mut self, at: u32, formed: bool, request: Option<&Request>) -> Vacated {
        if formed {
            self.rejoin();
        }
        // What a caller has isolated meanwhile is no block for others.
        let formed = formed && self.table.pageblock(at).migrate() != MigrateType::Isolate;
        let taken = request.filter(|_| formed).and_then(|request| self.capture(at, request));
        Vacated { formed, taken }
    }

    /// Takes the block that has just formed around `index` for the request it was made for, if
    /// its pageblock is of the request's type and the watermark allows it. In the hold in which
    /// it formed: no other CPU had a chance to take a part of it.
    fn capture(&mut self, index: u32, request: &Request) -> Option<u32> {
        let wanted = request.order();
        let (head, order) = Order::all().skip(wanted.index()).find_map(|order| {
            let head = index & !(order.size() - 1);
            (self.table.state(head) == FrameState::free(order)).then_some((head, order))
        })?;
        let (own, migrate) = (request.migrate_type(), self.table.pageblock(head).migrate());
        if migrate != own && !(migrate == MigrateType::Cma && request.may_use_cma()) {
            return None;
        }
        let mut free = self.free_frames() - self.area.frames_of(MigrateType::HighAtomic);
        if !request.may_use_cma() {
            free -= self.area.frames_of(MigrateType::Cma);
        }
        let (mark, reserve) = (self.zone.mark(Mark::Min), self.zone.reserve(request.limit()));
        if !watermark_ok(free, wanted, mark, reserve, request.access(), |_| true) {
            return None;
        }
        self.remove(head, order, migrate);
        self.expand(head, order, wanted, migrate);
        self.table.set_state(head, FrameState::allocated(wanted));
        self.events.direct_alloc += wanted.frames();
        Some(head)
    }
}
