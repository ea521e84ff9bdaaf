use super::{Census, Compact};
use crate::units::Order;

/// The block that takes the fewest moves, out of a window of 64 pageblocks.
///
/// - Source: zonal's own.
/// - Mechanism: the state bytes of 64 pageblocks are read without a lock (8 cache lines each:
///   far cheaper than moving one page). Of all aligned blocks of the wanted order in them, the
///   one with the fewest allocated frames, nothing that cannot be moved and no page that refused
///   lately is evacuated, and nothing else; compaction stops when that block has formed. Its
///   pages go to the fullest pageblocks of a window at the other end: those are furthest from
///   being free themselves.
/// - State: as [`InOrder`](super::InOrder); the window lives on the stack.
/// - Conflicts with nothing; a window is read again after a page refused.
/// - Counters: as `InOrder`.
/// - Tests: as `InOrder`; `a_page_that_stays_costs_one_block`.
#[derive(Clone, Copy, Debug)]
pub struct Cheapest;

impl Compact for Cheapest {
    const WINDOW: u32 = 64;
    const PRESSES_ON: bool = false;
    const GOES_ROUND: bool = true;

    fn part(wanted: Order, _: Order) -> Order {
        wanted
    }

    fn cost(census: &Census) -> Option<u32> {
        (!census.hopeless && census.movable > 0).then_some(census.movable)
    }

    fn rank(free: u32) -> u32 {
        free
    }
}
