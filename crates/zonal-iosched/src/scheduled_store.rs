//! An I/O scheduler below the page cache: a [`Store`] in front of another, whose reads and writes become
//! requests in sectors that a few threads do in the order that the scheduler says.
//!
//! - **Who asks** is the [process] of the calling thread: of a read the thread that waits for it,
//!   of what is read ahead the thread that met the mark, of a write the thread that writes back.
//! - **Sync** are reads, and writes that a sync waits for ([`Store::write_sync`]); no request is expected soon behind
//!   such a write. Others are async.
//! - **Length**: what is longer than a request may be is several; neighbours that are queued become one.
//! - **Reads ahead** take no thread each, and go to their pages without a copy. They are submitted together.
//! - **Writes here and there** are submitted together too, so that the scheduler has them all to choose from
//!   ([`Store::write_each`]).
//! - **Errors** are told where they belong: what failed as one request is tried part by part.
//! - A full queue is waited for. [`flush`](Store::flush) waits for all writes that were submitted before.
//!
//! Holes and changes of length pass the scheduler by. What is read for a thread that waits, and all that is written,
//! is copied once: the threads have no hold on the caller's pages.
//!
//! ```
//! use zonal_cache::{Cache, FileStore, S3Fifo};
//! use zonal_iosched::scheduled_store::ScheduledStore;
//! use zonal_iosched::scheduler::{Kind, Subject};
//!
//! let path = std::env::temp_dir().join(format!("zonal-scheduled-{}", std::process::id()));
//! # std::fs::write(&path, [7; 100_000])?;
//! let policy = Subject::new(Kind::Deadline).policy();
//! let store = ScheduledStore::new(FileStore::open(&path)?, policy, 4)?;
//! let cache = Cache::<S3Fifo>::builder().memory(16 << 20).open()?;
//! let file = cache.open(store)?;
//! assert_eq!(file.read_at(&mut [0; 5000], 0)?, 5000);
//! file.write_at(b"bytes", 99_998)?;
//! file.sync()?;
//! # assert_eq!(std::fs::read(&path)?.len(), 100_003);
//! # std::fs::remove_file(&path)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::cell::Cell;
use std::fmt;
use std::io;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use zonal_cache::frames::PAGE;
use zonal_cache::store::{LaterRead, Purpose, Store, StoreError, Write};
use zonal_cfq::counters::Counters;
use zonal_cfq::elevator::Limits;
use zonal_cfq::policy::Policy;
use zonal_cfq::request::{Direction, Dispatched, Outcome, Request};
use zonal_cfq::units::{Process, Sector, Sectors, Span};

use crate::process;
use crate::queue::Queue;
use crate::target_file::Buffer;

/// What a store says that was [stopped](ScheduledStore::stop): `ESHUTDOWN`.
pub const STOPPED: StoreError = StoreError::from_code(108);

/// Writes that are queued together: a quarter of the places that a scheduler has for writes.
const WRITES: usize = 32;

/// Stores are told apart by a number. Relaxed: only that they differ matters.
static NUMBERS: AtomicU64 = AtomicU64::new(1);

thread_local! {
    /// The number of the store whose requests this thread does; 0 for none.
    static SERVES: Cell<u64> = const { Cell::new(0) };
}

/// A store behind a scheduler: see the [module](self).
pub struct ScheduledStore<S: Store> {
    shared: Arc<Shared<S>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// What all threads share.
struct Shared<S> {
    inner: S,
    number: u64,
    queue: Queue<Job>,
    /// Reads that were taken and not begun, and the processes that they are for.
    taken: Mutex<Vec<(Process, LaterRead)>>,
    /// Bytes of a request at most.
    longest: usize,
}

/// A request, as far as the scheduler does not know it.
struct Job {
    data: Data,
    result: Result<u64, StoreError>,
}

enum Data {
    /// Pages of the cache, which wait for their bytes.
    Later(LaterRead),
    /// What a thread waits for: which part of it, and whom to tell.
    Asked { piece: Piece, part: usize, answer: Sender<Answer> },
}

/// Bytes on their way.
struct Piece {
    buffer: Buffer,
    bytes: usize,
}

struct Answer {
    part: usize,
    piece: Piece,
    result: Result<u64, StoreError>,
}

/// What a thread asks for and waits for.
#[derive(Clone, Copy)]
enum Ask {
    Read,
    Write,
    WriteSync,
}

impl Ask {
    fn request(self, process: Process, start: Sector, sectors: Sectors) -> Request {
        match self {
            Self::Read => Request::read(process, start, sectors),
            Self::Write => Request::write(process, start, sectors),
            Self::WriteSync => Request::write(process, start, sectors).sync().last(),
        }
    }
}

impl Piece {
    fn new(bytes: usize) -> Self {
        Self { buffer: Buffer::new(bytes), bytes }
    }

