//! The slots of clusters on the order-0 lists: see [`cluster`](super::cluster).

use crate::frame::FrameTable;
use crate::platform::Platform;

/// Words of the bitmap that one claim looks at.
const CLAIM_WORDS: u32 = 16;

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
pub struct Slots {
    pub(super) first: u64,
    pub(super) slots: u32,
    /// No slot below this is free.
    hint: u32,
    batch: u32,
}

impl Slots {
    pub(super) const VACANT: Self = Self { first: 0, slots: 0, hint: 0, batch: 0 };

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

    /// A zone whose words begin at `first`.
    pub(super) fn new(first: u64, managed: u64, batch: u32) -> Self {
        Self { first, slots: Self::count(managed, batch) as u32, hint: 0, batch }
    }

    fn bitmap(&self, slot: u32) -> u64 {
        self.first + 1 + u64::from(slot / 64)
    }

    fn slot(&self, slot: u32) -> u64 {
        self.first + 1 + u64::from(self.slots).div_ceil(64) + u64::from(slot)
    }

    fn get<P: Platform>(&self, table: &FrameTable<'_, P>, slot: u32) -> Members {
        let word = table.slot_word(self.slot(slot));
        let (count, skipped) = ((word >> 32) as u16, (word >> 48) as u16);
        Members { tail: word as u32, count: count.into(), skipped: skipped.into() }
    }

    fn set<P: Platform>(&self, table: &FrameTable<'_, P>, slot: u32, members: Members) {
        // No truncation: at most a batch of frames.
        let counts = u64::from(members.count as u16) | u64::from(members.skipped as u16) << 16;
        table.set_slot_word(self.slot(slot), u64::from(members.tail) | counts << 32);
    }

    /// A free slot, now in use: the lowest, as far as [`CLAIM_WORDS`] words of the bitmap say. What
    /// lies behind them is for the next claim; until then the zone is out of slots (I-7).
    fn claim<P: Platform>(&mut self, table: &FrameTable<'_, P>) -> Option<u32> {
        let first = self.hint / 64;
        for at in first..first + CLAIM_WORDS {
            if at * 64 >= self.slots {
                self.hint = self.slots;
                return None;
            }
            let used = table.slot_word(self.bitmap(at * 64));
            let slot = at * 64 + used.trailing_ones();
            if used != u64::MAX && slot < self.slots {
                table.set_slot_word(self.bitmap(slot), used | 1 << (slot % 64));
                self.hint = slot;
                return Some(slot);
            }
        }
        self.hint = (first + CLAIM_WORDS) * 64;
        None
    }

    fn release<P: Platform>(&mut self, table: &FrameTable<'_, P>, slot: u32) {
        let used = table.slot_word(self.bitmap(slot));
        table.set_slot_word(self.bitmap(slot), used & !(1 << (slot % 64)));
        self.hint = self.hint.min(slot);
    }

    pub(super) fn joined<P: Platform>(
        &mut self,
        table: &FrameTable<'_, P>,
        index: u32,
        skipped: bool,
        neighbour: Option<u32>,
        last: bool,
    ) {
        if self.slots == 0 {
            return;
        }
        if let Some(slot) = neighbour.and_then(|frame| table.cluster_of(frame)) {
            let Members { tail, count, skipped: before } = self.get(table, slot);
            if count < self.batch {
                let tail = if last { index } else { tail };
                let skipped = before + u32::from(skipped);
                self.set(table, slot, Members { tail, count: count + 1, skipped });
                table.set_cluster_of(index, Some(slot));
                return;
            }
        }
        let alone = Members { tail: index, count: 1, skipped: skipped.into() };
        let slot = self.begin(table, alone);
        table.set_cluster_of(index, slot);
    }

    pub(super) fn leaving<P: Platform>(
        &mut self,
        table: &FrameTable<'_, P>,
        index: u32,
        skipped: bool,
        before: Option<u32>,
    ) {
        if self.slots == 0 {
            return;
        }
        let Some(slot) = table.cluster_of(index) else { return };
        let Members { tail, count, skipped: all } = self.get(table, slot);
        if count == 1 {
            return self.release(table, slot);
        }
        let tail = if tail == index { before.unwrap_or(tail) } else { tail };
        let skipped = all - u32::from(skipped);
        self.set(table, slot, Members { tail, count: count - 1, skipped });
    }

    pub(super) fn end<P: Platform>(
        &mut self,
        table: &FrameTable<'_, P>,
        head: u32,
        most: u64,
    ) -> Option<Members> {
        let slot = if self.slots == 0 { None } else { table.cluster_of(head) }?;
        let members = self.get(table, slot);
        (u64::from(members.count) <= most).then(|| {
            self.release(table, slot);
            members
        })
    }

    pub(super) fn begin<P: Platform>(
        &mut self,
        table: &FrameTable<'_, P>,
        members: Members,
    ) -> Option<u32> {
        let slot = self.claim(table)?;
        self.set(table, slot, members);
        Some(slot)
    }

    pub(super) fn find<P: Platform>(
        &self,
        table: &FrameTable<'_, P>,
        index: u32,
    ) -> Option<(u32, Members)> {
        let slot = if self.slots == 0 { None } else { table.cluster_of(index) }?;
        Some((slot, self.get(table, slot)))
    }

    pub(super) fn used<P: Platform>(&self, table: &FrameTable<'_, P>) -> u32 {
        let words = (0..self.slots).step_by(64).map(|slot| table.slot_word(self.bitmap(slot)));
        words.map(u64::count_ones).sum()
    }

    pub(super) fn wait<P: Platform>(&self, table: &FrameTable<'_, P>) -> bool {
        let mut waited = false;
        while self.slots > 0 && table.window_open(self.first) {
            waited = true;
            P::relax();
        }
        waited
    }
}
