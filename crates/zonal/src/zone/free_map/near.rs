//! The short way to a whole pageblock and back: what most requests of that order need, in line. What
//! is rare is out of line and begins with the map anew, so that none of it has to be in memory here.

use super::WholeClass;
use super::hints::{Kind, Start};
use super::layout::{SECTIONS, SUMMARIES};
use super::mapped::{MapView, Mapped};
use super::shape::{Frame, Pageblock, SECTION};
use crate::frame::PageblocksView;
use crate::platform::{AtomicWord, Platform};
use crate::types::migrate_type::MigrateType;
use crate::zone::ZoneInstance;
use crate::zone::tables::ZoneTables;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};

const ORDINARY: Kind = Kind::Whole(WholeClass::Ordinary);

/// The ordinary whole pageblocks of a section, for a CPU that frees and takes some of them again and again.
pub(crate) struct WholeWord<'m, P: Platform> {
    word: &'m P::Word,
    /// Where a hint says that the section has one; where there is no such level, the word itself.
    above: &'m P::Word,
    hint: u64,
}

impl<P: Platform> ZoneInstance<P, Mapped> {
    /// Those of the section of an index of the frame table, and the section's pageblocks.
    pub(crate) fn whole_at<'m>(
        &self,
        table: &ZoneTables<'m, P>,
        index: u32,
    ) -> (WholeWord<'m, P>, PageblocksView<'m, P>) {
        let (place, first, shape) = (&self.part.place, self.part.first, self.part.place.shape);
        let (section, _) = Frame(index - first).pageblock(shape).place();
        let start = Pageblock(section * SECTION).first_frame(shape);
        let pageblocks = table.view_of(first + start.0, SECTION);
        let word = &table.words(SECTIONS)[place.section_at(ORDINARY, section)];
        if shape.levels() == 1 {
            return (WholeWord { word, above: word, hint: u64::MAX }, pageblocks);
        }
        let above = &table.words(SUMMARIES)[place.summary_at(ORDINARY, 1, section / u64::BITS)];
        (WholeWord { word, above, hint: 1 << (section % u64::BITS) }, pageblocks)
    }
}

impl<P: Platform> WholeWord<'_, P> {
    /// Takes one by its number in the section; whether it was there.
    #[inline(always)]
    pub(crate) fn take(&self, at: u32) -> bool {
        let bit = 1_u64.wrapping_shl(at);
        self.word.fetch_and(!bit, SeqCst) & bit != 0
    }

    /// Puts one that the caller owns by its number in the section; whether it was not there. A
    /// [look](Self::is_hinted) at the hint comes after.
    #[inline(always)]
    pub(crate) fn put(&self, at: u32) -> bool {
        let bit = 1_u64.wrapping_shl(at);
        self.word.fetch_or(bit, SeqCst) & bit == 0
    }

    /// Whether the level above, if there is one, says that the section has some: M-4, for who has put one.
    #[inline(always)]
    pub(crate) fn is_hinted(&self) -> bool {
        self.above.load(SeqCst) & self.hint != 0
    }
}

