//! Compaction: a block of a wanted order is made by moving what is in its way elsewhere.
//!
//! A *migrate scanner* goes up through a zone and finds allocated blocks, a *free scanner* goes
//! down and finds free frames; the host's [`migrate`](crate::Host::migrate) moves
//! the one to the other, or refuses. Which part is evacuated next is a policy,
//! [`Compact`]; the mechanism is that of Linux 4.16:
//!
//! - both scanners read state bytes without a lock and look again under the zone lock before
//!   they act, so no hold is longer than a few list operations; their positions are cached
//!   between compactions, for [`Async`](CompactMode::Async) and [`Sync`](CompactMode::Sync) apart;
//! - pageblocks out of which something would not move are skipped until that is out of date,
//!   some time after the scanners have met (when exactly, says the policy). Nothing is noted of
//!   pageblocks that were full: what is freed there meanwhile is found when the free scanner
//!   comes by again;
//! - a zone that has less than twice the block above its watermark, or that lacks memory rather
//!   than large pieces ([`fragmentation_permille`]), is left alone;
//! - after a synchronous compaction in vain the next 1, 3, 7, … 63 attempts for that order or a
//!   larger one are not made;
//! - compactions of one zone run side by side, and share its positions and hints. A policy may have
//!   them take turns: then a request waits for another's for a while, and calls the background's
//!   off ([`Compact::SIDE_BY_SIDE`]).
//!
//! While a page is moved, the old block is its owner's and the new one the host's; no frame is
//! in a third place. Whatever the host does (refuse, panic, never return, lie about what it
//! did), no frame is lost: see [`CompactEvents::migrate_mismatches`].
//!
//! May import everything but `hotplug`, `preset` and `report`. What a zone keeps of its compaction is
//! the zone's (`zone/compaction.rs`): hints and counts, and the running mark where there are turns.
//!
//! ```
//! # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example/mod.rs")); }
//! use zonal::compact::{CompactMode, CompactOutcome};
//! use zonal::{Order, ZoneId};
//! # example::with_small::<zonal::preset::Zonal>(|allocator| {
//! let outcome = allocator.compact_zone(ZoneId(0), Order::HUGE, CompactMode::Sync);
//! assert_eq!(outcome, CompactOutcome::Success, "there is such a block");
//! # });
//! ```

mod apart;
pub(crate) mod clusters_off;
pub(crate) mod contiguous;
mod evacuate;
pub(crate) mod isolate;
mod merge_skipped;
mod scan;
mod suitable;
mod target;

use crate::alloc::host::Host;
use crate::types::counts::FreeCounts;
pub use crate::types::counts::fragmentation_permille;
pub(crate) use crate::zone::compaction::Count;
pub use crate::zone::{CompactEvents, CompactMode, CompactOutcome};
use crate::zone::{FreeMemory, ZoneInstance};

use crate::alloc::allocator::Allocator;
use crate::compact::clusters_off::ClustersOff;
use crate::platform::Platform;
use crate::policy::compact::Occasion;
use crate::policy::compact::effort::Effort;
use crate::policy::zone::Zone;
use crate::policy::{Compact, Policy};
use crate::types::counts::unusable_permille;
use crate::types::mark::Mark;
use crate::types::migrate_type::MigrateType;
use crate::types::request::Request;
use crate::types::units::{Order, ZoneId};
use scan::Scan;
use suitable::EXTFRAG_THRESHOLD;

/// When a compaction has done what it was called for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Goal {
    /// A block is there.
    Any,
    /// A block has formed.
    Another,
}

/// What is wanted of one compaction.
#[derive(Clone, Copy)]
struct Task<'r> {
    order: Order,
    mode: CompactMode,
    goal: Goal,
    on: Occasion,
    /// The request that the block is for: it takes the block as it forms.
    request: Option<&'r Request>,
    /// Caches were emptied already.
    drained: bool,
    /// What it may cost.
    effort: &'r Effort,
}

