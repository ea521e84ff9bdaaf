//! Pageblocks whose runs are small, by more than one hint of each: they have no better use for a run than a request that
//! it fits.
//!
//! A list of blocks by size splits the smallest that will do, wherever it lies. A CPU that takes what lies nearest fills up
//! runs with single frames, and splits what is largest in its current pageblock, while frames and runs that fit stand open
//! elsewhere; and where blocks live about equally long, what it puts there keeps pageblocks from becoming whole. So what
//! fits comes first, but only where a pageblock has nothing larger: one with larger runs is left to empty (ADR 122, ADR 123).

use super::FreeMap;
use super::bits::{Runs, exact_runs, low_bits, lowest_set};
use super::hints::{Kind, Start, is_hinted};
use super::shape::{Frame, Pageblock, SECTION, WordIndex};
use crate::platform::{AtomicWord, Platform};
use crate::types::migrate_type::MigrateType;
use crate::types::units::Order;
use core::ops::Range;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};

/// By how much the run that a block is taken from may be larger: its other half is for the next.
const LARGER: u32 = 1;
/// A pageblock has crumbs if it has no runs of this order, or larger ones.
const NO_CRUMBS: u32 = 2;
/// A pageblock with a run of this order, or a larger one, may become whole: what lies behind the first of them is left to
/// empty, crumbs as well.
const MAY_EMPTY: u32 = 6;

/// Blocks that are taken at once, at most.
const AT_ONCE: usize = 8;

/// The first frames of blocks of one order, up to eight, of one pageblock.
///
/// ```
/// # use core::sync::atomic::AtomicU64;
/// use zonal::platform::single::SingleThread;
/// use zonal::zone::free_map::{Frame, MapMemory, MapShape, MapTables, Pageblock, Start};
/// use zonal::{MigrateType::Movable, Order};
///
/// let shape = MapShape::new(Order::new(6).unwrap(), 2).unwrap();
/// # let words = |n: usize| (0..n).map(|_| AtomicU64::new(0)).collect::<Vec<_>>();
/// # let (lines, sections) = (words(shape.line_words()), words(shape.section_words()));
/// # let (summaries, types) = (words(shape.summary_words()), words(2));
/// # let memory = MapMemory { lines: &lines, sections: &sections, summaries: &summaries, types: &types };
/// let tables = MapTables::<SingleThread>::new(shape, memory).unwrap();
/// let map = tables.map();
/// map.set_type(Pageblock(0), Movable);
/// let two = Order::new(1).unwrap();
/// for frame in [8, 20, 40] {
///     map.free_block(Frame(frame), two).unwrap();
/// }
/// let wanted = (Movable, two, false);
/// let taken = map.take_fitting(Pageblock(1), wanted, (Start::default(), 2));
/// assert_eq!(taken.frames().map(|frame| frame.0).collect::<Vec<_>>(), [8, 20]);
/// assert_eq!(map.free_in(Pageblock(0)), 2);
/// ```
#[derive(Clone, Copy, Default, Debug)]
pub struct Fitting {
    first: [u32; AT_ONCE],
    len: usize,
}

impl Fitting {
    /// Adds those that begin at the set bits of `runs`, for which there must be room, counted from a frame on.
    fn add(&mut self, from: Frame, mut runs: u64) {
        for place in self.first.iter_mut().skip(self.len).take(runs.count_ones() as usize) {
            *place = from.0 + runs.trailing_zeros();
            runs &= runs - 1;
            self.len += 1;
        }
    }

    /// The blocks, the lowest first.
    #[must_use]
    pub fn frames(&self) -> impl DoubleEndedIterator<Item = Frame> + ExactSizeIterator {
        self.first[..self.len.min(AT_ONCE)].iter().map(|&first| Frame(first))
    }
}

