use super::Linux416;
use crate::pcp::Depot;
use crate::policy::{bulk_free::Runs, compact::Cheapest, dirty::Cached, merge::Lazy};
use crate::zone::lists::BuddyLists;

crate::preset! {
    /// The default until it kept free memory as a map: owned clusters of 256 frames, a sharded depot a
    /// zone, merging when a cluster leaves the depot. Fast, and bad for large blocks. To compare with.
    pub ZonalDepot = "ZonalDepot", over Linux416 {
        Free = BuddyLists<Lazy>,
        Pcp = Depot<256>,
        Compact = Cheapest,
        Dirty = Cached,
        BulkFree = Runs,
    }
}
