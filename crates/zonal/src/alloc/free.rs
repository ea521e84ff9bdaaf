//! Freeing: the fast path, the direct path, and why a free is refused.

use crate::alloc::allocator::Allocator;
use crate::alloc::entry::Entry;
use crate::boot::map::RangeKind;
use crate::frame::{ALLOCATED, CACHED, FrameKind};
use crate::pcp::per_cpu_pages::{InSlot, WindowOf};
use crate::platform::Platform;
use crate::policy::FreeMemory;
use crate::policy::PcpPolicy;
use crate::policy::pcp::Pushed;
use crate::policy::zone::Zone;
use crate::policy::{Policy, Trace};
use crate::trace::{Event, Point, or_undo};
use crate::types::block::Block;
use crate::types::error::FreeError;
use crate::types::error::RefusedFree;
use crate::types::migrate_type::MigrateType;
use crate::types::units::{Order, Pfn};

/// Keeps a frame for an owner outside the slot, and tells of it.
#[inline(always)]
pub(super) fn push_through<P: Platform, S: Policy>(
    window: &WindowOf<'_, P, S>,
    pfn: Pfn,
) -> Pushed {
    S::Pcp::push_outside(window, pfn, move || {
        S::Trace::emit(Point::Free, move || Event::Free { pfn, order: Order::ZERO });
    })
}

impl<'m, P: Platform, S: Policy> Allocator<'m, P, S> {
    /// Frees a block.
    ///
    /// # Errors
    /// [`RefusedFree`] gives the block back if it is not from this allocator.
    #[inline(always)]
    pub fn free(&self, block: Block) -> Result<(), RefusedFree> {
        let (pfn, order) = (block.pfn(), block.order());
        self.free_raw(pfn, order).map_err(|error| RefusedFree { block, error })
    }

    /// The first thing that [`free`](Self::free) tries, and nothing else: that this CPU keeps a single frame.
    ///
    /// # Errors
    /// The block, with which nothing has happened: it is larger, or `free` would go by another way, or
    /// refuse it. [`free_uncached`](Self::free_uncached) then goes on.
    #[inline(always)]
    pub fn free_cached(&self, block: Block) -> Result<(), Block> {
        let (pfn, order) = (block.pfn(), block.order());
        let kept =
            order == Order::ZERO && self.push_cached::<_, false>(&mut self.shared_entry(), pfn);
        if kept { Ok(()) } else { Err(block) }
    }

    /// All that [`free`](Self::free) tries after [`free_cached`](Self::free_cached).
    ///
    /// # Errors
    /// As [`free`](Self::free).
    #[inline(always)]
    pub fn free_uncached(&self, block: Block) -> Result<(), RefusedFree> {
        let (pfn, order) = (block.pfn(), block.order());
        let kept = order > Order::ZERO
            && S::Pcp::PASSES_LARGE
            && self.put_large(&mut self.shared_entry(), pfn, order);
        let freed = if kept { Ok(()) } else { self.free_direct(pfn, order, false) };
        freed.map_err(|error| RefusedFree { block, error })
    }

    /// Frees the block of `order` that starts at `pfn`.
    ///
    /// # Errors
    /// [`FreeError`] if that is not what was allocated; then nothing has changed (I-4). Of two
    /// frees of one block at the same instant on two CPUs one is refused where free memory is a map;
    /// under presets with lists both may succeed, and then their lists may lose frames or panic.
    #[inline(always)]
    pub fn free_raw(&self, pfn: Pfn, order: Order) -> Result<(), FreeError> {
        self.free_through::<_, false>(&mut self.shared_entry(), pfn, order)
    }

    /// Frees a block whose memory the host has taken back, so that to use it costs what memory costs that was
    /// never used: where free memory is a map, whole pageblocks of it are handed out after those that were
    /// in use since. Smaller blocks, and those of other presets, as [`free_raw`](Self::free_raw). O(pageblocks).
    ///
    /// # Errors
    /// As [`free_raw`](Self::free_raw).
    pub fn free_given_back(&self, pfn: Pfn, order: Order) -> Result<(), FreeError> {
        self.free_direct(pfn, order, true)
    }

