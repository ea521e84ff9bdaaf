//! What is asked for: a builder.
//!
//! ```
//! use zonal::{MigrateType, NodeId, Order, Request, ZoneType};
//! let huge = Request::new(Order::HUGE).migrate(MigrateType::Movable).zone_limit(ZoneType::Movable);
//! let dma = Request::frame().zone_limit(ZoneType::Dma).atomic().this_node();
//! assert_eq!(huge.order(), Order::HUGE);
//! assert_eq!(dma.order(), Order::ZERO);
//! ```

use crate::types::mark::Access;
use crate::types::migrate_type::MigrateType;
use crate::types::units::{NodeId, NodeMask, Order};
use crate::types::zone_type::ZoneType;
use core::fmt;

/// Which nodes may serve a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum NodePolicy {
    /// The caller's node, then the others by distance.
    Local,
    /// This node, then the others by distance from it.
    Preferred(NodeId),
    /// Only these nodes, nearest first.
    Bind(NodeMask),
    /// These nodes in turn; any node when the one whose turn it is has nothing.
    Interleave(NodeMask),
}

/// A request for one block (or, in bulk, for several of one order). Copied freely; building
/// one costs nothing.
// Two words and no fields of other sizes: what is built in registers and looked at byte by byte must
// not be put together in memory from smaller stores, which a processor forwards to no wider load.
#[derive(Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct Request {
    /// A byte each, from the lowest: see the constants.
    bits: u64,
    /// Of the node policy: the node, or the mask.
    nodes: u64,
}

/// For a request that the home zone's cache of single frames may answer without a look at anything
/// else: the list + 1; 0 for any other. Follows from the others.
const FAST: u32 = 0;
/// Added there to the list of what is plain but of more than a frame.
const LARGE: u8 = 3;
/// The limit for this migrate type. Follows from both.
const LIMIT: u32 = 8;
const ORDER: u32 = 16;
const MIGRATE: u32 = 24;
/// The limit as it was asked for.
const ASKED: u32 = 32;
const FLAGS: u32 = 40;
/// Which of the node policies.
const NODES: u32 = 48;

const LOCAL: u8 = 0;
const PREFERRED: u8 = 1;
const BIND: u8 = 2;
const INTERLEAVE: u8 = 3;

const ATOMIC: u8 = 1;
const HIGH: u8 = 2;
const NO_WAIT: u8 = 4;
const THIS_NODE: u8 = 8;
const WRITE: u8 = 16;
const ZERO: u8 = 32;
const LESS_THROTTLED: u8 = 64;
/// Set when a per-CPU cache of the home zone may answer without looking further.
// This node: the home zone may be on another, where the local node has none that fits.
const PLAIN_BREAKERS: u8 = ZERO | WRITE | THIS_NODE;

impl Request {
    /// One unmovable frame from the local node, any zone but Movable.
    pub const fn frame() -> Self {
        Self::new(Order::ZERO)
    }

    /// A block of `order`, otherwise as [`frame`](Self::frame).
    #[inline(always)]
    pub const fn new(order: Order) -> Self {
        let asked = (ZoneType::Normal as u64) << ASKED;
        let bits = (order.get() as u64) << ORDER | asked;
        Self { bits, nodes: 0 }.settled()
    }

    #[inline(always)]
    const fn byte(&self, at: u32) -> u8 {
        (self.bits >> at) as u8
    }

    /// The same with a byte of another value, and what follows from it.
    #[inline(always)]
    const fn with_byte(self, at: u32, value: u8) -> Self {
        let bits = self.bits & !(0xff << at) | (value as u64) << at;
        Self { bits, ..self }.settled()
    }

    /// Works out again what follows from the other fields.
    #[inline(always)]
    const fn settled(self) -> Self {
        let migrate = self.migrate_type();
        let limit = match (self.asked(), migrate) {
            (ZoneType::Movable, MigrateType::Movable) => ZoneType::Movable,
            (ZoneType::Movable, _) => ZoneType::Normal,
            (limit, _) => limit,
        };
        let fast = match self.order() {
            _ if !migrate.is_requestable() => 0,
            Order::ZERO if self.is_plain() => migrate as u8 + 1,
            Order::ZERO => 0,
            _ if self.is_plain_but_zero() && !self.is_atomic() => migrate as u8 + 1 + LARGE,
            _ => 0,
        };
        let bits = self.bits & !(0xff << FAST | 0xff << LIMIT);
        Self { bits: bits | (fast as u64) << FAST | (limit as u64) << LIMIT, ..self }
    }

    /// The same for another order.
    #[inline(always)]
    pub const fn with_order(self, order: Order) -> Self {
        self.with_byte(ORDER, order.get())
    }

