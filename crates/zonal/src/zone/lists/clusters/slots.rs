//! The slots of clusters on the order-0 lists: see [`clusters`](super).

use super::ClusterWords;
use crate::frame::links::NIL;
use crate::platform::Platform;

/// Words of the bitmap that one claim looks at.
const CLAIM_WORDS: u32 = 16;

/// Bits of a slot's word: the tail, from here on 16 for the count, and from here on 16 for how
/// many of those are merge-skipped.
const COUNT: u32 = 32;
const SKIPPED: u32 = 48;

/// How many frames the cluster has whose slot says `word`.
#[inline]
fn count_in(word: u64) -> u32 {
    (word >> COUNT) as u32 & u32::from(u16::MAX)
}

/// A word of the bitmap that is kept beside what the lock guards: the words are on a line that
/// comes from the CPU that freed last, and a claim would wait for it before it knew its slot.
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

/// A zone's slots: where they are, and the lowest that may be free.
///
/// The zone's words are, in this order: `in_progress`, the bitmap of slots in use, the slots.
#[derive(Debug)]
pub struct ClusterSlots {
    pub(super) first: u64,
    /// Slots in use or free for it: none, or all that there is `room` for.
    pub(super) slots: u32,
    room: u32,
    /// Number of the first slot's word.
    base: u64,
    /// No slot below this is free.
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
    slot: u32,
}

impl Latest {
    const UNKNOWN: Self = Self { frame: NIL, slot: 0 };
}

impl ClusterSlots {
    pub(super) const VACANT: Self = Self {
        first: 0,
        slots: 0,
        room: 0,
        base: 0,
        hint: 0,
        batch: 0,
        open: Open { at: NIL, used: 0 },
        latest: Latest::UNKNOWN,
    };

    fn count(managed: u64, batch: u32) -> u64 {
        // The word of a frame has room for 32 bits of slot number.
        if !(2..=u32::from(u16::MAX)).contains(&batch) {
            0
        } else {
            managed.div_ceil(u64::from(batch)).min(u64::from(u32::MAX) - 1)
        }
    }

    pub(super) fn words(managed: u64, batch: u32) -> u64 {
        match Self::count(managed, batch) {
            0 => 0,
            slots => 1 + slots.div_ceil(64) + slots,
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
            (self.batch, self.slots) = (batch, self.room);
        }
    }

    /// Which of 64 slots are in use.
    fn used_in<P: Platform>(&self, words: ClusterWords<'_, P>, at: u32) -> u64 {
        if at == self.open.at { self.open.used } else { words.cluster_word(self.bitmap(at)) }
    }

    fn bitmap(&self, at: u32) -> u64 {
        self.first + 1 + u64::from(at)
    }

    fn slot(&self, slot: u32) -> u64 {
        self.base + u64::from(slot)
    }

    fn get<P: Platform>(&self, words: ClusterWords<'_, P>, slot: u32) -> Members {
        let word = words.cluster_word(self.slot(slot));
        let skipped = (word >> SKIPPED) as u32;
        Members { tail: word as u32, count: count_in(word), skipped }
    }

    fn set<P: Platform>(&self, words: ClusterWords<'_, P>, slot: u32, members: Members) {
        // No overlap: at most a batch of frames.
        let counts = u64::from(members.count) << COUNT | u64::from(members.skipped) << SKIPPED;
        words.set_cluster_word(self.slot(slot), u64::from(members.tail) | counts);
    }

    /// A free slot, now in use: the lowest, as far as [`CLAIM_WORDS`] words of the bitmap say. What
    /// lies behind them is for the next claim; until then the zone is out of slots (I-7).
    fn claim<P: Platform>(&mut self, words: ClusterWords<'_, P>) -> Option<u32> {
        let first = self.hint / 64;
        for at in first..first + CLAIM_WORDS {
            if at * 64 >= self.slots {
                self.hint = self.slots;
                return None;
            }
            let used = self.used_in(words, at);
            let slot = at * 64 + used.trailing_ones();
            if used != u64::MAX && slot < self.slots {
                if at != self.open.at && self.open.at != NIL {
                    words.set_cluster_word(self.bitmap(self.open.at), self.open.used);
                }
                self.open = Open { at, used: used | 1 << (slot % 64) };
                self.hint = slot;
                return Some(slot);
            }
        }
        self.hint = (first + CLAIM_WORDS) * 64;
        None
    }

    fn release<P: Platform>(&mut self, words: ClusterWords<'_, P>, slot: u32) {
        let (at, bit) = (slot / 64, 1 << (slot % 64));
        if at == self.open.at {
            self.open.used &= !bit;
        } else {
            let used = words.cluster_word(self.bitmap(at));
            words.set_cluster_word(self.bitmap(at), used & !bit);
        }
        self.hint = self.hint.min(slot);
    }

