//! The tables of an allocator in one call.
//!
//! An allocator of the crate `zonal` owns no memory: it lives in slices that its caller provides.
//! [`HeapTables`] makes them for those who have a heap, [`in_piece`] for those who have a piece of
//! memory, such as a kernel that carved one from its boot map, and [`in_zeroed_piece`] where that is
//! zero already and not to be touched before it is needed. [`sparse`] is for those who can map memory:
//! their tables have memory only where there are frames.
//!
//! ```
//! use zonal::map::{MemoryMap, PhysAddr, Region};
//! use zonal::plan::{Config, Plan};
//! use zonal::platform::single::SingleThread;
//! use zonal::policy::{Policy, Split};
//! use zonal::preset::Zonal;
//! use zonal::{Allocator, Request};
//! use zonal_tables::HeapTables;
//!
//! let map = MemoryMap::from_regions(&[Region::usable(PhysAddr(0x10_0000), 64 << 20)])?;
//! let plan = Plan::new(map.sanitise()?, Config::new(1), <Zonal as Policy>::Split::instances)?;
//! let mut tables = HeapTables::new(&plan)?;
//! let allocator = Allocator::<_, Zonal>::new(SingleThread, &plan, tables.storage())?;
//! let frame = allocator.alloc(&Request::frame())?;
//! allocator.free(frame)?;
//! # Ok::<(), Box<dyn core::error::Error>>(())
//! ```
#![no_std]

#[cfg(feature = "heap")]
extern crate alloc;

#[cfg(feature = "heap")]
mod heap;
mod piece;
pub mod sparse;

#[cfg(feature = "heap")]
pub use heap::{HeapTables, NoMemory};
pub use piece::{PieceTooSmall, in_piece, in_zeroed_piece, piece_bytes};
