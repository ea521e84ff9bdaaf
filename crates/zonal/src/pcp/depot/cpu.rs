//! One CPU's arrays under the policy [`Depot`](super::Depot).

use crate::boot::tuning::Tuning;
use crate::frame::{ALLOCATED, CACHED};
use crate::frame::{FrameState, FrameTable, PageblockWord, RUN};
use crate::platform::Platform;
use crate::policy::pcp::{Bulk, Stop};
use crate::types::migrate_type::{MigrateType, NR_CACHED_TYPES};
use crate::types::units::{Order, Pfn};

/// Orders above 0 that are cached, with the most blocks of each.
const HIGH_ORDERS: [(Order, u32); 4] = [
    (crate::types::units::ORDERS[1], 32),
    (crate::types::units::ORDERS[2], 16),
    (crate::types::units::ORDERS[3], 8),
    (Order::HUGE, 8),
];
/// Room for blocks of one high order and type.
const HIGH_SLOTS: usize = 32;

/// Row of [`HIGH_ORDERS`] for `order`.
#[inline(always)]
pub(super) const fn high_row(order: Order) -> Option<usize> {
    match order.get() {
        1 => Some(0),
        2 => Some(1),
        3 => Some(2),
        9 => Some(3),
        _ => None,
    }
}

/// Stacks of single frames, one a migrate type, each with room for two clusters.
#[derive(Debug)]
pub(super) struct Singles<const N: usize> {
    len: [u32; NR_CACHED_TYPES],
    slots: [[[u32; N]; 2]; NR_CACHED_TYPES],
}

impl<const N: usize> Singles<N> {
    const EMPTY: Self = Self { len: [0; NR_CACHED_TYPES], slots: [[[0; N]; 2]; NR_CACHED_TYPES] };

    /// How many frames the stack `at` holds.
    pub(super) fn len(&self, at: usize) -> u32 {
        self.len[at]
    }

    /// The frames of the stack `at`, oldest first.
    pub(super) fn frames(&self, at: usize) -> &[u32] {
        &self.slots[at].as_flattened()[..self.len[at] as usize]
    }

    /// The oldest cluster of a stack that holds at least one.
    pub(super) fn oldest(&self, at: usize) -> &[u32; N] {
        &self.slots[at][0]
    }

    /// Fills an empty stack: `fill` writes frames from the start of the slice and says how
    /// many. They are handed out from the last to the first.
    pub(super) fn fill(&mut self, at: usize, fill: impl FnOnce(&mut [u32; N]) -> usize) {
        self.len[at] = fill(&mut self.slots[at][0]) as u32;
    }

    /// Room for `want` frames, at most two clusters, at the bottom of an empty stack.
    pub(super) fn room(&mut self, at: usize, want: usize) -> &mut [u32] {
        &mut self.slots[at].as_flattened_mut()[..want]
    }

    /// The first `taken` slots of the [`room`](Self::room) were written with ascending frames:
    /// whether there are any. They are handed out in ascending order.
    pub(super) fn filled(&mut self, at: usize, taken: usize) -> bool {
        self.room(at, taken).reverse();
        self.len[at] = taken as u32;
        taken > 0
    }

    /// Drops the `count` oldest frames, after `take` has seen them (and may have reordered
    /// them).
    pub(super) fn shed<R>(
        &mut self,
        at: usize,
        count: usize,
        take: impl FnOnce(&mut [u32]) -> R,
    ) -> R {
        let len = self.len[at] as usize;
        let count = count.min(len);
        let slots = self.slots[at].as_flattened_mut();
        let result = take(&mut slots[..count]);
        slots.copy_within(count..len, 0);
        self.len[at] = (len - count) as u32;
        result
    }

