//! What programs do with files, one thing after the other.

use crate::{Test, World};
use libtest_mimic::Failed;
use rustix::fs::{FallocateFlags, SeekFrom, Timespec, Timestamps, fallocate, futimens, seek};
use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use zonal_mount::LEAST_MEMORY;

pub(crate) const TESTS: &[Test] = &[
    ("names_are_made_moved_and_removed", names_are_made_moved_and_removed),
    ("open_files_survive_their_names", open_files_survive_their_names),
    ("large_directories_are_listed", large_directories_are_listed),
    ("a_time_that_is_set_is_no_time_of_change", a_time_that_is_set_is_no_time_of_change),
    ("four_times_the_bound_streams_through", four_times_the_bound_streams_through),
    ("what_is_written_appears_below", what_is_written_appears_below),
    ("programs_work", programs_work),
    ("requests_at_the_end_are_no_error", requests_at_the_end_are_no_error),
];

/// Where there are extended attributes below.
pub(crate) const WITH_ATTRIBUTES: &[Test] = &[("attributes_are_kept", attributes_are_kept)];

/// Where space can be allocated below.
pub(crate) const ALLOCATING: &[Test] =
    &[("ranges_are_allocated_and_punched", ranges_are_allocated_and_punched)];

fn names_are_made_moved_and_removed() -> Result<(), Failed> {
    let mut world = World::new();
    let at = |name: &str| world.root.join(name);
    fs::create_dir_all(at("a/b"))?;
    fs::write(at("a/b/file"), "one")?;
    fs::write(at("other"), "two")?;
    fs::hard_link(at("a/b/file"), at("link"))?;
    symlink("a/b", at("symlink"))?;
    assert_eq!(fs::read(at("symlink/file"))?, b"one");
    assert_eq!(fs::read_link(at("symlink"))?.to_str(), Some("a/b"));
    assert_eq!(fs::metadata(at("link"))?.nlink(), 2);
    fs::write(at("link"), "three")?;
    assert_eq!(fs::read(at("a/b/file"))?, b"three", "one file with two names");
    fs::rename(at("a"), at("c"))?;
    fs::rename(at("c/b/file"), at("other"))?;
    assert_eq!(fs::read(at("other"))?, b"three");
    assert!(fs::remove_dir(at("c")).is_err(), "it is not empty");
    fs::remove_dir(at("c/b"))?;
    fs::remove_dir(at("c"))?;
    assert!(fs::metadata(at("c")).is_err());
    rustix::fs::mkfifoat(rustix::fs::CWD, at("fifo"), rustix::fs::Mode::from_raw_mode(0o600))?;
    fs::remove_file(at("fifo"))?;
    let exclusive = OpenOptions::new().write(true).create_new(true).open(at("other"));
    assert_eq!(exclusive.map(drop).map_err(|it| it.kind()), Err(std::io::ErrorKind::AlreadyExists));
    let statistics = fs::read_to_string(at(".zonal"))?;
    assert!(statistics.contains("bound_bytes 1048576\n"), "{statistics}");
    assert!(statistics.contains("direct_reclaims 0\n"), "{statistics}");
    for name in ["pages_refaulted", "read_errors", "write_errors", "flush_errors", "pages_lost"] {
        assert!(statistics.contains(&format!("\n{name} 0\n")), "{statistics}");
    }
    assert!(fs::write(at(".zonal"), "").is_err());
    let names: BTreeSet<_> = fs::read_dir(&world.root)?.map(|it| it.unwrap().file_name()).collect();
    assert_eq!(names, ["link", "other", "symlink"].map(Into::into).into());
    world.unmount();
    assert_eq!(fs::read(world.below.join("other"))?, b"three");
    Ok(())
}

fn open_files_survive_their_names() -> Result<(), Failed> {
    let mut world = World::new();
    let [old, new] = ["old", "new"].map(|name| world.root.join(name));
    fs::write(&new, "replaced")?;
    let replaced = File::open(&new)?;
    let mut file = OpenOptions::new().read(true).append(true).create_new(true).open(&old)?;
    file.write_all(b"before ")?;
    fs::rename(&old, &new)?;
    file.write_all(b"after")?;
    assert_eq!(fs::read(&new)?, b"before after");
    let mut bytes = [0; 8];
    replaced.read_exact_at(&mut bytes, 0)?;
    assert_eq!(&bytes, b"replaced");
    fs::remove_file(&new)?;
    file.write_all(b" the end")?;
    assert_eq!((file.metadata()?.nlink(), file.metadata()?.len()), (0, 20));
    let mut all = [0; 20];
    file.read_exact_at(&mut all, 0)?;
    assert_eq!(&all, b"before after the end");
    drop((file, replaced));
    world.unmount();
    assert_eq!(fs::read_dir(&world.below)?.count(), 0);
    Ok(())
}

