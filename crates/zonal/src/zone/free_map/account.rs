//! How much is free: for watermarks, in words that CPUs add to without the lock.
//!
//! A zone's count of free frames follows each change of the bits, by the CPU that changes them, so it is
//! exact once no call is under way. Of special pageblocks (high-atomic, CMA, isolated) the zone counts
//! apart what is free there. What it has counted stands in the pageblock's word; who changes bits of
//! such a pageblock, or its type, *reconciles* the two afterwards, under the zone lock: the one who
//! comes last sees all the bits. A type is read after the bits have changed, and changed before the
//! bits are read (M-5), so one of the two reconciles. Who finds another type than it wanted puts the frames
//! back and leaves a note instead, as does a count that met frames in a CPU's hand: the next drain, look at all
//! lines or report counts again (M-7).

use super::bits::low_bits;
use super::mapped::{MapGuard, MapView};
use super::shape::{Frame, Pageblock, WORD_ORDER, WordIndex};
use super::{AlreadyFree, FreeMap, WholeClass};
use crate::frame::FrameState;
use crate::platform::stay::Stay;
use crate::platform::{AtomicWord, Platform, StayOf};
use crate::types::migrate_type::MigrateType;
use crate::types::units::Order;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};

/// How often a pageblock is counted again because some CPU had frames of it in its hand.
const TRIES: u32 = 64;

/// What is counted apart, as the pageblock's word says it; 0: nothing.
const fn special(migrate: MigrateType) -> u8 {
    match WholeClass::of(migrate) {
        WholeClass::Ordinary | WholeClass::Untouched => 0,
        WholeClass::HighAtomic => 1,
        WholeClass::Cma => 2,
        WholeClass::Isolated => 3,
    }
}

