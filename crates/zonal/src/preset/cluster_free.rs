use crate::pcp::Linked;
use crate::policy::{
    Policy, cluster, merge::SkipSingles, split::Whole, trace::Off, walk::FirstFit,
};
use crate::zone::lists::BuddyLists;

/// Linux 4.16 with patches 2 to 4 of Lu's series: as [`Cluster`](super::Cluster), and a full
/// batch of movable frames goes back as one cluster.
#[derive(Clone, Copy, Debug)]
pub struct ClusterFree;

impl Policy for ClusterFree {
    const NAME: &'static str = "ClusterFree";
    type Free = BuddyLists<SkipSingles, cluster::CutAndJoin>;
    type Pcp = Linked;
    type Compact = crate::policy::compact::InOrder;
    type Walk = FirstFit;
    type Dirty = crate::policy::dirty::Unlimited;
    type BulkFree = crate::policy::bulk_free::PrepareCommit;
    type Split = Whole;
    type Trace = Off;
}
