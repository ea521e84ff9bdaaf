use crate::pcp::Linked;
use crate::policy::{Policy, bulk_free, cluster, compact, dirty, merge::Always};
use crate::policy::{split::Whole, trace::Off, walk};

/// Linux 3.16 with patches 3 and 4 of Gorman's series of 2014: as [`FairZone`](super::FairZone), and
/// the dirty limits of zones are cached.
#[derive(Clone, Copy, Debug)]
pub struct LessDirty;

impl Policy for LessDirty {
    const NAME: &'static str = "LessDirty";
    type Keeper = Linked;
    type Merge = Always;
    type Clusters = cluster::None;
    type Compact = compact::InOrder;
    type Walk = walk::FairFlagged;
    type Dirty = dirty::Cached;
    type BulkFree = bulk_free::OneByOne;
    type Split = Whole;
    type Trace = Off;
}
