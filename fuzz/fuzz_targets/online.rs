//! Memory that comes and goes while it is allocated from, with every checker after every command. The
//! first byte of an input chooses the preset.
//!
//! `RUSTC_BOOTSTRAP=1 cargo fuzz run online -s none -- -max_total_time=20`
//!
//! A crash prints the sequence as the source of a test.
#![no_main]

use libfuzzer_sys::fuzz_target;
use zonal::policy::Policy;
use zonal::preset::SplitZones;
use zonal_testkit::command::{Ask, Command, Nodes};
use zonal_testkit::preset::TinyZonal;
use zonal_testkit::probe::Probe;
use zonal_testkit::runner::run_commands;
use zonal_testkit::shape::Shape;

/// The most commands of one input: the checkers look at 8192 frames after each.
const MOST: usize = 24;

/// Per-CPU stacks, and several zones for a type. The other presets are in `commands`.
const PRESETS: [fn(&[Command]); 2] = [run::<TinyZonal>, run::<SplitZones>];

fn run<S: Policy>(commands: &[Command]) {
    if let Err(failure) = run_commands::<Probe, S>(Shape::Later, commands) {
        panic!("{failure}");
    }
}

/// A request in a byte: what takes memory from under an offline is its order, type and zone.
fn ask(byte: u8) -> Ask {
    let (order, migrate, limit) = (byte % 11, byte / 11 % 3, 2 + byte / 33 % 2);
    Ask { order, migrate, limit, flags: 0, nodes: Nodes::Local }
}

/// The next command, of one to three bytes; zeros when they have run out.
fn command(first: u8, mut next: impl FnMut() -> u8) -> Command {
    match first % 16 {
        0..=3 => Command::Online { nth: next(), count: next() & 63 },
        4..=6 => Command::Offline { nth: next(), count: next() & 63 },
        7..=9 => Command::Alloc(ask(next())),
        10 | 11 => Command::Free { nth: next().into() },
        12 => Command::AllocBulk { ask: Ask { order: 0, ..ask(next()) }, count: next().into() },
        13 => Command::Fill { ask: ask(next()), spare: next() & 31 },
        14 => Command::SwitchCpu { cpu: next() },
        _ if first & 16 == 0 => Command::FreeAll,
        _ => Command::DrainAll,
    }
}

fuzz_target!(|bytes: &[u8]| {
    let mut bytes = bytes.iter().copied();
    let preset = usize::from(bytes.next().unwrap_or(0)) % PRESETS.len();
    let mut commands = Vec::new();
    while let Some(first) = bytes.next().filter(|_| commands.len() < MOST) {
        commands.push(command(first, || bytes.next().unwrap_or(0)));
    }
    PRESETS[preset](&commands);
});
