//! The allocator: ways in, the fast path, the slow path, bulk, free.
//!
//! May import `types`, `platform`, `frame`, `boot`, `trace`, `zone`, `policy` and `pcp`; the slow path
//! calls compaction as a method of the allocator. It has no state of its own beside counters and the
//! two relaxed words of `SharedState`: zones, per-CPU pages and the frame table have their guards.

pub mod allocator;
pub(crate) mod build;
mod bulk;
mod drain;
pub(crate) mod entry;
mod explain;
mod fast_path;
pub(crate) mod free;
mod from_zone;
pub(crate) mod handle;
pub mod home;
pub(crate) mod host;
mod large;
pub mod page_state;
pub mod parts;
pub(crate) mod shared;
pub mod slow_path;
mod split_block;
pub mod storage;
mod undo;
mod zones;
