//! A look at one page.

use crate::frames::bytes;
use crate::inner::{Core, Setup};
use crate::table::Seen;
use core::fmt;
use core::mem::ManuallyDrop;
use core::ops::Deref;
use core::ptr;
use zonal::Pfn;

/// A look at one page, until dropped; by a panic too.
pub(crate) struct Page<'a, S: Setup> {
    core: &'a Core<S>,
    seen: ManuallyDrop<Seen<'a, S::Host>>,
}

impl<'a, S: Setup> Page<'a, S> {
    /// `seen` is of the core's table.
    #[inline(always)]
    pub(crate) const fn new(core: &'a Core<S>, seen: Seen<'a, S::Host>) -> Self {
        Self { core, seen: ManuallyDrop::new(seen) }
    }

    /// The same as a token, which is to be left.
    #[inline(always)]
    pub(crate) fn into_seen(self) -> Seen<'a, S::Host> {
        let mut page = ManuallyDrop::new(self);
        // SAFETY: taken once: the page, which would take it when it is dropped, is not dropped.
        unsafe { ManuallyDrop::take(&mut page.seen) }
    }

    /// Its frame.
    pub(crate) fn frame(&self) -> Pfn {
        self.seen.frame()
    }

    /// Where that is from.
    pub(crate) fn frames(&self) -> &'a S::Frames {
        &self.core.frames
    }

    /// Whether this is the first look at a page that was filled with a marker.
    pub(crate) fn take_marker(&self) -> bool {
        self.seen.take_marker()
    }
}

impl<S: Setup> Deref for Page<'_, S> {
    type Target = [u8];

    /// Its bytes.
    #[inline(always)]
    fn deref(&self) -> &[u8] {
        // SAFETY: while there is a reader the frame is the page's and no thread writes to it.
        unsafe { bytes(&self.core.frames, self.seen.frame()) }
    }
}

impl<S: Setup> Drop for Page<'_, S> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: taken once, and not used again.
        let seen = unsafe { ManuallyDrop::take(&mut self.seen) };
        self.core.release_one(seen.leave(&self.core.table));
    }
}

impl<S: Setup> fmt::Debug for Page<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Page").field("at", &ptr::from_ref(self.core)).finish_non_exhaustive()
    }
}
