//! What a frame is: its state byte.

use crate::types::units::Order;

/// What the high half of a state byte says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum FrameKind {
    /// Not the first frame of anything: of no zone, never touched since boot, or inside a block
    /// whose first frame carries the state. Zeroed memory says this.
    Inner = 0,
    /// First frame of a block on a buddy list. Guarded by the zone lock.
    Free = 1,
    /// In a per-CPU cache. Owned by the owner of that cache.
    Cached = 2,
    /// First frame of a block that was handed out. Owned by the holder of the block.
    Allocated = 3,
    /// Withdrawn: on no list, in no cache, not handed out. Guarded by the zone lock.
    Isolated = 4,
    /// In a pageblock of a zone, and not the allocator's: reserved, in a hole, or to be
    /// [released](crate::Allocator::release) later.
    Withheld = 5,
    /// Not a state that this library writes: the table was damaged.
    Damaged = 6,
}

/// A frame's state byte: kind in the high half, order in the low half.
///
/// | value | meaning | who may change it | to |
/// |---|---|---|---|
/// | `0x00` | inner: see [`FrameKind::Inner`] | holder of the enclosing block or the zone lock | any |
/// | `0x10 + k` | free, heads a block of order k on a buddy list | zone lock, or the CPU that took it off its list under that | inner, cached, allocated, isolated |
/// | `0x1f` | free, a single frame on a buddy list whose merging was skipped | as above | as above |
/// | `0x20 + k` | cached, heads a block of order k in a cache | owner of the cache | allocated, free (under the zone lock), inner |
/// | `0x30 + k` | allocated with order k | holder of the block, by freeing it or by [splitting](crate::Allocator::split) it | cached, free (under the zone lock), `0x30` |
/// | `0x40 + k` | isolated with order k | zone lock | free, allocated |
/// | `0x50` | withheld: in a pageblock of a zone, but not managed | who releases it, by an exchange | inner |
///
/// All accesses are relaxed: a state is written by the one owner of the block, and the block
/// changes hands through the zone lock, a slot, a map's release/acquire pair, or whatever
/// the caller uses to pass its block on. Only misuse races here: a block freed twice at the same
/// instant on two CPUs. Where free memory is a map "allocated" is left by an exchange, so one of the
/// two is refused. Elsewhere it is left by a look and a write; the copy that this leaves in a second
/// cache fails the check made when it would be handed out, and is dropped there, unless both
/// copies are handed out at the same instant again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(transparent)]
pub struct FrameState(pub(super) u8);

impl FrameState {
    /// Not the first frame of anything.
    pub const INNER: Self = Self(0);

    /// In a pageblock of a zone, and not managed.
    pub const WITHHELD: Self = Self((FrameKind::Withheld as u8) << 4);

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
            FrameKind::Inner | FrameKind::Withheld | FrameKind::Damaged => 1,
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
            5 if self.0 == Self::WITHHELD.0 => FrameKind::Withheld,
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

/// States of a single frame.
pub(crate) const CACHED: FrameState = FrameState::cached(Order::ZERO);
pub(crate) const ALLOCATED: FrameState = FrameState::allocated(Order::ZERO);
