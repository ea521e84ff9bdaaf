//! The frame table: one state byte and one link word a frame, one word a pageblock.
//!
//! The caller owns the memory (9 bytes a frame and 8 a pageblock, plus the depot's arrays);
//! zeroed memory is a valid table in which no frame is managed. Nothing here reads or writes
//! the frames themselves.
//!
//! ```
//! use zonal::frame::{FrameKind, FrameState};
//! use zonal::Order;
//! let state = FrameState::allocated(Order::HUGE);
//! assert_eq!((state.kind(), state.order()), (FrameKind::Allocated, Order::HUGE));
//! ```

use crate::migrate::MigrateType;
use crate::platform::{AtomicByte, AtomicWord, Platform};
use crate::units::{Order, Pfn, ZoneId};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// "No frame" in a link: never a valid index, because a table spans fewer than 2^32 − 1 frames.
pub(crate) const NIL: u32 = u32::MAX;

/// Frames that bulk operations look at together.
pub(crate) const RUN: usize = 16;

/// What the high half of a state byte says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum FrameKind {
    /// Not the first frame of anything: a hole, reserved, never touched since boot, or inside
    /// a block whose first frame carries the state. Zeroed memory says this.
    Inner = 0,
    /// First frame of a block on a buddy list. Guarded by the zone lock.
    Free = 1,
    /// In a per-CPU cache or a cluster. Owned by whoever owns that cache or cluster.
    Cached = 2,
    /// First frame of a block that was handed out. Owned by whoever holds the block.
    Allocated = 3,
    /// Withdrawn: on no list, in no cache, not handed out. Guarded by the zone lock.
    Isolated = 4,
    /// Not a state that this library writes: the table was damaged.
    Damaged = 5,
}

/// A frame's state byte: kind in the high half, order in the low half.
///
/// | value | meaning | who may change it | to |
/// |---|---|---|---|
/// | `0x00` | inner: see [`FrameKind::Inner`] | holder of the enclosing block or the zone lock | any |
/// | `0x10 + k` | free, heads a block of order k on a buddy list | zone lock (presets with clusters: see [`policy::cluster`](crate::policy::cluster)) | inner, cached, allocated, isolated |
/// | `0x1f` | free, a single frame on a buddy list whose merging was skipped | as above | as above |
/// | `0x20 + k` | cached, heads a block of order k in a cache or cluster | owner of the cache or cluster | allocated, free (under the zone lock), inner |
/// | `0x30 + k` | allocated with order k | holder of the block, by freeing it | cached, free (under the zone lock) |
/// | `0x40 + k` | isolated with order k | zone lock | free, allocated |
///
/// All accesses are relaxed: a state is written by the one owner of the block, and the block
/// changes hands through the zone lock, a slot, a depot's release/acquire pair, or whatever
/// the caller uses to pass its block on. Only misuse races here (a frame freed twice at the
/// same instant on two CPUs); the copy that this leaves in a second cache fails the check
/// made when it would be handed out, and is dropped there, unless both copies are handed out
/// at the same instant again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(transparent)]
pub struct FrameState(u8);

impl FrameState {
    /// Not the first frame of anything.
    pub const INNER: Self = Self(0);

    const fn of(kind: FrameKind, order: Order) -> Self {
        Self((kind as u8) << 4 | order.get())
    }

    /// Heads a free block of `order`.
    #[must_use]
    #[inline]
    pub const fn free(order: Order) -> Self {
        Self::of(FrameKind::Free, order)
    }

    /// A free single frame that went on its list without a look at its buddy (merge-skipped).
    pub const MERGE_SKIPPED: Self = Self((FrameKind::Free as u8) << 4 | 0xf);

    /// Heads a cached block of `order`.
    #[must_use]
    #[inline]
    pub const fn cached(order: Order) -> Self {
        Self::of(FrameKind::Cached, order)
    }

    /// Heads an allocated block of `order`.
    #[must_use]
    #[inline]
    pub const fn allocated(order: Order) -> Self {
        Self::of(FrameKind::Allocated, order)
    }

    /// Heads an isolated block of `order`.
    #[must_use]
    #[inline]
    pub const fn isolated(order: Order) -> Self {
        Self::of(FrameKind::Isolated, order)
    }

    /// How far it is from a frame with this state to the next that may head something.
    pub(crate) const fn step(self) -> u32 {
        match self.kind() {
            FrameKind::Inner | FrameKind::Damaged => 1,
            _ => self.order().size(),
        }
    }

