//! Buddy lists behind the seam: each function is one hold, or a few.

use super::buddy::Buddy;
use super::clusters::{Clusters, Members};
use super::merge::Merge;
use super::{BuddyLists, ListView, set_up};
use crate::boot::plan::{Plan, ZoneSpec};
use crate::frame::FrameState;
use crate::platform::Platform;
use crate::trace::{Trace, or_undo};
use crate::types::counts::FreeCounts;
use crate::types::error::RangeError;
use crate::types::migrate_type::MigrateType;
use crate::types::request::Request;
use crate::types::units::{Order, largest_piece};
use crate::zone::tables::{NR_FREE_WORDS, ZoneTables};
use crate::zone::{AllocFlags, ClusterMembers, FreeMemory, FreePlace, Published, Snapshot};
use crate::zone::{Vacated, ZoneInstance};
use core::ops::Range;

/// Blocks of a range freed in one hold.
const FREED_PER_HOLD: u32 = 64;

#[expect(
    clippy::redundant_closure_for_method_calls,
    reason = "a method's path has one lifetime, and `lock` passes a guard of any"
)]
impl<M: Merge, C: Clusters> FreeMemory for BuddyLists<M, C> {
    type Held = Buddy<M, C>;
    type Part<P: Platform> = ();
    const LOCKED: bool = true;
    const SKIPS_MERGES: bool = M::SKIPS;
    const CUTS_BATCHES: bool = C::CUT;
    const JOINS_BATCHES: bool = C::JOIN;

    fn defers(order: Order) -> bool {
        M::defers(order)
    }

    /// By a look and a write: two CPUs that free one block at the same instant may both be told `true`,
    /// as in the sources, whose callers are trusted.
    #[inline(always)]
    fn release<P: Platform>(
        table: &ZoneTables<'_, P>,
        offset: usize,
        from: FrameState,
        to: FrameState,
    ) -> bool {
        table.replace_state_at(offset, from, to)
    }

    fn words(plan: &Plan, batch: &dyn Fn(u64) -> u32) -> [u64; NR_FREE_WORDS] {
        set_up::words::<C>(plan, batch)
    }

    const BY_FRAMES: [bool; NR_FREE_WORDS] = set_up::BY_FRAMES;

    fn words_of(_: &Plan, frames: Range<u64>, visit: &mut dyn FnMut(usize, Range<u64>)) {
        set_up::words_of::<C>(&frames, visit);
    }

    fn vacant() -> Buddy<M, C> {
        Buddy::new()
    }

    fn part<P: Platform>() {}

    fn set_up<P: Platform>(
        zone: &mut ZoneInstance<P, Self>,
        table: &ZoneTables<'_, P>,
        plan: &Plan,
        spec: &ZoneSpec,
        batch: &dyn Fn(u64) -> u32,
        used: &mut [u64; NR_FREE_WORDS],
    ) {
        set_up::zone(zone, table, plan, spec, batch, used);
    }

    fn resize<P: Platform>(view: ListView<'_, P, M, C>, batch: u32, high_atomic_limit: u32) {
        view.lock(|guard| guard.resize(batch, high_atomic_limit));
    }

    #[inline]
    fn end_hold(held: &mut Buddy<M, C>) -> Option<Published> {
        Some(held.end_hold())
    }

    fn count_work(held: &mut Buddy<M, C>, work: u32) {
        held.area.count_work(work);
    }

    fn take_block<P: Platform, T: Trace>(
        view: ListView<'_, P, M, C>,
        order: Order,
        migrate: MigrateType,
        flags: AllocFlags,
    ) -> Option<u32> {
        view.lock(|guard| {
            let index = guard.take::<T>(order, migrate, flags)?;
            guard.table.set_state(index, FrameState::allocated(order));
            guard.events.direct_alloc += order.frames();
            Some(index)
        })
    }

    fn free_block<P: Platform>(
        view: ListView<'_, P, M, C>,
        index: u32,
        order: Order,
        freed: impl FnOnce(),
    ) -> bool {
        view.lock(|guard| {
            let allocated = FrameState::allocated(order);
            let mine = guard.table.replace_state(index, allocated, FrameState::INNER);
            if mine {
                let table = guard.table;
                or_undo(freed, || _ = table.replace_state(index, FrameState::INNER, allocated));
                guard.free_block(index, order);
                guard.events.direct_free += order.frames();
            }
            mine
        })
    }

    fn free_block_merged<P: Platform>(
        view: ListView<'_, P, M, C>,
        index: u32,
        order: Order,
    ) -> bool {
        view.lock(|guard| guard.vacate_block(index, order, Order::MAX, None).is_some())
    }

    fn counts<P: Platform>(view: ListView<'_, P, M, C>) -> FreeCounts {
        view.lock(|guard| guard.counts())
    }

    fn frames_of<P: Platform>(
        view: ListView<'_, P, M, C>,
        wanted: impl Fn(MigrateType) -> bool,
    ) -> u64 {
        let types = MigrateType::ALL.into_iter().filter(|&migrate| wanted(migrate));
        view.lock(|guard| types.map(|migrate| guard.area.frames_of(migrate)).sum())
    }

    fn has_block<P: Platform>(view: ListView<'_, P, M, C>, order: Order, cma: bool) -> bool {
        view.lock(|guard| guard.has_block(order, cma))
    }

    fn snapshot<P: Platform>(view: ListView<'_, P, M, C>) -> Snapshot {
        view.lock(|guard| Snapshot {
            counts: guard.counts(),
            free: guard.free_frames(),
            events: guard.events,
            high_atomic_pageblocks: guard.high_atomic_pageblocks,
            merge_skipped: guard.area.merge_skipped(),
        })
    }

