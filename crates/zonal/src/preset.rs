//! Presets: the combinations of policies that have a name.
//!
//! ```
//! use zonal::policy::Policy;
//! use zonal::preset::Zonal;
//! fn name<S: Policy>() -> &'static str { S::NAME }
//! assert_eq!(name::<Zonal>(), "Zonal");
//! ```

mod linux416;
mod zonal;

pub use linux416::Linux416;
pub use zonal::Zonal;
