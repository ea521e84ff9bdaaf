use super::FairZone;
use crate::policy::dirty::Cached;

crate::preset! {
    /// Linux 3.16 with patches 3 and 4 of Gorman's series of 2014: as [`FairZone`], and the dirty
    /// limits of zones are cached.
    pub LessDirty = "LessDirty", over FairZone { Dirty = Cached }
}
