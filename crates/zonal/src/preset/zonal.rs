use crate::pcp::Depot;
use crate::policy::{Policy, cluster, merge::Lazy, split::Whole, trace::Off, walk::FirstFit};

/// The default: owned clusters of 256 frames, a sharded depot a zone, merging when a cluster
/// leaves the depot.
#[derive(Clone, Copy, Debug)]
pub struct Zonal;

impl Policy for Zonal {
    const NAME: &'static str = "Zonal";
    type Keeper = Depot<256>;
    type Merge = Lazy;
    type Clusters = cluster::None;
    type Compact = crate::policy::compact::Cheapest;
    type Walk = FirstFit;
    type Dirty = crate::policy::dirty::Cached;
    type BulkFree = crate::policy::bulk_free::Runs;
    type Split = Whole;
    type Trace = Off;
}
