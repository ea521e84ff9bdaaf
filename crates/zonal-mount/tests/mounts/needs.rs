//! What the tests need of the kernel and of the file system below. It is looked for once: tests that would only say that
//! it is not there are not run.

use crate::mapping::Mapping;
use crate::process::Process;
use crate::space::Space;
use libtest_mimic::Failed;
use rustix::fs::{FallocateFlags, XattrFlags, fallocate, setxattr};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::fs::File;
use zonal_mount::can_mount;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Need {
    /// This process mounts.
    Mount,
    /// Files of a mount are mapped and changed: before Linux 6.6 the kernel does not do that with those that it keeps
    /// no copy of.
    Mapping,
    /// Files below have attributes of users: not those of tmpfs before Linux 6.6.
    Attributes,
    /// Files below are given space: not on each file system.
    Allocation,
}

/// What is not there, and how that is seen. Whatever else goes wrong, the tests say themselves.
pub(crate) fn missing() -> BTreeMap<Need, String> {
    if let Some(why) = mount().err() {
        return BTreeMap::from([(Need::Mount, why)]);
    }
    let looks = [
        (Need::Mapping, mapping as fn() -> Result<_, Failed>, "map a file of a mount"),
        (Need::Attributes, attributes, "set an attribute of a user"),
        (Need::Allocation, allocation, "allocate space"),
    ];
    let refused = looks.into_iter().filter_map(|(need, look, what)| match look() {
        Ok(Err(error @ (Errno::NODEV | Errno::OPNOTSUPP))) => {
            Some((need, format!("cannot {what}: {error}")))
        }
        _ => None,
    });
    refused.collect()
}

fn mount() -> Result<(), String> {
    can_mount().map_err(|error| error.to_string())?;
    if !rustix::process::geteuid().is_root() {
        return Err("only root can mount".to_owned());
    }
    // Also root cannot everywhere.
    let directory = tempfile::tempdir().map_err(|error| error.to_string())?;
    let mounted = Space::new(directory.path(), 1 << 20);
    mounted.map(drop).map_err(|error| format!("cannot mount: {error}"))
}

fn mapping() -> Result<Result<(), Errno>, Failed> {
    let process = Process::new("1M")?;
    let mut options = File::options();
    let file = options.read(true).write(true).create_new(true).open(process.root.join("file"))?;
    Ok(Mapping::new(&file, 0, 1).map(drop))
}

fn attributes() -> Result<Result<(), Errno>, Failed> {
    let file = tempfile::NamedTempFile::new()?;
    Ok(setxattr(file.path(), "user.zonal", b"value", XattrFlags::empty()))
}

fn allocation() -> Result<Result<(), Errno>, Failed> {
    let file = tempfile::tempfile()?;
    Ok(fallocate(&file, FallocateFlags::KEEP_SIZE, 0, 1 << 16))
}
