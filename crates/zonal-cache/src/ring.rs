//! Reads that are on their way while the caller goes on: an `io_uring` and a thread that ends them.
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

use crate::store::{LaterRead, StoreError};
use io_uring::{IoUring, opcode, types};
use parking_lot::Mutex;
use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;

/// What the last entry of a ring says.
const OVER: u64 = 0;
/// Entries that a ring has at most.
const MOST: u32 = 4096;

/// A read on its way. It stays where it is, on the heap, until the kernel has ended it.
struct Request {
    later: LaterRead,
    /// Which the kernel reads when it takes the request.
    pieces: Vec<libc::iovec>,
}

struct Inner {
    ring: IoUring,
    /// Who has it may put entries in.
    submission: Mutex<()>,
    /// Reads on their way.
    inside: AtomicU32,
    depth: u32,
}

/// Requests that the kernel works on: see the [module](self). Many files may share one.
pub struct Ring {
    inner: Arc<Inner>,
}

impl Ring {
    /// A ring on which up to `depth` reads are on their way at once; more are the caller's to do otherwise.
    ///
    /// # Errors
    /// What the system says where it has no `io_uring` or this process may not use it.
    pub fn new(depth: u32) -> io::Result<Arc<Self>> {
        let depth = depth.clamp(1, MOST);
        // One more, for the end.
        let ring = IoUring::builder().build(depth + 1)?;
        let inside = AtomicU32::new(0);
        let inner = Arc::new(Inner { ring, submission: Mutex::new(()), inside, depth });
        let theirs = inner.clone();
        thread::Builder::new().name("cache-ring".to_owned()).spawn(move || theirs.work())?;
        Ok(Arc::new(Self { inner }))
    }

    /// Has the kernel begin what it was given. Together, so that it joins neighbours: a request to a disk costs
    /// more than its bytes.
    pub(crate) fn begin(&self) {
        self.inner.submit_all();
    }

    /// Gives the kernel a read, to [`begin`](Self::begin).
    ///
    /// # Errors
    /// The read, if `depth` are on their way already.
    pub(crate) fn read(&self, file: BorrowedFd<'_>, later: LaterRead) -> Result<(), LaterRead> {
        // Relaxed: a count.
        if self.inner.inside.fetch_add(1, Relaxed) >= self.inner.depth {
            self.inner.inside.fetch_sub(1, Relaxed);
            return Err(later);
        }
        let mut request = Box::new(Request { later, pieces: Vec::new() });
        request.pieces = joined(request.later.pieces());
        let (at, count) = (request.pieces.as_ptr(), request.pieces.len() as u32);
        let offset = request.later.offset();
        let request = Box::into_raw(request);
        let entry = opcode::Readv::new(types::Fd(file.as_raw_fd()), at, count);
        let entry = entry.offset(offset).build().user_data(request as u64);
        let pushed = {
            let _alone = self.inner.submission.lock();
            // SAFETY: who has the lock is alone with the queue.
            let mut queue = unsafe { self.inner.ring.submission_shared() };
            // SAFETY: the pieces and the array of them stay until the request is ended: only the thread of
            // the ring does that, when the kernel has.
            unsafe { queue.push(&entry) }
        };
        if pushed.is_err() {
            self.inner.inside.fetch_sub(1, Relaxed);
            // SAFETY: made above, and the kernel was not told of it.
            return Err(unsafe { Box::from_raw(request) }.later);
        }
        Ok(())
    }
}

/// Pieces, of which neighbours in memory are one.
fn joined(pieces: Vec<&mut [u8]>) -> Vec<libc::iovec> {
    let mut joined: Vec<libc::iovec> = Vec::with_capacity(pieces.len());
    for piece in pieces {
        let (base, len) = (piece.as_mut_ptr().cast::<libc::c_void>(), piece.len());
        match joined.last_mut() {
            Some(last) if last.iov_base.addr() + last.iov_len == base.addr() => last.iov_len += len,
            _ => joined.push(libc::iovec { iov_base: base, iov_len: len }),
        }
    }
    joined
}

impl Inner {
    /// Gives the kernel all that is in the queue. The thread of the ring may be asleep and gives it none.
    fn submit_all(&self) {
        loop {
            let submitted = self.ring.submit();
            let _alone = self.submission.lock();
            // SAFETY: who has the lock is alone with the queue.
            let is_empty = unsafe { self.ring.submission_shared() }.is_empty();
            if is_empty {
                return;
            }
            if submitted.is_err() {
                // It has no memory for it now.
                thread::yield_now();
            }
        }
    }

    /// Ends what the kernel has ended, until no ring is left that could begin any.
    fn work(&self) {
        let mut over = false;
        while !over || self.inside.load(Relaxed) > 0 {
            let waited = self.ring.submit_and_wait(1);
            if waited.is_err_and(|error| error.kind() != io::ErrorKind::Interrupted) {
                // Too many completions at once, or no memory: what there is is taken first.
                thread::yield_now();
            }
            loop {
                // SAFETY: only this thread looks at completions.
                let next = unsafe { self.ring.completion_shared() }.next();
                let Some(entry) = next else { break };
                if entry.user_data() == OVER {
                    over = true;
                    continue;
                }
                self.end(entry.user_data(), entry.result());
            }
        }
    }

    fn end(&self, request: u64, result: i32) {
        // SAFETY: put in by `read`, and the kernel ends each once.
        let request = unsafe { Box::from_raw(request as *mut Request) };
        // Before its pages are there: who waits for them may begin the next at once.
        self.inside.fetch_sub(1, Relaxed);
        let got = u64::try_from(result);
        let end =
            || request.later.end(got.map_err(|_| StoreError::from_code(result.unsigned_abs())));
        // What panics there ends that read, not the thread.
        drop(catch_unwind(AssertUnwindSafe(end)));
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        let entry = opcode::Nop::new().build().user_data(OVER);
        let alone = self.inner.submission.lock();
        // SAFETY: who has the lock is alone with the queue.
        let mut queue = unsafe { self.inner.ring.submission_shared() };
        // SAFETY: it refers to nothing. There is room: one entry more than reads.
        let _ = unsafe { queue.push(&entry) };
        drop((queue, alone));
        self.inner.submit_all();
    }
}

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring").field("depth", &self.inner.depth).finish_non_exhaustive()
    }
}
