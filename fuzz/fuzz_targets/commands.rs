//! Command sequences on small worlds, with every checker after every command. An input is run on one
//! world and one preset, both chosen by its first byte: on all presets it would take a second.
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
use zonal_testkit::probe::Probe;
use zonal_testkit::runner::run_commands;
use zonal_testkit::shape::Shape;

/// The most commands of one input.
const MOST: usize = 60;

/// Worlds that `from_bytes` chooses from.
const SHAPES: usize = Shape::SMALL.len() + 1;

const PRESETS: [fn(Shape, &[Command]); 9] = [
    run::<TinyZonal>,
    run::<Linux416>,
    run::<Linux316>,
    run::<FairZone>,
    run::<LessDirty>,
    run::<SplitZones>,
    run::<SkipMerge>,
    run::<Cluster>,
    run::<ClusterFree>,
];

fn run<S: Policy>(shape: Shape, commands: &[Command]) {
    if let Err(failure) = run_commands::<Probe, S>(shape, commands) {
        panic!("{failure}");
    }
}

fuzz_target!(|bytes: &[u8]| {
    let (shape, commands) = from_bytes(bytes, MOST);
    // The world is the first byte modulo their number; what is left of it is the preset.
    let preset = bytes.first().map_or(0, |&first| usize::from(first) / SHAPES);
    PRESETS[preset % PRESETS.len()](shape, &commands);
});
