//! A directory below with little space, so that writing back fails.

use rustix::mount::{MountFlags, UnmountFlags, mount, mount_remount, unmount};
use std::ffi::CString;
use std::io;
use std::path::{Path, PathBuf};

/// A small file system on a directory, until dropped.
pub(crate) struct Space(PathBuf);

impl Space {
    pub(crate) fn new(directory: &Path, bytes: usize) -> io::Result<Self> {
        let size = CString::new(format!("size={bytes}"))?;
        mount("none", directory, "tmpfs", MountFlags::empty(), &*size)?;
        Ok(Self(directory.to_owned()))
    }

    pub(crate) fn resize(&self, bytes: usize) -> io::Result<()> {
        Ok(mount_remount(&self.0, MountFlags::empty(), format!("size={bytes}"))?)
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        let _ = unmount(&self.0, UnmountFlags::DETACH);
    }
}
