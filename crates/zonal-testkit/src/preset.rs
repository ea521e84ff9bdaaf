//! Presets for small memories: stacks of two frames and more, so that a few thousand frames exercise
//! edges and gathering.
//!
//! ```
//! use zonal::policy::Policy;
//! use zonal_testkit::preset::TinyZonal;
//! assert_eq!(TinyZonal::NAME, "TinyZonal");
//! ```

use zonal::pcp::Stacks;
use zonal::policy::{dirty::Unlimited, split::ByCpu};
use zonal::preset::Zonal;

zonal::preset! {
    /// [`Zonal`] with stacks of two frames and more, and no dirty limits.
    pub TinyZonal = "TinyZonal", over Zonal { Pcp = Stacks<2>, Dirty = Unlimited }
}

zonal::preset! {
    /// [`TinyZonal`] with zone types split by CPU.
    pub TinySplit = "TinySplit", over TinyZonal { Split = ByCpu }
}
