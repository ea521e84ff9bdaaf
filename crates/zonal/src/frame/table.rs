//! The frame table: one state byte a frame, one word a pageblock.
//!
//! The caller owns the memory; zeroed memory is a valid table in which no frame is managed. Nothing here reads or writes
//! the frames themselves.
//!
//! ```
//! use zonal::frame::{FrameKind, FrameState};
//! use zonal::Order;
//! let state = FrameState::allocated(Order::HUGE);
//! assert_eq!((state.kind(), state.order()), (FrameKind::Allocated, Order::HUGE));
//! ```

use super::pageblock::{BEFORE, COUNTED, COUNTED_BITS, NO_SOURCE, PageblockWord, SHOWN};
use super::release::{ByExchange, ByStore, Release};
use super::state::FrameState;
use super::view::{PageblockView, PageblocksView, WordOf, replace};
use crate::platform::{AtomicByte, AtomicWord, Platform};
use crate::types::migrate_type::MigrateType;
use crate::types::units::{Order, Pfn};
use core::sync::atomic::Ordering::{Relaxed, SeqCst};

/// The table over the caller's memory. Frames are named by their index from the table's base.
#[derive(Debug)]
pub struct FrameTable<'m, P: Platform> {
    states: &'m [P::Byte],
    pageblocks: &'m [P::Word],
    base: Pfn,
    pageblock_order: Order,
}

impl<'m, P: Platform> FrameTable<'m, P> {
    pub(crate) fn new(
        states: &'m [P::Byte],
        pageblocks: &'m [P::Word],
        base: Pfn,
        pageblock_order: Order,
    ) -> Self {
        Self { states, pageblocks, base, pageblock_order }
    }

    /// Index of `pfn`, if the table spans it.
    #[inline(always)]
    pub(crate) fn index(&self, pfn: Pfn) -> Option<u32> {
        let offset = pfn.get().wrapping_sub(self.base.get());
        (offset < self.states.len() as u64).then_some(offset as u32)
    }

    #[inline(always)]
    pub(crate) fn pfn(&self, index: u32) -> Pfn {
        Pfn::new(self.base.get() + u64::from(index))
    }

    pub(crate) fn frames(&self) -> u32 {
        self.states.len() as u32
    }

    pub(crate) fn pageblock_order(&self) -> Order {
        self.pageblock_order
    }

    #[inline(always)]
    pub(crate) fn state(&self, index: u32) -> FrameState {
        FrameState(self.states[index as usize].load(Relaxed))
    }

    /// As [`state`](Self::state), `None` outside the table.
    #[inline(always)]
    pub(crate) fn get_state(&self, index: u32) -> Option<FrameState> {
        self.states.get(index as usize).map(|byte| FrameState(byte.load(Relaxed)))
    }

    /// Has the state of a frame come; nothing outside the table.
    #[inline(always)]
    pub(crate) fn prefetch_state(&self, index: u32) {
        if let Some(byte) = self.states.get(index as usize) {
            P::prefetch(byte);
        }
    }

    #[inline(always)]
    pub(crate) fn set_state(&self, index: u32, state: FrameState) {
        self.states[index as usize].store(state.0, Relaxed);
    }

    /// Replaces `from` by `to`, if `from` is there. One look-up; no atomic read-modify-write:
    /// see [`FrameState`] for why none is needed. `false` (and no change) for anything else,
    /// an index outside the table included.
    #[inline(always)]
    pub(crate) fn replace_state(&self, index: u32, from: FrameState, to: FrameState) -> bool {
        self.replace_state_at(index as usize, from, to)
    }

    /// As [`replace_state`](Self::replace_state) for a frame's offset.
    #[inline(always)]
    pub(crate) fn replace_state_at(&self, offset: usize, from: FrameState, to: FrameState) -> bool {
        self.release_at::<ByStore>(offset, from, to)
    }

    /// As [`replace_state_at`](Self::replace_state_at) in one atomic step: of several CPUs that
    /// replace one state at the same instant one is told that it did.
    #[inline(always)]
    pub(crate) fn exchange_state_at(
        &self,
        offset: usize,
        from: FrameState,
        to: FrameState,
    ) -> bool {
        self.release_at::<ByExchange>(offset, from, to)
    }

    /// As [`replace_state_at`](Self::replace_state_at) in the way `R`.
    #[inline(always)]
    pub(crate) fn release_at<R: Release>(
        &self,
        offset: usize,
        from: FrameState,
        to: FrameState,
    ) -> bool {
        replace::<P, R>(self.states, offset, from, to)
    }

