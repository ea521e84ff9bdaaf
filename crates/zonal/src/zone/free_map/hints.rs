//! Bitmaps over the pageblocks, in up to three levels: raising, lowering, finding.
//!
//! A bit at level 0 is a pageblock; a bit at a higher level is a word of the level below that is
//! not zero, and so a hint about it, raised and lowered by the same rules (M-3, M-4). There is a
//! level more where the one below has more than two words: a search reads at most five words, and
//! two more for each 2^24 frames beyond 2^25 with pageblocks of order 9 (one word of the third
//! level is 512 GiB); and one for each stale bit that it lowers, which the change that made the bit
//! stale has paid for.

use super::FreeMap;
use super::shape::{HINTED_TYPES, MapShape, Pageblock, SECTION};
use super::whole::{NR_CLASSES, WholeClass};
use crate::platform::stay::{Stay, cost};
use crate::platform::{AtomicWord, Platform, StayOf};
use crate::types::migrate_type::MigrateType;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};

/// What a bitmap says of a pageblock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// Hint: it is of the type, and its line has free frames.
    Free(MigrateType),
    /// Hint: it is of the type, and its line has a maximal run of the order (1 to p − 1).
    Run(MigrateType, u32),
    /// It is whole, and its frames belong to the CPU that clears the bit.
    Whole(WholeClass),
}

impl Kind {
    /// The hint of runs of an order; of order 0 that there are free frames.
    pub(super) const fn of_order(migrate: MigrateType, order: u32) -> Self {
        if order == 0 { Self::Free(migrate) } else { Self::Run(migrate, order) }
    }

    #[inline(always)]
    pub(super) const fn number(self, shape: MapShape) -> usize {
        let orders = shape.p() as usize;
        match self {
            Self::Whole(class) => class as usize,
            Self::Free(migrate) => NR_CLASSES + migrate.index() * orders,
            Self::Run(migrate, order) => NR_CLASSES + migrate.index() * orders + order as usize,
        }
    }
}

/// Where a CPU begins to look.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Start {
    /// The first pageblock of its region: from there up, then from the map's first.
    pub pageblock: Pageblock,
    /// A number of its own (its CPU number will do): which bit of a word it tries after it lost
    /// one to another CPU.
    pub spread: u16,
    /// How many sections of 64 pageblocks are a part of its own from there on, whose lines it looks through before it opens a
    /// whole pageblock; 0: there is none, and all lines come before.
    pub part: u16,
}

impl Start {
    /// From `pageblock` on, without a part of its own.
    #[must_use]
    pub const fn new(pageblock: Pageblock, spread: u16) -> Self {
        Self { pageblock, spread, part: 0 }
    }

    /// The same with a part of this number of sections.
    #[must_use]
    pub const fn with_part(self, part: u16) -> Self {
        Self { part, ..self }
    }

    /// Whether it has a part of its own.
    #[inline(always)]
    pub(super) const fn has_part(self) -> bool {
        self.part != 0
    }

    /// Whether it takes from a line of this pageblock before it opens a whole one.
    #[inline(always)]
    pub(super) const fn is_own(self, pageblock: Pageblock) -> bool {
        let ahead = pageblock.0.wrapping_sub(self.pageblock.0);
        !self.has_part() || ahead < self.part as u32 * SECTION
    }

    /// The same for a look at all of the map.
    #[inline(always)]
    pub(crate) const fn anywhere(self) -> Self {
        Self { part: 0, ..self }
    }

    /// Where it looks for untouched pageblocks to open: in its part, or from the map's first on.
    pub(super) const fn home(self) -> Pageblock {
        if self.has_part() { self.pageblock } else { Pageblock(0) }
    }

    /// How far a pageblock is from the start, in the order of a search.
    #[must_use]
    #[inline(always)]
    pub const fn distance(self, pageblock: Pageblock, shape: MapShape) -> u32 {
        if pageblock.0 >= self.pageblock.0 {
            pageblock.0 - self.pageblock.0
        } else {
            pageblock.0 + (shape.pageblocks() - self.pageblock.0)
        }
    }
}

/// Whether pageblocks of the type have hints.
#[inline(always)]
pub(super) const fn is_hinted(migrate: MigrateType) -> bool {
    migrate.index() < HINTED_TYPES
}

