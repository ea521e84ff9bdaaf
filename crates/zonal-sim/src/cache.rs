//! The page cache of [`zonal_cache`] on virtual CPUs, with frames of the simulated allocator and a simulated disk.
//!
//! - **Host**: [`Sim`] itself. Its clock is that of the CPU that runs; who waits sleeps, and is woken for the price of
//!   a wake-up; a lock is a [`SimLock`](crate::lock::SimLock).
//! - **Frames** have no bytes behind them ([`Frames::HAS_BYTES`](zonal_cache::frames::Frames::HAS_BYTES)), nor have files:
//!   those of the tests in `cache/bytes` have, where what readers get is compared to a model.
//! - **What it costs**: every access to the cache's words, as to the allocator's. A slot of the cache is on the line of its
//!   frame's `struct page`, where Linux has what is in it. The policy's links are no words of the
//!   host: [`Lists`] charges for them what Linux's lists cost, under their lock.

mod disk;
mod frames;
mod host;
mod lists;

pub(crate) use disk::{Disk, DiskFile};
pub(crate) use frames::{Costs, SimFrames};
pub(crate) use host::{CacheHost, keep_writing, reclaiming};
pub(crate) use lists::{Lists, PerTask, PerTaskOfZone};

use crate::platform::Sim;
use core::marker::PhantomData;
use zonal_cache::lru::LruLock;
use zonal_cache::{File, PageCache, Setup};

/// The parts of a cache, with the lock of its lists where `L` says.
pub(crate) struct OnSim<L>(PhantomData<fn() -> L>);

impl<L: LruLock> Setup for OnSim<L> {
    type Host = Sim;
    type Frames = SimFrames;
    type Evict = Lists;
    type Lru = L;
}

/// Such a cache.
pub(crate) type SimCache<L> = PageCache<OnSim<L>>;
/// A file of it.
pub(crate) type SimFile<L> = File<OnSim<L>>;

#[cfg(test)]
mod bytes;
#[cfg(test)]
#[path = "cache/tests.rs"]
mod tests;
