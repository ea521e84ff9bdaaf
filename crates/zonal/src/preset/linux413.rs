use super::Linux416;
use crate::policy::{bulk_free::OneByOne, merge::Always};
use crate::zone::lists::BuddyLists;

crate::preset! {
    /// How Linux 4.13 behaves, before Gorman's patch of 2017: as [`Linux416`], and a list of pages
    /// is freed one by one, each with interrupts turned off and on again; nothing is prefetched.
    pub Linux413 = "Linux413", over Linux416 { Free = BuddyLists<Always>, BulkFree = OneByOne }
}