    #[inline(always)]
    pub(super) fn pop<P: Platform>(
        &mut self,
        table: &FrameTable<'_, P>,
        migrate: MigrateType,
    ) -> Option<u32> {
        let at = migrate.index();
        // Beyond the room when there is nothing: one check for both.
        let top = self.len.get(at)?.wrapping_sub(1);
        let index = *self.slots.get(at)?.as_flattened().get(top as usize)?;
        self.len[at] = top;
        if table.replace_state(index, CACHED, ALLOCATED) {
            Some(index)
        } else {
            self.pop_past_copies(table, at)
        }
    }

    /// The frame on top was a copy left by two frees of one frame at the same instant: such a
    /// copy is never handed out.
    #[cold]
    #[inline(never)]
    fn pop_past_copies<P: Platform>(
        &mut self,
        table: &FrameTable<'_, P>,
        at: usize,
    ) -> Option<u32> {
        while let Some(top) = self.len[at].checked_sub(1) {
            let index = self.slots[at].as_flattened()[top as usize];
            self.len[at] = top;
            if table.replace_state(index, CACHED, ALLOCATED) {
                return Some(index);
            }
        }
        None
    }

    /// Moves frames from the top of a stack into `out`, while there is room and there are
    /// frames; returns how many. They keep the order in which they lie.
    #[inline(always)]
    pub(super) fn pop_bulk<P: Platform>(
        &mut self,
        table: &FrameTable<'_, P>,
        migrate: MigrateType,
        out: &mut [Pfn],
    ) -> usize {
        let at = migrate.index();
        let len = self.len[at] as usize;
        let rest = len - out.len().min(len);
        let frames = &self.slots[at].as_flattened()[rest..len];
        self.len[at] = rest as u32;
        let mut done = 0;
        for chunk in frames.chunks(RUN) {
            if replace_chunk(table, chunk, CACHED, ALLOCATED) {
                for (slot, &index) in out[done..].iter_mut().zip(chunk) {
                    *slot = table.pfn(index);
                }
                done += chunk.len();
                continue;
            }
            for &index in chunk {
                if table.replace_state(index, CACHED, ALLOCATED) {
                    out[done] = table.pfn(index);
                    done += 1;
                }
            }
        }
        done
    }

    /// Adds allocated frames of the pageblock described by `word`, up to `high` on the stack.
    #[inline(always)]
    pub(super) fn push_bulk<P: Platform>(
        &mut self,
        table: &FrameTable<'_, P>,
        migrate: MigrateType,
        word: Option<PageblockWord>,
        frames: &[Pfn],
        high: u32,
    ) -> Bulk {
        let at = migrate.index();
        let len = self.len[at] as usize;
        let room = &mut self.slots[at].as_flattened_mut()[len..high as usize];
        let fits = frames.len().min(room.len());
        let mut done = 0;
        while done < fits {
            let (chunk, slots) = (&frames[done..fits], &mut room[done..fits]);
            let taken = push_chunk(table, word, chunk, slots);
            done += taken;
            if taken < RUN.min(chunk.len()) {
                break;
            }
        }
        self.len[at] = (len + done) as u32;
        let stop = match done {
            _ if len + done >= high as usize => Stop::Edge,
            _ if done == frames.len() => Stop::Done,
            _ => Stop::Frame,
        };
        Bulk { done, stop }
    }

    /// Adds a frame and returns how many the stack then holds; the caller sheds in time.
    #[inline(always)]
    pub(super) fn push(&mut self, migrate: MigrateType, index: u32) -> u32 {
        let at = migrate.index();
        let Some(&len) = self.len.get(at) else { return 0 };
        let room =
            self.slots.get_mut(at).and_then(|two| two.as_flattened_mut().get_mut(len as usize));
        let Some(slot) = room else { return len };
        *slot = index;
        self.len[at] = len + 1;
        len + 1
    }
}

