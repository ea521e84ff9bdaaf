use super::{Census, Compact, Occasion};
use crate::types::units::Order;

/// The block that takes the fewest moves, out of a group of 32 pageblocks.
///
/// - Source: zonal's own.
/// - Mechanism: the state bytes of 32 pageblocks are read without a lock (8 cache lines each:
///   far cheaper than moving one page). Of all aligned blocks of the wanted order in them, the
///   one with the fewest allocated frames, nothing that cannot be moved and no page that refused
///   lately is evacuated, and nothing else; compaction stops when that block has formed. Its
///   pages go to the fullest pageblocks of a group at the other end: those are furthest from
///   being free themselves. When no movable pageblock has room, they go to those that hold
///   unmovable frames and so cannot become free anyway. What is freed in the part meanwhile is
///   kept for the block; nothing is begun that has nowhere to go. Hints are out of date once
///   the whole zone was scanned, and forgotten by the next compaction, a request's or the
///   background's.
/// - A request looks at a GiB of frames and offers eight huge pages to the host at most, whatever the
///   size of its zones; the next one goes on from there. After a failure in which no page moved the back-off doubles up to 63
///   attempts, after others up to 7.
/// - One at a time in a zone: a block in the making is kept for who makes it. State: as
///   [`InOrder`](super::InOrder); the group lives on the stack.
/// - Conflicts with nothing; a group is read again after a page refused.
/// - Counters: as `InOrder`.
/// - Tests: as `InOrder`; `a_page_that_stays_costs_one_block`.
#[derive(Clone, Copy, Debug)]
pub struct Cheapest;

impl Compact for Cheapest {
    const GROUP: u32 = 32;
    const PRESSES_ON: bool = false;
    /// As Linux's: where nothing moves an attempt costs a look at memory and is for nothing.
    const MAX_BACKOFF_SHIFT: u64 = 6;
    /// Where pages move it costs less than the other way, so less is put off.
    const MOVED_BACKOFF_SHIFT: u64 = 3;
    /// A GiB: about four milliseconds.
    const SIGHT: u32 = 1 << 18;
    /// Eight huge pages.
    const OFFERS: u32 = 4096;
    const RESTARTS_AFRESH: bool = false;
    const STAYS_AHEAD: bool = true;
    const SPOILT_TARGETS: bool = true;
    const SETS_APART: bool = true;
    /// Several would look at the same group, and each set a part of it apart.
    const SIDE_BY_SIDE: bool = false;
    const GOES_ROUND: bool = true;

    fn part(wanted: Order, _: Order) -> Order {
        wanted
    }

    fn cost(census: &Census) -> Option<u32> {
        let there = census.movable + census.cached;
        // Where frames are not meant to be movable, most are not.
        let hopeful = census.for_movable && !census.hopeless;
        (hopeful && there > 0).then_some(census.movable)
    }

    fn has_room(census: &Census, room: u64) -> bool {
        room >= u64::from(census.movable)
    }

    fn rank(free: u32, spoilt: bool) -> u32 {
        if spoilt { free + (1 << 16) } else { free }
    }

    fn outdates(_: Occasion, whole: bool) -> bool {
        whole
    }

    fn forgets(on: Occasion) -> bool {
        on != Occasion::Rest
    }
}
