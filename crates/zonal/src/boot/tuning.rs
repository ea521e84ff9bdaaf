//! What the size of a zone's per-CPU pages follows from.

use core::num::NonZeroU32;

use crate::types::units::Order;

/// How large a zone's caches may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tuning {
    /// Frames the allocator manages in the zone.
    pub managed: u64,
    /// CPUs that have a cache of the zone.
    pub cpus: u32,
    /// CPUs of a node, where they are spread evenly over those with memory.
    pub cpus_of_node: u32,
    /// The zone's low watermark, as the plan has it.
    pub low: u64,
    /// The batch that the configuration asks for.
    pub pcp_batch: Option<u32>,
    /// Frames a per-CPU list may hold, if the configuration says.
    pub pcp_high: Option<u32>,
    /// Regions of a zone, if the configuration says.
    pub regions: Option<NonZeroU32>,
    /// The order of a pageblock: a larger block may have an isolated pageblock in it.
    pub pageblock_order: Order,
}
