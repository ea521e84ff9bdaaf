//! `--memory` is for the whole process: a program of its own is started, as what a process has in memory is asked for.

use crate::process::Process;
use libtest_mimic::Failed;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;

pub(crate) const TESTS: &[crate::Test] = &[
    ("four_times_the_memory_stream_through_the_process", four_times_the_memory_stream_through),
    ("many_small_files_stay_within_the_memory", many_small_files_stay_within_the_memory),
];

const MIB: usize = 1 << 20;
/// MiB that the process may have.
const MEMORY: usize = 64;

/// KiB that the process has had at most, for which 5 % beyond what was said are let through.
fn ensure_within(process: &Process, what: &str) -> Result<(), Failed> {
    let text = fs::read_to_string(format!("/proc/{}/status", process.child.id()))?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let peak = line.and_then(|line| line.trim().strip_suffix(" kB")).ok_or("it says so")?;
    let most = MEMORY * 1024 * 105 / 100;
    if peak.parse::<usize>()? > most {
        return Err(format!("{what}: {peak} KiB of {most}").into());
    }
    Ok(())
}

/// A number of the statistics.
fn statistic(process: &Process, name: &str) -> Result<usize, Failed> {
    let text = fs::read_to_string(process.root.join(".zonal"))?;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    Ok(line.ok_or("the statistics have it")?.parse()?)
}

fn four_times_the_memory_stream_through() -> Result<(), Failed> {
    let process = Process::new(&format!("{MEMORY}M"))?;
    let place = |name: &str| process.root.join(name);
    let piece = |at: usize| vec![at as u8 ^ 0x5a; MIB];
    let file = File::options().read(true).write(true).create_new(true).open(place("file"))?;
    for at in 0..4 * MEMORY {
        file.write_all_at(&piece(at), (at * MIB) as u64)?;
        process.progress();
    }
    ensure_within(&process, "written")?;
    let bound = statistic(&process, "bound_bytes")?;
    assert_eq!(statistic(&process, "memory_bytes")?, MEMORY * MIB);
    assert!(bound < MEMORY * MIB && bound > MEMORY * MIB * 3 / 4, "{bound} bytes are for data");
    let mut bytes = vec![0; MIB];
    for at in 0..4 * MEMORY {
        file.read_exact_at(&mut bytes, (at * MIB) as u64)?;
        assert!(bytes == piece(at), "at {at} MiB");
        process.progress();
    }
    ensure_within(&process, "read")?;
    // As much as may be, but for what is on its way: else it is no test of what is beside the data.
    let used = statistic(&process, "used_bytes")?;
    assert!(used <= bound && used > bound - bound / 20, "{used} bytes of {bound}");
    Ok(())
}

fn many_small_files_stay_within_the_memory() -> Result<(), Failed> {
    let process = Process::new(&format!("{MEMORY}M"))?;
    for number in 0..1500 {
        fs::write(process.root.join(format!("{number}")), [1; 40_000])?;
        process.progress();
    }
    ensure_within(&process, "written")?;
    // A file for each 64 KiB is kept without a handle.
    let idle = statistic(&process, "idle_files")?;
    assert!(idle <= MEMORY * 16 && idle > 0, "{idle} are kept");
    Ok(())
}
