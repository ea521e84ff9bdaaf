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
pub(crate) mod cpu_delta;

pub mod compact;
pub mod dirty;

pub mod split;

pub mod walk;

pub use crate::pcp::policy::Keeper;
pub use crate::trace::{self, Trace};
pub use crate::zone::lists::clusters::{self as cluster, Clusters};
pub use crate::zone::lists::merge::{self, Merge};
pub use bulk_free::BulkFree;

pub use compact::Compact;
pub use dirty::Dirty;

pub use split::Split;

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
