//! The migrate scanner: which part of the zone is evacuated next.

use super::Count;
use super::target::Targets;
use super::{CompactMode, CompactOutcome, Goal, Task};
use crate::alloc::allocator::Allocator;
use crate::alloc::host::Host;
use crate::frame::{FrameKind, FrameState};
use crate::platform::Platform;
use crate::policy::FreeMemory;
use crate::policy::compact::Census;
use crate::policy::zone::Zone;
use crate::policy::{Compact, Policy};
use crate::types::migrate_type::MigrateType;
use crate::types::request::Request;
use crate::types::units::Order;
use crate::zone::ZoneView;
use core::ops::Range;

/// What came of a part that was evacuated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Part {
    /// A block of the wanted order has formed in it.
    Formed,
    /// None has: a page stayed, or there are frames in it that no host may move.
    Stays,
    /// There was no place to move to any more.
    NoTarget,
    /// As many frames as were to be offered to the host were offered.
    OutOfBudget,
}

/// Frames that a census counts before it asks whether to go on: a cache line of state bytes.
const CENSUS_STEP: u32 = 64;

/// Parts of a group of which is kept what they cost at least.
const BOUNDED: usize = 64;

/// What the parts of a group cost at least, as far as they were counted while it is scanned. A
/// part that has become cheaper meanwhile is found the next time.
struct Bounds([u32; BOUNDED]);

impl Bounds {
    const fn new() -> Self {
        Self([0; BOUNDED])
    }

    /// What the part at `at` in the group costs at least; more than anything if there is
    /// nothing to gain.
    fn least(&self, at: usize) -> u32 {
        self.0.get(at).copied().unwrap_or(0)
    }

    fn set(&mut self, at: usize, cost: u32) {
        if let Some(least) = self.0.get_mut(at) {
            *least = cost;
        }
    }
}

/// One compaction of one zone.
pub(super) struct Scan<'a, 'm, P: Host, S: Policy> {
    pub(super) allocator: &'a Allocator<'m, P, S>,
    pub(super) zone: &'m Zone<P, S>,
    pub(super) task: &'a Task<'a>,
    pub(super) targets: Targets,
    /// The zone's span.
    start: u32,
    end: u32,
    /// Whether a page was moved.
    pub(super) moved: bool,
    /// Whether the host was asked for one in the group.
    pub(super) asked: bool,
    hinted: core::cell::Cell<bool>,
    /// The block that the request took as it formed.
    pub(super) taken: Option<u32>,
}

impl<'a, 'm, P: Host, S: Policy> Scan<'a, 'm, P, S> {
    pub(super) fn new(
        allocator: &'a Allocator<'m, P, S>,
        zone: &'m Zone<P, S>,
        task: &'a Task<'a>,
    ) -> Self {
        let (start, end) = zone.span();
        let targets = Targets::new(zone.compaction.free_at(start, end));
        Self {
            allocator,
            zone,
            task,
            targets,
            start,
            end,
            moved: false,
            asked: false,
            hinted: core::cell::Cell::new(false),
            taken: None,
        }
    }

    /// Begins again with the whole zone in front of the scanners, and without hints: they may be
    /// all that is in the way.
    pub(super) fn start_over(&mut self) {
        self.allocator.forget_hints(self.zone);
        self.targets = Targets::new(self.end);
    }

    /// Whether a part was left out because of a hint.
    pub(super) fn was_hinted(&self) -> bool {
        self.hinted.get()
    }

    pub(super) fn taken(&self) -> Option<u32> {
        self.taken
    }

    /// Whether it has cost all that it may.
    pub(super) fn is_over(&self) -> bool {
        self.task.effort.is_spent() || self.task.effort.is_blind(self.task.mode)
    }

    /// Whether a page was moved.
    pub(super) fn has_moved(&self) -> bool {
        self.moved
    }

    /// Evacuates part after part until a block has formed or the zone is scanned.
    pub(super) fn take_turn(&mut self) -> CompactOutcome {
        let cached = &self.zone.compaction;
        let mut at = cached.migrate_at(self.task.mode, self.start, self.end);
        // Without an earlier compaction's positions the whole zone is in front of the scanners.
        let whole = at == self.start && self.targets.below == self.end;
        if let Some(outcome) = self.scan_from(&mut at) {
            self.note(at);
            return outcome;
        }
        cached.start_over();
        if S::Compact::outdates(self.task.on, whole) {
            cached.set_outdated(true);
        }
        if whole { CompactOutcome::Complete } else { CompactOutcome::PartialSkipped }
    }

