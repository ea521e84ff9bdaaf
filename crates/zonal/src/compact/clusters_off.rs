//! A guard under which no CPU cuts clusters off and no merge is skipped.
//!
//! ```
//! # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example/mod.rs")); }
//! use zonal::ZoneId;
//! # example::with_small::<zonal::preset::Cluster>(|allocator| {
//! let off = allocator.disable_clusters(ZoneId(0)).expect("there is a zone");
//! // Single frames that are freed merge; what looks free is on a list.
//! drop(off);
//! assert!(allocator.disable_clusters(ZoneId(99)).is_none(), "no such zone");
//! # });
//! ```

use crate::alloc::allocator::Allocator;
use crate::alloc::host::Host;
use crate::policy::FreeMemory;
use crate::policy::Policy;
use crate::policy::zone::Zone;
use crate::types::units::ZoneId;
use crate::zone::ZoneView;
use core::fmt;

/// In one zone no CPU cuts clusters off its order-0 lists, and single frames merge when they are
/// freed, until this is dropped. Guards nest: the last one to go enables.
///
/// For callers that look at the states of single frames by pfn, or want large blocks: contiguous
/// allocation holds one while it works, and compaction where there are clusters. Frames that were
/// merge-skipped before stay as they are until a scanner or a drain merges them. Without effect
/// under presets that skip no merge.
///
/// A guard that is forgotten ([`core::mem::forget`]) leaves the zone with clusters disabled for
/// good. Nothing is lost by it: frames are allocated one by one and merged one by one, as Linux
/// 4.16 does it, and high orders fare the better for it.
#[must_use = "clusters are enabled again when this is dropped"]
pub struct ClustersOff<'a, P: Host, S: Policy> {
    view: ZoneView<'a, P, S::Free>,
}

impl<'a, P: Host, S: Policy> ClustersOff<'a, P, S> {
    /// Waits, zone lock in hand, for those who are cutting; when it returns, all single frames
    /// that look free are on a list.
    pub(crate) fn new(zone: &'a Zone<P, S>, allocator: &'a Allocator<'_, P, S>) -> Self {
        let view = allocator.view(zone);
        S::Free::hold_off_batches(view);
        Self { view }
    }
}

impl<P: Host, S: Policy> Drop for ClustersOff<'_, P, S> {
    fn drop(&mut self) {
        S::Free::let_batches(self.view);
    }
}

impl<P: Host, S: Policy> fmt::Debug for ClustersOff<'_, P, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClustersOff").field("zone", &self.view.zone.id).finish()
    }
}

impl<P: Host, S: Policy> Allocator<'_, P, S> {
    /// Disables clusters, and with them the skipping of merges, in one zone until the guard is
    /// dropped; `None` if there is no such zone. Waits for those who are cutting a batch off,
    /// with the zone lock held: for the time of a few dozen stores. Must not be called from a
    /// platform lock.
    pub fn disable_clusters(&self, zone: ZoneId) -> Option<ClustersOff<'_, P, S>> {
        Some(ClustersOff::new(self.zone(zone)?, self))
    }
}
