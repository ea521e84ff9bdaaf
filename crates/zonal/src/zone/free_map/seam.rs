//! A map behind the seam: what the rest of the allocator asks of a zone's free memory.

use super::LastLook;
use super::mapped::{ANYWHERE, BY_FRAMES, MapPart, MapView, Mapped, words, words_of};
use crate::boot::plan::{Plan, ZoneSpec};
use crate::frame::FrameState;
use crate::platform::{AtomicWord, Platform};
use crate::trace::{Trace, or_undo};
use crate::types::counts::FreeCounts;
use crate::types::error::RangeError;
use crate::types::migrate_type::{MigrateType, NR_MIGRATE_TYPES};
use crate::types::request::Request;
use crate::types::units::{NR_ORDERS, Order};
use crate::zone::tables::{NR_FREE_WORDS, ZoneTables};
use crate::zone::{
    AllocFlags, ClusterMembers, FreeMemory, FreePlace, Published, Snapshot, Vacated,
};
use crate::zone::{ZoneEvents, ZoneInstance, ZoneView};
use core::ops::Range;
use core::sync::atomic::Ordering::Relaxed;

/// What the zone lock guards: not what is free, but what changes pageblocks.
#[derive(Debug)]
pub struct MapHeld {
    /// The pageblock that compaction is evacuating and keeps apart.
    pub(super) apart: Option<u32>,
    /// Of these, the lock's own: holds.
    events: ZoneEvents,
    work: u32,
}

impl FreeMemory for Mapped {
    type Held = MapHeld;
    type Part<P: Platform> = MapPart<P>;
    const LOCKED: bool = false;
    const SKIPS_MERGES: bool = false;
    const CUTS_BATCHES: bool = false;
    const JOINS_BATCHES: bool = false;

    fn defers(_: Order) -> bool {
        false
    }

    /// By an exchange: just one is told `true`.
    #[inline(always)]
    fn release<P: Platform>(
        table: &ZoneTables<'_, P>,
        offset: usize,
        from: FrameState,
        to: FrameState,
    ) -> bool {
        table.exchange_state_at(offset, from, to)
    }

    fn words(plan: &Plan, _: &dyn Fn(u64) -> u32) -> [u64; NR_FREE_WORDS] {
        words(plan)
    }

    const BY_FRAMES: [bool; NR_FREE_WORDS] = BY_FRAMES;

    fn words_of(plan: &Plan, frames: Range<u64>, visit: &mut dyn FnMut(usize, Range<u64>)) {
        words_of(plan, frames, visit);
    }

    fn vacant() -> MapHeld {
        MapHeld { apart: None, events: ZoneEvents::NONE, work: 0 }
    }

    fn part<P: Platform>() -> MapPart<P> {
        MapPart::vacant()
    }

    fn set_up<P: Platform>(
        zone: &mut ZoneInstance<P, Self>,
        table: &ZoneTables<'_, P>,
        plan: &Plan,
        spec: &ZoneSpec,
        _: &dyn Fn(u64) -> u32,
        used: &mut [u64; NR_FREE_WORDS],
    ) {
        zone.part.settle(plan, (spec, zone.id), used);
        let view = ZoneView { zone, table };
        Self::resize(view, 0, plan.high_atomic_limit(spec.managed));
        view.fill(plan, spec);
    }

    fn resize<P: Platform>(view: MapView<'_, P>, _: u32, high_atomic_limit: u32) {
        view.zone.part.reserve_limit.store(u64::from(high_atomic_limit), Relaxed);
    }

    fn end_hold(held: &mut MapHeld) -> Option<Published> {
        let work = core::mem::take(&mut held.work);
        held.events.hold(work);
        None
    }

    fn count_work(held: &mut MapHeld, work: u32) {
        held.work += work;
    }

    fn take_block<P: Platform, T: Trace>(
        view: MapView<'_, P>,
        order: Order,
        migrate: MigrateType,
        flags: AllocFlags,
    ) -> Option<u32> {
        let frame = view.take::<T>(&view.map(), (order, migrate), flags, ANYWHERE, None)?;
        Some(view.hand_out(frame, order))
    }

