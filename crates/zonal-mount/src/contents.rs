//! The data of files: opened in the cache when they are first asked for, and kept after the last handle
//! goes, for the next. As many are kept as leave descriptors for the others.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::SystemTime;

use fuser::Errno;
use parking_lot::Mutex;
use rustix::fs::{Timespec, Timestamps, UTIME_OMIT, fstat, futimens};
use zonal_cache::evict::Evict;
use zonal_cache::{Cache, CacheFile, FileStore, Ring};

use crate::nodes::Node;
use crate::shared::{Answer, io, os, told};

/// Requests on their way at once.
const DEPTH: u32 = 128;

/// The data of a file.
pub(crate) struct Content<E: Evict> {
    pub(crate) store: Arc<FileStore>,
    pub(crate) file: CacheFile<E>,
    times: Mutex<Times>,
}

/// What the file below may say otherwise: it is changed when pages are written back, which is later.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Times {
    /// When it was modified last, or is to look as if it had been.
    pub(crate) modified: Option<SystemTime>,
    /// When it was changed last. A time that a program sets is none of these.
    pub(crate) changed: Option<SystemTime>,
}

/// What an inode has of its data.
pub(crate) struct Cached<E: Evict> {
    content: Option<Arc<Content<E>>>,
    /// Handles that are open.
    opens: usize,
    /// It is in the queue of those that may go.
    queued: bool,
}

impl<E: Evict> Default for Cached<E> {
    fn default() -> Self {
        Self { content: None, opens: 0, queued: false }
    }
}

impl<E: Evict> Cached<E> {
    pub(crate) const fn has_content(&self) -> bool {
        self.content.is_some()
    }

    /// The data, if no call and no handle uses them: who has the lock keeps it so.
    fn unused(&mut self) -> Option<&Arc<Content<E>>> {
        let unused = |content: &&Arc<Content<E>>| Arc::strong_count(content) == 1;
        self.content.as_ref().filter(|_| self.opens == 0).filter(unused)
    }
}

impl<E: Evict> Content<E> {
    /// It was changed now.
    pub(crate) fn set_changed(&self) {
        let now = Some(SystemTime::now());
        *self.times.lock() = Times { modified: now, changed: now };
    }

    /// It is to look as if it had been modified at another time.
    pub(crate) fn set_modified(&self, at: SystemTime) {
        self.times.lock().modified = Some(at);
    }

    pub(crate) fn times(&self) -> Times {
        *self.times.lock()
    }

    /// Writes pages back, without a flush, and waits for those that other threads write.
    pub(crate) fn write_back(&self) -> Answer<()> {
        self.file.write_back().map_err(|error| told(&error))
    }

    /// Whether the file below has all of it.
    fn is_clean(&self) -> bool {
        self.file.unwritten_pages() == 0
    }

    /// Has the file below say when it was changed, once all of it is there.
    pub(crate) fn settle(&self) -> Answer<()> {
        let mut times = self.times.lock();
        // Who writes sets the time after the page is dirty: so either is seen here.
        if let Some(at) = times.modified.filter(|_| self.is_clean()) {
            set_modified(self.store.file(), at)?;
            *times = Times::default();
        }
        Ok(())
    }
}

fn set_modified(file: &std::fs::File, at: SystemTime) -> Answer<()> {
    let omit = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
    let times = Timestamps { last_access: omit, last_modification: timespec(at) };
    futimens(file, &times).map_err(os)
}

/// A time, as the system has it.
pub(crate) fn timespec(at: SystemTime) -> Timespec {
    match at.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(after) => {
            Timespec { tv_sec: after.as_secs() as i64, tv_nsec: after.subsec_nanos().into() }
        }
        Err(before) => {
            let before = before.duration();
            let nanos = before.subsec_nanos();
            let borrow = i64::from(nanos > 0);
            let tv_nsec = i64::from((1_000_000_000 - nanos) % 1_000_000_000);
            Timespec { tv_sec: -(before.as_secs() as i64) - borrow, tv_nsec }
        }
    }
}

/// The data that are kept.
pub(crate) struct Contents<E: Evict> {
    cache: Cache<E>,
    /// Inodes whose data no handle uses, the longest so first.
    idle: Mutex<VecDeque<Weak<Node<E>>>>,
    /// How many of these there may be.
    most: usize,
    buffered: bool,
    /// On which files are read ahead.
    ring: Option<Arc<Ring>>,
}

