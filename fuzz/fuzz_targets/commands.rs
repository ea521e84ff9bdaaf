//! Command sequences on small worlds, with every checker after every command.
//!
//! `RUSTC_BOOTSTRAP=1 cargo fuzz run commands -s none -- -max_total_time=20`
//!
//! A crash prints the sequence as the source of a test.
#![no_main]

use libfuzzer_sys::fuzz_target;
use zonal::policy::Policy;
use zonal::preset::{
    Cluster, ClusterFree, FairZone, LessDirty, Linux316, Linux416, SkipMerge, SplitZones,
};
use zonal_testkit::command::{Command, from_bytes};
use zonal_testkit::preset::TinyZonal;
use zonal_testkit::probe::{Cells, Probe};
use zonal_testkit::runner::run_commands;
use zonal_testkit::shape::Shape;

/// The most commands of one input.
const MOST: usize = 60;

fn run<S: Policy>(shape: Shape, commands: &[Command]) {
    if let Err(failure) = run_commands::<Probe<Cells>, S>(shape, commands) {
        panic!("{failure}");
    }
}

fuzz_target!(|bytes: &[u8]| {
    let (shape, commands) = from_bytes(bytes, MOST);
    run::<TinyZonal>(shape, &commands);
    run::<Linux416>(shape, &commands);
    run::<Linux316>(shape, &commands);
    run::<FairZone>(shape, &commands);
    run::<LessDirty>(shape, &commands);
    run::<SplitZones>(shape, &commands);
    run::<SkipMerge>(shape, &commands);
    run::<Cluster>(shape, &commands);
    run::<ClusterFree>(shape, &commands);
});
