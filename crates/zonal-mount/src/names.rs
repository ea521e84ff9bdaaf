//! Names: found, made, moved and taken away in the directory below, at once.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use fuser::{Errno, FileAttr, FileHandle, Request};
use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, OFlags, RenameFlags, Uid, chmod, chownat, getxattr, linkat,
    mkdirat, mknodat, openat, readlinkat, renameat_with, symlinkat, unlinkat,
};
use zonal_cache::evict::Evict;

use crate::nodes::{Node, ROOT, STATISTICS};
use crate::shared::{Answer, Handle, Opened, Shared, os};

const FIND: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const SET_GROUP: u32 = 0o2000;
const PERMISSIONS: u32 = 0o777;
/// The access list that what is made in a directory has.
const DEFAULT_LIST: &str = "system.posix_acl_default";

/// An inode that the kernel is told of.
pub(crate) type Found<E> = (Arc<Node<E>>, FileAttr);

/// Who asks for something new, and which mode it is to have.
struct Wanted<'a> {
    request: &'a Request,
    mode: u32,
    /// The directory has a default access list. What that leaves of the mode the file system below knows.
    listed: bool,
}

impl<'a> Wanted<'a> {
    /// The mask is for directories without such a list.
    fn new<E: Evict>(request: &'a Request, parent: &Node<E>, (mode, mask): (u32, u32)) -> Self {
        let listed = getxattr(parent.path(), DEFAULT_LIST, &mut [0; 0][..]).is_ok();
        Self { request, mode: if listed { mode } else { mode & !mask }, listed }
    }

    fn bits(&self) -> Mode {
        Mode::from_raw_mode(self.mode & 0o7777)
    }
}

impl<E: Evict> Shared<E> {
    /// Whether a name is that of the statistics file.
    pub(crate) fn is_statistics(&self, parent: u64, name: &OsStr) -> bool {
        parent == ROOT && name == OsStr::new(&self.statistics)
    }

    /// The directory with this number, where a name is to change.
    fn parent(&self, number: u64, name: &OsStr) -> Answer<Arc<Node<E>>> {
        if self.is_statistics(number, name) {
            return Err(Errno::EPERM);
        }
        self.nodes.get(number)
    }

    /// Has the kernel know what a descriptor is of.
    fn known(&self, fd: OwnedFd) -> Answer<Found<E>> {
        let (node, _) = self.nodes.adopt(fd)?;
        self.described(node)
    }

    /// With its attributes; without, the kernel is not told of it after all.
    fn described(&self, node: Arc<Node<E>>) -> Answer<Found<E>> {
        match Self::attr(&node) {
            Ok(attr) => Ok((node, attr)),
            Err(error) => {
                self.forget(node.number, 1);
                Err(error)
            }
        }
    }

    pub(crate) fn look_up(&self, parent: &Node<E>, name: &OsStr) -> Answer<Found<E>> {
        self.known(openat(&parent.fd, name, FIND, Mode::empty()).map_err(os)?)
    }

    /// The attributes of a name.
    pub(crate) fn find(&self, parent: u64, name: &OsStr) -> Answer<FileAttr> {
        if self.is_statistics(parent, name) {
            return Ok(self.statistics_attr());
        }
        self.look_up(&*self.nodes.get(parent)?, name).map(|(_, attr)| attr)
    }

    /// What was just made belongs to who asked for it, and has the mode that was asked for.
    fn own(&self, parent: &Node<E>, wanted: &Wanted<'_>, fd: OwnedFd) -> Answer<Found<E>> {
        let above = parent.stat()?;
        // In such a directory the group is the directory's, and so it is below.
        let inherits = above.st_mode & SET_GROUP != 0;
        let gid = (!inherits).then(|| Gid::from_raw(wanted.request.gid()));
        let uid = Some(Uid::from_raw(wanted.request.uid()));
        chownat(&fd, "", uid, gid, AtFlags::EMPTY_PATH).map_err(os)?;
        let (node, stat) = self.nodes.adopt(fd)?;
        let kind = FileType::from_raw_mode(stat.st_mode);
        if kind != FileType::Symlink {
            let inherited = if inherits && kind == FileType::Directory { SET_GROUP } else { 0 };
            // Without a list this process's own mask may have taken some away.
            let permissions = if wanted.listed { stat.st_mode } else { wanted.mode } & PERMISSIONS;
            let mode = permissions | wanted.mode & 0o7000 | inherited;
            if mode != stat.st_mode & 0o7777
                && let Err(error) = chmod(node.path(), Mode::from_raw_mode(mode))
            {
                self.forget(node.number, 1);
                return Err(os(error));
            }
        }
        self.described(node)
    }

    pub(crate) fn make_node(
        &self,
        request: &Request,
        (parent, name): (u64, &OsStr),
        (mode, mask): (u32, u32),
        device: u32,
    ) -> Answer<FileAttr> {
        let parent = self.parent(parent, name)?;
        let wanted = Wanted::new(request, &parent, (mode, mask));
        let kind = FileType::from_raw_mode(mode);
        mknodat(&parent.fd, name, kind, wanted.bits(), u64::from(device)).map_err(os)?;
        self.made(&parent, name, &wanted)
    }

