//! The map beside a plain array of what is free, on one thread.

mod claims;
mod current;
mod finding;
mod refill;
mod small_runs;
mod threads;

extern crate std;

use super::hints::Kind;
use super::*;
use crate::MigrateType::{self, Cma, HighAtomic, Isolate, Movable, Reclaimable, Unmovable};
use crate::Order;
use crate::platform::single::SingleThread;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;
use std::boxed::Box;
use std::vec::Vec;
use std::{format, vec};

/// Words at a multiple of a cache line.
fn words(count: usize) -> &'static [AtomicU64] {
    let words: &[_] = (0..count + 7).map(|_| AtomicU64::new(0)).collect::<Vec<_>>().leak();
    let skip = words.as_ptr().addr().next_multiple_of(64) - words.as_ptr().addr();
    &words[skip / 8..skip / 8 + count]
}

fn order(number: u32) -> Order {
    Order::new(number as u8).expect("an order")
}

/// An empty map with all types movable.
fn map(p: u32, pageblocks: u32) -> FreeMap<'static, SingleThread> {
    let shape = MapShape::new(order(p), pageblocks).expect("a shape");
    let memory = MapMemory {
        lines: words(shape.line_words()),
        sections: words(shape.section_words()),
        summaries: words(shape.summary_words()),
        types: words(pageblocks as usize),
    };
    let tables = Box::new(MapTables::new(shape, memory).expect("it fits"));
    let map = Box::leak(tables).map();
    for pageblock in 0..pageblocks {
        map.set_type(Pageblock(pageblock), Movable);
    }
    map
}

/// What is free, and what is held.
struct Model {
    map: FreeMap<'static, SingleThread>,
    free: Vec<bool>,
    held: Vec<(u32, u32)>,
    current: [Current; 3],
    /// Pageblocks that refills have opened.
    opened: [Current; 3],
    random: u64,
}

impl Model {
    fn new(p: u32, pageblocks: u32, seed: u64) -> Self {
        let map = map(p, pageblocks);
        for pageblock in 0..pageblocks {
            let pageblock = Pageblock(pageblock);
            match pageblock.0 % 5 {
                0 => map.put_untouched(pageblock),
                // A ragged end: its last frame is not there.
                4 => (0..(1 << p) - 1).try_for_each(|at| {
                    let (word, bit) = Frame(pageblock.first_frame(map.shape()).0 + at).word();
                    map.free_frames(word, bit)
                }),
                _ => map.free_block(pageblock.first_frame(map.shape()), order(p)),
            }
            .expect("nothing is free yet");
        }
        let ragged = |frame: u32| (frame >> p) % 5 == 4 && frame % (1 << p) == (1 << p) - 1;
        let free = (0..pageblocks << p).map(|frame| !ragged(frame)).collect();
        Self {
            map,
            free,
            held: Vec::new(),
            current: Default::default(),
            opened: Default::default(),
            random: seed,
        }
    }

