//! Free memory on buddy lists, by order and migrate type, as Linux keeps it.
//!
//! Everything here is guarded by the zone lock.

pub(crate) mod buddy;
pub mod clusters;
mod fallback;
pub(crate) mod free_area;
mod high_atomic;
pub mod merge;
mod pageblocks;
pub(crate) mod untouched;
