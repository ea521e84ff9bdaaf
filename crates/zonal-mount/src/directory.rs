//! Directories: listed by the system's own cookies, so that nothing of them is kept here.

use std::ffi::OsStr;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use fuser::{Errno, FileHandle, FileType, INodeNo, ReplyDirectory, ReplyDirectoryPlus};
use parking_lot::Mutex;
use rustix::fs::{Mode, OFlags, RawDir, SeekFrom, openat, seek};
use zonal_cache::evict::Evict;

use crate::attributes::{GENERATION, TTL, kind_of};
use crate::nodes::Node;
use crate::shared::{Answer, Handle, Shared, os};

/// Bytes of entries that are asked for at once.
const BUFFER: usize = 16 << 10;

struct Entry<'a> {
    name: &'a OsStr,
    number: u64,
    kind: FileType,
    /// Where the next one is.
    next: u64,
}

/// Shows `visit` the entries from `offset` on, until it has enough.
fn list(
    directory: &Mutex<OwnedFd>,
    offset: u64,
    mut visit: impl FnMut(&Entry<'_>) -> Answer<bool>,
) -> Answer<()> {
    let directory = directory.lock();
    seek(&*directory, SeekFrom::Start(offset)).map_err(os)?;
    let mut buffer = [MaybeUninit::uninit(); BUFFER];
    let mut entries = RawDir::new(&*directory, &mut buffer);
    let mut any = false;
    while let Some(entry) = entries.next() {
        let entry = entry.map_err(os)?;
        let entry = Entry {
            name: OsStr::from_bytes(entry.file_name().to_bytes()),
            number: entry.ino(),
            kind: kind_of(entry.file_type()),
            next: entry.next_entry_cookie(),
        };
        match visit(&entry) {
            Ok(true) => break,
            Ok(false) => any = true,
            // What was added is given; the next call meets the error again.
            Err(_) if any => break,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

impl<E: Evict> Shared<E> {
    pub(crate) fn open_directory(&self, number: u64) -> Answer<FileHandle> {
        let node = self.nodes.get(number)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = openat(&node.fd, ".", flags, Mode::empty()).map_err(os)?;
        Ok(self.add(Handle::Directory(Mutex::new(directory))))
    }

    fn directory(&self, handle: FileHandle) -> Answer<Arc<Handle<E>>> {
        let handle = self.handle(handle)?;
        if matches!(&*handle, Handle::Directory(_)) { Ok(handle) } else { Err(Errno::ENOTDIR) }
    }

    pub(crate) fn read_directory(
        &self,
        number: u64,
        handle: FileHandle,
        offset: u64,
        reply: &mut ReplyDirectory,
    ) -> Answer<()> {
        let handle = self.directory(handle)?;
        let Handle::Directory(directory) = &*handle else { return Err(Errno::ENOTDIR) };
        list(directory, offset, |entry| {
            Ok(!self.is_statistics(number, entry.name)
                && reply.add(INodeNo(entry.number), entry.next, entry.kind, entry.name))
        })
    }

    pub(crate) fn read_directory_plus(
        &self,
        number: u64,
        handle: FileHandle,
        offset: u64,
        reply: &mut ReplyDirectoryPlus,
    ) -> Answer<()> {
        let parent = self.nodes.get(number)?;
        let handle = self.directory(handle)?;
        let Handle::Directory(directory) = &*handle else { return Err(Errno::ENOTDIR) };
        list(directory, offset, |entry| self.add_plus(&parent, entry, reply))
    }

    /// Adds an entry with its attributes; whether there was no room.
    fn add_plus(
        &self,
        parent: &Node<E>,
        entry: &Entry<'_>,
        reply: &mut ReplyDirectoryPlus,
    ) -> Answer<bool> {
        if self.is_statistics(parent.number, entry.name) {
            return Ok(false);
        }
        // The kernel is not told of these two inodes by it.
        if entry.name == "." || entry.name == ".." {
            let attr = Self::attr(parent)?;
            return Ok(reply.add(attr.ino, entry.next, entry.name, &TTL, &attr, GENERATION));
        }
        // One that has gone meanwhile is not listed.
        let (node, attr) = match self.look_up(parent, entry.name) {
            Ok(found) => found,
            Err(error) if error.code() == Errno::ENOENT.code() => return Ok(false),
            Err(error) => return Err(error),
        };
        let full = reply.add(attr.ino, entry.next, entry.name, &TTL, &attr, GENERATION);
        if full {
            self.forget(node.number, 1);
        }
        Ok(full)
    }

    pub(crate) fn sync_directory(&self, handle: FileHandle) -> Answer<()> {
        let handle = self.directory(handle)?;
        let Handle::Directory(directory) = &*handle else { return Err(Errno::ENOTDIR) };
        rustix::fs::fsync(&*directory.lock()).map_err(os)
    }
}
