use super::Linux416;
use crate::pcp::Stacks;
use crate::policy::{bulk_free::Runs, compact::Cheapest, dirty::Cached};
use crate::zone::free_map::Mapped;

crate::preset! {
    /// The default: free memory as a map, a bit a frame and a cache line a pageblock, with no lock;
    /// stacks of frames per CPU, which keep what lies low in the zone and give back at once what lies
    /// high, so that blocks stay whole.
    pub Zonal = "Zonal", over Linux416 {
        Free = Mapped,
        Pcp = Stacks<16>,
        Compact = Cheapest,
        Dirty = Cached,
        BulkFree = Runs,
    }
}
