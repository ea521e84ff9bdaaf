//! A section of the map whose whole pageblocks a CPU's owner frees and takes again outside the slot.
//!
//! - Source: zonal's own, over the protocol of [`frames`](super::frames).
//! - Mechanism: a pageblock that is freed is whole in the map at once, where any CPU may take it. The zone
//!   has not counted it yet: its number is on the stack of what is uncounted. The owner takes one that is there
//!   without a look at any mark, because no count ever had it.
//! - State: the stack, under S-1 and S-2. One that the owner takes off it is counted by no drain, so the
//!   count loses nothing and gains nothing.
//! - Conflicts: another CPU may have taken the pageblock; then its number stays. One whose type has changed
//!   since, or whose section has lost its hint, is for the slow paths (M-4, M-5).

use super::frames::FrameStack;
use crate::frame::{FrameState, Owner, PageblocksView};
use crate::platform::Platform;
use crate::policy::pcp::{Passed, Taken};
use crate::trace::or_undo;
use crate::types::request::Request;
use crate::types::units::{Order, Pfn};
use crate::zone::free_map::{Mapped, WholeWord};
use crate::zone::tables::ZoneTables;
use crate::zone::{Levels, ZoneInstance};

/// Pageblocks that an owner has freed and the zone has not counted, at most. A power of two.
pub(super) const UNCOUNTED: usize = 4;

/// A section of the map for the owner of a CPU.
pub struct Passage<'m, P: Platform> {
    /// What it serves, and nothing else.
    request: Request,
    pageblocks: PageblocksView<'m, P>,
    /// The number of the first in the frame table.
    number: u32,
    /// The first frame of the section.
    base: Pfn,
    whole: WholeWord<'m, P>,
    /// The zone, and the request's type.
    owner: Owner,
    /// Numbers of pageblocks in the frame table.
    uncounted: &'m FrameStack<P, UNCOUNTED>,
    levels: &'m Levels<P>,
    /// How near to the marks everything is counted at once.
    margin: u64,
}

impl<'m, P: Platform> Passage<'m, P> {
    /// For a request that the pageblock at an index of the frame table has just served; `None` if that is of another
    /// type by now.
    pub(super) fn new(
        (zone, margin): (&'m ZoneInstance<P, Mapped>, u64),
        uncounted: &'m FrameStack<P, UNCOUNTED>,
        table: &ZoneTables<'m, P>,
        request: &Request,
        index: u32,
    ) -> Option<Self> {
        let word = table.pageblock(index);
        let (of, list) = word.cached_in()?;
        // One that is lent to movable requests has their list and another type.
        let own = list == request.migrate_type() && list == word.migrate();
        if of != zone.id || !own {
            return None;
        }
        let (whole, pageblocks) = zone.whole_at(table, index);
        let (request, owner, base) = (*request, word.owner(), table.pfn(pageblocks.first()));
        let levels = zone.levels();
        let number = pageblocks.first() >> pageblocks.order().get();
        Some(Self { request, pageblocks, number, base, whole, owner, uncounted, levels, margin })
    }
}

impl<P: Platform> Passage<'_, P> {
    /// Whether it serves this request with the pageblock at an index of the frame table, and has room for it.
    pub(super) fn is_for(&self, request: &Request, index: u32) -> bool {
        let at = index.wrapping_sub(self.pageblocks.first()) as usize;
        self.request == *request
            && self.pageblocks.has(at >> self.order().get())
            && self.uncounted.has_room()
    }

    #[inline(always)]
    const fn order(&self) -> Order {
        self.pageblocks.order()
    }

    /// Takes the pageblock that was freed last, if the zone has not counted it yet.
    #[inline(always)]
    pub(super) fn take(&self, request: &Request) -> Taken {
        if self.request != *request {
            return Taken::No;
        }
        let Some(number) = self.uncounted.pop_owned_here() else { return Taken::No };
        let at = number.wrapping_sub(self.number);
        if !self.pageblocks.has(at as usize) || !self.whole.take(at) {
            // It is another section's, or another CPU's by now, which has counted that it took it. Where it was there is room,
            // whatever the stack may hold since.
            self.uncounted.push_there(number);
            return Taken::No;
        }
        let order = self.order();
        let index = self.pageblocks.first() + (at << order.get());
        // M-5.
        if self.pageblocks.owner_after(at as usize) != Some(self.owner) {
            return Taken::Elsewhere(index);
        }
        self.pageblocks.set_state((at << order.get()) as usize, FrameState::allocated(order));
        Taken::Yes(index, order)
    }

    /// Frees a pageblock of the section, if it is allocated as one, and no mark is near. `told` says so before another can have it.
    #[inline(always)]
    pub(super) fn put(&self, pfn: Pfn, order: Order, told: impl FnOnce()) -> Passed {
        if order != self.order() || self.levels.beyond() < self.margin as i64 {
            return Passed::No;
        }
        let at = pfn.get().wrapping_sub(self.base.get()) as usize;
        let number = at >> order.get();
        // Of two zones that share the section's frames the other's are not for this map.
        if self.pageblocks.owner_after(number) != Some(self.owner) {
            return Passed::No;
        }
        let (from, to) = (FrameState::allocated(order), FrameState::INNER);
        if !self.uncounted.has_room() || !self.pageblocks.exchange_state(at, from, to) {
            return Passed::No;
        }
        or_undo(told, || {
            self.pageblocks.exchange_state(at, to, from);
        });
        // No truncation: it is one of the section's.
        if !self.whole.put(number as u32) {
            return Passed::Twice(self.pageblocks.first() + at as u32);
        }
        // M-5, and before the count, as in the slot.
        let stays = self.pageblocks.owner_after(number) == Some(self.owner);
        self.uncounted.push_there(self.number + number as u32);
        self.uncounted.count_freed();
        match stays && self.whole.is_hinted() {
            true => Passed::Yes,
            false => Passed::Elsewhere(self.pageblocks.first() + at as u32),
        }
    }
}
