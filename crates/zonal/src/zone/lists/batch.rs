//! Batches for per-CPU pages, out of the buddy lists and back into them, each in one hold.

use super::clusters::Clusters;
use super::merge::Merge;
use super::{ListGuard, ListView, cluster_words};
use crate::frame::links::FreeList;
use crate::frame::{CACHED, FrameKind, FrameState};
use crate::platform::Platform;
use crate::trace::{Event, Point, Trace};
use crate::types::migrate_type::MigrateType;
use crate::types::units::Order;
use crate::zone::AllocFlags;

/// States looked at in one hold.
const LOOKED_AT_PER_HOLD: usize = 2048;

/// Blocks given back in one hold: each is at most [`Order::MAX`] merges of work.
const FREED_PER_HOLD: usize = 64;

impl<P: Platform, M: Merge, C: Clusters> ListView<'_, P, M, C> {
    /// Takes up to `out.len()` order-0 frames for `migrate` from the buddy lists in one
    /// hold, small fragments first so that large blocks stay whole, and marks them cached.
    /// Returns how many; they stand in `out` in ascending runs.
    pub(crate) fn take_frames<T: Trace>(&self, out: &mut [u32], migrate: MigrateType) -> usize {
        let taken = self.lock(|guard| {
            let mut done = 0;
            while done < out.len() {
                let Some((index, order)) =
                    self.next_run::<T>(guard, out.len() - done, migrate, done)
                else {
                    break;
                };
                for (place, frame) in out[done..].iter_mut().zip(index..).take(1 << order.get()) {
                    *place = frame;
                    done += 1;
                }
            }
            done
        });
        self.keep::<T>(&out[..taken], migrate)
    }

    /// Takes free order-0 frames of `migrate`'s own, pageblock by pageblock, in one hold, until at
    /// least half of `out` is filled: all that a pageblock has before the next is opened. Marks
    /// them cached; returns how many. In each pageblock they ascend.
    pub(crate) fn take_pageblocks<T: Trace>(&self, out: &mut [u32], migrate: MigrateType) -> usize {
        let table = self.table;
        let taken = self.lock(|guard| {
            let mut done = 0;
            for _ in 0..(LOOKED_AT_PER_HOLD >> table.pageblock_order().get()).max(1) {
                if done > 0 && done >= out.len() / 2 {
                    break;
                }
                let Some(index) = guard.next_pageblock(migrate) else { break };
                done += guard.take_pageblock(index, &mut out[done..]);
            }
            done
        });
        self.keep::<T>(&out[..taken], migrate)
    }

    /// Takes free order-0 frames for `migrate` from a pageblock of another type, which changes
    /// its type if enough of it is free. From a movable one that does not, all is taken: it is
    /// spoilt for large blocks by the first frame, and so others are not. Of unmovable and
    /// reclaimable memory, which runs out soonest, one frame. Marks them cached; returns how many.
    pub(crate) fn take_others<T: Trace>(&self, out: &mut [u32], migrate: MigrateType) -> usize {
        let table = self.table;
        let (taken, claimed) = self.lock(|guard| {
            match guard.fallback_pageblock::<T>(migrate) {
                None => (0, false),
                // In a hold of its own: with the claim in one it would be too long (I-7).
                Some((_, true)) => (0, true),
                Some((index, false)) => {
                    let movable = table.pageblock(index).migrate() == MigrateType::Movable;
                    let most = if movable { out.len() } else { 1 };
                    (guard.take_pageblock(index, &mut out[..most]), false)
                }
            }
        });
        if claimed {
            self.take_pageblocks::<T>(out, migrate)
        } else {
            self.keep::<T>(&out[..taken], migrate)
        }
    }

    /// Marks frames cached that are this cache's alone: that needs no lock.
    fn keep<T: Trace>(&self, frames: &[u32], migrate: MigrateType) -> usize {
        self.trace_taken::<T>(frames, Order::ZERO, migrate);
        frames.iter().for_each(|&index| self.table.set_state(index, CACHED));
        frames.len()
    }

    /// Blocks came from the buddy lists for this cache.
    #[inline(always)]
    pub(crate) fn trace_taken<T: Trace>(&self, blocks: &[u32], order: Order, migrate: MigrateType) {
        if T::is_on(Point::AllocZoneLocked) {
            blocks.iter().for_each(|&index| self.trace_one::<T>(index, order, migrate));
        }
    }

    #[inline(always)]
    pub(crate) fn trace_one<T: Trace>(&self, index: u32, order: Order, migrate: MigrateType) {
        T::emit(Point::AllocZoneLocked, || Event::AllocZoneLocked {
            pfn: self.table.pfn(index),
            order,
            migrate,
            percpu_refill: true,
        });
    }

    /// The next run of at most `want` frames: own type, smallest first; then untouched memory;
    /// then, only to have anything at all, another type.
    fn next_run<T: Trace>(
        &self,
        guard: &mut ListGuard<'_, P, M, C>,
        want: usize,
        migrate: MigrateType,
        have: usize,
    ) -> Option<(u32, Order)> {
        let _table = self.table;
        loop {
            let smallest = guard.area.smallest(Order::ZERO, migrate);
            if let Some(smallest) = smallest {
                let fits = Order::new(want.ilog2() as u8).unwrap_or(Order::MAX);
                let order = smallest.min(fits);
                return guard.take_smallest(order, migrate).map(|index| (index, order));
            }
            if migrate == MigrateType::Movable && guard.grow() {
                continue;
            }
            if have > 0 {
                return None;
            }
            return guard
                .take::<T>(Order::ZERO, migrate, AllocFlags::NORMAL)
                .map(|index| (index, Order::ZERO));
        }
    }

    /// Gives cached order-0 frames back to the buddy lists, merged in the policy's way, in
    /// holds of bounded work. `frames` is reordered. Returns how many were given back.
    pub(crate) fn free_cached(&self, frames: &mut [u32]) -> u64 {
        self.free_batch(frames, |_, _| false)
    }

    /// As [`free_cached`](Self::free_cached); `whole` may first take all of it in one go.
    pub(crate) fn free_batch(
        &self,
        frames: &mut [u32],
        whole: impl FnOnce(&mut ListGuard<'_, P, M, C>, &[u32]) -> bool,
    ) -> u64 {
        let table = self.table;
        M::arrange(frames);
        // Inner: a copy of a frame (see `FrameState`) is seen here, and cannot enter twice.
        let mut kept = 0;
        for at in 0..frames.len() {
            let index = frames[at];
            if table.replace_state(index, CACHED, FrameState::INNER) {
                frames[kept] = index;
                kept += 1;
            }
        }
        let refused = (frames.len() - kept) as u64;
        let mut rest = &frames[..kept];
        let mut given = 0;
        let mut whole = Some(whole);
        while !rest.is_empty() {
            self.lock(|guard| {
                if whole.take().is_some_and(|whole| whole(guard, rest)) {
                    given += rest.len() as u64;
                    rest = &[];
                }
                for _ in 0..FREED_PER_HOLD {
                    let Some(&index) = rest.first() else { break };
                    let order = M::block(rest, table.pageblock_order());
                    guard.free_block(index, order);
                    given += order.frames();
                    rest = &rest[1 << order.get()..];
                }
            });
        }
        if refused > 0 {
            self.lock(|guard| guard.events.refused += refused);
        }
        given
    }

    /// Takes up to `out.len()` blocks of `order` from memory of `migrate`'s own in one hold, in
    /// ascending order; no other type's memory is touched for it. Their frames are left inner.
    pub(crate) fn take_own_blocks<T: Trace>(
        &self,
        out: &mut [u32],
        order: Order,
        migrate: MigrateType,
    ) -> usize {
        if out.is_empty() {
            return 0;
        }
        let taken = self.lock(|guard| {
            let mut done = 0;
            for place in out.iter_mut() {
                let Some(index) = guard.take_own(order, migrate) else { break };
                *place = index;
                done += 1;
            }
            done
        });
        out[..taken].sort_unstable();
        self.trace_taken::<T>(&out[..taken], order, migrate);
        taken
    }

    /// Takes up to `out.len()` blocks of `order` in one hold and marks them cached.
    pub(crate) fn take_blocks<T: Trace>(
        &self,
        out: &mut [u32],
        order: Order,
        migrate: MigrateType,
    ) -> usize {
        let table = self.table;
        let taken = self.lock(|guard| {
            let mut done = 0;
            for place in out.iter_mut() {
                // Another type's memory only for the block that is asked for.
                let flags = AllocFlags { fallback: done == 0, ..AllocFlags::NORMAL };
                let Some(index) = guard.take::<T>(order, migrate, flags) else { break };
                *place = index;
                done += 1;
            }
            done
        });
        self.trace_taken::<T>(&out[..taken], order, migrate);
        for &index in &out[..taken] {
            table.set_state(index, FrameState::cached(order));
        }
        taken
    }

    /// Gives cached blocks of `order` back to the buddy lists. Returns frames given back.
    pub(crate) fn free_cached_blocks(&self, blocks: &[u32], order: Order) -> u64 {
        let table = self.table;
        let mut given = 0;
        for some in blocks.chunks(FREED_PER_HOLD) {
            self.lock(|guard| {
                for &index in some {
                    let state = table.state(index);
                    if state.kind() == FrameKind::Cached && state.order() == order {
                        table.set_state(index, FrameState::INNER);
                        guard.free_block(index, order);
                        given += order.frames();
                    } else {
                        guard.events.refused += 1;
                    }
                }
            });
        }
        given
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
                self.trace_one::<T>(index, Order::ZERO, migrate);
                self.table.set_state(index, CACHED);
                list.push_tail(self.links(), index);
            }
        });
    }

    /// Takes whole clusters off the order-0 list, until there are `batch` frames. Only the cut is
    /// made in the hold; the frames become cached after it, in the window that others wait for.
    pub(crate) fn cut_batch<T: Trace>(
        &self,
        list: &mut FreeList,
        migrate: MigrateType,
        batch: u32,
        headroom: u64,
    ) {
        let cut = self.lock(|guard| guard.cut_clusters(migrate, batch, headroom));
        let Some((frames, window)) = cut else { return };
        for index in frames.iter(self.links()) {
            self.trace_one::<T>(index, Order::ZERO, migrate);
            self.table.set_state(index, CACHED);
        }
        window.close(cluster_words(self.table));
        list.append(self.links(), frames);
    }

    /// Frees cached frames, which are linked as `chain` if there is one; `full` and `only` say
    /// whether it is a whole batch, and of which type.
    pub(crate) fn free_linked(
        &self,
        frames: &mut [u32],
        chain: Option<FreeList>,
        only: Option<MigrateType>,
        full: bool,
    ) {
        self.free_batch(frames, |guard, frames| {
            guard.events.free_batches += 1;
            if let (true, Some(migrate)) = (full, only) {
                guard.events.single_type[migrate.index()] += 1;
            }
            let Some((chain, migrate)) = chain.zip(only) else { return false };
            // The other types are rarely alone: the source leaves them as they are.
            let as_one = full && migrate == MigrateType::Movable;
            let unbroken = frames.len() == chain.len() as usize;
            unbroken && guard.free_chain(chain, frames, migrate, as_one)
        });
    }
}
