//! Policies: the decisions of the allocator, each a type, combined by a preset.
//!
//! "Off" is a type whose code is empty, so a decision that is not taken leaves no instruction.
//!
//! ```
//! use zonal::policy::Policy;
//! use zonal::preset::{Linux416, Zonal};
//! assert_eq!((Linux416::NAME, Zonal::NAME), ("Linux416", "Zonal"));
//! ```

pub mod bulk_free;
pub mod cluster;
mod cluster_slots;
pub mod compact;
pub mod dirty;
pub mod merge;
pub mod split;
pub mod trace;
pub mod walk;

use crate::keeper::Keeper;
pub use bulk_free::BulkFree;
pub use cluster::Clusters;
pub use compact::Compact;
pub use dirty::Dirty;
pub use merge::Merge;
pub use split::Split;
pub use trace::Trace;
pub use walk::Walk;

/// A combination of policies.
pub trait Policy: Sized + Send + Sync + 'static {
    /// What the preset is called.
    const NAME: &'static str;
    /// How order-0 frames are kept per CPU.
    type Keeper: Keeper;
    /// When buddies are merged.
    type Merge: Merge;
    /// Whether order-0 frames on the buddy lists belong to clusters.
    type Clusters: Clusters;
    /// What compaction evacuates next.
    type Compact: Compact;
    /// Which zones are tried, and in which order.
    type Walk: Walk;
    /// Which zones a page that will be dirtied may come from.
    type Dirty: Dirty;
    /// How a list of single frames is freed.
    type BulkFree: BulkFree;
    /// How many instances a zone type has, and which a CPU prefers.
    type Split: Split;
    /// Whether events are recorded.
    type Trace: Trace;
}
