//! Presets for small memories: clusters of 8 frames, so that a few thousand frames exercise
//! shards, shared depot, stealing and coalescing.
//!
//! ```
//! use zonal::policy::{PcpPolicy, Policy};
//! use zonal_testkit::preset::TinyZonal;
//! fn cluster<S: Policy>() -> usize { S::Pcp::CLUSTER }
//! assert_eq!(cluster::<TinyZonal>(), 8);
//! ```

use zonal::pcp::{Depot, Stacks};
use zonal::policy::{dirty::Unlimited, split::ByCpu};
use zonal::preset::{Zonal, ZonalMap};

zonal::preset! {
    /// [`Zonal`] with clusters of 8 frames and no dirty limits.
    pub TinyZonal = "TinyZonal", over Zonal { Pcp = Depot<8>, Dirty = Unlimited }
}

zonal::preset! {
    /// [`ZonalMap`] with stacks of two frames and more, and no dirty limits.
    pub TinyMap = "TinyMap", over ZonalMap { Pcp = Stacks<2>, Dirty = Unlimited }
}

zonal::preset! {
    /// [`TinyMap`] with zone types split by CPU.
    pub TinyMapSplit = "TinyMapSplit", over TinyMap { Split = ByCpu }
}

zonal::preset! {
    /// [`TinyZonal`] with zone types split by CPU.
    pub TinySplit = "TinySplit", over TinyZonal { Split = ByCpu }
}
