//! Harvest: all free frames of a line at once, for the stack of a CPU.

use super::FreeMap;
use super::bits::{low_bits, lowest_set};
use super::current::Current;
use super::hints::{Kind, Start, is_hinted};
use super::line::MAX_WORDS;
use super::shape::{Pageblock, WordIndex};
use crate::platform::stay::{Stay, cost};
use crate::platform::{AtomicWord, Platform, StayOf};
use crate::types::migrate_type::MigrateType;
use core::sync::atomic::Ordering::SeqCst;

/// Lines that a refill visits in their order before it asks what they bring.
const PATIENCE: u32 = 16;
/// The same of those that have crumbs alone, which bring fewer each.
const PATIENCE_WITH_CRUMBS: u32 = 2 * PATIENCE;
/// Frames that they bring each, at least, or the refill goes where there is more.
const POOR: u32 = 4;

/// A refill's visits to lines in their order. Where they had next to nothing, because another CPU is freeing into
/// them right now, each frame costs a visit: the refill then goes to lines that have runs of frames before it
/// comes back.
#[derive(Default)]
struct Visits {
    lines: u32,
    frames: u32,
}

impl Visits {
    const fn are_poor(&self) -> bool {
        self.are_poor_after(PATIENCE)
    }

    const fn are_poor_after(&self, lines: u32) -> bool {
        self.lines >= lines && self.frames < self.lines * POOR
    }

