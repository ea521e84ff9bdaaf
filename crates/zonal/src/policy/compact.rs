//! Which part of a zone compaction evacuates next, and where to.
//!
//! ```
//! use zonal::policy::compact::{Census, Cheapest, Compact, InOrder};
//! let few = Census { movable: 3, free: 509, hopeless: false };
//! let many = Census { movable: 400, free: 112, hopeless: false };
//! assert!(Cheapest::cost(&few) < Cheapest::cost(&many));
//! assert_eq!(InOrder::cost(&few), InOrder::cost(&many), "as they come");
//! ```

mod cheapest;
mod in_order;

pub use cheapest::Cheapest;
pub use in_order::InOrder;

use crate::units::Order;

/// What the state bytes say of a part of a zone. Read without a lock: a hint.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Census {
    /// Frames of allocated blocks smaller than the order wanted: the host may move them.
    pub movable: u32,
    /// Free frames.
    pub free: u32,
    /// Whether it holds frames that nobody can move: of a hole, of a larger block, in a cache.
    pub hopeless: bool,
}

/// A compaction policy.
pub trait Compact: Send + Sync + 'static {
    /// Pageblocks that are looked at before one part is evacuated, and before one receives.
    const WINDOW: u32;
    /// Whether a part in which one page stays is evacuated further all the same, if compaction
    /// may wait.
    const PRESSES_ON: bool;
    /// Whether pages may be moved up and down alike, so that the scanners do not end where they
    /// meet; and whether a scan that began in the middle of the zone goes on from its start, if
    /// compaction may wait.
    const GOES_ROUND: bool;

    /// The size of the parts that are compared: aligned blocks of this order.
    fn part(wanted: Order, pageblock: Order) -> Order;
    /// What the evacuation of a part costs: in a window the cheapest goes first, of equals the
    /// lowest. `None`: there is nothing to gain.
    fn cost(census: &Census) -> Option<u32>;
    /// The rank of a pageblock with `free` frames as a place to move to: lowest first, of
    /// equals the highest address.
    fn rank(free: u32) -> u32;
}
