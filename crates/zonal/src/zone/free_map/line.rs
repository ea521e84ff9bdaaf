//! A pageblock's line as a whole: which orders it has, taking all of it, filing its hints.

use super::FreeMap;
use super::bits::{aligned_runs, exact_runs, orders_of};
use super::hints::{Kind, is_hinted};
use super::shape::{Pageblock, WORD_ORDER, WordIndex};
use crate::platform::{AtomicWord, Platform};
use crate::types::migrate_type::MigrateType;
use core::sync::atomic::Ordering::SeqCst;

/// The most words that a line has: 1024 frames.
pub(super) const MAX_WORDS: usize = 16;

/// Orders of maximal runs in a line: bit k for order k. Bit p: the line is full.
pub(super) type Orders = u16;

impl<P: Platform> FreeMap<'_, P> {
    /// A line's bits, from bit 0 of the first word on. Of lines shorter than a word only their own.
    ///
    /// Sequentially consistent: these are the looks at the bits of M-4, M-5 and M-6, and of a free
    /// that filled its word at the other words of the line.
    #[inline]
    pub(super) fn read_line(&self, pageblock: Pageblock) -> ([u64; MAX_WORDS], usize) {
        let (words, bits) = self.line(pageblock);
        let mut line = [0; MAX_WORDS];
        for (read, word) in line.iter_mut().zip(words.clone()) {
            *read = self.frames_word(WordIndex(word)).load(SeqCst) & bits;
        }
        line[0] >>= bits.trailing_zeros();
        (line, words.len())
    }

    /// The orders of the maximal runs in a line.
    pub(super) fn orders_in(&self, pageblock: Pageblock) -> Orders {
        let (words, bits) = self.line(pageblock);
        if words.len() == 1 {
            let word = self.frames_word(WordIndex(words.start)).load(SeqCst);
            return orders_of((word & bits) >> bits.trailing_zeros());
        }
        let (mut orders, mut full) = (0, 0);
        // As by `read_line`, where each word is the pageblock's alone.
        for (word, at) in self.frames_words(words).iter().zip(0..) {
            match word.load(SeqCst) {
                u64::MAX => full |= 1 << at,
                word => orders |= orders_of(word),
            }
        }
        orders | orders_of(full) << WORD_ORDER
    }

    /// Raises the hints that a line with maximal runs of `orders`, at least one, must have (M-2); the type
    /// by which it did.
    #[inline(always)]
    pub(super) fn file(&self, pageblock: Pageblock, orders: Orders) -> MigrateType {
        let migrate = self.type_of(pageblock);
        if !is_hinted(migrate) {
            return migrate;
        }
        // That of "free" is there whatever the runs are, in the place of runs of order 0.
        let mut runs = (orders | 1) & ((1 << self.shape().p()) - 1);
        let (section, bit) = pageblock.place();
        let hints = self.hints_in(section, migrate);
        while runs != 0 {
            let order = runs.trailing_zeros();
            // The load comes after the bits that it speaks of (M-3): its partner is the `fetch_and` of
            // `clear`, which comes before its look at the bits.
            if let Some(word) = hints.get(order as usize)
                && word.load(SeqCst) & bit == 0
            {
                self.set_missing(word, Kind::of_order(migrate, order), pageblock);
            }
            runs &= runs - 1;
        }
        migrate
    }

    /// The same, out of line, where it is rare.
    #[cold]
    #[inline(never)]
    pub(super) fn file_rarely(&self, pageblock: Pageblock, orders: Orders) -> MigrateType {
        self.file(pageblock, orders)
    }

    /// Looks at a line and sees to it that it is as M-2 says: hints that it lacks are raised, and
    /// a full line becomes a whole pageblock. For who zeroed words for a moment (M-6), cleared a
    /// hint (M-4), or changed the type.
    #[inline(never)]
    pub(super) fn settle(&self, pageblock: Pageblock) {
        loop {
            let orders = self.orders_in(pageblock);
            if orders != 0 {
                self.file_rarely(pageblock, orders);
            }
            // Each turn after the first one is because another CPU took something.
            if orders >> self.shape().p() & 1 == 0 || self.complete(pageblock) {
                return;
            }
        }
    }

    /// Makes a full line a whole pageblock. `false` if it is not full any more; then words were
    /// zero for a moment, and the caller must [`settle`](Self::settle) (M-6).
    pub(super) fn complete(&self, pageblock: Pageblock) -> bool {
        let transit = self.in_transit(pageblock);
        let taken = self.take_all(pageblock);
        if taken {
            // Its frames are all ours: the hint is not needed, and refills would find those of many pageblocks
            // one by one.
            let migrate = self.type_of(pageblock);
            if is_hinted(migrate) {
                self.clear(Kind::Free(migrate), pageblock);
            }
            // The bit was clear (M-1): the pageblock's frames were handed out since it was set.
            self.set_whole(pageblock);
        }
        drop(transit);
        taken
    }

    /// Takes a full line, all or nothing.
    fn take_all(&self, pageblock: Pageblock) -> bool {
        let (words, bits) = self.line(pageblock);
        if words.len() == 1 {
            return self.take_bits(WordIndex(words.start), bits).is_some();
        }
        self.take_words(WordIndex(words.start), words.len() as u32)
    }

    /// Takes `bits` of a word if all of them are set, and returns what the word was. Lock-free: an
    /// exchange fails only if another CPU changed the word.
    #[inline(always)]
    pub(super) fn take_bits(&self, word: WordIndex, bits: u64) -> Option<u64> {
        let word = self.frames_word(word);
        let mut seen = word.load(SeqCst);
        while seen & bits == bits {
            match word.compare_exchange(seen, seen & !bits, SeqCst, SeqCst) {
                Ok(before) => return Some(before),
                Err(now) => seen = now,
            }
        }
        None
    }

    /// Takes `count` full words, all or none. If a later one is not full those before it were zero
    /// for a moment: the caller is in transit, and settles the line after that (M-6).
    pub(super) fn take_words(&self, first: WordIndex, count: u32) -> bool {
        for at in first.0..first.0 + count {
            let word = self.frames_word(WordIndex(at));
            if word.compare_exchange(u64::MAX, 0, SeqCst, SeqCst).is_err() {
                for undo in (first.0..at).rev() {
                    self.frames_word(WordIndex(undo)).fetch_or(u64::MAX, SeqCst);
                }
                return false;
            }
        }
        true
    }

    /// The best fit in a line: the first of its smallest maximal runs of orders `least` to `most`,
    /// as its order and its first frame in the line.
    #[inline]
    pub(super) fn best_run(line: &[u64], least: u32, most: u32) -> Option<(u32, u32)> {
        let single = line.len() == 1;
        let wanted = |orders: Orders| u32::from(orders) >> least << least;
        let mut best = (most + 1, 0, 0);
        for (at, &word) in (0..).zip(line) {
            // Full words are parts of runs of words; most others have no run that is large enough.
            if (word == u64::MAX && !single) || aligned_runs(word, least.min(WORD_ORDER)) == 0 {
                continue;
            }
            let order = wanted(orders_of(word)).trailing_zeros();
            if order < best.0 {
                best = (order, at, word);
                if order == least {
                    break;
                }
            }
        }
        let (order, at, word) = best;
        if order <= WORD_ORDER && order <= most {
            return Some((order, at * 64 + exact_runs(word, order).trailing_zeros()));
        }
        let full = if single { 0 } else { full_words(line) };
        let order = wanted(orders_of(full) << WORD_ORDER).trailing_zeros();
        (order <= most).then(|| (order, exact_runs(full, order - WORD_ORDER).trailing_zeros() * 64))
    }
}

/// Which words of a line are full: a bit a word.
pub(super) fn full_words(line: &[u64]) -> u64 {
    line.iter().enumerate().map(|(at, &word)| u64::from(word == u64::MAX) << at).sum()
}