    /// Writes the state of the frames `bits` of the 64 from `first` on, which are the caller's.
    #[inline(always)]
    pub(crate) fn set_states(&self, first: u32, bits: u64, state: FrameState) {
        let states = self.states.get(first as usize..).unwrap_or_default();
        let Some(word) = states.first_chunk::<64>() else {
            return set_last_states::<P>(states, bits, state);
        };
        if bits == u64::MAX {
            return P::fill(word, state.0);
        }
        if bits.is_power_of_two() {
            return word[bits.trailing_zeros() as usize % 64].store(state.0, Relaxed);
        }
        let mut rest = bits;
        while rest != 0 {
            let at = rest.trailing_zeros();
            let run = (rest >> at).trailing_ones();
            if run < SHORT {
                word[at as usize % 64].store(state.0, Relaxed);
                rest &= rest - 1;
            } else {
                P::fill(&word[at as usize % 64..][..run as usize], state.0);
                rest = rest >> at >> run << run << at;
            }
        }
    }

    /// Writes the state of `len` frames from `first` on, which are the caller's.
    #[inline(always)]
    pub(crate) fn fill_states(&self, first: u32, len: usize, state: FrameState) {
        P::fill(&self.states[first as usize..][..len], state.0);
    }

    /// Replaces `from` by `to`, each in one atomic step, in the states of `len` frames from an offset on, up
    /// to one that is something else; returns how many.
    #[inline(always)]
    pub(crate) fn replace_run_at(
        &self,
        offset: usize,
        len: usize,
        from: FrameState,
        to: FrameState,
    ) -> usize {
        let states = self.states.get(offset..).and_then(|states| states.get(..len));
        P::replace_run(states.unwrap_or_default(), from.0, to.0)
    }

    #[inline(always)]
    pub(crate) fn pageblock(&self, index: u32) -> PageblockWord {
        PageblockWord(self.word(index).load(Relaxed) & SHOWN)
    }

    #[inline(always)]
    fn word(&self, index: u32) -> &P::Word {
        &self.pageblocks[(index >> self.pageblock_order.get()) as usize]
    }

    /// Whether the pageblock of `index` has compaction's hint: something in it would not move.
    pub(crate) fn has_hint(&self, index: u32) -> bool {
        self.word(index).load(Relaxed) & NO_SOURCE != 0
    }

    /// Writes the hint. Under the zone lock; `locked`: which guards the type in the same word, too.
    pub(crate) fn set_hint(&self, index: u32, locked: bool) {
        self.amend(index, locked, 0, NO_SOURCE);
    }

    /// Clears bits of a pageblock's word, then sets some.
    fn amend(&self, index: u32, locked: bool, clear: u64, set: u64) {
        let word = self.word(index);
        if locked {
            word.store(word.load(Relaxed) & !clear | set, Relaxed);
            return;
        }
        if clear != 0 {
            word.fetch_and(!clear, Relaxed);
        }
        if set != 0 {
            word.fetch_or(set, Relaxed);
        }
    }

    /// Takes the hint of the pageblock of `index` away. Under the zone lock.
    pub(crate) fn clear_hint(&self, index: u32, locked: bool) {
        self.amend(index, locked, NO_SOURCE, 0);
    }

    /// The migrate type that the isolated pageblock of `index` had before.
    pub(crate) fn type_before(&self, index: u32) -> Option<MigrateType> {
        let before = (self.word(index).load(Relaxed) >> BEFORE) as u8;
        MigrateType::from_number(before.checked_sub(1)?)
    }

    /// Notes the migrate type that the pageblock of `index` had before its isolation. Under the
    /// zone lock; [`set_pageblock`](Self::set_pageblock) and [`set_migrate`](Self::set_migrate)
    /// forget it.
    pub(crate) fn note_type_before(&self, index: u32, migrate: MigrateType, locked: bool) {
        let before = (migrate as u64 + 1) << BEFORE;
        self.amend(index, locked, 0xff << BEFORE, before);
    }

    /// Forgets it, where other CPUs may change the type.
    pub(crate) fn forget_type_before(&self, index: u32) {
        self.amend(index, false, 0xff << BEFORE, 0);
    }

    /// How many free frames of the pageblock of `index` are counted as special, and as which (0: as
    /// none). Under the zone lock.
    pub(crate) fn counted_special(&self, index: u32) -> (u8, u32) {
        let noted = self.word(index).load(Relaxed) >> COUNTED;
        ((noted >> COUNTED_BITS) as u8, (noted & ((1 << COUNTED_BITS) - 1)) as u32)
    }

