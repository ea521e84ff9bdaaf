//! A stack of frames: an array and a length.

use crate::zone::free_map::Frame;

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

    /// Puts the frames `bits` of a word that starts at `first` on it, ascending.
    pub(super) fn push_bits(&mut self, first: Frame, mut bits: u64) {
        while bits != 0 {
            self.push(Frame(first.0 + bits.trailing_zeros()));
            bits &= bits - 1;
        }
    }

    /// Turns it round: what came ascending leaves ascending.
    pub(super) fn turn(&mut self) {
        self.frames[..self.len as usize].reverse();
    }

    /// Calls `visit` with the oldest `count` frames, and forgets them.
    pub(super) fn shed(&mut self, count: u32, mut visit: impl FnMut(Frame)) {
        let count = count.min(self.len);
        self.frames[..count as usize].iter().for_each(|&frame| visit(frame));
        self.frames.copy_within(count as usize..self.len as usize, 0);
        self.len -= count;
    }
}
