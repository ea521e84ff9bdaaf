//! What cuts a store off: it counts operations, and refuses some.

use super::next;
use std::ops::Range;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use zonal_cache::store::{Store, StoreError};

/// A store that is cut off.
pub(super) trait Cuts: Store {
    fn switch(&self) -> &Switch;
    /// What it has in the end: of each page that it was not told to keep, and each change of length, `keeps` says whether it
    /// is there.
    fn left(&self, keeps: &mut dyn FnMut(u64) -> bool) -> Vec<u8>;
}

pub(super) struct Switch {
    /// Operations so far.
    done: AtomicU64,
    /// Those that are refused.
    off: Range<u64>,
    dice: AtomicU64,
}

impl Switch {
    pub(super) fn new(off: Range<u64>) -> Self {
        Self { done: AtomicU64::new(0), dice: AtomicU64::new(off.start), off }
    }

    /// Operations that are begun together: how many of them are refused, and how many of these may be done nevertheless, or
    /// in part, as they are on their way when it is cut off.
    pub(super) fn begin(&self, operations: usize) -> (usize, usize) {
        let first = self.done.fetch_add(operations as u64, Relaxed);
        let all = first..first + operations as u64;
        let refused = all.clone().filter(|number| self.off.contains(number)).count();
        (refused, if all.contains(&self.off.start) { refused } else { 0 })
    }

    pub(super) fn may(&self) -> Result<(), StoreError> {
        if self.begin(1).0 > 0 { Err(StoreError::IO) } else { Ok(()) }
    }

    /// How many operations there were.
    pub(super) fn asked(&self) -> u64 {
        self.done.load(Relaxed)
    }

    /// After how many it is cut off.
    pub(super) fn after(&self) -> u64 {
        self.off.start
    }

    /// Whether it would refuse one now.
    pub(super) fn refuses(&self) -> bool {
        self.off.contains(&self.asked())
    }

    /// Whether it refuses all from now on.
    pub(super) fn is_off(&self) -> bool {
        self.off.end == u64::MAX && self.asked() >= self.off.start
    }

    /// Whether it has refused one.
    pub(super) fn has_refused(&self) -> bool {
        self.asked() > self.off.start
    }

    pub(super) fn below(&self, below: usize) -> usize {
        let mut dice = self.dice.load(Relaxed);
        let result = next(&mut dice, below as u64);
        self.dice.store(dice, Relaxed);
        result as usize
    }

    /// The numbers below this one, in an order of its own.
    pub(super) fn shuffled(&self, below: usize) -> Vec<usize> {
        let mut numbers: Vec<usize> = (0..below).collect();
        (1..below).rev().for_each(|at| numbers.swap(at, self.below(at + 1)));
        numbers
    }
}