impl<P: Platform> FreeMap<'_, P> {
    /// Sets the bit of a pageblock that was seen to be missing in the kind's word.
    #[cold]
    #[inline(never)]
    pub(super) fn set_missing(&self, word: &P::Word, kind: Kind, pageblock: Pageblock) {
        let (section, bit) = pageblock.place();
        if word.fetch_or(bit, SeqCst) == 0 && self.shape().levels() > 1 {
            self.raise_above(kind, 1, section);
        }
    }

    /// Sets a pageblock's bit; whether it was set.
    #[inline(always)]
    pub(super) fn set(&self, kind: Kind, pageblock: Pageblock) -> bool {
        let (section, bit) = pageblock.place();
        let before = self.bitmap_word(kind, 0, section).fetch_or(bit, SeqCst);
        if before == 0 && self.shape().levels() > 1 {
            self.raise_above(kind, 1, section);
        }
        before & bit != 0
    }

    /// The word `index` below `level` has become other than zero. Where it was so before, the CPU
    /// that made it so has looked.
    #[inline(never)]
    pub(super) fn raise_above(&self, kind: Kind, level: usize, mut index: u32) {
        for level in level..self.shape().levels() {
            let (word, bit) = (self.bitmap_word(kind, level, index / 64), 1 << (index % 64));
            // Partner: the `fetch_and` of `lower_above`.
            if word.load(SeqCst) & bit != 0 || word.fetch_or(bit, SeqCst) != 0 {
                return;
            }
            index /= 64;
        }
    }

    /// Clears a pageblock's bit; whether it was set. Of two that clear a set bit one is told so.
    /// For a hint the caller looks at the bits afterwards (M-4).
    #[inline(always)]
    pub(super) fn clear(&self, kind: Kind, pageblock: Pageblock) -> bool {
        let (section, bit) = pageblock.place();
        self.bitmap_word(kind, 0, section).fetch_and(!bit, SeqCst) & bit != 0
    }

    /// The word `index` below `level` was seen to be zero: lowers its bit, and looks again (M-4).
    #[cold]
    fn lower_above(&self, kind: Kind, level: usize, index: u32) {
        let word = self.bitmap_word(kind, level, index / 64);
        word.fetch_and(!(1 << (index % 64)), SeqCst);
        // Partner: the update below whose maker looks at this level afterwards.
        if self.bitmap_word(kind, level - 1, index).load(SeqCst) != 0 {
            self.raise_above(kind, level, index);
        }
    }

    /// Lowers all hints of a type for a pageblock that is not of this type (any more): what is
    /// raised after that by a CPU that read the type before is stale, and filed by who finds it.
    pub(super) fn lower_all(&self, pageblock: Pageblock, migrate: MigrateType) {
        if !is_hinted(migrate) {
            return;
        }
        let (section, bit) = pageblock.place();
        for word in self.hints_in(section, migrate) {
            if word.load(Relaxed) & bit != 0 {
                word.fetch_and(!bit, SeqCst);
            }
        }
    }

    /// The hints of a type.
    pub(super) fn hints_of(&self, migrate: MigrateType) -> impl Iterator<Item = Kind> {
        let runs = (1..self.shape().p()).map(move |order| Kind::Run(migrate, order));
        core::iter::once(Kind::Free(migrate)).chain(runs)
    }

    /// The first pageblock with a bit, from `start` up, then from the map's first.
    #[inline]
    pub(super) fn find(&self, kind: Kind, start: Start) -> Option<Pageblock> {
        let Pageblock(first) = start.pageblock;
        let number = kind.number(self.shape());
        if !self.stay.looks(number) {
            return None;
        }
        let mut found = self.find_from(kind, first);
        if found.is_none() && first > 0 {
            self.stay.spend(cost::LOOK);
            found = self.find_from(kind, 0).filter(|found| found.0 < first);
        }
        if found.is_none() {
            self.stay.found_none(number);
        }
        found
    }

    pub(super) fn find_from(&self, kind: Kind, from: u32) -> Option<Pageblock> {
        match StayOf::<P>::COPIES && self.shape().levels() == 2 {
            true => self.find_in_two(kind, from),
            false => self.find_in_levels(kind, from),
        }
    }

    /// The same with two levels, where code is: a third of the instructions.
    fn find_in_two(&self, kind: Kind, from: u32) -> Option<Pageblock> {
        let (section, bit) = (from / 64, from % 64);
        if section >= self.shape().sections() {
            return None;
        }
        let (below, above) = self.two_levels(kind);
        let stride = self.shape().section_stride();
        // Relaxed: a first look, here and below.
        let load =
            |section: u32| below.get(section as usize * stride).map_or(0, |it| it.load(Relaxed));
        let word = load(section) >> bit << bit;
        if word != 0 {
            return Some(Pageblock(section * 64 + word.trailing_zeros()));
        }
        let next = section + 1;
        let mut mask = u64::MAX << (next % 64);
        for (word, at) in above.iter().zip(0..).skip(next as usize / 64) {
            let mut sections = word.load(Relaxed) & mask;
            while sections != 0 {
                let section = at * 64 + sections.trailing_zeros();
                let word = load(section);
                if word != 0 {
                    return Some(Pageblock(section * 64 + word.trailing_zeros()));
                }
                self.lower_above(kind, 1, section);
                sections &= sections - 1;
            }
            mask = u64::MAX;
        }
        None
    }

    fn find_in_levels(&self, kind: Kind, from: u32) -> Option<Pageblock> {
        let top = self.shape().levels() - 1;
        let (mut level, mut index) = (0, from);
        loop {
            let at = index / 64;
            if at >= self.shape().level_words(level) {
                return None;
            }
            // Relaxed: a first look.
            let word = self.bitmap_word(kind, level, at).load(Relaxed) & u64::MAX << (index % 64);
            if word == 0 {
                // The words behind: one by one at the top, as the level above sees them below it.
                (level, index) =
                    if level == top { (level, (at + 1) * 64) } else { (level + 1, at + 1) };
                continue;
            }
            index = at * 64 + word.trailing_zeros();
            if level == 0 {
                return Some(Pageblock(index));
            }
            if self.bitmap_word(kind, level - 1, index).load(Relaxed) == 0 {
                self.lower_above(kind, level, index);
                index += 1;
            } else {
                (level, index) = (level - 1, index * 64);
            }
        }
    }

    /// Another pageblock with a bit in the word of `lost`, for a CPU that lost that one: the first
    /// one from a place of the CPU's own.
    pub(super) fn find_beside(
        &self,
        kind: Kind,
        lost: Pageblock,
        start: Start,
    ) -> Option<Pageblock> {
        let (section, bit) = lost.place();
        let word = self.bitmap_word(kind, 0, section).load(Relaxed) & !bit;
        // 21 is odd, so that neighbours in number begin far apart.
        let place = u32::from(start.spread).wrapping_mul(21) % 64;
        let turned = word.rotate_right(place);
        (word != 0).then(|| Pageblock(section * 64 + (turned.trailing_zeros() + place) % 64))
    }

    /// Clears a set bit and returns its pageblock: the first one, or another in its word if that
    /// one is lost to another CPU.
    #[inline]
    pub(super) fn win(&self, kind: Kind, start: Start) -> Option<Pageblock> {
        self.win_inside(kind, start, |_| ()).map(|(pageblock, ())| pageblock)
    }

    /// The same with something done before each try, which is undone (dropped) if it fails.
    #[inline]
    pub(super) fn win_inside<G>(
        &self,
        kind: Kind,
        start: Start,
        enter: impl Fn(Pageblock) -> G,
    ) -> Option<(Pageblock, G)> {
        let mut found = self.find(kind, start)?;
        if !start.is_own(found) {
            return None;
        }
        let whole = matches!(kind, Kind::Whole(_));
        if !self.stay.affords(if whole { cost::WHOLE } else { cost::HARVEST }) {
            return None;
        }
        loop {
            let guard = enter(found);
            if self.clear(kind, found) {
                return Some((found, guard));
            }
            found = match self.find_beside(kind, found, start) {
                Some(other) => other,
                None => self.find(kind, start).filter(|found| start.is_own(*found))?,
            };
        }
    }

    /// Sets the bits above a section whose word of a kind is not zero, at every level.
    pub(super) fn repair_above(&self, kind: Kind, section: u32) {
        let mut index = section;
        for level in 1..self.shape().levels() {
            self.bitmap_word(kind, level, index / 64).fetch_or(1 << (index % 64), SeqCst);
            index /= 64;
        }
    }
}