    /// Notes where the scanners are, for the compactions to come and those beside this one.
    fn note(&self, at: u32) {
        let free_at = self.targets.position(self.allocator.table.pageblock_order().size());
        let (cached, together) = (&self.zone.compaction, S::Compact::SIDE_BY_SIDE);
        cached.remember(self.task.mode, at, free_at, together);
    }

    /// Scans from `at` on; says why it stopped in the group that `at` then begins, or nothing
    /// if it came to the end of what there is to evacuate or of where to move it.
    fn scan_from(&mut self, at: &mut u32) -> Option<CompactOutcome> {
        let pageblock = self.allocator.table.pageblock_order();
        let part = S::Compact::part(self.task.order, pageblock);
        let stride = pageblock.size().max(part.size());
        let group = pageblock.size().saturating_mul(S::Compact::GROUP).max(stride);
        *at = *at / stride * stride;
        while *at < self.end && (S::Compact::GOES_ROUND || *at < self.targets.below) {
            let until = at.saturating_add(group).min(self.end);
            self.merge_in(*at..until);
            if self.has_block() {
                return Some(CompactOutcome::Success);
            }
            let mut bounds = Bounds::new();
            self.asked = false;
            while let Some((pick, census)) = self.cheapest(*at..until, part, &mut bounds) {
                if !S::Compact::has_room(&census, self.room(&census)) {
                    return Some(CompactOutcome::NotSuitable);
                }
                match self.evacuate(&pick) {
                    Part::Formed => return Some(CompactOutcome::Success),
                    Part::Stays => {
                        self.hint(&pick);
                        // Another compaction may forget the hint: not twice all the same.
                        bounds.set(((pick.start - *at) / part.size()) as usize, u32::MAX);
                    }
                    // The free scanner may have been stopped on its way.
                    Part::NoTarget if !self.is_over() => return None,
                    Part::NoTarget | Part::OutOfBudget => {
                        return Some(CompactOutcome::PartialSkipped);
                    }
                }
                if self.has_block() {
                    return Some(CompactOutcome::Success);
                }
            }
            if self.is_over() {
                return Some(CompactOutcome::PartialSkipped);
            }
            *at = until;
            // As in the source not past pageblocks that another may have to look at again.
            if S::Compact::SIDE_BY_SIDE && !self.asked {
                self.note(until);
            }
        }
        None
    }

    /// Whether another CPU has formed a block meanwhile.
    fn has_block(&self) -> bool {
        self.task.goal == Goal::Any && self.allocator.has_block(self.zone, self.task)
    }

    /// Whether pages of the pageblock may be moved in this mode. The hint is not looked at.
    fn is_source(&self, index: u32) -> bool {
        let word = self.allocator.table.pageblock(index);
        let fits = match word.migrate() {
            MigrateType::Movable => true,
            MigrateType::Cma => self.task.request.is_none_or(Request::may_use_cma),
            MigrateType::Unmovable | MigrateType::Reclaimable => {
                self.task.mode == CompactMode::Sync
            }
            MigrateType::HighAtomic | MigrateType::Isolate => false,
        };
        fits && word.zone() == Some(self.zone.id)
    }

    /// The part of `group` that is evacuated next. What was counted of the others is kept in
    /// `bounds`, so that the next call counts a few parts and not all.
    fn cheapest(
        &self,
        group: Range<u32>,
        part: Order,
        bounds: &mut Bounds,
    ) -> Option<(Range<u32>, Census)> {
        if !self.allocator.platform.can_migrate() {
            return None;
        }
        let table = &self.allocator.table;
        let pageblock = table.pageblock_order().size();
        let mut best: Option<(u32, u32, Census)> = None;
        for (at, start) in group.clone().step_by(part.size() as usize).enumerate() {
            if start + part.size() > self.end {
                break;
            }
            let least = best.map_or(u32::MAX, |(least, ..)| least);
            if bounds.least(at) >= least {
                continue;
            }
            let first = table.pageblock(start);
            let mut pageblocks =
                (table.pageblock_start(start)..start + part.size()).step_by(pageblock as usize);
            // Not all types merge.
            let fits = pageblocks.all(|at| {
                let hinted = table.has_hint(at);
                self.hinted.set(self.hinted.get() || hinted);
                !hinted && self.is_source(at) && table.pageblock(at).merges_with(first)
            });
            if !fits {
                continue;
            }
            let frames = start..start + part.size();
            let empty =
                Census { for_movable: first.migrate().is_for_movable(), ..Census::default() };
            if S::Compact::cost(&Census { movable: 1, ..empty }).is_none() {
                // Whatever lies there.
                bounds.set(at, u32::MAX);
                continue;
            }
            if self.task.effort.is_blind(self.task.mode) {
                break;
            }
            let beaten = |so_far: &Census| S::Compact::cost(so_far).is_some_and(|c| c >= least);
            let view = self.allocator.view(self.zone);
            let (census, looked) = census(view, frames, self.task.order, empty, beaten);
            self.zone.compaction.count(Count::MigrateScanned, u64::from(looked));
            self.task.effort.looked(looked);
            let cost = S::Compact::cost(&census);
            bounds.set(at, cost.unwrap_or(u32::MAX));
            if let Some(cost) = cost.filter(|&cost| cost < least) {
                best = Some((cost, start, census));
                if cost == 0 {
                    break;
                }
            }
        }
        best.map(|(_, start, census)| (start..start + part.size(), census))
    }