    fn below(&mut self, bound: u32) -> u32 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        ((self.random >> 33) % u64::from(bound)) as u32
    }

    fn took(&mut self, frame: u32, order: u32) {
        assert_eq!(frame % (1 << order), 0, "aligned");
        for at in frame..frame + (1 << order) {
            assert!(core::mem::replace(&mut self.free[at as usize], false), "{at} was not free");
        }
        self.held.push((frame, order));
    }

    fn took_words(&mut self, taken: &[(WordIndex, u64)]) {
        for &(word, mut bits) in taken {
            while bits != 0 {
                self.took(word.first_frame().0 + bits.trailing_zeros(), 0);
                bits &= bits - 1;
            }
        }
    }

    fn free(&mut self, at: usize) {
        let (frame, k) = self.held.swap_remove(at);
        self.map.free_block(Frame(frame), order(k)).expect("it was held");
        (frame..frame + (1 << k)).for_each(|at| self.free[at as usize] = true);
    }

    fn start(&mut self) -> Start {
        let pageblocks = self.map.shape().pageblocks();
        let start = Start::new(Pageblock(self.below(pageblocks)), self.below(64) as u16);
        start.with_part(self.below(2) as u16)
    }

    fn migrate(&mut self) -> MigrateType {
        [Movable, Unmovable, Reclaimable][self.below(3) as usize]
    }

    fn step(&mut self) {
        let p = self.map.shape().p();
        let (migrate, start) = (self.migrate(), self.start());
        match self.below(16) {
            0..=4 if !self.held.is_empty() => {
                let at = self.below(self.held.len() as u32) as usize;
                self.free(at);
            }
            5..=8 => self.take_small(migrate, start),
            9 => {
                let k = p + self.below(11 - p.min(10));
                if let Some(pageblock) =
                    (k <= 10).then(|| self.map.take_large(order(k), start)).flatten()
                {
                    self.took(pageblock.first_frame(self.map.shape()).0, k);
                }
            }
            10 | 11 => {
                let want = 1 + self.below(40);
                let mut taken = vec![];
                let keeps = self.below(2) == 0;
                let opened = keeps.then_some(&mut self.opened[migrate.index()]);
                let harvest = self.map.refill(migrate, want, start, opened, &mut |word, bits| {
                    taken.push((word, bits));
                });
                let frames: u32 = taken.iter().map(|(_, bits)| bits.count_ones()).sum();
                assert!(harvest.frames == frames && frames <= want, "{harvest:?}");
                self.took_words(&taken);
            }
            12 => {
                let pageblock = Pageblock(self.below(self.map.shape().pageblocks()));
                let to = MigrateType::ALL[self.below(6) as usize];
                self.map.set_type(pageblock, to);
            }
            13 => {
                let pageblock = Pageblock(self.below(self.map.shape().pageblocks()));
                let _claimed = self.map.claim_if_half_free(pageblock, migrate);
            }
            14 => self.free_bulk(),
            _ => {
                let which = migrate.index();
                self.map.release(&mut self.current[which]);
                self.map.release(&mut self.opened[which]);
            }
        }
        self.check();
    }

    fn take_small(&mut self, migrate: MigrateType, start: Start) {
        let p = self.map.shape().p();
        let k = self.below(p);
        let current = &mut self.current[migrate.index()];
        let holds = k > 0 && start.spread.is_multiple_of(2);
        match self.map.take_own(migrate, order(k), start, holds.then_some(current)) {
            Some(frame) => {
                let pageblock = frame.pageblock(self.map.shape());
                assert_eq!(self.map.type_of(pageblock), migrate);
                self.took(frame.0, k);
            }
            None => {
                let look = self.map.last_look(|other| other == migrate, order(k));
                let at = migrate.index();
                let kept = [&self.current[at], &self.opened[at]];
                let held = kept.iter().any(|kept| kept.pageblock().is_some());
                assert!(held || look == LastLook::Nothing, "{look:?}");
            }
        }
    }

    /// Frees all held frames of one word at once.
    fn free_bulk(&mut self) {
        let Some(&(frame, 0)) = self.held.last() else { return };
        let (word, _) = Frame(frame).word();
        let mut mask = 0;
        self.held.retain(|&(frame, k)| {
            let (own, bit) = Frame(frame).word();
            let gives = k == 0 && own == word;
            mask |= if gives { bit } else { 0 };
            !gives
        });
        self.map.free_frames(word, mask).expect("they were held");
        let first = word.first_frame().0;
        (0..64).filter(|bit| mask >> bit & 1 == 1).for_each(|bit| {
            self.free[(first + bit) as usize] = true;
        });
    }

    /// M-1 and M-2, and that the counts say what is.
    fn check(&self) {
        let (map, shape) = (&self.map, self.map.shape());
        let mut by_type = [0_u64; 6];
        for pageblock in (0..shape.pageblocks()).map(Pageblock) {
            let first = pageblock.first_frame(shape).0;
            let frames = &self.free[first as usize..(first + shape.pageblock_frames()) as usize];
            let free = frames.iter().filter(|&&free| free).count() as u32;
            assert_eq!(map.free_in(pageblock), free, "{pageblock:?}");
            by_type[map.type_of(pageblock).index()] += u64::from(free);
            let mut seen = vec![false; frames.len()];
            let mut largest = None;
            map.visit_free(pageblock, |frame, k| {
                let at = (frame.0 - first) as usize;
                assert!(at.is_multiple_of(1 << k.get()), "aligned");
                seen[at..at + (1 << k.get())].fill(true);
                largest = largest.max(Some(k));
                let buddy = at ^ 1 << k.get();
                let merged = frames.get(buddy..buddy + (1 << k.get()));
                let merged = merged.is_some_and(|buddy| buddy.iter().all(|&free| free));
                assert!(!merged || k == shape.order(), "{frame:?} {k} is not maximal");
            });
            assert_eq!(seen, frames);
            assert_eq!(map.largest_in(pageblock), largest);
            let mut kept = self.current.iter().chain(&self.opened);
            let held = kept.any(|held| held.pageblock() == Some(pageblock));
            check_hints(map, pageblock, free, held);
        }
        assert_eq!(map.free_by_type(), by_type);
    }

    /// Gives everything back: all but the ragged pageblocks are whole again.
    fn finish(mut self) {
        while !self.held.is_empty() {
            self.free(self.held.len() - 1);
            self.check();
        }
        for pageblock in (0..self.map.shape().pageblocks()).map(Pageblock) {
            assert_eq!(self.map.is_whole(pageblock), pageblock.0 % 5 != 4);
        }
    }
}