    /// Whether this is a free block of order 0, merge-skipped or not.
    #[must_use]
    pub const fn is_free_single(self) -> bool {
        self.0 == Self::MERGE_SKIPPED.0 || self.0 == Self::free(Order::ZERO).0
    }

    /// The kind.
    #[must_use]
    pub const fn kind(self) -> FrameKind {
        match self.0 >> 4 {
            0 if self.0 == 0 => FrameKind::Inner,
            1 => FrameKind::Free,
            2 => FrameKind::Cached,
            3 => FrameKind::Allocated,
            4 => FrameKind::Isolated,
            _ => FrameKind::Damaged,
        }
    }

    /// The order of the block that the frame heads (0 for an inner frame; a damaged byte
    /// reads as the largest order).
    #[must_use]
    pub const fn order(self) -> Order {
        match Order::new(self.0 & 0xf) {
            Some(order) => order,
            None if self.0 == Self::MERGE_SKIPPED.0 => Order::ZERO,
            None => Order::MAX,
        }
    }
}

/// A pageblock's word: in bits 0–7 the list of a per-CPU cache that its frames go to, + 1
/// (0: not cached), in bits 8–15 the zone instance, in bits 16–23 the migrate type, and in bit
/// 24 whether the pageblock has a zone at all; above, hints and notes that most readers mask off. The list follows from the migrate type; it stands there, and first, so that a free
/// decodes one word in a few instructions.
///
/// The zone is written before the allocator is shared, or under the zone lock when the memory comes
/// or goes: a pageblock without one is not there. The migrate type is written under the zone
/// lock. Readers without the lock use it as a hint and look again under the lock where a
/// wrong answer would matter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(transparent)]
pub struct BlockWord(u64);

/// Bit of a [`BlockWord`]: the pageblock belongs to a zone.
const MANAGED: u64 = 1 << 24;
/// The bits that [`FrameTable::block`] shows. Those above are notes about the pageblock that
/// must not keep two buddies apart: compaction's hint, and what it was before its isolation.
const SHOWN: u64 = (1 << 25) - 1;
/// Where the migrate type before the isolation stands, + 1.
const BEFORE: u32 = 32;

/// Note of compaction in a pageblock's word: something in it could not be moved out.
const NO_SOURCE: u64 = 1 << 25;

impl BlockWord {
    /// Of no zone.
    pub(crate) const NONE: Self = Self(0);

    pub(crate) const fn new(zone: ZoneId, migrate: MigrateType) -> Self {
        Self(MANAGED | (zone.0 as u64) << 8).with_migrate(migrate)
    }

    /// Zone and list of the per-CPU cache for a frame of this pageblock, if it is cached.
    #[inline(always)]
    pub(crate) const fn cached_in(self) -> Option<(ZoneId, MigrateType)> {
        let migrate = match self.0 as u8 {
            1 => MigrateType::Unmovable,
            2 => MigrateType::Movable,
            3 => MigrateType::Reclaimable,
            _ => return None,
        };
        // A word with a list has a zone: `new` wrote both.
        Some((ZoneId((self.0 >> 8) as u8), migrate))
    }

    #[inline(always)]
    pub(crate) const fn zone(self) -> Option<ZoneId> {
        if self.0 & MANAGED == 0 { None } else { Some(ZoneId((self.0 >> 8) as u8)) }
    }

    #[inline]
    pub(crate) const fn migrate(self) -> MigrateType {
        match MigrateType::from_number((self.0 >> 16) as u8) {
            Some(migrate) => migrate,
            None => MigrateType::Isolate,
        }
    }

    const fn with_migrate(self, migrate: MigrateType) -> Self {
        let list = match migrate {
            MigrateType::Unmovable => 1,
            // CMA frames are lent to movable requests again.
            MigrateType::Movable | MigrateType::Cma => 2,
            MigrateType::Reclaimable => 3,
            MigrateType::HighAtomic | MigrateType::Isolate => 0,
        };
        Self(self.0 & !0xff_00ff | (migrate as u64) << 16 | list)
    }
}

/// The table over the caller's memory. Frames are named by their index from the table's base.
#[derive(Debug)]
pub struct FrameTable<'m, P: Platform> {
    states: &'m [P::Byte],
    links: &'m [P::Word],
    blocks: &'m [P::Word],
    lists: ListWords<'m, P>,
    base: Pfn,
    pageblock_order: Order,
}

