use super::Linux316;
use crate::policy::walk::FairPosted;

crate::preset! {
    /// Linux 3.16 with patch 3 of Gorman's series of 2014 as it was posted: batches of a quarter of the
    /// zone, and the reset rule that the review objected to. [`FairZone`](super::FairZone) is the
    /// patch as reviewed.
    pub FairZonePosted = "FairZonePosted", over Linux316 { Walk = FairPosted }
}
