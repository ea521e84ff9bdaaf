//! What a zone remembers of compaction: that one is running, where the scanners were, how often
//! to put it off, and counters.
//!
//! All of it are words: the running mark orders what one compaction writes before what the next
//! reads, where they take turns; the rest are hints and counts, and relaxed.

use crate::platform::{AtomicWord, Platform};
use crate::types::units::Order;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// How hard compaction tries.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CompactMode {
    /// Only movable and CMA pageblocks are evacuated, the host may not wait, and an aligned
    /// block of the wanted order is left as soon as one page of it stays.
    Async = 0,
    /// Pageblocks of every type that can be requested are evacuated, and the host may wait.
    Sync = 1,
}

/// How a compaction ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[must_use]
pub enum CompactOutcome {
    /// There is a free block of the wanted order (in the background: one more than before).
    Success,
    /// The whole zone was scanned, and no block has formed.
    Complete,
    /// Nothing formed in the part that was scanned: the scanners went on from where they were
    /// the last time, or the work for one call was done, or a request called the background off.
    /// The next call scans the rest.
    PartialSkipped,
    /// Not tried: it failed lately, and compaction backs off.
    BackedOff,
    /// Not tried: the zone has too little free memory, its memory is not in pieces too small,
    /// or the order is 0.
    NotSuitable,
    /// Not tried: another compaction is running in the zone, and had not ended when a request had
    /// waited for a while. Not under presets whose compactions run
    /// [side by side](crate::policy::Compact::SIDE_BY_SIDE).
    Contended,
    /// Not possible: the host cannot move pages and the preset never skips a merge, or there is
    /// no such zone.
    Unavailable,
}

/// What is counted, by the place in [`ZoneCompaction::counts`].
#[derive(Clone, Copy)]
pub(crate) enum Count {
    MigrateScanned,
    FreeScanned,
    Isolated,
    Stall,
    Fail,
    Success,
    DaemonWake,
    MigrateSuccess,
    MigrateFail,
    MigrateMismatches,
}

const NR_COUNTS: usize = Count::MigrateMismatches as usize + 1;

/// Counters of compaction in a zone, and of pages moved to make ranges contiguous there.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CompactEvents {
    /// Frames that the migrate scanner looked at.
    pub migrate_scanned: u64,
    /// Frames that the free scanner looked at.
    pub free_scanned: u64,
    /// Frames taken in hand to be moved, and frames to move them to.
    pub isolated: u64,
    /// Requests that waited for compaction.
    pub stall: u64,
    /// Of those, the ones it did not help.
    pub fail: u64,
    /// Of those, the ones it helped.
    pub success: u64,
    /// Times a background thread had the zone compacted.
    pub daemon_wake: u64,
    /// Frames that the host moved.
    pub migrate_success: u64,
    /// Frames that the host would not move.
    pub migrate_fail: u64,
    /// Times the host's answer did not fit what had become of the frames: it said "moved" and
    /// the old block was not allocated any more, or "stays" and the new one was not. Nothing was
    /// touched then.
    pub migrate_mismatches: u64,
}

impl CompactEvents {
    /// The sum of two.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            migrate_scanned: self.migrate_scanned + other.migrate_scanned,
            free_scanned: self.free_scanned + other.free_scanned,
            isolated: self.isolated + other.isolated,
            stall: self.stall + other.stall,
            fail: self.fail + other.fail,
            success: self.success + other.success,
            daemon_wake: self.daemon_wake + other.daemon_wake,
            migrate_success: self.migrate_success + other.migrate_success,
            migrate_fail: self.migrate_fail + other.migrate_fail,
            migrate_mismatches: self.migrate_mismatches + other.migrate_mismatches,
        }
    }
}

/// Values of [`ZoneCompaction::running`].
mod turn {
    /// No compaction runs in the zone.
    pub(super) const NONE: u64 = 0;
    /// One runs that goes on to its end.
    pub(super) const FOR_REQUEST: u64 = 1;
    /// The background's runs.
    pub(super) const IN_BACKGROUND: u64 = 2;
    /// The same, and a request wants to compact instead: it ends with the page being moved.
    pub(super) const CALLED_OFF: u64 = 3;
}

/// How often a request looks whether the compaction that runs has ended. A look is a
/// [`relax`](Platform::relax) long: together tens of microseconds where that is a spin hint, a few
/// milliseconds in an arena. A compaction that takes longer keeps the zone.
const LOOKS: u32 = 1 << 12;

