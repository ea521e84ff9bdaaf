//! One pageblock of the frame table, found once and used often.

use super::pageblock::PageblockWord;
use super::state::FrameState;
use crate::platform::{AtomicByte, AtomicWord, Platform};
use core::sync::atomic::Ordering::Relaxed;

/// The word of one pageblock, found once and read twice.
pub(crate) struct WordOf<'m, P: Platform>(pub(super) &'m P::Word);

impl<P: Platform> WordOf<'_, P> {
    /// What it is now.
    #[inline(always)]
    pub(crate) fn read(&self) -> PageblockWord {
        PageblockWord(self.0.load(Relaxed))
    }
}

/// The state bytes of one pageblock's frames, and its word.
pub(crate) struct PageblockView<'m, P: Platform> {
    /// What is outside is of another pageblock, or no frame.
    pub(super) states: &'m [P::Byte],
    /// The table's index of the first.
    pub(super) first: u32,
    pub(super) word: WordOf<'m, P>,
}

impl<P: Platform> PageblockView<'_, P> {
    /// The table's index of its first frame.
    #[inline(always)]
    pub(crate) const fn first(&self) -> u32 {
        self.first
    }

    /// Replaces `from` by `to` in one atomic step, in the state of its frame `at`. `false`, and no change,
    /// for anything else, also a frame that it does not have.
    #[inline(always)]
    pub(crate) fn exchange_state(&self, at: usize, from: FrameState, to: FrameState) -> bool {
        exchange_state::<P>(self.states, at, from, to)
    }

    /// Whether its word is still this one.
    #[inline(always)]
    pub(crate) fn is_still(&self, seen: PageblockWord) -> bool {
        self.word.read() == seen
    }
}

/// Replaces `from` by `to` in one atomic step, in the state `at`. `false`, and no change, for anything else,
/// also a place beyond the end.
#[inline(always)]
pub(super) fn exchange_state<P: Platform>(
    states: &[P::Byte],
    at: usize,
    from: FrameState,
    to: FrameState,
) -> bool {
    // Relaxed: what comes with the frames came with the caller's right to them.
    let exchange = |byte: &P::Byte| byte.compare_exchange(from.0, to.0, Relaxed, Relaxed);
    states.get(at).is_some_and(|byte| exchange(byte).is_ok())
}
