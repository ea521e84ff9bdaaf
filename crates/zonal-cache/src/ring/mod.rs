//! Reads that are on their way while the caller goes on, and writes that are so together: an `io_uring` and a thread that
//! ends them.
//!
//! If the kernel takes no request for a second, it is asked no more: those that wait are done as where there is no ring,
//! and so are all that come later.
//!
//! ```
//! use zonal_cache::{Cache, FileStore, Ring, S3Fifo};
//! # let directory = tempfile::tempdir()?;
//! # let path = directory.path().join("file");
//! # std::fs::write(&path, [7; 100_000])?;
//! let cache = Cache::<S3Fifo>::builder().memory(16 << 20).open()?;
//! // Where the system has no io_uring, or refuses it, threads read ahead.
//! let ring = Ring::new(32).ok();
//! let file = cache.open(FileStore::open(&path)?.with_ring(ring))?;
//! let mut bytes = vec![0; 100_000];
//! assert_eq!(file.read_at(&mut bytes, 0)?, 100_000);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Registered buffers
//! [`Ring::with_buffers`] has the kernel know an arena's memory before it reads into it: pages are looked up and pinned
//! once, and not for each request. The price is that all of the arena is in memory from then on and none of it goes back
//! to the system ([`Arena::keep`]). Reads whose pages are no neighbours in memory go as on any other ring.

mod writes;

use crate::store::{LaterRead, StoreError};
use io_uring::{IoUring, opcode, squeue, types};
use parking_lot::Mutex;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use std::any::Any;
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::thread;
use std::time::Duration;
use writes::Together;
use zonal::policy::Policy;
use zonal_host::Arena;

/// How often the kernel is asked in vain to take requests, before it is given none any more: at once some times,
/// and then after a pause, for a second in all.
const TRIES: u32 = 1100;
const AT_ONCE: u32 = 100;
const PAUSE: Duration = Duration::from_millis(1);
/// Entries that a ring has at most.
const MOST: u32 = 4096;
/// Bytes of a registered buffer at most, as the kernel has it.
const BUFFER: usize = 1 << 30;

/// What is on its way.
enum Work {
    Read(LaterRead),
    /// One of several writes, by its number: who gave them waits for all.
    Write(Arc<Together>, usize),
}

/// A request on its way. It stays where it is, on the heap, until the kernel has ended it.
struct Request {
    work: Work,
    /// Which the kernel reads when it takes the request.
    pieces: Vec<libc::iovec>,
}

/// What the kernel has not taken.
#[derive(Default)]
struct Submission {
    /// The requests in the ring's queue, in order.
    waiting: VecDeque<u64>,
    /// It took none for too long. What is in the queue is no request any more: no call may have the kernel
    /// take any.
    broken: bool,
}

/// Memory that the kernel knows by number: buffer 0, and others from each [`BUFFER`] bytes on.
struct Buffers {
    base: usize,
    bytes: usize,
    /// Keeps the memory as it is.
    _arena: Box<dyn Any + Send + Sync>,
}

impl Buffers {
    /// The buffer that has all of `piece`.
    fn of(&self, piece: &libc::iovec) -> Option<u16> {
        let first = piece.iov_base.addr().checked_sub(self.base)?;
        let last = first.checked_add(piece.iov_len.checked_sub(1)?)?;
        let whole = last < self.bytes && first / BUFFER == last / BUFFER;
        whole.then(|| u16::try_from(first / BUFFER).ok()).flatten()
    }
}

struct Inner {
    ring: IoUring,
    /// Dropped after the ring, which may know them.
    buffers: Option<Buffers>,
    /// Reads into them.
    fixed: AtomicU64,
    /// Who has it may put entries in, and have the kernel take them.
    submission: Mutex<Submission>,
    /// Requests on their way.
    inside: AtomicU32,
    depth: u32,
    /// No more will come; told to the thread by what wakes it.
    over: AtomicBool,
    wake: OwnedFd,
}

/// Requests that the kernel works on: see the [module](self). Many files may share one.
pub struct Ring {
    inner: Arc<Inner>,
}

