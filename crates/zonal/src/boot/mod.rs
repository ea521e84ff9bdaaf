//! What is decided before the first frame is handed out: the memory map, the plan of nodes and
//! zones, watermarks, zonelists.
//!
//! May import `types`. Plans are plain values; once built they do not change.
//!
//! ```
//! use zonal::map::{MemoryMap, PhysAddr, Region};
//! use zonal::plan::{Config, Plan};
//! let map = MemoryMap::from_regions(&[Region::usable(PhysAddr(0), 64 << 20)])?.sanitise()?;
//! assert_eq!(Plan::new(map, Config::new(1), |_, _, _| 1)?.zones().len(), 2);
//! # Ok::<(), zonal::plan::PlanError>(())
//! ```

pub(crate) mod dirty_limit;
pub mod map;
pub mod plan;
pub(crate) mod tuning;
pub mod watermark;
pub mod zonelist;