    /// Free frames to which the pages of a part could go.
    fn room(&self, census: &Census) -> u64 {
        let fits = |ty: &MigrateType| {
            ty.is_for_movable() || (S::Compact::SPOILT_TARGETS && ty.is_requestable())
        };
        let free = S::Free::frames_of(self.allocator.view(self.zone), |ty| fits(&ty));
        let counted = S::Compact::SPOILT_TARGETS || census.for_movable;
        free.saturating_sub(if counted { u64::from(census.free) } else { 0 })
    }

    /// Notes that nothing came of a part.
    fn hint(&self, part: &Range<u32>) {
        let table = &self.allocator.table;
        let step = table.pageblock_order().frames() as usize;
        self.zone.lock(table, |_| {
            for at in (table.pageblock_start(part.start)..part.end).step_by(step) {
                table.set_hint(at, S::Free::LOCKED);
            }
        });
    }

    /// Merges the frames of `part` whose merging was skipped and whose buddies are free. An
    /// asynchronous scan leaves the rest of a block of the wanted order as [`SkipSingles`] says.
    ///
    /// [`SkipSingles`]: crate::zone::lists::merge::SkipSingles
    pub(super) fn merge_in(&self, part: Range<u32>) {
        if !S::Free::SKIPS_MERGES {
            return;
        }
        let asynchronous = self.task.mode == CompactMode::Async;
        let mut at = part.start & !1;
        while at < part.end {
            let leaves = self.merge_at(at) && asynchronous;
            at = if leaves { block_end(at, self.task.order) } else { at + 2 };
        }
    }

    /// Merges the frame at `index` if it still was skipped and its buddy still is free.
    fn merges(&self, index: u32) -> bool {
        S::Free::merge_at(self.allocator.view(self.zone), index..index + 1) > 0
    }

    /// Merges the frame at `at`, an even one, with its buddy, if both are free and one of them was
    /// skipped; whether it was this one and lies inside a block now.
    fn merge_at(&self, at: u32) -> bool {
        let table = &self.allocator.table;
        // Without the lock a hint; `merge_skipped` looks again. Of two buddies one is enough.
        let (one, two) = (table.state(at), table.get_state(at + 1));
        let both = one.is_free_single() && two.is_some_and(FrameState::is_free_single);
        let first = one == FrameState::MERGE_SKIPPED;
        both && table.pageblock(at).zone() == Some(self.zone.id)
            && self.merges(at + u32::from(!first))
            && first
            && table.state(at) == FrameState::INNER
    }
}

/// Where the aligned block of `order` ends that the frame at `at` lies in.
pub(super) fn block_end(at: u32, order: Order) -> u32 {
    (at | (order.size() - 1)).saturating_add(1)
}

/// Adds what is in `part` to `census`, for an order wanted above 0, or as much of it as was
/// counted when that was `enough`; and says how many frames were looked at. Without a lock: a
/// hint.
fn census<P: Platform, F: FreeMemory>(
    view: ZoneView<'_, P, F>,
    part: Range<u32>,
    wanted: Order,
    mut census: Census,
    enough: impl Fn(&Census) -> bool,
) -> (Census, u32) {
    const SINGLE: FrameState = FrameState::allocated(Order::ZERO);
    let mut at = part.start;
    while at < part.end && !enough(&census) {
        let until = part.end.min(at + CENSUS_STEP);
        while at < until {
            let state = F::state(view, at);
            if state == SINGLE {
                // Most are: not worth taking apart.
                census.movable += 1;
                at += 1;
                continue;
            }
            let order = state.order();
            match state.kind() {
                FrameKind::Free => census.free += order.size(),
                FrameKind::Cached => census.cached += order.size(),
                FrameKind::Allocated if order < wanted => census.movable += order.size(),
                _ => census.hopeless = true,
            }
            at += state.step();
        }
    }
    (census, at.min(part.end) - part.start)
}