/// M-1 and M-2 of a pageblock with `free` free frames; `held`: it is a CPU's current one.
fn check_hints(map: &FreeMap<'_, SingleThread>, pageblock: Pageblock, free: u32, held: bool) {
    let shape = map.shape();
    let (section, bit) = pageblock.place();
    let classes = WholeClass::ALL.into_iter();
    let places = classes.filter(|&class| map.whole_word(class, section) & bit != 0).count();
    let full = free == shape.pageblock_frames();
    assert_eq!(places, usize::from(full), "{pageblock:?}: whole, once");
    let orders = map.orders_in(pageblock);
    if full {
        assert_eq!(orders, 0, "{pageblock:?}: an all-zero line");
        return;
    }
    let migrate = map.type_of(pageblock);
    if held || free == 0 || migrate == Isolate {
        return;
    }
    for kind in map.hints_of(migrate) {
        let has = match kind {
            Kind::Run(_, k) => orders >> k & 1 == 1,
            _ => true,
        };
        let mut index = pageblock.0;
        for level in 0..shape.levels() {
            let word = map.bitmap_word(kind, level, index / 64).load(Relaxed);
            assert!(!has || word >> (index % 64) & 1 == 1, "{pageblock:?} lacks {kind:?}");
            index /= 64;
        }
    }
}

#[test]
fn random_commands() {
    for (p, pageblocks) in [(3, 300), (4, 20), (5, 12), (6, 10), (7, 9), (8, 8), (9, 7), (10, 6)] {
        for seed in 0..6 {
            let mut model = Model::new(p, pageblocks, seed * 977 + u64::from(p));
            for _ in 0..400 {
                model.step();
            }
            model.finish();
        }
    }
}

#[test]
fn levels() {
    for (pageblocks, levels) in [(1, 1), (128, 1), (129, 2), (8192, 2), (8193, 3), (1 << 22, 3)] {
        let shape = MapShape::new(order(3), pageblocks).expect("a shape");
        assert_eq!(shape.levels(), levels, "{pageblocks}");
    }
    assert_eq!(MapShape::new(order(2), 1), None);
    assert_eq!(MapShape::new(order(3), 0), None);
    assert_eq!(MapShape::new(order(9), 1 << 23), None);
}

/// A search over three levels finds the first from its start on, and goes round.
#[test]
fn a_search_goes_round_and_finds_the_first() {
    let map = map(3, 20_000);
    let at = |pageblock| Start::new(Pageblock(pageblock), 0);
    let kind = Kind::Free(Movable);
    assert_eq!(map.find(kind, at(77)), None);
    for pageblock in [5, 9_000, 19_999] {
        let (word, bit) = Frame(pageblock * 8).word();
        map.free_frames(word, bit).expect("it was not free");
    }
    for (start, found) in [(0, 5), (5, 5), (6, 9_000), (9_001, 19_999), (19_999, 19_999)] {
        assert_eq!(map.find(kind, at(start)), Some(Pageblock(found)), "{start}");
    }
    assert!(map.clear(kind, Pageblock(19_999)));
    assert_eq!(map.find(kind, at(9_001)), Some(Pageblock(5)));
    // The levels above have been lowered on the way.
    assert_eq!(
        map.bitmap_word(kind, 1, 19_999 / 64 / 64).load(Relaxed) >> (19_999 / 64 % 64) & 1,
        0
    );
    assert_eq!(at(9_001).distance(Pageblock(5), map.shape()), 20_000 - 8_996);
    assert_eq!(at(5).distance(Pageblock(9_001), map.shape()), 8_996);
}

