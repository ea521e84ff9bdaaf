use super::Linux63;
use crate::policy::split::{ByCpu, BySize};

crate::preset! {
    /// Linux 6.3 with several zone instances for a type, as Huang's RFC of 2023 has them: by the
    /// size of its memory, each CPU preferring its own.
    ///
    /// By default only nodes with 508 GiB and more of a type are split.
    /// [`Config::split`](crate::boot::plan::Config::split) has the sizes, or asks for a number:
    ///
    /// ```
    /// use zonal::map::{MemoryMap, PhysAddr, Region};
    /// use zonal::plan::{Config, Plan, PlanError, SplitConfig};
    /// use zonal::policy::{Policy, Split};
    /// use zonal::preset::SplitZones;
    /// use zonal::{NodeId, ZoneType};
    ///
    /// // Two nodes of 64 GiB, the first with DMA and DMA32; n instances of Normal on each.
    /// let plan = |n| -> Result<Plan, PlanError> {
    ///     let map = MemoryMap::from_regions(&[
    ///         Region::usable(PhysAddr(0), 64 << 30),
    ///         Region::usable(PhysAddr(64 << 30), 64 << 30).on(NodeId(1)),
    ///     ])?;
    ///     let split = SplitConfig::default().with_instances(ZoneType::Normal, n);
    ///     let config = Config { split, ..Config::new(224) };
    ///     Plan::new(map.sanitise()?, config, <SplitZones as Policy>::Split::instances)
    /// };
    /// assert_eq!(plan(1)?.zones().len(), 4);
    /// assert_eq!(plan(4)?.zones().len(), 10);
    /// # Ok::<(), PlanError>(())
    /// ```
    pub SplitZones = "SplitZones", over Linux63 { Split = BySize }
}

crate::preset! {
    /// As [`SplitZones`], but the number of a node's CPUs decides.
    pub SplitZonesByCpu = "SplitZonesByCpu", over SplitZones { Split = ByCpu }
}
