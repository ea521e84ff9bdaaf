//! The array of the clusters on the order-0 lists: see [`clusters`](super).

use super::ClusterWords;
use crate::platform::Platform;

/// Words of the bitmap that one search for an entry looks at.
const SEARCH_WORDS: u32 = 16;

/// Bits of an entry's word: the tail, from here on 16 for the count, and from here on 16 for how
/// many of those are merge-skipped.
const COUNT: u32 = 32;
const SKIPPED: u32 = 48;

/// How many frames the cluster has whose entry says `word`.
#[inline]
fn count_in(word: u64) -> u32 {
    (word >> COUNT) as u32 & u32::from(u16::MAX)
}

/// What a cluster is made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Members {
    /// The frame nearest to the list's tail.
    pub tail: u32,
    /// How many frames.
    pub count: u32,
    /// How many of them are merge-skipped.
    pub skipped: u32,
}

/// A zone's array of clusters, an entry each: where it is, and the lowest entry that may be free.
///
/// The zone's words are, in this order: `in_progress`, the bitmap of entries in use, the entries.
#[derive(Debug)]
pub struct ClusterArray {
    pub(super) first: u64,
    /// Entries in use or free for it: none, or all that there is `room` for.
    pub(super) len: u32,
    room: u32,
    /// Where the first entry's word is.
    base: u64,
    /// No entry below this is free.
    hint: u32,
    batch: u32,
}

impl ClusterArray {
    pub(super) const VACANT: Self = Self { first: 0, len: 0, room: 0, base: 0, hint: 0, batch: 0 };

    fn count(managed: u64, batch: u32) -> u64 {
        // The word of a frame has room for 32 bits of a cluster's number.
        if !(2..=u32::from(u16::MAX)).contains(&batch) {
            0
        } else {
            managed.div_ceil(u64::from(batch)).min(u64::from(u32::MAX) - 1)
        }
    }

    pub(super) fn words(managed: u64, batch: u32) -> u64 {
        match Self::count(managed, batch) {
            0 => 0,
            len => 1 + len.div_ceil(64) + len,
        }
    }

    /// A zone whose words begin at `first`, with room for a size and a batch.
    pub(super) fn new(first: u64, managed: u64, batch: u32) -> Self {
        let room = Self::count(managed, batch);
        let base = first + 1 + room.div_ceil(64);
        Self { first, room: room as u32, base, ..Self::VACANT }
    }

    /// Clusters may have `batch` frames, if that is more than before. What is listed by then is
    /// in the clusters it was in, or in none.
    pub(super) fn set_batch(&mut self, batch: u32) {
        if batch > self.batch && Self::count(1, batch) > 0 {
            (self.batch, self.len) = (batch, self.room);
        }
    }

    /// Which of 64 entries are in use.
    fn used_in<P: Platform>(&self, words: ClusterWords<'_, P>, at: u32) -> u64 {
        words.cluster_word(self.bitmap(at))
    }

    fn bitmap(&self, at: u32) -> u64 {
        self.first + 1 + u64::from(at)
    }

    fn word_of(&self, number: u32) -> u64 {
        self.base + u64::from(number)
    }

    fn get<P: Platform>(&self, words: ClusterWords<'_, P>, number: u32) -> Members {
        let word = words.cluster_word(self.word_of(number));
        let skipped = (word >> SKIPPED) as u32;
        Members { tail: word as u32, count: count_in(word), skipped }
    }

    fn set<P: Platform>(&self, words: ClusterWords<'_, P>, number: u32, members: Members) {
        // No overlap: at most a batch of frames.
        let counts = u64::from(members.count) << COUNT | u64::from(members.skipped) << SKIPPED;
        words.set_cluster_word(self.word_of(number), u64::from(members.tail) | counts);
    }

    /// The number of a free entry, now in use: the lowest, as far as [`SEARCH_WORDS`] words of the bitmap say. What
    /// lies behind them is for the next call; until then the array is full (I-7).
    fn take_entry<P: Platform>(&mut self, words: ClusterWords<'_, P>) -> Option<u32> {
        let first = self.hint / 64;
        for at in first..first + SEARCH_WORDS {
            if at * 64 >= self.len {
                self.hint = self.len;
                return None;
            }
            let used = self.used_in(words, at);
            let number = at * 64 + used.trailing_ones();
            if used != u64::MAX && number < self.len {
                words.set_used(self.bitmap(at), 1 << (number % 64));
                self.hint = number;
                return Some(number);
            }
        }
        self.hint = (first + SEARCH_WORDS) * 64;
        None
    }

    fn release<P: Platform>(&mut self, words: ClusterWords<'_, P>, number: u32) {
        words.clear_used(self.bitmap(number / 64), 1 << (number % 64));
        self.hint = self.hint.min(number);
    }

