use super::{Census, Compact, Occasion};
use crate::types::units::Order;

/// Pageblock after pageblock, as the scanners come by.
///
/// - Source: Gorman's memory compaction, in Linux since 2.6.35; here as of 4.16.
/// - Mechanism: the migrate scanner goes up from the start of the zone and moves what is
///   allocated out of every pageblock it meets, into the free frames that the free scanner meets
///   on its way down from the end; where they meet, the zone was scanned. Asynchronous
///   compaction leaves an aligned block of the wanted order as soon as one page of it stays,
///   synchronous compaction goes on.
/// - Hints: a pageblock in which something stayed is skipped (in Linux one out of which nothing was
///   isolated, its skipped merges too: ADR 67). When the scanners meet while a
///   request waits, whatever part of the zone they have seen, the zone's hints are out of date;
///   the background compactor does not judge that. They are not forgotten within that request
///   (its synchronous attempts skip what its asynchronous one found), but when background work
///   is done and about to sleep, or else when the next request begins; and by the first attempt
///   after the longest back-off. In Linux it is kswapd that forgets before it sleeps; here a
///   host need not have such a thread, so requests do it as well.
/// - Side by side: requests and the background compact a zone together. A compaction does not look
///   again where another found nothing to move; where two meet, one finds a page gone and goes on.
/// - State: both positions, noted at the end and after each pageblock in which no page was asked for
///   (words of the zone; the migrate scanner's only goes up until the scanners begin anew), whether hints are out of date (likewise), and a skip hint
///   for each pageblock (zone lock). Linux gives the hint to full pageblocks as well; here a full one
///   is looked at once each time the free scanner comes by.
/// - Conflicts with nothing; pays for pages that were moved out of blocks that then did not
///   form.
/// - Counters: `compact_migrate_scanned`, `compact_free_scanned`, `pgmigrate_success`,
///   `pgmigrate_fail` and the rest of `CompactEvents`.
/// - Tests: `compaction.rs` of the testkit; this policy against [`Cheapest`](super::Cheapest) in
///   `the_cheapest_block_moves_fewer_pages` (`compaction_policies.rs`); hints in
///   `compaction_hints.rs`.
#[derive(Clone, Copy, Debug)]
pub struct InOrder;

impl Compact for InOrder {
    const GROUP: u32 = 1;
    const PRESSES_ON: bool = true;
    const MAX_BACKOFF_SHIFT: u64 = 6;
    const RESTARTS_AFRESH: bool = true;
    const STAYS_AHEAD: bool = false;
    const SPOILT_TARGETS: bool = false;
    const SETS_APART: bool = false;
    const SIDE_BY_SIDE: bool = true;
    const GOES_ROUND: bool = false;

    fn part(_: Order, pageblock: Order) -> Order {
        pageblock
    }

    fn cost(census: &Census) -> Option<u32> {
        (census.movable > 0).then_some(0)
    }

    fn has_room(_: &Census, _: u64) -> bool {
        true
    }

    fn rank(_: u32, _: bool) -> u32 {
        0
    }

    fn outdates(on: Occasion, _: bool) -> bool {
        matches!(on, Occasion::Request | Occasion::Retry)
    }

    fn forgets(on: Occasion) -> bool {
        matches!(on, Occasion::Request | Occasion::Rest)
    }
}