fn large_directories_are_listed() -> Result<(), Failed> {
    let world = World::new();
    let expected: BTreeSet<String> =
        (0..1500).map(|number| format!("a-rather-long-file-name-{number}")).collect();
    for name in &expected {
        File::create_new(world.root.join(name))?;
    }
    for _ in 0..2 {
        let listed = fs::read_dir(&world.root)?;
        let names: Vec<String> =
            listed.map(|it| it.unwrap().file_name().into_string().unwrap()).collect();
        assert_eq!(names.len(), expected.len(), "each once");
        assert_eq!(names.into_iter().collect::<BTreeSet<_>>(), expected);
    }
    // While they go, none is passed over.
    for entry in fs::read_dir(&world.root)? {
        fs::remove_file(entry?.path())?;
    }
    assert_eq!(fs::read_dir(&world.root)?.count(), 0);
    Ok(())
}

fn attributes_are_kept() -> Result<(), Failed> {
    let mut world = World::new();
    let path = world.root.join("file");
    let mut file = File::create_new(&path)?;
    file.write_all(&[1; 10_000])?;
    let long_ago = Timespec { tv_sec: 1_000_000_000, tv_nsec: 123_456_789 };
    futimens(&file, &Timestamps { last_access: long_ago, last_modification: long_ago })?;
    let is_old = |metadata: &fs::Metadata| {
        assert_eq!((metadata.mtime(), metadata.mtime_nsec()), (1_000_000_000, 123_456_789));
    };
    is_old(&file.metadata()?);
    file.sync_all()?;
    is_old(&file.metadata()?);
    is_old(&fs::metadata(world.below.join("file"))?);
    fs::set_permissions(&path, Permissions::from_mode(0o4751))?;
    assert_eq!(fs::metadata(&path)?.mode() & 0o7777, 0o4751);
    std::os::unix::fs::chown(&path, Some(1000), Some(1001))?;
    assert_eq!((fs::metadata(&path)?.uid(), fs::metadata(&path)?.gid()), (1000, 1001));
    is_old(&fs::metadata(&path)?);
    file.write_all(b"more")?;
    assert!(file.metadata()?.mtime() > 1_000_000_000);
    assert_eq!(file.metadata()?.len(), 10_004);
    let xattr = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(&path, "user.zonal", b"value", xattr)?;
    let mut value = [0; 10];
    assert_eq!(rustix::fs::getxattr(&path, "user.zonal", &mut value[..])?, 5);
    assert_eq!(&value[..5], b"value");
    rustix::fs::removexattr(&path, "user.zonal")?;
    assert!(rustix::fs::getxattr(&path, "user.zonal", &mut value[..]).is_err());
    assert!(rustix::fs::statvfs(&world.root)?.f_blocks > 0);
    drop(file);
    // A time that was set after writing outlives what is written back at the end.
    fs::write(&path, "again")?;
    let file = File::open(&path)?;
    futimens(&file, &Timestamps { last_access: long_ago, last_modification: long_ago })?;
    drop(file);
    world.unmount();
    is_old(&fs::metadata(world.below.join("file"))?);
    Ok(())
}

fn a_time_that_is_set_is_no_time_of_change() -> Result<(), Failed> {
    let world = World::new();
    let mut last = Ok(());
    // What is older is written back, and the file below has its own time of that.
    for number in 0..8 {
        let start = Instant::now();
        last = set_a_time(&world.root.join(number.to_string()));
        if start.elapsed() < Duration::from_secs(4) {
            break;
        }
    }
    last
}

fn set_a_time(path: &Path) -> Result<(), Failed> {
    let file = File::create_new(path)?;
    file.write_all_at(b"not yet below", 0)?;
    let written = file.metadata()?.ctime();
    let later = Timespec { tv_sec: written + 1_000_000, tv_nsec: 5 };
    futimens(&file, &Timestamps { last_access: later, last_modification: later })?;
    let times = |metadata: &fs::Metadata| (metadata.mtime() - written, metadata.ctime() - written);
    let is_now = |time: i64| (0..100_000).contains(&time);
    let (modified, changed) = times(&file.metadata()?);
    assert!(modified == 1_000_000 && is_now(changed), "{modified} {changed}");
    // What is written after that changes both, and is not below either.
    file.write_all_at(b"more", 0)?;
    let metadata = file.metadata()?;
    let (modified, changed) = times(&metadata);
    assert!(is_now(modified) && is_now(changed), "{modified} {changed}");
    let modified = (metadata.mtime(), metadata.mtime_nsec());
    let changed = (metadata.ctime(), metadata.ctime_nsec());
    if modified == changed { Ok(()) } else { Err(format!("{modified:?} {changed:?}").into()) }
}

