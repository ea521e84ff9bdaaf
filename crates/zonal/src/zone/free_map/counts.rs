//! What is free where: snapshots, exact while no call is under way.

use super::FreeMap;
use super::bits::exact_runs;
use super::line::full_words;
use super::shape::{Frame, Pageblock, WORD_ORDER};
use crate::platform::Platform;
use crate::types::migrate_type::NR_MIGRATE_TYPES;
use crate::types::units::Order;

impl<P: Platform> FreeMap<'_, P> {
    /// Free frames of a pageblock. O(words of a line).
    #[must_use]
    pub fn free_in(&self, block: Pageblock) -> u32 {
        let (line, count) = self.read_line(block);
        let bits: u32 = line[..count].iter().map(|word| word.count_ones()).sum();
        if bits == 0 && self.is_whole(block) { self.shape.block_frames() } else { bits }
    }

    /// Free frames by the types of their pageblocks. O(words of the map).
    #[must_use]
    pub fn free_by_type(&self) -> [u64; NR_MIGRATE_TYPES] {
        let mut frames = [0; NR_MIGRATE_TYPES];
        for block in (0..self.shape.blocks()).map(Pageblock) {
            frames[self.type_of(block).index()] += u64::from(self.free_in(block));
        }
        frames
    }

    /// The largest free block of a pageblock, up to its own order. O(words of a line).
    #[must_use]
    pub fn largest_in(&self, block: Pageblock) -> Option<Order> {
        if self.is_whole(block) {
            return Some(self.shape.order());
        }
        Order::new(self.orders_in(block).checked_ilog2()? as u8)
    }

    /// Calls `visit` with the free blocks of a pageblock, ascending: the maximal aligned runs, of
    /// its own order at most. O(words of a line + blocks).
    pub fn visit_free(&self, block: Pageblock, mut visit: impl FnMut(Frame, Order)) {
        let first = block.first_frame(self.shape).0;
        if self.is_whole(block) {
            visit(Frame(first), self.shape.order());
            return;
        }
        let (line, count) = self.read_line(block);
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
