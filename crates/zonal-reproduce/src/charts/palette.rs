//! The colours. A kernel has the same one everywhere, and so has what a CPU does.
//!
//! The report knows these by their values and shows others in the dark.
//!
//! ```
//! use zonal_reproduce::charts::palette;
//!
//! assert_eq!(palette::of_kernel("base"), palette::BASE);
//! ```

use plotters::style::RGBColor;

/// What charts are drawn on.
pub const PAPER: RGBColor = RGBColor(255, 255, 255);
/// Text.
pub const INK: RGBColor = RGBColor(28, 33, 40);
/// Text that stands back.
pub const MUTED: RGBColor = RGBColor(99, 108, 118);
/// Grid lines.
pub const GRID: RGBColor = RGBColor(231, 234, 238);
/// Axes, and lines to labels.
pub const AXIS: RGBColor = RGBColor(176, 183, 192);

/// The base kernel.
pub const BASE: RGBColor = RGBColor(92, 102, 115);
/// Skipped merging.
pub const SKIP_MERGE: RGBColor = RGBColor(46, 139, 172);
/// Clusters.
pub const CLUSTER: RGBColor = RGBColor(58, 104, 190);
/// Clusters in batches: all of the 2018 series.
pub const CLUSTER_FREE: RGBColor = RGBColor(35, 62, 145);
/// A huge batch.
pub const HUGE: RGBColor = RGBColor(196, 138, 22);
/// Four zone instances.
pub const SPLIT: RGBColor = RGBColor(137, 82, 176);
/// zonal's own.
pub const ZONAL: RGBColor = RGBColor(205, 52, 82);

/// Waiting for the zone lock to allocate.
pub const ZONE_ALLOC: RGBColor = RGBColor(189, 62, 38);
/// Waiting for the zone lock to free.
pub const ZONE_FREE: RGBColor = RGBColor(232, 140, 77);
/// Waiting for the LRU lock.
pub const LRU: RGBColor = RGBColor(124, 98, 184);
/// Waiting for other locks.
pub const OTHER: RGBColor = RGBColor(160, 169, 180);
/// Work.
pub const WORK: RGBColor = RGBColor(209, 230, 220);

/// The colour of a kernel of the sources.
#[must_use]
pub fn of_kernel(kernel: &str) -> RGBColor {
    match kernel {
        "skip_merge" => SKIP_MERGE,
        "cluster" | "fairzone" | "one_irq" => CLUSTER,
        "cluster_free" | "zone_lock_series" => CLUSTER_FREE,
        "huge_pcp_batch" => HUGE,
        "four_zone_instances" => SPLIT,
        "Zonal" => ZONAL,
        _ => BASE,
    }
}

/// A kernel of the sources in words.
#[must_use]
pub fn kernel_text(kernel: &str) -> String {
    match kernel {
        "zone_lock_series" => "2018 series".into(),
        "huge_pcp_batch" => "huge pcp batch".into(),
        other => other.replace('_', " "),
    }
}