/// Frames that the background compactor offers to the host in one call: four largest blocks.
const BACKGROUND_FRAMES: u32 = 4096;
/// Pageblocks whose hints are forgotten in one hold.
const FORGET_PER_HOLD: usize = 512;

/// Compaction runs in a zone; ends when dropped, whatever the host did.
struct Running<'a, P: Host, S: Policy>(&'a Zone<P, S>);

impl<'a, P: Host, S: Policy> Running<'a, P, S> {
    /// `None` if another must end first.
    fn begin(zone: &'a Zone<P, S>, in_background: bool) -> Option<Self> {
        const {
            let apart = S::Compact::SETS_APART;
            assert!(!(S::Compact::SIDE_BY_SIDE && apart), "one part of a zone is apart at most");
        }
        let begins = S::Compact::SIDE_BY_SIDE || zone.compaction.start(in_background);
        begins.then(|| Self(zone))
    }
}

/// A turn at compacting, and what was disabled if it had to be waited for.
type Turn<'a, P, S> = (Running<'a, P, S>, Option<ClustersOff<'a, P, S>>);

impl<P: Host, S: Policy> Drop for Running<'_, P, S> {
    fn drop(&mut self) {
        if !S::Compact::SIDE_BY_SIDE {
            self.0.compaction.stop();
        }
    }
}

impl<'m, P: Host, S: Policy> Allocator<'m, P, S> {
    /// Compacts one zone until it has a free block of `order`. The zone's caches are emptied
    /// first. Costs up to O(frames of the zone) and as many calls of the host. Where
    /// compactions take turns it waits for one that runs, for a while.
    pub fn compact_zone(&self, zone: ZoneId, order: Order, mode: CompactMode) -> CompactOutcome {
        let Some(zone) = self.zone(zone) else { return CompactOutcome::Unavailable };
        let (goal, on, effort) = (Goal::Any, Occasion::Request, &Effort::offering(u32::MAX));
        let task = Task { order, mode, goal, on, request: None, drained: false, effort };
        self.compact(zone, &task).0
    }

    /// One piece of work for a background thread: forms one more block of `order`, by
    /// synchronous compaction, in the zone that needs it most, if in any zone more than half of
    /// the free memory is in pieces too small for such blocks, and, by presets that do not
    /// [stay ahead](Compact::STAYS_AHEAD), it has no such block at all. After
    /// [`Success`](CompactOutcome::Success) and [`PartialSkipped`](CompactOutcome::PartialSkipped)
    /// there may be more to do; after anything else it can rest until it is
    /// [woken](crate::Host::wake_compaction). The host is asked to move at most
    /// 4096 frames in one call.
    pub fn compact_in_background(&self, order: Order) -> CompactOutcome {
        let outcome = self.compact_worst(order);
        let may_go_on = matches!(outcome, CompactOutcome::Success | CompactOutcome::PartialSkipped);
        if !may_go_on && S::Compact::forgets(Occasion::Rest) {
            for zone in self.zones {
                if !zone.compaction.is_outdated() {
                    continue;
                }
                // If compaction has its turn there, hints are forgotten another time.
                if let Some(_running) = Running::begin(zone, true) {
                    self.forget_hints(zone);
                }
            }
        }
        outcome
    }

