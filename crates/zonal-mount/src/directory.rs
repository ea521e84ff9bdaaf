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

/// What became of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Visited {
    Added,
    Skipped,
    /// There was no room for it.
    Full,
}

impl Visited {
    /// As a reply says it.
    const fn by(full: bool) -> Self {
        if full { Self::Full } else { Self::Added }
    }
}

/// Shows `visit` the entries from `offset` on, until it has enough.
fn list(
    directory: &Mutex<OwnedFd>,
    offset: u64,
    mut visit: impl FnMut(&Entry<'_>) -> Answer<Visited>,
) -> Answer<()> {
    let directory = directory.lock();
    seek(&*directory, SeekFrom::Start(offset)).map_err(os)?;
    let mut buffer = [MaybeUninit::uninit(); BUFFER];
    let mut entries = RawDir::new(&*directory, &mut buffer);
    let mut any = false;
    while let Some(entry) = entries.next() {
        let visited = entry.map_err(os).and_then(|entry| {
            visit(&Entry {
                name: OsStr::from_bytes(entry.file_name().to_bytes()),
                number: entry.ino(),
                kind: kind_of(entry.file_type()),
                next: entry.next_entry_cookie(),
            })
        });
        match visited {
            Ok(Visited::Full) => break,
            Ok(Visited::Added) => any = true,
            Ok(Visited::Skipped) => {}
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
            if self.is_statistics(number, entry.name) {
                return Ok(Visited::Skipped);
            }
            let number = INodeNo(entry.number);
            Ok(Visited::by(reply.add(number, entry.next, entry.kind, entry.name)))
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

    /// Adds an entry with its attributes.
    fn add_plus(
        &self,
        parent: &Node<E>,
        entry: &Entry<'_>,
        reply: &mut ReplyDirectoryPlus,
    ) -> Answer<Visited> {
        if self.is_statistics(parent.number, entry.name) {
            return Ok(Visited::Skipped);
        }
        // The kernel is not told of these two inodes by it.
        if entry.name == "." || entry.name == ".." {
            let attr = Self::attr(parent)?;
            let full = reply.add(attr.ino, entry.next, entry.name, &TTL, &attr, GENERATION);
            return Ok(Visited::by(full));
        }
        // One that has gone meanwhile is not listed.
        let (node, attr) = match self.look_up(parent, entry.name) {
            Ok(found) => found,
            Err(error) if error.code() == Errno::ENOENT.code() => {
                return Ok(Visited::Skipped);
            }
            Err(error) => return Err(error),
        };
        let full = reply.add(attr.ino, entry.next, entry.name, &TTL, &attr, GENERATION);
        if full {
            self.forget(node.number, 1);
        }
        Ok(Visited::by(full))
    }

    pub(crate) fn sync_directory(&self, handle: FileHandle) -> Answer<()> {
        let handle = self.directory(handle)?;
        let Handle::Directory(directory) = &*handle else { return Err(Errno::ENOTDIR) };
        rustix::fs::fsync(&*directory.lock()).map_err(os)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What was only passed over is no answer: an empty one would be the end of the directory.
    #[test]
    fn an_error_behind_entries_that_are_skipped_is_told() {
        let place = tempfile::tempdir().unwrap();
        for name in ["a", "b", "c"] {
            std::fs::write(place.path().join(name), "").unwrap();
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(place.path(), flags, Mode::empty()).unwrap();
        let directory = Mutex::new(directory);
        let fails_after = |first: Visited| {
            let mut seen = 0;
            list(&directory, 0, |_| {
                seen += 1;
                if seen > 2 { Err(Errno::EIO) } else { Ok(first) }
            })
        };
        assert_eq!(fails_after(Visited::Skipped).unwrap_err().code(), Errno::EIO.code());
        assert!(fails_after(Visited::Added).is_ok(), "what was added is given");
    }
}