/// Whether `chunk` is a whole run of neighbours, up or down, all in state `from`, now `to`.
#[inline(always)]
fn replace_chunk<P: Platform>(
    table: &FrameTable<'_, P>,
    chunk: &[u32],
    from: FrameState,
    to: FrameState,
) -> bool {
    let Ok(chunk) = <&[u32; RUN]>::try_from(chunk) else { return false };
    let (first, last) = (chunk[0], chunk[RUN - 1]);
    // All of them are compared, without a way out in between: that compiles to vectors.
    let neighbours = if first < last {
        (0..RUN).fold(true, |all, n| all & (chunk[n] == first.wrapping_add(n as u32)))
    } else {
        (0..RUN).fold(true, |all, n| all & (chunk[n] == first.wrapping_sub(n as u32)))
    };
    neighbours && table.replace_run(first.min(last), from, to)
}

/// Moves up to `RUN` frames from the start of `frames` into `slots`, of the same length: all
/// at once if they are a run of neighbours, else one by one. Returns how many; fewer than
/// there were if one belongs elsewhere or may not be freed.
#[inline(always)]
fn push_chunk<P: Platform>(
    table: &FrameTable<'_, P>,
    word: Option<PageblockWord>,
    frames: &[Pfn],
    slots: &mut [u32],
) -> usize {
    if let (Some(chunk), Some(room)) = (frames.first_chunk::<RUN>(), slots.first_chunk_mut::<RUN>())
    {
        let offsets = chunk.map(|pfn| table.offset(pfn));
        *room = offsets.map(|offset| offset as u32);
        // All together: no offset was cut short.
        let whole = offsets.iter().fold(0, |all, offset| all | offset) >> u32::BITS == 0;
        if whole
            && table.pageblock_at(offsets[0]) == word
            && table.same_pageblock(offsets[0], offsets[RUN - 1])
            && replace_chunk(table, room, ALLOCATED, CACHED)
        {
            return RUN;
        }
    }
    let mut done = 0;
    for (&pfn, slot) in frames.iter().zip(slots).take(RUN) {
        let offset = table.offset(pfn);
        if table.pageblock_at(offset) != word || !table.replace_state_at(offset, ALLOCATED, CACHED)
        {
            break;
        }
        *slot = offset as u32;
        done += 1;
    }
    done
}

/// Blocks of one high order and migrate type.
#[derive(Clone, Copy, Debug)]
pub(super) struct BlockStack {
    pub(super) len: u32,
    /// Blocks kept before a spill: [grows](Self::grow) when the cache ran dry, shrinks by a
    /// drain, and stays between `least` and `most`.
    pub(super) high: u32,
    least: u32,
    most: u32,
    pub(super) slots: [u32; HIGH_SLOTS],
}

impl BlockStack {
    const EMPTY: Self = Self { len: 0, high: 0, least: 0, most: 0, slots: [0; HIGH_SLOTS] };

    /// Sets the bounds: at most `most` blocks, a quarter of that from the start.
    pub(super) fn bound(&mut self, most: u32) {
        self.most = most.min(HIGH_SLOTS as u32);
        self.least = self.most.div_ceil(4);
        self.high = self.least;
    }

    /// The cache ran dry: keep twice as much.
    pub(super) fn grow(&mut self) {
        self.high = (self.high * 2).min(self.most);
    }

    /// Memory is wanted elsewhere: keep half as much.
    fn shrink(&mut self) {
        self.high = (self.high / 2).max(self.least);
    }

    #[inline(always)]
    pub(super) fn pop<P: Platform>(
        &mut self,
        table: &FrameTable<'_, P>,
        order: Order,
    ) -> Option<u32> {
        loop {
            let top = self.len.checked_sub(1)?;
            let index = *self.slots.get(top as usize)?;
            self.len = top;
            if table.replace_state(index, FrameState::cached(order), FrameState::allocated(order)) {
                return Some(index);
            }
        }
    }

    #[inline(always)]
    pub(super) fn push(&mut self, index: u32) {
        if let Some(slot) = self.slots.get_mut(self.len as usize) {
            *slot = index;
            self.len += 1;
        }
    }
}