    /// Compacts the zone that needs it most, for the background compactor.
    fn compact_worst(&self, order: Order) -> CompactOutcome {
        let (mut worst, mut backed_off) = (None, false);
        for zone in self.zones {
            let counts = S::Free::counts(self.view(zone));
            if !S::Compact::STAYS_AHEAD && has_block(&counts, order) {
                continue;
            }
            let unusable = unusable_permille(&counts)[order.index()];
            let more = worst.is_none_or(|(index, _)| unusable > index);
            if !more || unusable <= EXTFRAG_THRESHOLD || !zone.is_roomy(order) {
                continue;
            }
            if zone.compaction.backs_off(order) {
                backed_off = true;
            } else {
                worst = Some((unusable, zone));
            }
        }
        let Some((_, zone)) = worst else {
            return if backed_off {
                CompactOutcome::BackedOff
            } else {
                CompactOutcome::NotSuitable
            };
        };
        zone.compaction.count(Count::DaemonWake, 1);
        let (mode, effort) = (CompactMode::Sync, &Effort::offering(BACKGROUND_FRAMES));
        let (goal, on) = (Goal::Another, Occasion::Background);
        let task = Task { order, mode, goal, on, request: None, drained: false, effort };
        self.compact(zone, &task).0
    }

    /// Compacts a zone for a request that found nothing after everything was drained; returns
    /// the block, marked allocated, if it could be taken as it formed. `effort` is what all of the
    /// request's compactions may cost.
    pub(crate) fn compact_for(
        &self,
        zone: &'m Zone<P, S>,
        request: &Request,
        mode: CompactMode,
        effort: &Effort,
    ) -> (CompactOutcome, Option<u32>) {
        let (order, goal) = (request.order(), Goal::Any);
        // A request begins with asynchronous compaction of each of its zones.
        let on = match mode {
            CompactMode::Async => Occasion::Request,
            CompactMode::Sync => Occasion::Retry,
        };
        let request = Some(request);
        self.compact(zone, &Task { order, mode, goal, on, request, drained: true, effort })
    }

    /// Whether compaction can do anything at all.
    pub(crate) fn can_compact(&self) -> bool {
        S::Free::SKIPS_MERGES || self.platform.can_migrate()
    }

    fn compact(&self, zone: &'m Zone<P, S>, task: &Task<'_>) -> (CompactOutcome, Option<u32>) {
        if task.order == Order::ZERO {
            return (CompactOutcome::NotSuitable, None);
        }
        let Some((_running, waited)) = self.start(zone, task) else {
            return (CompactOutcome::Contended, None);
        };
        // Before the back-off is asked: of a request's attempts it may let only a later one pass.
        if zone.compaction.is_outdated() && S::Compact::forgets(task.on) {
            self.forget_hints(zone);
        }
        if let Some(outcome) = self.before_compaction(zone, task) {
            return (outcome, None);
        }
        let clusters_off = waited.or_else(|| self.clusters_off(zone));
        let mut scan = Scan::new(self, zone, task);
        let mut outcome = scan.take_turn();
        let hinted = outcome == CompactOutcome::Complete && scan.was_hinted();
        if (outcome == CompactOutcome::PartialSkipped || hinted)
            && S::Compact::GOES_ROUND
            && task.mode == CompactMode::Sync
            && !scan.is_over()
        {
            scan.start_over();
            outcome = scan.take_turn();
        }
        let taken = scan.taken();
        drop(clusters_off);
        let in_background = matches!(task.on, Occasion::Background | Occasion::Rest);
        let failed = matches!(outcome, CompactOutcome::Complete | CompactOutcome::PartialSkipped);
        if outcome == CompactOutcome::Success {
            zone.compaction.succeeded(task.order);
        } else if failed && task.mode == CompactMode::Sync && !(in_background && scan.is_over()) {
            let most = match scan.has_moved() {
                true => S::Compact::MOVED_BACKOFF_SHIFT,
                false => S::Compact::MAX_BACKOFF_SHIFT,
            };
            zone.compaction.back_off(task.order, most);
        }
        (outcome, taken)
    }

