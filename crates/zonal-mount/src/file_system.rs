//! What the kernel asks for, and who answers.

use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use fuser::{
    AccessFlags, BsdFileFlags, Errno, FileHandle, Filesystem, FopenFlags, INodeNo, InitFlags,
    IoctlFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLseek, ReplyOpen,
    ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use rustix::fs::AtFlags;
use zonal_cache::evict::Evict;

use crate::attributes::{Change, GENERATION, TTL};
use crate::extended::Size;
use crate::nodes::ROOT;
use crate::shared::Shared;

/// A mounted directory as the kernel sees it, and the most that it reads or writes by one request.
pub(crate) struct FileSystem<E: Evict>(Arc<Shared<E>>, u32);

impl<E: Evict> FileSystem<E> {
    pub(crate) const fn new(shared: Arc<Shared<E>>, request: u32) -> Self {
        Self(shared, request)
    }
}

/// Gives what there is, or the error.
macro_rules! answer {
    ($reply:ident, $answer:expr, $value:pat => $give:expr) => {
        match $answer {
            Ok($value) => $give,
            Err(error) => $reply.error(error),
        }
    };
}

impl<E: Evict> Filesystem for FileSystem<E> {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // What an older kernel does not have it does without.
        for wanted in [
            InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP,
            InitFlags::FUSE_DO_READDIRPLUS | InitFlags::FUSE_READDIRPLUS_AUTO,
            InitFlags::FUSE_PARALLEL_DIROPS,
            // The kernel looks at the access lists of the files below too: mode bits alone would grant
            // a group what the list's mask says.
            InitFlags::FUSE_POSIX_ACL,
            // A default access list takes the place of the mask.
            InitFlags::FUSE_DONT_MASK,
        ] {
            let _ = config.add_capabilities(wanted);
        }
        let _ = config.set_max_write(self.1);
        let _ = config.set_max_background(64);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        answer!(reply, self.0.find(parent.0, name), attr => reply.entry(&TTL, &attr, GENERATION));
    }

    fn forget(&self, _: &Request, ino: INodeNo, count: u64) {
        self.0.forget(ino.0, count);
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        answer!(reply, self.0.get_attr(ino.0), attr => reply.attr(&TTL, &attr));
    }

    fn setattr(
        &self,
        _: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        accessed: Option<TimeOrNow>,
        modified: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let change = Change { mode, uid, gid, size, accessed, modified };
        answer!(reply, self.0.set_attr(ino.0, &change), attr => reply.attr(&TTL, &attr));
    }

    fn readlink(&self, _: &Request, ino: INodeNo, reply: ReplyData) {
        answer!(reply, self.0.read_link(ino.0), target => reply.data(&target));
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        mask: u32,
        device: u32,
        reply: ReplyEntry,
    ) {
        let made = self.0.make_node(request, (parent.0, name), (mode, mask), device);
        answer!(reply, made, attr => reply.entry(&TTL, &attr, GENERATION));
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        mask: u32,
        reply: ReplyEntry,
    ) {
        let made = self.0.make_directory(request, (parent.0, name), (mode, mask));
        answer!(reply, made, attr => reply.entry(&TTL, &attr, GENERATION));
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer!(reply, self.0.remove(parent.0, name, AtFlags::empty()), () => reply.ok());
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer!(reply, self.0.remove(parent.0, name, AtFlags::REMOVEDIR), () => reply.ok());
    }

    fn symlink(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let made = self.0.make_symlink(request, (parent.0, name), target);
        answer!(reply, made, attr => reply.entry(&TTL, &attr, GENERATION));
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let moved = self.0.rename((parent.0, name), (new_parent.0, new_name), flags.bits());
        answer!(reply, moved, () => reply.ok());
    }

    fn link(
        &self,
        _: &Request,
        ino: INodeNo,
        new_parent: INodeNo,
        new_name: &OsStr,
        reply: ReplyEntry,
    ) {
        let made = self.0.link(ino.0, new_parent.0, new_name);
        answer!(reply, made, attr => reply.entry(&TTL, &attr, GENERATION));
    }

    fn open(&self, _: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let opened = self.0.open(ino.0, flags.0);
        answer!(reply, opened, handle => reply.opened(handle, FopenFlags::FOPEN_DIRECT_IO));
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        mask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let made = self.0.create(request, (parent.0, name), (mode, mask), flags);
        answer!(reply, made, (attr, handle) => {
            reply.created(&TTL, &attr, GENERATION, handle, FopenFlags::FOPEN_DIRECT_IO);
        });
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        // Only a program's own reads have one.
        let fill_cache = owner.is_none();
        self.0.read(handle, (offset, size as usize), fill_cache, |answer| {
            answer!(reply, answer, bytes => reply.data(bytes));
        });
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        how: WriteFlags,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let written = self.0.write(handle, offset, data, flags.0, how);
        answer!(reply, written, count => reply.written(count));
    }

    /// A close writes nothing back, as on a disk's file system; the kernel asks once.
    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        // The kernel does not wait for it.
        reply.ok();
        self.0.release(handle);
    }

    fn fsync(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        data_only: bool,
        reply: ReplyEmpty,
    ) {
        answer!(reply, self.0.sync(handle, data_only), () => reply.ok());
    }

    fn opendir(&self, _: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let opened = self.0.open_directory(ino.0);
        answer!(reply, opened, handle => reply.opened(handle, FopenFlags::empty()));
    }

    fn readdir(
        &self,
        _: &Request,
        ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        answer!(reply, self.0.read_directory(ino.0, handle, offset, &mut reply), () => reply.ok());
    }

    fn readdirplus(
        &self,
        _: &Request,
        ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let listed = self.0.read_directory_plus(ino.0, handle, offset, &mut reply);
        answer!(reply, listed, () => reply.ok());
    }

    fn releasedir(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        reply: ReplyEmpty,
    ) {
        drop(self.0.take(handle));
        reply.ok();
    }

    fn fsyncdir(&self, _: &Request, _: INodeNo, handle: FileHandle, _: bool, reply: ReplyEmpty) {
        answer!(reply, self.0.sync_directory(handle), () => reply.ok());
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        answer!(reply, self.0.space(), it => reply.statfs(
            it.f_blocks,
            it.f_bfree,
            it.f_bavail,
            it.f_files,
            it.f_ffree,
            it.f_bsize as u32,
            it.f_namemax as u32,
            it.f_frsize as u32,
        ));
    }

    fn setxattr(
        &self,
        _: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _: u32,
        reply: ReplyEmpty,
    ) {
        answer!(reply, self.0.set_extended(ino.0, name, value, flags), () => reply.ok());
    }

    fn getxattr(&self, _: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        answer!(reply, self.0.extended(ino.0, Some(name), size), size => match size {
            Size::Bytes(bytes) => reply.data(&bytes),
            Size::Count(count) => reply.size(count),
        });
    }

    fn listxattr(&self, _: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        answer!(reply, self.0.extended(ino.0, None, size), size => match size {
            Size::Bytes(bytes) => reply.data(&bytes),
            Size::Count(count) => reply.size(count),
        });
    }

    fn removexattr(&self, _: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer!(reply, self.0.remove_extended(ino.0, name), () => reply.ok());
    }

    /// The kernel knows who may do what, by the attributes.
    fn access(&self, _: &Request, _: INodeNo, _: AccessFlags, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }

    fn ioctl(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: IoctlFlags,
        _: u32,
        _: &[u8],
        _: u32,
        reply: ReplyIoctl,
    ) {
        reply.error(Errno::ENOTTY);
    }

    fn fallocate(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        len: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        answer!(reply, self.0.allocate(handle, (offset, len), mode), () => reply.ok());
    }

    fn lseek(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        answer!(reply, self.0.seek(handle, offset, whence), at => reply.offset(at));
    }
}

impl<E: Evict> Shared<E> {
    /// How much space there is below.
    fn space(&self) -> crate::shared::Answer<rustix::fs::StatVfs> {
        let root = self.nodes.get(ROOT)?;
        rustix::fs::fstatvfs(&root.fd).map_err(crate::shared::os)
    }
}
