//! What zonal's real-thread bench and its simulator run alike: [presets](preset) by name, and the
//! mixes of a [kernel build](kbuild) and of builds that [fill memory](highalloc), files that are
//! [truncated](truncate).
//!
//! ```
//! assert_eq!(zonal_scenario::preset::Preset::ALL.len(), 13);
//! ```

pub mod highalloc;
pub mod kbuild;
pub mod preset;
pub mod truncate;
