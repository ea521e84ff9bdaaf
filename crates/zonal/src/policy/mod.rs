//! Policies: the decisions of the allocator, each a type, combined by a preset.
//!
//! "Off" is a type whose code is empty, so a decision that is not taken leaves no instruction.
//! May import `types`, `platform`, `frame`, `boot`, `trace` and `zone`. What a policy keeps, and
//! what guards that, stands in its own file.
//!
//! ```
//! use zonal::policy::Policy;
//! use zonal::preset::{Linux416, Zonal};
//! assert_eq!((Linux416::NAME, Zonal::NAME), ("Linux416", "Zonal"));
//! ```

pub mod bulk_free;
pub mod compact;
pub(crate) mod cpu_delta;
pub mod dirty;
pub mod pcp;
pub mod sound;
pub mod split;
pub mod walk;
pub(crate) mod zone;

pub use crate::trace::{self, Trace};
pub use crate::zone::FreeMemory;
pub use crate::zone::lists::clusters::{self as cluster, Clusters};
pub use crate::zone::lists::merge::{self, Merge};
pub use bulk_free::BulkFree;
pub use compact::Compact;
pub use dirty::Dirty;
pub use pcp::PcpPolicy;
pub use sound::{Sound, Trusted};
pub use split::Split;
pub use walk::Walk;

/// A combination of policies.
pub trait Policy: Sized + Send + Sync + 'static {
    /// What the preset is called.
    const NAME: &'static str;
    /// How a zone keeps what is free.
    type Free: FreeMemory;
    /// What a CPU keeps of a zone.
    type Pcp: PcpPolicy<Self::Free>;
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
