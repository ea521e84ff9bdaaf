use crate::pcp::Linked;
use crate::policy::{Policy, merge::SkipSingles, split::Whole, trace::Off, walk::FirstFit};
use crate::zone::lists::BuddyLists;

/// Linux 4.16 with patch 2 of Lu's series: single frames are not merged when they are freed.
#[derive(Clone, Copy, Debug)]
pub struct SkipMerge;

impl Policy for SkipMerge {
    const NAME: &'static str = "SkipMerge";
    type Free = BuddyLists<SkipSingles>;
    type Pcp = Linked;
    type Compact = crate::policy::compact::InOrder;
    type Walk = FirstFit;
    type Dirty = crate::policy::dirty::Unlimited;
    type BulkFree = crate::policy::bulk_free::PrepareCommit;
    type Split = Whole;
    type Trace = Off;
}
