//! The memory that the caller provides, and how much of it.
//!
//! ```
//! use zonal::map::{MemoryMap, PhysAddr, Region};
//! use zonal::plan::{Config, Plan};
//! use zonal::preset::Zonal;
//! use zonal::policy::{Policy, Split};
//! use zonal::TableSize;
//! let map = MemoryMap::from_regions(&[Region::usable(PhysAddr(0), 64 << 20)])?.sanitise()?;
//! let plan = Plan::new(map, Config::new(1), <Zonal as Policy>::Split::instances)?;
//! let size = TableSize::of::<Zonal>(&plan);
//! assert_eq!(size.frames, 16384);
//! assert!(2 * size.table_bytes() <= 3 * size.frames, "at most 1.5 bytes a frame");
//! # Ok::<(), Box<dyn core::error::Error>>(())
//! ```

use crate::alloc::build::batch;
use crate::alloc::shared::SharedState;
use crate::boot::plan::Plan;
use crate::pcp::per_cpu_pages::{OutsideSlot, PerCpuPages};
use crate::platform::Platform;
use crate::policy::FreeMemory;
use crate::policy::Policy;
use crate::policy::zone::Zone;
use crate::types::error::BuildError;
use crate::types::units::NodeId;
use crate::zone::tables::{FreeWords, NR_FREE_WORDS};

/// How many elements each slice of [`Storage`] must have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TableSize {
    /// State bytes: frames that the table spans.
    pub frames: u64,
    /// Pageblock words.
    pub pageblocks: u64,
    /// Words for what is free, by slice of [`FreeWords`].
    pub free: [u64; NR_FREE_WORDS],
    /// Zone instances.
    pub zones: u64,
    /// Per-CPU caches: CPUs × zones.
    pub caches: u64,
    /// CPUs, each with the number of its node.
    pub cpus: u64,
}

impl TableSize {
    /// What a plan needs under the preset `S`.
    #[must_use]
    pub fn of<S: Policy>(plan: &Plan) -> Self {
        let (zones, cpus) = (plan.zones().len() as u64, u64::from(plan.config().cpus));
        Self {
            frames: plan.frames(),
            pageblocks: plan.pageblocks(),
            free: S::Free::words(plan, &batch::<S>(plan)),
            zones,
            caches: zones * cpus,
            cpus,
        }
    }

    /// Bytes that grow with the memory: states, pageblocks and what is free.
    #[must_use]
    pub const fn table_bytes(&self) -> u64 {
        let [first, second, third] = self.free;
        self.frames + (first + second + third + self.pageblocks) * 8
    }

    /// Bytes that grow with CPUs and zones, for the platform `P`.
    #[must_use]
    pub const fn cache_bytes<P: Platform, S: Policy>(&self) -> u64 {
        let cache = size_of::<P::Slot<PerCpuPages<S>>>() + size_of::<OutsideSlot<P, S>>();
        let others = self.zones * size_of::<Zone<P, S>>() as u64 + self.cpus;
        self.caches * cache as u64 + others
    }
}

/// The slices an allocator lives in. States, pageblocks and words for what is free must be zero
/// (fresh zeroed memory will do); zones and caches as their constructors make them.
pub struct Storage<'m, P: Platform, S: Policy> {
    /// One state byte a frame.
    pub states: &'m [P::Byte],
    /// One word a pageblock.
    pub pageblocks: &'m [P::Word],
    /// Words for what is free, as [`TableSize::free`] says.
    pub free: FreeWords<'m, P>,
    /// Zones, each [`Zone::vacant`].
    pub zones: &'m mut [Zone<P, S>],
    /// Per-CPU caches, CPU by CPU, each a slot around [`PerCpuPages::new`].
    pub caches: &'m [P::Slot<PerCpuPages<S>>],
    /// What of them lies outside the slots, each [`OutsideSlot::new`].
    pub outside: &'m [OutsideSlot<P, S>],
    /// Nodes of the CPUs, of any value: the host is asked when the allocator is built.
    pub nodes: &'m mut [NodeId],
    /// What all CPUs share, [`SharedState::new`].
    pub shared: &'m SharedState<P>,
}

impl<P: Platform, S: Policy> Storage<'_, P, S> {
    /// Whether every slice is as long as `size` says.
    ///
    /// # Errors
    /// [`BuildError::WrongLength`] names the first that is not.
    pub(crate) fn check(&self, size: &TableSize) -> Result<(), BuildError> {
        let lengths = [
            ("states", self.states.len(), size.frames),
            ("pageblocks", self.pageblocks.len(), size.pageblocks),
            ("free words 0", self.free.0[0].len(), size.free[0]),
            ("free words 1", self.free.0[1].len(), size.free[1]),
            ("free words 2", self.free.0[2].len(), size.free[2]),
            ("zones", self.zones.len(), size.zones),
            ("caches", self.caches.len(), size.caches),
            ("outside", self.outside.len(), size.caches),
            ("nodes", self.nodes.len(), size.cpus),
        ];
        for (what, given, wanted) in lengths {
            if given as u64 != wanted {
                return Err(BuildError::WrongLength { what, given: given as u64, wanted });
            }
        }
        Ok(())
    }
}
