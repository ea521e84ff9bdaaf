//! Freeing: set the bits, then see what that made.

use super::FreeMap;
use super::bits::{low_bits, order_at, order_in_part, orders_of};
use super::shape::{Frame, Pageblock, WORD_ORDER, WordIndex};
use crate::platform::stay::Stay;
use crate::platform::{AtomicWord, Platform, StayOf};
use crate::types::migrate_type::MigrateType;
use crate::types::units::Order;
use core::fmt;
use core::sync::atomic::Ordering::SeqCst;

/// Frames that were to be freed are free: the second witness of a double free, after the state
/// byte. Nothing has changed, unless another CPU took a frame that was free for this moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AlreadyFree {
    /// The first frame of the word, or of the whole pageblock, that has them.
    pub first: Frame,
    /// Which of the frames from there on.
    pub bits: u64,
}

impl fmt::Display for AlreadyFree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "frames {:#x} from frame {} on are free in the map already",
            self.bits, self.first.0
        )
    }
}

impl core::error::Error for AlreadyFree {}

impl<P: Platform> FreeMap<'_, P> {
    /// Frees the frames `mask` of a word, which must be the caller's. One `fetch_or`, a look at one
    /// or two hints, and more only if the frames complete a run, a word or the pageblock.
    ///
    /// # Errors
    /// [`AlreadyFree`] if some of them are free.
    #[inline]
    pub fn free_frames(&self, word: WordIndex, mask: u64) -> Result<(), AlreadyFree> {
        self.free_filed::<true>(word, mask).map(|_| ())
    }

    /// As [`free_frames`](Self::free_frames), with the type that the pageblock had after that; `None`
    /// if more was to be done, or if the word has several pageblocks.
    #[inline(always)]
    pub(super) fn free_typed(
        &self,
        word: WordIndex,
        mask: u64,
    ) -> Result<Option<MigrateType>, AlreadyFree> {
        self.free_filed::<false>(word, mask)
    }

    /// The same; `RARE`: hints are raised out of line.
    #[inline(always)]
    fn free_filed<const RARE: bool>(
        &self,
        word: WordIndex,
        mask: u64,
    ) -> Result<Option<MigrateType>, AlreadyFree> {
        let before = self.frames_word(word).fetch_or(mask, SeqCst);
        self.freed_of::<RARE>(word, mask, before)
    }

    /// The rest of it, after the frames were set in a word that was `before`.
    #[inline(always)]
    fn freed_of<const RARE: bool>(
        &self,
        word: WordIndex,
        mask: u64,
        before: u64,
    ) -> Result<Option<MigrateType>, AlreadyFree> {
        if before & mask != 0 {
            return Err(self.unfree(word, mask & !before, before & mask));
        }
        Ok(self.freed::<RARE>(word, before | mask, mask))
    }

    /// The rest of [`free_frames`](Self::free_frames), after the frames were set in a word that was `before`.
    pub(super) fn free_after(
        &self,
        word: WordIndex,
        mask: u64,
        before: u64,
    ) -> Result<(), AlreadyFree> {
        self.freed_of::<true>(word, mask, before).map(|_| ())
    }

    /// As [`free_frames`](Self::free_frames); if some of them are free already, it frees the others.
    ///
    /// # Errors
    /// [`AlreadyFree`] names those that were not freed.
    pub fn free_others(&self, word: WordIndex, mask: u64) -> Result<(), AlreadyFree> {
        self.free_frames(word, mask).map_err(|error| self.free_rest(word, mask, error))
    }

    /// Frees those of `mask` that `error` does not name; which were not freed.
    #[cold]
    pub(super) fn free_rest(&self, word: WordIndex, mask: u64, error: AlreadyFree) -> AlreadyFree {
        let others = mask & !error.bits;
        // Unless another CPU frees some of these, too, at this moment.
        if others != 0 && self.free_frames(word, others).is_err() {
            return AlreadyFree { bits: mask, ..error };
        }
        error
    }

    /// Frees the block of `order` at `frame`, which must be aligned and the caller's. One `fetch_or`
    /// up to order 6 and for the pageblock order, one a word between, one a pageblock above.
    ///
    /// # Errors
    /// [`AlreadyFree`] if some of it is free.
    #[inline]
    pub fn free_block(&self, frame: Frame, order: Order) -> Result<(), AlreadyFree> {
        let shape = self.shape();
        if let Some(above) = order.get().checked_sub(shape.order().get()) {
            return self.free_run(frame.pageblock(shape), u32::from(above));
        }
        if u32::from(order.get()) <= WORD_ORDER {
            return self.free_inside(frame, order).map(|_| ());
        }
        let (word, _) = frame.word();
        self.free_words(frame.pageblock(shape), word, order.size() / 64)
    }

    /// The same of a block of a word at most, below the pageblock order, with the type that the pageblock had after
    /// that; `None` as for [`free_typed`](Self::free_typed).
    #[inline(always)]
    pub(super) fn free_inside(
        &self,
        frame: Frame,
        order: Order,
    ) -> Result<Option<MigrateType>, AlreadyFree> {
        let (word, bit) = frame.word();
        let mask = low_bits(order.size()) << bit.trailing_zeros();
        let before = self.frames_word(word).fetch_or(mask, SeqCst);
        if before & mask != 0 {
            return Err(self.unfree(word, mask & !before, before & mask));
        }
        // An aligned block is in one run, which its first frame leads to.
        Ok(self.freed::<false>(word, before | mask, bit))
    }

    /// Frees whole words of a line.
    fn free_words(
        &self,
        pageblock: Pageblock,
        first: WordIndex,
        count: u32,
    ) -> Result<(), AlreadyFree> {
        for at in first.0..first.0 + count {
            let before = self.frames_word(WordIndex(at)).fetch_or(u64::MAX, SeqCst);
            if before == 0 {
                continue;
            }
            let error = self.unfree(WordIndex(at), !before, before);
            for undo in first.0..at {
                self.unfree(WordIndex(undo), u64::MAX, 0);
            }
            return Err(error);
        }
        self.settle(pageblock);
        Ok(())
    }

    /// Takes back what a free that failed had set. What another CPU took meanwhile stays with it.
    #[cold]
    fn unfree(&self, word: WordIndex, set: u64, already: u64) -> AlreadyFree {
        if set != 0 {
            self.frames_word(word).fetch_and(!set, SeqCst);
        }
        AlreadyFree { first: word.first_frame(), bits: already }
    }

    /// Frames `mask` of a word were just set, which made it `now` (M-3). The type by which they were
    /// filed, if it was just that.
    #[inline(always)]
    fn freed<const RARE: bool>(&self, word: WordIndex, now: u64, mask: u64) -> Option<MigrateType> {
        let shape = self.shape();
        if shape.p() < WORD_ORDER {
            self.freed_in_parts(word, now, mask);
            return None;
        }
        let pageblock = word.first_frame().pageblock(shape);
        if now == u64::MAX {
            return self.filled(pageblock, word);
        }
        let orders = if mask & (mask - 1) == 0 {
            let bit = mask.trailing_zeros();
            1 << if StayOf::<P>::COPIES { order_in_part(now, bit) } else { order_at(now, bit) }
        } else {
            orders_of(now)
        };
        if RARE {
            self.file_rarely(pageblock, orders);
            return None;
        }
        Some(self.file(pageblock, orders))
    }

    /// The same where several pageblocks share a word.
    #[cold]
    fn freed_in_parts(&self, word: WordIndex, now: u64, mask: u64) {
        let (frames, mut rest) = (self.shape().pageblock_frames(), mask);
        while rest != 0 {
            let at = rest.trailing_zeros() / frames * frames;
            let own = low_bits(frames) << at;
            let pageblock = Frame(word.first_frame().0 + at).pageblock(self.shape());
            if now & own == own {
                if !self.complete(pageblock) {
                    self.settle(pageblock);
                }
            } else {
                self.file_rarely(pageblock, orders_of((now & own) >> at));
            }
            rest &= !own;
        }
    }

    /// A free filled its word. Of two that fill two words of a line at once, each looks at the
    /// other's after its own: one at least sees both, so that no full line, and no run of words,
    /// is left without its maker. The type by which a run was filed, if it was just that.
    #[cold]
    #[inline(never)]
    fn filled(&self, pageblock: Pageblock, word: WordIndex) -> Option<MigrateType> {
        let (words, _) = self.line(pageblock);
        let (first, count) = (words.start, words.len() as u32);
        // As by `read_line`, where each word is the pageblock's alone.
        let words = self.frames_words(words).iter().rev();
        let is_full = |word: &P::Word| word.load(SeqCst) == u64::MAX;
        let full = words.fold(0_u64, |full, word| full << 1 | u64::from(is_full(word)));
        if full == low_bits(count) {
            if !self.complete(pageblock) {
                self.settle(pageblock);
            }
        } else if full >> (word.0 - first) & 1 == 0 {
            // Another CPU has taken of it meanwhile, and filed what it left of what it saw.
            self.settle(pageblock);
        } else {
            let order = WORD_ORDER + order_at(full, word.0 - first);
            return Some(self.file_rarely(pageblock, 1 << order));
        }
        None
    }
}
