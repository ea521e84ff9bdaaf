//! A zone instance and its free memory.
//!
//! May import `types`, `platform`, `frame`, `boot` and `trace`. The rest of the allocator asks for
//! blocks, pageblocks, ranges and counts through [`FreeMemory`]; which way a zone keeps its free
//! memory is a type of the preset: [`free_map::Mapped`], bits without a lock, is the default's, and
//! [`lists::BuddyLists`] that of the presets of Linux. The zone lock guards the lists; of a map, what is said in
//! [`free_map`]. Watermarks, sizes and published counts are relaxed words.
//!
//! ```
//! use zonal::policy::Policy;
//! use zonal::preset::{Linux416, SkipMerge};
//! use zonal::zone::FreeMemory;
//! assert!(!<Linux416 as Policy>::Free::SKIPS_MERGES && <SkipMerge as Policy>::Free::SKIPS_MERGES);
//! ```

pub(crate) mod compaction;
mod events;
pub mod free_map;
mod free_memory;
mod guard;
mod instance;
pub mod lists;
mod present;
pub mod tables;

pub use compaction::{CompactEvents, CompactMode, CompactOutcome};
pub use events::ZoneEvents;
pub use free_memory::{
    AllocFlags, ClusterMembers, FreeMemory, FreePlace, Published, Snapshot, Vacated,
};
pub use guard::{ZoneGuard, ZoneView};
pub(crate) use instance::Levels;
pub use instance::{HOLD_BOUND, ZoneInstance, hold_bound};
