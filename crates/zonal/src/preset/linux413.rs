use crate::pcp::Linked;
use crate::policy::{Policy, bulk_free, compact, dirty, merge::Always};
use crate::policy::{split::Whole, trace::Off, walk};
use crate::zone::lists::BuddyLists;

/// How Linux 4.13 behaves, before Gorman's patch of 2017: as [`Linux416`](super::Linux416), and a
/// list of pages is freed one by one, each with interrupts turned off and on again.
#[derive(Clone, Copy, Debug)]
pub struct Linux413;

impl Policy for Linux413 {
    const NAME: &'static str = "Linux413";
    type Free = BuddyLists<Always>;
    type Pcp = Linked;
    type Compact = compact::InOrder;
    type Walk = walk::FirstFit;
    type Dirty = dirty::Unlimited;
    type BulkFree = bulk_free::OneByOne;
    type Split = Whole;
    type Trace = Off;
}