    /// Frees through `entry`; `LISTED`: as one of a list, and counted so.
    // Always inlined down to the per-CPU pages of single frames, as allocation is.
    #[inline(always)]
    pub(crate) fn free_through<E: Entry<'m, P, S>, const LISTED: bool>(
        &self,
        entry: &mut E,
        pfn: Pfn,
        order: Order,
    ) -> Result<(), FreeError> {
        let cached = match order {
            Order::ZERO => self.push_cached::<E, LISTED>(entry, pfn),
            _ if E::OUTSIDE && order.get() <= S::Pcp::SMALL => self.put_small(entry, pfn, order),
            _ => S::Pcp::PASSES_LARGE && self.put_large(entry, pfn, order),
        };
        if cached { Ok(()) } else { self.free_direct(pfn, order, false) }
    }

    /// By what an owner frees this frame outside the slot, if it stays.
    #[inline(always)]
    fn window_of<E: Entry<'m, P, S>>(&self, entry: &E, pfn: Pfn) -> Option<WindowOf<'m, P, S>> {
        let (table, offset) = (&self.table, self.table.offset(pfn));
        let (zone, migrate) = table.pageblock_at(offset)?.cached_in()?;
        S::Pcp::window_of_one(entry.outside(zone)?, table, migrate, offset)
    }

    /// Keeps a frame of another pageblock than the one that is remembered; and whether it is the second of that pageblock, so
    /// that it is to be [remembered](Self::remember): where frames come at random none is worth it.
    #[inline(always)]
    pub(super) fn push_apart<E: Entry<'m, P, S>>(&self, entry: &mut E, pfn: Pfn) -> (Pushed, bool) {
        let Some(window) = self.window_of(entry, pfn) else { return (Pushed::No, false) };
        let pushed = push_through::<P, S>(&window, pfn);
        let pageblock = self.table.offset(pfn) >> self.table.pageblock_order().get();
        (pushed, pushed == Pushed::Yes && !entry.is_first_of(pageblock))
    }

    /// Remembers the pageblock of a frame that was just kept, for the frames that follow.
    pub(super) fn remember<E: Entry<'m, P, S>>(&self, entry: &mut E, pfn: Pfn) {
        // No truncation: of a pageblock of the table.
        let index = self.table.offset(pfn) as u32;
        let window = self.window_of(entry, pfn);
        if let Some(window) = window.and_then(|window| S::Pcp::widen(window, &self.table, index)) {
            *entry.window() = window;
        }
    }

    /// Frees a frame that an owner cannot free outside the slot.
    pub(super) fn free_inside<E: Entry<'m, P, S>>(
        &self,
        entry: &mut E,
        pfn: Pfn,
    ) -> Result<(), FreeError> {
        let cached = self.push_cached::<E, false>(entry, pfn);
        if cached { Ok(()) } else { self.free_direct(pfn, Order::ZERO, false) }
    }

    /// A block was kept, and its pageblock may be another's by now: frees it as it is now.
    #[cold]
    #[inline(never)]
    pub(super) fn free_again<E: Entry<'m, P, S>>(&self, entry: &mut E, index: u32, order: Order) {
        entry.forget_window();
        let zone = self.table.pageblock(index).zone().and_then(|id| self.zone(id));
        let Some(zone) = zone else { return };
        let taken = entry.enter(zone.id, |own| {
            let taken = S::Pcp::take_back(own.parts().1, &self.table, (index, order));
            // Who drained it has freed it.
            own.events.free += if taken { 0 } else { order.frames() };
            taken
        });
        if taken == Some(true) {
            let freed = S::Free::free_block(zone.view(&self.table), index, order, || ());
            debug_assert!(freed, "a block that was taken back is allocated");
        }
    }

    /// Marks a frame cached and keeps it in the cache of its zone. `false`, and nothing has
    /// changed, if it may not be freed so.
    #[inline(always)]
    fn push_cached<E: Entry<'m, P, S>, const LISTED: bool>(&self, entry: &mut E, pfn: Pfn) -> bool {
        let table = &self.table;
        let offset = table.offset(pfn);
        let Some(place) = table.word_at(offset) else { return false };
        let word = place.read();
        let Some((zone, migrate)) = word.cached_in() else { return false };
        let cpu = entry.cpu();
        let pushed = entry.enter(zone, move |own| {
            // Again inside the slot: a CPU that isolates a pageblock drains the slot after it (S-3).
            // The sources read it once.
            if !S::Free::LOCKED && place.read() != word
                || !S::Pcp::release(table, offset, ALLOCATED, CACHED)
            {
                return false;
            }
            or_undo(
                || S::Trace::emit(Point::Free, move || Event::Free { pfn, order: Order::ZERO }),
                || _ = table.replace_state_at(offset, CACHED, ALLOCATED),
            );
            if LISTED {
                own.freed_bulk(1);
            } else {
                own.events.free += 1;
            }
            // No truncation: the state was found, so the offset is an index.
            let (cache, out) = own.parts();
            if S::Pcp::push(cache, out, table, migrate, offset as u32) {
                self.spill(own.reborrow(), zone, cpu, migrate);
            }
            true
        });
        pushed == Some(true)
    }

    #[cold]
    #[inline(never)]
    pub(crate) fn spill(
        &self,
        mut own: InSlot<'_, P, S>,
        zone: crate::types::units::ZoneId,
        cpu: usize,
        migrate: MigrateType,
    ) {
        if let Some(zone) = self.zone(zone) {
            own.events.spills += 1;
            let context = self.context(zone, cpu);
            let (cache, out) = own.parts();
            let shed = S::Pcp::spill(&context, cache, out, migrate);
            own.events.shed += shed;
        }
    }

    /// Frees to what is free, past the caches, or says why not; `given_back`: as memory that the host took back.
    #[cold]
    #[inline(never)]
    pub(crate) fn free_direct(
        &self,
        pfn: Pfn,
        order: Order,
        given_back: bool,
    ) -> Result<(), FreeError> {
        let Some(index) = self.table.index(pfn) else { return Err(FreeError::Foreign { pfn }) };
        let zone: Option<&Zone<P, S>> =
            self.table.get_pageblock(index).and_then(|word| self.zone(word.zone()?));
        let Some(zone) = zone else { return Err(self.refusal(pfn, index, order)) };
        let told = || S::Trace::emit(Point::Free, move || Event::Free { pfn, order });
        let view = zone.view(&self.table);
        let freed = match given_back {
            true => S::Free::free_given_back(view, index, order, told),
            false => S::Free::free_block(view, index, order, told),
        };
        if !freed {
            return Err(self.refusal(pfn, index, order));
        }
        Ok(())
    }

    /// Why the frame at `index` cannot be freed with `given`. Looks at up to ten frames.
    #[cold]
    #[inline(never)]
    pub(crate) fn refusal(&self, pfn: Pfn, index: u32, given: Order) -> FreeError {
        if !self.is_managed_at(index) {
            return self.unmanaged(pfn);
        }
        let state = self.table.state(index);
        match state.kind() {
            FrameKind::Free | FrameKind::Cached => FreeError::DoubleFree { pfn, order: given },
            FrameKind::Allocated => FreeError::WrongOrder { pfn, given, allocated: state.order() },
            FrameKind::Isolated => FreeError::Isolated { pfn },
            FrameKind::Withheld => FreeError::Reserved { pfn },
            FrameKind::Damaged => FreeError::Damaged { pfn },
            FrameKind::Inner => self.refusal_inside(pfn, index, given),
        }
    }

    /// Why a frame in the span of the table is not managed.
    pub(crate) fn unmanaged(&self, pfn: Pfn) -> FreeError {
        match self.plan.map().kind_at(pfn) {
            None => FreeError::Hole { pfn },
            Some(RangeKind::Offline) => FreeError::Offline { pfn },
            Some(_) => FreeError::Reserved { pfn },
        }
    }

    /// The frame heads nothing: find the block it is in, if any.
    fn refusal_inside(&self, pfn: Pfn, index: u32, given: Order) -> FreeError {
        for order in Order::all().skip(1) {
            let head = index & !(order.frames() as u32 - 1);
            let state = self.table.state(head);
            if state.order() < order {
                continue;
            }
            match state.kind() {
                FrameKind::Allocated => {
                    let head = self.table.pfn(head);
                    return FreeError::Inner { pfn, head, order: state.order() };
                }
                FrameKind::Isolated => return FreeError::Isolated { pfn },
                _ => {}
            }
        }
        // In a free or cached block, or never touched since boot.
        FreeError::DoubleFree { pfn, order: given }
    }
}
