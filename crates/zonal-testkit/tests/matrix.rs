//! The suites over the rest of hosts and presets: `cargo xtask matrix`, with the tests that have a few presets only in a
//! preflight. Each pair compiles the allocator once more, all together for minutes.

use crate::stress::WORK;
use zonal::Order;
use zonal::platform::single::SingleThread;
use zonal::platform::stay::InPieces;
use zonal::preset::{
    Cluster, ClusterFree, FairZone, FairZonePosted, LessDirty, Linux63, Linux316, Linux413,
    Linux416, SkipMerge, SplitZones, SplitZonesByCpu, Trusting, Zonal,
};
use zonal_host::Threads;
use zonal_testkit::preset::{TinySplit, TinyZonal};
use zonal_testkit::probe::Probe;
use zonal_testkit::shape::{Shape, order};
use zonal_testkit::suite::{Work, effort, random_commands, threads_at_random};

mod commands {
    use super::*;

    suite! {
        single_thread_linux416: SingleThread, Linux416, 60;
        single_thread_skip_merge: SingleThread, SkipMerge, 60;
        single_thread_cluster: SingleThread, Cluster, 60;
        single_thread_cluster_free: SingleThread, ClusterFree, 60;
        single_thread_tiny_zonal: SingleThread, TinyZonal, 60;
        single_thread_trusting: SingleThread, Trusting, 60;
        single_thread_split_zones: SingleThread, SplitZones, 60;
        single_thread_split_by_cpu: SingleThread, SplitZonesByCpu, 60;
        single_thread_tiny_split: SingleThread, TinySplit, 60;
        single_thread_linux316: SingleThread, Linux316, 60;
        single_thread_linux413: SingleThread, Linux413, 60;
        single_thread_linux63: SingleThread, Linux63, 60;
        single_thread_fair_zone: SingleThread, FairZone, 60;
        single_thread_fair_zone_posted: SingleThread, FairZonePosted, 60;
        single_thread_less_dirty: SingleThread, LessDirty, 60;
        pieces_linux316: Probe<InPieces>, Linux316, 60;
        pieces_linux413: Probe<InPieces>, Linux413, 60;
        pieces_linux416: Probe<InPieces>, Linux416, 60;
        pieces_linux63: Probe<InPieces>, Linux63, 60;
        pieces_zonal: Probe<InPieces>, Zonal, 120;
        pieces_skip_merge: Probe<InPieces>, SkipMerge, 60;
        pieces_cluster: Probe<InPieces>, Cluster, 60;
        pieces_cluster_free: Probe<InPieces>, ClusterFree, 60;
        pieces_fair_zone: Probe<InPieces>, FairZone, 60;
        pieces_fair_zone_posted: Probe<InPieces>, FairZonePosted, 60;
        pieces_less_dirty: Probe<InPieces>, LessDirty, 60;
        pieces_trusting: Probe<InPieces>, Trusting, 60;
        pieces_split_zones: Probe<InPieces>, SplitZones, 60;
        pieces_split_by_cpu: Probe<InPieces>, SplitZonesByCpu, 60;
        pieces_tiny_split: Probe<InPieces>, TinySplit, 60;
        threads_trusting: Threads, Trusting, 60;
        threads_skip_merge: Threads, SkipMerge, 60;
        threads_cluster: Threads, Cluster, 60;
        threads_linux413: Threads, Linux413, 60;
        threads_linux63: Threads, Linux63, 60;
        threads_linux316: Threads, Linux316, 60;
        threads_fair_zone: Threads, FairZone, 60;
        threads_fair_zone_posted: Threads, FairZonePosted, 60;
        threads_less_dirty: Threads, LessDirty, 60;
        threads_split_by_cpu: Threads, SplitZonesByCpu, 60;
        threads_tiny_split: Threads, TinySplit, 60;
        threads_tiny_zonal: Threads, TinyZonal, 60;
        threads_split_zones: Threads, SplitZones, 60;
    }
}

on_presets! {
    probe_linux413: Probe, Linux413;
    probe_linux63: Probe, Linux63;
    probe_skip_merge: Probe, SkipMerge;
    probe_cluster: Probe, Cluster;
    probe_cluster_free: Probe, ClusterFree;
    probe_zonal: Probe, Zonal;
    probe_trusting: Probe, Trusting;
    pieces_zonal: Probe<InPieces>, Zonal;
    probe_split_by_cpu: Probe, SplitZonesByCpu;
    probe_linux316: Probe, Linux316;
    probe_fair_zone: Probe, FairZone;
    probe_fair_zone_posted: Probe, FairZonePosted;
    probe_less_dirty: Probe, LessDirty;
    probe_tiny_split: Probe, TinySplit;
    threads_linux63: Threads, Linux63;
    threads_skip_merge: Threads, SkipMerge;
    threads_cluster: Threads, Cluster;
    threads_trusting: Threads, Trusting;
    threads_split_by_cpu: Threads, SplitZonesByCpu;
    threads_linux413: Threads, Linux413;
    threads_linux316: Threads, Linux316;
    threads_fair_zone: Threads, FairZone;
    threads_fair_zone_posted: Threads, FairZonePosted;
    threads_less_dirty: Threads, LessDirty;
    threads_tiny_split: Threads, TinySplit;
    threads_tiny_zonal: Threads, TinyZonal;
    threads_split_zones: Threads, SplitZones;
}
