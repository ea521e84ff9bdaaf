use crate::pcp::Linked;
use crate::policy::{Policy, bulk_free, compact, dirty, merge::Always};
use crate::policy::{split::Whole, trace::Off, walk};
use crate::zone::lists::BuddyLists;

/// How Linux 3.16 behaves, the base of Gorman's series of 2014: every request goes through the
/// fair walk over the zones of its node, the dirty limit of a zone is worked out for every page
/// that will be written, and a list of pages is freed one by one.
#[derive(Clone, Copy, Debug)]
pub struct Linux316;

impl Policy for Linux316 {
    const NAME: &'static str = "Linux316";
    type Free = BuddyLists<Always>;
    type Pcp = Linked;
    type Compact = compact::InOrder;
    type Walk = walk::Fair;
    type Dirty = dirty::Exact;
    type BulkFree = bulk_free::OneByOne;
    type Split = Whole;
    type Trace = Off;
}
