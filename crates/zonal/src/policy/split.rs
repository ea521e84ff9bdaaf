//! How many instances a zone type of a node is cut into, and which of them a CPU prefers.
//!
//! - Source: Huang 2023, RFC patches 5 and 6 ([`BySize`]; [`ByCpu`] is the alternative that
//!   patch 5 names).
//! - Mechanism: each instance has a zone lock, lists, watermarks and per-CPU caches of its own, so
//!   CPUs that would wait for one lock are spread over several. The plan cuts a type's span in equal
//!   parts whose ends are rounded up to multiples of [`SplitConfig::align`], and a node has at most
//!   [`SplitConfig::more_zones`] more zones than types, as in the source. A CPU's requests
//!   begin at its own instance and go on to the others of the type, in a ring, before they turn
//!   to another type or node.
//! - State: for each node and lane the zone that a request tries first, written once. A *lane* is
//!   a class of CPUs by number: CPUs in a row, one from each node, share it, so that the CPUs of a
//!   node spread evenly whether the nodes' CPUs are numbered in turns or one node after the other.
//! - Conflicts: none; blocks never cross an instance, whose boundaries are multiples of the
//!   largest block. Smaller zones have smaller batches where memory is scarce.
//! - Counters: those of every zone; reports name each instance.
//! - Tests: `plan/split_tests.rs`, `tests/split.rs`, the suites.
//!
//! ```
//! use zonal::plan::Config;
//! use zonal::policy::split::{BySize, OnNode, Split, Whole};
//! use zonal::{NodeId, ZoneType};
//! let gib = |n: u64| n << 18;
//! let normal = |present| OnNode { node: NodeId(0), nodes: 1, present, more_zones: 0 };
//! let config = Config::new(224);
//! assert_eq!(BySize::instances(&config, ZoneType::Normal, &normal(gib(507))), 1);
//! assert_eq!(BySize::instances(&config, ZoneType::Normal, &normal(gib(508))), 2);
//! assert_eq!(BySize::instances(&config, ZoneType::Normal, &normal(gib(8192))), 4);
//! let movable = OnNode { more_zones: 3, ..normal(gib(8192)) };
//! assert_eq!(BySize::instances(&config, ZoneType::Movable, &movable), 2, "one more is left");
//! assert_eq!(Whole::instances(&config, ZoneType::Normal, &normal(gib(8192))), 1);
//! ```

pub use crate::boot::plan::OnNode;
use crate::boot::plan::{Config, SplitConfig};
use crate::types::zone_type::ZoneType;

/// Lanes of the policies that split. More than instances, so that numbers of instances that do
/// not divide it get nearly the same share of the CPUs each.
const LANES: usize = 32;

/// A split policy.
pub trait Split: Send + Sync + 'static {
    /// How many lanes there are: a power of two. With 1, all CPUs prefer the same instances.
    const LANES: usize;

    /// Instances for a zone type of a node; 0 counts as 1.
    fn instances(config: &Config, zone_type: ZoneType, there: &OnNode) -> u8;
}

/// One instance a type, whatever the configuration says.
#[derive(Clone, Copy, Debug)]
pub struct Whole;

impl Split for Whole {
    const LANES: usize = 1;

    fn instances(_: &Config, _: ZoneType, _: &OnNode) -> u8 {
        1
    }
}

/// One instance for every [`SplitConfig::instance_frames`] of present memory, from twice that
/// up, unless [`SplitConfig::instances`] asks for a number.
#[derive(Clone, Copy, Debug)]
pub struct BySize;

impl Split for BySize {
    const LANES: usize = LANES;

    fn instances(config: &Config, zone_type: ZoneType, there: &OnNode) -> u8 {
        let per_instance = config.split.instance_frames.max(1);
        capped(&config.split, zone_type, there, there.present / per_instance)
    }
}

/// One instance for every [`SplitConfig::instance_cpus`] CPUs of a node, unless
/// [`SplitConfig::instances`] asks for a number. The CPUs count as evenly spread over the nodes
/// that have memory: where they are, only the host knows.
#[derive(Clone, Copy, Debug)]
pub struct ByCpu;

impl Split for ByCpu {
    const LANES: usize = LANES;

    fn instances(config: &Config, zone_type: ZoneType, there: &OnNode) -> u8 {
        let cpus = config.cpus.div_ceil(there.nodes.max(1));
        let wanted = cpus.div_ceil(config.split.instance_cpus.max(1));
        capped(&config.split, zone_type, there, u64::from(wanted))
    }
}

/// What the configuration asks for, else `wanted` if there is enough memory for that many at its
/// alignment, within its maximum and what the node may still have.
fn capped(split: &SplitConfig, zone_type: ZoneType, there: &OnNode, wanted: u64) -> u8 {
    if let Some(instances) = split.instances[zone_type.index()] {
        return instances;
    }
    let aligned = there.present / split.align.max(1);
    let left = 1 + u64::from(split.more_zones).saturating_sub(u64::from(there.more_zones));
    // At most 255.
    wanted.min(aligned).min(left).clamp(1, u64::from(split.most.max(1))) as u8
}