/// Compaction's part of a zone.
pub(crate) struct ZoneCompaction<P: Platform> {
    /// Whether one runs, and whose, where they take turns: see [`turn`].
    running: P::Word,
    /// Where the migrate scanner goes on: asynchronous, synchronous. 0: at the start; else the
    /// index + 1.
    migrate_at: [P::Word; 2],
    /// The end of what the free scanner has not looked at. 0: the zone's; else the index + 1.
    free_at: P::Word,
    /// Whether hints are out of date: 0 or 1.
    outdated: P::Word,
    /// Attempts considered since the last failure (bits 0–31), shift (32–39), and the smallest
    /// order whose attempts are considered (40–47): the smallest that failed, and before anything
    /// did, the one above the largest that was had.
    backoff: P::Word,
    counts: [P::Word; NR_COUNTS],
}

impl<P: Platform> ZoneCompaction<P> {
    pub(crate) fn new() -> Self {
        Self {
            running: P::Word::new(0),
            migrate_at: P::Word::zeros(),
            free_at: P::Word::new(0),
            outdated: P::Word::new(0),
            backoff: P::Word::new(0),
            counts: P::Word::zeros(),
        }
    }

    /// Sets the running mark; `false` if it is set.
    pub(crate) fn start(&self, in_background: bool) -> bool {
        let mark = if in_background { turn::IN_BACKGROUND } else { turn::FOR_REQUEST };
        // Acquire: what the compaction before wrote (its positions) is seen.
        self.running.compare_exchange(turn::NONE, mark, Acquire, Relaxed).is_ok()
    }

    /// As [`start`](Self::start) for a request: waits for a while for the end of the one that runs,
    /// and calls it off if it is the background's.
    pub(crate) fn start_after_another(&self) -> bool {
        for _ in 0..LOOKS {
            // Relaxed: a look, so that those who wait share the line; who acts swaps the mark.
            match self.running.load(Relaxed) {
                turn::NONE if self.start(false) => return true,
                turn::IN_BACKGROUND => {
                    // Relaxed: it says nothing else. Of an error neither: there is another look.
                    let (from, to) = (turn::IN_BACKGROUND, turn::CALLED_OFF);
                    let _ = self.running.compare_exchange(from, to, Relaxed, Relaxed);
                }
                _ => {}
            }
            P::relax();
        }
        false
    }

    /// Whether a request wants to compact instead of the one that runs.
    pub(crate) fn is_called_off(&self) -> bool {
        self.running.load(Relaxed) == turn::CALLED_OFF
    }

    pub(crate) fn stop(&self) {
        // Release, with the acquire of `start`.
        self.running.store(turn::NONE, Release);
    }

    /// The cached position of the migrate scanner, within `start..end`.
    pub(crate) fn migrate_at(&self, mode: CompactMode, start: u32, end: u32) -> u32 {
        let at = self.migrate_at[mode as usize].load(Relaxed).checked_sub(1);
        at.map_or(start, |at| (at as u32).clamp(start, end))
    }

    /// The cached position of the free scanner, within `start..end`.
    pub(crate) fn free_at(&self, start: u32, end: u32) -> u32 {
        let at = self.free_at.load(Relaxed).checked_sub(1);
        at.map_or(end, |at| (at as u32).clamp(start, end))
    }

    /// Remembers both positions. What synchronous compaction has seen, asynchronous compaction
    /// need not see again. Of compactions that run `together` the one that lags behind does not take
    /// the migrate scanner back; where the free scanner is says who was there last, as he may have
    /// left something.
    pub(crate) fn remember(
        &self,
        mode: CompactMode,
        migrate_at: u32,
        free_at: u32,
        together: bool,
    ) {
        let next = u64::from(migrate_at) + 1;
        let own = &self.migrate_at[mode as usize];
        // Between look and store another may note more: what is lost by that is scanned again.
        if !together || own.load(Relaxed) < next {
            own.store(next, Relaxed);
        }
        let other = &self.migrate_at[CompactMode::Async as usize];
        if other.load(Relaxed) < next {
            other.store(next, Relaxed);
        }
        self.free_at.store(u64::from(free_at) + 1, Relaxed);
    }

