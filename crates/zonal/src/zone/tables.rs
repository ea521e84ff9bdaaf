//! The tables that a zone works over: the frame table, and the words that its way of keeping free
//! memory asked for.

use crate::frame::FrameTable;
use crate::platform::Platform;
use core::ops::Deref;

/// How many slices of words a way of keeping free memory may ask for.
pub const NR_FREE_WORDS: usize = 3;

/// Words of the caller's memory for what is free. What each slice is for, and how long it is, says
/// the preset's [`FreeMemory`](super::FreeMemory); no other part of the allocator looks at them.
pub struct FreeWords<'m, P: Platform>(pub [&'m [P::Word]; NR_FREE_WORDS]);

/// The frame table with the words for what is free beside it.
pub struct ZoneTables<'m, P: Platform> {
    frames: FrameTable<'m, P>,
    words: FreeWords<'m, P>,
}

impl<'m, P: Platform> ZoneTables<'m, P> {
    pub(crate) fn new(frames: FrameTable<'m, P>, words: FreeWords<'m, P>) -> Self {
        Self { frames, words }
    }

    /// The slice of words with this number.
    #[inline(always)]
    pub(crate) fn words(&self, part: usize) -> &'m [P::Word] {
        self.words.0[part]
    }
}

impl<'m, P: Platform> Deref for ZoneTables<'m, P> {
    type Target = FrameTable<'m, P>;

    #[inline(always)]
    fn deref(&self) -> &FrameTable<'m, P> {
        &self.frames
    }
}
