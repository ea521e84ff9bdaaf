use crate::pcp::Linked;
use crate::policy::{Policy, bulk_free, compact, dirty, merge, split, trace, walk};
use crate::zone::lists::BuddyLists;

/// How Linux 4.16 behaves, as the base of the 2018 series: merging always, buddies prefetched before
/// the lock is taken, per-CPU lists linked through the frame table for order 0 only, whole zones,
/// first-fit walk.
#[derive(Clone, Copy, Debug)]
pub struct Linux416;

impl Policy for Linux416 {
    const NAME: &'static str = "Linux416";
    type Free = BuddyLists<merge::Prefetched>;
    type Pcp = Linked;
    type Compact = compact::InOrder;
    type Walk = walk::FirstFit;
    type Dirty = dirty::Unlimited;
    type BulkFree = bulk_free::PrepareCommit;
    type Split = split::Whole;
    type Trace = trace::Off;
}
