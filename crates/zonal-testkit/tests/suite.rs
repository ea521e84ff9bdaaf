//! The random-command suite over hosts and presets.

use zonal::platform::single::SingleThread;
use zonal::platform::stay::InPieces;
use zonal::preset::{
    Cluster, ClusterFree, FairZone, FairZonePosted, LessDirty, Linux63, Linux316, Linux413,
    Linux416, SkipMerge, SplitZones, SplitZonesByCpu, Trusting, Zonal,
};
use zonal_host::Threads;
use zonal_testkit::preset::{TinySplit, TinyZonal};
use zonal_testkit::probe::Probe;
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
    single_thread_zonal: SingleThread, Zonal, 60;
    probe_linux416: Probe, Linux416, 120;
    probe_skip_merge: Probe, SkipMerge, 120;
    probe_cluster: Probe, Cluster, 120;
    probe_cluster_free: Probe, ClusterFree, 120;
    probe_zonal: Probe, Zonal, 120;
    probe_tiny_zonal: Probe, TinyZonal, 200;
    probe_split_zones: Probe, SplitZones, 120;
    probe_split_by_cpu: Probe, SplitZonesByCpu, 60;
    probe_tiny_split: Probe, TinySplit, 120;
    probe_linux413: Probe, Linux413, 60;
    probe_linux316: Probe, Linux316, 120;
    probe_fair_zone: Probe, FairZone, 120;
    probe_fair_zone_posted: Probe, FairZonePosted, 120;
    probe_linux63: Probe, Linux63, 120;
    probe_less_dirty: Probe, LessDirty, 120;
    probe_trusting: Probe, Trusting, 120;
    pieces_tiny_zonal: Probe<InPieces>, TinyZonal, 200;
    threads_linux416: Threads, Linux416, 60;
    threads_cluster_free: Threads, ClusterFree, 60;
    threads_zonal: Threads, Zonal, 60;
}
