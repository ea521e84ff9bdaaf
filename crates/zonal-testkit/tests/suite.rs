//! The random-command suite over hosts and presets.

use zonal::platform::single::SingleThread;
use zonal::preset::{
    Cluster, ClusterFree, FairZone, LessDirty, Linux316, Linux413, Linux416, SkipMerge, SplitZones,
    SplitZonesByCpu, Zonal,
};
use zonal_host::Threads;
use zonal_testkit::preset::{TinyDepot, TinySplit, TinyZonal};
use zonal_testkit::probe::{Cells, Mutexes, Probe};
use zonal_testkit::suite::{effort, random_commands};

macro_rules! suite {
    ($($name:ident: $host:ty, $preset:ty, $cases:expr;)*) => {$(
        #[test]
        fn $name() {
            random_commands::<$host, $preset>(effort($cases), Some("tests/seeds/commands.txt"));
        }
    )*};
}

suite! {
    single_thread_linux416: SingleThread, Linux416, 60;
    single_thread_skip_merge: SingleThread, SkipMerge, 60;
    single_thread_cluster: SingleThread, Cluster, 60;
    single_thread_cluster_free: SingleThread, ClusterFree, 60;
    single_thread_zonal: SingleThread, Zonal, 60;
    single_thread_tiny_zonal: SingleThread, TinyZonal, 60;
    single_thread_split_zones: SingleThread, SplitZones, 60;
    single_thread_linux316: SingleThread, Linux316, 60;
    single_thread_fair_zone: SingleThread, FairZone, 60;
    single_thread_less_dirty: SingleThread, LessDirty, 60;
    probe_linux416: Probe<Cells>, Linux416, 120;
    probe_skip_merge: Probe<Cells>, SkipMerge, 120;
    probe_cluster: Probe<Cells>, Cluster, 120;
    probe_cluster_free: Probe<Cells>, ClusterFree, 120;
    probe_zonal: Probe<Cells>, Zonal, 120;
    probe_tiny_zonal: Probe<Cells>, TinyZonal, 200;
    probe_split_zones: Probe<Cells>, SplitZones, 120;
    probe_split_by_cpu: Probe<Cells>, SplitZonesByCpu, 60;
    probe_tiny_split: Probe<Cells>, TinySplit, 120;
    probe_linux413: Probe<Cells>, Linux413, 60;
    probe_linux316: Probe<Cells>, Linux316, 120;
    probe_fair_zone: Probe<Cells>, FairZone, 120;
    probe_less_dirty: Probe<Cells>, LessDirty, 120;
    mutexes_linux416: Probe<Mutexes>, Linux416, 60;
    mutexes_cluster_free: Probe<Mutexes>, ClusterFree, 60;
    mutexes_zonal: Probe<Mutexes>, Zonal, 60;
    mutexes_tiny_zonal: Probe<Mutexes>, TinyZonal, 60;
    mutexes_split_zones: Probe<Mutexes>, SplitZones, 60;
    mutexes_less_dirty: Probe<Mutexes>, LessDirty, 60;
    threads_linux416: Threads, Linux416, 60;
    threads_skip_merge: Threads, SkipMerge, 60;
    threads_cluster: Threads, Cluster, 60;
    threads_cluster_free: Threads, ClusterFree, 60;
    threads_zonal: Threads, Zonal, 60;
    threads_tiny_zonal: Threads, TinyZonal, 60;
    threads_split_zones: Threads, SplitZones, 60;
    threads_linux413: Threads, Linux413, 60;
    threads_linux316: Threads, Linux316, 60;
    threads_fair_zone: Threads, FairZone, 60;
    threads_less_dirty: Threads, LessDirty, 60;
    threads_tiny_split: Threads, TinySplit, 60;
    single_thread_tiny_depot: SingleThread, TinyDepot, 60;
    probe_tiny_depot: Probe<Cells>, TinyDepot, 200;
    threads_tiny_depot: Threads, TinyDepot, 60;
}
