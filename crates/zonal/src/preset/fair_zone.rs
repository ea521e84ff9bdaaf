use crate::pcp::Linked;
use crate::policy::{Policy, bulk_free, compact, dirty, merge::Always};
use crate::policy::{split::Whole, trace::Off, walk};
use crate::zone::lists::BuddyLists;

/// Linux 3.16 with patch 3 of Gorman's series of 2014: the fair walk with a depleted flag for each
/// zone.
#[derive(Clone, Copy, Debug)]
pub struct FairZone;

impl Policy for FairZone {
    const NAME: &'static str = "FairZone";
    type Free = BuddyLists<Always>;
    type Pcp = Linked;
    type Compact = compact::InOrder;
    type Walk = walk::FairFlagged;
    type Dirty = dirty::Exact;
    type BulkFree = bulk_free::OneByOne;
    type Split = Whole;
    type Trace = Off;
}