    /// The next compaction starts with the whole zone in front of the scanners.
    pub(crate) fn start_over(&self) {
        self.migrate_at.iter().chain([&self.free_at]).for_each(|word| word.store(0, Relaxed));
    }

    /// Notes whether the zone's hints are out of date.
    pub(crate) fn set_outdated(&self, outdated: bool) {
        self.outdated.store(outdated.into(), Relaxed);
    }

    pub(crate) fn is_outdated(&self) -> bool {
        self.outdated.load(Relaxed) > 0
    }

    /// Whether an attempt was considered since the last that failed or brought its block: the source's
    /// `compact_considered`. An attempt that is made counts as one that is put off does, also
    /// before anything failed; not one for an order that was had already.
    #[inline]
    pub(crate) fn is_considered(&self) -> bool {
        unpack(self.backoff.load(Relaxed)).0 > 0
    }

    /// Whether this attempt is not to be made. It is considered by that.
    pub(crate) fn backs_off(&self, order: Order) -> bool {
        let word = self.backoff.load(Relaxed);
        let (before, shift, failed) = unpack(word);
        if u64::from(order.get()) < failed {
            return false;
        }
        let limit = 1 << shift;
        let considered = (before + 1).min(limit);
        if considered != before {
            self.backoff.store(pack(considered, shift, failed), Relaxed);
        }
        considered < limit
    }

    /// Whether the attempt that is being made is the first after as many as can be were not made.
    pub(crate) fn is_restarting(&self, order: Order, most: u64) -> bool {
        let (considered, shift, failed) = unpack(self.backoff.load(Relaxed));
        u64::from(order.get()) >= failed && shift == most && considered >= 1 << shift
    }

    /// The next attempts are not made: 1, 3, 7, … up to 2^`most` − 1 of them.
    pub(crate) fn back_off(&self, order: Order, most: u64) {
        let (_, shift, failed) = unpack(self.backoff.load(Relaxed));
        let order = u64::from(order.get());
        let failed = if shift == 0 { order } else { failed.min(order) };
        self.backoff.store(pack(0, (shift + 1).min(most), failed), Relaxed);
    }

    /// The next attempt is made again. Those for `order` and smaller ones are not considered until
    /// one fails.
    pub(crate) fn succeeded(&self, order: Order) {
        let (_, _, failed) = unpack(self.backoff.load(Relaxed));
        let failed = failed.max(u64::from(order.get()) + 1);
        self.backoff.store(pack(0, 0, failed), Relaxed);
    }

    pub(crate) fn count(&self, what: Count, by: u64) {
        self.counts[what as usize].fetch_add(by, Relaxed);
    }

    pub(crate) fn events(&self) -> CompactEvents {
        let of = |what: Count| self.counts[what as usize].load(Relaxed);
        CompactEvents {
            migrate_scanned: of(Count::MigrateScanned),
            free_scanned: of(Count::FreeScanned),
            isolated: of(Count::Isolated),
            stall: of(Count::Stall),
            fail: of(Count::Fail),
            success: of(Count::Success),
            daemon_wake: of(Count::DaemonWake),
            migrate_success: of(Count::MigrateSuccess),
            migrate_fail: of(Count::MigrateFail),
            migrate_mismatches: of(Count::MigrateMismatches),
        }
    }
}

const fn pack(considered: u64, shift: u64, failed: u64) -> u64 {
    considered | shift << 32 | failed << 40
}

