//! Presets for small memories: clusters of 8 frames, so that a few thousand frames exercise
//! shards, shared depot, stealing and coalescing.
//!
//! ```
//! use zonal::keeper::Keeper;
//! use zonal::policy::Policy;
//! use zonal_testkit::preset::TinyZonal;
//! assert_eq!(<<TinyZonal as Policy>::Keeper as Keeper>::CLUSTER, 8);
//! ```

use zonal::keeper::Depot;
use zonal::policy::split::{ByCpu, Whole};
use zonal::policy::{Policy, cluster, merge::Lazy, trace::Off, walk::FirstFit};

/// [`zonal::preset::Zonal`] with clusters of 8 frames.
#[derive(Clone, Copy, Debug)]
pub struct TinyZonal;

impl Policy for TinyZonal {
    const NAME: &'static str = "TinyZonal";
    type Keeper = Depot<8>;
    type Merge = Lazy;
    type Clusters = cluster::None;
    type Compact = zonal::policy::compact::Cheapest;
    type Walk = FirstFit;
    type Dirty = zonal::policy::dirty::Unlimited;
    type BulkFree = zonal::policy::bulk_free::Runs;
    type Split = Whole;
    type Trace = Off;
}

/// [`TinyZonal`] with zone types split by CPU.
#[derive(Clone, Copy, Debug)]
pub struct TinySplit;

impl Policy for TinySplit {
    const NAME: &'static str = "TinySplit";
    type Keeper = Depot<8>;
    type Merge = Lazy;
    type Clusters = cluster::None;
    type Compact = zonal::policy::compact::Cheapest;
    type Walk = FirstFit;
    type Dirty = zonal::policy::dirty::Unlimited;
    type BulkFree = zonal::policy::bulk_free::Runs;
    type Split = ByCpu;
    type Trace = Off;
}
