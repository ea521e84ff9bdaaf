//! The pageblock that a CPU takes small blocks of a type from until it is used up, and what the CPU
//! remembers of its words, so that most blocks need a look at one word of the line and not at all of them.

use super::FreeMap;
use super::bits::{exact_runs, low_bits, order_at, orders_of};
use super::hints::{Kind, Start};
use super::line::Orders;
use super::shape::{Frame, Pageblock, WORD_ORDER, WordIndex};
use crate::platform::{AtomicWord, Platform};
use crate::types::migrate_type::MigrateType;
use crate::types::units::Order;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};

/// The pageblock that a CPU takes small blocks of a type from until it is used up; its hints are
/// kept lowered, so that others look elsewhere. A free into it raises them again, which does no
/// harm. Nothing has left the map: to give it up is to [settle](FreeMap::release) its hints.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Current {
    pub(super) pageblock: Option<Pageblock>,
    /// A byte a word of the line: bit k if the word may have a maximal run of order k, below a word.
    /// Only remembered: what other CPUs take or free is not in it. 0 for other lines than those
    /// of [`is_remembered`](FreeMap::is_remembered).
    runs: u64,
}

/// The lowest bit of each byte.
const BYTES: u64 = 0x0101_0101_0101_0101;
/// The orders of a byte: those below a word.
const ORDERS: u64 = (1 << WORD_ORDER) - 1;

impl Current {
    /// None yet.
    pub const NONE: Self = Self { pageblock: None, runs: 0 };

    /// Which pageblock it is.
    #[must_use]
    pub const fn pageblock(self) -> Option<Pageblock> {
        self.pageblock
    }

    /// Whether a run that is remembered would do for a block of an order below a word.
    #[inline(always)]
    pub(crate) const fn may_have(&self, order: Order) -> bool {
        self.runs & (BYTES * (ORDERS >> order.get() << order.get())) != 0
    }

    /// Whether a run of just that order is remembered.
    #[inline(always)]
    pub(crate) const fn may_have_just(&self, order: Order) -> bool {
        self.runs >> order.get() & BYTES != 0
    }

    /// It is this one now.
    pub(super) const fn set(&mut self, pageblock: Pageblock) {
        *self = Self { pageblock: Some(pageblock), runs: 0 };
    }

    /// Word `at` of the line may have runs of `orders`, too.
    const fn add(&mut self, at: u32, orders: u64) {
        self.runs |= (orders & ORDERS) << (at * 8);
    }

    /// Word `at` of the line is `word`.
    fn write(&mut self, at: u32, word: u64) {
        self.runs &= !(0xff << (at * 8));
        self.add(at, u64::from(orders_of(word)));
    }
}

