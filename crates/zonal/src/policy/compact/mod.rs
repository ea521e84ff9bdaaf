//! Which part of a zone compaction evacuates next, and where to.
//!
//! ```
//! use zonal::policy::compact::{Census, Cheapest, Compact, InOrder, Occasion};
//! let part = Census { for_movable: true, ..Census::default() };
//! let few = Census { movable: 3, free: 509, ..part };
//! let many = Census { movable: 400, free: 112, ..part };
//! assert!(Cheapest::cost(&few) < Cheapest::cost(&many));
//! assert_eq!(InOrder::cost(&few), InOrder::cost(&many), "as they come");
//! assert!(InOrder::forgets(Occasion::Rest) && !Cheapest::forgets(Occasion::Rest));
//! ```

mod cheapest;
pub(crate) mod effort;
mod in_order;

pub use cheapest::Cheapest;
pub use in_order::InOrder;

use crate::types::units::Order;

/// What the state bytes say of a part of a zone. Read without a lock: a hint.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Census {
    /// Frames of allocated blocks smaller than the order wanted: the host may move them.
    pub movable: u32,
    /// Free frames.
    pub free: u32,
    /// Frames in per-CPU caches: free once those are drained.
    pub cached: u32,
    /// Whether its pageblocks are for frames that can be moved (movable, CMA).
    pub for_movable: bool,
    /// Whether it holds frames that cannot be moved: of a hole, of a larger block.
    pub hopeless: bool,
}

/// What a zone is compacted for, and when that is over: a moment at which the hints of its
/// pageblocks may become out of date, or be forgotten.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Occasion {
    /// A request, or a call of `compact_zone`, begins to have the zone compacted.
    Request,
    /// The same request goes on: after asynchronous compaction, after reclaim.
    Retry,
    /// The background compactor begins a piece of work.
    Background,
    /// The background compactor has nothing more to do, and is about to sleep.
    Rest,
}

/// A compaction policy.
pub trait Compact: Send + Sync + 'static {
    /// Pageblocks that are looked at before one part is evacuated, and before one receives.
    const GROUP: u32;
    /// Whether a part in which one page stays is evacuated further all the same, if compaction
    /// may wait.
    const PRESSES_ON: bool;
    /// Whether a pageblock that is evacuated is kept apart meanwhile: what is freed there is for
    /// the block that is to form, until a request has no other frame.
    const SETS_APART: bool;
    /// Whether compactions of one zone run side by side. Each goes on from where the others are; who
    /// moves a page first must win it from the host, and who takes a place to move to looks again
    /// under the zone lock. Otherwise there is one at a time: a request waits for its turn for a while,
    /// and calls the background's off. A zone has one part [apart](Self::SETS_APART), so a policy
    /// with both does not compile where it is used.
    const SIDE_BY_SIDE: bool;
    /// Whether background compaction is woken when the last block of a large order is taken,
    /// rather than when the next request finds none; and whether it then makes blocks until half
    /// of free memory is in them, rather than until there is one.
    const STAYS_AHEAD: bool;
    /// Whether pages may also be moved to pageblocks whose frames are not meant to be movable.
    const SPOILT_TARGETS: bool;
    /// Whether pages may be moved up and down alike, so that the scanners do not end where they
    /// meet; and whether a scan that began in the middle of the zone goes on from its start, if
    /// compaction may wait.
    const GOES_ROUND: bool;

    /// The back-off after failures doubles up to this shift `s`: at most 2^`s` - 1 attempts are put
    /// off.
    const MAX_BACKOFF_SHIFT: u64;
    /// The same after failures in which a page was moved: the next attempt may well form the block.
    const MOVED_BACKOFF_SHIFT: u64 = Self::MAX_BACKOFF_SHIFT;
    /// Frames that the compactions of one request may look at, over all its zones; the next request's go
    /// on from there.
    const SIGHT: u32 = u32::MAX;
    /// Frames that they may offer to the host.
    const OFFERS: u32 = u32::MAX;
    /// Whether all hints are forgotten, out of date or not, by the first attempt after the
    /// longest back-off.
    const RESTARTS_AFRESH: bool;

    /// The size of the parts that are compared: aligned blocks of this order.
    fn part(wanted: Order, pageblock: Order) -> Order;
    /// What the evacuation of a part costs: in a group the cheapest goes first, of equals the
    /// lowest. `None`: there is nothing to gain. More frames in the census never make it less:
    /// what costs more than another part already is not counted to its end.
    fn cost(census: &Census) -> Option<u32>;
    /// Whether to begin with a part when `room` frames are free outside of it, where its pages
    /// could go.
    fn has_room(census: &Census, room: u64) -> bool;
    /// The rank of a pageblock with `free` frames as a place to move to: lowest first, of
    /// equals the highest address. `spoilt`: its frames are not meant to be movable.
    fn rank(free: u32, spoilt: bool) -> u32;
    /// Whether a zone's hints are out of date because its scanners have met on this occasion.
    /// `whole`: when they set out, the zone was in front of them from end to end.
    fn outdates(on: Occasion, whole: bool) -> bool;
    /// Whether hints that are out of date are forgotten on this occasion. The scanners begin at
    /// the ends of the zone then.
    fn forgets(on: Occasion) -> bool;
}
