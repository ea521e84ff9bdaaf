use crate::pcp::Linked;
use crate::policy::{
    Policy, cluster, merge::SkipSingles, split::Whole, trace::Off, walk::FirstFit,
};
use crate::zone::lists::BuddyLists;

/// Linux 4.16 with patches 2 and 3 of Lu's series: single frames are not merged when they are
/// freed, and a batch is cut off the list in O(1).
#[derive(Clone, Copy, Debug)]
pub struct Cluster;

impl Policy for Cluster {
    const NAME: &'static str = "Cluster";
    type Free = BuddyLists<SkipSingles, cluster::Cut>;
    type Pcp = Linked;
    type Compact = crate::policy::compact::InOrder;
    type Walk = FirstFit;
    type Dirty = crate::policy::dirty::Unlimited;
    type BulkFree = crate::policy::bulk_free::PrepareCommit;
    type Split = Whole;
    type Trace = Off;
}