    /// What will be done with the frames: unmovable, movable or reclaimable. The other types
    /// are states of a pageblock; asking for one is refused when the request is made.
    #[inline(always)]
    pub const fn migrate(self, migrate: MigrateType) -> Self {
        self.with_byte(MIGRATE, migrate as u8)
    }

    /// The highest zone type that will do. Movable zones are for movable frames: for the others
    /// that limit means [`Normal`](ZoneType::Normal).
    #[inline(always)]
    pub const fn zone_limit(self, limit: ZoneType) -> Self {
        self.with_byte(ASKED, limit as u8)
    }

    /// Which nodes will do.
    pub const fn nodes(self, nodes: NodePolicy) -> Self {
        let (kind, nodes) = match nodes {
            NodePolicy::Local => (LOCAL, 0),
            NodePolicy::Preferred(node) => (PREFERRED, node.0 as u64),
            NodePolicy::Bind(mask) => (BIND, mask.bits()),
            NodePolicy::Interleave(mask) => (INTERLEAVE, mask.bits()),
        };
        Self { nodes, ..self }.with_byte(NODES, kind)
    }

    /// Cannot wait at all: may reach further below the watermarks and into the high-atomic
    /// reserve; implies [`no_wait`](Self::no_wait).
    pub const fn atomic(self) -> Self {
        self.with(ATOMIC | NO_WAIT)
    }

    /// Important: may reach to half the min watermark.
    pub const fn high(self) -> Self {
        self.with(HIGH)
    }

    /// Neither compaction nor direct reclaim is called for it.
    pub const fn no_wait(self) -> Self {
        self.with(NO_WAIT)
    }

    /// Only the preferred (or local) node.
    pub const fn this_node(self) -> Self {
        self.with(THIS_NODE)
    }

    /// The frames will be dirtied as page cache: zones over their dirty limit are passed over
    /// while others will do.
    pub const fn write(self) -> Self {
        self.with(WRITE)
    }

    /// Of the dirty limits a quarter more than others have: for real-time tasks and those that
    /// clean pages for others. Says nothing without [`write`](Self::write).
    pub const fn less_throttled(self) -> Self {
        self.with(LESS_THROTTLED)
    }

    /// The block is filled with zero bytes by the platform.
    pub const fn zero(self) -> Self {
        self.with(ZERO)
    }

    #[inline(always)]
    const fn with(self, flags: u8) -> Self {
        self.with_byte(FLAGS, self.flags() | flags)
    }

    #[inline(always)]
    const fn flags(&self) -> u8 {
        self.byte(FLAGS)
    }

    /// The order asked for.
    #[must_use]
    #[inline(always)]
    pub const fn order(&self) -> Order {
        match Order::new(self.byte(ORDER)) {
            Some(order) => order,
            None => Order::MAX,
        }
    }

    /// Whether it is for a block of more than a frame, of this order at most.
    #[inline(always)]
    pub(crate) const fn is_small(&self, most: u8) -> bool {
        self.byte(ORDER).wrapping_sub(1) < most
    }

    /// The migrate type asked for.
    #[must_use]
    #[inline(always)]
    pub const fn migrate_type(&self) -> MigrateType {
        // In the order of their numbers, so that it costs no look into a table.
        match self.byte(MIGRATE) {
            0 => MigrateType::Unmovable,
            1 => MigrateType::Movable,
            2 => MigrateType::Reclaimable,
            3 => MigrateType::HighAtomic,
            4 => MigrateType::Cma,
            _ => MigrateType::Isolate,
        }
    }

    /// The highest zone type allowed, after the migrate type was heeded.
    #[must_use]
    #[inline(always)]
    pub const fn limit(&self) -> ZoneType {
        zone_type(self.byte(LIMIT))
    }

    /// The highest zone type asked for, whatever the migrate type.
    #[inline(always)]
    pub(crate) const fn asked(&self) -> ZoneType {
        zone_type(self.byte(ASKED))
    }

    /// The same without its node policy.
    #[inline(always)]
    pub(crate) const fn anywhere(&self) -> Self {
        Self { bits: self.bits & !(0xff << NODES), nodes: 0 }
    }

    /// The node policy.
    #[must_use]
    #[inline]
    pub const fn node_policy(&self) -> NodePolicy {
        match self.byte(NODES) {
            LOCAL => NodePolicy::Local,
            PREFERRED => NodePolicy::Preferred(NodeId(self.nodes as u8)),
            BIND => NodePolicy::Bind(NodeMask::of(self.nodes)),
            _ => NodePolicy::Interleave(NodeMask::of(self.nodes)),
        }
    }

