//! One pageblock of the frame table, found once and used often.

use super::pageblock::{Owner, PageblockWord};
use super::release::{ByExchange, Release};
use super::state::FrameState;
use crate::platform::{AtomicByte, AtomicWord, Platform};
use crate::types::migrate_type::NR_CACHED_TYPES;
use crate::types::units::Order;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};

/// The word of one pageblock, found once and read twice.
pub(crate) struct WordOf<'m, P: Platform>(pub(super) &'m P::Word);

impl<P: Platform> WordOf<'_, P> {
    /// What it is now.
    #[inline(always)]
    pub(crate) fn read(&self) -> PageblockWord {
        PageblockWord(self.0.load(Relaxed))
    }
}

/// The state bytes of one pageblock's frames.
pub(crate) struct PageblockView<'m, P: Platform> {
    /// What is outside is of another pageblock, or no frame.
    pub(super) states: &'m [P::Byte],
    /// The table's index of the first.
    pub(super) first: u32,
}

impl<P: Platform> PageblockView<'_, P> {
    /// Of none.
    pub(crate) const EMPTY: Self = Self { states: &[], first: 0 };

    /// The table's index of its first frame.
    #[inline(always)]
    pub(crate) const fn first(&self) -> u32 {
        self.first
    }

    /// Replaces `from` by `to` in the state of its frame `at`, in the way `R`. `false`, and no change,
    /// for anything else, also a frame that it does not have.
    #[inline(always)]
    pub(crate) fn release<R: Release>(&self, at: usize, from: FrameState, to: FrameState) -> bool {
        replace::<P, R>(self.states, at, from, to)
    }
}

/// Pageblocks that follow each other, by their number from the first on: their words, and the states of their first frames.
pub(crate) struct PageblocksView<'m, P: Platform> {
    /// What is outside is of other pageblocks, or no frame.
    pub(super) states: &'m [P::Byte],
    pub(super) words: &'m [P::Word],
    /// The table's index of the first frame.
    pub(super) first: u32,
    /// Of each pageblock.
    pub(super) order: Order,
}

impl<P: Platform> PageblocksView<'_, P> {
    /// The table's index of the first frame.
    #[inline(always)]
    pub(crate) const fn first(&self) -> u32 {
        self.first
    }

    /// The order of each.
    #[inline(always)]
    pub(crate) const fn order(&self) -> Order {
        self.order
    }

    /// Whether it has a pageblock of this number.
    #[inline(always)]
    pub(crate) const fn has(&self, pageblock: usize) -> bool {
        pageblock < self.words.len()
    }

    /// Zone and type of a pageblock as they are in its word; `None` if these are not its pageblocks. For a CPU that has
    /// changed what is free there: see [`type_after`](super::FrameTable::type_after).
    #[inline(always)]
    pub(crate) fn owner_after(&self, pageblock: usize) -> Option<Owner> {
        self.words.get(pageblock).map(|word| Owner::of(word.load(SeqCst)))
    }

    /// The index of a pageblock's type if requests have that type; as [`owner_after`](Self::owner_after).
    #[inline(always)]
    pub(crate) fn requestable_after(&self, pageblock: usize) -> Option<usize> {
        let number = PageblockWord(self.words.get(pageblock)?.load(SeqCst)).type_number();
        (number < NR_CACHED_TYPES as u8).then_some(usize::from(number))
    }

    /// As [`PageblockView::exchange_state`], for a frame by its number from the first on.
    #[inline(always)]
    pub(crate) fn exchange_state(&self, at: usize, from: FrameState, to: FrameState) -> bool {
        replace::<P, ByExchange>(self.states, at, from, to)
    }

    /// Writes the state of a frame that is the caller's; `false` if it is not of these pageblocks.
    #[inline(always)]
    pub(crate) fn set_state(&self, at: usize, state: FrameState) -> bool {
        self.states.get(at).map(|byte| byte.store(state.0, Relaxed)).is_some()
    }
}

/// Replaces `from` by `to` in the state `at`, in the way `R`. `false`, and no change, for anything else, also a place
/// beyond the end.
#[inline(always)]
pub(super) fn replace<P: Platform, R: Release>(
    states: &[P::Byte],
    at: usize,
    from: FrameState,
    to: FrameState,
) -> bool {
    states.get(at).is_some_and(|byte| R::replace(byte, from.0, to.0))
}
