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

    /// Its files are in the kernel's cache and nowhere else: they cannot be read past it.
    pub(crate) fn in_kernels_cache(directory: &Path) -> io::Result<Self> {
        mount("none", directory, "ramfs", MountFlags::empty(), None)?;
        Ok(Self(directory.to_owned()))
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        let _ = unmount(&self.0, UnmountFlags::DETACH);
    }
}

/// Gives the small file system on `directory` more space, or less.
pub(crate) fn resize(directory: &Path, bytes: usize) -> io::Result<()> {
    Ok(mount_remount(directory, MountFlags::empty(), format!("size={bytes}"))?)
}
