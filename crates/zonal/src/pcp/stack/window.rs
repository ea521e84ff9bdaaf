//! The pageblock that a CPU's owner last freed to, remembered so that the next frame of it is freed
//! outside the slot.
//!
//! **S-3**: a frame of a pageblock whose type changes is not kept on a stack that has been drained since.
//! A push comes before its light fence and the look at the pageblock's word after it; who changes the word
//! drains after that, with a heavy fence. So the drain sees the frame, or the owner sees the changed word.

use super::frames::FrameStack;
use crate::frame::{ALLOCATED, CACHED, PageblockView, PageblockWord};
use crate::platform::Platform;
use crate::policy::pcp::Pushed;
use crate::trace::or_undo;
use crate::types::units::Pfn;
use crate::zone::tables::ZoneTables;

/// A pageblock of which freed frames stay with the CPU.
pub struct Window<'m, P: Platform, const N: usize> {
    pageblock: PageblockView<'m, P>,
    /// Its first frame.
    base: Pfn,
    /// What its word was when it was looked at.
    seen: PageblockWord,
    /// Where its frames are kept.
    stack: &'m FrameStack<P, N>,
}

impl<'m, P: Platform, const N: usize> Window<'m, P, N> {
    /// For the frame at an offset of the table only, whose pageblock's word was `seen` and which is for `stack`: where
    /// the pageblock ends it does not know.
    #[inline(always)]
    pub(super) fn of_one(
        stack: &'m FrameStack<P, N>,
        table: &ZoneTables<'m, P>,
        seen: PageblockWord,
        offset: usize,
    ) -> Option<Self> {
        let (pageblock, base) = (table.view_all(offset)?, table.pfn(0));
        Some(Self { pageblock, base, seen, stack })
    }

    /// The same for all frames of the pageblock of `index`, which is that of its frame.
    #[inline(always)]
    pub(super) fn widened(self, table: &ZoneTables<'m, P>, index: u32) -> Option<Self> {
        let pageblock = table.view(index)?;
        let base = table.pfn(pageblock.first());
        Some(Self { pageblock, base, ..self })
    }

    /// Frees a frame, if it is of the pageblock, allocated by itself, and the stack has room. `told` says so
    /// before another can have it.
    #[inline(always)]
    pub(super) fn push(&self, pfn: Pfn, told: impl FnOnce()) -> Pushed {
        let at = pfn.get().wrapping_sub(self.base.get()) as usize;
        let Some(place) = self.stack.room() else { return Pushed::No };
        if !self.pageblock.exchange_state(at, ALLOCATED, CACHED) {
            return Pushed::No;
        }
        or_undo(told, || {
            self.pageblock.exchange_state(at, CACHED, ALLOCATED);
        });
        // No truncation: it is one of the pageblock's.
        let index = self.pageblock.first().wrapping_add(at as u32);
        self.stack.push_owned(place, index);
        // S-3, with the heavy one of a drain.
        P::light_fence();
        if !self.pageblock.is_still(self.seen) {
            return Pushed::Elsewhere(index);
        }
        self.stack.count_freed();
        Pushed::Yes
    }
}
