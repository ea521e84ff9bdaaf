//! The suites over the rest of hosts and presets: `cargo xtask matrix`. Each pair compiles the
//! allocator once more, all together for minutes.

use crate::stress::WORK;
use zonal::Order;
use zonal::platform::single::SingleThread;
use zonal::preset::{
    Cluster, ClusterFree, FairZone, LessDirty, Linux63, Linux316, Linux413, Linux416, SkipMerge,
    SplitZones, SplitZonesByCpu, Trusting, Zonal,
};
use zonal_host::Threads;
use zonal_testkit::preset::{TinySplit, TinyZonal};
use zonal_testkit::probe::{Cells, Mutexes, Pieces, Probe};
use zonal_testkit::shape::{Shape, order};
use zonal_testkit::suite::{Work, effort, random_commands, threads_at_random};

mod commands {
    use super::*;

    suite! {
        single_thread_skip_merge: SingleThread, SkipMerge, 60;
        single_thread_cluster: SingleThread, Cluster, 60;
        single_thread_cluster_free: SingleThread, ClusterFree, 60;
        single_thread_tiny_zonal: SingleThread, TinyZonal, 60;
        single_thread_split_zones: SingleThread, SplitZones, 60;
        single_thread_linux316: SingleThread, Linux316, 60;
        single_thread_fair_zone: SingleThread, FairZone, 60;
        single_thread_less_dirty: SingleThread, LessDirty, 60;
        mutexes_cluster_free: Probe<Mutexes>, ClusterFree, 60;
        mutexes_zonal: Probe<Mutexes>, Zonal, 60;
        mutexes_trusting: Probe<Mutexes>, Trusting, 60;
        threads_trusting: Threads, Trusting, 60;
        pieces_linux416: Probe<Pieces<Cells>>, Linux416, 60;
        pieces_split_zones: Probe<Pieces<Cells>>, SplitZones, 60;
        pieces_linux63: Probe<Pieces<Cells>>, Linux63, 60;
        mutexes_split_zones: Probe<Mutexes>, SplitZones, 60;
        mutexes_less_dirty: Probe<Mutexes>, LessDirty, 60;
        threads_skip_merge: Threads, SkipMerge, 60;
        threads_cluster: Threads, Cluster, 60;
        threads_linux413: Threads, Linux413, 60;
        threads_linux316: Threads, Linux316, 60;
        threads_fair_zone: Threads, FairZone, 60;
        threads_less_dirty: Threads, LessDirty, 60;
        threads_tiny_split: Threads, TinySplit, 60;
    }
}

on_presets! {
    mutexes_linux413: Probe<Mutexes>, Linux413;
    mutexes_skip_merge: Probe<Mutexes>, SkipMerge;
    mutexes_cluster: Probe<Mutexes>, Cluster;
    mutexes_cluster_free: Probe<Mutexes>, ClusterFree;
    mutexes_zonal: Probe<Mutexes>, Zonal;
    mutexes_trusting: Probe<Mutexes>, Trusting;
    mutexes_split_zones: Probe<Mutexes>, SplitZones;
    mutexes_split_by_cpu: Probe<Mutexes>, SplitZonesByCpu;
    mutexes_linux316: Probe<Mutexes>, Linux316;
    mutexes_fair_zone: Probe<Mutexes>, FairZone;
    mutexes_less_dirty: Probe<Mutexes>, LessDirty;
    mutexes_tiny_split: Probe<Mutexes>, TinySplit;
    threads_skip_merge: Threads, SkipMerge;
    threads_cluster: Threads, Cluster;
    threads_split_by_cpu: Threads, SplitZonesByCpu;
    threads_linux413: Threads, Linux413;
    threads_linux316: Threads, Linux316;
    threads_fair_zone: Threads, FairZone;
    threads_less_dirty: Threads, LessDirty;
    threads_tiny_split: Threads, TinySplit;
}
