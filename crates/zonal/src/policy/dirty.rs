//! Which zones a page that will be dirtied may come from.
//!
//! ```
//! use zonal::policy::{Policy, dirty::Unlimited};
//! fn unlimited<S: Policy<Dirty = Unlimited>>() {}
//! unlimited::<zonal::preset::Linux416>();
//! ```

/// A dirty policy.
pub trait Dirty: Send + Sync + 'static {}

/// No zone has a limit.
#[derive(Clone, Copy, Debug)]
pub struct Unlimited;

impl Dirty for Unlimited {}
