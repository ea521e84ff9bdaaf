//! Ranges and pageblocks of a zone: isolated, taken, brought, withdrawn.

use super::ListGuard;
use super::clusters::Clusters;
use super::free_area::End;
use super::merge::Merge;
use crate::frame::{FrameKind, FrameState, PageblockWord};
use crate::platform::Platform;
use crate::types::error::RangeError;
use crate::types::migrate_type::MigrateType;
use crate::types::units::{Order, largest_piece};
use core::ops::Range;

/// Largest blocks that come in one hold, and pageblock words written for them at most, unless
/// one such block has more.
const BLOCKS_PER_HOLD: u32 = 64;
const WORDS_PER_HOLD: u32 = 512;

impl<P: Platform, M: Merge, C: Clusters> ListGuard<'_, P, M, C> {
    /// Isolates the pageblock that starts at `start`. Work: its frames, twice or three times; twice more if it
    /// was set apart.
    pub(super) fn isolate_pageblock(
        &mut self,
        start: u32,
        frames: &Range<u32>,
    ) -> Result<(), RangeError> {
        if self.apart == Some(start) {
            self.rejoin();
        }
        let before = self.check_isolation(start, frames)?;
        self.high_atomic_pageblocks -= u32::from(before == MigrateType::HighAtomic);
        self.withdraw_pageblock(start, before);
        Ok(())
    }

    /// Ends the isolation of the pageblock that starts at `start`: see
    /// [`FreeMemory::end_isolation`](crate::zone::FreeMemory::end_isolation).
    pub(super) fn end_isolation(&mut self, start: u32, undo: bool) {
        if self.table.type_before(start) == Some(MigrateType::HighAtomic) {
            if undo && self.high_atomic_pageblocks < self.high_atomic_limit {
                self.high_atomic_pageblocks += 1;
            } else {
                self.table.note_type_before(start, MigrateType::Movable, true);
            }
        }
        self.restore_pageblock(start);
    }

    /// Makes the pageblock that starts at `start` isolate and notes the type that it gets back.
    pub(crate) fn withdraw_pageblock(&mut self, start: u32, before: MigrateType) {
        self.move_pageblock(start, MigrateType::Isolate);
        self.table.note_type_before(start, before, true);
    }

    /// Gives the pageblock that starts at `start` its type back.
    pub(crate) fn restore_pageblock(&mut self, start: u32) {
        if let Some(before) = self.table.type_before(start) {
            self.move_pageblock(start, before);
        }
    }

    /// Work: the frames of a pageblock, and its free blocks.
    pub(super) fn set_apart(&mut self, start: u32) {
        let before = self.table.pageblock(start).migrate();
        if self.apart.is_none() && (before.is_requestable() || before == MigrateType::Cma) {
            self.withdraw_pageblock(start, before);
            self.apart = Some(start);
        }
    }

    /// Gives the pageblock that is set apart its type back, if there is one. Work: as above.
    pub(crate) fn rejoin(&mut self) {
        if let Some(start) = self.apart.take() {
            self.restore_pageblock(start);
        }
    }

    /// Takes what `frames` begins with of the free block there, in an isolated pageblock, and
    /// marks it frame by frame; the rest of the block stays free. Returns where it
    /// stopped. Work: the frames of one block.
    pub(super) fn take_isolated(&mut self, frames: Range<u32>, mark: FrameState) -> Option<u32> {
        let (head, state) = self.table.locate(frames.start)?;
        let migrate = self.table.pageblock(head).migrate();
        if state.kind() != FrameKind::Free || migrate != MigrateType::Isolate {
            return None;
        }
        self.remove(head, state.order(), migrate);
        let end = head + state.order().size();
        let taken = frames.start..end.min(frames.end);
        for rest in [head..taken.start, taken.end..end] {
            let mut at = rest.start;
            while at < rest.end {
                let order = largest_piece(at, rest.end, Order::MAX);
                self.add(at, FrameState::free(order), migrate, End::Head);
                at += order.size();
            }
        }
        taken.clone().for_each(|at| self.table.set_state(at, mark));
        self.area.count_work(taken.len() as u32);
        self.events.direct_alloc += taken.len() as u64;
        Some(taken.end)
    }

    /// Makes the start of `at..end`, whole pageblocks that are not there, the zone's, movable and
    /// free; returns where it stopped. Work: [`WORDS_PER_HOLD`] pageblock words and a few list
    /// operations for each of [`BLOCKS_PER_HOLD`] blocks.
    pub(super) fn bring(&mut self, at: u32, end: u32) -> u32 {
        let (largest, size) = (Order::MAX.size(), self.table.pageblock_order().size());
        let whole = if at.is_multiple_of(largest) { (end - at) / largest } else { 0 };
        let blocks = whole.min(WORDS_PER_HOLD / (largest / size)).clamp(1, BLOCKS_PER_HOLD);
        let until = match whole {
            // Up to the next largest block, or to the end.
            0 => (at | (largest - 1)).min(end - 1) + 1,
            _ => at + blocks * largest,
        };
        for start in (at..until).step_by(size as usize) {
            self.table.set_pageblock(start, PageblockWord::new(self.zone.id, MigrateType::Movable));
        }
        self.area.count_work((until - at) / size);
        let links = self.links();
        if whole == 0 || !self.untouched.append(links, at, until) {
            self.free_range(at, until, u32::MAX);
        }
        until
    }

    /// Makes the start of `at..end`, pageblocks whose frames were all taken, and are in no place and
    /// ours, no zone's; returns where it stopped. Work: the frames of a largest block.
    pub(super) fn withdraw(&mut self, at: u32, end: u32) -> u32 {
        let until = end.min(at + Order::MAX.size());
        let gone = until - at;
        (at..until).for_each(|index| self.table.set_state(index, FrameState::INNER));
        for start in (at..until).step_by(self.table.pageblock_order().frames() as usize) {
            self.table.set_pageblock(start, PageblockWord::NONE);
        }
        // They were counted as handed out.
        self.events.direct_free += u64::from(gone);
        self.area.count_work(gone);
        until
    }
}