    /// Notes that. Under the zone lock.
    pub(crate) fn note_special(&self, index: u32, (kind, frames): (u8, u32)) {
        let noted = u64::from(kind) << COUNTED_BITS | u64::from(frames);
        self.amend(index, false, u64::MAX << COUNTED, noted << COUNTED);
    }

    /// The migrate type of the pageblock of `index`, for a CPU that has changed what is free there
    /// (M-5 of a [map](crate::zone::free_map)): sequentially consistent, as its partner, the change of
    /// the type.
    #[inline]
    pub(crate) fn type_after(&self, index: u32) -> MigrateType {
        PageblockWord(self.word(index).load(SeqCst)).migrate()
    }

    /// The words of the pageblocks, for a map of free memory.
    #[inline(always)]
    pub(crate) fn pageblock_words(&self) -> &'m [P::Word] {
        self.pageblocks
    }

    /// As [`pageblock`](Self::pageblock), `None` outside the table.
    #[inline(always)]
    pub(crate) fn get_pageblock(&self, index: u32) -> Option<PageblockWord> {
        self.pageblock_at(index as usize)
    }

    /// Whether two offsets lie in one pageblock.
    #[inline(always)]
    pub(crate) fn same_pageblock(&self, one: usize, other: usize) -> bool {
        (one ^ other) >> self.pageblock_order.get() == 0
    }

    /// How far `pfn` is from the table's base: an index if it is small enough, which the next
    /// look-up finds out.
    #[inline(always)]
    pub(crate) fn offset(&self, pfn: Pfn) -> usize {
        pfn.get().wrapping_sub(self.base.get()) as usize
    }

    /// The pageblock's word for an offset; `None` outside the table.
    #[inline(always)]
    pub(crate) fn pageblock_at(&self, offset: usize) -> Option<PageblockWord> {
        self.word_at(offset).map(|word| word.read())
    }

    pub(crate) fn set_pageblock(&self, index: u32, word: PageblockWord) {
        self.pageblocks[(index >> self.pageblock_order.get()) as usize].store(word.0, Relaxed);
    }

    /// Changes the migrate type of the pageblock that holds `index`. Under the zone lock.
    pub(crate) fn set_migrate(&self, index: u32, migrate: MigrateType) {
        self.set_pageblock(index, self.pageblock(index).with_migrate(migrate));
    }

    /// The word of the pageblock of an offset; `None` outside the table.
    #[inline(always)]
    pub(crate) fn word_at(&self, offset: usize) -> Option<WordOf<'m, P>> {
        self.pageblocks.get(offset >> self.pageblock_order.get()).map(WordOf)
    }

    /// The pageblock that holds `index`; `None` outside the table.
    pub(crate) fn view(&self, index: u32) -> Option<PageblockView<'m, P>> {
        let first = self.pageblock_start(index);
        let rest = self.states.get(first as usize..)?;
        let len = rest.len().min(self.pageblock_order.frames() as usize);
        Some(PageblockView { states: &rest[..len], first })
    }

    /// The pageblocks of the frames from `first` on, which begins one, up to `count` of them.
    pub(crate) fn view_of(&self, first: u32, count: u32) -> PageblocksView<'m, P> {
        let PageblocksView { states, words, first, order } = self.view_from(first);
        let (frames, count) = ((count as usize) << order.get(), count as usize);
        PageblocksView {
            states: states.get(..frames).unwrap_or(states),
            words: words.get(..count).unwrap_or(words),
            first,
            order,
        }
    }

    /// The pageblocks of the frames from `first` on, which begins one.
    #[inline(always)]
    pub(crate) fn view_from(&self, first: u32) -> PageblocksView<'m, P> {
        let order = self.pageblock_order;
        let states = self.states.get(first as usize..).unwrap_or_default();
        let words = self.pageblocks.get((first >> order.get()) as usize..).unwrap_or_default();
        PageblocksView { states, words, first, order }
    }

    /// As [`view`](Self::view), with the states of all frames: for who uses it for this frame only.
    #[inline(always)]
    pub(crate) const fn view_all(&self) -> PageblockView<'m, P> {
        PageblockView { states: self.states, first: 0 }
    }

    /// First index of the pageblock that holds `index`.
    pub(crate) fn pageblock_start(&self, index: u32) -> u32 {
        index & !(self.pageblock_order.frames() as u32 - 1)
    }
}

/// A run of fewer states than this is not worth writing at once.
const SHORT: u32 = 8;

/// The same for the less than 64 frames at the end of a table.
#[cold]
fn set_last_states<P: Platform>(states: &[P::Byte], bits: u64, state: FrameState) {
    for (byte, _) in states.iter().zip(0..).filter(|(_, at)| bits >> at & 1 == 1) {
        byte.store(state.0, Relaxed);
    }
}