/// (considered, shift, smallest order that is considered)
const fn unpack(word: u64) -> (u64, u64, u64) {
    (word & 0xffff_ffff, word >> 32 & 0xff, word >> 40)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::single::SingleThread;

    #[test]
    fn back_off_doubles_up_to_64() {
        let zone = ZoneCompaction::<SingleThread>::new();
        let (three, nine) = (Order::new(3).unwrap(), Order::HUGE);
        assert!(!zone.backs_off(nine), "nothing failed yet");
        for backed_off in [1, 3, 7, 15, 31, 63, 63] {
            zone.back_off(nine, 6);
            assert!(!zone.backs_off(three), "smaller orders did not fail");
            assert!(!zone.is_restarting(nine, 6), "no attempt was left out yet");
            let times = (0..100).take_while(|_| zone.backs_off(nine)).count();
            assert_eq!(times, backed_off);
            assert_eq!(zone.is_restarting(nine, 6), backed_off == 63, "after the longest only");
            assert!(!zone.is_restarting(three, 6), "smaller orders did not fail");
        }
        zone.back_off(three, 6);
        assert!(zone.backs_off(three) && zone.backs_off(nine), "now they did");
        zone.succeeded(nine);
        assert!(!zone.backs_off(three) && !zone.backs_off(nine));
    }

    /// The source's `compact_considered`.
    #[test]
    fn each_back_off_resets_what_was_considered() {
        let zone = ZoneCompaction::<SingleThread>::new();
        let (three, nine) = (Order::new(3).unwrap(), Order::HUGE);
        assert!(!zone.is_considered());
        assert!(!zone.backs_off(three) && zone.is_considered(), "made, and counted");
        assert!(!zone.backs_off(three) && zone.is_considered());
        for _ in 0..3 {
            zone.back_off(nine, 6);
            assert!(!zone.is_considered(), "put off anew");
            assert!(!zone.backs_off(three) && !zone.is_considered(), "it does not count");
            assert!(zone.backs_off(nine) && zone.is_considered());
        }
        zone.succeeded(nine);
        assert!(!zone.is_considered());
    }

    /// The source's `compact_order_failed`, which each success puts above its order.
    #[test]
    fn what_was_had_is_not_considered_until_it_fails() {
        let zone = ZoneCompaction::<SingleThread>::new();
        let [three, four, nine] = [3, 4, 9].map(|n| Order::new(n).unwrap());
        assert!(!zone.backs_off(three) && zone.is_considered());
        zone.succeeded(three);
        assert!(!zone.backs_off(three) && !zone.is_considered(), "had before");
        assert!(!zone.backs_off(four) && zone.is_considered(), "not yet");
        zone.succeeded(nine);
        zone.succeeded(three);
        assert!(!zone.backs_off(four) && !zone.is_considered(), "a smaller one changes nothing");
        zone.back_off(four, 6);
        assert!(!zone.backs_off(three) && !zone.is_considered());
        assert!(zone.backs_off(four) && zone.is_considered());
        zone.succeeded(three);
        assert!(!zone.backs_off(four) && zone.is_considered(), "it is made and counts");
        zone.succeeded(four);
        assert!(!zone.backs_off(nine) && zone.is_considered());
    }

    #[test]
    fn a_request_calls_the_background_off_and_no_other_request() {
        let zone = ZoneCompaction::<SingleThread>::new();
        assert!(zone.start(true) && !zone.start(false));
        assert!(!zone.is_called_off());
        assert!(!zone.start_after_another(), "it does not end");
        assert!(zone.is_called_off());
        zone.stop();
        assert!(zone.start_after_another());
        assert!(!zone.start_after_another() && !zone.is_called_off());
        zone.stop();
        assert!(zone.start(true) && !zone.is_called_off());
    }

    #[test]
    fn positions_are_kept_apart_by_mode() {
        let zone = ZoneCompaction::<SingleThread>::new();
        assert_eq!(zone.migrate_at(CompactMode::Sync, 8, 64), 8);
        assert_eq!(zone.free_at(8, 64), 64);
        zone.remember(CompactMode::Async, 24, 48, false);
        assert_eq!(zone.migrate_at(CompactMode::Async, 8, 64), 24);
        assert_eq!(zone.migrate_at(CompactMode::Sync, 8, 64), 8);
        assert_eq!(zone.free_at(8, 64), 48);
        zone.remember(CompactMode::Sync, 32, 40, false);
        assert_eq!(zone.migrate_at(CompactMode::Async, 8, 64), 32);
        zone.start_over();
        assert_eq!(zone.migrate_at(CompactMode::Async, 8, 64), 8);
        assert_eq!(zone.free_at(8, 64), 64);
        zone.remember(CompactMode::Sync, 32, 40, true);
        zone.remember(CompactMode::Sync, 16, 56, true);
        let at = [CompactMode::Async, CompactMode::Sync].map(|mode| zone.migrate_at(mode, 8, 64));
        assert_eq!((at, zone.free_at(8, 64)), ([32, 32], 56), "who lags takes no other back");
        zone.remember(CompactMode::Sync, 16, 56, false);
        assert_eq!(zone.migrate_at(CompactMode::Sync, 8, 64), 16, "one at a time");
        assert!(!zone.is_outdated());
        zone.set_outdated(true);
        assert!(zone.is_outdated());
    }
}
