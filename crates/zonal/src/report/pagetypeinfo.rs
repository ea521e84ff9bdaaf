//! `/proc/pagetypeinfo`: free blocks by migrate type and order, pageblocks by migrate type.

use super::{ZoneHead, zones};
use crate::alloc::allocator::Allocator;
use crate::platform::Platform;
use crate::policy::Policy;
use crate::types::migrate_type::MigrateType;
use crate::types::units::Order;
use core::fmt;

/// Prints as `/proc/pagetypeinfo`: the size of a pageblock; the free blocks of each zone by
/// migrate type and order; the pageblocks of each zone by migrate type. Counts are exact, where
/// Linux stops counting a list at 100000. O(pageblocks × zones).
///
/// ```
/// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example/mod.rs")); }
/// use zonal::report::PageTypeInfo;
/// # example::with_small::<zonal::preset::Linux416>(|allocator| {
/// let text = PageTypeInfo(allocator).to_string();
/// assert!(text.starts_with("Page block order: 9\nPages per block:  512\n\n"));
/// assert!(text.contains("\nNode    0, zone    DMA32, type      Movable      0      0 "));
/// # });
/// ```
pub struct PageTypeInfo<'a, 'm, P: Platform, S: Policy>(pub &'a Allocator<'m, P, S>);

impl<P: Platform, S: Policy> fmt::Display for PageTypeInfo<'_, '_, P, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let order = self.0.plan().config().pageblock_order;
        writeln!(f, "Page block order: {order}")?;
        writeln!(f, "Pages per block:  {}\n", order.frames())?;
        self.free_blocks(f)?;
        self.pageblocks(f)
    }
}

impl<P: Platform, S: Policy> PageTypeInfo<'_, '_, P, S> {
    fn free_blocks(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<43} ", "Free pages count per migrate type at order")?;
        for order in Order::all() {
            write!(f, "{:>6} ", order.get())?;
        }
        writeln!(f)?;
        for zone in zones(self.0) {
            for migrate in MigrateType::ALL {
                // Here, and only here, Linux gives the node four columns.
                let (node, name) = (zone.node.0, super::ZoneName::new(&zone));
                write!(f, "Node {node:>4}, zone {name:>8}, type {:>12} ", migrate.name())?;
                for by_type in &zone.blocks {
                    write!(f, "{:>6} ", by_type[migrate.index()])?;
                }
                writeln!(f)?;
            }
        }
        Ok(())
    }

    fn pageblocks(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\n{:<23}", "Number of blocks type")?;
        for migrate in MigrateType::ALL {
            write!(f, "{:>12} ", migrate.name())?;
        }
        writeln!(f)?;
        for zone in zones(self.0) {
            write!(f, "{} ", ZoneHead(&zone))?;
            for pageblocks in self.0.pageblock_counts(zone.zone) {
                write!(f, "{pageblocks:>12} ")?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}