impl Ring {
    /// A ring on which up to `depth` requests are on their way at once; more are the caller's to do otherwise.
    ///
    /// # Errors
    /// What the system says where it has no `io_uring` or this process may not use it.
    pub fn new(depth: u32) -> io::Result<Arc<Self>> {
        Self::start(depth, |_| None)
    }

    /// The same with all of an arena's memory registered as buffers, if the kernel and the limits of this process
    /// (`RLIMIT_MEMLOCK`) allow that: [`registered`](Self::registered) says so. Then the arena [keeps](Arena::keep) its
    /// memory for as long as the ring is there: all of it, what is reserved too, is in memory at once.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn with_buffers<S: Policy>(depth: u32, arena: &Arc<Arena<S>>) -> io::Result<Arc<Self>>
    where
        Arena<S>: Send + Sync + 'static,
    {
        Self::start(depth, |ring| register(ring, arena))
    }

    fn start(
        depth: u32,
        register: impl FnOnce(&IoUring) -> Option<Buffers>,
    ) -> io::Result<Arc<Self>> {
        let depth = depth.clamp(1, MOST);
        let ring = IoUring::new(depth)?;
        let wake = eventfd(0, EventfdFlags::CLOEXEC)?;
        let (submission, inside) = (Mutex::default(), AtomicU32::new(0));
        let (over, fixed) = (AtomicBool::new(false), AtomicU64::new(0));
        let buffers = register(&ring);
        let inner = Inner { ring, buffers, fixed, submission, inside, depth, over, wake };
        let inner = Arc::new(inner);
        let theirs = inner.clone();
        thread::Builder::new().name("cache-ring".to_owned()).spawn(move || theirs.work())?;
        Ok(Arc::new(Self { inner }))
    }

    /// Bytes of memory that the kernel knows as buffers; 0 without, or where it refused them.
    #[must_use]
    pub fn registered(&self) -> usize {
        self.inner.buffers.as_ref().map_or(0, |buffers| buffers.bytes)
    }

    /// Reads that went into registered buffers.
    #[must_use]
    pub fn fixed_reads(&self) -> u64 {
        // Relaxed: a count.
        self.inner.fixed.load(Relaxed)
    }

    /// Has the kernel begin what it was given. Together, so that it joins neighbours: a request to a disk costs
    /// more than its bytes.
    pub(crate) fn begin(&self) {
        self.inner.submit_all();
    }

    /// Gives the kernel a read, to [`begin`](Self::begin).
    ///
    /// # Errors
    /// The read, if `depth` are on their way already, or the kernel takes none any more.
    pub(crate) fn read(&self, file: BorrowedFd<'_>, later: LaterRead) -> Result<(), LaterRead> {
        if !self.enter() {
            return Err(later);
        }
        let mut later = later;
        let offset = later.offset();
        let pieces = later.pieces().into_iter().map(|piece| (piece.as_mut_ptr(), piece.len()));
        let pieces = joined(pieces);
        let request = Box::new(Request { work: Work::Read(later), pieces });
        let buffer = self.buffer_of(&request.pieces);
        let target = types::Fd(file.as_raw_fd());
        let entry = match (buffer, &request.pieces[..]) {
            (Some(buffer), [piece]) => {
                let (at, len) = (piece.iov_base.cast(), piece.iov_len as u32);
                opcode::ReadFixed::new(target, at, len, buffer).offset(offset).build()
            }
            (_, pieces) => {
                let count = pieces.len() as u32;
                opcode::Readv::new(target, pieces.as_ptr(), count).offset(offset).build()
            }
        };
        self.give(request, entry).map_err(|request| match request.work {
            Work::Read(later) => later,
            Work::Write(..) => unreachable!("made above"),
        })?;
        self.inner.fixed.fetch_add(u64::from(buffer.is_some()), Relaxed);
        Ok(())
    }

    /// The registered buffer that has all of them, if they are one piece.
    fn buffer_of(&self, pieces: &[libc::iovec]) -> Option<u16> {
        match (&self.inner.buffers, pieces) {
            (Some(buffers), [piece]) => buffers.of(piece),
            _ => None,
        }
    }

