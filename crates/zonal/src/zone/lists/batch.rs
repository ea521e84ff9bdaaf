//! Batches for per-CPU pages, out of the buddy lists and back into them, each in one hold.

use super::clusters::Clusters;
use super::merge::Merge;
use super::{ListView, cluster_words};
use crate::frame::links::FreeList;
use crate::frame::{CACHED, FrameState};
use crate::platform::Platform;
use crate::trace::{Event, Point, Trace};
use crate::types::migrate_type::MigrateType;
use crate::types::units::Order;
use crate::zone::AllocFlags;

impl<P: Platform, M: Merge, C: Clusters> ListView<'_, P, M, C> {
    /// Tells of the blocks of `order` that were appended to a list when it had `before`. They are the
    /// CPU's by then: if the sink panics they are on its list.
    #[inline(always)]
    pub(crate) fn tell_refill<T: Trace>(
        &self,
        list: &FreeList,
        before: u32,
        order: Order,
        migrate: MigrateType,
    ) {
        if !T::is_on(Point::AllocZoneLocked) {
            return;
        }
        for index in list.iter(self.links()).skip(before as usize) {
            T::emit(Point::AllocZoneLocked, || Event::AllocZoneLocked {
                pfn: self.table.pfn(index),
                order,
                migrate,
                percpu_refill: true,
            });
        }
    }

    /// Takes up to `batch` frames in one hold, one by one, and appends them to `list`, cached.
    pub(crate) fn take_batch<T: Trace>(
        &self,
        list: &mut FreeList,
        migrate: MigrateType,
        batch: u64,
    ) {
        self.lock(|guard| {
            for _ in 0..batch {
                // Another type's memory only to have anything at all: a look for it scans up
                // to a pageblock (I-7).
                let flags = AllocFlags { fallback: list.is_empty(), ..AllocFlags::NORMAL };
                let Some(index) = guard.take::<T>(Order::ZERO, migrate, flags) else { break };
                self.table.set_state(index, CACHED);
                list.push_tail(self.links(), index);
            }
        });
    }

    /// Takes up to `blocks` blocks of `order` in one hold, and appends them to `list`, cached; how many.
    pub(crate) fn take_blocks<T: Trace>(
        &self,
        list: &mut FreeList,
        order: Order,
        migrate: MigrateType,
        blocks: u64,
    ) -> u32 {
        let before = list.len();
        self.lock(|guard| {
            for _ in 0..blocks {
                // As in `take_batch`.
                let flags = AllocFlags { fallback: list.is_empty(), ..AllocFlags::NORMAL };
                let Some(index) = guard.take::<T>(order, migrate, flags) else { break };
                self.table.set_state(index, FrameState::cached(order));
                list.push_tail(self.links(), index);
            }
        });
        list.len() - before
    }

    /// Frees cached blocks of `order` one by one in one hold.
    pub(crate) fn free_blocks(&self, blocks: &[u32], order: Order) {
        let cached = FrameState::cached(order);
        // As in `free_linked`.
        let inner = |index: &&u32| self.table.replace_state(**index, cached, FrameState::INNER);
        let mut refused = 0;
        self.lock(|guard| {
            for index in blocks {
                if inner(&index) {
                    guard.free_block(*index, order);
                } else {
                    refused += 1;
                }
            }
            guard.events.refused += refused;
            guard.events.free_batches += 1;
        });
    }

    /// Takes whole clusters off the order-0 list, until there are `batch` frames. Only the cut is
    /// made in the hold; the frames become cached after it, and others wait for that.
    pub(crate) fn cut_batch(
        &self,
        list: &mut FreeList,
        migrate: MigrateType,
        batch: u32,
        headroom: u64,
    ) {
        let cut = self.lock(|guard| guard.cut_clusters(migrate, batch, headroom));
        let Some((frames, cutting)) = cut else { return };
        let words = cluster_words(self.table);
        for index in frames.iter(self.links()) {
            self.table.set_state(index, CACHED);
            words.set_cluster_of(index, None);
        }
        cutting.end(words);
        list.append(self.links(), frames);
    }

    /// Frees cached frames, one by one or, if they are linked as `chain`, as one cluster; `full` and
    /// `only` say whether it is a whole batch, and of which type.
    pub(crate) fn free_linked(
        &self,
        frames: &mut [u32],
        chain: Option<FreeList>,
        only: Option<MigrateType>,
        full: bool,
    ) {
        // Inner: a copy of a frame (see `FrameState`) is seen here, and cannot enter twice.
        let mut kept = 0;
        for at in 0..frames.len() {
            let index = frames[at];
            if self.table.replace_state(index, CACHED, FrameState::INNER) {
                frames[kept] = index;
                kept += 1;
            }
        }
        let (refused, frames) = (frames.len() - kept, &frames[..kept]);
        self.prefetch_buddies(frames);
        self.lock(|guard| {
            guard.events.refused += refused as u64;
            guard.events.free_batches += 1;
            if let (true, Some(migrate)) = (full, only) {
                guard.events.single_type[migrate.index()] += 1;
            }
            let as_chain = chain.zip(only).is_some_and(|(chain, migrate)| {
                let unbroken = frames.len() == chain.len() as usize;
                unbroken && guard.free_chain(chain, frames, migrate)
            });
            if !as_chain {
                frames.iter().for_each(|&index| guard.free_block(index, Order::ZERO));
            }
        });
    }

    /// Has the states of the frames' buddies come while the zone lock is waited for, if the hold will
    /// look at them.
    #[inline(always)]
    fn prefetch_buddies(&self, frames: &[u32]) {
        // Without the lock a hint, as in the source.
        let skips = M::SKIPS && !self.zone.compaction.is_considered();
        if M::PREFETCHES && !skips {
            frames.iter().for_each(|&index| self.table.prefetch_state(index ^ 1));
        }
    }
}