    fn visit<P: Platform>(view: ListView<'_, P, M, C>, visit: &mut dyn FnMut(u32, FreePlace)) {
        view.lock(|guard| guard.visit(visit));
    }

    fn visit_clusters<P: Platform>(
        view: ListView<'_, P, M, C>,
        migrate: MigrateType,
        visit: &mut dyn FnMut(u32, Option<ClusterMembers>),
    ) -> u32 {
        view.lock(|guard| {
            let (array, words) = (&guard.area.clusters, guard.cluster_words());
            for index in guard.area.list(Order::ZERO, migrate).iter(guard.links()) {
                let found = C::find(array, words, index);
                let members = |(number, Members { tail, count, skipped })| ClusterMembers {
                    number,
                    tail,
                    count,
                    skipped,
                };
                visit(index, found.map(members));
            }
            C::used(array, words)
        })
    }

    fn reserve_high_atomic<P: Platform>(view: ListView<'_, P, M, C>, index: u32, order: Order) {
        view.lock(|guard| guard.reserve_high_atomic(index, order));
    }

    fn unreserve_high_atomic<P: Platform>(
        view: ListView<'_, P, M, C>,
        migrate: MigrateType,
    ) -> bool {
        view.lock(|guard| guard.unreserve_high_atomic(migrate))
    }

    fn shrink_reserve<P: Platform>(view: ListView<'_, P, M, C>, group: u32, end: u32) -> bool {
        view.lock(|guard| guard.shrink_reserve(group, end))
    }

    fn isolate_pageblock<P: Platform>(
        view: ListView<'_, P, M, C>,
        start: u32,
        frames: &Range<u32>,
    ) -> Result<(), RangeError> {
        view.lock(|guard| {
            guard.grow_at(start);
            guard.isolate_pageblock(start, frames)
        })
    }

    fn end_isolation<P: Platform>(view: ListView<'_, P, M, C>, start: u32, undo: bool) {
        view.lock(|guard| guard.end_isolation(start, undo));
    }

    fn set_apart<P: Platform>(view: ListView<'_, P, M, C>, start: u32) {
        view.lock(|guard| guard.set_apart(start));
    }

    fn rejoin<P: Platform>(view: ListView<'_, P, M, C>) {
        view.lock(|guard| guard.rejoin());
    }

    fn is_untouched<P: Platform>(view: ListView<'_, P, M, C>, head: u32) -> bool {
        view.lock(|guard| guard.untouched.contains(guard.links(), head))
    }

    fn free_range<P: Platform>(view: ListView<'_, P, M, C>, at: u32, end: u32, most: u32) -> u32 {
        view.lock(|guard| guard.free_range(at, end, most))
    }

    fn take_isolated<P: Platform>(
        view: ListView<'_, P, M, C>,
        frames: Range<u32>,
        mark: FrameState,
    ) -> Option<u32> {
        view.lock(|guard| guard.take_isolated(frames, mark))
    }

    fn free_frames<P: Platform>(view: ListView<'_, P, M, C>, frames: Range<u32>) {
        let most = view.table.pageblock_order();
        let mut at = frames.start;
        while at < frames.end {
            at = view.lock(|guard| {
                let (mut at, mut work) = (at, 0);
                while at < frames.end && work < most.size() {
                    let order = largest_piece(at, frames.end, most);
                    let piece = at..at + order.size();
                    piece.clone().for_each(|at| guard.table.set_state(at, FrameState::INNER));
                    guard.free_block_merged(at, order);
                    guard.events.direct_free += order.frames();
                    work += order.size() + most.size() / FREED_PER_HOLD;
                    at = piece.end;
                }
                guard.area.count_work(work);
                at
            });
        }
    }

    fn bring<P: Platform>(view: ListView<'_, P, M, C>, at: u32, end: u32) -> u32 {
        view.lock(|guard| guard.bring(at, end))
    }

    fn withdraw<P: Platform>(view: ListView<'_, P, M, C>, at: u32, end: u32) -> u32 {
        view.lock(|guard| guard.withdraw(at, end))
    }

    fn take_target<P: Platform>(
        view: ListView<'_, P, M, C>,
        index: u32,
        order: Order,
        wanted: Order,
        fits: impl Fn() -> bool,
    ) -> bool {
        view.lock(|guard| fits() && guard.take_target(index, order, wanted))
    }

    fn vacate_block<P: Platform>(
        view: ListView<'_, P, M, C>,
        from: u32,
        order: Order,
        wanted: Order,
        request: Option<&Request>,
    ) -> Option<Vacated> {
        view.lock(|guard| guard.vacate_block(from, order, wanted, request))
    }

    fn formed_at<P: Platform>(
        view: ListView<'_, P, M, C>,
        start: u32,
        wanted: Order,
        request: Option<&Request>,
    ) -> Vacated {
        view.lock(|guard| guard.formed_at(start, wanted, request))
    }

    fn merge_at<P: Platform>(view: ListView<'_, P, M, C>, indexes: Range<u32>) -> u32 {
        view.lock(|guard| indexes.map(|index| u32::from(guard.merge_skipped(index))).sum())
    }

    fn hold_off_batches<P: Platform>(view: ListView<'_, P, M, C>) {
        view.lock(|guard| guard.disable_clusters());
    }

    fn let_batches<P: Platform>(view: ListView<'_, P, M, C>) {
        view.lock(|guard| guard.enable_clusters());
    }
}
