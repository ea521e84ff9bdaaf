//! How a list of single frames is freed.
//!
//! ```
//! use zonal::policy::{Policy, bulk_free::Runs};
//! fn in_runs<S: Policy<BulkFree = Runs>>() {}
//! in_runs::<zonal::preset::Zonal>();
//! ```

/// A policy for lists of frames.
pub trait BulkFree: Send + Sync + 'static {}

/// Frames of one zone and migrate type that follow each other go back in one entry of the cache.
#[derive(Clone, Copy, Debug)]
pub struct Runs;

impl BulkFree for Runs {}
