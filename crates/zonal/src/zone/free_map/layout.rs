//! Where the words of a map are: the one accessor to lines, hints and types.
//!
//! Sections of 64 pageblocks each have their lines and their words of hints side by side, so that
//! a host that leaves sections out changes this file only.

use super::FreeMap;
use super::hints::Kind;
use super::shape::{MapShape, Pageblock, WordIndex};
use super::whole::WholeClass;
use crate::frame::{FrameTable, PageblockWord};
use crate::platform::stay::Stay;
use crate::platform::{AtomicWord, Platform, StayOf};
use crate::types::migrate_type::MigrateType;
use crate::types::units::{Pfn, ZoneId};
use crate::zone::tables::{FreeWords, ZoneTables};
use core::fmt;
use core::ops::Range;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};

/// Bytes of a cache line.
const CACHE_LINE: usize = 64;

/// The caller's memory, all zero: nothing is free, every type is unmovable.
pub struct MapMemory<'m, P: Platform> {
    /// [`MapShape::line_words`]; with plain atomics at a multiple of 64 bytes.
    pub lines: &'m [P::Word],
    /// [`MapShape::section_words`]; with plain atomics at a multiple of 64 bytes.
    pub sections: &'m [P::Word],
    /// [`MapShape::summary_words`].
    pub summaries: &'m [P::Word],
    /// One word a pageblock, of which the map uses what the frame table keeps the type in.
    pub types: &'m [P::Word],
}

impl<P: Platform> fmt::Debug for MapMemory<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MapMemory").field("lines", &self.lines.len()).finish_non_exhaustive()
    }
}

impl<P: Platform> Clone for MapMemory<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: Platform> Copy for MapMemory<'_, P> {}

// What each slice of a zone's words is for.
/// A bit a frame of the table, for all zones: a pageblock is of one.
pub(super) const LINES: usize = 0;
/// The sections of each zone's map.
pub(super) const SECTIONS: usize = 1;
/// The levels above them.
pub(super) const SUMMARIES: usize = 2;

/// Where in the tables a map is, and what it is of.
#[derive(Clone, Copy, Debug)]
pub(super) struct MapPlace {
    pub(super) shape: MapShape,
    pub(super) at: Offsets,
    /// The zone whose map it is, where zones share the lines: of pageblocks of others there are no
    /// hints, and a look at all lines leaves them out.
    pub(super) zone: Option<ZoneId>,
}

impl MapPlace {
    /// Where a section begins.
    #[inline(always)]
    const fn section(&self, section: u32) -> usize {
        self.at.sections as usize + section as usize * self.shape.section_stride()
    }

    /// Where a section's word of a kind is.
    #[inline(always)]
    pub(super) const fn section_at(&self, kind: Kind, section: u32) -> usize {
        self.section(section) + kind.number(self.shape)
    }

    /// Where the word `index` of a kind of a level above is.
    #[inline(always)]
    pub(super) const fn summary_at(&self, kind: Kind, level: usize, index: u32) -> usize {
        let (shape, kind, index) = (self.shape, kind.number(self.shape), index as usize);
        let below = if level == 2 { shape.kinds() * shape.level_words(1) as usize } else { 0 };
        let below = self.at.summaries as usize + below;
        below + kind * shape.level_words(level) as usize + index
    }
}

/// The tables of a map that is no zone's: for who wants nothing but the map.
pub struct MapTables<'m, P: Platform> {
    tables: ZoneTables<'m, P>,
    place: MapPlace,
}

impl<P: Platform> fmt::Debug for MapTables<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MapTables").field("shape", &self.place.shape).finish_non_exhaustive()
    }
}

/// The first of a map's words in each slice, where zones share them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Offsets {
    pub(super) lines: u32,
    pub(super) sections: u32,
    pub(super) summaries: u32,
    pub(super) types: u32,
}

/// Why memory cannot be a map's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum LayoutError {
    /// A slice is of another length.
    WrongLength {
        /// Which.
        what: &'static str,
        /// Words that it has.
        given: usize,
        /// Words that it must have.
        wanted: usize,
    },
    /// A slice is not at a multiple of a cache line, so lines would share cache lines.
    Misaligned {
        /// Which.
        what: &'static str,
    },
}

impl fmt::Display for LayoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WrongLength { what, given, wanted } => {
                write!(f, "the map's {what} have {given} words, not {wanted}")
            }
            Self::Misaligned { what } => {
                write!(f, "the map's {what} are not at a multiple of {CACHE_LINE} bytes")
            }
        }
    }
}

impl core::error::Error for LayoutError {}

/// A word that the shape has, and so the slice. Indexing does the same in more code: each place prepares what
/// its panic says.
#[inline(always)]
fn word_at<W>(words: &[W], at: usize) -> &W {
    match words.get(at) {
        Some(word) => word,
        None => missing(),
    }
}

