use super::Linux416;
use crate::policy::merge::SkipSingles;
use crate::zone::lists::BuddyLists;

crate::preset! {
    /// Linux 4.16 with patch 2 of Lu's series: single frames are not merged when they are freed.
    pub SkipMerge = "SkipMerge", over Linux416 { Free = BuddyLists<SkipSingles> }
}