impl<P: Platform> MapView<'_, P> {
    /// Counts frames that were freed into the map, or taken (negative), in the pageblocks of
    /// `order` from `frame` on, and reconciles those that are special.
    pub(super) fn count(&self, frame: Frame, order: Order, change: i64) {
        self.zone.count_free(change);
        self.reconcile_special(frame, order);
    }

    /// The part of [`count`](Self::count) that is rarely anything.
    #[inline]
    pub(crate) fn reconcile_special(&self, frame: Frame, order: Order) {
        let (first, shape) = self.extent();
        let size = shape.pageblock_frames();
        let pageblocks = order.size().max(size) / size;
        for pageblock in (0..pageblocks).map(|at| frame.pageblock(shape).0 + at) {
            let index = first + Pageblock(pageblock).first_frame(shape).0;
            if special(self.table.type_after(index)) != 0 {
                self.reconcile(Pageblock(pageblock));
            }
        }
    }

    /// Frees frames of one word that are cached, and are the caller's; returns which of them: not those
    /// that are free in the map already. Counting them is the caller's, but for special
    /// pageblocks.
    #[inline(always)]
    pub(crate) fn put_cached(&self, map: &FreeMap<'_, P>, word: WordIndex, mask: u64) -> u64 {
        // Before the bits: who takes them writes the states anew.
        self.table.set_states(self.index(word.first_frame()), mask, FrameState::INNER);
        match map.free_typed(word, mask) {
            // What is special is looked at again: see `reconcile_special`.
            Ok(Some(migrate)) if special(migrate) == 0 => mask,
            Ok(_) => self.reconciled(word, mask),
            Err(error) => self.put_others(map, word, mask, error),
        }
    }

    /// The rest of [`put_cached`](Self::put_cached), out of line: after the frames were set in a word that was
    /// `before`.
    #[cold]
    #[inline(never)]
    pub(super) fn put_further(&self, word: WordIndex, mask: u64, before: u64) -> u64 {
        let map = self.map();
        match map.free_after(word, mask, before) {
            Ok(()) => self.reconciled(word, mask),
            Err(error) => self.put_others(&map, word, mask, error),
        }
    }

    /// Some of what was to be freed is free, which nothing does but damage: the rest is freed.
    #[cold]
    fn put_others(
        &self,
        map: &FreeMap<'_, P>,
        word: WordIndex,
        mask: u64,
        error: AlreadyFree,
    ) -> u64 {
        let own = mask & !map.free_rest(word, mask, error).bits;
        self.refused(u64::from((mask & !own).count_ones()));
        self.reconciled(word, own)
    }

    /// Reconciles the pageblocks of a word's frames, which were just freed.
    #[cold]
    fn reconciled(&self, word: WordIndex, own: u64) -> u64 {
        let (first, size) = (word.first_frame().0, self.extent().1.pageblock_frames().min(64));
        let parts = (0..u64::BITS).step_by(size as usize);
        for at in parts.filter(|at| own >> at & low_bits(size) != 0) {
            self.reconcile_special(Frame(first + at), Order::ZERO);
        }
        own
    }

    /// Counts frames that were not freed, because they were free.
    pub(crate) fn refused(&self, frames: u64) {
        if frames > 0 {
            self.zone.part.events.refused.fetch_add(frames, Relaxed);
        }
    }

    /// Makes what is counted apart of a pageblock what is free there.
    #[cold]
    pub(super) fn reconcile(&self, pageblock: Pageblock) {
        self.lock(|guard| self.recount(guard, pageblock));
    }

    /// The same with the zone lock held.
    fn recount(&self, _held: &mut MapGuard<'_, P>, pageblock: Pageblock) {
        let (map, section) = (self.map_apart(), pageblock.place().0);
        let index = self.index(pageblock.first_frame(map.shape()));
        let (kind, counted) = self.table.counted_special(index);
        let (mut now, mut settled) = ((0, 0), false);
        for _ in 0..TRIES {
            let before = map.quiet(section);
            let kind = special(map.type_of(pageblock));
            now = (kind, if kind == 0 { 0 } else { map.free_in(pageblock) });
            settled = before.is_some() && map.quiet(section) == before;
            if settled {
                break;
            }
            P::relax();
        }
        if !settled {
            // A CPU was stopped with frames in its hand (M-7).
            map.note_word().store(1, SeqCst);
        }
        self.count_apart(kind, -i64::from(counted));
        self.count_apart(now.0, i64::from(now.1));
        self.table.note_special(index, now);
    }

    /// Counts anew what is counted apart, if a count may have been made while a CPU had frames in its
    /// hand that it put back (M-7). O(1) as a rule, else O(pageblocks).
    #[inline]
    pub(crate) fn recount_missed(&self) {
        // Relaxed: who does not see it yet is followed by others.
        if self.map().note_word().load(Relaxed) != 0 {
            self.recount_special();
        }
    }

    #[cold]
    #[inline(never)]
    fn recount_special(&self) {
        let map = self.map_apart();
        self.lock(|guard| {
            // Before the looks at the bits: who puts some back later says so again.
            map.note_word().store(0, SeqCst);
            for pageblock in map.own_pageblocks() {
                let index = self.index(pageblock.first_frame(map.shape()));
                let noted = self.table.counted_special(index).0;
                if noted != 0 || special(map.type_of(pageblock)) != 0 {
                    self.recount(guard, pageblock);
                }
            }
        });
    }

    fn count_apart(&self, kind: u8, change: i64) {
        match kind {
            1 => self.zone.count_special(0, change),
            2 => self.zone.count_special(1, change),
            // Requests see nothing of them at all.
            3 => self.zone.count_free(-change),
            _ => {}
        }
    }

    /// Changes the type of a pageblock, with the zone lock held.
    pub(super) fn set_type(
        &self,
        held: &mut MapGuard<'_, P>,
        pageblock: Pageblock,
        to: MigrateType,
    ) {
        self.map_apart().set_type(pageblock, to);
        self.recount(held, pageblock);
    }

    /// The same if it is of the type `from`. `false`, and no change, if it is not.
    pub(super) fn change_type(
        &self,
        held: &mut MapGuard<'_, P>,
        pageblock: Pageblock,
        from: MigrateType,
        to: MigrateType,
    ) -> bool {
        let changed = self.map_apart().change_type(pageblock, from, to);
        if changed {
            self.recount(held, pageblock);
        }
        changed
    }

    /// Frees the block of `order` at `frame`, whose frames are the caller's. `false`, and nothing is
    /// freed, if some of it is free, which nothing but damage makes it. Counting it is
    /// the caller's, but for special pageblocks.
    pub(crate) fn put_block(&self, frame: Frame, order: Order) -> bool {
        let freed = self.map().free_block(frame, order).is_ok();
        if freed {
            self.reconcile_special(frame, order);
        } else {
            self.refused(order.frames());
        }
        freed
    }

    /// As [`put_block`](Self::put_block), in its place where code is.
    #[inline(always)]
    pub(crate) fn put_block_here(&self, frame: Frame, order: Order) -> bool {
        let inside = u32::from(order.get()) <= WORD_ORDER && order < self.extent().1.order();
        if !StayOf::<P>::COPIES || !inside {
            return self.put_block(frame, order);
        }
        match self.map().free_inside(frame, order) {
            // What is special is looked at again: see `reconcile_special`.
            Ok(Some(migrate)) if special(migrate) == 0 => true,
            Ok(_) => {
                self.reconcile_special(frame, order);
                true
            }
            Err(_) => {
                self.refused(order.frames());
                false
            }
        }
    }

    /// As [`put_block`](Self::put_block), and counts it.
    pub(super) fn free_counted(&self, frame: Frame, order: Order) -> bool {
        let freed = self.put_block(frame, order);
        if freed {
            self.zone.count_free(order.frames() as i64);
        }
        freed
    }

    /// Marks a block that was taken allocated, and counts it; its index.
    pub(super) fn hand_out(&self, frame: Frame, order: Order) -> u32 {
        let index = self.index(frame);
        self.table.set_state(index, FrameState::allocated(order));
        self.count(frame, order, -(order.frames() as i64));
        self.zone.part.events.direct_alloc.fetch_add(order.frames(), Relaxed);
        index
    }
}