    /// For every frame that comes to an order-0 list, so on the free path: one word of the
    /// neighbour, one of the slot, one of the frame.
    #[inline(always)]
    pub(super) fn joined<P: Platform>(
        &mut self,
        words: ClusterWords<'_, P>,
        index: u32,
        skipped: bool,
        neighbour: Option<u32>,
        last: bool,
    ) {
        if self.slots == 0 {
            return;
        }
        if let Some(slot) = neighbour.and_then(|frame| self.slot_of(words, frame)) {
            let word = words.cluster_word(self.slot(slot));
            if count_in(word) < self.batch {
                let word = if last { word >> 32 << 32 | u64::from(index) } else { word };
                let one = 1 << COUNT | u64::from(skipped) << SKIPPED;
                words.set_cluster_word(self.slot(slot), word + one);
                words.set_cluster_of(index, Some(slot));
                self.latest.frame = index;
                if self.latest.slot != slot {
                    self.latest.slot = slot;
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
        if self.slots == 0 {
            return;
        }
        let mut rest = frames;
        let mut joined = neighbour.and_then(|frame| self.slot_of(words, frame));
        while let Some((&first, after)) = rest.split_first() {
            let word = joined.map_or(0, |slot| words.cluster_word(self.slot(slot)));
            let room = self.batch.saturating_sub(count_in(word)) as usize;
            if let (Some(slot), 1..) = (joined, room) {
                let (more, later) = rest.split_at(room.min(rest.len()));
                let all = more.len() as u64;
                words.set_cluster_word(self.slot(slot), word + (all << COUNT | all << SKIPPED));
                more.iter().for_each(|&frame| words.set_cluster_of(frame, joined));
                if let Some(&frame) = more.last() {
                    self.latest = Latest { frame, slot };
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
        let slot = self.begin(words, alone);
        words.set_cluster_of(index, slot);
        self.latest = slot.map_or(Latest::UNKNOWN, |slot| Latest { frame: index, slot });
        slot
    }

    /// The slot of the cluster that a listed frame belongs to.
    #[inline(always)]
    fn slot_of<P: Platform>(&self, words: ClusterWords<'_, P>, frame: u32) -> Option<u32> {
        if frame != self.latest.frame {
            return words.cluster_of(frame);
        }
        debug_assert_eq!(words.cluster_of(frame), Some(self.latest.slot));
        Some(self.latest.slot)
    }

    pub(super) fn leaving<P: Platform>(
        &mut self,
        words: ClusterWords<'_, P>,
        index: u32,
        skipped: bool,
        before: Option<u32>,
    ) {
        if self.slots == 0 {
            return;
        }
        let Some(slot) = words.cluster_of(index) else { return };
        let Members { tail, count, skipped: all } = self.get(words, slot);
        if count == 1 {
            return self.release(words, slot);
        }
        let tail = if tail == index { before.unwrap_or(tail) } else { tail };
        let skipped = all - u32::from(skipped);
        self.set(words, slot, Members { tail, count: count - 1, skipped });
    }

    pub(super) fn end<P: Platform>(
        &mut self,
        words: ClusterWords<'_, P>,
        head: u32,
        most: u64,
    ) -> Option<Members> {
        let slot = if self.slots == 0 { None } else { words.cluster_of(head) }?;
        let members = self.get(words, slot);
        (u64::from(members.count) <= most).then(|| {
            self.release(words, slot);
            members
        })
    }

    pub(super) fn begin<P: Platform>(
        &mut self,
        words: ClusterWords<'_, P>,
        members: Members,
    ) -> Option<u32> {
        let slot = self.claim(words)?;
        self.set(words, slot, members);
        // The caller tells the frames.
        self.latest = Latest::UNKNOWN;
        Some(slot)
    }

    pub(super) fn find<P: Platform>(
        &self,
        words: ClusterWords<'_, P>,
        index: u32,
    ) -> Option<(u32, Members)> {
        let slot = if self.slots == 0 { None } else { words.cluster_of(index) }?;
        Some((slot, self.get(words, slot)))
    }

    pub(super) fn used<P: Platform>(&self, words: ClusterWords<'_, P>) -> u32 {
        let words = (0..self.slots.div_ceil(64)).map(|at| self.used_in(words, at));
        words.map(u64::count_ones).sum()
    }

    pub(super) fn wait<P: Platform>(&self, words: ClusterWords<'_, P>) -> bool {
        let mut waited = false;
        while self.slots > 0 && words.window_open(self.first) {
            waited = true;
            P::relax();
        }
        waited
    }
}
