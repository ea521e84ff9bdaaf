//! The host that most have: threads, an arena, real time.
//!
//! ```
//! use zonal_cache::{Cache, MemoryStore, Sieve};
//! let cache = Cache::<Sieve>::builder().memory(1 << 20).io_threads(0).open()?;
//! let file = cache.open(MemoryStore::default())?;
//! file.write_at(b"kept", 0)?;
//! file.sync()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use crate::ArenaFrames;
use crate::cache::{Options, PageCache};
use crate::error::CacheError;
use crate::evict::{Evict, S3Fifo};
use crate::frames::PAGE;
use crate::host::{Host, Job};
use crate::inner::Setup;
use crate::lru::{LruLock, Whole};
use crate::within;
use crate::writer::{self, Bell};
use parking_lot::{Condvar, Mutex};
use std::fmt;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, AtomicUsize};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};
use zonal::CpuId;
use zonal::platform::Platform;
use zonal_host::arena::ArenaError;
use zonal_host::biased_slot::BiasedSlot;
use zonal_host::park_lock::ParkLock;
use zonal_host::{Arena, HugePages, cpu};

/// A cache on threads, with frames of an arena. `E` is the [policy](crate::evict), `L` says where its
/// [lock](crate::lru) is.
pub type Cache<E = S3Fifo, L = Whole> = PageCache<OnThreads<E, L>>;
/// A file of such a cache.
pub type CacheFile<E = S3Fifo, L = Whole> = crate::File<OnThreads<E, L>>;

/// The parts of a [`Cache`].
#[derive(Debug)]
pub struct OnThreads<E = S3Fifo, L = Whole>(PhantomData<fn() -> (E, L)>);

impl<E: Evict, L: LruLock> Setup for OnThreads<E, L> {
    type Host = Threads;
    type Frames = ArenaFrames;
    type Evict = E;
    type Lru = L;
}

/// Threads that wait for different things seldom wait in one place.
const PLACES: usize = 64;
/// Counts of readers of a page that several CPUs look at, at most: 32 bytes for each page.
const LANES: usize = 8;
/// Jobs that wait. More are not taken: what would be read ahead is read when it is asked for.
const JOBS: usize = 256;
/// Spare threads at most: this many stores beyond the threads for jobs may hang before one who writes behind does, and before
/// what other files have dirty cannot go.
const SPARES: usize = 32;

#[derive(Debug, Default)]
#[repr(align(64))]
struct Place {
    lock: Mutex<()>,
    woken: Condvar,
}

/// Threads as a host.
pub struct Threads {
    places: Box<[Place; PLACES]>,
    start: Instant,
    jobs: Option<SyncSender<Job>>,
    /// Wakes the thread that writes back.
    bell: Option<Arc<Bell>>,
    /// Threads that do one job each.
    spares: Arc<AtomicUsize>,
}

/// A spare thread, which counts as long as this is there.
struct Spare(Arc<AtomicUsize>);

impl Spare {
    fn begin(count: &Arc<AtomicUsize>) -> Option<Self> {
        // Relaxed, here and below: a count.
        let more = |count| (count < SPARES).then_some(count + 1);
        count.fetch_update(Relaxed, Relaxed, more).ok().map(|_| Self(count.clone()))
    }
}

impl Drop for Spare {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

impl Threads {
    /// Without threads of its own: jobs are done at once.
    #[must_use]
    pub fn new() -> Self {
        Self {
            places: Box::new(std::array::from_fn(|_| Place::default())),
            start: Instant::now(),
            jobs: None,
            bell: None,
            spares: Arc::default(),
        }
    }

    /// With `count` threads for jobs. They end when the host is dropped.
    ///
    /// # Errors
    /// What the system said to a new thread.
    pub fn with_io_threads(count: usize) -> std::io::Result<Self> {
        if count == 0 {
            return Ok(Self::new());
        }
        let (jobs, received) = sync_channel::<Job>(JOBS);
        let received = Arc::new(Mutex::new(received));
        for number in 0..count {
            let received = received.clone();
            let name = format!("cache-io-{number}");
            thread::Builder::new().name(name).spawn(move || work(&received))?;
        }
        let mut host = Self::new();
        host.jobs = Some(jobs);
        Ok(host)
    }

    fn place(&self, number: usize) -> &Place {
        &self.places[number % PLACES]
    }
}

/// For each CPU one, where there are several.
pub(crate) fn lanes() -> u32 {
    let cpus = thread::available_parallelism().map_or(1, usize::from);
    if cpus == 1 { 0 } else { cpus.min(LANES) as u32 }
}

/// Does jobs until no host is left to have any.
fn work(received: &Mutex<Receiver<Job>>) {
    loop {
        let job = received.lock().recv();
        match job {
            // A store that panics ends its job, not the thread; the job's pages are given up.
            Ok(job) => drop(catch_unwind(AssertUnwindSafe(job))),
            Err(_) => return,
        }
    }
}

impl Default for Threads {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Threads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Threads").field("has_jobs", &self.jobs.is_some()).finish_non_exhaustive()
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        if let Some(bell) = &self.bell {
            bell.end();
        }
    }
}

