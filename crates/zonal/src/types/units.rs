//! Newtypes for every unit the allocator speaks of: frame numbers, orders, CPUs, nodes, counts.
//!
//! A bare integer never crosses a public boundary, so that a frame number cannot be taken for
//! a byte address or a CPU for a node.
//!
//! ```
//! use zonal::{Order, Pfn};
//! let order = Order::new(3).unwrap();
//! assert_eq!(order.frames(), 8);
//! assert!(Pfn::new(16).is_aligned(order));
//! assert!(Order::new(11).is_none());
//! ```

use core::fmt;

/// log2 of the frame size in bytes.
pub const FRAME_SHIFT: u32 = 12;
/// Size of a frame in bytes (4096).
pub const FRAME_SIZE: usize = 1 << FRAME_SHIFT;
/// How many orders there are: 0 to 10.
pub const NR_ORDERS: usize = 11;

/// A page frame number: physical address divided by [`FRAME_SIZE`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(transparent)]
pub struct Pfn(u64);

impl Pfn {
    /// The frame with this number.
    #[must_use]
    #[inline]
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// The frame that holds the byte at `address`.
    #[must_use]
    #[inline]
    pub const fn containing(address: u64) -> Self {
        Self(address >> FRAME_SHIFT)
    }

    /// The number itself.
    #[must_use]
    #[inline]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Physical address of the frame's first byte (wraps for frames beyond the address space).
    #[must_use]
    #[inline]
    pub const fn address(self) -> u64 {
        self.0.wrapping_shl(FRAME_SHIFT)
    }

    /// Whether a block of `order` may start here.
    #[must_use]
    #[inline]
    pub const fn is_aligned(self, order: Order) -> bool {
        self.0 & (order.frames() - 1) == 0
    }
}

impl fmt::Display for Pfn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// log2 of a block's size in frames; 0 to 10, nothing else can be built.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(transparent)]
pub struct Order(u8);

impl Order {
    /// Whether blocks of this order are hard to have: larger than Linux's
    /// `PAGE_ALLOC_COSTLY_ORDER`.
    #[must_use]
    pub const fn is_costly(self) -> bool {
        self.get() > 3
    }

    /// One frame.
    pub const ZERO: Self = Self(0);
    /// A huge page on x86-64: 512 frames, 2 MiB.
    pub const HUGE: Self = Self(9);
    /// The largest block: 1024 frames, 4 MiB.
    pub const MAX: Self = Self(10);

    /// The order `n`, or `None` above 10.
    #[must_use]
    #[inline]
    pub const fn new(n: u8) -> Option<Self> {
        if n < NR_ORDERS as u8 { Some(Self(n)) } else { None }
    }

    /// The smallest order whose block holds `frames` frames, or `None` if none does.
    #[must_use]
    pub const fn for_frames(frames: u64) -> Option<Self> {
        if frames == 0 || frames > 1 << 10 {
            return None;
        }
        Self::new(frames.next_power_of_two().trailing_zeros() as u8)
    }

    /// The order as a number.
    #[must_use]
    #[inline]
    pub const fn get(self) -> u8 {
        self.0
    }

    /// The order as an index into per-order tables.
    #[must_use]
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// Frames in a block of this order.
    #[must_use]
    #[inline]
    pub const fn frames(self) -> u64 {
        1 << self.0
    }

    /// Frames in a block of this order, as the difference of two frame indexes.
    #[inline(always)]
    pub(crate) const fn size(self) -> u32 {
        1 << self.0
    }

    /// The next larger order, if there is one.
    #[inline(always)]
    pub(crate) const fn up(self) -> Option<Self> {
        Self::new(self.0 + 1)
    }

    /// Bytes in a block of this order.
    #[must_use]
    #[inline]
    pub const fn bytes(self) -> usize {
        FRAME_SIZE << self.0
    }

    /// All orders, smallest first.
    #[must_use]
    pub fn all() -> impl DoubleEndedIterator<Item = Self> + ExactSizeIterator + Clone {
        ORDERS.into_iter()
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A logical CPU: an index into the per-CPU caches.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(transparent)]
pub struct CpuId(pub u32);

/// A NUMA node: 0 to [`MAX_NODES`](crate::MAX_NODES) − 1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(transparent)]
pub struct NodeId(pub u8);

/// A zone instance: an index into the allocator's zones, in the order of nodes, then types.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(transparent)]
pub struct ZoneId(pub u8);

macro_rules! display_number {
    ($($unit:ident),*) => {$(
        impl fmt::Display for $unit {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0)
            }
        }
    )*};
}
display_number!(CpuId, NodeId, ZoneId);

/// A set of nodes, one bit each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(transparent)]
pub struct NodeMask(u64);

impl NodeMask {
    /// Every node.
    pub const ALL: Self = Self(u64::MAX);
    /// No node.
    pub const NONE: Self = Self(0);

    /// The set with these bits.
    pub(crate) const fn of(bits: u64) -> Self {
        Self(bits)
    }

    /// A bit a node.
    pub(crate) const fn bits(self) -> u64 {
        self.0
    }

    /// Just `node` (nothing for a node beyond 63).
    #[must_use]
    pub const fn only(node: NodeId) -> Self {
        Self::NONE.with(node)
    }

    /// This set and `node`.
    #[must_use]
    pub const fn with(self, node: NodeId) -> Self {
        if node.0 < 64 { Self(self.0 | 1 << node.0) } else { self }
    }

    /// Whether `node` is in the set.
    #[must_use]
    #[inline]
    pub const fn contains(self, node: NodeId) -> bool {
        node.0 < 64 && self.0 >> node.0 & 1 == 1
    }

    /// Whether the set holds no node at all.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// Every order by its number, where a constant is needed.
pub(crate) const ORDERS: [Order; NR_ORDERS] = {
    let mut orders = [Order::ZERO; NR_ORDERS];
    let mut n = 0;
    while n < NR_ORDERS {
        orders[n] = Order(n as u8);
        n += 1;
    }
    orders
};

/// The largest aligned block of at most `most` at the start of `at..end`, which is not empty.
pub(crate) fn largest_piece(at: u32, end: u32, most: Order) -> Order {
    let order = at.trailing_zeros().min((end - at).ilog2()).min(u32::from(most.get()));
    Order::new(order as u8).unwrap_or(Order::MAX)
}
