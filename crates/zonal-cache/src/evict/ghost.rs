//! Pages that have gone, remembered for a while by a few bytes each.
//!
//! A table of buckets of four. A page that would be a fifth replaces the oldest of them, and two pages
//! may look the same (once in 2³²): a policy is told of a page that was never there, or not told of
//! one that was. It decides a little worse then, and nothing else.

use alloc::boxed::Box;

#[derive(Clone, Copy, Debug, Default)]
struct Ghost {
    /// The high half of the page's number; 0 for no ghost.
    tag: u32,
    /// The turn in which it left.
    turn: u32,
}

/// The ghosts.
#[derive(Debug)]
pub(super) struct Ghosts {
    buckets: Box<[[Ghost; 4]]>,
    turn: u32,
}

impl Ghosts {
    /// For about `pages` of them.
    pub(super) fn new(pages: usize) -> Self {
        let buckets = (pages / 2).next_power_of_two().max(1);
        Self { buckets: (0..buckets).map(|_| [Ghost::default(); 4]).collect(), turn: 0 }
    }

    fn place(&self, key: u64) -> (usize, u32) {
        // The numbers of neighbours are neighbours: spread them.
        let mixed = key.wrapping_mul(0xd6e8_feb8_6659_fd93);
        let tag = ((mixed >> 32) as u32).max(1);
        ((mixed as u32 ^ tag) as usize & (self.buckets.len() - 1), tag)
    }

    /// A page goes.
    pub(super) fn insert(&mut self, key: u64) {
        self.turn = self.turn.wrapping_add(1);
        let (bucket, tag) = self.place(key);
        let turn = self.turn;
        let age =
            |ghost: &Ghost| if ghost.tag == 0 { u32::MAX } else { turn.wrapping_sub(ghost.turn) };
        let bucket = &mut self.buckets[bucket];
        let same = bucket.iter().position(|ghost| ghost.tag == tag);
        let oldest = || (0..4).max_by_key(|&at| age(&bucket[at])).unwrap_or(0);
        bucket[same.unwrap_or_else(oldest)] = Ghost { tag, turn };
    }

    /// A page comes: how many went since it did, itself included. It is no ghost any more.
    pub(super) fn take(&mut self, key: u64) -> Option<usize> {
        let (bucket, tag) = self.place(key);
        let ghost = self.buckets[bucket].iter_mut().find(|ghost| ghost.tag == tag)?;
        ghost.tag = 0;
        Some(self.turn.wrapping_sub(ghost.turn) as usize + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_of_what_left_lately_is_remembered_with_its_age() {
        let mut ghosts = Ghosts::new(1000);
        (0..5000).for_each(|key| ghosts.insert(key));
        let known = (4000..5000).filter(|&key| ghosts.take(key) == Some(5000 - key as usize));
        assert!(known.count() > 950);
        assert_eq!(ghosts.take(4999), None, "it came back");
        assert!((5000..9000).filter(|&key| ghosts.take(key).is_some()).count() < 4);
    }
}
