//! Free blocks, counted.

use super::migrate_type::NR_MIGRATE_TYPES;
use super::units::NR_ORDERS;

/// Free blocks counted by order and migrate type.
pub type FreeCounts = [[u32; NR_MIGRATE_TYPES]; NR_ORDERS];
