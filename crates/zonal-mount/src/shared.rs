//! What all calls of a mount share: the inodes, the data, the handles.

use std::collections::{HashMap, VecDeque};
use std::io::Error;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fuser::{Errno, FileHandle};
use parking_lot::{Mutex, RwLock};
use zonal_cache::evict::Evict;
use zonal_cache::store::StoreError;
use zonal_cache::{Cache, CacheError, CacheFile};

use crate::beside;
use crate::contents::{Content, Contents};
use crate::error::MountError;
use crate::nodes::{Node, Nodes, ROOT};
use crate::session::Options;

/// What a call answers.
pub(crate) type Answer<T> = Result<T, Errno>;

pub(crate) fn os(error: rustix::io::Errno) -> Errno {
    Errno::from_i32(error.raw_os_error())
}

pub(crate) fn io(error: &Error) -> Errno {
    Errno::from_i32(error.raw_os_error().unwrap_or(rustix::io::Errno::IO.raw_os_error()))
}

/// What a program is told of an error of the cache.
pub(crate) fn told(error: &CacheError) -> Errno {
    match error {
        CacheError::Store(error) if *error != StoreError::SHRUNK => {
            i32::try_from(error.code()).map_or(Errno::EIO, Errno::from_i32)
        }
        CacheError::OffsetTooLarge { .. } => Errno::EFBIG,
        CacheError::BeyondStore { .. } => Errno::ENOSPC,
        CacheError::FixedLen { .. } => Errno::EINVAL,
        CacheError::NoRoom { .. } | CacheError::NoFrames => Errno::ENOMEM,
        CacheError::Crowded => Errno::EAGAIN,
        _ => Errno::EIO,
    }
}

/// An open file.
pub(crate) struct Opened<E: Evict> {
    pub(crate) node: Arc<Node<E>>,
    pub(crate) content: Arc<Content<E>>,
    /// With a window of its own, and told of errors by itself.
    pub(crate) file: CacheFile<E>,
}

/// What a number of a handle stands for.
pub(crate) enum Handle<E: Evict> {
    File(Box<Opened<E>>),
    /// Its position is set before each use.
    Directory(Mutex<OwnedFd>),
    /// The statistics as they were.
    Text(String),
}

/// See the [module](self).
pub(crate) struct Shared<E: Evict> {
    pub(crate) nodes: Nodes<E>,
    pub(crate) contents: Contents<E>,
    /// Inodes that the kernel has forgotten, with data that could not be written or that a thread was at.
    left: Mutex<VecDeque<u64>>,
    handles: RwLock<HashMap<u64, Arc<Handle<E>>>>,
    next: AtomicU64,
    /// The name of the statistics file.
    pub(crate) statistics: String,
    /// Bytes of memory that were asked for.
    pub(crate) memory: u64,
}

impl<E: Evict> Shared<E> {
    pub(crate) fn new(
        root: OwnedFd,
        contents: Contents<E>,
        options: &Options,
    ) -> Result<Self, Error> {
        let nodes = Nodes::new(root).map_err(|error| Error::from_raw_os_error(error.into()))?;
        let (handles, next) = (RwLock::new(HashMap::new()), AtomicU64::new(1));
        let (statistics, memory) = (options.statistics.clone(), options.memory as u64);
        Ok(Self { nodes, contents, left: Mutex::default(), handles, next, statistics, memory })
    }

    pub(crate) const fn cache(&self) -> &Cache<E> {
        self.contents.cache()
    }

    pub(crate) fn add(&self, handle: Handle<E>) -> FileHandle {
        // Relaxed: only that they differ.
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.handles.write().insert(number, Arc::new(handle));
        FileHandle(number)
    }

    pub(crate) fn handle(&self, number: FileHandle) -> Answer<Arc<Handle<E>>> {
        self.handles.read().get(&number.0).cloned().ok_or(Errno::EBADF)
    }

    pub(crate) fn take(&self, number: FileHandle) -> Option<Arc<Handle<E>>> {
        self.handles.write().remove(&number.0)
    }

    /// The kernel has forgotten an inode `count` times.
    pub(crate) fn forget(&self, number: u64, count: u64) {
        // Each time some that were left are looked at again. The cache's own thread writes their pages: here they would be
        // tried too often.
        let some: Vec<u64> = {
            let mut left = self.left.lock();
            let some = left.len().min(8);
            left.drain(..some).collect()
        };
        for left in some {
            self.let_go(left, 0, false);
        }
        self.let_go(number, count, true);
    }

    /// An inode goes that the kernel does not know any more, if its data can.
    fn let_go(&self, number: u64, count: u64, writes: bool) {
        let Some(node) = self.nodes.forget(number, count) else { return };
        let _ = Contents::discard_if_gone(&node) || Contents::drop_unused(&node, writes);
        if !self.nodes.remove(number) {
            let mut left = self.left.lock();
            if !left.contains(&number) {
                left.push_back(number);
            }
        }
    }

    /// Writes all back that is not yet written, and has the file system below keep it. A file whose store below hangs is waited
    /// for, and holds up no other but what is no data of any: that is kept last.
    pub(crate) fn finish(&self) -> Result<(), MountError> {
        let (mut pages, mut files, mut last) = (0, 0, None);
        for (unwritten, error) in beside::each(self.nodes.all(), |node| Self::finish_one(&node)) {
            pages += unwritten;
            files += usize::from(unwritten > 0);
            last = error.or(last);
        }
        let root = self.nodes.get(ROOT).and_then(|root| {
            let directory = rustix::fs::open(
                root.path(),
                rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC,
                rustix::fs::Mode::empty(),
            );
            rustix::fs::syncfs(directory.map_err(os)?).map_err(os)
        });
        last = root.err().or(last);
        match last {
            Some(error) => {
                let source = Error::from_raw_os_error(error.into());
                Err(MountError::NotWritten { pages, files, source })
            }
            None => Ok(()),
        }
    }

    /// The same for an inode: how many of its pages are not there, and what went wrong.
    fn finish_one(node: &Node<E>) -> (usize, Option<Errno>) {
        // Another thread may be at its data, in a store that hangs.
        let Some(content) = Contents::peek(node) else { return (0, None) };
        // A handle of now is not told of what went wrong before: its pages are dirty still, and tried again. But of
        // what another thread had begun before it is told, and what that could not write is left for the next.
        let sync = || content.file.clone().sync().err().map(|error| told(&error));
        let first = sync();
        let second = if first.is_some() { sync() } else { None };
        // What had left memory when a flush failed is not tried again.
        let lost = content.file.lost_pages() as usize;
        let error = second.or_else(|| (lost > 0).then_some(first.unwrap_or(Errno::EIO)));
        let unwritten = content.file.unwritten_pages() + lost;
        (unwritten, content.settle().err().or(error))
    }
}
