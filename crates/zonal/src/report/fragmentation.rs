//! The unusable free space index: how much of the free memory is in blocks too small.

use super::{ZoneHead, zones};
use crate::alloc::allocator::Allocator;
use crate::platform::Platform;
use crate::policy::Policy;
pub use crate::types::counts::unusable_permille;
use core::fmt;

/// Prints as debugfs' `extfrag/unusable_index`: a line a zone, and in it
/// [`unusable_permille`] for each order, with three decimals.
///
/// ```
/// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example/mod.rs")); }
/// use zonal::report::UnusableFree;
/// # example::with_small::<zonal::preset::Linux416>(|allocator| {
/// let text = UnusableFree(allocator).to_string();
/// assert!(text.starts_with("Node 0, zone      DMA 0.000 0.000 "));
/// # });
/// ```
pub struct UnusableFree<'a, 'm, P: Platform, S: Policy>(pub &'a Allocator<'m, P, S>);

impl<P: Platform, S: Policy> fmt::Display for UnusableFree<'_, '_, P, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for zone in zones(self.0) {
            write!(f, "{} ", ZoneHead(&zone))?;
            for index in unusable_permille(&zone.blocks) {
                write!(f, "{}.{:03} ", index / 1000, index % 1000)?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}
