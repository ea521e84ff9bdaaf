use crate::pcp::Depot;
use crate::policy::{Policy, merge::Lazy, split::Whole, trace::Off, walk::FirstFit};
use crate::zone::lists::BuddyLists;

/// The default: owned clusters of 256 frames, a sharded depot a zone, merging when a cluster
/// leaves the depot.
#[derive(Clone, Copy, Debug)]
pub struct Zonal;

impl Policy for Zonal {
    const NAME: &'static str = "Zonal";
    type Free = BuddyLists<Lazy>;
    type Pcp = Depot<256>;
    type Compact = crate::policy::compact::Cheapest;
    type Walk = FirstFit;
    type Dirty = crate::policy::dirty::Cached;
    type BulkFree = crate::policy::bulk_free::Runs;
    type Split = Whole;
    type Trace = Off;
}
