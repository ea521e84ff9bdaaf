//! All tests but the model checkers' in one program: the allocator is compiled once for each host
//! and preset, not again in every file; and for fewer of them without the feature `matrix`.
#![cfg(not(loom))]

/// As [`with_presets_of_one_zone`], but of those that differ in their walk, their dirty limits and how often they mask
/// interrupts alone only one: `suite` has them all, and so have the tests of these policies.
macro_rules! with_most_presets_of_one_zone {
    ($each:ident $($more:tt)*) => {
        $each! {
            linux416: zonal::preset::Linux416;
            linux63: zonal::preset::Linux63;
            skip_merge: zonal::preset::SkipMerge;
            cluster: zonal::preset::Cluster;
            cluster_free: zonal::preset::ClusterFree;
            // A module `zonal` would hide the crate.
            default_preset: zonal::preset::Zonal;
            tiny_zonal: zonal_testkit::preset::TinyZonal;
            $($more)*
        }
    };
}

/// `each!` with the presets that never split a zone type: a name for each, and its type.
#[cfg(feature = "matrix")]
macro_rules! with_presets_of_one_zone {
    ($each:ident $($more:tt)*) => {
        with_most_presets_of_one_zone! {
            $each
            linux316: zonal::preset::Linux316;
            fair_zone: zonal::preset::FairZone;
            fair_zone_posted: zonal::preset::FairZonePosted;
            less_dirty: zonal::preset::LessDirty;
            linux413: zonal::preset::Linux413;
            trusting: zonal::preset::Trusting;
            $($more)*
        }
    };
}

#[cfg(not(feature = "matrix"))]
macro_rules! with_presets_of_one_zone {
    ($each:ident $($more:tt)*) => {
        with_most_presets_of_one_zone! { $each $($more)* }
    };
}

/// `each!` with all presets.
#[cfg(feature = "matrix")]
macro_rules! with_presets {
    ($each:ident) => {
        with_presets_of_one_zone! {
            $each
            split_zones: zonal::preset::SplitZones;
            split_zones_by_cpu: zonal::preset::SplitZonesByCpu;
            tiny_split: zonal_testkit::preset::TinySplit;
        }
    };
}

#[cfg(not(feature = "matrix"))]
macro_rules! with_presets {
    ($each:ident) => {
        with_presets_of_one_zone! {
            $each
            split_zones: zonal::preset::SplitZones;
            tiny_split: zonal_testkit::preset::TinySplit;
        }
    };
}

mod absent;
mod boot;
mod bulk_free;
mod canaries;
mod clusters;
mod compaction;
mod compaction_bounds;
mod compaction_hints;
mod compaction_policies;
mod compaction_together;
mod contiguous;
mod cut;
mod dirty;
mod errors;
mod fair;
mod fits;
mod hiding;
mod holes;
mod isolated_pageblocks;
mod ledger;
mod linux63;
mod merged_types;
mod nodes;
#[path = "online/main.rs"]
mod online;
mod opened;
mod pages;
mod panics;
mod parts_of_memory;
mod passage;
mod pressure;
mod reach;
mod regions;
mod regressions;
mod searches;
mod small;
mod split;
#[macro_use]
mod stress;
#[macro_use]
mod suite;
// Behind those whose macros it uses.
#[cfg(feature = "matrix")]
mod matrix;
mod trace;
