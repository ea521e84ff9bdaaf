use super::Linux416;
use crate::pcp::Linked63;
use crate::policy::merge::Always;
use crate::zone::lists::BuddyLists;

crate::preset! {
    /// How Linux 6.3 behaves, the base of Huang's RFC of 2023: per-CPU lists of the orders 0 to 3 and of
    /// the pageblock order, as large as the low watermark allows, and a batch that grows while a CPU only
    /// frees; nothing is prefetched.
    pub Linux63 = "Linux63", over Linux416 { Free = BuddyLists<Always>, Pcp = Linked63 }
}
