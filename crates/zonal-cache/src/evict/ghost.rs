//! Pages that have gone, remembered for a while by a few bytes each.
//!
//! A table of buckets of four. A page that would be a fifth replaces the oldest of them, and two pages
//! may look the same (once in 2³⁰): a policy is told of a page that was never there, or not told of
//! one that was. It decides a little worse then, and nothing else. With each goes a note of two bits.
//! A bit for each that left lately says whether it is one still, so that the oldest are forgotten in order.

use super::queue::KEY;
use alloc::boxed::Box;

#[derive(Clone, Copy, Debug, Default)]
struct Ghost {
    /// The high half of the page's number, but for two bits, which are the note; 0 for no ghost.
    tag: u32,
    /// The turn in which it left.
    turn: u32,
}

/// The bits of a note.
const NOTE: u32 = 3;

/// The ghosts.
#[derive(Debug)]
pub(super) struct Ghosts {
    buckets: Box<[[Ghost; 4]]>,
    /// For turn `n` bit `n` modulo their count, a power of two: who left then is a ghost still.
    still: Box<[u64]>,
    /// How many are.
    count: usize,
    /// All who left before are forgotten.
    from: u32,
    turn: u32,
    /// How many came back as one.
    back: u64,
}

impl Ghosts {
    /// For about `pages` of them.
    pub(super) fn new(pages: usize) -> Self {
        let (buckets, words) = Self::sizes(pages);
        Self {
            buckets: (0..buckets).map(|_| [Ghost::default(); 4]).collect(),
            still: (0..words).map(|_| 0).collect(),
            count: 0,
            from: 1,
            turn: 0,
            back: 0,
        }
    }

    /// Buckets, and words of bits.
    fn sizes(pages: usize) -> (usize, usize) {
        let buckets = (pages / 2).next_power_of_two().max(1);
        // More turns than ghosts: some come back.
        (buckets, (buckets / 4).max(1))
    }

    /// Bytes of those for about `pages`.
    pub(super) fn bytes(pages: usize) -> usize {
        let (buckets, words) = Self::sizes(pages);
        buckets * size_of::<[Ghost; 4]>() + words * size_of::<u64>()
    }

    fn place(&self, key: u64) -> (usize, u32) {
        // The numbers of neighbours are neighbours: spread them. A page is known by as much of its key as queues keep.
        let mixed = (key & KEY).wrapping_mul(0xd6e8_feb8_6659_fd93);
        let tag = ((mixed >> 32) as u32).max(NOTE + 1) & !NOTE;
        ((mixed as u32 ^ tag) as usize & (self.buckets.len() - 1), tag)
    }

    /// The bit of a turn.
    fn bit(&self, turn: u32) -> usize {
        turn as usize & (self.still.len() * 64 - 1)
    }

    /// Who left in that turn is no ghost from now on; whether it was one.
    fn end(&mut self, turn: u32) -> bool {
        if turn.wrapping_sub(self.from) > self.turn.wrapping_sub(self.from) {
            return false;
        }
        let bit = self.bit(turn);
        let word = &mut self.still[bit / 64];
        let was = *word & 1 << (bit % 64) != 0;
        *word &= !(1 << (bit % 64));
        self.count -= usize::from(was);
        was
    }

    /// Forgets the oldest.
    fn forget(&mut self) {
        self.end(self.from);
        self.from = self.from.wrapping_add(1);
    }

    /// Forgets the oldest until there are no more than `most`.
    pub(super) fn keep(&mut self, most: usize) {
        while self.count > most {
            self.forget();
        }
    }

