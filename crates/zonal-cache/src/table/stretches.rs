//! Neighbours of a file whose slots and frames are in a row, as those are that were read in sequence.
//!
//! A look-up waits for memory twice before it knows where a page's bytes are: for the head of the chain, and for the slot.
//! What is here says both for 512 pages by two words, so that it stays in a cache of the CPU where the index does
//! not: slot and bytes are asked for at once, and the chain is not looked at.
//!
//! It is a guess, in atomics of no host: a slot that it gives has another page, or none, where pages come and go
//! meanwhile, or where two files share a place. Who looks compares the slot's key, and goes by the chain if it is another.

use super::slot::Key;
use alloc::boxed::Box;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

/// Neighbours in a stretch: 2 to this power, as many as the pages of a huge one.
const PAGES: u32 = 9;
/// Of these 2 to this power have one bit.
const TOGETHER: u32 = PAGES - u64::BITS.ilog2();

/// What is known of some neighbours. Four to a line.
#[repr(align(16))]
struct Stretch {
    /// The slot of the first page in the high half, and the low half of its frame, if all are in a row.
    first: AtomicU64,
    /// Which pages are in that row, eight to a bit. One that came elsewhere since takes the bit of all eight away; one that
    /// has left does not.
    there: AtomicU64,
}

/// The stretches of a table.
pub(super) struct Stretches(Box<[Stretch]>);

impl Stretches {
    /// That many, a power of 2; 0 for a host that guesses nothing.
    pub(super) fn new(count: usize) -> Self {
        let none = |_| Stretch { first: AtomicU64::new(0), there: AtomicU64::new(0) };
        Self((0..count).map(none).collect())
    }

    /// How many there are for a table of that many slots: some times as many as its pages fill.
    pub(super) const fn count(slots: usize) -> usize {
        (slots >> PAGES << 2).next_power_of_two()
    }

    /// Bytes of that many.
    pub(super) const fn bytes(count: usize) -> usize {
        count * size_of::<Stretch>()
    }

    /// What is known of a page's neighbours, the how manieth of them it is, and its bit.
    #[inline(always)]
    fn of(&self, key: Key) -> (&Stretch, u32, u64) {
        // The factor is odd, so stretches of a file that follow each other have places of their own.
        let of = (key.index >> PAGES).wrapping_add(key.file.rotate_left(32));
        let mixed = of.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let stretch = &self.0[mixed as usize & (self.0.len() - 1)];
        let at = key.index as u32 & ((1 << PAGES) - 1);
        (stretch, at, 1 << (at >> TOGETHER))
    }

    /// The slot that the page may be in, and the low half of the number of its frame.
    #[inline(always)]
    pub(super) fn guess(&self, key: Key) -> Option<(u32, u32)> {
        let (stretch, at, bit) = self.of(key);
        // Relaxed, here and below: a guess.
        if stretch.there.load(Relaxed) & bit == 0 {
            return None;
        }
        let first = stretch.first.load(Relaxed);
        Some((((first >> 32) as u32).wrapping_add(at), (first as u32).wrapping_add(at)))
    }