    const fn count(&mut self, frames: u32) {
        self.lines += 1;
        self.frames += frames;
    }
}

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
    /// all that it has, then from the next, until there are `want`, where code is those without runs
    /// of four before others; then from the first whole pageblock, which gets the type. `each` is called with words and bits, ascending in each pageblock. Fewer than `want` (0 to `want`): no hint led to more. O(lines that are emptied).
    ///
    /// With `opened`, what is left of a whole pageblock stays the CPU's, without hints, for its next refills;
    /// so that what it allocates one after the other is not among the frames of others.
    pub fn refill(
        &self,
        migrate: MigrateType,
        want: u32,
        start: Start,
        mut opened: Option<&mut Current>,
        each: &mut impl FnMut(WordIndex, u64),
    ) -> Harvest {
        let (mut harvest, mut visits) = (Harvest::default(), Visits::default());
        if StayOf::<P>::BLOCKS > 0 && is_hinted(migrate) {
            let own = opened.as_deref().and_then(|own| own.pageblock());
            self.harvest_crumbs(own, migrate, want, (start, &mut visits), &mut harvest, each);
        }
        if let Some(own) = opened.as_deref_mut() {
            self.harvest_before(own, migrate, want, (start, &mut visits), &mut harvest, each);
            self.harvest_opened(own, migrate, want, &mut harvest, each);
        }
        self.harvest_more(migrate, want, (start, &mut visits), &mut harvest, each);
        while harvest.frames < want {
            let whole = self.open_whole_in_part(migrate, start);
            let Some((pageblock, (before, _transit))) = whole else { break };
            if before != migrate {
                harvest.claimed = Some((pageblock, before));
            }
            let count = (want - harvest.frames).min(self.shape().pageblock_frames());
            let own = opened.as_deref_mut().filter(|_| count < self.shape().pageblock_frames());
            self.open_first(pageblock, count, own.is_none(), each);
            if let Some(own) = own {
                // What it had is used up, but for what a race left.
                self.release(own);
                own.set(pageblock);
            }
            harvest.frames += count;
            harvest.last = Some(pageblock);
        }
        if start.has_part() && harvest.frames < want {
            self.harvest_elsewhere(migrate, want, start, &mut harvest, each);
        }
        harvest
    }

    /// No whole pageblock is left: takes frames of lines outside the CPU's own part.
    #[cold]
    #[inline(never)]
    fn harvest_elsewhere(
        &self,
        migrate: MigrateType,
        want: u32,
        start: Start,
        harvest: &mut Harvest,
        each: &mut impl FnMut(WordIndex, u64),
    ) {
        let visits = &mut Visits::default();
        self.harvest_more(migrate, want, (start.anywhere(), visits), harvest, each);
    }

    /// Takes frames of pageblocks that have crumbs alone, and leaves runs to blocks; not behind the opened pageblock, if there is
    /// one, nor where memory may become whole.
    fn harvest_crumbs(
        &self,
        own: Option<Pageblock>,
        migrate: MigrateType,
        want: u32,
        (start, visits): (Start, &mut Visits),
        harvest: &mut Harvest,
        each: &mut impl FnMut(WordIndex, u64),
    ) {
        let Some(mut found) = self.find_crumbs(migrate, start, own) else { return };
        let end = self.end_of_crumbs(migrate, start, own);
        let is_before = |found: Pageblock| {
            let distance = |to| start.distance(to, self.shape());
            end.is_none_or(|end| distance(found) < distance(end))
        };
        while is_before(found) {
            // Lost to another CPU: the next one may be as near.
            if self.clear(Kind::Free(migrate), found) {
                visits.count(self.harvest_into(found, migrate, want, harvest, each));
            }
            if harvest.frames == want || visits.are_poor_after(PATIENCE_WITH_CRUMBS) {
                return;
            }
            let Some(next) = self.find_crumbs(migrate, start, end) else { return };
            found = next;
        }
    }

    /// Takes frames from lines that come before the opened pageblock, if there is one.
    fn harvest_before(
        &self,
        opened: &Current,
        migrate: MigrateType,
        want: u32,
        (start, visits): (Start, &mut Visits),
        harvest: &mut Harvest,
        each: &mut impl FnMut(WordIndex, u64),
    ) {
        let Some(own) = opened.pageblock().filter(|_| is_hinted(migrate)) else { return };
        let kind = Kind::Free(migrate);
        let nearer = |found: &Pageblock| {
            let distance = |to| start.distance(to, self.shape());
            start.is_own(*found) && distance(*found) < distance(own)
        };
        while harvest.frames < want && !visits.are_poor() {
            let Some(found) = self.find(kind, start).filter(nearer) else { break };
            if !self.stay.affords(cost::HARVEST) {
                break;
            }
            // Lost to another CPU: the next one may be as near.
            if self.clear(kind, found) {
                visits.count(self.harvest_into(found, migrate, want, harvest, each));
            }
        }
    }

    /// Goes on with the opened pageblock, which is the CPU's until it is used up, or of another type.
    fn harvest_opened(
        &self,
        opened: &mut Current,
        migrate: MigrateType,
        want: u32,
        harvest: &mut Harvest,
        each: &mut impl FnMut(WordIndex, u64),
    ) {
        let Some(own) = opened.pageblock().filter(|_| harvest.frames < want) else { return };
        let (count, left) = self.harvest_held(own, migrate, want - harvest.frames, each);
        if count > 0 {
            harvest.frames += count;
            harvest.last = Some(own);
        }
        if !left {
            *opened = Current::NONE;
        }
    }

    /// Takes frames of a pageblock whose hint the caller has cleared; how many.
    fn harvest_into(
        &self,
        pageblock: Pageblock,
        migrate: MigrateType,
        want: u32,
        harvest: &mut Harvest,
        each: &mut impl FnMut(WordIndex, u64),
    ) -> u32 {
        let taken = self.harvest(pageblock, migrate, want - harvest.frames, each);
        self.stay.spend(cost::VISIT + taken / 2);
        if taken > 0 {
            harvest.frames += taken;
            harvest.last = Some(pageblock);
        }
        taken
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
        let visits = &mut Visits::default();
        self.harvest_more(migrate, want, (start, visits), &mut harvest, each);
        harvest
    }

    fn harvest_more(
        &self,
        migrate: MigrateType,
        want: u32,
        (start, visits): (Start, &mut Visits),
        harvest: &mut Harvest,
        each: &mut impl FnMut(WordIndex, u64),
    ) {
        while is_hinted(migrate) && harvest.frames < want {
            let rich = if visits.are_poor() { self.win_rich(migrate, start) } else { None };
            if let Some(pageblock) = rich {
                self.harvest_into(pageblock, migrate, want, harvest, each);
                continue;
            }
            // Reserves it: of two CPUs that clear a hint one is told that it was set.
            let Some(pageblock) = self.win(Kind::Free(migrate), start) else { break };
            visits.count(self.harvest_into(pageblock, migrate, want, harvest, each));
        }
    }

    /// Reserves the first pageblock that has two free frames beside each other; where there is none, larger runs.
    fn win_rich(&self, migrate: MigrateType, start: Start) -> Option<Pageblock> {
        let pageblock = (1..self.shape().p()).find_map(|order| {
            let kind = Kind::Run(migrate, order);
            self.win(kind, start)
        })?;
        // What leads to order 0 in its order would lead here again, in vain.
        self.clear(Kind::Free(migrate), pageblock);
        Some(pageblock)
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
        let (count, left) = self.harvest_held(pageblock, migrate, most, each);
        if left {
            self.settle(pageblock);
        }
        count
    }

    /// The same for a CPU that keeps the pageblock: no hint is raised if frames are left. Returns how many it
    /// took, and whether there are more of its type.
    fn harvest_held(
        &self,
        pageblock: Pageblock,
        migrate: MigrateType,
        most: u32,
        each: &mut impl FnMut(WordIndex, u64),
    ) -> (u32, bool) {
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
            return (0, false);
        }
        if count == 0 {
            self.settle(pageblock);
        }
        taken().for_each(|(word, bits)| each(WordIndex(word), bits));
        (count, left && count > 0)
    }

    /// Hands out the first `count` frames of a pageblock that the caller owns, and frees the rest; with its
    /// hints or without.
    fn open_first(
        &self,
        pageblock: Pageblock,
        count: u32,
        hinted: bool,
        each: &mut impl FnMut(WordIndex, u64),
    ) {
        if count < self.shape().pageblock_frames() {
            self.put_around(pageblock, pageblock.first_frame(self.shape()), count);
            if hinted {
                self.settle(pageblock);
            }
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