    /// Counts a request in, if there is room for one: before it is made.
    fn enter(&self) -> bool {
        // Relaxed: a count.
        let has_room = self.inner.inside.fetch_add(1, Relaxed) < self.inner.depth;
        if !has_room {
            self.inner.inside.fetch_sub(1, Relaxed);
        }
        has_room
    }

    /// Puts a request that was [counted in](Self::enter), of which `entry` is, into the queue. The memory that it is about stays, and is not used otherwise,
    /// until the request is ended.
    fn give(&self, request: Box<Request>, entry: squeue::Entry) -> Result<(), Box<Request>> {
        let request = Box::into_raw(request);
        let entry = entry.user_data(request as u64);
        let pushed = {
            let mut submission = self.inner.submission.lock();
            // SAFETY: who has the lock is alone with the queue.
            let mut queue = unsafe { self.inner.ring.submission_shared() };
            // SAFETY: the pieces and the array of them stay until the request is ended: by the thread of the
            // ring, when the kernel has, or by who found the ring broken, after which the kernel takes none.
            let pushed = !submission.broken && unsafe { queue.push(&entry) }.is_ok();
            if pushed {
                submission.waiting.push_back(request as u64);
            }
            pushed
        };
        if pushed {
            return Ok(());
        }
        self.inner.inside.fetch_sub(1, Relaxed);
        // SAFETY: made above, and the kernel was not told of it.
        Err(unsafe { Box::from_raw(request) })
    }
}

/// Has the kernel know an arena's memory, if it does.
fn register<S: Policy>(ring: &IoUring, arena: &Arc<Arena<S>>) -> Option<Buffers>
where
    Arena<S>: Send + Sync + 'static,
{
    // From before it is known until the ring has forgotten it: it stays mapped, and the same memory.
    let kept = arena.keep();
    let (start, bytes) = (arena.address_of(arena.first())?, arena.len());
    let base = start.addr().get();
    let buffers: Vec<libc::iovec> = (0..bytes)
        .step_by(BUFFER)
        .map(|at| libc::iovec {
            iov_base: start.as_ptr().wrapping_add(at).cast(),
            iov_len: BUFFER.min(bytes - at),
        })
        .collect();
    // SAFETY: the memory is mapped, and stays so and the same for as long as `kept` is there, which goes after the ring.
    // The kernel writes to it when it is told to read there, which is by who has the pages alone.
    let registered = unsafe { ring.submitter().register_buffers(&buffers) };
    registered.ok().map(|()| Buffers { base, bytes, _arena: Box::new(kept) })
}

/// Pieces, of which neighbours in memory are one.
fn joined(pieces: impl IntoIterator<Item = (*mut u8, usize)>) -> Vec<libc::iovec> {
    let mut joined: Vec<libc::iovec> = Vec::new();
    for (base, len) in pieces {
        match joined.last_mut() {
            Some(last) if last.iov_base.addr() + last.iov_len == base.addr() => last.iov_len += len,
            _ => joined.push(libc::iovec { iov_base: base.cast(), iov_len: len }),
        }
    }
    joined
}

impl Inner {
    /// Gives the kernel all that is in the queue. If it takes none for too long, the requests end with its error, and the
    /// ring takes no more.
    fn submit_all(&self) {
        let mut vain = 0;
        loop {
            let mut submission = self.submission.lock();
            if submission.waiting.is_empty() {
                return;
            }
            let submitted = self.ring.submit();
            // SAFETY: who has the lock is alone with the queue.
            let left = unsafe { self.ring.submission_shared() }.len();
            let taken = submission.waiting.len() - left;
            submission.waiting.drain(..taken);
            vain = if taken > 0 { 0 } else { vain + 1 };
            if vain > TRIES {
                submission.broken = true;
                let waiting = mem::take(&mut submission.waiting);
                drop(submission);
                let errno = submitted.err().and_then(|error| error.raw_os_error());
                let errno = errno.unwrap_or(libc::EIO);
                return waiting.into_iter().for_each(|request| self.end(request, -errno));
            }
            drop(submission);
            // It has no memory for more now, or too many that are not ended.
            if vain < AT_ONCE { thread::yield_now() } else { thread::sleep(PAUSE) }
        }
    }