    /// A page goes, with a note below 4.
    pub(super) fn insert(&mut self, key: u64, note: u8) {
        let turns = self.still.len() * 64;
        if self.turn.wrapping_sub(self.from).wrapping_add(1) as usize >= turns {
            self.forget();
        }
        self.turn = self.turn.wrapping_add(1);
        let (bucket, tag) = self.place(key);
        let turn = self.turn;
        let age =
            |ghost: &Ghost| if ghost.tag == 0 { u32::MAX } else { turn.wrapping_sub(ghost.turn) };
        let ghosts = &self.buckets[bucket];
        let same = ghosts.iter().position(|ghost| ghost.tag & !NOTE == tag);
        let oldest = || (0..4).max_by_key(|&at| age(&ghosts[at])).unwrap_or(0);
        let at = same.unwrap_or_else(oldest);
        if ghosts[at].tag != 0 {
            self.end(ghosts[at].turn);
        }
        self.buckets[bucket][at] = Ghost { tag: tag | u32::from(note) & NOTE, turn };
        let bit = self.bit(turn);
        self.still[bit / 64] |= 1 << (bit % 64);
        self.count += 1;
    }

    /// A page comes: how many went since it did, itself included, and its note. It is no ghost any more.
    pub(super) fn take(&mut self, key: u64) -> Option<(usize, u8)> {
        let (bucket, tag) = self.place(key);
        let ghost = self.buckets[bucket].iter_mut().find(|ghost| ghost.tag & !NOTE == tag)?;
        let Ghost { tag, turn } = core::mem::take(ghost);
        let age = self.turn.wrapping_sub(turn) as usize + 1;
        let was_one = self.end(turn);
        self.back += u64::from(was_one);
        was_one.then_some((age, (tag & NOTE) as u8))
    }

    /// How many pages came back while they were one.
    pub(super) const fn back(&self) -> u64 {
        self.back
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::VecDeque;
    use proptest::prelude::*;

    #[test]
    fn most_of_what_left_lately_is_remembered_with_its_age() {
        let mut ghosts = Ghosts::new(1000);
        (0..5000).for_each(|key| ghosts.insert(key, (key % 4) as u8));
        let known = (4000..5000)
            .filter(|&key| ghosts.take(key) == Some((5000 - key as usize, (key % 4) as u8)));
        let known = known.count();
        assert!(known > 950);
        assert_eq!(ghosts.take(4999), None, "it came back");
        assert_eq!(ghosts.back(), known as u64);
        assert!((5000..9000).filter(|&key| ghosts.take(key).is_some()).count() < 4);
    }

    #[test]
    fn the_oldest_are_forgotten_first_and_those_who_came_back_do_not_count() {
        let mut ghosts = Ghosts::new(64);
        for turn in [0, u32::MAX - 4] {
            (ghosts.turn, ghosts.from) = (turn, turn.wrapping_add(1));
            (0..10).for_each(|key| ghosts.insert(key, 0));
            assert!((5..8).all(|key| ghosts.take(key).is_some()));
            ghosts.keep(4);
            let left: u64 = (0..10).filter(|&key| ghosts.take(key).is_some()).sum();
            assert_eq!(left, 3 + 4 + 8 + 9, "four of seven");
        }
    }

    proptest! {
        #[test]
        fn they_are_what_a_queue_is(steps in prop::collection::vec((0_u8..8, 0_u64..12), 0..900)) {
            // With that number of buckets none is ever full.
            let mut ghosts = Ghosts::new(4096);
            let mut queue: VecDeque<(u64, u8)> = VecDeque::new();
            for (what, key) in steps {
                let at = queue.iter().position(|&(it, _)| it == key);
                match what {
                    0..4 => {
                        at.map(|at| queue.remove(at));
                        queue.push_back((key, what));
                        ghosts.insert(key, what);
                    }
                    4..7 => {
                        let note = at.and_then(|at| queue.remove(at)).map(|(_, note)| note);
                        prop_assert_eq!(ghosts.take(key).map(|(_, note)| note), note);
                    }
                    _ => {
                        queue.drain(..queue.len().saturating_sub(key as usize));
                        ghosts.keep(key as usize);
                    }
                }
                prop_assert_eq!(ghosts.count, queue.len());
            }
        }
    }
}