impl<P: Platform> FreeMap<'_, P> {
    /// Takes blocks of `order`, of 1 at least and below a word, from a pageblock before the current one, `own`, whose largest runs
    /// are just as large: up to `most` of them. Or else, if it may be `larger`, half of a run of the next order, or both if `most` is more than one. None of them: no
    /// such pageblock is known. O(sections between the two), as hints of larger runs are not summed up.
    #[must_use]
    #[inline(never)]
    pub fn take_fitting(
        &self,
        own: Pageblock,
        (migrate, order, larger): (MigrateType, Order, bool),
        (start, most): (Start, u32),
    ) -> Fitting {
        let (least, p) = (u32::from(order.get()), self.shape().p());
        if !is_hinted(migrate) {
            return Fitting::default();
        }
        let last = least + if larger { LARGER } else { 0 };
        for step in (least..=last).filter(|&step| step < p) {
            let kind = Kind::Run(migrate, step);
            while let Some(pageblock) = self.find_largest((migrate, step), start, own) {
                // Of the next order it may have some that fit, too.
                if step == least || self.has(Kind::Run(migrate, least), pageblock) {
                    let fitting = self.take_runs(pageblock, (migrate, order), most);
                    if fitting.len > 0 {
                        return fitting;
                    }
                }
                if step > least {
                    let halves = self.take_halves(pageblock, (migrate, order), most);
                    if halves.len > 0 {
                        return halves;
                    }
                }
                // As in `take_block`.
                self.lower_stale(kind, pageblock, (migrate, self.orders_in(pageblock)));
            }
        }
        Fitting::default()
    }

    /// Takes half of a run of the next order, or both if there may be several.
    fn take_halves(
        &self,
        pageblock: Pageblock,
        (migrate, order): (MigrateType, Order),
        most: u32,
    ) -> Fitting {
        let mut halves = Fitting::default();
        let Some(next) = order.up() else { return halves };
        let taken = match most > 1 {
            true => self.take_runs(pageblock, (migrate, next), 1).frames().next(),
            false => self.take_led(None, pageblock, (migrate, order, next.get().into())),
        };
        if let Some(first) = taken {
            halves.add(first, if most > 1 { 1 | 1 << order.size() } else { 1 });
        }
        halves
    }

    /// Takes maximal runs of an order below a word from a line, up to `most`, the lowest. The hint is as it must be
    /// afterwards, if there were any.
    fn take_runs(
        &self,
        pageblock: Pageblock,
        (migrate, order): (MigrateType, Order),
        most: u32,
    ) -> Fitting {
        let ((words, bits), step) = (self.line(pageblock), order.get().into());
        let (first, room) = (words.start, (most as usize).clamp(1, AT_ONCE));
        let (mut taken, mut others, mut more) = (Fitting::default(), 0, false);
        let any = Runs::of(step);
        for (word, at) in self.frames_words(words).iter().zip(first..) {
            let mut seen = word.load(SeqCst);
            while any.ends(seen & bits) != 0 {
                let all = exact_runs(seen & bits, step);
                let runs = lowest_set(all, (room - taken.len) as u32);
                more |= runs != all;
                if runs == 0 {
                    break;
                }
                // The word as it was seen, so that each is a maximal run still.
                let left = seen & !(runs * low_bits(order.size()));
                match word.compare_exchange(seen, left, SeqCst, SeqCst) {
                    Ok(_) => {
                        taken.add(WordIndex(at).first_frame(), runs);
                        seen = left;
                        break;
                    }
                    Err(now) => seen = now,
                }
            }
            others |= seen & bits;
        }
        if taken.len > 0 && self.type_of(pageblock) != migrate {
            // M-5.
            taken.frames().for_each(|frame| self.put_back_typed(pageblock, frame, order));
            return Fitting::default();
        }
        if taken.len > 0 && !more {
            self.lower_taken(pageblock, (migrate, step), others != 0);
        }
        taken
    }

    /// Whether a pageblock has a hint. Relaxed: a first look.
    fn has(&self, kind: Kind, pageblock: Pageblock) -> bool {
        let (section, bit) = pageblock.place();
        self.bitmap_word(kind, 0, section).load(Relaxed) & bit != 0
    }

    /// The first pageblock from the start on, and before `end`, with runs of an order and none of a larger one.
    fn find_largest(
        &self,
        (migrate, step): (MigrateType, u32),
        start: Start,
        end: Pageblock,
    ) -> Option<Pageblock> {
        let hints = (step, step + 1);
        self.find_with((Kind::Run(migrate, step), migrate), hints, start, Some(end))
    }

    /// The first pageblock of crumbs from the start on, and before `end`. O(sections).
    pub(super) fn find_crumbs(
        &self,
        migrate: MigrateType,
        start: Start,
        end: Option<Pageblock>,
    ) -> Option<Pageblock> {
        self.find_with((Kind::Free(migrate), migrate), (0, NO_CRUMBS), start, end)
    }

    /// Where crumbs are looked for no further: the first pageblock that may become whole, or `own` if that comes before.
    pub(super) fn end_of_crumbs(
        &self,
        migrate: MigrateType,
        start: Start,
        own: Option<Pageblock>,
    ) -> Option<Pageblock> {
        let large = (MAY_EMPTY..self.shape().p()).map(|step| Kind::Run(migrate, step));
        let first = large.filter_map(|kind| self.find(kind, start));
        first.chain(own).min_by_key(|&found| start.distance(found, self.shape()))
    }

    /// The first pageblock from the start on, and before `end`, with the hint of one order, which `kind` is of, and without those from
    /// another on.
    fn find_with(
        &self,
        kind: (Kind, MigrateType),
        hints: (u32, u32),
        start: Start,
        end: Option<Pageblock>,
    ) -> Option<Pageblock> {
        let (first, last) = (start.pageblock.0, self.shape().pageblocks());
        let found = match end {
            Some(end) if first <= end.0 => self.find_between(kind, hints, first..end.0),
            _ => {
                let turned = end.map_or(first, |end| end.0);
                let found = self.find_between(kind, hints, first..last);
                found.or_else(|| self.find_between(kind, hints, 0..turned))
            }
        };
        found.filter(|&pageblock| start.is_own(pageblock))
    }

    fn find_between(
        &self,
        (kind, migrate): (Kind, MigrateType),
        (with, without): (u32, u32),
        mut range: Range<u32>,
    ) -> Option<Pageblock> {
        while !range.is_empty() {
            let Pageblock(found) = self.find_from(kind, range.start)?;
            let section = found / SECTION;
            let hints = self.hints_in(section, migrate);
            // Relaxed: a first look, as all of a search are.
            let of = |word: &P::Word| word.load(Relaxed);
            let larger = hints.iter().skip(without as usize).fold(0, |any, word| any | of(word));
            let here = hints.get(with as usize).map_or(0, of) & !larger;
            let here = here & u64::MAX << (found % SECTION);
            if here != 0 {
                let found = section * SECTION + here.trailing_zeros();
                return (found < range.end).then_some(Pageblock(found));
            }
            range.start = (section + 1) * SECTION;
        }
        None
    }
}
