//! What is refused, and what it is called.

use crate::process::Process;
use crate::space::Space;
use crate::{Test, World};
use libtest_mimic::Failed;
use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use zonal_cache::S3Fifo;
use zonal_mount::{LEAST_MEMORY, MountError, Mounted, Options};

pub(crate) const TESTS: &[Test] = &[
    ("bad_places_are_refused", bad_places_are_refused),
    ("bad_options_are_refused", bad_options_are_refused),
    ("no_device_is_an_error", no_device_is_an_error),
    ("files_that_no_bound_holds_for_are_told_once", files_that_no_bound_holds_for_are_told_once),
    ("a_file_that_shrinks_underneath_is_an_error", a_file_that_shrinks_underneath_is_an_error),
    ("offsets_beyond_the_largest_are_refused", offsets_beyond_the_largest_are_refused),
    ("a_mount_in_use_stays", a_mount_in_use_stays),
];

fn start(directory: &Path, mountpoint: &Path, options: &Options) -> MountError {
    let options = Options { memory: options.memory.min(8 << 20), ..options.clone() };
    Mounted::<S3Fifo>::start(directory, mountpoint, &options).expect_err("it is refused")
}

fn bad_places_are_refused() -> Result<(), Failed> {
    let place = tempfile::tempdir()?;
    let [below, empty, full] = ["below", "empty", "full"].map(|name| place.path().join(name));
    for directory in [&below, &empty, &full] {
        fs::create_dir(directory)?;
    }
    fs::write(full.join("file"), "")?;
    let missing = place.path().join("missing");
    let options = Options::default();
    let refused = |directory: &Path, mountpoint: &Path| start(directory, mountpoint, &options);
    assert!(matches!(refused(&missing, &empty), MountError::Unreachable { what: "directory", .. }));
    assert!(matches!(
        refused(&below, &missing),
        MountError::Unreachable { what: "mountpoint", .. }
    ));
    let file = full.join("file");
    assert!(matches!(refused(&file, &empty), MountError::NoDirectory { what: "directory", .. }));
    assert!(matches!(refused(&below, &file), MountError::NoDirectory { what: "mountpoint", .. }));
    assert!(matches!(refused(&below, &full), MountError::NotEmpty { .. }));
    assert!(matches!(refused(place.path(), &empty), MountError::Inside { .. }));
    assert!(matches!(refused(&empty, &empty), MountError::Inside { .. }));
    Ok(())
}

fn bad_options_are_refused() -> Result<(), Failed> {
    let place = tempfile::tempdir()?;
    let [below, root] = ["below", "root"].map(|name| place.path().join(name));
    fs::create_dir(&below)?;
    fs::create_dir(&root)?;
    fs::write(below.join("taken"), "")?;
    let small = Options { memory: LEAST_MEMORY - 1, ..Options::default() };
    assert!(matches!(start(&below, &root, &small), MountError::BoundTooSmall { .. }));
    for name in ["", "..", "a/b", "taken"] {
        let options = Options { statistics: name.to_owned(), ..Options::default() };
        assert!(matches!(start(&below, &root, &options), MountError::Statistics { .. }), "{name}");
    }
    Ok(())
}

/// The program where `/dev` is empty, for it alone.
fn no_device_is_an_error() -> Result<(), Failed> {
    let place = tempfile::tempdir()?;
    let [below, root] = ["below", "root"].map(|name| place.path().join(name));
    fs::create_dir(&below)?;
    fs::create_dir(&root)?;
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", "mount -t tmpfs none /dev && exec \"$@\"", "sh"]);
    command.arg(env!("CARGO_BIN_EXE_zonal-mount")).arg("mount").args([below, root]);
    let output = command.output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    let message = "zonal: cannot open /dev/fuse: No such file or directory (os error 2)\n";
    assert_eq!((&*said, output.status.code()), (message, Some(1)));
    Ok(())
}

fn files_that_no_bound_holds_for_are_told_once() -> Result<(), Failed> {
    let mut process = Process::new("1M")?;
    process.unmount()?;
    let _space = Space::in_kernels_cache(&process.below)?;
    for name in ["one", "two"] {
        fs::write(process.below.join(name), name)?;
    }
    process.again_heard("1M")?;
    for name in ["one", "two"] {
        assert_eq!(fs::read_to_string(process.root.join(name))?, name);
    }
    process.unmount()?;
    let mut said = String::new();
    process.child.stderr.take().ok_or("it has one")?.read_to_string(&mut said)?;
    let message = "zonal: files below go through the kernel's cache too, beyond --memory: O_DIRECT is refused: \
                   Invalid argument (os error 22)\n";
    assert_eq!(said, message);
    Ok(())
}

fn a_file_that_shrinks_underneath_is_an_error() -> Result<(), Failed> {
    let world = World::new();
    fs::write(world.below.join("file"), vec![7; 1 << 20])?;
    let file = File::open(world.root.join("file"))?;
    let mut page = [0; 4096];
    file.read_exact_at(&mut page, 0)?;
    OpenOptions::new().write(true).open(world.below.join("file"))?.set_len(4096)?;
    let error = file.read_exact_at(&mut page, 1 << 19).expect_err("it is not there");
    assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::IO.raw_os_error()));
    file.read_exact_at(&mut page, 0)?;
    assert_eq!(page, [7; 4096]);
    Ok(())
}

fn offsets_beyond_the_largest_are_refused() -> Result<(), Failed> {
    let world = World::new();
    let file = File::create_new(world.root.join("file"))?;
    assert!(file.set_len(u64::MAX).is_err());
    assert!(file.write_at(b"x", u64::MAX).is_err());
    // The file system below has a limit of its own: what is written back there would be lost.
    let large = i64::MAX as u64 - 4096;
    assert!(file.set_len(large).is_err() || file.metadata()?.len() == large);
    file.set_len(0)?;
    assert_eq!(file.metadata()?.len(), 0);
    Ok(())
}

fn a_mount_in_use_stays() -> Result<(), Failed> {
    let mut world = World::new();
    let file = File::create_new(world.root.join("file"))?;
    let mounted = world.mounted.as_ref().expect("it is mounted");
    assert!(matches!(mounted.unmount(), Err(MountError::Unmount { .. })));
    file.write_all_at(b"still there", 0)?;
    drop(file);
    world.unmount();
    assert_eq!(fs::read(world.below.join("file"))?, b"still there");
    Ok(())
}
