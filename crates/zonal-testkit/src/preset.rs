//! Presets for small memories: stacks of two frames and more, and clusters of 8 frames, so that a few
//! thousand frames exercise edges and gathering, and shards, shared depot, stealing and coalescing.
//!
//! ```
//! use zonal::policy::{PcpPolicy, Policy};
//! use zonal_testkit::preset::TinyDepot;
//! fn cluster<S: Policy>() -> usize { S::Pcp::CLUSTER }
//! assert_eq!(cluster::<TinyDepot>(), 8);
//! ```

use zonal::pcp::{Depot, Stacks};
use zonal::policy::{dirty::Unlimited, split::ByCpu};
use zonal::preset::{Zonal, ZonalDepot};

zonal::preset! {
    /// [`Zonal`] with stacks of two frames and more, and no dirty limits.
    pub TinyZonal = "TinyZonal", over Zonal { Pcp = Stacks<2>, Dirty = Unlimited }
}

zonal::preset! {
    /// [`TinyZonal`] with zone types split by CPU.
    pub TinySplit = "TinySplit", over TinyZonal { Split = ByCpu }
}

zonal::preset! {
    /// [`ZonalDepot`] with clusters of 8 frames and no dirty limits.
    pub TinyDepot = "TinyDepot", over ZonalDepot { Pcp = Depot<8>, Dirty = Unlimited }
}