impl<P: Platform> MapView<'_, P> {
    /// Takes the first whole pageblock, touched and of a requestable type, from `from` up among those
    /// of its section, and gives it the type `migrate`; where there is none, another one of
    /// [any section](Self::open_from). `None`: there is none. It needs no
    /// [reconciling](Self::reconcile_special).
    #[inline(always)]
    pub(crate) fn open_near(
        &self,
        migrate: MigrateType,
        from: Pageblock,
        home: Pageblock,
    ) -> Option<Pageblock> {
        let (section, bit) = from.place();
        let word = self.map().bitmap_word(ORDINARY, 0, section);
        // Relaxed: a first look.
        let seen = word.load(Relaxed) & bit.wrapping_neg();
        if seen == 0 {
            return self.open_from(migrate, from, home);
        }
        // Written so, it is one instruction where the processor has it.
        let at = seen.trailing_zeros();
        if word.fetch_and(!(1 << at), SeqCst) & (1 << at) == 0 {
            return self.open_apart(migrate, from, home);
        }
        let pageblock = Pageblock(section * SECTION + at);
        // M-5.
        if self.map().type_of(pageblock) == migrate {
            return Some(pageblock);
        }
        self.claim_taken(pageblock, migrate, home)
    }

    /// Claims an ordinary pageblock that was whole; if it has another type by now it is put back under
    /// that, and another one is taken.
    #[cold]
    #[inline(never)]
    fn claim_taken(
        &self,
        pageblock: Pageblock,
        migrate: MigrateType,
        home: Pageblock,
    ) -> Option<Pageblock> {
        let map = self.map_apart();
        if map.keep_whole(WholeClass::Ordinary, pageblock) && map.claim_whole(pageblock, migrate) {
            return Some(pageblock);
        }
        self.open_from(migrate, pageblock, home)
    }

    /// As [`open_near`](Self::open_near), of any class that the type may have: touched ones from `from` up
    /// and then from the map's first, then untouched ones from `home` up.
    #[inline(never)]
    fn open_from(
        &self,
        migrate: MigrateType,
        from: Pageblock,
        home: Pageblock,
    ) -> Option<Pageblock> {
        self.map_apart().open_whole(migrate, Start::new(from, from.0 as u16), home)
    }

    /// Another CPU was faster, so it works in this section, too: an untouched one from `home` up, with
    /// which this CPU goes elsewhere, before touched ones.
    #[cold]
    #[inline(never)]
    fn open_apart(
        &self,
        migrate: MigrateType,
        from: Pageblock,
        home: Pageblock,
    ) -> Option<Pageblock> {
        let untouched = match home.is_beside(from) {
            true => None,
            false => self.map_apart().open_untouched_near(migrate, home),
        };
        untouched.or_else(|| self.open_from(migrate, from, home))
    }

    /// Frees a pageblock that the caller owns as a whole. `false`, and nothing is freed, if it is free.
    /// Counting it is the caller's, unless it is special.
    #[inline(always)]
    pub(crate) fn put_pageblock(&self, pageblock: Pageblock) -> bool {
        let map = self.map();
        let (section, bit) = pageblock.place();
        if !map.type_of(pageblock).is_requestable()
            || map.whole_word(WholeClass::Untouched, section) & bit != 0
        {
            return self.put_other(pageblock);
        }
        let before = map.bitmap_word(ORDINARY, 0, section).fetch_or(bit, SeqCst);
        // M-5: a CPU that changed the type before this look may have looked for the bit before it was
        // set. One that changes it later sees the bit.
        let typed = map.type_of(pageblock).is_requestable();
        if before == 0 && map.shape().levels() > 1 {
            self.raise_section(section);
        }
        if before & bit == 0 && typed {
            true
        } else {
            self.put_wrongly(pageblock, before & bit != 0)
        }
    }

    /// After a pageblock was [put](WholeWord::put) past this view: what its section's hint and its type ask for.
    #[cold]
    #[inline(never)]
    /// `twice`: it was there before, so that this was none.
    pub(crate) fn look_after(&self, pageblock: Pageblock, twice: bool) {
        if self.map().shape().levels() > 1 {
            self.raise_section(pageblock.place().0);
        }
        if twice || !self.map().type_of(pageblock).is_requestable() {
            self.put_wrongly(pageblock, twice);
        }
    }

    /// The section has its first whole pageblock.
    #[cold]
    #[inline(never)]
    fn raise_section(&self, section: u32) {
        self.map_apart().raise_above(ORDINARY, 1, section);
    }

    /// The pageblock was whole before, or its type has changed.
    #[cold]
    #[inline(never)]
    fn put_wrongly(&self, pageblock: Pageblock, twice: bool) -> bool {
        let map = self.map_apart();
        if twice {
            self.refused(u64::from(map.shape().pageblock_frames()));
            return false;
        }
        let filed = map.refile(WholeClass::Ordinary, pageblock);
        debug_assert!(filed.is_ok(), "a pageblock was freed twice");
        self.reconcile(pageblock);
        true
    }

    /// A pageblock of a special type, or one that is whole and untouched.
    #[cold]
    #[inline(never)]
    fn put_other(&self, pageblock: Pageblock) -> bool {
        let shape = self.extent().1;
        self.put_block(pageblock.first_frame(shape), shape.order())
    }
}