    /// Ends what the kernel has ended, until no ring is left that could begin any.
    fn work(&self) {
        loop {
            // Once for a turn, so that what is watched and what is waited for are of the same moment. Acquire: what was
            // begun before is counted.
            let is_over = self.over.load(Acquire);
            if is_over && self.inside.load(Relaxed) == 0 {
                return;
            }
            let mut sources = [
                PollFd::from_borrowed_fd(self.fd(), PollFlags::IN),
                PollFd::new(&self.wake, PollFlags::IN),
            ];
            // It stays awake by the second one once that has said so.
            let watched = if is_over { &mut sources[..1] } else { &mut sources[..] };
            if poll(watched, None).is_err() {
                // A signal, or no memory: what there is is taken first.
                thread::sleep(PAUSE);
            }
            loop {
                // SAFETY: only this thread looks at completions.
                let next = unsafe { self.ring.completion_shared() }.next();
                let Some(entry) = next else { break };
                self.end(entry.user_data(), entry.result());
            }
        }
    }

    fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the ring has it open for as long as it is borrowed.
        unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) }
    }

    fn end(&self, request: u64, result: i32) {
        // SAFETY: put in by `give`, and each is ended once: by the kernel, or because it never took it.
        let request = unsafe { Box::from_raw(request as *mut Request) };
        // Before its pages are there: who waits for them may begin the next at once.
        self.inside.fetch_sub(1, Relaxed);
        let got = u64::try_from(result);
        let got = got.map_err(|_| StoreError::from_code(result.unsigned_abs()));
        match request.work {
            // What panics there ends that read, not the thread.
            Work::Read(later) => drop(catch_unwind(AssertUnwindSafe(|| later.end(got)))),
            Work::Write(together, number) => together.end(number, got),
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        self.inner.submit_all();
        // Release: with the acquire of the thread, which sees what was begun.
        self.inner.over.store(true, Release);
        // It can be interrupted, and nothing else.
        while rustix::io::write(&self.inner.wake, &1_u64.to_ne_bytes()).is_err() {
            thread::sleep(PAUSE);
        }
    }
}

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring")
            .field("depth", &self.inner.depth)
            .field("registered", &self.registered())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frames::PAGE;
    use crate::store::Later;
    use std::fs;
    use std::os::fd::AsFd;
    use std::time::Instant;

    struct Read {
        bytes: Vec<u8>,
        over: Arc<AtomicBool>,
    }

    impl Later for Read {
        fn offset(&self) -> u64 {
            0
        }
        fn pieces(&mut self) -> Vec<&mut [u8]> {
            vec![&mut self.bytes]
        }
        fn end(self: Box<Self>, got: Result<u64, StoreError>) {
            assert_eq!(got, Ok(PAGE as u64));
            self.over.store(true, Release);
        }
        fn queue(self: Box<Self>) {}
    }

    /// Threads of rings in this process, in which no other test has any.
    fn threads() -> usize {
        let name = |task: fs::DirEntry| fs::read_to_string(task.path().join("comm")).ok();
        let names = fs::read_dir("/proc/self/task").unwrap().filter_map(|task| name(task.unwrap()));
        names.filter(|name| name.trim() == "cache-ring").count()
    }

    /// Also where the ring goes at the moment at which its thread has ended the last read.
    #[test]
    fn a_ring_that_goes_leaves_no_thread() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(PAGE as u64).unwrap();
        for turn in 0..500 {
            let ring = match Ring::new(2) {
                Ok(ring) => ring,
                Err(error) => return eprintln!("not run: no io_uring: {error}"),
            };
            let over = Arc::<AtomicBool>::default();
            let read = Read { bytes: vec![0; PAGE], over: over.clone() };
            assert!(ring.read(file.as_fd(), LaterRead(Box::new(read))).is_ok());
            ring.begin();
            while !over.load(Acquire) {
                std::hint::spin_loop();
            }
            (0..turn * 10).for_each(|_| std::hint::spin_loop());
        }
        let start = Instant::now();
        while threads() > 0 {
            assert!(start.elapsed() < Duration::from_secs(20), "{} are left", threads());
            thread::sleep(Duration::from_millis(5));
        }
    }
}