    fn bytes(&mut self) -> &mut [u8] {
        self.buffer.bytes(self.bytes)
    }
}

impl Job {
    fn len(&mut self) -> usize {
        match &mut self.data {
            Data::Later(later) => later.pieces().iter().map(|page| page.len()).sum(),
            Data::Asked { piece, .. } => piece.bytes,
        }
    }

    fn pages(&mut self) -> Vec<&mut [u8]> {
        match &mut self.data {
            Data::Later(later) => later.pieces(),
            Data::Asked { piece, .. } => piece.bytes().chunks_mut(PAGE).collect(),
        }
    }

    /// Tells who waits.
    fn end(self) {
        let result = self.result;
        match self.data {
            Data::Later(later) => {
                // What panics there ends that read, not the thread.
                drop(catch_unwind(AssertUnwindSafe(|| later.end(result))));
            }
            Data::Asked { piece, part, answer } => {
                // One that is gone does not wait.
                let _ = answer.send(Answer { part, piece, result });
            }
        }
    }
}

impl<S: Store> Shared<S> {
    /// Reads or writes what `jobs` are about, which follow each other from `offset` on; how much, of which an
    /// earlier one has its share first.
    fn at_once(
        &self,
        direction: Direction,
        offset: u64,
        jobs: &mut [Job],
    ) -> Result<u64, StoreError> {
        let bytes: usize = jobs.iter_mut().map(Job::len).sum();
        let mut pages: Vec<&mut [u8]> = jobs.iter_mut().flat_map(Job::pages).collect();
        let done = catch_unwind(AssertUnwindSafe(|| match direction {
            Direction::Read => self.inner.read(offset, &mut pages),
            Direction::Write => {
                let pages: Vec<&[u8]> = pages.iter().map(|page| &**page).collect();
                self.inner.write(offset, &pages).map(|()| bytes as u64)
            }
        }));
        // A store that panics ends its request, not the thread.
        done.unwrap_or(Err(StoreError::IO))
    }

    /// Does what a token says: all parts at once, and each by itself if that fails.
    fn transfer(&self, token: &Dispatched, jobs: &mut [Job]) -> Outcome {
        let (direction, parts) = (token.direction(), token.parts());
        // Only the last may end within a page.
        let behind = jobs.len().saturating_sub(1);
        let whole = jobs[..behind].iter_mut().all(|job| job.len() % PAGE == 0);
        let all = whole.then(|| self.at_once(direction, token.start().bytes(), jobs));
        match all {
            Some(Ok(mut got)) => {
                for job in &mut *jobs {
                    let own = got.min(job.len() as u64);
                    got -= own;
                    job.result = Ok(own);
                }
            }
            Some(Err(error)) if jobs.len() == 1 => jobs[0].result = Err(error),
            _ => {
                for (part, at) in parts.iter().zip(0..) {
                    let own = self.at_once(direction, part.start.bytes(), &mut jobs[at..=at]);
                    jobs[at].result = own;
                }
            }
        }
        let failed = jobs.iter().any(|job| job.result.is_err());
        if failed { Outcome::Failed } else { Outcome::Done }
    }

