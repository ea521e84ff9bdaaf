//! Presets for small memories: clusters of 8 frames, so that a few thousand frames exercise
//! shards, shared depot, stealing and coalescing.
//!
//! ```
//! use zonal::policy::{PcpPolicy, Policy};
//! use zonal_testkit::preset::TinyZonal;
//! assert_eq!(<<TinyZonal as Policy>::Pcp as PcpPolicy<_>>::CLUSTER, 8);
//! ```

use zonal::pcp::Depot;
use zonal::policy::split::{ByCpu, Whole};
use zonal::policy::{Policy, merge::Lazy, trace::Off, walk::FirstFit};
use zonal::zone::lists::BuddyLists;

/// [`zonal::preset::Zonal`] with clusters of 8 frames.
#[derive(Clone, Copy, Debug)]
pub struct TinyZonal;

impl Policy for TinyZonal {
    const NAME: &'static str = "TinyZonal";
    type Free = BuddyLists<Lazy>;
    type Pcp = Depot<8>;
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
    type Free = BuddyLists<Lazy>;
    type Pcp = Depot<8>;
    type Compact = zonal::policy::compact::Cheapest;
    type Walk = FirstFit;
    type Dirty = zonal::policy::dirty::Unlimited;
    type BulkFree = zonal::policy::bulk_free::Runs;
    type Split = ByCpu;
    type Trace = Off;
}