    fn free_block<P: Platform>(
        view: MapView<'_, P>,
        index: u32,
        order: Order,
        freed: impl FnOnce(),
    ) -> bool {
        if !view.let_go(index, order, freed) {
            return false;
        }
        let given = view.free_counted(view.frame(index), order);
        if given {
            view.zone.part.events.direct_free.fetch_add(order.frames(), Relaxed);
        }
        given
    }

    fn free_given_back<P: Platform>(
        view: MapView<'_, P>,
        index: u32,
        order: Order,
        freed: impl FnOnce(),
    ) -> bool {
        let let_go = view.let_go(index, order, freed);
        if let_go {
            view.free_range(index, index + order.size(), u32::MAX);
            view.zone.part.events.direct_free.fetch_add(order.frames(), Relaxed);
        }
        let_go
    }

    fn free_block_merged<P: Platform>(view: MapView<'_, P>, index: u32, order: Order) -> bool {
        Self::free_block(view, index, order, || ())
    }

    #[inline]
    fn state<P: Platform>(view: MapView<'_, P>, index: u32) -> FrameState {
        let state = view.table.state(index);
        if state != FrameState::INNER {
            return state;
        }
        match view.run_from(index) {
            Some(Order::MAX) if view.is_in_untouched(view.pageblock(index)) => FrameState::INNER,
            Some(order) => FrameState::free(order),
            None => FrameState::INNER,
        }
    }

    fn locate<P: Platform>(view: MapView<'_, P>, index: u32) -> Option<(u32, FrameState)> {
        let Some((head, order)) = view.run_at(index) else { return view.table.locate(index) };
        let fresh = order == Order::MAX && view.is_in_untouched(view.pageblock(index));
        (!fresh).then(|| (head, FrameState::free(order)))
    }

    fn look_again<P: Platform>(view: MapView<'_, P>, request: &Request) -> bool {
        let (order, migrate) = (request.order(), request.migrate_type());
        let usable = |found: MigrateType| match found {
            MigrateType::Isolate => false,
            MigrateType::Cma => migrate == MigrateType::Movable,
            MigrateType::HighAtomic => request.is_atomic(),
            _ => true,
        };
        view.recount_missed();
        let map = view.map_apart();
        if order > map.shape().order() {
            return view.has_block(order, request.may_use_cma());
        }
        map.last_look(usable, order) != LastLook::Nothing
    }

    fn counts<P: Platform>(view: MapView<'_, P>) -> FreeCounts {
        let mut counts = [[0; NR_MIGRATE_TYPES]; NR_ORDERS];
        view.visit_blocks(&mut |index, place| {
            let (order, migrate) = match place {
                FreePlace::Block { order, migrate } => (order, migrate),
                // What was given back is untouched, whatever its type.
                FreePlace::Untouched => (Order::MAX, view.table.pageblock(index).migrate()),
            };
            counts[order.index()][migrate.index()] += 1;
        });
        counts
    }

    fn frames_of<P: Platform>(view: MapView<'_, P>, wanted: impl Fn(MigrateType) -> bool) -> u64 {
        let by_type = view.map_apart().free_by_type();
        let types = MigrateType::ALL.into_iter().filter(|&migrate| wanted(migrate));
        types.map(|migrate| by_type[migrate.index()]).sum()
    }

    fn has_block<P: Platform>(view: MapView<'_, P>, order: Order, cma: bool) -> bool {
        view.has_block(order, cma)
    }

    fn snapshot<P: Platform>(view: MapView<'_, P>) -> Snapshot {
        view.recount_missed();
        let counts = Self::counts(view);
        let frames = |order: Order| {
            let types = MigrateType::ALL.iter().zip(counts[order.index()]);
            let usable = types.filter(|(migrate, _)| **migrate != MigrateType::Isolate);
            usable.map(|(_, blocks)| u64::from(blocks) * order.frames()).sum::<u64>()
        };
        let part = &view.zone.part;
        Snapshot {
            counts,
            free: Order::all().map(frames).sum(),
            events: part.sum(view.lock(|guard| guard.events)),
            high_atomic_pageblocks: part.reserve.load(Relaxed) as u32,
            merge_skipped: 0,
        }
    }