#[test]
fn a_second_free_changes_nothing() {
    for p in [3, 6, 8, 9] {
        let map = map(p, 8);
        let top = order(p);
        map.free_block(Frame(0), top).expect("nothing is free yet");
        assert!(map.free_block(Frame(0), top).is_err());
        assert!(map.is_whole(Pageblock(0)));
        // Half a pageblock, then a frame, all of it again, and more than it.
        let half = order(p - 1);
        let second = Frame(1 << p);
        map.free_block(second, half).expect("nothing is free yet");
        let (word, bit) = second.word();
        let error = map.free_frames(word, bit).expect_err("it is free");
        assert_eq!((error.first, error.bits), (word.first_frame(), bit));
        assert!(format!("{error}").contains("free in the map already"));
        map.free_block(second, half).expect_err("it is free");
        assert_eq!(map.free_in(Pageblock(1)), 1 << (p - 1));
        if p <= 6 {
            let both = bit | bit << ((1 << p) - 1);
            let error = map.free_frames(word, both).expect_err("one is free");
            assert_eq!(error.bits, bit);
            assert_eq!(map.free_in(Pageblock(1)), 1 << (p - 1), "the other one was taken back");
        }
        if p < 10 {
            map.free_block(Frame(0), order(p + 1)).expect_err("half of it is free");
            assert!(map.is_whole(Pageblock(0)) && !map.is_whole(Pageblock(1)));
        }
    }
}

/// Best fit: the pageblock with the run that fits comes before a lower one with a larger run.
#[test]
fn the_smallest_run_first() {
    let map = map(9, 4);
    map.free_block(Frame(0), order(8)).expect("free it");
    map.free_block(Frame(512 + 64), order(6)).expect("free it");
    map.free_block(Frame(1024 + 4), order(2)).expect("free it");
    let start = Start::default();
    let take = |k| map.take_block(Movable, order(k), start, None).map(|frame| frame.0);
    assert_eq!(take(2), Some(1028));
    assert_eq!(take(2), Some(576), "of order 6 rather than of order 8");
    assert_eq!(take(5), Some(608));
    assert_eq!(take(7), Some(0));
    assert_eq!(take(7), Some(128));
    assert_eq!((take(7), take(5), take(4)), (None, None, Some(592)));
}

/// A current pageblock is used until it has nothing that fits, and others pass it by.
#[test]
fn isolated_frees_stay() {
    let map = map(6, 4);
    let (start, pageblock) = (Start::default(), Pageblock(2));
    map.free_block(Frame(128), order(6)).expect("free it");
    let frame = map.split_whole(Movable, order(3), start, None).expect("it is whole");
    assert!(!map.change_type(pageblock, Unmovable, Isolate));
    assert!(map.change_type(pageblock, Movable, Isolate));
    assert_eq!(map.take_block(Movable, order(0), start, None), None);
    assert_eq!(map.refill(Movable, 9, start, None, &mut |_, _| ()), Harvest::default());
    assert_eq!(map.last_look(|other| other != Isolate, order(0)), LastLook::Nothing);
    map.free_block(frame, order(3)).expect("it was held");
    assert_eq!(map.whole_class(pageblock), Some(WholeClass::Isolated));
    assert_eq!(map.take_large(order(6), start), None);
    for (to, class) in [
        (HighAtomic, WholeClass::HighAtomic),
        (Cma, WholeClass::Cma),
        (Movable, WholeClass::Ordinary),
    ] {
        map.set_type(pageblock, to);
        assert_eq!(map.whole_class(pageblock), Some(class));
        assert_eq!(map.open_whole(to, start, start.pageblock), Some(pageblock));
        map.free_block(Frame(128), order(6)).expect("it was held");
    }
    assert_eq!(map.take_large(order(6), start), Some(pageblock));
}

