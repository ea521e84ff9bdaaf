//! Harvest: all free frames of a line at once, for the stack of a CPU.

use super::FreeMap;
use super::bits::{low_bits, lowest_set};
use super::hints::{Kind, Start, is_hinted};
use super::line::MAX_WORDS;
use super::shape::{Pageblock, WordIndex};
use crate::platform::{AtomicWord, Platform};
use crate::types::migrate_type::MigrateType;
use core::sync::atomic::Ordering::SeqCst;

/// What a harvest brought.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Harvest {
    /// Frames.
    pub frames: u32,
    /// The pageblock that the last of them came from: the farthest from the start.
    pub last: Option<Pageblock>,
    /// A whole pageblock among them that was of another type, and which.
    pub claimed: Option<(Pageblock, MigrateType)>,
}

impl<P: Platform> FreeMap<'_, P> {
    /// Takes frames of the type for a CPU's stack: from the first pageblock that has free frames
    /// all that it has, then from the next, until there are `want`; then from the first whole
    /// pageblock, which gets the type. `each` is called with words and bits, ascending in each
    /// pageblock. Fewer than `want` (0 to `want`): no hint led to more. O(lines that are emptied).
    pub fn refill(
        &self,
        migrate: MigrateType,
        want: u32,
        start: Start,
        each: &mut impl FnMut(WordIndex, u64),
    ) -> Harvest {
        let mut harvest = self.harvest_lines(migrate, want, start, each);
        while harvest.frames < want {
            // The type is a hint here: it is only told.
            let inside = |pageblock| (self.type_of(pageblock), self.in_transit(pageblock));
            let opened = self.open_whole_inside(migrate, start, Pageblock(0), inside);
            let Some((pageblock, (before, _transit))) = opened else { break };
            if before != migrate {
                harvest.claimed = Some((pageblock, before));
            }
            let count = (want - harvest.frames).min(self.shape.pageblock_frames());
            self.open_first(pageblock, count, each);
            harvest.frames += count;
            harvest.last = Some(pageblock);
        }
        harvest
    }

    /// The same from lines alone, without whole pageblocks: for another type's frames, of which
    /// a batch is taken.
    pub fn harvest_lines(
        &self,
        migrate: MigrateType,
        want: u32,
        start: Start,
        each: &mut impl FnMut(WordIndex, u64),
    ) -> Harvest {
        let mut harvest = Harvest::default();
        if !is_hinted(migrate) {
            return harvest;
        }
        while harvest.frames < want {
            // Reserves it: of two CPUs that clear a hint one is told that it was set.
            let Some(pageblock) = self.win(Kind::Free(migrate), start) else { break };
            let taken = self.harvest(pageblock, migrate, want - harvest.frames, each);
            if taken > 0 {
                harvest.frames += taken;
                harvest.last = Some(pageblock);
            }
        }
        harvest
    }

    /// Takes up to `most` free frames of a pageblock, the lowest, if it is of the type; whether its
    /// hint is set or not. The hint is as it must be afterwards (M-2), wherever it was lowered
    /// before. Returns how many.
    pub fn harvest(
        &self,
        pageblock: Pageblock,
        migrate: MigrateType,
        most: u32,
        each: &mut impl FnMut(WordIndex, u64),
    ) -> u32 {
        let (words, bits) = self.line(pageblock);
        let mut taken = [0; MAX_WORDS];
        let (mut count, mut left) = (0, false);
        for (taken, word) in taken.iter_mut().zip(words.clone()) {
            let word = self.frames_word(WordIndex(word));
            // After the hint was lowered (M-4): a free that saw it set is seen here.
            let seen = word.load(SeqCst) & bits;
            if seen == 0 {
                continue;
            }
            let wanted = lowest_set(seen, most - count);
            // A swap may bring more than was seen, never more than there is room for.
            *taken = if bits == u64::MAX && most - count >= u64::BITS {
                word.swap(0, SeqCst)
            } else {
                word.fetch_and(!wanted, SeqCst) & wanted
            };
            left |= wanted != seen;
            count += taken.count_ones();
            if count == most {
                left = true;
                break;
            }
        }
        let taken = || words.clone().zip(taken).filter(|&(_, bits)| bits != 0);
        if count > 0 && self.type_of(pageblock) != migrate {
            // M-5.
            let transit = self.in_transit(pageblock);
            taken().for_each(|(word, bits)| {
                let put_back = self.free_frames(WordIndex(word), bits);
                debug_assert!(put_back.is_ok(), "frames were freed while this CPU had them");
            });
            drop(transit);
            self.was_put_back(pageblock);
            return 0;
        }
        if left || count == 0 {
            self.settle(pageblock);
        }
        taken().for_each(|(word, bits)| each(WordIndex(word), bits));
        count
    }

    /// Hands out the first `count` frames of a pageblock that the caller owns, and frees the rest.
    fn open_first(&self, pageblock: Pageblock, count: u32, each: &mut impl FnMut(WordIndex, u64)) {
        if count < self.shape.pageblock_frames() {
            self.put_around(pageblock, pageblock.first_frame(self.shape), count);
            self.settle(pageblock);
        }
        let (words, bits) = self.line(pageblock);
        let mut rest = count;
        for word in words {
            let here = rest.min(bits.count_ones());
            if here > 0 {
                each(WordIndex(word), low_bits(here) << bits.trailing_zeros());
            }
            rest -= here;
        }
    }
}