    fn made(&self, parent: &Node<E>, name: &OsStr, wanted: &Wanted<'_>) -> Answer<FileAttr> {
        let fd = openat(&parent.fd, name, FIND, Mode::empty()).map_err(os)?;
        self.own(parent, wanted, fd).map(|(_, attr)| attr)
    }

    pub(crate) fn make_directory(
        &self,
        request: &Request,
        (parent, name): (u64, &OsStr),
        mode: (u32, u32),
    ) -> Answer<FileAttr> {
        let parent = self.parent(parent, name)?;
        let wanted = Wanted::new(request, &parent, mode);
        mkdirat(&parent.fd, name, wanted.bits()).map_err(os)?;
        self.made(&parent, name, &wanted)
    }

    pub(crate) fn make_symlink(
        &self,
        request: &Request,
        (parent, name): (u64, &OsStr),
        target: &Path,
    ) -> Answer<FileAttr> {
        let parent = self.parent(parent, name)?;
        symlinkat(target, &parent.fd, name).map_err(os)?;
        // It has no mode of its own.
        self.made(&parent, name, &Wanted { request, mode: 0, listed: false })
    }

    pub(crate) fn read_link(&self, number: u64) -> Answer<Vec<u8>> {
        let node = self.nodes.get(number)?;
        let target = readlinkat(&node.fd, "", Vec::new()).map_err(os)?;
        Ok(target.into_bytes())
    }

    /// Makes a file and opens it.
    pub(crate) fn create(
        &self,
        request: &Request,
        (parent, name): (u64, &OsStr),
        mode: (u32, u32),
        flags: i32,
    ) -> Answer<(FileAttr, FileHandle)> {
        let parent = self.parent(parent, name)?;
        let wanted = Wanted::new(request, &parent, mode);
        let exclusive = OFlags::from_bits_retain(flags as u32).contains(OFlags::EXCL);
        let new = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let (node, attr) = match openat(&parent.fd, name, new, wanted.bits()) {
            Ok(file) => {
                let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
                // By descriptor: the name may be another's by now.
                let fd = openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
                self.own(&parent, &wanted, fd.map_err(os)?)?
            }
            // Another was faster, below.
            Err(rustix::io::Errno::EXIST) if !exclusive => self.look_up(&parent, name)?,
            Err(error) => return Err(os(error)),
        };
        match self.open_node(&node, flags) {
            Ok(handle) => Ok((attr, handle)),
            Err(error) => {
                self.forget(node.number, 1);
                Err(error)
            }
        }
    }

    pub(crate) fn open(&self, number: u64, flags: i32) -> Answer<FileHandle> {
        if number == STATISTICS {
            let flags = OFlags::from_bits_retain(flags as u32);
            return if flags.intersects(OFlags::WRONLY | OFlags::RDWR) {
                Err(Errno::EACCES)
            } else {
                Ok(self.add(Handle::Text(self.statistics_text())))
            };
        }
        self.open_node(&self.nodes.get(number)?, flags)
    }

    fn open_node(&self, node: &Arc<Node<E>>, flags: i32) -> Answer<FileHandle> {
        let writes = OFlags::from_bits_retain(flags as u32);
        let writes = writes.intersects(OFlags::WRONLY | OFlags::RDWR);
        let content = self.contents.get(node, true, writes)?;
        let file = content.file.clone();
        Ok(self.add(Handle::File(Box::new(Opened { node: node.clone(), content, file }))))
    }

    pub(crate) fn release(&self, handle: FileHandle) {
        let Some(handle) = self.take(handle).and_then(Arc::into_inner) else { return };
        if let Handle::File(opened) = handle {
            let Opened { node, content, file } = *opened;
            drop((content, file));
            self.contents.closed(&node);
            // The kernel may have forgotten it first.
            self.forget(node.number, 0);
        }
    }

    pub(crate) fn link(&self, number: u64, parent: u64, name: &OsStr) -> Answer<FileAttr> {
        let parent = self.parent(parent, name)?;
        let node = self.nodes.get(number)?;
        linkat(CWD, node.path(), &parent.fd, name, AtFlags::SYMLINK_FOLLOW).map_err(os)?;
        self.look_up(&parent, name).map(|(_, attr)| attr)
    }

    /// Takes a name away: of a directory with `REMOVEDIR`.
    pub(crate) fn remove(&self, parent: u64, name: &OsStr, flags: AtFlags) -> Answer<()> {
        let parent = self.parent(parent, name)?;
        // Data of a file that has lost its last name leave when the kernel forgets it: until then an open may
        // be on its way.
        unlinkat(&parent.fd, name, flags).map_err(os)
    }

    pub(crate) fn rename(
        &self,
        (parent, name): (u64, &OsStr),
        (new_parent, new_name): (u64, &OsStr),
        flags: u32,
    ) -> Answer<()> {
        let parent = self.parent(parent, name)?;
        let new_parent = self.parent(new_parent, new_name)?;
        let flags = RenameFlags::from_bits_retain(flags);
        renameat_with(&parent.fd, name, &new_parent.fd, new_name, flags).map_err(os)
    }
}
