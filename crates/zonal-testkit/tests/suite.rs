//! The random-command suite over hosts and presets.

use zonal::platform::single::SingleThread;
use zonal::preset::{
    Cluster, ClusterFree, FairZone, FairZonePosted, LessDirty, Linux63, Linux316, Linux413,
    Linux416, SkipMerge, SplitZones, SplitZonesByCpu, Zonal,
};
use zonal_host::Threads;
use zonal_testkit::preset::{TinySplit, TinyZonal};
use zonal_testkit::probe::{Cells, Mutexes, Pieces, Probe};
use zonal_testkit::suite::{effort, random_commands};

macro_rules! suite {
    ($($name:ident: $host:ty, $preset:ty, $cases:expr;)*) => {$(
        #[test]
        fn $name() {
            random_commands::<$host, $preset>(effort($cases), Some("tests/seeds/commands.txt"));
        }
    )*};
}

// Every preset on one host, and on each other host some: the rest is in `matrix`.
suite! {
    single_thread_linux416: SingleThread, Linux416, 60;
    single_thread_zonal: SingleThread, Zonal, 60;
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
    probe_fair_zone_posted: Probe<Cells>, FairZonePosted, 120;
    probe_linux63: Probe<Cells>, Linux63, 120;
    probe_less_dirty: Probe<Cells>, LessDirty, 120;
    pieces_zonal: Probe<Pieces<Cells>>, Zonal, 120;
    pieces_tiny_zonal: Probe<Pieces<Cells>>, TinyZonal, 200;
    mutexes_linux416: Probe<Mutexes>, Linux416, 60;
    mutexes_tiny_zonal: Probe<Mutexes>, TinyZonal, 60;
    threads_linux416: Threads, Linux416, 60;
    threads_cluster_free: Threads, ClusterFree, 60;
    threads_zonal: Threads, Zonal, 60;
    threads_tiny_zonal: Threads, TinyZonal, 60;
    threads_split_zones: Threads, SplitZones, 60;
}