fn ranges_are_allocated_and_punched() -> Result<(), Failed> {
    let mut world = World::new();
    let path = world.root.join("file");
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path)?;
    let mut model = vec![5_u8; 300_000];
    file.write_all_at(&model, 0)?;
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    for (from, to) in [(10, 20), (4000, 5000), (8192, 16384), (20_000, 90_000), (299_000, 310_000)]
    {
        fallocate(&file, punch, from, to - from)?;
        model[from as usize..(to as usize).min(300_000)].fill(0);
        assert_eq!(fs::read(&path)?, model, "{from}..{to}");
    }
    fallocate(&file, FallocateFlags::empty(), 290_000, 30_000)?;
    model.resize(320_000, 0);
    assert_eq!(fs::read(&path)?, model);
    fallocate(&file, FallocateFlags::KEEP_SIZE, 320_000, 10_000)?;
    fallocate(&file, FallocateFlags::ZERO_RANGE, 100, 1000)?;
    model[100..1100].fill(0);
    assert_eq!(fs::read(&path)?, model);
    assert!(fallocate(&file, FallocateFlags::COLLAPSE_RANGE, 0, 4096).is_err());
    // The hole is one where the file system below has holes.
    let hole = seek(&file, SeekFrom::Hole(0))?;
    assert!(hole == 24_576 || hole == 8192 || hole == 320_000, "{hole}");
    assert!(seek(&file, SeekFrom::Data(320_000)).is_err());
    drop(file);
    world.unmount();
    assert_eq!(fs::read(world.below.join("file"))?, model);
    Ok(())
}

fn four_times_the_bound_streams_through() -> Result<(), Failed> {
    let mut world = World::new();
    let path = world.root.join("file");
    let bytes: Vec<u8> = (0..4 * LEAST_MEMORY as u64 / 8).flat_map(u64::to_le_bytes).collect();
    fs::write(&path, &bytes)?;
    assert!(fs::read(&path)? == bytes, "as it was written");
    let mut file = File::open(&path)?;
    let mut piece = [0; 5000];
    let mut at = 0;
    loop {
        let got = file.read(&mut piece)?;
        if got == 0 {
            break;
        }
        assert!(piece[..got] == bytes[at..at + got], "at {at}");
        at += got;
        let stats = world.mounted.as_ref().expect("it is mounted").stats();
        assert!(stats.used * 4096 <= LEAST_MEMORY);
    }
    assert_eq!(at, bytes.len());
    drop(file);
    world.unmount();
    assert!(fs::read(world.below.join("file"))? == bytes, "all is written back");
    Ok(())
}

fn what_is_written_appears_below() -> Result<(), Failed> {
    let world = World::new();
    let mut synchronous = OpenOptions::new();
    synchronous.write(true).create(true).custom_flags(rustix::fs::OFlags::SYNC.bits() as i32);
    let file = synchronous.open(world.root.join("synchronous"))?;
    file.write_all_at(b"at once", 0)?;
    assert_eq!(fs::read(world.below.join("synchronous"))?, b"at once");
    let file = File::create_new(world.root.join("synced"))?;
    file.write_all_at(b"when told", 5000)?;
    file.sync_data()?;
    assert_eq!(fs::read(world.below.join("synced"))?[5000..], *b"when told");
    file.set_len(3)?;
    assert_eq!(fs::read(world.below.join("synced"))?, [0; 3]);
    Ok(())
}

fn programs_work() -> Result<(), Failed> {
    let mut world = World::new();
    let script = "set -e; mkdir tree; for i in $(seq 20); do head -c $((i * 5000)) /dev/zero | tr '\\0' x > tree/$i; done
        cp -a tree copy; diff -r tree copy; tar cf tree.tar tree; mkdir out; tar xf tree.tar -C out; diff -r tree out/tree
        mv tree moved; rm -r copy out; touch -d '2001-01-01' moved/1; [ $(stat -c %Y moved/1) = $(date -d 2001-01-01 +%s) ]
        sort moved/3 > /dev/null; cat moved/* | wc -c";
    let output = Command::new("sh").args(["-c", script]).current_dir(&world.root).output()?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "1050000");
    world.unmount();
    assert_eq!(fs::read(world.below.join("moved/20"))?, vec![b'x'; 100_000]);
    Ok(())
}

/// Files are closed, and the mount is gone before the kernel's last requests about them are answered: some 4 of
/// these 300 mounts "ended early" while the session took that for an error.
fn requests_at_the_end_are_no_error() -> Result<(), Failed> {
    for _ in 0..300 {
        let mut world = World::new();
        let files: Result<Vec<_>, _> =
            (0..4).map(|name| File::create(world.root.join(name.to_string()))).collect();
        drop(files?);
        world.unmount();
    }
    Ok(())
}
