//! Threads at random: no frame is handed out twice, none is lost, all memory merges back.

use zonal::Order;
use zonal::preset::{
    Cluster, ClusterFree, FairZone, LessDirty, Linux316, Linux413, Linux416, SkipMerge, SplitZones,
    SplitZonesByCpu, Zonal,
};
use zonal_host::Threads;
use zonal_testkit::preset::{TinySplit, TinyZonal};
use zonal_testkit::probe::{Mutexes, Probe};
use zonal_testkit::shape::{Shape, order};
use zonal_testkit::suite::{Work, effort, threads_at_random};

const WORK: Work = Work {
    threads: 3,
    operations: 10_000,
    quota: 600,
    most: Order::MAX,
    owned: false,
    never_fails: false,
};

macro_rules! on_presets {
    ($($module:ident: $host:ty, $preset:ty;)*) => {$(
        mod $module {
            use super::*;

            /// Pageblocks of the largest order: at the end memory is as it was.
            #[test]
            fn memory_merges_back() {
                for seed in 0..u64::from(effort(8)) {
                    threads_at_random::<$host, $preset>(Shape::Whole, seed, WORK);
                }
            }

            #[test]
            fn with_owners() {
                for seed in 0..u64::from(effort(8)) {
                    let work = Work { owned: true, ..WORK };
                    threads_at_random::<$host, $preset>(Shape::Flat, seed, work);
                }
            }

            /// All shapes, more threads than CPUs.
            #[test]
            fn all_shapes() {
                for (seed, shape) in Shape::ALL.into_iter().enumerate() {
                    let work = Work { threads: 5, most: order(5), operations: 2000, ..WORK };
                    threads_at_random::<$host, $preset>(shape, seed as u64, work);
                }
            }

            /// Quotas that together leave 38 of 2048 frames: a single frame is always there,
            /// however it moves while it is looked for (I-6).
            #[test]
            fn single_frames_never_fail() {
                for seed in 0..u64::from(effort(8)) {
                    let most = Order::ZERO;
                    let work = Work { most, quota: 670, never_fails: true, ..WORK };
                    threads_at_random::<$host, $preset>(Shape::Flat, seed, work);
                }
            }
        }
    )*};
}

on_presets! {
    mutexes_linux413: Probe<Mutexes>, Linux413;
    mutexes_linux416: Probe<Mutexes>, Linux416;
    mutexes_skip_merge: Probe<Mutexes>, SkipMerge;
    mutexes_cluster: Probe<Mutexes>, Cluster;
    mutexes_cluster_free: Probe<Mutexes>, ClusterFree;
    mutexes_zonal: Probe<Mutexes>, Zonal;
    mutexes_tiny_zonal: Probe<Mutexes>, TinyZonal;
    mutexes_split_zones: Probe<Mutexes>, SplitZones;
    mutexes_split_by_cpu: Probe<Mutexes>, SplitZonesByCpu;
    mutexes_linux316: Probe<Mutexes>, Linux316;
    mutexes_fair_zone: Probe<Mutexes>, FairZone;
    mutexes_less_dirty: Probe<Mutexes>, LessDirty;
    mutexes_tiny_split: Probe<Mutexes>, TinySplit;
    threads_linux416: Threads, Linux416;
    threads_skip_merge: Threads, SkipMerge;
    threads_cluster: Threads, Cluster;
    threads_cluster_free: Threads, ClusterFree;
    threads_zonal: Threads, Zonal;
    threads_tiny_zonal: Threads, TinyZonal;
    threads_split_zones: Threads, SplitZones;
    threads_split_by_cpu: Threads, SplitZonesByCpu;
    threads_linux413: Threads, Linux413;
    threads_linux316: Threads, Linux316;
    threads_fair_zone: Threads, FairZone;
    threads_less_dirty: Threads, LessDirty;
    threads_tiny_split: Threads, TinySplit;
}