/// Words of the presets whose order-0 lists have clusters; empty with the others.
#[derive(Debug)]
pub(crate) struct ListWords<'m, P: Platform> {
    /// Zone by zone: `in_progress`, bitmap, slots.
    pub(crate) slots: &'m [P::Word],
    /// For each frame its cluster's slot + 1, or 0. Read and written under the lock of the frame's
    /// zone. Of a frame that is on no order-0 list it says nothing.
    pub(crate) cluster_of: &'m [P::Word],
}

impl<'m, P: Platform> FrameTable<'m, P> {
    pub(crate) fn new(
        states: &'m [P::Byte],
        links: &'m [P::Word],
        blocks: &'m [P::Word],
        lists: ListWords<'m, P>,
        base: Pfn,
        pageblock_order: Order,
    ) -> Self {
        Self { states, links, blocks, lists, base, pageblock_order }
    }

    /// The slot of the cluster that a listed frame belongs to.
    #[inline(always)]
    pub(crate) fn cluster_of(&self, index: u32) -> Option<u32> {
        let word = self.lists.cluster_of[index as usize].load(Relaxed);
        (word as u32).checked_sub(1)
    }

    #[inline(always)]
    pub(crate) fn set_cluster_of(&self, index: u32, slot: Option<u32>) {
        let value = slot.map_or(0, |slot| u64::from(slot) + 1);
        self.lists.cluster_of[index as usize].store(value, Relaxed);
    }

    /// A word of a zone's slots. Under the zone lock.
    #[inline(always)]
    pub(crate) fn slot_word(&self, at: u64) -> u64 {
        self.lists.slots[at as usize].load(Relaxed)
    }

    #[inline(always)]
    pub(crate) fn set_slot_word(&self, at: u64, value: u64) {
        self.lists.slots[at as usize].store(value, Relaxed);
    }

    /// Under the zone lock, which orders it for those who look under the lock.
    pub(crate) fn enter_window(&self, at: u64) {
        self.lists.slots[at as usize].fetch_add(1, Relaxed);
    }

    /// Release, with the acquire of [`window_open`](Self::window_open): the states written in
    /// the window are seen by whoever sees it closed.
    pub(crate) fn leave_window(&self, at: u64) {
        self.lists.slots[at as usize].fetch_add(u64::MAX, Release);
    }

    pub(crate) fn window_open(&self, at: u64) -> bool {
        self.lists.slots[at as usize].load(Acquire) > 0
    }

    /// Index of `pfn`, if the table spans it.
    #[inline(always)]
    pub(crate) fn index(&self, pfn: Pfn) -> Option<u32> {
        let offset = pfn.get().wrapping_sub(self.base.get());
        (offset < self.states.len() as u64).then_some(offset as u32)
    }

    #[inline(always)]
    pub(crate) fn pfn(&self, index: u32) -> Pfn {
        Pfn::new(self.base.get() + u64::from(index))
    }

    pub(crate) fn frames(&self) -> u32 {
        self.states.len() as u32
    }

    pub(crate) fn pageblock_order(&self) -> Order {
        self.pageblock_order
    }

    #[inline(always)]
    pub(crate) fn state(&self, index: u32) -> FrameState {
        FrameState(self.states[index as usize].load(Relaxed))
    }

    /// As [`state`](Self::state), `None` outside the table.
    #[inline(always)]
    pub(crate) fn get_state(&self, index: u32) -> Option<FrameState> {
        self.states.get(index as usize).map(|byte| FrameState(byte.load(Relaxed)))
    }

    #[inline(always)]
    pub(crate) fn set_state(&self, index: u32, state: FrameState) {
        self.states[index as usize].store(state.0, Relaxed);
    }

    /// Replaces `from` by `to`, if `from` is there. One look-up; no atomic read-modify-write:
    /// see [`FrameState`] for why none is needed. `false` (and no change) for anything else,
    /// an index outside the table included.
    #[inline(always)]
    pub(crate) fn replace_state(&self, index: u32, from: FrameState, to: FrameState) -> bool {
        self.replace_state_at(index as usize, from, to)
    }

    /// As [`replace_state`](Self::replace_state) for a frame's offset.
    #[inline(always)]
    pub(crate) fn replace_state_at(&self, offset: usize, from: FrameState, to: FrameState) -> bool {
        match self.states.get(offset) {
            Some(byte) if byte.load(Relaxed) == from.0 => {
                byte.store(to.0, Relaxed);
                true
            }
            _ => false,
        }
    }