    fn take_taken(&self) -> Vec<(Process, LaterRead)> {
        mem::take(&mut *self.taken.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn work(&self) {
        SERVES.set(self.number);
        self.queue.serve(|token, jobs| self.transfer(token, jobs), |job, _| job.end());
    }

    /// Whether this thread does the requests of this store. It does what it wants of it itself: no other thread
    /// may be left to. A read ahead that came back short is read again by the thread that ends it.
    fn is_served_here(&self) -> bool {
        SERVES.get() == self.number
    }

    /// Has pieces read or written, each at its offset; waits for all, and says how they went in their order.
    fn ask(
        &self,
        ask: Ask,
        pieces: impl Iterator<Item = (u64, Piece)>,
    ) -> Result<Vec<Answer>, StoreError> {
        let process = process::current();
        let (answer, answers) = channel();
        let mut parts = 0;
        let one = |(offset, piece): (u64, Piece)| {
            let (start, sectors) = (Sector(offset / 512), sectors(piece.bytes));
            parts += 1;
            let data = Data::Asked { piece, part: parts - 1, answer: answer.clone() };
            let job = Job { data, result: Err(StoreError::IO) };
            (move || ask.request(process, start, sectors), job)
        };
        // Before the queue is locked.
        let batch: Vec<_> = pieces.map(one).collect();
        let submitted = self.queue.submit(batch);
        drop(answer);
        // Ends when each is told or dropped.
        let mut all: Vec<Answer> = answers.iter().collect();
        if submitted.is_err() && self.queue.is_over() {
            return Err(STOPPED);
        }
        if submitted.is_err() || all.len() != parts {
            return Err(StoreError::IO);
        }
        all.sort_unstable_by_key(|answer| answer.part);
        Ok(all)
    }

    /// The pieces of a write, with their offsets. Only the last may have pages that are not whole.
    fn pieces<'a>(
        &self,
        offset: u64,
        pages: &'a [&'a [u8]],
    ) -> impl ExactSizeIterator<Item = (u64, Piece)> + use<'a, S> {
        let longest = self.longest / PAGE;
        pages.chunks(longest).enumerate().map(move |(number, pages)| {
            let mut piece = Piece::new(pages.iter().map(|page| page.len()).sum());
            let mut rest = piece.bytes();
            for page in pages {
                let (own, others) = rest.split_at_mut(page.len());
                own.copy_from_slice(page);
                rest = others;
            }
            (offset + (number * longest * PAGE) as u64, piece)
        })
    }

    fn write(&self, ask: Ask, offset: u64, pages: &[&[u8]]) -> Result<(), StoreError> {
        if self.is_served_here() {
            return self.inner.write(offset, pages);
        }
        self.write_each(ask, &[Write { offset, pages }]).into_iter().collect()
    }

    /// Several writes, which are queued together.
    fn write_each(&self, ask: Ask, writes: &[Write<'_>]) -> Vec<Result<(), StoreError>> {
        let all: Vec<_> =
            writes.iter().map(|write| self.pieces(write.offset, write.pages)).collect();
        let counts: Vec<usize> = all.iter().map(ExactSizeIterator::len).collect();
        match self.ask(ask, all.into_iter().flatten()) {
            Err(error) => counts.iter().map(|_| Err(error)).collect(),
            Ok(answers) => {
                let mut answers = answers.into_iter();
                let mut own = |count: &usize| {
                    // Each is taken, also behind an error.
                    let own: Vec<_> = answers.by_ref().take(*count).collect();
                    own.into_iter().try_for_each(|answer| answer.result.map(|_| ()))
                };
                counts.iter().map(&mut own).collect()
            }
        }
    }
}

fn sectors(bytes: usize) -> Sectors {
    // One that is too long is refused by the scheduler.
    Sectors::from_bytes(u32::try_from(bytes).unwrap_or(u32::MAX))
}

impl<S: Store> ScheduledStore<S> {
    /// The store `inner` behind a scheduler, with `depth` requests at it at a time (one at least).
    ///
    /// # Errors
    ///
    /// What the system said to a new thread.
    pub fn new(inner: S, policy: Box<dyn Policy + Send>, depth: usize) -> io::Result<Self> {
        // Where the store ends it says itself: a file may grow.
        let queue = Queue::new(policy, Sector(u64::MAX / 512));
        let number = NUMBERS.fetch_add(1, Relaxed);
        let longest = Limits::default().longest.bytes() as usize;
        let taken = Mutex::default();
        let shared = Arc::new(Shared { inner, number, queue, taken, longest });
        // If a thread cannot be had, this is dropped, and ends those that there are.
        let store = Self { shared, threads: Mutex::default() };
        for index in 0..depth.max(1) {
            let shared = store.shared.clone();
            let name = format!("io-{index}");
            let thread = thread::Builder::new().name(name).spawn(move || shared.work())?;
            store.threads.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
        }
        Ok(store)
    }

    /// The store behind.
    #[must_use]
    pub fn inner(&self) -> &S {
        &self.shared.inner
    }

    /// The scheduler's counters.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.shared.queue.figures().0
    }

    /// How long the scheduler kept the store waiting for a request that might come.
    #[must_use]
    pub fn idled(&self) -> Span {
        self.shared.queue.figures().1
    }

    /// The process will ask for nothing any more: what was kept about it can go.
    pub fn exited(&self, process: Process) {
        self.shared.queue.exited(process);
    }