    fn visit<P: Platform>(view: MapView<'_, P>, visit: &mut dyn FnMut(u32, FreePlace)) {
        view.visit_blocks(visit);
    }

    fn visit_clusters<P: Platform>(
        view: MapView<'_, P>,
        migrate: MigrateType,
        visit: &mut dyn FnMut(u32, Option<ClusterMembers>),
    ) -> u32 {
        view.visit_blocks(&mut |index, place| {
            if place == (FreePlace::Block { order: Order::ZERO, migrate }) {
                visit(index, None);
            }
        });
        0
    }

    fn reserve_high_atomic<P: Platform>(view: MapView<'_, P>, index: u32, order: Order) {
        view.reserve_high_atomic(index, order);
    }

    fn unreserve_high_atomic<P: Platform>(view: MapView<'_, P>, migrate: MigrateType) -> bool {
        view.unreserve_high_atomic(migrate)
    }

    fn shrink_reserve<P: Platform>(view: MapView<'_, P>, group: u32, end: u32) -> bool {
        view.shrink_reserve(group, end)
    }

    fn isolate_pageblock<P: Platform>(
        view: MapView<'_, P>,
        start: u32,
        frames: &Range<u32>,
    ) -> Result<(), RangeError> {
        view.isolate_pageblock(start, frames)
    }

    fn end_isolation<P: Platform>(view: MapView<'_, P>, start: u32, undo: bool) {
        view.end_isolation(start, undo);
    }

    fn set_apart<P: Platform>(view: MapView<'_, P>, start: u32) {
        view.set_apart(start);
    }

    fn rejoin<P: Platform>(view: MapView<'_, P>) {
        view.rejoin();
    }

    fn is_untouched<P: Platform>(view: MapView<'_, P>, head: u32) -> bool {
        view.is_in_untouched(view.pageblock(head))
    }

    fn free_range<P: Platform>(view: MapView<'_, P>, at: u32, end: u32, most: u32) -> u32 {
        view.free_range(at, end, most)
    }

    fn take_isolated<P: Platform>(
        view: MapView<'_, P>,
        frames: Range<u32>,
        mark: FrameState,
    ) -> Option<u32> {
        view.take_isolated(frames, mark)
    }

    fn free_frames<P: Platform>(view: MapView<'_, P>, frames: Range<u32>) {
        view.free_singles(frames);
    }

    fn bring<P: Platform>(view: MapView<'_, P>, at: u32, end: u32) -> u32 {
        view.bring(at, end)
    }

    fn withdraw<P: Platform>(view: MapView<'_, P>, at: u32, end: u32) -> u32 {
        view.withdraw(at, end)
    }

    fn take_target<P: Platform>(
        view: MapView<'_, P>,
        index: u32,
        order: Order,
        wanted: Order,
        fits: impl Fn() -> bool,
    ) -> bool {
        fits() && view.take_target(index, order, wanted)
    }

    fn vacate_block<P: Platform>(
        view: MapView<'_, P>,
        from: u32,
        order: Order,
        wanted: Order,
        request: Option<&Request>,
    ) -> Option<Vacated> {
        Self::free_block_merged(view, from, order).then(|| view.end_of_move(from, wanted, request))
    }

    fn formed_at<P: Platform>(
        view: MapView<'_, P>,
        start: u32,
        wanted: Order,
        request: Option<&Request>,
    ) -> Vacated {
        view.end_of_move(start, wanted, request)
    }

    fn merge_at<P: Platform>(_: MapView<'_, P>, _: Range<u32>) -> u32 {
        0
    }

    fn hold_off_batches<P: Platform>(_: MapView<'_, P>) {}

    fn let_batches<P: Platform>(_: MapView<'_, P>) {}
}

impl<P: Platform> MapView<'_, P> {
    /// Takes an allocated block from its holder, and tells so; `false` if there is none of this order.
    fn let_go(&self, index: u32, order: Order, told: impl FnOnce()) -> bool {
        let allocated = FrameState::allocated(order);
        if !Mapped::release(self.table, index as usize, allocated, FrameState::INNER) {
            return false;
        }
        or_undo(told, || _ = self.table.replace_state(index, FrameState::INNER, allocated));
        true
    }
}
