//! A physical page-frame allocator that keeps scaling: zones, buddy lists, migrate types and
//! per-CPU caches as the Linux page allocator has them, with zone-lock policies that can be
//! compared side by side, and a default that keeps free memory as a map, without a lock.
//!
//! No heap, no unsafe code, no dependency: the caller provides the memory for the tables and a
//! [`Platform`](platform::Platform); the frames themselves are never read or written. Start at
//! [`Allocator`]; user space starts at the crate `zonal-host`.
//!
//! ```
//! use core::mem::MaybeUninit;
//! use zonal::map::{MemoryMap, PhysAddr, Region};
//! use zonal::plan::{Config, Plan};
//! use zonal::platform::single::SingleThread;
//! use zonal::policy::{Policy, Split};
//! use zonal::{Allocator, Order, Request, preset::Zonal};
//!
//! let map = MemoryMap::from_regions(&[Region::usable(PhysAddr(0), 64 << 20)])?.sanitise()?;
//! let plan = Plan::new(map, Config::new(1), <Zonal as Policy>::Split::instances)?;
//! let mut piece = vec![MaybeUninit::uninit(); 1 << 20];
//! let tables = zonal_tables::in_piece(&plan, &mut piece)?;
//! let allocator = Allocator::<_, Zonal>::new(SingleThread, &plan, tables)?;
//!
//! let (pfn, order) = allocator.alloc(&Request::new(Order::HUGE))?.into_raw();
//! allocator.free_raw(pfn, order)?;
//! assert!(allocator.free_raw(pfn, order).is_err(), "a double free is refused");
//! # Ok::<(), Box<dyn core::error::Error>>(())
//! ```
#![no_std]
#![forbid(unsafe_code)]

// Offsets from a table's base are differences of pfns, and an index beyond all caches is a `u32::MAX`.
const _: () = assert!(usize::BITS >= 64, "zonal is for machines of 64 bits");

mod alloc;
mod boot;
pub mod compact;
pub mod frame;
mod hotplug;
pub mod pcp;
pub mod platform;
pub mod policy;
pub mod preset;
pub mod report;
pub mod trace;
pub mod types;
pub mod zone;

pub use alloc::{allocator, home, page_state, parts, slow_path, storage};
pub use boot::{map, plan, watermark, zonelist};
pub use report::{info, inspect};
pub use types::migrate_type as migrate;
pub use types::{error, request, units, zone_type};

pub use alloc::allocator::Allocator;
pub use alloc::entry::CpuHomes;
pub use alloc::handle::CpuHandle;
pub use alloc::home::HomeCaches;
pub use alloc::host::Host;
pub use alloc::parts::TablePart;
pub use alloc::shared::SharedState;
pub use alloc::storage::{Storage, TableSize};
pub use boot::zonelist::{MAX_NODES, MAX_ZONES};
pub use compact::clusters_off::ClustersOff;
pub use compact::contiguous::Contiguous;
pub use compact::isolate::Isolated;
pub use compact::{CompactEvents, CompactMode, CompactOutcome};
pub use hotplug::online::Onlined;
pub use pcp::per_cpu_pages::{CpuEvents, OutsideSlot, PerCpuPages};
pub use policy::zone::Zone;
pub use types::block::Block;
pub use types::bounds::Bounds;
pub use types::counts::FreeCounts;
pub use types::error::{AllocError, BulkFreed, FreeError};
pub use types::migrate_type::MigrateType;
pub use types::migration::{CannotZero, Immovable, Migration};
pub use types::request::{NodePolicy, Request};
pub use types::units::{CpuId, NodeId, NodeMask, Order, Pfn, ZoneId};
pub use types::zone_type::ZoneType;
pub use zone::{HOLD_BOUND, ZoneEvents, hold_bound};
