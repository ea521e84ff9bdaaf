//! A physical page-frame allocator that keeps scaling: zones, buddy lists, migrate types and
//! per-CPU caches as the Linux page allocator has them, with zone-lock policies that can be
//! compared side by side, and a default that keeps order-0 frames in clusters which change
//! hands without a lock.
//!
//! No heap, no unsafe code, no dependency: the caller provides the memory for the tables and a
//! [`Platform`](platform::Platform); the frames themselves are never read or written. Start at
//! [`Allocator`]; user space starts at the crate `zonal-host`.
#![no_std]
#![forbid(unsafe_code)]

mod alloc_path;
pub mod allocator;
mod block;
mod buddy;
mod build;
mod bulk;
mod cluster;
mod clusters_off;
pub mod compact;
mod contiguous;
mod cpu_delta;
mod cpu_zone;
mod drain;
mod entry;
pub mod error;
mod fallback;
pub mod frame;
mod free_area;
mod free_list;
mod free_path;
mod frontier;
mod handle;
mod high_atomic;
pub mod info;
pub mod inspect;
mod isolate;
pub mod keeper;
pub mod map;
mod merge_skipped;
pub mod migrate;
mod online;
pub mod page_state;
pub mod plan;
pub mod platform;
pub mod policy;
pub mod preset;
mod release;
pub mod report;
pub mod request;
pub mod slowpath;
pub mod storage;
mod sweep;
pub mod units;
pub mod watermark;
mod zone;
pub mod zone_type;
pub mod zonelist;

pub use allocator::Allocator;
pub use block::Block;
pub use buddy::BuddyEvents;
pub use cluster::{Common, Exchange};
pub use clusters_off::ClustersOff;
pub use compact::{CompactEvents, CompactMode, CompactOutcome};
pub use contiguous::Contiguous;
pub use cpu_zone::{CpuEvents, CpuZone};
pub use error::{AllocError, BulkFreed, FreeError};
pub use free_area::FreeCounts;
pub use handle::CpuHandle;
pub use isolate::Isolated;
pub use migrate::MigrateType;
pub use online::Onlined;
pub use request::{NodePolicy, Request};
pub use storage::{Storage, TableSize};
pub use units::{CpuId, NodeId, NodeMask, Order, Pfn, ZoneId};
pub use zone::{HOLD_BOUND, Zone, hold_bound};
pub use zone_type::ZoneType;
pub use zonelist::{MAX_NODES, MAX_ZONES};