impl Platform for Threads {
    type Byte = AtomicU8;
    type Half = AtomicU32;
    type Word = AtomicU64;
    type Lock<T: Send> = ParkLock<T>;
    type Slot<T: Send> = BiasedSlot<T>;

    fn relax() {
        zonal_host::Threads::relax();
    }

    fn cpu(&self) -> CpuId {
        cpu::current()
    }
}

// SAFETY: the atomics are those of the standard library, and `ParkLock` lets one thread in.
unsafe impl Host for Threads {
    type Mutex<T: Send> = ParkLock<T>;
    const GUESSES: bool = true;

    fn wait(&self, place: usize, pending: &dyn Fn() -> bool) {
        let place = self.place(place);
        let mut lock = place.lock.lock();
        while pending() {
            place.woken.wait(&mut lock);
        }
    }

    fn lanes(&self) -> u32 {
        lanes()
    }

    fn wake(&self, place: usize) {
        let place = self.place(place);
        // Who asked before what it waits for had happened is inside `wait` now, or has the lock.
        drop(place.lock.lock());
        place.woken.notify_all();
    }

    fn nudge(&self) -> bool {
        self.bell.as_ref().is_some_and(|bell| {
            bell.ring();
            // With no spare thread left the one that writes behind may be in a store that hangs.
            self.spares.load(Relaxed) < SPARES
        })
    }

    fn pause(&self, nanos: u64) {
        thread::sleep(Duration::from_nanos(nanos));
    }

    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn defer(&self, job: Job) -> Result<(), Job> {
        let Some(jobs) = &self.jobs else {
            job();
            return Ok(());
        };
        jobs.try_send(job).map_err(|error| match error {
            TrySendError::Full(job) | TrySendError::Disconnected(job) => job,
        })
    }

    fn spare(&self, job: Job) -> Result<(), Job> {
        let Some(spare) = Spare::begin(&self.spares) else { return Err(job) };
        // Handed over once there is a thread: the caller has it back if there is none.
        let (hand, handed) = sync_channel::<Job>(1);
        let work = move || {
            if let Ok(job) = handed.recv() {
                drop(catch_unwind(AssertUnwindSafe(job)));
            }
            drop(spare);
        };
        match thread::Builder::new().name("cache-spare".to_owned()).spawn(work) {
            Ok(_) => hand.send(job).map_err(|refused| refused.0),
            Err(_) => Err(job),
        }
    }
}

/// Why there is no cache.
#[derive(Debug)]
#[non_exhaustive]
pub enum OpenError {
    /// The bound is not one to work with.
    Cache(CacheError),
    /// The memory cannot be had.
    Arena(ArenaError),
    /// A thread for reading ahead or writing back cannot be had.
    Thread(std::io::Error),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cache(error) => error.fmt(f),
            Self::Arena(error) => error.fmt(f),
            Self::Thread(error) => write!(f, "cannot start a thread: {error}"),
        }
    }
}

impl std::error::Error for OpenError {}

impl From<CacheError> for OpenError {
    fn from(error: CacheError) -> Self {
        Self::Cache(error)
    }
}

/// Describes a [`Cache`] and [opens](Self::open) it.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Builder<E = S3Fifo, L = Whole> {
    options: Options,
    /// Bytes that pages and tables may take together, if that is what was asked.
    in_all: Option<usize>,
    io_threads: usize,
    age: Option<Duration>,
    huge: HugePages,
    policy: PhantomData<fn() -> (E, L)>,
}

impl<E: Evict, L: LruLock> PageCache<OnThreads<E, L>> {
    /// A cache to be described: 64 MiB, one thread that reads ahead.
    pub fn builder() -> Builder<E, L> {
        Builder {
            options: Options::default(),
            in_all: None,
            io_threads: 1,
            age: None,
            huge: HugePages::Advise,
            policy: PhantomData,
        }
    }
}

impl<E: Evict, L: LruLock> Builder<E, L> {
    /// The bound: bytes of memory that pages may take, in whole pages. The tables come beside it: see
    /// [`memory_in_all`](Self::memory_in_all).
    pub const fn memory(mut self, bytes: usize) -> Self {
        self.options.pages = bytes / PAGE;
        self.in_all = None;
        self
    }

    /// Bytes of memory that pages, and all tables that the cache has for them, may take together: the bound is what the tables
    /// leave, some 95 of 100. They are for the largest bound ([`most_memory`](Self::most_memory)), if there may be a larger one
    /// later.
    ///
    /// What grows with other things than pages is not in it: threads, files, requests on their way, and the ghosts of
    /// [anonymous pages](crate::region) where there are such.
    ///
    /// ```
    /// use zonal_cache::Cache;
    /// let cache = Cache::<zonal_cache::S3Fifo>::builder().memory_in_all(64 << 20).open()?;
    /// assert!((60 << 20..62 << 20).contains(&cache.bound_bytes()));
    /// # Ok::<(), zonal_cache::threads::OpenError>(())
    /// ```
    pub const fn memory_in_all(mut self, bytes: usize) -> Self {
        self.in_all = Some(bytes);
        self
    }

