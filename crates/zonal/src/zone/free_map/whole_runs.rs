//! Orders above the pageblock: aligned runs of whole pageblocks, up to 128 of them.

use super::FreeMap;
use super::bits::{aligned_runs, low_bits};
use super::frees::AlreadyFree;
use super::hints::{Kind, Start};
use super::shape::{Pageblock, SECTION};
use super::whole::WholeClass;
use crate::platform::{AtomicWord, Platform};
use crate::types::units::Order;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};

/// The classes that a large block for a class is made of, once or twice; touched ones first.
const fn classes(class: WholeClass) -> [[WholeClass; 2]; 2] {
    match class {
        WholeClass::Ordinary | WholeClass::Untouched => [
            [WholeClass::Ordinary, WholeClass::Ordinary],
            [WholeClass::Ordinary, WholeClass::Untouched],
        ],
        _ => [[class; 2]; 2],
    }
}

/// Sections that the largest block spans at most: order 10 of pageblocks of order 3.
const PARTS: usize = 2;

impl<P: Platform> FreeMap<'_, P> {
    /// The bits of a section that are whole in a class.
    #[inline(always)]
    pub(super) fn whole_word(&self, class: WholeClass, section: u32) -> u64 {
        self.bitmap_word(Kind::Whole(class), 0, section).load(Relaxed)
    }

    /// Whether all of 2^`above` pageblocks from `first` on, an aligned run inside the map, are whole in one of `classes`
    /// each. A snapshot; O(words).
    pub(super) fn are_whole(&self, classes: &[WholeClass], first: Pageblock, above: u32) -> bool {
        let (section, _) = first.place();
        let parts = 1_u32 << above.saturating_sub(SECTION.trailing_zeros());
        let mask = low_bits(1 << above.min(SECTION.trailing_zeros())) << (first.0 % SECTION);
        (section..section + parts).all(|section| {
            let words = classes.iter().map(|&class| self.whole_word(class, section));
            words.fold(0, |all, word| all | word) & mask == mask
        })
    }

    /// As [`take_large_of`](Self::take_large_of) for ordinary pageblocks.
    #[must_use]
    pub fn take_large(&self, order: Order, start: Start) -> Option<Pageblock> {
        self.take_large_of(WholeClass::Ordinary, order, start)
    }

    /// Takes an aligned block of an order from the pageblock order up, of pageblocks of the class
    /// (ordinary ones may be untouched), the first from the start on; returns its first pageblock. What
    /// their types are is left to the caller. O(sections that have whole pageblocks) above the pageblock order,
    /// O(words that a search reads) for the pageblock order itself.
    #[must_use]
    pub fn take_large_of(
        &self,
        class: WholeClass,
        order: Order,
        start: Start,
    ) -> Option<Pageblock> {
        let above = u32::from(order.get()).checked_sub(self.shape().p())?;
        if above == 0 {
            let [_, either] = classes(class);
            return either.into_iter().find_map(|class| self.take_whole(class, start));
        }
        let span = (1 << above).max(SECTION) / SECTION;
        let first = start.pageblock.place().0 / span * span;
        let sections = self.shape().sections();
        // From the start's section on, and round.
        let from = |start, end| (start..end).step_by(span as usize);
        let at = from(first, sections).chain(from(0, first));
        classes(class).into_iter().find_map(|classes| {
            at.clone().find_map(|section| self.take_large_in(classes, section, above))
        })
    }

    /// The same in the sections of one largest block.
    fn take_large_in(
        &self,
        classes: [WholeClass; 2],
        section: u32,
        above: u32,
    ) -> Option<Pageblock> {
        let either = |section| {
            let words = classes.map(|class| self.whole_word(class, section));
            words[0] | words[1]
        };
        if above > SECTION.trailing_zeros() {
            let last = section + 1;
            let full = last < self.shape().sections() && either(section) & either(last) == u64::MAX;
            let first = Pageblock(section * SECTION);
            return (full && self.take_run(classes, first, above)).then_some(first);
        }
        let mut runs = aligned_runs(either(section), above);
        while runs != 0 {
            let first = Pageblock(section * SECTION + runs.trailing_zeros());
            if self.take_run(classes, first, above) {
                return Some(first);
            }
            runs &= runs - 1;
        }
        None
    }

    /// Takes 2^`above` pageblocks from `first` on, all or none.
    fn take_run(&self, classes: [WholeClass; 2], first: Pageblock, above: u32) -> bool {
        let (section, _) = first.place();
        let parts = 1_u32 << above.saturating_sub(SECTION.trailing_zeros());
        let mask = low_bits(1 << above.min(SECTION.trailing_zeros())) << (first.0 % SECTION);
        let _transit = [0, parts - 1].map(|part| self.in_transit(Pageblock((section + part) * 64)));
        let mut taken = [[0; 2]; PARTS];
        let mut all = true;
        for (part, taken) in taken.iter_mut().take(parts as usize).enumerate() {
            for (class, taken) in classes.into_iter().zip(taken.iter_mut()) {
                let wanted = self.whole_word(class, section + part as u32) & mask;
                if wanted != 0 {
                    let word = self.bitmap_word(Kind::Whole(class), 0, section + part as u32);
                    *taken = word.fetch_and(!wanted, SeqCst) & wanted;
                }
            }
            all &= taken[0] | taken[1] == mask;
        }
        // M-5, as `keep_whole`.
        let fits = |pageblock| WholeClass::of(self.type_of(pageblock)) == classes[0];
        if all && (first.0..first.0 + (1 << above)).all(|pageblock| fits(Pageblock(pageblock))) {
            return true;
        }
        for (part, taken) in taken.into_iter().enumerate() {
            for (class, taken) in classes.into_iter().zip(taken) {
                self.put_back(class, section + part as u32, taken);
            }
        }
        false
    }

    fn put_back(&self, class: WholeClass, section: u32, mut taken: u64) {
        while taken != 0 {
            let pageblock = Pageblock(section * SECTION + taken.trailing_zeros());
            let put = self.put_apart(class, pageblock);
            debug_assert!(put.is_ok(), "a pageblock was freed while it was taken");
            self.was_put_back(pageblock);
            taken &= taken - 1;
        }
    }

    /// Frees 2^`above` whole pageblocks.
    pub(super) fn free_run(&self, first: Pageblock, above: u32) -> Result<(), AlreadyFree> {
        for at in first.0..first.0 + (1 << above) {
            let put = self.put_whole(WholeClass::of(self.type_of(Pageblock(at))), Pageblock(at));
            if let Err(error) = put {
                for undo in first.0..at {
                    let _freed_by_us = self.take_whole_at(Pageblock(undo));
                }
                return Err(error);
            }
        }
        Ok(())
    }
}
