//! `/proc/buddyinfo`: free blocks of each zone by order.

use super::{ZoneHead, zones};
use crate::alloc::allocator::Allocator;
use crate::platform::Platform;
use crate::policy::Policy;
use core::fmt;

/// Prints as `/proc/buddyinfo`: a line a zone, and in it the number of free blocks of order 0,
/// of order 1, and so on, over all migrate types. Isolated blocks count here, though they are
/// not in `nr_free_pages`; frames in per-CPU caches do not.
///
/// ```
/// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example/mod.rs")); }
/// use zonal::report::BuddyInfo;
/// # example::with_small::<zonal::preset::Linux416>(|allocator| {
/// assert_eq!(
///     BuddyInfo(allocator).to_string(),
///     "Node 0, zone      DMA      0      0      0      0      0      0      0      0      0      0      4 \n\
///      Node 0, zone    DMA32      0      0      0      0      0      0      0      0      0      0     12 \n",
/// );
/// # });
/// ```
pub struct BuddyInfo<'a, 'm, P: Platform, S: Policy>(pub &'a Allocator<'m, P, S>);

impl<P: Platform, S: Policy> fmt::Display for BuddyInfo<'_, '_, P, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for zone in zones(self.0) {
            write!(f, "{} ", ZoneHead(&zone))?;
            for by_type in &zone.blocks {
                let blocks: u64 = by_type.iter().copied().map(u64::from).sum();
                write!(f, "{blocks:>6} ")?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}
