//! Modes of what is made, beside those of the same without a mount.

use crate::{Test, World};
use libtest_mimic::Failed;
use rustix::fs::{XattrFlags, getxattr, setxattr};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) const TESTS: &[Test] = &[
    ("a_mask_removes_what_it_should", a_mask_removes_what_it_should),
    ("a_default_list_replaces_the_mask", a_default_list_replaces_the_mask),
];

const DEFAULT: &str = "system.posix_acl_default";
const ACCESS: &str = "system.posix_acl_access";

/// A default list: all for the owner and group 1234, less for the group, and something for others.
fn list() -> Vec<u8> {
    const NOT_NAMED: u32 = u32::MAX;
    let entries: [(u16, u16, u32); 5] = [
        (1, 7, NOT_NAMED),
        (4, 5, NOT_NAMED),
        (8, 7, 1234),
        (0x10, 7, NOT_NAMED),
        (0x20, 5, NOT_NAMED),
    ];
    let entry = |(tag, permissions, id): (u16, u16, u32)| {
        [&tag.to_le_bytes()[..], &permissions.to_le_bytes(), &id.to_le_bytes()].concat()
    };
    2_u32.to_le_bytes().into_iter().chain(entries.into_iter().flat_map(entry)).collect()
}

/// Modes and access lists of what a program makes in `directory`, by path.
type Made = BTreeMap<PathBuf, (u32, Vec<u8>)>;

fn make(directory: &Path, mask: &str) -> Result<Made, Failed> {
    let script = "set -e; umask $0; : > file; mkdir directory; mkfifo fifo; ln -s file symlink
        mkdir group; chgrp 1234 group; chmod g+s group; mkdir group/directory; : > group/file
        : > directory/file";
    let output = Command::new("sh").args(["-c", script, mask]).current_dir(directory).output()?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut made = Made::new();
    let mut directories = vec![PathBuf::new()];
    while let Some(name) = directories.pop() {
        for entry in fs::read_dir(directory.join(&name))? {
            let name = name.join(entry?.file_name());
            let path = directory.join(&name);
            let metadata = path.symlink_metadata()?;
            let mut list = vec![0; 1000];
            let got =
                if metadata.is_symlink() { Ok(0) } else { getxattr(&path, ACCESS, &mut *list) };
            list.truncate(got.unwrap_or(0));
            made.insert(name.clone(), (metadata.mode(), list));
            if metadata.is_dir() {
                directories.push(name);
            }
        }
    }
    Ok(made)
}

/// Makes the same in a directory of the mount and in one beside it.
fn compare(list: Option<&[u8]>) -> Result<(), Failed> {
    let world = World::new();
    let beside = world.below.with_file_name("beside");
    for mask in ["0", "022", "077"] {
        let mut made = Vec::new();
        for place in [&world.root, &beside] {
            let directory = place.join(mask);
            fs::create_dir_all(&directory)?;
            if let Some(list) = list {
                match setxattr(&directory, DEFAULT, list, XattrFlags::empty()) {
                    Err(Errno::OPNOTSUPP) => {
                        eprintln!(
                            "Default access lists are not tested: there are none in {place:?}"
                        );
                        return Ok(());
                    }
                    set => set?,
                }
            }
            made.push(make(&directory, mask)?);
        }
        assert!(list.is_none() || made[1].values().any(|(_, list)| !list.is_empty()));
        for (name, expected) in &made[1] {
            let (mode, list) = &made[0][name];
            assert_eq!(format!("{mode:o}"), format!("{:o}", expected.0), "{name:?}, mask {mask}");
            assert_eq!(list, &expected.1, "{name:?}, mask {mask}");
        }
    }
    Ok(())
}

fn a_mask_removes_what_it_should() -> Result<(), Failed> {
    compare(None)
}

fn a_default_list_replaces_the_mask() -> Result<(), Failed> {
    compare(Some(&list()))
}
