//! A zone instance: its place, its size, its watermarks, and the zone lock with what that guards.

use super::compaction::ZoneCompaction;
use super::tables::ZoneTables;
use super::{FreeMemory, Published, ZoneGuard, ZoneView};
use crate::boot::plan::ZoneSpec;
use crate::boot::watermark::{Mark, Watermarks};
use crate::platform::{AtomicWord, Lock, Platform};
use crate::types::request::Request;
use crate::types::units::{NodeId, ZoneId};
use crate::types::zone_type::{NR_ZONE_TYPES, ZoneType};
use core::sync::atomic::Ordering::Relaxed;

/// The most work of one lock hold: list operations and frames scanned (I-7). The longest hold
/// is a refill of 256 single frames that begins with the claim of a pageblock (its frames
/// looked at twice, each free block of it moved): 1800 for pageblocks of 512 frames, 3400 for
/// those of 1024, the largest.
pub const HOLD_BOUND: u32 = 4096;

/// [`HOLD_BOUND`], or twice that under presets that skip merges: there a pageblock may be all
/// single frames when it is claimed.
#[must_use]
pub const fn hold_bound<F: FreeMemory>() -> u32 {
    if F::SKIPS_MERGES { 2 * HOLD_BOUND } else { HOLD_BOUND }
}

/// See [`ZoneInstance::is_search_due`].
const MISSES: u64 = 64;

/// How much is free, and how much a plain request leaves alone.
pub(crate) struct Levels<P: Platform> {
    /// The largest of the reserve and the high mark together.
    kept_back: P::Word,
    boost: P::Word,
    /// Free frames as of the last hold; a hint for the watermark check.
    free: P::Word,
    /// Of those, the ones in high-atomic and in CMA pageblocks.
    special: [P::Word; 2],
}

impl<P: Platform> Levels<P> {
    /// As [`ZoneInstance::slack`], and negative where a plain request may take none.
    #[inline(always)]
    pub(crate) fn beyond(&self) -> i64 {
        let apart = self.special[0].load(Relaxed).wrapping_add(self.special[1].load(Relaxed));
        // All are counts of frames, of which there are less than 2^32; `free` may be below zero, see there.
        let kept = self.kept_back.load(Relaxed).wrapping_add(self.boost.load(Relaxed));
        self.free.load(Relaxed).wrapping_sub(kept.wrapping_add(apart)) as i64
    }
}

/// A zone instance, whose free memory is kept in the way `F`.
pub struct ZoneInstance<P: Platform, F: FreeMemory> {
    pub(crate) id: ZoneId,
    pub(crate) node: NodeId,
    pub(crate) zone_type: ZoneType,
    pub(crate) instance: u8,
    /// First index of what is there and the index after the last, the latter in the high half;
    /// holes included. Changes, as the two counts, when memory comes or goes.
    span: P::Word,
    pub(crate) present: P::Word,
    pub(crate) managed: P::Word,
    /// Frames to leave to requests that could not use a higher zone type, by the type that
    /// the request could have used.
    reserve: [P::Word; NR_ZONE_TYPES],
    marks: [P::Word; 3],
    levels: Levels<P>,
    pub(crate) compaction: ZoneCompaction<P>,
    /// Requests for larger blocks in a row that found none anywhere.
    misses: P::Word,
    /// The fewest frames that were free since the last search that more of them made, and in the high half how many more make the
    /// next.
    searched: P::Word,
    pub(super) part: F::Part<P>,
    pub(super) held: P::Lock<F::Held>,
}

impl<P: Platform, F: FreeMemory> ZoneInstance<P, F> {
    /// A zone with nothing in it.
    #[must_use]
    pub fn vacant() -> Self {
        Self {
            id: ZoneId(0),
            node: NodeId(0),
            zone_type: ZoneType::Normal,
            instance: 0,
            span: P::Word::new(0),
            present: P::Word::new(0),
            managed: P::Word::new(0),
            reserve: P::Word::zeros(),
            marks: P::Word::zeros(),
            levels: Levels {
                kept_back: P::Word::new(0),
                boost: P::Word::new(0),
                free: P::Word::new(0),
                special: P::Word::zeros(),
            },
            compaction: ZoneCompaction::new(),
            misses: P::Word::new(0),
            searched: P::Word::new(0),
            part: F::part(),
            held: P::Lock::new(F::vacant()),
        }
    }

    /// Takes over what the plan says of it.
    pub(crate) fn plan(&mut self, spec: &ZoneSpec) {
        self.id = spec.id;
        self.node = spec.node;
        self.zone_type = spec.zone_type;
        self.instance = spec.instance;
        self.present.store(spec.present, Relaxed);
        self.managed.store(spec.managed, Relaxed);
        self.set_reserve(spec.lowmem_reserve);
    }