/// A CPU that lost a whole pageblock to another goes to its own section, and stays there.
#[test]
fn sections_of_cpus() {
    let map = map(6, 130);
    let shape = map.shape();
    assert_eq!([0, 1, 2, 3].map(|cpu| shape.section_for(cpu).0), [0, 64, 128, 0]);
    (0..130).for_each(|pageblock| map.put_untouched(Pageblock(pageblock)).expect("it is not free"));
    let home = shape.section_for(1);
    assert_eq!(map.open_untouched_near(Unmovable, home), Some(Pageblock(64)));
    assert_eq!(map.type_of(Pageblock(64)), Unmovable);
    map.free_block(Frame(64 * 64), order(6)).expect("it was held");
    let open = |from: u32| map.open_whole(Movable, Start::new(Pageblock(from), 0), home);
    assert_eq!(open(3), Some(Pageblock(64)), "touched, wherever it is");
    assert_eq!(open(3), Some(Pageblock(65)), "untouched, from its own section up");
    (66..128).for_each(|pageblock| assert_eq!(open(0), Some(Pageblock(pageblock))));
    assert_eq!(map.open_untouched_near(Movable, home), None, "there is none left");
    assert_eq!(
        [open(0), open(0), open(0)].map(|pageblock| pageblock.map(|pageblock| pageblock.0)),
        [128, 129, 0].map(Some)
    );
}

/// Touched before untouched, the lowest untouched first, and both in one large block.
#[test]
fn untouched_is_used_last() {
    let map = map(9, 8);
    (0..6).for_each(|pageblock| map.put_untouched(Pageblock(pageblock)).expect("it is not free"));
    map.free_block(Frame(7 * 512), order(9)).expect("free it");
    let start = Start::new(Pageblock(3), 3);
    let take = || map.take_large(order(9), start).map(|pageblock| pageblock.0);
    assert_eq!([take(), take(), take()], [Some(7), Some(0), Some(1)]);
    map.free_block(Frame(5 * 512), order(9)).expect_err("it is whole");
    assert_eq!(map.take_whole_at(Pageblock(5)), Some(WholeClass::Untouched));
    map.free_block(Frame(5 * 512), order(9)).expect("it was held");
    let large = map.take_large(order(10), start);
    assert_eq!(large, Some(Pageblock(2)));
    assert_eq!(map.take_large(order(10), start), Some(Pageblock(4)), "half of it was touched");
    assert_eq!(map.take_large(order(10), start), None);
    map.free_block(Frame(1024), order(10)).expect("it was held");
    assert!(map.is_whole(Pageblock(2)) && map.is_whole(Pageblock(3)));
}

#[test]
fn what_does_not_fit_is_refused() {
    let shape = MapShape::new(order(9), 64).expect("a shape");
    assert_eq!((shape.line_words(), shape.section_words()), (512, 56));
    let memory = |lines| MapMemory::<SingleThread> {
        lines,
        sections: words(shape.section_words()),
        summaries: words(shape.summary_words()),
        types: words(64),
    };
    let error = MapTables::new(shape, memory(words(511))).expect_err("one is missing");
    assert_eq!(format!("{error}"), "the map's lines have 511 words, not 512");
    let error = MapTables::new(shape, memory(&words(513)[1..])).expect_err("it is between lines");
    assert_eq!(error, LayoutError::Misaligned { what: "lines" });
}

#[test]
fn bytes_a_frame() {
    for p in 6..=10 {
        let shape = MapShape::new(order(p), 1 << (20 - p)).expect("a shape");
        let bytes = shape.table_bytes() as f64 / f64::from(1 << 20);
        assert!(bytes <= 1.5, "{p}: {bytes}");
    }
    let shape = MapShape::new(order(9), 1 << 19).expect("1 TiB");
    let bytes = shape.table_bytes() as f64 / f64::from(1 << 28);
    assert!(bytes < 1.16, "{bytes}");
}
