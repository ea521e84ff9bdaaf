//! The array of the clusters on the order-0 lists: see [`clusters`](super).

use super::ClusterWords;
use crate::frame::links::NIL;
use crate::platform::Platform;

/// Words of the bitmap that one claim looks at.
const CLAIM_WORDS: u32 = 16;

/// Bits of an entry's word: the tail, from here on 16 for the count, and from here on 16 for how
/// many of those are merge-skipped.
const COUNT: u32 = 32;
const SKIPPED: u32 = 48;

/// How many frames the cluster has whose entry says `word`.
#[inline]
fn count_in(word: u64) -> u32 {
    (word >> COUNT) as u32 & u32::from(u16::MAX)
}

/// A word of the bitmap that is kept beside what the lock guards: the words are on a line that
/// comes from the CPU that freed last, and a claim would wait for it before it knew its entry.
#[derive(Clone, Copy, Debug)]
struct Open {
    /// Its place; `NIL`: none.
    at: u32,
    /// What it says. The caller's memory has an older state of it.
    used: u64,
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
    /// The word of the latest claim.
    open: Open,
    latest: Latest,
}

/// The frame that joined a cluster last, and which: most frames join next to it, and the look at
/// the words that it has just written is what a free would wait for.
#[derive(Clone, Copy, Debug)]
struct Latest {
    /// `NIL`: not known.
    frame: u32,
    number: u32,
}

impl Latest {
    const UNKNOWN: Self = Self { frame: NIL, number: 0 };
}

impl ClusterArray {
    pub(super) const VACANT: Self = Self {
        first: 0,
        len: 0,
        room: 0,
        base: 0,
        hint: 0,
        batch: 0,
        open: Open { at: NIL, used: 0 },
        latest: Latest::UNKNOWN,
    };

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
        if at == self.open.at { self.open.used } else { words.cluster_word(self.bitmap(at)) }
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

    /// The number of a free entry, now in use: the lowest, as far as [`CLAIM_WORDS`] words of the bitmap say. What
    /// lies behind them is for the next claim; until then the array is full (I-7).
    fn claim<P: Platform>(&mut self, words: ClusterWords<'_, P>) -> Option<u32> {
        let first = self.hint / 64;
        for at in first..first + CLAIM_WORDS {
            if at * 64 >= self.len {
                self.hint = self.len;
                return None;
            }
            let used = self.used_in(words, at);
            let number = at * 64 + used.trailing_ones();
            if used != u64::MAX && number < self.len {
                if at != self.open.at && self.open.at != NIL {
                    words.set_cluster_word(self.bitmap(self.open.at), self.open.used);
                }
                self.open = Open { at, used: used | 1 << (number % 64) };
                self.hint = number;
                return Some(number);
            }
        }
        self.hint = (first + CLAIM_WORDS) * 64;
        None
    }

    fn release<P: Platform>(&mut self, words: ClusterWords<'_, P>, number: u32) {
        let (at, bit) = (number / 64, 1 << (number % 64));
        if at == self.open.at {
            self.open.used &= !bit;
        } else {
            let used = words.cluster_word(self.bitmap(at));
            words.set_cluster_word(self.bitmap(at), used & !bit);
        }
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
        if let Some(number) = neighbour.and_then(|frame| self.number_of(words, frame)) {
            let word = words.cluster_word(self.word_of(number));
            if count_in(word) < self.batch {
                let word = if last { word >> 32 << 32 | u64::from(index) } else { word };
                let one = 1 << COUNT | u64::from(skipped) << SKIPPED;
                words.set_cluster_word(self.word_of(number), word + one);
                words.set_cluster_of(index, Some(number));
                self.latest.frame = index;
                if self.latest.number != number {
                    self.latest.number = number;
                }
                return;
            }
        }
        self.begin_with(words, index, skipped);
    }

    /// As [`joined`](Self::joined) for each of `frames`, all merge-skipped, at the head of the list:
    /// a cluster's count is written once for all that join it.
    #[inline(always)]
    pub(super) fn joined_run<P: Platform>(
        &mut self,
        words: ClusterWords<'_, P>,
        frames: &[u32],
        neighbour: Option<u32>,
    ) {
        if self.len == 0 {
            return;
        }
        let mut rest = frames;
        let mut joined = neighbour.and_then(|frame| self.number_of(words, frame));
        while let Some((&first, after)) = rest.split_first() {
            let word = joined.map_or(0, |number| words.cluster_word(self.word_of(number)));
            let room = self.batch.saturating_sub(count_in(word)) as usize;
            if let (Some(number), 1..) = (joined, room) {
                let (more, later) = rest.split_at(room.min(rest.len()));
                let all = more.len() as u64;
                words
                    .set_cluster_word(self.word_of(number), word + (all << COUNT | all << SKIPPED));
                more.iter().for_each(|&frame| words.set_cluster_of(frame, joined));
                if let Some(&frame) = more.last() {
                    self.latest = Latest { frame, number };
                }
                rest = later;
            } else {
                joined = self.begin_with(words, first, true);
                rest = after;
            }
        }
    }

    /// A new cluster of the frame alone. Out of line: it is for one frame in a batch.
    #[inline(never)]
    fn begin_with<P: Platform>(
        &mut self,
        words: ClusterWords<'_, P>,
        index: u32,
        skipped: bool,
    ) -> Option<u32> {
        let alone = Members { tail: index, count: 1, skipped: skipped.into() };
        let number = self.begin(words, alone);
        words.set_cluster_of(index, number);
        self.latest = number.map_or(Latest::UNKNOWN, |number| Latest { frame: index, number });
        number
    }

    /// The number of the cluster that a listed frame belongs to.
    #[inline(always)]
    fn number_of<P: Platform>(&self, words: ClusterWords<'_, P>, frame: u32) -> Option<u32> {
        if frame != self.latest.frame {
            return words.cluster_of(frame);
        }
        debug_assert_eq!(words.cluster_of(frame), Some(self.latest.number));
        Some(self.latest.number)
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
        let number = self.claim(words)?;
        self.set(words, number, members);
        // The caller tells the frames.
        self.latest = Latest::UNKNOWN;
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
        while self.len > 0 && words.window_open(self.first) {
            waited = true;
            P::relax();
        }
        waited
    }
}
