//! What keepers share: batches out of the buddy lists and back into them, each in one hold.

use super::policy::Here;
use crate::frame::CACHED;
use crate::frame::{FrameKind, FrameState};
use crate::platform::Platform;
use crate::policy::{Merge, Policy, Trace};
use crate::trace::{Event, Point};
use crate::types::migrate_type::MigrateType;
use crate::types::units::Order;
use crate::zone::lists::buddy::{Buddy, Reach};

/// States looked at in one hold.
const SWEEP_PER_HOLD: usize = 2048;

/// Blocks given back in one hold: each is at most [`Order::MAX`] merges of work.
const GIVE_PER_HOLD: usize = 64;

impl<P: Platform, S: Policy> Here<'_, P, S> {
    /// Takes up to `slots.len()` order-0 frames for `migrate` from the buddy lists in one
    /// hold, small fragments first so that large blocks stay whole, and marks them cached.
    /// Returns how many; they stand in `slots` in ascending runs.
    pub(super) fn take_frames(&self, slots: &mut [u32], migrate: MigrateType) -> usize {
        let taken = self.zone.with_buddy(|buddy| {
            let mut done = 0;
            while done < slots.len() {
                let Some((index, order)) = self.next_run(buddy, slots.len() - done, migrate, done)
                else {
                    break;
                };
                for (slot, frame) in slots[done..].iter_mut().zip(index..).take(1 << order.get()) {
                    *slot = frame;
                    done += 1;
                }
            }
            done
        });
        self.keep(&slots[..taken], migrate)
    }

    /// Takes free order-0 frames of `migrate`'s own, pageblock by pageblock, in one hold, until at
    /// least half of `slots` is filled: all that a pageblock has before the next is opened. Marks
    /// them cached; returns how many. In each pageblock they ascend.
    pub(super) fn take_pageblocks(&self, slots: &mut [u32], migrate: MigrateType) -> usize {
        let table = self.table;
        let taken = self.zone.with_buddy(|buddy| {
            let mut done = 0;
            for _ in 0..(SWEEP_PER_HOLD >> table.pageblock_order().get()).max(1) {
                if done > 0 && done >= slots.len() / 2 {
                    break;
                }
                let Some(index) = buddy.next_pageblock(table, migrate) else { break };
                done += buddy.sweep(table, index, &mut slots[done..]);
            }
            done
        });
        self.keep(&slots[..taken], migrate)
    }

    /// Takes free order-0 frames for `migrate` from a pageblock of another type, which changes
    /// its type if enough of it is free. From a movable one that does not, all is taken: it is
    /// spoilt for large blocks by the first frame, and so others are not. Of unmovable and
    /// reclaimable memory, which runs out soonest, one frame. Marks them cached; returns how many.
    pub(super) fn take_others(&self, slots: &mut [u32], migrate: MigrateType) -> usize {
        let table = self.table;
        let (taken, claimed) = self.zone.with_buddy(|buddy| {
            match buddy.fallback_pageblock(table, migrate) {
                None => (0, false),
                // In a hold of its own: with the claim in one it would be too long (I-7).
                Some((_, true)) => (0, true),
                Some((index, false)) => {
                    let movable = table.pageblock(index).migrate() == MigrateType::Movable;
                    let most = if movable { slots.len() } else { 1 };
                    (buddy.sweep(table, index, &mut slots[..most]), false)
                }
            }
        });
        if claimed {
            self.take_pageblocks(slots, migrate)
        } else {
            self.keep(&slots[..taken], migrate)
        }
    }

    /// Marks frames cached that are this cache's alone: that needs no lock.
    fn keep(&self, frames: &[u32], migrate: MigrateType) -> usize {
        self.trace_taken(frames, Order::ZERO, migrate);
        frames.iter().for_each(|&index| self.table.set_state(index, CACHED));
        frames.len()
    }

    /// Blocks came from the buddy lists for this cache.
    #[inline(always)]
    pub(super) fn trace_taken(&self, blocks: &[u32], order: Order, migrate: MigrateType) {
        if S::Trace::is_on(Point::AllocZoneLocked) {
            blocks.iter().for_each(|&index| self.trace_one(index, order, migrate));
        }
    }

    #[inline(always)]
    pub(super) fn trace_one(&self, index: u32, order: Order, migrate: MigrateType) {
        S::Trace::emit(Point::AllocZoneLocked, || Event::AllocZoneLocked {
            pfn: self.table.pfn(index),
            order,
            migrate,
            percpu_refill: true,
        });
    }

    /// The next run of at most `want` frames: own type, smallest first; then untouched memory;
    /// then, only to have anything at all, another type.
    fn next_run(
        &self,
        buddy: &mut Buddy<S>,
        want: usize,
        migrate: MigrateType,
        have: usize,
    ) -> Option<(u32, Order)> {
        let table = self.table;
        loop {
            let smallest = buddy.area.smallest(Order::ZERO, migrate);
            if let Some(smallest) = smallest {
                let fits = Order::new(want.ilog2() as u8).unwrap_or(Order::MAX);
                let order = smallest.min(fits);
                return buddy.take_smallest(table, order, migrate).map(|index| (index, order));
            }
            if migrate == MigrateType::Movable && buddy.grow(table) {
                continue;
            }
            if have > 0 {
                return None;
            }
            return buddy
                .take(table, Order::ZERO, migrate, Reach::NORMAL)
                .map(|index| (index, Order::ZERO));
        }
    }

    /// Gives cached order-0 frames back to the buddy lists, merged in the policy's way, in
    /// holds of bounded work. `frames` is reordered. Returns how many were given back.
    pub(super) fn give_frames(&self, frames: &mut [u32]) -> u64 {
        self.give_batch(frames, |_, _| false)
    }

    /// As [`give_frames`](Self::give_frames); `whole` may first take all of it in one go.
    pub(super) fn give_batch(
        &self,
        frames: &mut [u32],
        whole: impl FnOnce(&mut Buddy<S>, &[u32]) -> bool,
    ) -> u64 {
        let table = self.table;
        S::Merge::arrange(frames);
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
            self.zone.with_buddy(|buddy| {
                if whole.take().is_some_and(|whole| whole(buddy, rest)) {
                    given += rest.len() as u64;
                    rest = &[];
                }
                for _ in 0..GIVE_PER_HOLD {
                    let Some(&index) = rest.first() else { break };
                    let order = S::Merge::run(rest, table.pageblock_order());
                    buddy.give(table, index, order);
                    given += order.frames();
                    rest = &rest[1 << order.get()..];
                }
            });
        }
        if refused > 0 {
            self.zone.with_buddy(|buddy| buddy.events.refused += refused);
        }
        given
    }

    /// Takes up to `slots.len()` blocks of `order` from memory of `migrate`'s own in one hold, in
    /// ascending order; nobody else's memory is touched for it. Their frames are left inner.
    pub(super) fn take_own_blocks(
        &self,
        slots: &mut [u32],
        order: Order,
        migrate: MigrateType,
    ) -> usize {
        if slots.is_empty() {
            return 0;
        }
        let taken = self.zone.with_buddy(|buddy| {
            let mut done = 0;
            for slot in slots.iter_mut() {
                let Some(index) = buddy.take_own(self.table, order, migrate) else { break };
                *slot = index;
                done += 1;
            }
            done
        });
        slots[..taken].sort_unstable();
        self.trace_taken(&slots[..taken], order, migrate);
        taken
    }

    /// Takes up to `slots.len()` blocks of `order` in one hold and marks them cached.
    pub(super) fn take_blocks(
        &self,
        slots: &mut [u32],
        order: Order,
        migrate: MigrateType,
    ) -> usize {
        let table = self.table;
        let taken = self.zone.with_buddy(|buddy| {
            let mut done = 0;
            for slot in slots.iter_mut() {
                // Another type's memory only for the block that is asked for.
                let reach = Reach { fallback: done == 0, ..Reach::NORMAL };
                let Some(index) = buddy.take(table, order, migrate, reach) else { break };
                *slot = index;
                done += 1;
            }
            done
        });
        self.trace_taken(&slots[..taken], order, migrate);
        for &index in &slots[..taken] {
            table.set_state(index, FrameState::cached(order));
        }
        taken
    }

    /// Gives cached blocks of `order` back to the buddy lists. Returns frames given back.
    pub(super) fn give_blocks(&self, blocks: &[u32], order: Order) -> u64 {
        let table = self.table;
        let mut given = 0;
        for some in blocks.chunks(GIVE_PER_HOLD) {
            self.zone.with_buddy(|buddy| {
                for &index in some {
                    let state = table.state(index);
                    if state.kind() == FrameKind::Cached && state.order() == order {
                        table.set_state(index, FrameState::INNER);
                        buddy.give(table, index, order);
                        given += order.frames();
                    } else {
                        buddy.events.refused += 1;
                    }
                }
            });
        }
        given
    }
}