    /// For every frame that comes to an order-0 list, so on the free path: one word of the
    /// neighbour, one of the entry, one of the frame.
    #[inline(always)]
    pub(super) fn joined<P: Platform>(
        &mut self,
        words: ClusterWords<'_, P>,
        index: u32,
        skipped: bool,
        neighbour: Option<u32>,
        last: bool,
    ) {
        if self.len == 0 {
            return;
        }
        if let Some(number) = neighbour.and_then(|frame| words.cluster_of(frame)) {
            let word = words.cluster_word(self.word_of(number));
            if count_in(word) < self.batch {
                let word = if last { word >> 32 << 32 | u64::from(index) } else { word };
                let one = 1 << COUNT | u64::from(skipped) << SKIPPED;
                words.set_cluster_word(self.word_of(number), word + one);
                words.set_cluster_of(index, Some(number));
                return;
            }
        }
        self.begin_with(words, index, skipped);
    }

    /// A new cluster of the frame alone. Out of line: it is for one frame in a batch.
    #[inline(never)]
    fn begin_with<P: Platform>(&mut self, words: ClusterWords<'_, P>, index: u32, skipped: bool) {
        let alone = Members { tail: index, count: 1, skipped: skipped.into() };
        let number = self.begin(words, alone);
        words.set_cluster_of(index, number);
    }

    pub(super) fn leaving<P: Platform>(
        &mut self,
        words: ClusterWords<'_, P>,
        index: u32,
        skipped: bool,
        before: Option<u32>,
    ) {
        if self.len == 0 {
            return;
        }
        let Some(number) = words.cluster_of(index) else { return };
        words.set_cluster_of(index, None);
        let Members { tail, count, skipped: all } = self.get(words, number);
        if count == 1 {
            return self.release(words, number);
        }
        let tail = if tail == index { before.unwrap_or(tail) } else { tail };
        let skipped = all - u32::from(skipped);
        self.set(words, number, Members { tail, count: count - 1, skipped });
    }

    pub(super) fn end<P: Platform>(
        &mut self,
        words: ClusterWords<'_, P>,
        head: u32,
        most: u64,
    ) -> Option<Members> {
        let number = if self.len == 0 { None } else { words.cluster_of(head) }?;
        let members = self.get(words, number);
        (u64::from(members.count) <= most).then(|| {
            self.release(words, number);
            members
        })
    }

    pub(super) fn begin<P: Platform>(
        &mut self,
        words: ClusterWords<'_, P>,
        members: Members,
    ) -> Option<u32> {
        let number = self.take_entry(words)?;
        // The caller tells the frames.
        self.set(words, number, members);
        Some(number)
    }

    pub(super) fn find<P: Platform>(
        &self,
        words: ClusterWords<'_, P>,
        index: u32,
    ) -> Option<(u32, Members)> {
        let number = if self.len == 0 { None } else { words.cluster_of(index) }?;
        Some((number, self.get(words, number)))
    }

    pub(super) fn used<P: Platform>(&self, words: ClusterWords<'_, P>) -> u32 {
        let words = (0..self.len.div_ceil(64)).map(|at| self.used_in(words, at));
        words.map(u64::count_ones).sum()
    }

    pub(super) fn wait<P: Platform>(&self, words: ClusterWords<'_, P>) -> bool {
        let mut waited = false;
        while self.len > 0 && words.is_cutting(self.first) {
            waited = true;
            P::relax();
        }
        waited
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use crate::platform::single::SingleThread;
    use std::vec::Vec;

    type Word = <SingleThread as Platform>::Word;

    /// An array for 64 frames in clusters of 4, and what the frames know.
    fn with(f: impl FnOnce(ClusterArray, ClusterWords<'_, SingleThread>)) {
        let words = |count: u64| {
            (0..count).map(|_| <Word as crate::platform::AtomicWord>::new(0)).collect::<Vec<_>>()
        };
        let (array, frames) = (words(ClusterArray::words(64, 4)), words(64));
        let mut own = ClusterArray::new(0, 64, 4);
        own.set_batch(4);
        f(own, ClusterWords { cluster_array: &array, cluster_of: &frames });
    }

    #[test]
    fn the_bitmap_in_memory_has_every_entry() {
        with(|mut array, words| {
            let bitmap = |words: ClusterWords<'_, SingleThread>| words.cluster_word(1);
            array.joined(words, 0, true, None, false);
            assert_eq!(bitmap(words), 0b1);
            for frame in 1..5 {
                array.joined(words, frame, true, Some(frame - 1), false);
            }
            assert_eq!(bitmap(words), 0b11, "four are a cluster, the fifth begins one");
            array.leaving(words, 4, true, None);
            assert_eq!(bitmap(words), 0b1);
        });
    }

    #[test]
    fn who_leaves_forgets_its_cluster() {
        with(|mut array, words| {
            array.joined(words, 7, true, None, false);
            array.joined(words, 8, true, Some(7), false);
            array.leaving(words, 8, true, None);
            assert_eq!((words.cluster_of(8), words.cluster_of(7)), (None, Some(0)));
        });
    }
}
