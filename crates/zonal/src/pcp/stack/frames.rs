//! A stack of frames: an array and a length.

use crate::zone::free_map::{Frame, WordIndex};

/// The most frames that a stack holds.
pub const MAX_HIGH: usize = 256;

/// Frames of one type, the oldest first.
#[derive(Clone, Debug)]
pub struct Stack {
    frames: [Frame; MAX_HIGH],
    len: u32,
}

impl Default for Stack {
    fn default() -> Self {
        Self::new()
    }
}

impl Stack {
    /// An empty one.
    #[must_use]
    pub const fn new() -> Self {
        Self { frames: [Frame(0); MAX_HIGH], len: 0 }
    }

    /// Frames on it.
    #[must_use]
    #[inline(always)]
    pub const fn len(&self) -> u32 {
        self.len
    }

    /// Whether it has none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Frames, the oldest first.
    #[must_use]
    pub fn frames(&self) -> &[Frame] {
        &self.frames[..self.len as usize]
    }

    #[inline(always)]
    pub(super) fn pop(&mut self) -> Option<Frame> {
        let last = self.len.checked_sub(1)?;
        let frame = *self.frames.get(last as usize)?;
        self.len = last;
        Some(frame)
    }

    /// Puts a frame on it; there must be room.
    #[inline(always)]
    pub(super) fn push(&mut self, frame: Frame) {
        self.frames[self.len as usize] = frame;
        self.len += 1;
    }

    /// Fills an empty one with up to `most` frames: what comes ascending leaves ascending.
    pub(super) fn fill(&mut self, most: u32) -> Filling<'_> {
        debug_assert_eq!(self.len, 0, "only an empty stack is filled");
        let most = most.min(MAX_HIGH as u32);
        Filling { stack: self, most, empty: most }
    }

    /// Calls `give` with the oldest `count` frames, neighbours that follow each other in one word at
    /// once, and forgets them.
    #[inline(always)]
    pub(super) fn shed(&mut self, count: u32, mut give: impl FnMut(WordIndex, u64)) {
        let count = count.min(self.len) as usize;
        let (mut word, mut mask) = (WordIndex(0), 0);
        for frame in &self.frames[..count] {
            let (at, bit) = frame.word();
            if at != word && mask != 0 {
                give(word, mask);
                mask = 0;
            }
            (word, mask) = (at, mask | bit);
        }
        if mask != 0 {
            give(word, mask);
        }
        self.frames.copy_within(count..self.len as usize, 0);
        self.len -= count as u32;
    }
}

/// A stack that is being filled, from its top place down: the oldest comes last.
pub(super) struct Filling<'a> {
    stack: &'a mut Stack,
    most: u32,
    /// Places below this one are empty.
    empty: u32,
}

impl Filling<'_> {
    /// Puts the frames `bits` of a word under those that came before; there must be room.
    #[inline]
    pub(super) fn put(&mut self, word: WordIndex, bits: u64) {
        let first = word.first_frame().0;
        let places = &mut self.stack.frames[..self.empty as usize];
        if bits == u64::MAX
            && let Some(places) = places.last_chunk_mut::<64>()
        {
            places.iter_mut().rev().zip(first..).for_each(|(place, at)| *place = Frame(at));
            self.empty -= u64::BITS;
            return;
        }
        let mut rest = bits;
        for place in places.iter_mut().rev().take(bits.count_ones() as usize) {
            *place = Frame(first + rest.trailing_zeros());
            rest &= rest.wrapping_sub(1);
        }
        debug_assert_eq!(rest, 0, "more frames came than there was room for");
        self.empty -= bits.count_ones();
    }

    /// All that came is there: fewer than might move down. How many.
    pub(super) fn finish(self) -> u32 {
        let Self { stack, most, empty } = self;
        if empty > 0 {
            stack.frames.copy_within(empty as usize..most as usize, 0);
        }
        stack.len = most - empty;
        stack.len
    }
}
