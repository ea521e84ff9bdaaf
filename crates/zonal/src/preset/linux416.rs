use crate::pcp::Linked;
use crate::policy::{Policy, merge::Always, split::Whole, trace::Off, walk::FirstFit};
use crate::zone::lists::BuddyLists;

/// How Linux 4.16 behaves, the base of the 2018 series: merging always, per-CPU lists linked
/// through the frame table for order 0 only, whole zones, first-fit walk.
#[derive(Clone, Copy, Debug)]
pub struct Linux416;

impl Policy for Linux416 {
    const NAME: &'static str = "Linux416";
    type Free = BuddyLists<Always>;
    type Pcp = Linked;
    type Compact = crate::policy::compact::InOrder;
    type Walk = FirstFit;
    type Dirty = crate::policy::dirty::Unlimited;
    type BulkFree = crate::policy::bulk_free::PrepareCommit;
    type Split = Whole;
    type Trace = Off;
}