    /// As [`ZoneView::lock`], before the zone is shared.
    pub(super) fn set_up(
        &mut self,
        table: &ZoneTables<'_, P>,
        f: impl FnOnce(&mut ZoneGuard<'_, P, F>),
    ) {
        ZoneView { zone: self, table }.lock(f);
    }

    /// Whether the two are instances of one zone type of a node.
    pub(crate) fn is_sibling(&self, other: &Self) -> bool {
        self.node == other.node && self.zone_type == other.zone_type
    }

    /// Makes the counts known to those who look without the lock. Relaxed: hints.
    #[inline]
    pub(super) fn publish(&self, Published { free, special }: Published) {
        self.levels.free.store(free, Relaxed);
        self.levels
            .special
            .iter()
            .zip(special)
            .for_each(|(word, frames)| word.store(frames, Relaxed));
    }

    /// Free frames that the request may use.
    #[inline]
    pub(crate) fn usable(&self, request: &Request) -> u64 {
        let mut free = self.free();
        if !request.is_atomic() {
            free = free.saturating_sub(self.levels.special[0].load(Relaxed));
        }
        if !request.may_use_cma() {
            free = free.saturating_sub(self.levels.special[1].load(Relaxed));
        }
        free
    }

    /// Free frames of the zone, as of the last time the lock was held or they were counted.
    #[inline]
    pub(crate) fn free(&self) -> u64 {
        let free = self.levels.free.load(Relaxed);
        // Frames that another CPU freed may be counted as taken before they are as freed.
        if free > i64::MAX as u64 { 0 } else { free }
    }

    /// Counts frames that were freed, or taken (negative), where the lock does not guard them.
    #[inline]
    pub(crate) fn count_free(&self, change: i64) {
        self.levels.free.fetch_add(change as u64, Relaxed);
    }

    /// The same for those of a special pageblock: 0 high-atomic, 1 CMA.
    pub(super) fn count_special(&self, which: usize, change: i64) {
        self.levels.special[which].fetch_add(change as u64, Relaxed);
    }

    /// The most that is kept back from any request, and what reclaim keeps free above that.
    #[inline]
    pub(crate) fn kept_back(&self) -> u64 {
        self.levels.kept_back.load(Relaxed)
    }

    /// Frames that are free beyond the high mark, its boost, every reserve, and what is special: as many
    /// as a plain request may take without a mark being near.
    #[inline]
    pub(crate) fn slack(&self) -> u64 {
        self.levels.beyond().max(0) as u64
    }

    /// What that is worked out from.
    pub(crate) const fn levels(&self) -> &Levels<P> {
        &self.levels
    }

    fn keep_back(&self) {
        let reserve = self.reserve.iter().map(|word| word.load(Relaxed)).max().unwrap_or(0);
        let kept = reserve.saturating_add(self.watermarks().high);
        // No zone has as many; sums of it do not wrap.
        self.levels.kept_back.store(kept.min(u64::from(u32::MAX)), Relaxed);
    }

    /// Whether a request for a larger block that finds none may empty the pages of all CPUs: of those in
    /// a row the first ones, then those after 2, 4, 8 ... and each [`MISSES`]-th, since what it could bring
    /// together grows slowly and all CPUs pay for it; and one that may wait where much more is free than at the search before or
    /// at a request since: half a block, and then each time twice as much as was not enough, up to a quarter of the zone.
    /// Relaxed: counts.
    #[cold]
    #[inline(never)]
    pub(crate) fn is_search_due(&self, request: &Request) -> bool {
        let before = self.misses.fetch_add(1, Relaxed);
        // A power of two beyond it is a multiple.
        let in_turn = before.is_power_of_two() || before.is_multiple_of(MISSES);
        let (searched, free) = (self.searched.load(Relaxed), self.free());
        let (mut then, mut step) = match before {
            0 => (free, 0),
            _ => (free.min(searched & u64::from(u32::MAX)), searched >> 32),
        };
        let more = free - then;
        let is_more = more >= step.max(request.order().frames() / 2) && !request.may_not_wait();
        if is_more {
            step = (2 * more).min(self.managed() / 4);
            then = free;
        }
        self.searched.store(then | step << 32, Relaxed);
        in_turn || is_more
    }

    /// There was one: the next is the first again.
    #[inline]
    pub(crate) fn search_found(&self) {
        self.misses.store(0, Relaxed);
    }

    pub(crate) fn managed(&self) -> u64 {
        self.managed.load(Relaxed)
    }

    pub(crate) fn present(&self) -> u64 {
        self.present.load(Relaxed)
    }

    /// First index of what is there, and the index after the last: whole pageblocks. Other
    /// zones may lie in between. Relaxed: who sees an older span misses what has just come.
    pub(crate) fn span(&self) -> (u32, u32) {
        let span = self.span.load(Relaxed);
        (span as u32, (span >> 32) as u32)
    }

    /// Makes the span reach over `start..end` too.
    pub(crate) fn widen_span(&self, (start, end): (u32, u32)) {
        let span = self.span();
        let empty = span.0 == span.1;
        self.set_span(if empty { (start, end) } else { (span.0.min(start), span.1.max(end)) });
    }

    pub(crate) fn set_span(&self, (start, end): (u32, u32)) {
        self.span.store(u64::from(start) | u64::from(end) << 32, Relaxed);
    }

    /// What is left to others by a request that may use zone types up to `limit`.
    #[inline]
    pub(crate) fn reserve(&self, limit: ZoneType) -> u64 {
        self.reserve[limit.index()].load(Relaxed)
    }

    pub(crate) fn set_reserve(&self, reserve: [u64; NR_ZONE_TYPES]) {
        self.reserve.iter().zip(reserve).for_each(|(word, frames)| word.store(frames, Relaxed));
        self.keep_back();
    }

    #[inline]
    pub(crate) fn mark(&self, mark: Mark) -> u64 {
        self.marks[mark as usize].load(Relaxed).saturating_add(self.levels.boost.load(Relaxed))
    }

    pub(crate) fn watermarks(&self) -> Watermarks {
        let [min, low, high] = [0, 1, 2].map(|at| self.marks[at].load(Relaxed));
        Watermarks { min, low, high }
    }

    pub(crate) fn set_watermarks(&self, marks: Watermarks) {
        for (word, value) in self.marks.iter().zip([marks.min, marks.low, marks.high]) {
            word.store(value, Relaxed);
        }
        self.keep_back();
    }

    #[inline]
    pub(crate) fn boost(&self) -> u64 {
        self.levels.boost.load(Relaxed)
    }

    pub(crate) fn set_boost(&self, frames: u64) {
        // More than there can be: sums of counts do not wrap.
        self.levels.boost.store(frames.min(u64::from(u32::MAX)), Relaxed);
    }
}
