//! A process that is killed loses nothing that was synced, and has no more memory than it should.

use crate::Test;
use crate::process::{Process, unmount_unused};
use libtest_mimic::Failed;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::process::Command;

pub(crate) const TESTS: &[Test] = &[
    ("what_was_synced_survives_a_kill", what_was_synced_survives_a_kill),
    ("a_signal_writes_all_back", a_signal_writes_all_back),
    ("memory_stays_below_the_bound", memory_stays_below_the_bound),
];

fn what_was_synced_survives_a_kill() -> Result<(), Failed> {
    let mut process = Process::new("1M")?;
    let file = File::create_new(process.root.join("synced"))?;
    let bytes: Vec<u8> = (0..500_000_u32).map(|at| (at / 7) as u8).collect();
    file.write_all_at(&bytes, 0)?;
    file.sync_all()?;
    let mut synchronous = OpenOptions::new();
    synchronous.write(true).create(true).custom_flags(rustix::fs::OFlags::DSYNC.bits() as i32);
    synchronous.open(process.root.join("synchronous"))?.write_all_at(&bytes, 3)?;
    // What was not synced may be lost, and nothing else with it.
    file.write_all_at(&[255; 1000], 200_000)?;
    process.child.kill()?;
    process.child.wait()?;
    let after = fs::read(process.below.join("synced"))?;
    assert_eq!(after.len(), bytes.len());
    assert!(after[..200_000] == bytes[..200_000] && after[201_000..] == bytes[201_000..]);
    assert!(fs::read(process.below.join("synchronous"))?[3..] == bytes);
    // What it leaves is told apart, and can be mounted again.
    let mut again = Command::new(env!("CARGO_BIN_EXE_zonal-mount"));
    let said = again.arg("mount").args([&process.below, &process.root]).output()?;
    assert_eq!(said.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&said.stderr).contains("umount"), "{said:?}");
    drop(file);
    unmount_unused(&process.root)?;
    process.again("1M")?;
    assert!(fs::read(process.root.join("synced"))? == after);
    Ok(())
}

fn a_signal_writes_all_back() -> Result<(), Failed> {
    for in_use in [false, true] {
        let mut process = Process::new("1M")?;
        let file = File::create_new(process.root.join("file"))?;
        file.write_all_at(b"not synced", 0)?;
        let file = in_use.then_some(file);
        let pid = rustix::process::Pid::from_child(&process.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM)?;
        if let Some(file) = &file {
            // Out of sight, but not over.
            while process.root.join("file").exists() {
                std::thread::yield_now();
            }
            file.write_all_at(b"late", 100)?;
        }
        drop(file);
        assert!(process.child.wait()?.success());
        let bytes = fs::read(process.below.join("file"))?;
        assert_eq!(bytes[..10], *b"not synced");
        assert_eq!(bytes.len(), if in_use { 104 } else { 10 });
        assert_eq!(fs::read_dir(&process.root)?.count(), 0);
    }
    Ok(())
}

/// The fixed part, in KiB: the program, its threads, requests on their way, 3 % of the bound.
const FIXED: u64 = 28 << 10;

fn memory_stays_below_the_bound() -> Result<(), Failed> {
    let process = Process::new("16M")?;
    let resident = |what: &str| -> Result<u64, Failed> {
        let path = format!("/proc/{}/status", process.child.id());
        let text = fs::read_to_string(path)?;
        let line = text.lines().find(|line| line.starts_with(what)).ok_or("it says so")?;
        Ok(line.split_whitespace().nth(1).ok_or("a number")?.parse()?)
    };
    let path = process.root.join("file");
    let piece = vec![1; 1 << 20];
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path)?;
    for at in 0..64 {
        file.write_all_at(&piece, at << 20)?;
    }
    let mut bytes = piece.clone();
    for at in 0..64 {
        file.read_exact_at(&mut bytes, at << 20)?;
        assert!(bytes == piece);
    }
    let most = resident("VmHWM")?;
    assert!(most <= (16 << 10) + FIXED, "{most} KiB");
    Ok(())
}
