//! What is free where: snapshots, exact while no call is under way.

use super::FreeMap;
use super::WholeClass;
use super::bits::{exact_runs, order_at};
use super::hints::{Kind, is_hinted};
use super::line::full_words;
use super::mapped::ANYWHERE;
use super::shape::{Frame, Pageblock, WORD_ORDER};
use crate::platform::{AtomicWord, Platform};
use crate::types::migrate_type::{MigrateType, NR_MIGRATE_TYPES};
use crate::types::units::Order;
use core::sync::atomic::Ordering::SeqCst;

impl<P: Platform> FreeMap<'_, P> {
    /// Free frames of a pageblock. O(words of a line).
    #[must_use]
    pub fn free_in(&self, pageblock: Pageblock) -> u32 {
        let (line, count) = self.read_line(pageblock);
        let bits: u32 = line[..count].iter().map(|word| word.count_ones()).sum();
        if bits == 0 && self.is_whole(pageblock) { self.shape().pageblock_frames() } else { bits }
    }

    /// Free frames by the types of their pageblocks. O(words of the map).
    #[must_use]
    pub fn free_by_type(&self) -> [u64; NR_MIGRATE_TYPES] {
        let mut frames = [0; NR_MIGRATE_TYPES];
        for pageblock in self.own_pageblocks() {
            frames[self.type_of(pageblock).index()] += u64::from(self.free_in(pageblock));
        }
        frames
    }

    /// The largest free block of a pageblock, up to its own order. O(words of a line).
    #[must_use]
    pub fn largest_in(&self, pageblock: Pageblock) -> Option<Order> {
        if self.is_whole(pageblock) {
            return Some(self.shape().order());
        }
        Order::new(self.orders_in(pageblock).checked_ilog2()? as u8)
    }

    /// The free block, of its own order at most, that a frame is in: the maximal aligned run. O(words
    /// of a line).
    #[must_use]
    pub fn run_at(&self, frame: Frame) -> Option<(Frame, Order)> {
        let pageblock = frame.pageblock(self.shape());
        let (word, bit) = frame.word();
        let whole = (pageblock.first_frame(self.shape()), self.shape().order());
        let found = self.frames_word(word).load(SeqCst);
        if found & bit == 0 {
            return self.is_whole(pageblock).then_some(whole);
        }
        let (line, count) = self.read_line(pageblock);
        let first = whole.0.0;
        let (at, offset) = (((frame.0 - first) / 64) as usize, (frame.0 - first) % 64);
        let full = full_words(&line[..count]);
        let run = match line[at] {
            u64::MAX if count > 1 => order_at(full, at as u32) + WORD_ORDER,
            // Another CPU took it between the two looks.
            now if now >> offset & 1 == 0 => return None,
            now => order_at(now, offset),
        };
        Some((Frame(frame.0 >> run << run), order(run)))
    }

    /// Whether some line of the type, or a whole pageblock that may get it, has a free block of
    /// `order`, up to the pageblock order; as far as hints lead to one. O(orders × words that a search
    /// reads).
    #[must_use]
    pub fn has_block(&self, migrate: MigrateType, wanted: Order) -> bool {
        let whole = |&class: &WholeClass| self.find(Kind::Whole(class), ANYWHERE).is_some();
        let led_to = |step: u32| {
            let found = self.find(Kind::Run(migrate, step), ANYWHERE);
            found.is_some_and(|pageblock| self.orders_in(pageblock) >> wanted.get() != 0)
        };
        let least = u32::from(wanted.get());
        // A hint of order 0 says that there are frames, whatever runs they are in.
        let lines = is_hinted(migrate) && (least..self.shape().p()).any(led_to);
        lines || WholeClass::for_type(migrate).iter().any(whole)
    }

    /// Calls `visit` with the free blocks of a pageblock, ascending: the maximal aligned runs, of
    /// its own order at most. O(words of a line + blocks).
    pub fn visit_free(&self, pageblock: Pageblock, mut visit: impl FnMut(Frame, Order)) {
        let first = pageblock.first_frame(self.shape()).0;
        if self.is_whole(pageblock) {
            visit(Frame(first), self.shape().order());
            return;
        }
        let (line, count) = self.read_line(pageblock);
        let line = &line[..count];
        let full = full_words(line);
        for (at, &word) in (0..).zip(line) {
            if word == u64::MAX && count > 1 {
                let run = super::bits::order_at(full, at);
                if at % (1 << run) == 0 {
                    visit(Frame(first + at * 64), order(run + WORD_ORDER));
                }
                continue;
            }
            visit_word(word, |bit, run| visit(Frame(first + at * 64 + bit), order(run)));
        }
    }
}

fn order(number: u32) -> Order {
    Order::new(number as u8).unwrap_or(Order::MAX)
}

/// The maximal runs of a word, ascending: their first bits and their orders.
fn visit_word(word: u64, mut visit: impl FnMut(u32, u32)) {
    let runs: [u64; WORD_ORDER as usize + 1] =
        core::array::from_fn(|at| exact_runs(word, at as u32));
    let mut starts = runs.iter().fold(0, |all, runs| all | runs);
    while starts != 0 {
        let bit = starts.trailing_zeros();
        if let Some(run) = runs.iter().position(|runs| runs >> bit & 1 == 1) {
            visit(bit, run as u32);
        }
        starts &= starts - 1;
    }
}
