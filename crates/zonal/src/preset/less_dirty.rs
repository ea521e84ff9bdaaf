use crate::pcp::Linked;
use crate::policy::{Policy, bulk_free, compact, dirty, merge::Always};
use crate::policy::{split::Whole, trace::Off, walk};
use crate::zone::lists::BuddyLists;

/// Linux 3.16 with patches 3 and 4 of Gorman's series of 2014: as [`FairZone`](super::FairZone), and
/// the dirty limits of zones are cached.
#[derive(Clone, Copy, Debug)]
pub struct LessDirty;

impl Policy for LessDirty {
    const NAME: &'static str = "LessDirty";
    type Free = BuddyLists<Always>;
    type Pcp = Linked;
    type Compact = compact::InOrder;
    type Walk = walk::FairFlagged;
    type Dirty = dirty::Cached;
    type BulkFree = bulk_free::OneByOne;
    type Split = Whole;
    type Trace = Off;
}
