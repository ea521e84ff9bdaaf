//! How many instances a zone type of a node is cut into.
//!
//! ```
//! use zonal::policy::split::{Split, Whole};
//! assert_eq!(Whole::instances(zonal::NodeId(0), zonal::ZoneType::Normal, 1 << 30), 1);
//! ```

use crate::units::NodeId;
use crate::zone_type::ZoneType;

/// A split policy.
pub trait Split: Send + Sync + 'static {
    /// Instances for a zone type of a node with `present` frames: at least 1.
    fn instances(node: NodeId, zone_type: ZoneType, present: u64) -> u8;
}

/// One instance a type.
#[derive(Clone, Copy, Debug)]
pub struct Whole;

impl Split for Whole {
    fn instances(_: NodeId, _: ZoneType, _: u64) -> u8 {
        1
    }
}