impl<P: Platform> FreeMap<'_, P> {
    /// Whether a CPU remembers what is in a line: one of 1 to 8 words.
    const fn is_remembered(&self) -> bool {
        self.shape().p() >= WORD_ORDER && self.shape().words_a_line() <= 8
    }

    /// Takes a block of `order`, below a word, from the current pageblock by what is remembered of it: of
    /// the smallest run that will do the first. One look and one exchange; one look more for each word that
    /// others have changed. `None`: nothing is remembered that would do; there may be some all the same.
    #[inline]
    pub fn take_beside(
        &self,
        held: &mut Current,
        migrate: MigrateType,
        order: Order,
    ) -> Option<Frame> {
        let (pageblock, least) = (held.pageblock?, u32::from(order.get()));
        let first = pageblock.first_frame(self.shape()).word().0.0;
        let mut step = least;
        while step < WORD_ORDER {
            let having = held.runs >> step & BYTES;
            if having == 0 {
                step += 1;
                continue;
            }
            let at = having.trailing_zeros() / 8;
            let word = WordIndex(first + at);
            // Relaxed: a first look. What it shows is exchanged, or looked at again.
            let seen = self.frames_word(word).load(Relaxed);
            let runs = exact_runs(seen, step);
            if runs == 0 {
                held.write(at, seen);
                continue;
            }
            let bit = runs.trailing_zeros();
            let mask = low_bits(order.size()) << bit;
            let exchanged =
                self.frames_word(word).compare_exchange(seen, seen & !mask, SeqCst, SeqCst);
            if exchanged.is_err() {
                continue;
            }
            if runs & (runs - 1) == 0 {
                held.runs &= !(1 << (at * 8 + step));
            }
            held.add(at, (1 << step) - (1 << least));
            return self.keep_typed(pageblock, migrate, Frame(word.first_frame().0 + bit), order);
        }
        None
    }

    /// A frame of the pageblock was taken: it is the caller's if the pageblock is of the type.
    #[inline]
    pub(super) fn keep_typed(
        &self,
        pageblock: Pageblock,
        migrate: MigrateType,
        frame: Frame,
        order: Order,
    ) -> Option<Frame> {
        if self.type_of(pageblock) == migrate {
            return Some(frame);
        }
        self.put_back_typed(pageblock, frame, order);
        None
    }

    /// M-5: the type changed before the look at it, and who changed it may have missed the bits.
    #[cold]
    #[inline(never)]
    pub(super) fn put_back_typed(&self, pageblock: Pageblock, frame: Frame, order: Order) {
        let transit = self.in_transit(pageblock);
        let put_back = self.free_block(frame, order);
        debug_assert!(put_back.is_ok(), "frames were freed by another CPU while this one had them");
        drop(transit);
        self.was_put_back(pageblock);
    }

    /// Looks at the current pageblock's whole line and remembers it; the orders of its maximal runs. `None` of lines
    /// that are not remembered.
    pub(super) fn remember(&self, held: &mut Current) -> Option<Orders> {
        let pageblock = held.pageblock.filter(|_| self.is_remembered())?;
        let (mut all, mut full) = (0, 0);
        held.runs = 0;
        // As by `orders_in`.
        for (word, at) in self.frames_words(self.line(pageblock).0).iter().zip(0..) {
            match word.load(SeqCst) {
                u64::MAX => full |= 1 << at,
                word => {
                    let orders = orders_of(word);
                    held.add(at, u64::from(orders));
                    all |= orders;
                }
            }
        }
        Some(all | orders_of(full) << WORD_ORDER)
    }

    /// A block was taken at the start of a full word, which nothing is remembered of.
    pub(super) fn remember_opened(&self, held: &mut Current, frame: Frame, order: Order) {
        if let Some(at) = self.word_in(*held, frame) {
            held.add(at, u64::MAX << order.get().min(7));
        }
    }

    /// A block that was just freed may be of the current pageblock: remembers the run that it is in.
    #[inline]
    pub fn put_beside(&self, held: &mut Current, frame: Frame) {
        let Some(at) = self.word_in(*held, frame) else { return };
        let (word, bit) = frame.word();
        // Relaxed: what is remembered may be wrong.
        let now = self.frames_word(word).load(Relaxed);
        if now & bit != 0 {
            held.add(at, 1 << order_at(now, bit.trailing_zeros()));
        }
    }

    /// Which word of the current pageblock a frame is in.
    #[inline]
    fn word_in(&self, held: Current, frame: Frame) -> Option<u32> {
        let pageblock = held.pageblock.filter(|_| self.is_remembered())?;
        let own = frame.pageblock(self.shape()) == pageblock;
        own.then(|| frame.word().0.0 - pageblock.first_frame(self.shape()).word().0.0)
    }

    /// Whether a search for a block of `order` from `start` on would come to the one at `frame`, were it free, and to no
    /// other before it.
    pub(crate) fn is_best(
        &self,
        migrate: MigrateType,
        order: Order,
        start: Start,
        frame: Frame,
    ) -> bool {
        let pageblock = frame.pageblock(self.shape());
        self.is_single(migrate, order, frame)
            && (self
                .find_before(Kind::of_order(migrate, order.get().into()), start, pageblock)
                .is_none()
                || self.is_first(migrate, order, start, pageblock))
    }

    /// The first pageblock with a hint, if it comes before this one.
    #[inline(always)]
    fn find_before(&self, kind: Kind, start: Start, pageblock: Pageblock) -> Option<Pageblock> {
        let distance = |pageblock| start.distance(pageblock, self.shape());
        self.find(kind, start).filter(|&found| distance(found) < distance(pageblock))
    }

    /// Whether none of those before a pageblock has a run of the order. Hints that are stale are lowered.
    #[cold]
    #[inline(never)]
    fn is_first(
        &self,
        migrate: MigrateType,
        order: Order,
        start: Start,
        pageblock: Pageblock,
    ) -> bool {
        let kind = Kind::of_order(migrate, order.get().into());
        while let Some(found) = self.find_before(kind, start, pageblock) {
            let orders = self.orders_in(found);
            if orders >> order.get() & 1 != 0 {
                return false;
            }
            self.lower_stale(kind, found, (migrate, orders));
        }
        true
    }

    /// Whether nothing is free of the pageblock of a frame, as its hint says, and it is of this type.
    #[inline(always)]
    pub(crate) fn is_packed(&self, migrate: MigrateType, frame: Frame) -> bool {
        let pageblock = frame.pageblock(self.shape());
        let (section, bit) = pageblock.place();
        // Relaxed: it may change at any time.
        let free = self.bitmap_word(Kind::Free(migrate), 0, section).load(Relaxed) & bit != 0;
        !free && self.type_of(pageblock) == migrate
    }

    /// Whether a block below the pageblock order, of a pageblock of the type, would not be part of a larger one if it were free.
    pub(crate) fn is_single(&self, migrate: MigrateType, order: Order, frame: Frame) -> bool {
        let (buddy, size) = (Frame(frame.0 ^ order.size()), order.size());
        let (word, bit) = buddy.word();
        let mask = low_bits(size) << bit.trailing_zeros();
        let words = self.frames_words(word.0..word.0 + size.div_ceil(64));
        // Relaxed: it may change at any time.
        let free = words.iter().all(|word| word.load(Relaxed) & mask == mask);
        !free && self.type_of(frame.pageblock(self.shape())) == migrate
    }
}
