use super::SkipMerge;
use crate::policy::{cluster::Cut, merge::SkipSingles};
use crate::zone::lists::BuddyLists;

crate::preset! {
    /// Linux 4.16 with patches 2 and 3 of Lu's series: single frames are not merged when they are
    /// freed, and a batch is cut off the list in O(1).
    pub Cluster = "Cluster", over SkipMerge { Free = BuddyLists<SkipSingles, Cut> }
}
