//! How zone types are cut into instances, where the preset does that.

use crate::types::units::NodeId;
use crate::types::units::Order;
use crate::types::zone_type::{NR_ZONE_TYPES, ZoneType};
use core::fmt;

/// The most instances that a configuration may ask for of one type on one node.
pub const MAX_INSTANCES: u8 = 16;

/// A GiB in frames.
const GIB: u64 = 1 << 18;

/// Sizes for the presets that split zone types ([`policy::split`](crate::policy::split)); the
/// others do not look at it. What it asks for is a wish: a type gets fewer instances where it
/// has not one largest block of memory for each.
///
/// ```
/// use zonal::ZoneType;
/// use zonal::plan::{Config, SplitConfig};
/// // A small machine that shows it: an instance for each 16 MiB, at most 4.
/// let split = SplitConfig { instance_frames: 4096, align: 1024, ..SplitConfig::default() };
/// // Four instances of Normal on every node, however large.
/// let four = SplitConfig::default().with_instances(ZoneType::Normal, 4);
/// assert!(Config { split, ..Config::new(8) }.check().is_ok());
/// assert!(Config { split: four, ..Config::new(8) }.check().is_ok());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SplitConfig {
    /// Present frames for one instance, where types are split by size; at least 1. Default 254
    /// GiB: 256 GiB with room for DMA32 and small holes.
    pub instance_frames: u64,
    /// CPUs for one instance, where types are split by CPU; at least 1. Default 28: four
    /// instances for 112 CPUs a node.
    pub instance_cpus: u32,
    /// The most instances of a type that sizes or CPUs may lead to: 1 to [`MAX_INSTANCES`].
    /// Default 4.
    pub most: u8,
    /// How many zones more than one for each type a node may have because of sizes or CPUs, over all of
    /// its types; the lowest type is served first. [`instances`](Self::instances) that are asked for
    /// are not bounded by it, but count. Default 4.
    pub more_zones: u8,
    /// Boundaries between instances are at multiples of this many frames: a power of two, at
    /// least the largest block. Default 1 GiB. Sizes and CPUs never lead to instances smaller
    /// than that; for [`instances`](Self::instances) that are, boundaries are at multiples of
    /// the largest block.
    pub align: u64,
    /// How many instances (1 to [`MAX_INSTANCES`]) of a type every node has, by zone type,
    /// instead of what sizes or CPUs lead to. Default: none.
    pub instances: [Option<u8>; NR_ZONE_TYPES],
}

impl Default for SplitConfig {
    fn default() -> Self {
        Self {
            instance_frames: 254 * GIB,
            instance_cpus: 28,
            most: 4,
            more_zones: 4,
            align: GIB,
            instances: [None; NR_ZONE_TYPES],
        }
    }
}

impl SplitConfig {
    /// All zero, and refused.
    pub(super) const NOTHING: Self = Self {
        instance_frames: 0,
        instance_cpus: 0,
        most: 0,
        more_zones: 0,
        align: 0,
        instances: [None; NR_ZONE_TYPES],
    };

    /// With `instances` instances of `zone_type` on every node.
    #[must_use]
    pub const fn with_instances(mut self, zone_type: ZoneType, instances: u8) -> Self {
        self.instances[zone_type.index()] = Some(instances);
        self
    }

    /// Checks the sizes.
    ///
    /// # Errors
    /// The first thing that is wrong, in the order of the fields.
    pub const fn check(&self) -> Result<(), SplitError> {
        if self.instance_frames == 0 {
            return Err(SplitError::InstanceFrames);
        }
        if self.instance_cpus == 0 {
            return Err(SplitError::InstanceCpus);
        }
        if self.most == 0 || self.most > MAX_INSTANCES {
            return Err(SplitError::Most { most: self.most });
        }
        if !self.align.is_power_of_two() || self.align < Order::MAX.frames() {
            return Err(SplitError::Align { frames: self.align });
        }
        let mut at = 0;
        while at < NR_ZONE_TYPES {
            if let Some(instances) = self.instances[at]
                && (instances == 0 || instances > MAX_INSTANCES)
            {
                return Err(SplitError::Instances { zone_type: ZoneType::ALL[at], instances });
            }
            at += 1;
        }
        Ok(())
    }
}

/// What is wrong with a [`SplitConfig`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum SplitError {
    /// An instance would be for no frames.
    InstanceFrames,
    /// An instance would be for no CPUs.
    InstanceCpus,
    /// The maximum is 0 or above [`MAX_INSTANCES`].
    Most {
        /// The maximum given.
        most: u8,
    },
    /// The alignment is not a power of two, or less than the largest block.
    Align {
        /// Frames given.
        frames: u64,
    },
    /// 0 instances of a type are asked for, or more than [`MAX_INSTANCES`].
    Instances {
        /// The type.
        zone_type: ZoneType,
        /// Instances asked for.
        instances: u8,
    },
}

impl fmt::Display for SplitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::InstanceFrames => {
                f.write_str("a zone instance is for at least 1 frame of memory, not 0")
            }
            Self::InstanceCpus => f.write_str("a zone instance is for at least 1 CPU, not 0"),
            Self::Most { most } => {
                write!(f, "a zone type has 1 to {MAX_INSTANCES} instances at most, not {most}")
            }
            Self::Align { frames } => write!(
                f,
                "zone instances are aligned to a power of two of frames, at least {} (the \
                 largest block), not {frames}",
                Order::MAX.frames()
            ),
            Self::Instances { zone_type, instances } => write!(
                f,
                "1 to {MAX_INSTANCES} instances of {} can be asked for, not {instances}",
                zone_type.name()
            ),
        }
    }
}

impl core::error::Error for SplitError {}

/// What a node has of a zone type, before it is cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OnNode {
    /// The node.
    pub node: NodeId,
    /// How many nodes have memory, now or later.
    pub nodes: u32,
    /// Frames of the type that are memory, with what may come later.
    pub present: u64,
    /// How many zones the node's lower types have beyond one each.
    pub more_zones: u32,
}
