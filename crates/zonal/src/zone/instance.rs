//! A zone instance: watermarks, the zone lock and what it guards, the keeper's part.

use crate::boot::watermark::{Mark, Watermarks};
use crate::compact::ZoneCompaction;
use crate::pcp::policy::Keeper;
use crate::platform::{AtomicWord, Lock, Platform};
use crate::policy::{Dirty, Merge, Policy, Walk};
use crate::types::migrate_type::MigrateType;
use crate::types::request::Request;
use crate::types::units::{NodeId, ZoneId};
use crate::types::zone_type::{NR_ZONE_TYPES, ZoneType};
use crate::zone::lists::buddy::Buddy;
use core::sync::atomic::Ordering::Relaxed;

/// The most work of one lock hold: list operations and frames scanned (I-7). The longest hold
/// is a refill of 256 single frames that begins with the claim of a pageblock (its frames
/// looked at twice, each free block of it moved): 1800 for pageblocks of 512 frames, 3400 for
/// those of 1024, the largest.
pub const HOLD_BOUND: u32 = 4096;

/// [`HOLD_BOUND`], or twice that under presets that skip merges: there a pageblock may be all
/// single frames when it is claimed.
#[must_use]
pub const fn hold_bound<S: Policy>() -> u32 {
    if S::Merge::SKIPS { 2 * HOLD_BOUND } else { HOLD_BOUND }
}

/// A zone instance. The caller provides the memory for the allocator's zones, filled with
/// [`Zone::vacant`]; the allocator sets them up.
pub struct Zone<P: Platform, S: Policy> {
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
    boost: P::Word,
    /// [`Buddy::free_frames`] as of the last hold; a hint for the watermark check.
    free: P::Word,
    /// Of those, the ones in high-atomic and in CMA pageblocks.
    special: [P::Word; 2],
    pub(crate) keeper: <S::Keeper as Keeper>::Zone<P>,
    pub(crate) walk: <S::Walk as Walk>::Zone<P>,
    pub(crate) dirty: <S::Dirty as Dirty>::Zone<P>,
    pub(crate) compaction: ZoneCompaction<P>,
    buddy: P::Lock<Buddy<S>>,
}

impl<P: Platform, S: Policy> Zone<P, S> {
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
            reserve: core::array::from_fn(|_| P::Word::new(0)),
            marks: core::array::from_fn(|_| P::Word::new(0)),
            boost: P::Word::new(0),
            free: P::Word::new(0),
            special: core::array::from_fn(|_| P::Word::new(0)),
            keeper: S::Keeper::new_zone::<P>(),
            walk: S::Walk::new_zone::<P>(),
            dirty: S::Dirty::new_zone::<P>(),
            compaction: ZoneCompaction::new(),
            buddy: P::Lock::new(Buddy::new(ZoneId(0))),
        }
    }

    /// Runs `f` with the zone lock held and books the hold.
    #[inline]
    pub(crate) fn with_buddy<R>(&self, f: impl FnOnce(&mut Buddy<S>) -> R) -> R {
        self.buddy.with(|buddy| {
            let result = f(buddy);
            buddy.end_hold();
            self.publish(buddy);
            result
        })
    }

    /// Whether the two are instances of one zone type of a node.
    pub(crate) fn is_sibling(&self, other: &Self) -> bool {
        self.node == other.node && self.zone_type == other.zone_type
    }

    /// Access before the zone is shared.
    pub(crate) fn buddy_mut(&mut self) -> &mut Buddy<S> {
        self.buddy.get_mut()
    }

    /// Makes the counts known to those who look without the lock. Relaxed: hints.
    #[inline]
    fn publish(&self, buddy: &Buddy<S>) {
        self.free.store(buddy.free_frames(), Relaxed);
        let types = [MigrateType::HighAtomic, MigrateType::Cma];
        for (word, migrate) in self.special.iter().zip(types) {
            word.store(buddy.area.frames_of(migrate), Relaxed);
        }
    }

    /// Free frames that the request may use.
    pub(crate) fn usable(&self, request: &Request) -> u64 {
        let mut free = self.free();
        if !request.is_atomic() {
            free = free.saturating_sub(self.special[0].load(Relaxed));
        }
        if request.migrate_type() != MigrateType::Movable {
            free = free.saturating_sub(self.special[1].load(Relaxed));
        }
        free
    }

    /// Frames on the buddy lists, as of the last time the lock was held.
    #[inline]
    pub(crate) fn free(&self) -> u64 {
        self.free.load(Relaxed)
    }

    /// The most that is kept back from any request, and what reclaim keeps free above that.
    pub(crate) fn kept_back(&self) -> u64 {
        let reserve = self.reserve.iter().map(|word| word.load(Relaxed)).max().unwrap_or(0);
        reserve.saturating_add(self.watermarks().high)
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
    }

    pub(crate) fn mark(&self, mark: Mark) -> u64 {
        self.marks[mark as usize].load(Relaxed).saturating_add(self.boost.load(Relaxed))
    }

    pub(crate) fn watermarks(&self) -> Watermarks {
        let [min, low, high] = [0, 1, 2].map(|at| self.marks[at].load(Relaxed));
        Watermarks { min, low, high }
    }

    pub(crate) fn set_watermarks(&self, marks: Watermarks) {
        for (word, value) in self.marks.iter().zip([marks.min, marks.low, marks.high]) {
            word.store(value, Relaxed);
        }
        S::Walk::set_batch(&self.walk, marks.high.saturating_sub(marks.low));
    }

    pub(crate) fn boost(&self) -> u64 {
        self.boost.load(Relaxed)
    }

    pub(crate) fn set_boost(&self, frames: u64) {
        self.boost.store(frames, Relaxed);
    }
}
