//! Slots that are in no use, in the hands of a thread: with frames, and without.

use crate::error::CacheError;
use crate::inner::{Core, Met, Setup};
use crate::table::Claimed;
use alloc::vec::Vec;
use core::mem;

/// Slots with frames that are in no use yet; those that are left are free again when this is dropped.
pub(crate) struct Slots<'a, S: Setup> {
    pub(crate) core: &'a Core<S>,
    pub(crate) list: Vec<Claimed>,
}

impl<'a, S: Setup> Slots<'a, S> {
    /// None yet.
    pub(crate) const fn none(core: &'a Core<S>) -> Self {
        Self { core, list: Vec::new() }
    }

    /// As the core's `take_slots`, for one of a file that is to be written to, if there is none.
    pub(crate) fn fill(&mut self, file: u64, less_throttled: bool) -> Result<(), CacheError> {
        if self.list.is_empty() {
            let met = Met::writing(file, less_throttled);
            self.list = mem::take(&mut self.core.take_slots(1, met)?.list);
        }
        Ok(())
    }

    pub(crate) const fn len(&self) -> usize {
        self.list.len()
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub(crate) fn pop(&mut self) -> Option<Claimed> {
        self.list.pop()
    }

    pub(crate) fn push(&mut self, claimed: Claimed) {
        self.list.push(claimed);
    }

    pub(crate) fn last(&self) -> Option<&Claimed> {
        self.list.last()
    }
}

/// Slots without a frame. Dropped, they go back.
pub(crate) struct Bare<'a, S: Setup> {
    pub(crate) core: &'a Core<S>,
    pub(crate) list: Vec<Claimed>,
}

impl<S: Setup> Drop for Bare<'_, S> {
    fn drop(&mut self) {
        if !self.list.is_empty() {
            self.core.put_back(self.list.drain(..).rev());
        }
    }
}

impl<S: Setup> Drop for Slots<'_, S> {
    fn drop(&mut self) {
        self.core.release(mem::take(&mut self.list));
    }
}
