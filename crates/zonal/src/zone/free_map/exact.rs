//! Taking these frames and no others: for those who move memory, or take it away.

use super::FreeMap;
use super::bits::low_bits;
use super::shape::{Frame, Pageblock, WordIndex};
use crate::platform::{AtomicWord, Platform};
use crate::types::migrate_type::MigrateType;
use crate::types::units::Order;
use core::sync::atomic::Ordering::SeqCst;

impl<P: Platform> FreeMap<'_, P> {
    /// Takes the block of `order` at `frame`, all or nothing, whatever the type; the rest of the
    /// larger block that it was in stays free. O(words of a line), or O(pageblocks of the block).
    #[must_use]
    pub fn take_exact(&self, frame: Frame, order: Order) -> bool {
        let shape = self.shape();
        let first = frame.pageblock(shape);
        if order >= shape.order() {
            return self.take_pageblocks(first, order.size() / shape.pageblock_frames());
        }
        if self.is_whole(first) {
            let _transit = self.in_transit(first);
            if self.take_whole_at(first).is_some() {
                self.put_around(first, frame, order.size());
                self.settle(first);
                return true;
            }
        }
        self.take_at(first, frame, order, false)
    }

    /// As [`take_exact`](Self::take_exact) of what requests may have; what was isolated or reserved since the
    /// look that led here goes back (M-5).
    pub(super) fn take_exact_open(&self, frame: Frame, order: Order) -> bool {
        let ends = [frame, Frame(frame.0 + order.size() - 1)];
        let [first, last] = ends.map(|end| end.pageblock(self.shape()));
        // Those of a block lie in two sections at most.
        let _transit = [first, last].map(|pageblock| self.in_transit(pageblock));
        if !self.take_exact(frame, order) {
            return false;
        }
        let own = || (first.0..=last.0).map(Pageblock);
        let open = own().all(|at| {
            let migrate = self.type_of(at);
            migrate.is_requestable() || migrate == MigrateType::Cma
        });
        if !open {
            self.put_back_typed(first, frame, order);
            own().for_each(|at| self.was_put_back(at));
        }
        open
    }

    /// Takes `count` whole pageblocks from `first` on, all or none.
    fn take_pageblocks(&self, first: Pageblock, count: u32) -> bool {
        let last = Pageblock(first.0 + count - 1);
        let _transit = [first, last].map(|pageblock| self.in_transit(pageblock));
        for at in first.0..first.0 + count {
            if self.take_whole_at(Pageblock(at)).is_none() {
                (first.0..at).for_each(|undo| {
                    self.set_whole(Pageblock(undo));
                    self.was_put_back(Pageblock(undo));
                });
                return false;
            }
        }
        true
    }

    /// Takes what is free of the neighbours `mask` of a word, which lie in one pageblock, which is isolated:
    /// those who look for memory do not look there. Returns which those were.
    #[must_use]
    pub fn take_isolated(&self, word: WordIndex, mask: u64) -> u64 {
        let first = Frame(word.first_frame().0 + mask.trailing_zeros());
        let pageblock = first.pageblock(self.shape());
        let _transit = self.in_transit(pageblock);
        if self.take_whole_at(pageblock).is_some() {
            self.put_around(pageblock, first, mask.count_ones());
            self.settle(pageblock);
            return mask;
        }
        self.frames_word(word).fetch_and(!mask, SeqCst) & mask
    }

    /// Puts all frames of a pageblock that the caller owns into its line but `count` from `from` on;
    /// its hints are left to the caller. Before it is in line no frame of it is with another CPU, so it
    /// cannot be full, and no run in it has grown.
    pub(super) fn put_around(&self, pageblock: Pageblock, from: Frame, count: u32) {
        let (words, bits) = self.line(pageblock);
        for word in words {
            let first = WordIndex(word).first_frame().0;
            let (start, end) = (from.0.max(first), (from.0 + count).min(first + u64::BITS));
            let taken = if start < end { low_bits(end - start) << (start - first) } else { 0 };
            let own = bits & !taken;
            if own != 0 {
                self.frames_word(WordIndex(word)).fetch_or(own, SeqCst);
            }
        }
    }
}
