//! Inodes that the kernel has forgotten go, whenever their data can be written.

use crate::Test;
use crate::process::Process;
use libtest_mimic::Failed;
use rustix::mount::{MountFlags, mount_remount};
use std::fs::{self, File};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

pub(crate) const TESTS: &[Test] = &[
    ("inodes_go_once_there_is_space_again", inodes_go_once_there_is_space_again),
    (
        "what_could_not_be_written_once_is_no_error_at_the_end",
        what_could_not_be_written_once_is_no_error_at_the_end,
    ),
];

/// What the mount says of something.
fn statistic(root: &Path, name: &str) -> Result<u64, Failed> {
    let text = fs::read_to_string(root.join(".zonal"))?;
    let line = text.lines().filter_map(|line| line.split_once(' ')).find(|line| line.0 == name);
    Ok(line.ok_or("it says so")?.1.parse()?)
}

/// How many the mount knows.
fn inodes(root: &Path) -> Result<u64, Failed> {
    statistic(root, "inodes")
}

/// Does something until there are `count`.
fn wait_for(
    root: &Path,
    count: u64,
    mut act: impl FnMut() -> Result<(), Failed>,
) -> Result<(), Failed> {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        act()?;
        let now = inodes(root)?;
        if now == count {
            return Ok(());
        }
        if Instant::now() > end {
            return Err(format!("{now} inodes, not {count}").into());
        }
        thread::sleep(Duration::from_millis(50));
    }
}

fn inodes_go_once_there_is_space_again() -> Result<(), Failed> {
    let space = 16 * 4096;
    let mut process = Process::with_space("1M", space)?;
    let bytes = vec![7; 2 * space];
    fs::write(process.root.join("large"), &bytes)?;
    let empty = process.root.join("empty");
    File::create_new(&empty)?;
    // The kernel forgets all names by this, and so all inodes but the root; again, because a process that another test is
    // about to start has the files of this one for a moment. Left is the one whose data have no space.
    let forget = || Ok(mount_remount(&process.root, MountFlags::empty(), "")?);
    wait_for(&process.root, 2, forget)?;
    assert!(fs::read(process.below.join("large"))? != bytes);
    assert!(statistic(&process.root, "write_errors")? > 0);
    process.resize_space(4 * space)?;
    // They are written after a while. The kernel knows the empty file then.
    wait_for(&process.root, 2, || Ok(File::open(&empty).map(drop)?))?;
    assert!(fs::read(process.below.join("large"))? == bytes);
    process.unmount()
}

fn what_could_not_be_written_once_is_no_error_at_the_end() -> Result<(), Failed> {
    let space = 16 * 4096;
    let mut process = Process::with_space("1M", space)?;
    let bytes = vec![7; 2 * space];
    fs::write(process.root.join("large"), &bytes)?;
    // The writer tries it, in vain.
    let end = Instant::now() + Duration::from_secs(60);
    while fs::read(process.below.join("large"))?.is_empty() {
        assert!(Instant::now() < end, "nothing is written");
        thread::sleep(Duration::from_millis(50));
    }
    // For that attempt to end.
    thread::sleep(Duration::from_secs(2));
    process.resize_space(4 * space)?;
    process.unmount()?;
    assert!(fs::read(process.below.join("large"))? == bytes);
    Ok(())
}
