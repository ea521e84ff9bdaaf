//! Presets: the combinations of policies that have a name.
//!
//! ```
//! use zonal::policy::Policy;
//! use zonal::preset::Zonal;
//! fn name<S: Policy>() -> &'static str { S::NAME }
//! assert_eq!(name::<Zonal>(), "Zonal");
//! ```
//!
//! Each shows what it changes over another; [`preset!`](crate::preset!) declares one of your own.
//! May import everything but `report`. There is no state here, and nothing to guard.

mod cluster;
mod cluster_free;
mod compose;
mod fair_zone;
mod fair_zone_posted;
mod less_dirty;
mod linux316;
mod linux413;
mod linux416;
mod linux63;
mod skip_merge;
mod split_zones;
mod traced;
mod trusting;
mod zonal;

pub use cluster::Cluster;
pub use cluster_free::ClusterFree;
pub use fair_zone::FairZone;
pub use fair_zone_posted::FairZonePosted;
pub use less_dirty::LessDirty;
pub use linux63::Linux63;
pub use linux316::Linux316;
pub use linux413::Linux413;
pub use linux416::Linux416;
pub use skip_merge::SkipMerge;
pub use split_zones::{SplitZones, SplitZonesByCpu};
pub use traced::Traced;
pub use trusting::Trusting;
pub use zonal::Zonal;
