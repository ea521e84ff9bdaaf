//! The pageblock that a CPU's owner last freed to, remembered so that the next frame of it is freed
//! outside the slot.
//!
//! **S-3**: a frame of a pageblock whose type changes is not kept on a stack that has been drained since.
//! Who changes a pageblock's word drains after that. A drain shuts the stack, in the slot: it lowers the limit, which comes
//! before its heavy fence and the look at `top`. A push comes before its light fence and the look at the limit after
//! it. So the drain sees the frame, or the owner sees that the limit was lowered.
//!
//! Only the owner opens the stack again, in the slot, and forgets what it remembers of pageblocks when it does. What it
//! remembers was read after it last opened the stack; so if that is from before the change, the drain came after, and the
//! stack is shut. A change of type without a drain, as when a CPU claims a pageblock, is noticed by the next window.

use super::frames::FrameStack;
use crate::frame::{ALLOCATED, CACHED, PageblockView, Release};
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
    /// Where its frames are kept.
    stack: &'m FrameStack<P, N>,
}

impl<'m, P: Platform, const N: usize> Window<'m, P, N> {
    /// For no frame.
    #[inline(always)]
    pub(super) fn shut(stack: &'m FrameStack<P, N>) -> Self {
        Self { pageblock: PageblockView::EMPTY, base: Pfn::new(0), stack }
    }

    /// For one frame of the table only, which is for `stack`: where its pageblock ends it does not know.
    #[inline(always)]
    pub(super) fn of_one(stack: &'m FrameStack<P, N>, table: &ZoneTables<'m, P>) -> Self {
        Self { pageblock: table.view_all(), base: table.pfn(0), stack }
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
    pub(super) fn push<R: Release>(&self, pfn: Pfn, told: impl FnOnce()) -> Pushed {
        let at = pfn.get().wrapping_sub(self.base.get()) as usize;
        let Some(place) = self.stack.room() else { return Pushed::No };
        if !self.pageblock.release::<R>(at, ALLOCATED, CACHED) {
            return Pushed::No;
        }
        or_undo(told, || {
            self.pageblock.release::<R>(at, CACHED, ALLOCATED);
        });
        // No truncation: it is one of the pageblock's.
        let index = self.pageblock.first().wrapping_add(at as u32);
        self.stack.push_owned(place, index);
        // S-3, with the heavy one of `Drain::begin`.
        P::light_fence();
        if !self.stack.is_open_still(place) {
            return Pushed::Elsewhere(index);
        }
        self.stack.count_freed();
        Pushed::Yes
    }
}
