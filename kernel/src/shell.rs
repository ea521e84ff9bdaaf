//! A small shell on the serial console: workloads by name, reports, the ring of events.

use crate::machine::serial;
use crate::memory::{count, frames};
use crate::{say, workload};
use zonal::report::{BuddyInfo, PageTypeInfo, VmStat, ZoneStatus};

/// Bytes of a line, at most.
const LINE: usize = 120;

/// What it knows.
const HELP: &str = "commands: run [workload,...], buddyinfo, pagetypeinfo, vmstat, zoneinfo, count, \
    trace on|off|show, help, exit";

/// Reads lines and does what they say, to `exit`; whether every count was right.
pub(crate) fn run() -> bool {
    say!("{HELP}");
    let (mut line, mut well) = ([0; LINE], true);
    loop {
        serial::prompt();
        let length = serial::read_line(&mut line);
        let text = core::str::from_utf8(&line[..length]).unwrap_or("?");
        let (command, rest) = text.trim().split_once(' ').unwrap_or((text.trim(), ""));
        match command {
            "" => {}
            "help" => {
                say!("{HELP}");
                workload::say_names();
            }
            "run" if workload::can_run(rest.trim()) => well &= workload::run(rest.trim()),
            // It said why.
            "run" => {}
            "buddyinfo" => say!("{}", BuddyInfo(frames())),
            "pagetypeinfo" => say!("{}", PageTypeInfo(frames())),
            "vmstat" => say!("{}", VmStat(frames())),
            "zoneinfo" => say!("{}", ZoneStatus(frames())),
            "count" => say!("{}", count::count()),
            "trace" => trace(rest.trim()),
            "exit" => return well,
            other => say!("`{other}` is no command; {HELP}"),
        }
    }
}

#[cfg(feature = "trace")]
fn trace(what: &str) {
    use crate::machine::ring;
    match what {
        "on" => ring::record(true),
        "off" => ring::record(false),
        "show" => ring::show(20),
        _ => say!("{HELP}"),
    }
}

#[cfg(not(feature = "trace"))]
fn trace(_: &str) {
    say!("built without the feature `trace`");
}