    /// Begins one for the task; a request waits for its turn for a while if there are turns, and has
    /// disabled clusters then.
    fn start<'a>(&'a self, zone: &'a Zone<P, S>, task: &Task<'_>) -> Option<Turn<'a, P, S>> {
        let in_background = matches!(task.on, Occasion::Background | Occasion::Rest);
        let running = Running::begin(zone, in_background);
        if let Some(running) = running {
            return Some((running, None));
        }
        if in_background {
            return None;
        }
        // A block is wanted from now on: what others free meanwhile is merged.
        let clusters_off = self.clusters_off(zone);
        zone.compaction.start_after_another().then(|| (Running(zone), clusters_off))
    }

    /// For as long as there is compaction to do. Merges that are skipped without clusters go on
    /// being skipped: only a compaction that fails ends that (Lu 2018, patch 2; patch 3 has the
    /// rest).
    fn clusters_off<'a>(&'a self, zone: &'a Zone<P, S>) -> Option<ClustersOff<'a, P, S>> {
        S::Free::CUTS_BATCHES.then(|| ClustersOff::new(zone, self))
    }

    /// What may make a compaction unnecessary or useless.
    fn before_compaction(&self, zone: &'m Zone<P, S>, task: &Task<'_>) -> Option<CompactOutcome> {
        if self.has_block(zone, task) {
            return Some(CompactOutcome::Success);
        }
        if zone.compaction.backs_off(task.order) {
            return Some(CompactOutcome::BackedOff);
        }
        if !task.drained {
            self.drain_zone(zone);
            if self.has_block(zone, task) {
                return Some(CompactOutcome::Success);
            }
        }
        if !self.can_compact() {
            return Some(CompactOutcome::Unavailable);
        }
        let keep = task.request.map_or(0, |request| zone.reserve(request.limit()));
        if self.platform.can_migrate() && !self.view(zone).is_suitable(task.order, keep) {
            return Some(CompactOutcome::NotSuitable);
        }
        if S::Compact::RESTARTS_AFRESH
            && zone.compaction.is_restarting(task.order, S::Compact::MAX_BACKOFF_SHIFT)
        {
            self.forget_hints(zone);
        }
        None
    }

    /// Whether the zone has what the task wants without any more work.
    fn has_block(&self, zone: &Zone<P, S>, task: &Task<'_>) -> bool {
        if task.goal == Goal::Another {
            return false;
        }
        let cma = task.request.is_none_or(Request::may_use_cma);
        let above = task.request.is_none_or(|r| self.headroom(zone, r, Mark::Min) > 0);
        above && S::Free::has_block(self.view(zone), task.order, cma)
    }

    /// Forgets the hints of the zone's pageblocks and where its scanners were. By a compaction that
    /// begins there: a scan beside it does not come by the same pageblock for ever, since it only goes
    /// on ([`Scan`]).
    fn forget_hints(&self, zone: &Zone<P, S>) {
        zone.compaction.set_outdated(false);
        zone.compaction.start_over();
        let (start, end) = zone.span();
        let step = self.table.pageblock_order().frames() as usize;
        let mut pageblocks = (start..end).step_by(step).peekable();
        while pageblocks.peek().is_some() {
            zone.lock(&self.table, |guard| {
                for at in pageblocks.by_ref().take(FORGET_PER_HOLD) {
                    S::Free::count_work(guard, 1);
                    if self.table.pageblock(at).zone() == Some(zone.id) {
                        self.table.clear_hint(at, S::Free::LOCKED);
                    }
                }
            });
        }
    }
}

/// Whether there is a free block of `order` or larger that some request may have.
fn has_block(counts: &FreeCounts, order: Order) -> bool {
    let usable = |migrate: &MigrateType| migrate.is_requestable() || *migrate == MigrateType::Cma;
    let types = || MigrateType::ALL.into_iter().filter(usable);
    counts[order.index()..].iter().any(|row| types().any(|migrate| row[migrate.index()] > 0))
}

impl<P: Platform, F: FreeMemory> ZoneInstance<P, F> {
    /// Whether there are twice the frames of a block above the low watermark.
    pub(crate) fn is_roomy(&self, order: Order) -> bool {
        self.free() > self.mark(Mark::Low).saturating_add(2 * order.frames())
    }
}