    /// Whether [`atomic`](Self::atomic) was said.
    #[must_use]
    #[inline]
    pub const fn is_atomic(&self) -> bool {
        self.flags() & ATOMIC != 0
    }

    /// Whether compaction and direct reclaim are ruled out.
    #[must_use]
    #[inline]
    pub const fn may_not_wait(&self) -> bool {
        self.flags() & NO_WAIT != 0
    }

    /// Whether [`this_node`](Self::this_node) was said.
    #[must_use]
    #[inline]
    pub const fn is_this_node(&self) -> bool {
        self.flags() & THIS_NODE != 0
    }

    /// Whether [`write`](Self::write) was said.
    #[must_use]
    #[inline]
    pub const fn is_write(&self) -> bool {
        self.flags() & WRITE != 0
    }

    /// Whether [`less_throttled`](Self::less_throttled) was said.
    #[must_use]
    #[inline]
    pub const fn is_less_throttled(&self) -> bool {
        self.flags() & LESS_THROTTLED != 0
    }

    /// Whether [`zero`](Self::zero) was said.
    #[must_use]
    #[inline]
    pub const fn is_zero(&self) -> bool {
        self.flags() & ZERO != 0
    }

    /// Whether CMA frames would do for it.
    #[must_use]
    #[inline]
    pub const fn may_use_cma(&self) -> bool {
        matches!(self.migrate_type(), MigrateType::Movable)
    }

    /// How far below a watermark it may reach.
    #[must_use]
    #[inline]
    pub const fn access(&self) -> Access {
        Access { high: self.flags() & HIGH != 0, atomic: self.flags() & ATOMIC != 0 }
    }

    /// The list of single frames that may answer without a look at anything else.
    #[inline(always)]
    pub(crate) const fn single(&self) -> Option<MigrateType> {
        list(self.byte(FAST))
    }

    /// The type of a block of more than a frame that the home zone may answer without a look at anything
    /// else, if it is filled with zero bytes where that is [asked for](Self::is_zero).
    #[inline(always)]
    pub(crate) const fn large(&self) -> Option<MigrateType> {
        list(self.byte(FAST).wrapping_sub(LARGE))
    }

    /// The list of single frames that may answer, if what comes from it is filled with zero bytes.
    #[inline]
    pub(crate) const fn single_zeroed(&self) -> Option<MigrateType> {
        let migrate = self.migrate_type();
        let plain = self.is_plain_but_zero() && matches!(self.order(), Order::ZERO);
        if plain && self.is_zero() && migrate.is_requestable() { Some(migrate) } else { None }
    }

    /// Whether it is plain once its frames are filled with zero bytes.
    #[inline]
    pub(crate) const fn is_plain_but_zero(&self) -> bool {
        self.flags() & (PLAIN_BREAKERS & !ZERO) == 0 && self.byte(NODES) == LOCAL
    }

    /// Whether the local node's cache may answer if its zone is within its dirty limit.
    #[inline]
    pub(crate) const fn is_plain_write(&self) -> bool {
        self.flags() & PLAIN_BREAKERS == WRITE
            && self.migrate_type().is_requestable()
            && self.byte(NODES) == LOCAL
    }

    /// Whether the local node's cache may answer without looking at anything else.
    #[inline(always)]
    pub(crate) const fn is_plain(&self) -> bool {
        self.flags() & PLAIN_BREAKERS == 0 && self.byte(NODES) == LOCAL
    }
}

#[inline(always)]
const fn list(number: u8) -> Option<MigrateType> {
    match number {
        1 => Some(MigrateType::Unmovable),
        2 => Some(MigrateType::Movable),
        3 => Some(MigrateType::Reclaimable),
        _ => None,
    }
}

/// The zone type with this number, which is one.
#[inline(always)]
const fn zone_type(number: u8) -> ZoneType {
    // All that two bits can say, so that nothing is compared.
    match number & 3 {
        0 => ZoneType::Dma,
        1 => ZoneType::Dma32,
        2 => ZoneType::Normal,
        _ => ZoneType::Movable,
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("order", &self.order())
            .field("migrate", &self.migrate_type())
            .field("limit", &self.asked())
            .field("atomic", &self.is_atomic())
            .field("high", &self.access().high)
            .field("no_wait", &self.may_not_wait())
            .field("this_node", &self.is_this_node())
            .field("write", &self.is_write())
            .field("less_throttled", &self.is_less_throttled())
            .field("zero", &self.is_zero())
            .field("nodes", &self.node_policy())
            .finish()
    }
}

impl Default for Request {
    fn default() -> Self {
        Self::frame()
    }
}