    /// A page is in this slot and frame from now on; whether its neighbour before it is `beside` it in both.
    pub(super) fn came(&self, key: Key, slot: u32, low: u32, beside: bool) {
        let (stretch, at, bit) = self.of(key);
        let first = u64::from(slot.wrapping_sub(at)) << 32 | u64::from(low.wrapping_sub(at));
        if stretch.first.load(Relaxed) == first {
            if stretch.there.load(Relaxed) & bit == 0 {
                let _ = stretch.there.fetch_or(bit, Relaxed);
            }
        } else if beside {
            // The row that was begun last.
            stretch.first.store(first, Relaxed);
            stretch.there.store(bit, Relaxed);
        } else if stretch.there.load(Relaxed) & bit != 0 {
            let _ = stretch.there.fetch_and(!bit, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn page(index: u64) -> Key {
        Key { file: 1, index }
    }

    /// A page that is in the row which begins with slot 100 and frame 7000.
    fn in_row(stretches: &Stretches, index: u64, beside: bool) {
        stretches.came(page(index), 100 + index as u32, 7000 + index as u32, beside);
    }

    fn is_guessed(stretches: &Stretches, index: u64) -> bool {
        let guess = stretches.guess(page(index));
        assert!(guess.is_none_or(|it| it == (100 + index as u32, 7000 + index as u32)));
        guess.is_some()
    }

    #[test]
    fn pages_in_a_row_are_guessed_and_others_are_not() {
        let stretches = Stretches::new(Stretches::count(4096));
        in_row(&stretches, 0, false);
        assert!(!is_guessed(&stretches, 0), "one page is no row");
        (1..512).for_each(|index| in_row(&stretches, index, true));
        assert!((0..512).all(|index| is_guessed(&stretches, index)));
        assert!(!is_guessed(&stretches, 512), "it did not come");
        assert!(stretches.guess(Key { file: 2, index: 5 }).is_none(), "another file");
    }

    #[test]
    fn one_that_came_elsewhere_takes_its_bit_away() {
        let stretches = Stretches::new(Stretches::count(512));
        (0..64).for_each(|index| in_row(&stretches, index, index > 0));
        stretches.came(page(13), 3, 7013, false);
        assert!((0..64).all(|index| is_guessed(&stretches, index) == (index / 8 != 1)));
        stretches.came(page(30), 130, 3, false);
        assert!(!is_guessed(&stretches, 30));
        in_row(&stretches, 13, false);
        assert!(is_guessed(&stretches, 12));
    }

    #[test]
    fn the_row_that_was_begun_last_is_guessed() {
        let stretches = Stretches::new(Stretches::count(512));
        (0..64).for_each(|index| {
            stretches.came(page(index), index as u32, index as u32, index > 0);
        });
        (64..128).for_each(|index| in_row(&stretches, index, index > 64));
        assert!((0..64).all(|index| stretches.guess(page(index)).is_none()));
        assert!((64..128).all(|index| is_guessed(&stretches, index)));
    }

    /// The first page of a row would lie before slot and frame 0.
    #[test]
    fn numbers_wrap() {
        let stretches = Stretches::new(1);
        stretches.came(page(510), 4, 5, false);
        stretches.came(page(511), 5, 6, true);
        assert_eq!(stretches.guess(page(510)), Some((4, 5)));
        assert_eq!(stretches.guess(page(511)), Some((5, 6)));
    }

    #[test]
    #[cfg(feature = "std")]
    fn a_table_guesses_what_came_in_a_row_and_finds_what_it_guesses_wrong() {
        use crate::table::{Table, Taken};
        let host = crate::Threads::new();
        let (table, mut free) = Table::<crate::Threads>::new(32, 0);
        let fill = |slot, index: u64| {
            let writer = table.insert(slot, page(index)).unwrap();
            let _ = table.finish(&host, writer, false);
        };
        for index in 0..32_u64 {
            let mut slot = free.pop().unwrap();
            table.set_frame(&mut slot, zonal::Pfn::new(50 + index));
            fill(slot, index);
        }
        let guess = |index| table.stretches.guess(page(index));
        assert!((0..32).all(|index| guess(index) == Some((index as u32, 50 + index as u32))));
        // Two pages that are given each other's slots, and one that has gone, for another.
        let take = |index: u64| {
            let id = table.hold(page(index)).map(|hold| (crate::table::Token::id(&hold), hold));
            let (id, hold) = id.unwrap();
            assert!(table.leave_hold(hold).is_none());
            let Taken::Claimed(slot) = table.claim(id) else { panic!("no thread is there") };
            slot
        };
        let (one, other, gone) = (take(3), take(20), take(30));
        fill(one, 20);
        fill(other, 3);
        fill(gone, 700);
        for index in (0..32).chain([700]) {
            let found = table.enter(&host, page(index));
            assert_eq!(found.is_ok(), index != 30, "page {index}");
            let Ok(reader) = found else { continue };
            assert_eq!(table.key_of(&reader), page(index));
            assert!(table.leave(reader).is_none());
        }
        assert!(guess(3).is_none() && guess(20).is_none() && guess(30).is_some());
    }
}