#[cold]
#[inline(never)]
fn missing() -> ! {
    panic!("a word that the map does not have")
}

impl<'m, P: Platform> MapTables<'m, P> {
    /// Tables over the caller's memory. O(1).
    ///
    /// # Errors
    /// [`LayoutError`] if a slice has the wrong length or, where words are plain ones (of eight bytes)
    /// and a line is a cache line or more, the wrong alignment.
    pub fn new(shape: MapShape, memory: MapMemory<'m, P>) -> Result<Self, LayoutError> {
        let lengths = [
            ("lines", memory.lines.len(), shape.line_words()),
            ("sections", memory.sections.len(), shape.section_words()),
            ("summaries", memory.summaries.len(), shape.summary_words()),
            ("types", memory.types.len(), shape.pageblocks() as usize),
        ];
        for (what, given, wanted) in lengths {
            if given != wanted {
                return Err(LayoutError::WrongLength { what, given, wanted });
            }
        }
        let plain = size_of::<P::Word>() == size_of::<u64>() && shape.words_a_line() >= 8;
        for (what, words) in [("lines", memory.lines), ("sections", memory.sections)] {
            if plain && words.as_ptr().addr() % CACHE_LINE != 0 {
                return Err(LayoutError::Misaligned { what });
            }
        }
        let frames = FrameTable::new(&[], memory.types, Pfn::new(0), shape.order());
        let words = FreeWords([memory.lines, memory.sections, memory.summaries]);
        let place = MapPlace { shape, at: Offsets::default(), zone: None };
        Ok(Self { tables: ZoneTables::new(frames, words), place })
    }

    /// The map. O(1).
    #[must_use]
    pub const fn map(&self) -> FreeMap<'_, P> {
        FreeMap::over(&self.tables, &self.place)
    }
}

impl<'m, P: Platform> FreeMap<'m, P> {
    /// A map over a zone's tables, which were measured for the shape and which zones share; where lines share cache lines it
    /// is slower, and that is all.
    #[inline(always)]
    pub(super) const fn over(tables: &'m ZoneTables<'m, P>, place: &'m MapPlace) -> Self {
        Self { tables, place, stay: Stay::NEW }
    }

    /// For a search that is a piece of a stay in a slot.
    #[inline(always)]
    pub(crate) fn staying(self, stay: StayOf<P>) -> Self {
        Self { stay, ..self }
    }

    /// The piece, after it.
    #[inline(always)]
    pub(crate) fn stay(self) -> StayOf<P> {
        self.stay
    }

    /// Whether it was found, in a piece before, that there is none of a kind.
    #[inline(always)]
    pub(super) fn knows_none(&self, kind: usize) -> bool {
        self.stay.skips(kind)
    }

    /// There is none of a kind.
    #[inline(always)]
    pub(super) fn found_none(&self, kind: usize) {
        self.stay.found_none(kind);
    }

    /// Something of it was done.
    #[inline(always)]
    pub(crate) fn spend(&self, cost: u32) {
        self.stay.spend(cost);
    }

    /// Whether the piece is.
    #[inline(always)]
    pub(crate) fn is_over(&self) -> bool {
        self.stay.is_over()
    }

    /// There is something again, which is for the next piece. Whether there are pieces.
    #[inline(always)]
    pub(crate) fn ends(&self) -> bool {
        self.stay.ends()
    }