impl<E: Evict> Contents<E> {
    /// `most` files keep their data without a handle. Where there is no `io_uring`, threads read ahead.
    pub(crate) fn new(cache: Cache<E>, most: usize, buffered: bool) -> Self {
        Self { cache, idle: Mutex::default(), most, buffered, ring: Ring::new(DEPTH).ok() }
    }

    pub(crate) const fn cache(&self) -> &Cache<E> {
        &self.cache
    }

    /// The data of a file, for a call or, with `open`, for a handle.
    pub(crate) fn get(&self, node: &Node<E>, open: bool) -> Answer<Arc<Content<E>>> {
        let mut cached = node.cached.lock();
        let content = match &cached.content {
            Some(content) => content.clone(),
            None => cached.content.insert(self.open(node)?).clone(),
        };
        cached.opens += usize::from(open);
        Ok(content)
    }

    /// The data of a file if they are here.
    pub(crate) fn peek(node: &Node<E>) -> Option<Arc<Content<E>>> {
        node.cached.lock().content.clone()
    }

    fn open(&self, node: &Node<E>) -> Answer<Arc<Content<E>>> {
        let store = FileStore::open(Path::new(&node.path())).map_err(|error| io(&error))?;
        let store = store.with_ring(self.ring.clone());
        let store = Arc::new(if self.buffered { store.buffered() } else { store });
        let file = self.cache.open(store.clone()).map_err(|error| told(&error))?;
        Ok(Arc::new(Content { store, file, times: Mutex::default() }))
    }

    /// A handle has gone, and so has what it had of the data.
    pub(crate) fn closed(&self, node: &Arc<Node<E>>) {
        {
            let mut cached = node.cached.lock();
            cached.opens = cached.opens.saturating_sub(1);
        }
        self.queue(node);
    }

    /// Data that no handle uses may go.
    pub(crate) fn queue(&self, node: &Arc<Node<E>>) {
        {
            let mut cached = node.cached.lock();
            if cached.queued || cached.content.is_none() || cached.opens > 0 {
                return;
            }
            cached.queued = true;
        }
        self.idle.lock().push_back(Arc::downgrade(node));
        self.trim();
    }

    fn trim(&self) {
        // What cannot be written stays; each is asked once.
        for _ in 0..8 {
            let oldest = {
                let mut idle = self.idle.lock();
                if idle.len() <= self.most {
                    return;
                }
                idle.pop_front()
            };
            let Some(oldest) = oldest else { return };
            let Some(node) = oldest.upgrade() else { continue };
            node.cached.lock().queued = false;
            if !Self::drop_unused(&node, true) {
                self.queue_again(&node);
            }
        }
    }

    /// As [`queue`](Self::queue), without looking whether there are too many.
    fn queue_again(&self, node: &Arc<Node<E>>) {
        let mut cached = node.cached.lock();
        if !cached.queued && cached.content.is_some() && cached.opens == 0 {
            cached.queued = true;
            drop(cached);
            self.idle.lock().push_back(Arc::downgrade(node));
        }
    }

    /// Data that are not used leave, once they are written back, which with `writes` is done here; whether none are left.
    pub(crate) fn drop_unused(node: &Node<E>, writes: bool) -> bool {
        let mut cached = node.cached.lock();
        if let Some(content) = cached.unused()
            && (!writes || content.write_back().is_ok())
            && content.is_clean()
            && content.settle().is_ok()
        {
            cached.content = None;
        }
        cached.content.is_none()
    }

    /// Data of a file that has no name and no user any more leave without being written; whether they did.
    pub(crate) fn discard_if_gone(node: &Node<E>) -> bool {
        let mut cached = node.cached.lock();
        let gone =
            cached.unused().is_some() && fstat(&node.fd).is_ok_and(|stat| stat.st_nlink == 0);
        if gone && let Some(content) = cached.content.take() {
            if let Ok(content) = Arc::try_unwrap(content) {
                content.file.unlink();
            }
            return true;
        }
        false
    }

    /// How many files have data here.
    pub(crate) fn idle(&self) -> usize {
        self.idle.lock().len()
    }
}

/// What fails where a directory has no data.
pub(crate) const NO_DATA: Errno = Errno::EISDIR;
