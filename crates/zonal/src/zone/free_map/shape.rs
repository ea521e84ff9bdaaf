//! How large the parts of a map are, and the numbers that name frames, words and pageblocks in it.

use super::whole::NR_CLASSES;
use crate::types::units::Order;

/// Pageblocks in a section: those of one word of hints.
pub(super) const SECTION: u32 = 64;
/// log2 of the frames of a line's word.
pub(super) const WORD_ORDER: u32 = 6;
/// Types that have hints: all but isolate.
pub(super) const HINTED_TYPES: usize = 5;
/// Levels of hints: over pageblocks, over sections, over 64 sections.
pub(super) const MAX_LEVELS: usize = 3;
/// Words of the top level that a search may look at before there is another level.
const FEW: u32 = 2;

/// A frame: its number from the map's first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Frame(pub u32);

/// A word of 64 frames: its number from the map's first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct WordIndex(pub u32);

/// A pageblock: its number from the map's first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Pageblock(pub u32);

impl Frame {
    /// The word that it is in, and its bit there.
    #[must_use]
    #[inline(always)]
    pub const fn word(self) -> (WordIndex, u64) {
        (WordIndex(self.0 >> WORD_ORDER), 1 << (self.0 % 64))
    }

    /// The pageblock that it is in.
    #[must_use]
    #[inline(always)]
    pub const fn pageblock(self, shape: MapShape) -> Pageblock {
        Pageblock(self.0 >> shape.order.get())
    }
}

impl WordIndex {
    /// The frame of its lowest bit.
    #[must_use]
    pub const fn first_frame(self) -> Frame {
        Frame(self.0 << WORD_ORDER)
    }
}

impl Pageblock {
    /// Its first frame.
    #[must_use]
    #[inline(always)]
    pub const fn first_frame(self, shape: MapShape) -> Frame {
        Frame(self.0 << shape.order.get())
    }

    /// Whether the two are in one section.
    #[inline(always)]
    pub(crate) const fn is_beside(self, other: Self) -> bool {
        self.0 / SECTION == other.0 / SECTION
    }

    /// The section, and the bit in its words.
    #[inline(always)]
    pub(super) const fn place(self) -> (u32, u64) {
        (self.0 / SECTION, 1 << (self.0 % SECTION))
    }
}

/// The pageblock order (3 to 10) and how many pageblocks there are.
///
/// Pageblock 0 begins at a multiple of 64 pageblocks and of 1024 frames, so that sections are
/// aligned and runs of pageblocks in the map are blocks in memory. Pageblocks of other zones, and
/// what is not there, are never freed into the map, and so never found in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MapShape {
    order: Order,
    levels: u8,
    /// Words of a section: one of each kind, its transit word, and none to the end of the line.
    stride: u8,
    pageblocks: u32,
}

impl MapShape {
    /// The smallest there is.
    pub(crate) const LEAST: Self =
        Self { order: crate::types::units::ORDERS[3], levels: 1, stride: stride(3), pageblocks: 1 };

    /// A map of `blocks` pageblocks of 2^`order` frames. `None` for an order below 3, for no
    /// pageblocks, and for 2^32 frames or more.
    #[must_use]
    pub const fn new(order: Order, pageblocks: u32) -> Option<Self> {
        if order.get() < 3 || pageblocks == 0 || (pageblocks as u64) << order.get() >= 1 << 32 {
            return None;
        }
        let sections = pageblocks.div_ceil(SECTION);
        let levels = match (sections, sections.div_ceil(64)) {
            (..=FEW, _) => 1,
            (_, ..=FEW) => 2,
            _ => MAX_LEVELS as u8,
        };
        Some(Self { order, levels, stride: stride(order.get()), pageblocks })
    }

    /// The pageblock order.
    #[must_use]
    #[inline(always)]
    pub const fn order(self) -> Order {
        self.order
    }

    /// How many pageblocks there are.
    #[must_use]
    #[inline(always)]
    pub const fn pageblocks(self) -> u32 {
        self.pageblocks
    }

    /// Frames of a pageblock.
    #[must_use]
    #[inline(always)]
    pub const fn pageblock_frames(self) -> u32 {
        self.order.size()
    }

    /// Words that [`MapMemory::lines`](super::MapMemory::lines) must have: a bit a frame.
    #[must_use]
    pub const fn line_words(self) -> usize {
        ((self.pageblocks as u64) << self.order.get()).div_ceil(64) as usize
    }

    /// Words that [`MapMemory::sections`](super::MapMemory::sections) must have: 56 for 64
    /// pageblocks of order 9.
    #[must_use]
    pub const fn section_words(self) -> usize {
        self.sections() as usize * self.section_stride()
    }

    /// Words that [`MapMemory::summaries`](super::MapMemory::summaries) must have: one up to 128
    /// pageblocks.
    #[must_use]
    pub const fn summary_words(self) -> usize {
        1 + self.note_word()
    }

    /// Which of those is no summary, but says that counts may be wrong.
    pub(super) const fn note_word(self) -> usize {
        match self.levels {
            1 => 0,
            2 => self.kinds() * self.level_words(1) as usize,
            _ => self.kinds() * (self.level_words(1) + self.level_words(2)) as usize,
        }
    }

    /// Bytes of the map and the state bytes beside it: at most 1.5 a frame from order 6 up.
    #[must_use]
    pub const fn table_bytes(self) -> u64 {
        let words = self.line_words() + self.section_words() + self.summary_words();
        let types = self.pageblocks as u64;
        ((self.pageblocks as u64) << self.order.get()) + (words as u64 + types) * 8
    }

    /// The first pageblock of a CPU's own section: one for each as far as they go, from the first on.
    #[must_use]
    #[inline]
    pub const fn section_for(self, cpu: u32) -> Pageblock {
        Pageblock(cpu % self.sections() * SECTION)
    }

    /// Sections that have all of their pageblocks.
    pub(crate) const fn whole_sections(self) -> u32 {
        self.pageblocks / SECTION
    }

    pub(super) const fn sections(self) -> u32 {
        self.pageblocks.div_ceil(SECTION)
    }

    /// The pageblock order as a number.
    #[inline(always)]
    pub(super) const fn p(self) -> u32 {
        self.order.get() as u32
    }

    /// Words of a line; 1 if it is part of a word.
    #[inline(always)]
    pub(super) const fn words_a_line(self) -> u32 {
        1 << self.p().saturating_sub(WORD_ORDER)
    }

    pub(super) const fn levels(self) -> usize {
        self.levels as usize
    }

    /// Kinds of bitmaps over the pageblocks.
    #[inline(always)]
    pub(super) const fn kinds(self) -> usize {
        kinds(self.order.get())
    }

    /// Words of a section.
    #[inline(always)]
    pub(super) const fn section_stride(self) -> usize {
        self.stride as usize
    }

    /// Words of a bitmap at a level.
    #[inline(always)]
    pub(super) const fn level_words(self, level: usize) -> u32 {
        match level {
            0 => self.sections(),
            1 => self.sections().div_ceil(64),
            _ => self.sections().div_ceil(64).div_ceil(64),
        }
    }
}

/// Kinds of bitmaps over pageblocks of the order `p`.
const fn kinds(p: u8) -> usize {
    HINTED_TYPES * p as usize + NR_CLASSES
}

/// At most 56, for the largest order.
const fn stride(p: u8) -> u8 {
    (kinds(p) + 1).next_multiple_of(8) as u8
}
