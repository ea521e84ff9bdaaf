use super::Linux416;
use crate::pcp::Depot;
use crate::policy::{bulk_free::Runs, compact::Cheapest, dirty::Cached, merge::Lazy};
use crate::zone::lists::BuddyLists;

crate::preset! {
    /// The default: owned clusters of 256 frames, a sharded depot a zone, merging when a cluster
    /// leaves the depot.
    pub Zonal = "Zonal", over Linux416 {
        Free = BuddyLists<Lazy>,
        Pcp = Depot<256>,
        Compact = Cheapest,
        Dirty = Cached,
        BulkFree = Runs,
    }
}