    /// The largest bound that may be set later. Address space; memory is taken when it is used.
    pub const fn most_memory(mut self, bytes: usize) -> Self {
        self.options.most_pages = bytes / PAGE;
        self
    }

    /// How many pages of a window may be one entry of a list: see [`Options::block`].
    pub const fn block(mut self, pages: u32) -> Self {
        self.options.block = Some(pages);
        self
    }

    /// The longest readahead window, in pages; 0 for none. Where requests are longer, it is as long as they are.
    pub const fn window(mut self, pages: u32) -> Self {
        self.options.window = pages;
        self
    }

    /// Of 100 pages how many may be dirty before a writer has to write back.
    pub const fn dirty_percent(mut self, percent: u64) -> Self {
        self.options.dirty_percent = percent;
        self
    }

    /// Has a thread write pages back that have been dirty for `age`, and from the background limit on all there
    /// are beyond it. Without, pages are written by [`sync`](crate::File::sync), for room, and beyond the dirty
    /// limit.
    pub const fn write_behind(mut self, age: Duration) -> Self {
        self.age = Some(age);
        self
    }

    /// Of 100 pages how many may be dirty before that thread is woken and writers are slowed.
    pub const fn background_percent(mut self, percent: u64) -> Self {
        self.options.background_percent = percent;
        self
    }

    /// Threads that read ahead, and that write dirty pages back when another file needs the room, and
    /// [behind](Self::write_behind). With none, the thread that meets a mark reads ahead itself, and one that needs room
    /// writes, and waits, whatever store that is; so does the thread that writes behind.
    ///
    /// Where all of them are in stores that hang, who needs room and the thread that writes behind have spare ones for what
    /// they do not begin, one for each file and 32 at most.
    pub const fn io_threads(mut self, count: usize) -> Self {
        self.io_threads = count;
        self
    }

    /// Which pages of the system back the memory. Default: huge ones where they can be had, so that a look
    /// at a page costs less; then memory comes in steps of 2 MiB, up to the bound.
    pub const fn huge(mut self, huge: HugePages) -> Self {
        self.huge = huge;
        self
    }

    /// Opens the cache.
    ///
    /// # Errors
    /// [`OpenError`] says what there is not enough of.
    pub fn open(mut self) -> Result<Cache<E, L>, OpenError> {
        if let Some(bytes) = self.in_all {
            self.options.pages = within::pages::<E, L>(bytes, self.options.most_pages, |pages| {
                self.arena(pages).map(ArenaFrames::new)
            })?;
        }
        let arena = self.arena(self.options.pages)?;
        let mut host = Threads::with_io_threads(self.io_threads).map_err(OpenError::Thread)?;
        let bell = self.age.map(|_| Arc::<Bell>::default());
        host.bell.clone_from(&bell);
        let cache = PageCache::with_parts(host, ArenaFrames::new(arena), self.options)?;
        if let (Some(bell), Some(age)) = (bell, self.age) {
            writer::start(bell, &cache, age).map_err(OpenError::Thread)?;
        }
        Ok(cache)
    }

    fn arena(&self, pages: usize) -> Result<Arc<Arena>, OpenError> {
        crate::cache::check(pages, 1 << 31)?;
        let most = self.options.most_pages * PAGE;
        let arena = Arena::builder().bytes(pages * PAGE).reserve(most).huge(self.huge);
        Ok(Arc::new(arena.open().map_err(OpenError::Arena)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    /// With no spare thread left the host says that writing behind may not get on, and has the caller do the job.
    #[test]
    fn spare_threads_have_a_bound_and_come_back() {
        let mut host = Threads::new();
        host.bell = Some(Arc::default());
        let (open, door) = channel::<()>();
        let door = Arc::new(Mutex::new(door));
        for number in 0..SPARES {
            assert!(host.nudge(), "{number} are at work");
            let door = door.clone();
            let waits = move || assert!(door.lock().recv().is_err());
            assert!(host.spare(Box::new(waits)).is_ok());
        }
        assert!(!host.nudge());
        assert!(host.spare(Box::new(|| ())).is_err());
        drop(open);
        let start = Instant::now();
        while host.spares.load(Relaxed) > 0 {
            assert!(start.elapsed() < Duration::from_secs(60), "they do not come back");
            thread::yield_now();
        }
        assert!(host.nudge());
        assert!(host.spare(Box::new(|| panic!("a store that does"))).is_ok());
        while host.spares.load(Relaxed) > 0 {
            assert!(start.elapsed() < Duration::from_secs(60), "one that panics does not");
            thread::yield_now();
        }
    }
}
