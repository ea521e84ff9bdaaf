//! How much memory a table takes.

use super::lanes::Lanes;
use super::slot::Slot;
use super::stretches::Stretches;
use super::{Claimed, SHARDS, Table};
use crate::host::Host;
use core::sync::atomic::AtomicU32;

impl<P: Host> Table<P> {
    /// The chains of a table of that many slots. Half of them are empty: the next slot of a chain is a miss of the CPU's caches.
    pub(super) const fn chains(slots: usize) -> usize {
        let chains = (slots * 2).next_power_of_two();
        if chains < SHARDS { SHARDS } else { chains }
    }

    /// The stretches of a table of that many slots.
    pub(super) const fn stretches(slots: usize) -> usize {
        if P::GUESSES { Stretches::count(slots) } else { 0 }
    }

    /// Bytes that a table of that many slots and lanes takes, with the list of all of them that [`new`](Self::new) gives.
    #[must_use]
    pub const fn bytes(slots: usize, lanes: u32) -> usize {
        let slot = size_of::<Slot<P>>() + size_of::<AtomicU32>() + size_of::<Claimed>();
        let chain = size_of::<P::Half>() + size_of::<AtomicU32>();
        let shards = SHARDS * size_of::<P::Mutex<()>>();
        let stretches = Stretches::bytes(Self::stretches(slots));
        let index = Self::chains(slots) * chain + shards + stretches;
        slots * slot + index + Lanes::<P>::bytes(lanes, slots)
    }
}
