use super::Linux316;
use crate::policy::walk::FairFlagged;

crate::preset! {
    /// Linux 3.16 with patch 3 of Gorman's series of 2014: the fair walk with a depleted flag for
    /// each zone.
    pub FairZone = "FairZone", over Linux316 { Walk = FairFlagged }
}