    /// Ends all requests that were submitted, and the threads; waits for that, unless it is one of these that calls.
    /// What is asked for from now on is an error, [`STOPPED`]. Dropping the store does the same.
    pub fn stop(&self) {
        self.shared.queue.stop();
        // Their pages leave the cache again.
        drop(self.shared.take_taken());
        if !self.shared.is_served_here() {
            let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
            for thread in threads.drain(..) {
                // It catches what panics.
                let _ = thread.join();
            }
        }
    }
}

impl<S: Store> Store for ScheduledStore<S> {
    fn len(&self) -> Result<u64, StoreError> {
        self.shared.inner.len()
    }

    fn has_fixed_len(&self) -> bool {
        self.shared.inner.has_fixed_len()
    }

    fn read(&self, offset: u64, pages: &mut [&mut [u8]]) -> Result<u64, StoreError> {
        if self.shared.is_served_here() {
            return self.shared.inner.read(offset, pages);
        }
        let most = self.shared.longest / PAGE;
        let sizes: Vec<usize> =
            pages.chunks(most).map(|pages| pages.iter().map(|page| page.len()).sum()).collect();
        // All but the last are as long as may be.
        let piece = |(number, bytes)| (offset + (number * most * PAGE) as u64, Piece::new(bytes));
        let pieces = sizes.into_iter().enumerate().map(piece);
        let answers = self.shared.ask(Ask::Read, pieces)?;
        let mut done = 0;
        for (pages, mut answer) in pages.chunks_mut(most).zip(answers) {
            let got = answer.result?;
            let mut rest = &*answer.piece.bytes();
            for page in pages {
                let (own, others) = rest.split_at(page.len());
                page.copy_from_slice(own);
                rest = others;
            }
            done += got;
            if got < answer.piece.bytes as u64 {
                break;
            }
        }
        Ok(done)
    }

    fn read_later(&self, mut later: LaterRead) -> Result<(), LaterRead> {
        let bytes: usize = later.pieces().iter().map(|page| page.len()).sum();
        if bytes > self.shared.longest || self.shared.queue.is_over() {
            return Err(later);
        }
        let mut taken = self.shared.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.push((process::current(), later));
        Ok(())
    }

    fn begin_reads(&self) {
        let taken = self.shared.take_taken();
        if taken.is_empty() {
            return;
        }
        let one = |(process, mut later): (Process, LaterRead)| {
            let start = Sector(later.offset() / 512);
            let sectors = sectors(later.pieces().iter().map(|page| page.len()).sum());
            let job = Job { data: Data::Later(later), result: Err(StoreError::IO) };
            (move || Request::read(process, start, sectors), job)
        };
        let batch: Vec<_> = taken.into_iter().map(one).collect();
        // What is not queued is dropped, and its pages leave the cache again.
        let _ = self.shared.queue.submit(batch);
    }

    fn write(&self, offset: u64, pages: &[&[u8]]) -> Result<(), StoreError> {
        self.shared.write(Ask::Write, offset, pages)
    }

    fn write_sync(&self, offset: u64, pages: &[&[u8]]) -> Result<(), StoreError> {
        self.shared.write(Ask::WriteSync, offset, pages)
    }

    fn writes_at_once(&self) -> usize {
        WRITES
    }

    fn write_each(
        &self,
        writes: &[Write<'_>],
        purpose: Purpose,
        ended: &mut dyn FnMut(usize, Result<(), StoreError>),
    ) {
        if self.shared.is_served_here() {
            return self.shared.inner.write_each(writes, purpose, ended);
        }
        let ask = if purpose == Purpose::Sync { Ask::WriteSync } else { Ask::Write };
        let results = self.shared.write_each(ask, writes).into_iter().enumerate();
        results.for_each(|(number, result)| ended(number, result));
    }

    fn set_len(&self, len: u64) -> Result<(), StoreError> {
        self.shared.inner.set_len(len)
    }

    fn zero(&self, offset: u64, len: u64) -> Result<(), StoreError> {
        self.shared.inner.zero(offset, len)
    }

    fn flush(&self) -> Result<(), StoreError> {
        if !self.shared.is_served_here() {
            self.shared.queue.wait_for_writes();
        }
        self.shared.inner.flush()
    }
}

impl<S: Store> Drop for ScheduledStore<S> {
    fn drop(&mut self) {
        self.stop();
    }
}

impl<S: Store + fmt::Debug> fmt::Debug for ScheduledStore<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScheduledStore").field("inner", self.inner()).finish_non_exhaustive()
    }
}
