//! One slot, and what a thread has of it.

use super::lanes::{Lane, shift_of};
use super::word::Word;
use crate::host::Host;
use core::sync::atomic::Ordering::Relaxed;
use zonal::platform::{AtomicByte, AtomicHalf, AtomicWord};

/// No slot.
pub(super) const NONE: u32 = u32::MAX;

/// The number of a slot.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct SlotId(pub u32);

/// A page: of which file, and the how manieth.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Key {
    /// The file's number.
    pub file: u64,
    /// The offset in pages.
    pub index: u64,
}

/// Of whom a page is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// A file.
    File = 0,
    /// An owner without a file, with a store to which its pages can go.
    Anon = 1,
    /// One without a store: they stay.
    Kept = 2,
}

pub(crate) const KINDS: usize = 3;
/// Of 2 to this power neighbours the chains are in a row.
const ROW: u32 = 4;
/// Where the number of a file has its kind.
const KIND: u32 = 62;

impl Kind {
    pub(crate) const fn of_number(number: u64) -> Self {
        match number {
            0 => Self::File,
            1 => Self::Anon,
            _ => Self::Kept,
        }
    }

    /// The number of a file of this kind.
    pub(crate) const fn number(self, owner: u64) -> u64 {
        (self as u64) << KIND | owner
    }
}

impl Key {
    pub(crate) const fn kind(self) -> Kind {
        Kind::of_number(self.file >> KIND)
    }

    /// The number without the kind.
    pub(crate) const fn owner(self) -> u64 {
        self.file & ((1 << KIND) - 1)
    }

    /// A number that is different for most other pages.
    #[inline(always)]
    #[must_use]
    pub const fn hash(self) -> u64 {
        // Neighbours of a file spread over the chains as 2⁶⁴ / φ spreads them; the high bits are the
        // good ones.
        let mixed = self.index.wrapping_add(self.file.wrapping_mul(0xff51_afd7_ed55_8ccd));
        let mixed = mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed ^ (mixed >> 32)
    }

    /// The chain of the page, of 2 to the power of 64 less `shift`, which are 16 at least. Sixteen neighbours of a file have
    /// sixteen chains in a row, whose heads are on one line. Rows, and pages that are some distance apart, lie as far from
    /// each other as they can, as the high bits of multiples of 2⁶⁴ / φ do.
    #[inline(always)]
    pub(super) const fn chain(self, shift: u32) -> usize {
        let row = (self.index >> ROW).wrapping_add(self.file.rotate_left(32));
        let mixed = row.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> shift;
        (mixed ^ self.index & ((1 << ROW) - 1)) as usize
    }
}

/// A slot of the table. A line of its own: threads that read different pages have nothing in common.
#[repr(align(64))]
pub(super) struct Slot<P: Host> {
    pub(super) word: P::Word,
    pub(super) file: P::Word,
    pub(super) index: P::Word,
    pub(super) frame: P::Word,
    /// What the store said, where the page could not be filled.
    pub(super) code: P::Word,
    /// Where the page is among the lists: see `lists.rs`.
    pub(super) place: P::Word,
    /// The next slot of the chain.
    pub(super) next: P::Half,
    pub(super) mark: P::Byte,
    /// What is to be added to the marks of the pages of the block that begins here: see `blocks.rs`.
    pub(super) block_mark: P::Byte,
    /// The bits of its count of readers in a word of a [lane](super::lanes).
    pub(super) shift: u8,
}

impl<P: Host> Slot<P> {
    pub(super) fn new(id: SlotId) -> Self {
        Self {
            word: P::Word::new(Word::CLAIMED),
            file: P::Word::new(0),
            index: P::Word::new(0),
            frame: P::Word::new(0),
            code: P::Word::new(0),
            place: P::Word::new(0),
            next: P::Half::new(NONE),
            mark: P::Byte::new(0),
            block_mark: P::Byte::new(0),
            shift: shift_of(id),
        }
    }

    /// Relaxed: exact for a thread that has a token of the slot or the lock of its chain, a guess for
    /// others, who look again when they have one.
    #[inline(always)]
    pub(super) fn is(&self, key: Key) -> bool {
        self.index.load(Relaxed) == key.index && self.file.load(Relaxed) == key.file
    }

    pub(super) fn key(&self) -> Key {
        Key { file: self.file.load(Relaxed), index: self.index.load(Relaxed) }
    }

    pub(super) fn set_key(&self, key: Key) {
        self.file.store(key.file, Relaxed);
        self.index.store(key.index, Relaxed);
    }
}

/// What a thread has of a slot.
pub trait Token {
    /// The slot.
    fn id(&self) -> SlotId;
}

macro_rules! tokens {
    ($($(#[$doc:meta])+ $name:ident)+) => {$(
        $(#[$doc])+
        #[derive(PartialEq, Eq, Debug)]
        #[must_use = "a page stays as it is until its token is given back"]
        pub struct $name(pub(super) SlotId);

        impl Token for $name {
            #[inline(always)]
            fn id(&self) -> SlotId {
                self.0
            }
        }
    )+};
}

tokens! {
    /// The slot stays with its page. Its bytes may change or not be there yet.
    Hold
    /// This thread has the bytes for itself.
    Writer
    /// The bytes are on their way to the store: a [`Reader`] that says how it went.
    Writeback
    /// A slot that is in no chain and this thread's alone.
    Claimed
}

/// The bytes are there and do not change.
#[derive(PartialEq, Eq, Debug)]
#[must_use = "a page stays as it is until its token is given back"]
pub struct Reader {
    pub(super) id: SlotId,
    /// Where it is counted.
    pub(super) lane: Lane,
}

impl Reader {
    /// One that is counted at the word.
    pub(super) const fn at_word(id: SlotId) -> Self {
        Self { id, lane: Lane::WORD }
    }
}

impl Token for Reader {
    #[inline(always)]
    fn id(&self) -> SlotId {
        self.id
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;

    const PAGES: u64 = 1 << 14;

    /// Slots that are passed on the way to a page, on average, with twice as many chains.
    fn passed(pages: impl Iterator<Item = (u64, u64)>) -> f64 {
        let chains = PAGES as usize * 2;
        let mut lengths = vec![0_u64; chains];
        let mut count = 0;
        for (file, index) in pages {
            lengths[Key { file, index }.chain(64 - chains.ilog2())] += 1;
            count += 1;
        }
        assert_eq!(count, PAGES);
        lengths.iter().map(|&length| length * length.saturating_sub(1) / 2).sum::<u64>() as f64
            / PAGES as f64
    }

    #[test]
    fn neighbours_have_chains_on_a_line_and_regular_pages_do_not_crowd() {
        for first in (0..PAGES).step_by(1 << ROW) {
            let row = (first..first + (1 << ROW)).map(|index| Key { file: 3, index }.chain(48));
            let mut row: Vec<usize> = row.collect();
            row.sort_unstable();
            assert!(row.windows(2).all(|pair| pair[1] == pair[0] + 1) && row[0].is_multiple_of(16));
        }
        // By chance it is 0.25. With the last bits in the place of the product's every 512th page had more than 5.
        for (distance, most) in [(1, 0.01), (16, 0.01), (512, 1.0), (4096, 0.25)] {
            let there = passed((0..PAGES).map(|at| (1, at * distance)));
            assert!(there < most, "every {distance}th page of a file: {there}");
        }
        for (each, most) in [(1, 0.01), (4, 0.1), (64, 0.25), (1024, 0.1)] {
            let there = passed((0..PAGES).map(|at| (1 + at / each, at % each)));
            assert!(there < most, "files of {each} pages: {there}");
        }
    }
}