    /// The pageblocks of the map.
    pub(super) fn own_pageblocks(&self) -> impl Iterator<Item = Pageblock> + '_ {
        (0..self.shape().pageblocks()).map(Pageblock).filter(|&pageblock| self.is_own(pageblock))
    }

    /// Whether the pageblock is the zone's.
    pub(super) fn is_own(&self, pageblock: Pageblock) -> bool {
        self.place.zone.is_none_or(|zone| {
            // Relaxed: a pageblock that comes or goes meanwhile may be in the look or not.
            let word = self.type_word(pageblock).load(Relaxed);
            PageblockWord::of(word).zone() == Some(zone)
        })
    }

    /// Orders, pageblocks and frames of the map.
    #[must_use]
    #[inline(always)]
    pub const fn shape(&self) -> MapShape {
        self.place.shape
    }

    /// The word of 64 frames.
    #[inline(always)]
    pub(super) fn frames_word(&self, word: WordIndex) -> &'m P::Word {
        word_at(self.tables.words(LINES), (self.place.at.lines + word.0) as usize)
    }

    /// Some that follow each other.
    #[inline(always)]
    pub(super) fn frames_words(&self, words: Range<u32>) -> &'m [P::Word] {
        let own = (self.place.at.lines + words.start) as usize
            ..(self.place.at.lines + words.end) as usize;
        self.tables.words(LINES).get(own).unwrap_or_else(|| missing())
    }

    /// The pageblock's word of the frame table.
    #[inline(always)]
    pub(super) fn type_word(&self, pageblock: Pageblock) -> &'m P::Word {
        word_at(self.tables.pageblock_words(), (self.place.at.types + pageblock.0) as usize)
    }

    /// The words of a pageblock's line, and its bits in each of them.
    #[inline(always)]
    pub(super) fn line(&self, pageblock: Pageblock) -> (Range<u32>, u64) {
        let first = pageblock.first_frame(self.shape());
        let (WordIndex(word), _) = first.word();
        let bits = super::bits::low_bits(self.shape().pageblock_frames()) << (first.0 % 64);
        (word..word + self.shape().words_a_line(), bits)
    }

    /// The word `index` of a kind of bitmap at a level: at level 0 of a section's pageblocks.
    #[inline(always)]
    pub(super) fn bitmap_word(&self, kind: Kind, level: usize, index: u32) -> &'m P::Word {
        if level > 0 {
            return self.summary_word(kind, level, index);
        }
        word_at(self.tables.words(SECTIONS), self.place.section_at(kind, index))
    }

    /// The same at the levels above.
    fn summary_word(&self, kind: Kind, level: usize, index: u32) -> &'m P::Word {
        word_at(self.tables.words(SUMMARIES), self.place.summary_at(kind, level, index))
    }

    /// The words of a kind of bitmap where there are two levels: from that of the first section on, each a stride after the
    /// one before it; and those above.
    #[inline(always)]
    pub(super) fn two_levels(&self, kind: Kind) -> (&'m [P::Word], &'m [P::Word]) {
        let words = self.shape().level_words(1) as usize;
        let (below, above) = (self.place.section_at(kind, 0), self.place.summary_at(kind, 1, 0));
        (
            self.tables.words(SECTIONS).get(below..).unwrap_or_default(),
            self.tables.words(SUMMARIES).get(above..above + words).unwrap_or_default(),
        )
    }

    /// A section's words of a type's hints: "free", and runs of the orders 1 to p − 1.
    #[inline(always)]
    pub(super) fn hints_in(&self, section: u32, migrate: MigrateType) -> &'m [P::Word] {
        let first = self.place.section_at(Kind::Free(migrate), section);
        &self.tables.words(SECTIONS)[first..first + self.shape().p() as usize]
    }

    /// The map's lines; and its sections from the hints of the first type on.
    #[inline(always)]
    pub(super) fn lines_and_hints(&self) -> (&'m [P::Word], &'m [P::Word]) {
        let first = self.place.section_at(Kind::Free(MigrateType::Unmovable), 0);
        (
            self.tables.words(LINES).get(self.place.at.lines as usize..).unwrap_or_default(),
            self.tables.words(SECTIONS).get(first..).unwrap_or_default(),
        )
    }

    /// The word of a section that counts calls which may put back what they took: those under way
    /// in the low half, all that began in the high half, which may wrap.
    fn transit_word(&self, section: u32) -> &'m P::Word {
        let first = self.place.section(section);
        word_at(self.tables.words(SECTIONS), first + self.shape().kinds())
    }

    /// Not 0: of some pageblock that is counted apart more may be free, or less, than was counted.
    pub(super) fn note_word(&self) -> &'m P::Word {
        word_at(
            self.tables.words(SUMMARIES),
            self.place.at.summaries as usize + self.shape().note_word(),
        )
    }

    /// Frames of the pageblock that this CPU had taken are back, and it does not count them. If they are
    /// counted apart, a count may have been made without them (M-7).
    pub(super) fn was_put_back(&self, pageblock: Pageblock) {
        if WholeClass::of(self.type_of(pageblock)) != WholeClass::Ordinary {
            self.note_word().store(1, SeqCst);
        }
    }

    /// Which calls have begun in a section; `None` while one of them is under way.
    pub(super) fn quiet(&self, section: u32) -> Option<u64> {
        let transit = self.transit_word(section).load(SeqCst);
        (transit as u32 == 0).then_some(transit)
    }

    /// From here to the drop of the result frames of the section may be in the hand of this CPU,
    /// which may put them back (M-1).
    pub(super) fn in_transit(&self, pageblock: Pageblock) -> Transit<'m, P> {
        let word = self.transit_word(pageblock.place().0);
        // Comes before the bits are cleared, for a last look that sees them cleared.
        word.fetch_add((1 << 32) + 1, SeqCst);
        Transit(word)
    }
}

/// See [`FreeMap::in_transit`].
pub(super) struct Transit<'m, P: Platform>(&'m P::Word);

impl<P: Platform> Drop for Transit<'_, P> {
    fn drop(&mut self) {
        // Comes after the bits were put back.
        self.0.fetch_add(u64::MAX, SeqCst);
    }
}
