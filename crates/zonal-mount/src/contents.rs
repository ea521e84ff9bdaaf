//! The data of files: opened in the cache when they are first asked for, and kept after the last handle
//! goes, for the next. As many are kept as leave descriptors for the others.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Arc, OnceLock, Weak};
use std::time::SystemTime;

use fuser::Errno;
use parking_lot::Mutex;
use rustix::fs::{OFlags, Timespec, Timestamps, UTIME_OMIT, fcntl_getfl, fstat, futimens};
use zonal_cache::evict::Evict;
use zonal_cache::{Cache, CacheFile, FileStore, NotDirect, Ring};

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

    /// Data that no handle uses leave if they could not be changed, and so are clean: a call that looks at them
    /// meanwhile misses nothing.
    fn drop_read_only(&mut self) {
        let is_read_only = |content: &Arc<Content<E>>| !content.is_writable();
        if self.opens == 0 && self.content.as_ref().is_some_and(is_read_only) {
            self.content = None;
        }
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

    /// Whether the file below was opened to be written too.
    fn is_writable(&self) -> bool {
        fcntl_getfl(self.store.file()).is_ok_and(|is| is.contains(OFlags::RDWR))
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
    /// Why the first file that was to go past the kernel's cache does not.
    not_direct: OnceLock<NotDirect>,
    /// On which files are read ahead.
    ring: Option<Arc<Ring>>,
}

impl<E: Evict> Contents<E> {
    /// `most` files keep their data without a handle. Where there is no `io_uring`, threads read ahead.
    pub(crate) fn new(cache: Cache<E>, most: usize, buffered: bool) -> Self {
        let (not_direct, ring) = (OnceLock::new(), Ring::new(DEPTH).ok());
        Self { cache, idle: Mutex::default(), most, buffered, not_direct, ring }
    }

    /// Why a file below goes through the kernel's cache, if one does that was not to.
    pub(crate) fn not_direct(&self) -> Option<&NotDirect> {
        self.not_direct.get()
    }

    pub(crate) const fn cache(&self) -> &Cache<E> {
        &self.cache
    }

    /// The data of a file, for a call or, with `open`, for a handle; with `writes` they are to be changed.
    pub(crate) fn get(&self, node: &Node<E>, open: bool, writes: bool) -> Answer<Arc<Content<E>>> {
        let mut cached = node.cached.lock();
        if writes {
            // It may have been a program that ran when it was opened below, and be one no more.
            cached.drop_read_only();
        }
        let content = match &cached.content {
            Some(content) => content.clone(),
            None => cached.content.insert(self.open(node)?).clone(),
        };
        // One that could only be opened for reading below takes no writes that would be lost later.
        if writes && !content.is_writable() {
            drop(content);
            cached.drop_read_only();
            return Err(Errno::EROFS);
        }
        cached.opens += usize::from(open);
        Ok(content)
    }

    /// The data of a file if they are here.
    pub(crate) fn peek(node: &Node<E>) -> Option<Arc<Content<E>>> {
        node.cached.lock().content.clone()
    }

    fn open(&self, node: &Node<E>) -> Answer<Arc<Content<E>>> {
        let store = self.store(Path::new(&node.path())).map_err(|error| io(&error))?;
        let store = Arc::new(store.with_ring(self.ring.clone()));
        let file = self.cache.open(store.clone()).map_err(|error| told(&error))?;
        Ok(Arc::new(Content { store, file, times: Mutex::default() }))
    }

    fn store(&self, path: &Path) -> std::io::Result<FileStore> {
        if self.buffered {
            return Ok(FileStore::open(path)?.buffered());
        }
        match FileStore::open_direct(path) {
            Ok(store) => Ok(store),
            Err(NotDirect::Open(error)) => Err(error),
            Err(why) => {
                // Only the first is kept.
                let _ = self.not_direct.set(why);
                FileStore::open(path)
            }
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attributes::Change;
    use crate::error::MountError;
    use crate::session::Options;
    use crate::shared::Shared;
    use rustix::fs::{Mode, open};
    use std::fs;
    use std::mem;
    use std::sync::mpsc;
    use std::thread;
    use std::time::{Duration, Instant};
    use tempfile::TempDir;
    use zonal_cache::faulty_store::Operation;
    use zonal_cache::store::StoreError;
    use zonal_cache::{FaultyStore, S3Fifo};

    const LONG: Duration = Duration::from_secs(20);

    /// A directory with a file of 100 bytes, without a mount.
    fn world() -> (TempDir, Shared<S3Fifo>, Arc<Node<S3Fifo>>) {
        let place = tempfile::tempdir().unwrap();
        fs::write(place.path().join("file"), [1; 100]).unwrap();
        let find = OFlags::PATH | OFlags::CLOEXEC;
        let open = |name: &str| open(place.path().join(name), find, Mode::empty()).unwrap();
        let cache = Cache::builder().memory(1 << 20).io_threads(0).open().unwrap();
        let contents = Contents::new(cache, 16, true);
        let shared = Shared::new(open("."), contents, &Options::default()).unwrap();
        let (node, _) = shared.nodes.adopt(open("file")).unwrap();
        (place, shared, node)
    }

    /// Who asks for the size while data leave is told what the file below has then.
    #[test]
    fn a_size_is_never_that_of_before_the_data_left() {
        let (_place, shared, node) = world();
        let content = shared.contents.get(&node, false, true).unwrap();
        content.file.write_at(&[2; 50], 100).unwrap();
        let mut cached = node.cached.lock();
        let asks = thread::spawn({
            let node = node.clone();
            move || Shared::attr(&node).unwrap().size
        });
        // It waits for the lock.
        thread::sleep(Duration::from_millis(100));
        content.write_back().unwrap();
        cached.content = None;
        drop(cached);
        assert_eq!(asks.join().unwrap(), 150);
    }

    /// A thread that is at the data of one inode, for as long as they are written, is waited for by none that looks for others.
    #[test]
    fn data_that_a_thread_is_at_hold_up_no_other_inode() {
        let (_place, shared, node) = world();
        let (number, shared) = (node.number, Arc::new(shared));
        assert!(shared.nodes.forget(number, 1).is_some());
        let cached = node.cached.lock();
        let (asks, answer) = mpsc::channel();
        thread::spawn({
            let shared = shared.clone();
            move || asks.send(shared.nodes.remove(number))
        });
        assert_eq!(answer.recv_timeout(LONG), Ok(false), "it is to be asked for again");
        assert_eq!(shared.nodes.len(), 2);
        drop(cached);
        shared.forget(number, 0);
        assert_eq!(shared.nodes.len(), 1);
    }

    #[test]
    fn what_could_only_be_read_is_opened_anew_to_be_changed() {
        let (_place, shared, node) = world();
        let store = Arc::new(FileStore::open_read_only(Path::new(&node.path())).unwrap());
        let file = shared.cache().open(store.clone()).unwrap();
        let content = Arc::new(Content { store, file, times: Mutex::default() });
        node.cached.lock().content = Some(content);
        let empty = Change { size: Some(0), ..Change::default() };
        let writes = OFlags::RDWR.bits() as i32;
        let reads = shared.open(node.number, OFlags::RDONLY.bits() as i32).unwrap();
        let refused = shared.set_attr(node.number, &empty).map(|attr| attr.size).unwrap_err();
        assert_eq!(refused.code(), Errno::EROFS.code(), "it is in use so");
        let refused = shared.open(node.number, writes).map(drop).unwrap_err();
        assert_eq!(refused.code(), Errno::EROFS.code());
        shared.release(reads);
        // A call that asks what the file looks like is no use of it.
        let _asks = Contents::peek(&node);
        assert!(shared.open(node.number, writes).is_ok());
        assert_eq!(shared.set_attr(node.number, &empty).map(|attr| attr.size).unwrap(), 0);
    }

    /// More than the cache has room for was written, and the file below could not keep it: a second try does not bring
    /// back what had left memory.
    #[test]
    fn what_was_lost_is_told_at_the_end() {
        let (_place, shared, node) = world();
        let store = Arc::new(FileStore::open(Path::new(&node.path())).unwrap().buffered());
        let failed = Mutex::new(false);
        let once = move |operation| {
            let fails = operation == Operation::Flush && !mem::replace(&mut failed.lock(), true);
            fails.then_some(StoreError::IO)
        };
        let file = shared.cache().open(FaultyStore::new(store.clone(), once)).unwrap();
        let content = Arc::new(Content { store, file, times: Mutex::default() });
        (0..512).for_each(|page| assert!(content.file.write_at(&[2; 4096], page * 4096).is_ok()));
        node.cached.lock().content = Some(content);
        match shared.finish() {
            Err(MountError::NotWritten { pages, files: 1, source }) => {
                assert!((256..512).contains(&pages), "{pages}");
                let said = format!("\nwrite_errors 0\nflush_errors 1\npages_lost {pages}\n");
                assert!(shared.statistics_text().contains(&said), "{}", shared.statistics_text());
                assert_eq!(source.raw_os_error(), Some(Errno::EIO.code()));
            }
            other => panic!("{other:?}"),
        }
    }

    /// A write that began while there was no space fails when there is some, in the middle of the end.
    #[test]
    fn what_fails_late_at_the_end_is_tried_once_more() {
        let (place, shared, node) = world();
        let store = Arc::new(FileStore::open(Path::new(&node.path())).unwrap().buffered());
        let (comes, came) = mpsc::channel();
        let (opens, opened) = mpsc::channel::<()>();
        let opened = Mutex::new(Some(opened));
        let full = move |operation| {
            let writes = matches!(operation, Operation::Write { .. });
            // The first.
            let door = opened.lock().take_if(|_| writes)?;
            comes.send(()).unwrap();
            let _ = door.recv_timeout(LONG);
            Some(StoreError::NO_SPACE)
        };
        let file = shared.cache().open(FaultyStore::new(store.clone(), full)).unwrap();
        let content = Arc::new(Content { store, file, times: Mutex::default() });
        content.file.write_at(&[2; 50], 0).unwrap();
        node.cached.lock().content = Some(content);
        let shared = &shared;
        thread::scope(|scope| {
            scope.spawn(|| shared.cache().write_behind(Duration::ZERO));
            came.recv_timeout(LONG).unwrap();
            let finish = scope.spawn(|| shared.finish());
            // It waits for the other thread.
            thread::sleep(Duration::from_millis(100));
            opens.send(()).unwrap();
            finish.join().unwrap().unwrap();
        });
        assert_eq!(fs::read(place.path().join("file")).unwrap()[..50], [2; 50]);
    }

    /// One hangs in its store, and a thread is at the data of another: all others are written, and have their times.
    #[test]
    fn what_hangs_at_the_end_holds_up_no_other_file() {
        let (place, shared, hangs) = world();
        let (opens, opened) = mpsc::channel::<()>();
        let opened = Arc::new(Mutex::new(opened));
        let dirty = |node: &Node<S3Fifo>, hangs: bool| {
            let store = Arc::new(FileStore::open(Path::new(&node.path())).unwrap().buffered());
            let door = opened.clone();
            let wait = move |operation| {
                let waits = hangs && operation == Operation::Flush;
                let _ = waits.then(|| door.lock().recv_timeout(LONG));
                None::<StoreError>
            };
            let file = shared.cache().open(FaultyStore::new(store.clone(), wait)).unwrap();
            file.write_at(&[2; 100], 0).unwrap();
            let content = Arc::new(Content { store, file, times: Mutex::default() });
            content.set_changed();
            node.cached.lock().content = Some(content);
        };
        let others = [(); 6].map(|()| tempfile::NamedTempFile::new_in(place.path()).unwrap());
        let find = OFlags::PATH | OFlags::CLOEXEC;
        let adopt = |path: &Path| shared.nodes.adopt(open(path, find, Mode::empty()).unwrap());
        let nodes = others.each_ref().map(|other| adopt(other.path()).unwrap().0);
        nodes.iter().for_each(|node| dirty(node, false));
        dirty(&hangs, true);
        let [at_it, well @ ..] = &nodes;
        let is_there = |node: &Arc<Node<S3Fifo>>| {
            let settled = Contents::peek(node).is_some_and(|it| it.times().modified.is_none());
            settled && fs::read(node.path()).unwrap() == [2; 100]
        };
        thread::scope(|scope| {
            let (opens, at_it) = (opens, at_it.cached.lock());
            let (finish, start) = (scope.spawn(|| shared.finish()), Instant::now());
            while !well.iter().all(is_there) {
                assert!(start.elapsed() < LONG / 2, "those behind it wait");
                thread::yield_now();
            }
            assert!(!finish.is_finished());
            drop((opens, at_it));
            finish.join().unwrap().unwrap();
        });
        assert!(nodes.iter().chain([&hangs]).all(is_there));
    }
}
