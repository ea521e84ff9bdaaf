//! A look at one page.

use crate::inner::{Core, Setup};
use crate::table::Reader;
use core::fmt;
use core::mem::ManuallyDrop;
use core::ops::Deref;
use core::ptr;

/// A look at one page, until dropped; by a panic too.
pub(crate) struct Page<'a, S: Setup> {
    core: &'a Core<S>,
    reader: ManuallyDrop<Reader>,
}

impl<'a, S: Setup> Page<'a, S> {
    #[inline(always)]
    pub(crate) const fn new(core: &'a Core<S>, reader: Reader) -> Self {
        Self { core, reader: ManuallyDrop::new(reader) }
    }
    #[inline(always)]
    pub(crate) const fn core(&self) -> &'a Core<S> {
        self.core
    }
    #[inline(always)]
    pub(crate) fn reader(&self) -> &Reader {
        &self.reader
    }
}

impl<S: Setup> Deref for Page<'_, S> {
    type Target = [u8];

    #[inline(always)]
    fn deref(&self) -> &[u8] {
        self.bytes()
    }
}

impl<S: Setup> Drop for Page<'_, S> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: taken once, and not used again.
        let reader = unsafe { ManuallyDrop::take(&mut self.reader) };
        self.core.release_one(self.core.table.leave(reader));
    }
}

impl<S: Setup> fmt::Debug for Page<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Page").field("at", &ptr::from_ref(self.core)).finish_non_exhaustive()
    }
}