/// One CPU's cache of one zone: a stack of two clusters for each of three migrate types, and
/// small stacks for orders 1 to 3 and 9.
///
/// Guarded by the CPU's slot. A frame in it is in state "cached" and on no list.
#[derive(Debug)]
pub struct DepotCpu<const N: usize> {
    pub(super) singles: Singles<N>,
    pub(super) blocks: [[BlockStack; NR_CACHED_TYPES]; HIGH_ORDERS.len()],
    /// Frames moved at once between the cache and elsewhere: at most a cluster.
    pub(super) batch: u32,
    /// Frames of a type at which a batch is moved out: twice the batch.
    pub(super) high: u32,
    /// Clusters that this CPU's shard of the depot may hold, by type.
    pub(super) shard_high: [u32; NR_CACHED_TYPES],
    /// Times the shard had nothing when this CPU wanted a cluster, not yet answered by
    /// letting the shard hold one more. A CPU that only frees has none.
    pub(super) shard_missed: [u32; NR_CACHED_TYPES],
    /// Clusters that the shards of all CPUs may hold beyond their base, and the shared part.
    /// They follow from the zone's size, and stand here so that they can change with it.
    pub(super) reserved_limit: u32,
    pub(super) shared_limit: u32,
}

impl<const N: usize> DepotCpu<N> {
    pub(super) const EMPTY: Self = Self {
        singles: Singles::EMPTY,
        blocks: [[BlockStack::EMPTY; NR_CACHED_TYPES]; HIGH_ORDERS.len()],
        batch: 1,
        high: 2,
        shard_high: [0; NR_CACHED_TYPES],
        shard_missed: [0; NR_CACHED_TYPES],
        reserved_limit: 0,
        shared_limit: 0,
    };

    /// The most blocks of the high order in `row`: no more than 1/64 of a CPU's part of the zone
    /// may hide in one stack. None that are larger than a pageblock: which list a block is for
    /// is read off its first pageblock, and another of them may be isolated.
    pub(super) fn block_limit(row: usize, tuning: Tuning) -> u32 {
        let (order, most) = HIGH_ORDERS[row];
        if order > tuning.pageblock_order {
            return 0;
        }
        let part = tuning.managed / u64::from(tuning.cpus.max(1)) / 64;
        (part >> order.get()).min(u64::from(most)) as u32
    }

    /// Frames in the cache.
    pub(super) fn frames(&self) -> u64 {
        let singles: u64 = self.singles.len.iter().map(|&len| u64::from(len)).sum();
        let rows = HIGH_ORDERS.iter().zip(&self.blocks);
        let blocks = rows.flat_map(|(&(order, _), stacks)| {
            stacks.iter().map(move |stack| u64::from(stack.len) << order.get())
        });
        singles + blocks.sum::<u64>()
    }

    /// Every block in the cache.
    pub(super) fn visit(&self, visit: &mut dyn FnMut(u32, Order)) {
        for at in 0..NR_CACHED_TYPES {
            self.singles.frames(at).iter().for_each(|&index| visit(index, Order::ZERO));
        }
        for (&(order, _), stacks) in HIGH_ORDERS.iter().zip(&self.blocks) {
            for stack in stacks {
                stack.slots[..stack.len as usize].iter().for_each(|&index| visit(index, order));
            }
        }
    }
}

/// Empties the stacks of the orders above 0 into `give`.
pub(super) fn drain_blocks<const N: usize>(
    cpu: &mut DepotCpu<N>,
    mut give: impl FnMut(&[u32], Order),
) {
    for (&(order, _), stacks) in HIGH_ORDERS.iter().zip(&mut cpu.blocks) {
        for stack in stacks {
            let len = core::mem::take(&mut stack.len) as usize;
            stack.shrink();
            give(&stack.slots[..len], order);
        }
    }
}