    /// Replaces `from` by `to` in `RUN` frames from `first` on; `false`, and no change, if one
    /// of them has another state.
    #[inline(always)]
    pub(crate) fn replace_run(&self, first: u32, from: FrameState, to: FrameState) -> bool {
        let start = first as usize;
        let Some(run) = self.states.get(start..start.wrapping_add(RUN)) else { return false };
        if run.iter().any(|byte| byte.load(Relaxed) != from.0) {
            return false;
        }
        run.iter().for_each(|byte| byte.store(to.0, Relaxed));
        true
    }

    /// The (previous, next) of a frame that is on a list.
    #[inline]
    pub(crate) fn link(&self, index: u32) -> (u32, u32) {
        let word = self.links[index as usize].load(Relaxed);
        (word as u32, (word >> 32) as u32)
    }

    #[inline]
    pub(crate) fn set_link(&self, index: u32, previous: u32, next: u32) {
        let word = u64::from(previous) | u64::from(next) << 32;
        self.links[index as usize].store(word, Relaxed);
    }

    #[inline(always)]
    pub(crate) fn block(&self, index: u32) -> BlockWord {
        BlockWord(self.word(index).load(Relaxed) & SHOWN)
    }

    #[inline(always)]
    fn word(&self, index: u32) -> &P::Word {
        &self.blocks[(index >> self.pageblock_order.get()) as usize]
    }

    /// Whether the pageblock of `index` has compaction's hint: something in it would not move.
    pub(crate) fn has_hint(&self, index: u32) -> bool {
        self.word(index).load(Relaxed) & NO_SOURCE != 0
    }

    /// Writes the hint. Under the zone lock.
    pub(crate) fn set_hint(&self, index: u32) {
        let word = self.word(index);
        word.store(word.load(Relaxed) | NO_SOURCE, Relaxed);
    }

    /// Takes the hint of the pageblock of `index` away. Under the zone lock.
    pub(crate) fn clear_hint(&self, index: u32) {
        let word = self.word(index);
        word.store(word.load(Relaxed) & !NO_SOURCE, Relaxed);
    }

    /// The migrate type that the isolated pageblock of `index` had before.
    pub(crate) fn type_before(&self, index: u32) -> Option<MigrateType> {
        let before = (self.word(index).load(Relaxed) >> BEFORE) as u8;
        MigrateType::from_number(before.checked_sub(1)?)
    }

    /// Notes the migrate type that the pageblock of `index` had before its isolation. Under the
    /// zone lock; [`set_block`](Self::set_block) and [`set_migrate`](Self::set_migrate) forget it.
    pub(crate) fn note_type_before(&self, index: u32, migrate: MigrateType) {
        let word = self.word(index);
        let before = (migrate as u64 + 1) << BEFORE;
        word.store(word.load(Relaxed) & !(0xff << BEFORE) | before, Relaxed);
    }

    /// As [`block`](Self::block), `None` outside the table.
    #[inline(always)]
    pub(crate) fn get_block(&self, index: u32) -> Option<BlockWord> {
        self.block_at(index as usize)
    }

    /// Whether two offsets lie in one pageblock.
    #[inline(always)]
    pub(crate) fn same_block(&self, one: usize, other: usize) -> bool {
        (one ^ other) >> self.pageblock_order.get() == 0
    }

    /// How far `pfn` is from the table's base: an index if it is small enough, which the next
    /// look-up finds out.
    #[inline(always)]
    pub(crate) fn offset(&self, pfn: Pfn) -> usize {
        pfn.get().wrapping_sub(self.base.get()) as usize
    }

    /// The pageblock's word for an offset; `None` outside the table.
    #[inline(always)]
    pub(crate) fn block_at(&self, offset: usize) -> Option<BlockWord> {
        let block = offset >> self.pageblock_order.get();
        self.blocks.get(block).map(|word| BlockWord(word.load(Relaxed)))
    }

    pub(crate) fn set_block(&self, index: u32, word: BlockWord) {
        self.blocks[(index >> self.pageblock_order.get()) as usize].store(word.0, Relaxed);
    }

    /// Changes the migrate type of the pageblock that holds `index`. Under the zone lock.
    pub(crate) fn set_migrate(&self, index: u32, migrate: MigrateType) {
        self.set_block(index, self.block(index).with_migrate(migrate));
    }

    /// First index of the pageblock that holds `index`.
    pub(crate) fn block_start(&self, index: u32) -> u32 {
        index & !(self.pageblock_order.frames() as u32 - 1)
    }
}
