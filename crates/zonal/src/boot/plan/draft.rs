//! Planning where the plan is to stay.

use super::{Config, OnNode, Plan, PlanError, build};
use crate::boot::map::{MapError, MemoryMap, PfnRange, SaneMap};
use crate::types::units::{NodeId, Pfn};
use crate::types::zone_type::ZoneType;

/// Room for a map and its plan, for hosts with little stack: 21 KiB, all zero at first, so a static
/// takes no space in a kernel's image. Nothing larger than a zone is moved; what
/// [`MemoryMap::sanitise`], [`SaneMap::carve`] and [`Plan::new`] do by value is done in place, in less than
/// 4 KiB of stack.
///
/// The steps, in their order: regions, [`sanitise`](Self::sanitise), [`plan`](Self::plan),
/// [`carve`](Self::carve). After an error, begin with the regions again.
///
/// ```
/// use zonal::map::{PhysAddr, Region};
/// use zonal::plan::{Config, Draft};
/// use zonal::policy::{Policy, Split};
/// use zonal::{TableSize, preset::Zonal};
///
/// let mut draft = Draft::new();
/// draft.regions().add(Region::usable(PhysAddr(0), 64 << 20))?;
/// draft.sanitise()?;
/// let plan = draft.plan(&Config::new(1), <Zonal as Policy>::Split::instances)?;
/// let bytes = TableSize::of::<Zonal>(plan).table_bytes();
/// let tables = draft.carve(bytes, None, None)?;
/// assert_eq!(draft.planned().managed(), 16384 - tables.frames());
/// # Ok::<(), zonal::plan::PlanError>(())
/// ```
#[derive(Debug)]
pub struct Draft {
    regions: MemoryMap,
    plan: Plan,
}

impl Default for Draft {
    fn default() -> Self {
        Self::new()
    }
}

impl Draft {
    /// No regions and no plan.
    #[must_use]
    pub const fn new() -> Self {
        Self { regions: MemoryMap::new(), plan: Plan::EMPTY }
    }

    /// The regions, to be added to.
    pub const fn regions(&mut self) -> &mut MemoryMap {
        &mut self.regions
    }

    /// As [`MemoryMap::sanitise`]. The regions are used up. Costs regions².
    ///
    /// # Errors
    /// As [`MemoryMap::sanitise`].
    pub fn sanitise(&mut self) -> Result<&SaneMap, MapError> {
        self.regions.sanitise_into(&mut self.plan.map)?;
        Ok(&self.plan.map)
    }

    /// Has `map`, as if it had been [sanitised](Self::sanitise) here.
    pub const fn set_map(&mut self, map: SaneMap) {
        self.plan.map = map;
    }

    /// Plans for the sanitised map, as [`Plan::new`].
    ///
    /// # Errors
    /// As [`Plan::new`].
    pub fn plan(
        &mut self,
        config: &Config,
        split: impl Fn(&Config, ZoneType, &OnNode) -> u8,
    ) -> Result<&Plan, PlanError> {
        build::build(&mut self.plan, config, split)?;
        Ok(&self.plan)
    }

    /// Takes `bytes`, rounded up to whole frames, out of the memory that was planned for: as
    /// [`SaneMap::carve`], but from Movable zones only if no other has room, so that these keep the frames that
    /// were asked for. The zones stay where they are and manage less; watermarks and reserves follow.
    /// O(ranges + zones).
    ///
    /// # Errors
    /// [`PlanError::Map`] as [`SaneMap::carve`]; and as [`Plan::new`] if what is left is not enough.
    pub fn carve(
        &mut self,
        bytes: u64,
        node: Option<NodeId>,
        below: Option<Pfn>,
    ) -> Result<PfnRange, PlanError> {
        build::carve(&mut self.plan, bytes, node, below)
    }

    /// The plan: of nothing before [`plan`](Self::plan).
    #[must_use]
    pub const fn planned(&self) -> &Plan {
        &self.plan
    }
}
