use crate::pcp::Linked;
use crate::policy::{
    Policy, cluster, merge::SkipSingles, split::Whole, trace::Off, walk::FirstFit,
};

/// Linux 4.16 with patch 2 of Lu's series: single frames are not merged when they are freed.
#[derive(Clone, Copy, Debug)]
pub struct SkipMerge;

impl Policy for SkipMerge {
    const NAME: &'static str = "SkipMerge";
    type Keeper = Linked;
    type Merge = SkipSingles;
    type Clusters = cluster::None;
    type Compact = crate::policy::compact::InOrder;
    type Walk = FirstFit;
    type Dirty = crate::policy::dirty::Unlimited;
    type BulkFree = crate::policy::bulk_free::PrepareCommit;
    type Split = Whole;
    type Trace = Off;
}
