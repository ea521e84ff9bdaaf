//! The unusable free space index: how much of the free memory is in blocks too small.

use super::{ZoneHead, zones};
use crate::alloc::allocator::Allocator;
use crate::platform::Platform;
use crate::policy::Policy;
use crate::types::counts::FreeCounts;
use crate::types::migrate_type::MigrateType;
use crate::types::units::{NR_ORDERS, Order};
use core::fmt;

/// For each order, the part of the free frames that is in blocks too small for it, in
/// thousandths, rounded down: 0 when every free frame is in a block of that order or larger,
/// 1000 when none is, and 1000 for every order when nothing is free.
///
/// Isolated blocks are left out: nobody can have them. Frames in per-CPU caches and frames
/// whose merging is deferred are not free in this sense; after
/// [`drain_all`](Allocator::drain_all) there are none.
///
/// Source: M. Gorman and A. Whitcroft, "The what, the why and the where to of
/// anti-fragmentation", Ottawa Linux Symposium 2006.
///
/// ```
/// use zonal::{FreeCounts, MigrateType, Order, report::unusable_permille};
/// let mut blocks = FreeCounts::default();
/// blocks[0][MigrateType::Movable.index()] = 24;
/// blocks[3][MigrateType::Unmovable.index()] = 1;
/// let index = unusable_permille(&blocks);
/// assert_eq!(index[..5], [0, 750, 750, 750, 1000]);
/// ```
#[must_use]
pub fn unusable_permille(blocks: &FreeCounts) -> [u32; NR_ORDERS] {
    let mut frames = [0; NR_ORDERS];
    for (order, by_type) in Order::all().zip(blocks) {
        let types = by_type.iter().zip(MigrateType::ALL);
        let usable = types.filter(|(_, migrate)| *migrate != MigrateType::Isolate);
        let count: u64 = usable.map(|(&blocks, _)| u64::from(blocks)).sum();
        frames[order.index()] = count * order.frames();
    }
    let free: u64 = frames.iter().sum();
    let mut too_small = 0;
    frames.map(|of_order| {
        let index: u64 = (too_small * 1000_u64).checked_div(free).unwrap_or(1000);
        too_small += of_order;
        index as u32
    })
}

/// Prints as debugfs' `extfrag/unusable_index`: a line a zone, and in it
/// [`unusable_permille`] for each order, with three decimals.
///
/// ```
/// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/report/example.rs")); }
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
