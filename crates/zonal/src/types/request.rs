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
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub struct Request {
    order: Order,
    migrate: MigrateType,
    /// The limit as it was asked for.
    asked: ZoneType,
    /// The limit for this migrate type. Follows from both.
    limit: ZoneType,
    flags: u8,
    /// For a request that the home zone's cache of single frames may answer without a look at
    /// anything else: the list + 1; for huge pages: the list + 1 + [`HUGE`]; 0 for any other.
    /// Follows from the other fields.
    fast: u8,
    nodes: NodePolicy,
}

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
    pub const fn new(order: Order) -> Self {
        Self {
            order,
            migrate: MigrateType::Unmovable,
            asked: ZoneType::Normal,
            limit: ZoneType::Normal,
            flags: 0,
            fast: 0,
            nodes: NodePolicy::Local,
        }
        .settled()
    }

    /// Works `fast` and `limit` out again.
    const fn settled(mut self) -> Self {
        self.fast = match self.order {
            _ if !self.is_plain() || !self.migrate.is_requestable() => 0,
            Order::ZERO => self.migrate as u8 + 1,
            Order::HUGE => self.migrate as u8 + 1 + HUGE,
            _ => 0,
        };
        self.limit = match (self.asked, self.migrate) {
            (ZoneType::Movable, MigrateType::Movable) => ZoneType::Movable,
            (ZoneType::Movable, _) => ZoneType::Normal,
            (limit, _) => limit,
        };
        self
    }

    /// The same for another order.
    pub const fn with_order(mut self, order: Order) -> Self {
        self.order = order;
        self.settled()
    }

    /// What will be done with the frames: unmovable, movable or reclaimable. The other types
    /// are states of a pageblock; asking for one is refused when the request is made.
    pub const fn migrate(mut self, migrate: MigrateType) -> Self {
        self.migrate = migrate;
        self.settled()
    }

    /// The highest zone type that will do. Movable zones are for movable frames: for the others
    /// that limit means [`Normal`](ZoneType::Normal).
    pub const fn zone_limit(mut self, limit: ZoneType) -> Self {
        self.asked = limit;
        self.settled()
    }

    /// Which nodes will do.
    pub const fn nodes(mut self, nodes: NodePolicy) -> Self {
        self.nodes = nodes;
        self.settled()
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

    const fn with(mut self, flags: u8) -> Self {
        self.flags |= flags;
        self.settled()
    }

    /// The order asked for.
    #[must_use]
    #[inline(always)]
    pub const fn order(&self) -> Order {
        self.order
    }

    /// The migrate type asked for.
    #[must_use]
    #[inline(always)]
    pub const fn migrate_type(&self) -> MigrateType {
        self.migrate
    }

    /// The highest zone type allowed, after the migrate type was heeded.
    #[must_use]
    #[inline(always)]
    pub const fn limit(&self) -> ZoneType {
        self.limit
    }

    /// The highest zone type asked for, whatever the migrate type.
    pub(crate) const fn asked(&self) -> ZoneType {
        self.asked
    }

    /// The same without its node policy.
    #[inline(always)]
    pub(crate) const fn anywhere(&self) -> Self {
        Self { nodes: NodePolicy::Local, ..*self }
    }

    /// The node policy.
    #[must_use]
    pub const fn node_policy(&self) -> NodePolicy {
        self.nodes
    }

    /// Whether [`atomic`](Self::atomic) was said.
    #[must_use]
    pub const fn is_atomic(&self) -> bool {
        self.flags & ATOMIC != 0
    }

    /// Whether compaction and direct reclaim are ruled out.
    #[must_use]
    pub const fn may_not_wait(&self) -> bool {
        self.flags & NO_WAIT != 0
    }

    /// Whether [`this_node`](Self::this_node) was said.
    #[must_use]
    pub const fn is_this_node(&self) -> bool {
        self.flags & THIS_NODE != 0
    }

    /// Whether [`write`](Self::write) was said.
    #[must_use]
    pub const fn is_write(&self) -> bool {
        self.flags & WRITE != 0
    }

    /// Whether [`less_throttled`](Self::less_throttled) was said.
    #[must_use]
    pub const fn is_less_throttled(&self) -> bool {
        self.flags & LESS_THROTTLED != 0
    }

    /// Whether [`zero`](Self::zero) was said.
    #[must_use]
    pub const fn is_zero(&self) -> bool {
        self.flags & ZERO != 0
    }

    /// Whether CMA frames would do for it.
    #[must_use]
    #[inline]
    pub const fn may_use_cma(&self) -> bool {
        matches!(self.migrate, MigrateType::Movable)
    }

    /// How far below a watermark it may reach.
    #[must_use]
    pub const fn access(&self) -> Access {
        Access { high: self.flags & HIGH != 0, atomic: self.flags & ATOMIC != 0 }
    }

    /// The list of single frames that may answer without a look at anything else.
    #[inline(always)]
    pub(crate) const fn single(&self) -> Option<MigrateType> {
        list(self.fast)
    }

    /// The list of huge pages that may answer without a look at anything else.
    #[inline(always)]
    pub(crate) const fn huge(&self) -> Option<MigrateType> {
        list(self.fast.wrapping_sub(HUGE))
    }

    /// Whether the local node's cache may answer if its zone is within its dirty limit.
    pub(crate) const fn is_plain_write(&self) -> bool {
        self.flags & PLAIN_BREAKERS == WRITE
            && self.migrate.is_requestable()
            && matches!(self.nodes, NodePolicy::Local)
    }

    /// Whether the local node's cache may answer without looking at anything else.
    #[inline(always)]
    pub(crate) const fn is_plain(&self) -> bool {
        self.flags & PLAIN_BREAKERS == 0 && matches!(self.nodes, NodePolicy::Local)
    }
}

/// What `fast` has on top for huge pages.
const HUGE: u8 = 4;

#[inline(always)]
const fn list(number: u8) -> Option<MigrateType> {
    match number {
        1 => Some(MigrateType::Unmovable),
        2 => Some(MigrateType::Movable),
        3 => Some(MigrateType::Reclaimable),
        _ => None,
    }
}

impl Default for Request {
    fn default() -> Self {
        Self::frame()
    }
}
