use super::Linux413;
use crate::policy::{dirty, walk};

crate::preset! {
    /// How Linux 3.16 behaves, the base of Gorman's series of 2014: every request goes through the
    /// fair walk over the zones of its node, the dirty limit of a zone is worked out for every page
    /// that will be written, and a list of pages is freed one by one.
    pub Linux316 = "Linux316", over Linux413 { Walk = walk::Fair, Dirty = dirty::Exact }
}
