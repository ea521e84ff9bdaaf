//! Workloads: contexts that ask for one thing after the other. A context is a thread on a file, and a
//! chain of events in a simulation; which process asks is said with each request, so that one context
//! can be a chain of processes that wait for each other.
//!
//! ```
//! use zonal_cfq::units::Sector;
//! use zonal_iosched::workload::Workload;
//!
//! let mut workload = Workload::readers(2, 1 << 20, Sector(1 << 21))?;
//! let first = workload.contexts[0].next().expect("it reads");
//! assert_eq!(first.sectors.bytes(), 128 << 10);
//! assert_eq!(workload.contexts.remove(0).count(), 3, "512 KiB each");
//! assert!(Workload::readers(2, 1 << 40, Sector(1 << 21)).is_err());
//! # Ok::<(), zonal_iosched::error::IoschedError>(())
//! ```

use zonal_cfq::request::Direction;
use zonal_cfq::units::{Process, Sector, Sectors, Span};

use crate::error::IoschedError;

/// What a context asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// What it does before.
    pub think: Span,
    /// Who asks: a number of [`Workload::names`].
    pub who: usize,
    /// As which process.
    pub process: Process,
    /// Read or write; `None` is a flush, which no scheduler sees.
    pub direction: Option<Direction>,
    /// The first sector.
    pub start: Sector,
    /// How many; of a flush none.
    pub sectors: Sectors,
    /// Whether it is a write that a process waits for.
    pub sync: bool,
    /// Whether no further one follows soon.
    pub last: bool,
    /// Whether an operation of the context ends with it, as which of [`Workload::names`].
    pub ends: Option<usize>,
}

/// What asks for one thing after the other.
#[derive(Clone, Debug)]
pub struct Context(Kind);

#[derive(Clone, Debug)]
enum Kind {
    /// Reads a file to its end, by windows of readahead.
    Reader { who: usize, at: Sector, start: Sector, end: Sector, again: bool },
    /// Reads anywhere in a file.
    Random { who: usize, start: Sector, pages: u64, dice: fastrand::Rng },
    /// One of several that write back what a process left in the page cache.
    Writer { who: usize, at: Sector, start: Sector, end: Sector, stride: u64 },
    /// Writes, then waits for what an fsync needs: allocation, metadata pushed out, the log.
    Fsync(Fsync),
    /// Writes into the page cache, then waits for what it has written to last.
    Sync { who: usize, at: Sector, start: Sector, end: Sector, wrote: bool },
}

#[derive(Clone, Debug)]
struct Fsync {
    first_who: usize,
    stage: usize,
    data: Sector,
    log: Sector,
    start: Sector,
    length: u64,
    dice: fastrand::Rng,
}

/// A window of readahead: 128 KiB, which is Linux's.
const WINDOW: Sectors = Sectors(256);
/// Between a window's arrival and the request for the next one: to wake up and to read the page that
/// asks for it.
const WAKE: Span = Span::from_micros(20);
/// Requests that writing back has under way for a process: `Limits::requests` is full of them.
const WRITEBACK: u64 = 128;

/// The names of the stages of an fsync, and of it as a whole.
const STAGES: [&str; 6] = [
    "fsync: data",
    "fsync: allocation",
    "fsync: metadata",
    "fsync: log",
    "fsync: flush",
    "fsync, whole",
];

/// The same under a page cache, which does of it what is the file system's.
const SYNC_STAGES: [&str; 3] = ["fsync: write", "fsync: sync", STAGES[5]];

/// What an fsync writes: 64 KiB of data.
const DATA: Sectors = Sectors(128);

impl Context {
    /// A reader, which begins `again` when it comes to the end.
    fn reader(who: usize, start: Sector, end: Sector, again: bool) -> Self {
        Self(Kind::Reader { who, at: start, start, end, again })
    }

    /// The process that asks for nothing any more when the context ends; `None` if other contexts ask as the same, or
    /// this one as several.
    pub(crate) const fn alone(&self) -> Option<Process> {
        match self.0 {
            Kind::Reader { who, .. } | Kind::Random { who, .. } | Kind::Sync { who, .. } => {
                Some(Process(who as u32))
            }
            Kind::Writer { .. } | Kind::Fsync(_) => None,
        }
    }
}

/// Contexts are endless but for readers of a file, which end with it.
impl Iterator for Context {
    type Item = Ask;

    fn next(&mut self) -> Option<Ask> {
        match &mut self.0 {
            Kind::Reader { who, at, start, end, again } => {
                if *again && at == end {
                    *at = *start;
                }
                let left = u32::try_from(end.0 - at.0).unwrap_or(u32::MAX);
                let sectors = WINDOW.min(Sectors(left));
                let start = *at;
                *at = start + sectors;
                let ask = ask_of(*who, Direction::Read, start, sectors);
                (sectors.0 > 0).then_some(Ask { think: WAKE, ..ask })
            }
            Kind::Random { who, start, pages, dice } => {
                let start = Sector(start.0 + dice.u64(..*pages) * 8);
                let ask = ask_of(*who, Direction::Read, start, Sectors(8));
                Some(Ask { think: WAKE, ..ask })
            }
            Kind::Writer { who, at, start, end, stride } => {
                if at.0 + u64::from(WINDOW.0) > end.0 {
                    *at = Sector(start.0 + (at.0 - start.0) % *stride);
                }
                let from = *at;
                *at = Sector(from.0 + *stride);
                Some(ask_of(*who, Direction::Write, from, WINDOW))
            }
            Kind::Fsync(fsync) => Some(fsync.next()),
            Kind::Sync { who, at, start, end, wrote } => {
                *wrote = !*wrote;
                if !*wrote {
                    let flush = ask_of(*who + 1, Direction::Write, *start, Sectors(0));
                    let process = Process(*who as u32);
                    return Some(Ask { direction: None, process, ends: Some(*who + 2), ..flush });
                }
                if at.0 + u64::from(DATA.0) > end.0 {
                    *at = *start;
                }
                let from = *at;
                *at = from + DATA;
                let write = ask_of(*who, Direction::Write, from, DATA);
                Some(Ask { sync: true, ends: None, ..write })
            }
        }
    }
}

/// A request that is an operation by itself.
fn ask_of(who: usize, direction: Direction, start: Sector, sectors: Sectors) -> Ask {
    Ask {
        think: Span::ZERO,
        who,
        // The number of the name; what is with a file system's own processes is said there.
        process: Process(who as u32),
        direction: Some(direction),
        start,
        sectors,
        sync: direction == Direction::Read,
        last: false,
        ends: Some(who),
    }
}

impl Fsync {
    /// The next stage: 64 KiB of data by the process itself, a block of the free-space tree read by
    /// the worker that allocates, a block of metadata written by the thread that pushes these out,
    /// 32 KiB of the log by the log's worker, a flush.
    fn next(&mut self) -> Ask {
        let who = self.first_who + self.stage;
        let anywhere = Sector(self.start.0 + self.dice.u64(..self.length / 32) * 8);
        // Quarters of the file: metadata, log, and data in the half behind.
        let quarter = self.length / 4 / 8 * 8;
        let round = |at: &mut Sector, sectors: Sectors, from: u64, length: u64| {
            if at.0 < from || at.0 + u64::from(sectors.0) > from + length {
                *at = Sector(from);
            }
            let start = *at;
            *at = start + sectors;
            start
        };
        let ask = match self.stage {
            0 => {
                let from = self.start.0 + 2 * quarter;
                let at = round(&mut self.data, DATA, from, 2 * quarter);
                let ask = ask_of(who, Direction::Write, at, DATA);
                Ask { sync: true, last: true, ..ask }
            }
            // XFS, of which the source speaks, does not ask for its metadata to come first.
            1 => ask_of(who, Direction::Read, anywhere, Sectors(8)),
            2 => ask_of(who, Direction::Write, anywhere, Sectors(8)),
            3 => {
                let at = round(&mut self.log, Sectors(64), self.start.0 + quarter, quarter);
                let ask = ask_of(who, Direction::Write, at, Sectors(64));
                Ask { sync: true, last: true, ..ask }
            }
            _ => {
                let flush = ask_of(who, Direction::Write, self.start, Sectors(0));
                Ask { direction: None, ..flush }
            }
        };
        self.stage = (self.stage + 1) % 5;
        let ends = (self.stage == 0).then_some(self.first_who + 5);
        Ask { ends, ..ask }
    }
}

/// Contexts, and the names under which their figures are shown.
#[derive(Clone, Debug)]
pub struct Workload {
    /// What runs at once.
    pub contexts: Vec<Context>,
    /// Names of processes and of operations.
    pub names: Vec<String>,
    /// Whether it writes.
    pub writes: bool,
    /// When it ends, if the contexts do not before.
    pub limit: Option<Span>,
}

/// Cuts a piece of a disk in equal parts of whole windows.
fn parts(count: u32, bytes: u64, capacity: Sector) -> Result<Vec<(Sector, Sector)>, IoschedError> {
    if count == 0 {
        return Err(IoschedError::NoProcesses);
    }
    let whole = u64::from(WINDOW.0);
    let each = bytes / 512 / u64::from(count) / whole * whole;
    if each == 0 || bytes > capacity.bytes() {
        return Err(IoschedError::Size { bytes, capacity: capacity.bytes(), processes: count });
    }
    let part = |index| (Sector(index * each), Sector((index + 1) * each));
    Ok((0..u64::from(count)).map(part).collect())
}

impl Workload {
    /// Processes that each read a file of their own to its end; together they have `bytes`.
    ///
    /// # Errors
    ///
    /// [`IoschedError::Size`] if that is more than the disk has, or less than a window for each;
    /// [`IoschedError::NoProcesses`].
    pub fn readers(count: u32, bytes: u64, capacity: Sector) -> Result<Self, IoschedError> {
        Self::readers_that(false, count, bytes, capacity)
    }

    fn readers_that(
        again: bool,
        count: u32,
        bytes: u64,
        capacity: Sector,
    ) -> Result<Self, IoschedError> {
        let parts = parts(count, bytes, capacity)?.into_iter().enumerate();
        let reader = |(who, (start, end))| Context::reader(who, start, end, again);
        let contexts = parts.map(reader).collect();
        let names = (0..count).map(|who| format!("reader {who}")).collect();
        Ok(Self { contexts, names, writes: false, limit: None })
    }

    /// Processes that each read 4 KiB anywhere in a file of their own, for so long.
    ///
    /// # Errors
    ///
    /// As [`readers`](Self::readers).
    pub fn random(
        count: u32,
        bytes: u64,
        capacity: Sector,
        limit: Span,
        seed: u64,
    ) -> Result<Self, IoschedError> {
        let parts = parts(count, bytes, capacity)?.into_iter().enumerate();
        let contexts = parts.map(|(who, (start, end))| {
            let dice = fastrand::Rng::with_seed(seed.wrapping_add(who as u64));
            Context(Kind::Random { who, start, pages: (end.0 - start.0) / 8, dice })
        });
        let contexts = contexts.collect();
        let names = (0..count).map(|who| format!("random reader {who}")).collect();
        Ok(Self { contexts, names, writes: false, limit: Some(limit) })
    }

    /// Readers beside one process whose writes are written back, for so long.
    ///
    /// # Errors
    ///
    /// As [`readers`](Self::readers).
    pub fn mixed(
        count: u32,
        bytes: u64,
        capacity: Sector,
        limit: Span,
    ) -> Result<Self, IoschedError> {
        Self::mixed_of(WRITEBACK, count, bytes, capacity, limit)
    }

    /// The same for processes that go through a page cache: the writer writes into that, from front to back, and what
    /// writes back is the cache.
    ///
    /// # Errors
    ///
    /// As [`readers`](Self::readers).
    pub fn mixed_cached(
        count: u32,
        bytes: u64,
        capacity: Sector,
        limit: Span,
    ) -> Result<Self, IoschedError> {
        Self::mixed_of(1, count, bytes, capacity, limit)
    }

    /// Readers that read again and again, the names of what one process more does, and the part of the disk that
    /// is its own.
    fn readers_beside(
        names: &[&str],
        readers: u32,
        bytes: u64,
        capacity: Sector,
    ) -> Result<(Self, (Sector, Sector)), IoschedError> {
        let mut workload = Self::readers_that(true, readers + 1, bytes, capacity)?;
        let who = readers as usize;
        workload.contexts.truncate(who);
        workload.names.truncate(who);
        workload.names.extend(names.iter().map(|&name| name.to_owned()));
        Ok((workload, parts(readers + 1, bytes, capacity)?[who]))
    }

    fn mixed_of(
        writers: u64,
        count: u32,
        bytes: u64,
        capacity: Sector,
        limit: Span,
    ) -> Result<Self, IoschedError> {
        let (mut workload, (start, end)) =
            Self::readers_beside(&["writer"], count, bytes, capacity)?;
        let who = count as usize;
        let stride = writers * u64::from(WINDOW.0);
        let window = |index| Sector(start.0 + index * u64::from(WINDOW.0));
        let writers = (0..writers).map(window).filter(|at| at.0 < end.0);
        let context = |at| Context(Kind::Writer { who, at, start, end, stride });
        workload.contexts.extend(writers.map(context));
        Ok(Self { writes: true, limit: Some(limit), ..workload })
    }

    /// A process that writes and calls fsync, where four processes wait for each other's requests,
    /// beside `readers` that read, for `limit`.
    ///
    /// # Errors
    ///
    /// As [`readers`](Self::readers).
    pub fn fsync(
        readers: u32,
        bytes: u64,
        capacity: Sector,
        limit: Span,
        seed: u64,
    ) -> Result<Self, IoschedError> {
        let (mut workload, (start, end)) = Self::readers_beside(&STAGES, readers, bytes, capacity)?;
        let first_who = readers as usize;
        let fsync = Fsync {
            first_who,
            stage: 0,
            data: Sector(0),
            log: Sector(0),
            start,
            length: end.0 - start.0,
            dice: fastrand::Rng::with_seed(seed),
        };
        if fsync.length < 2048 {
            return Err(IoschedError::Size {
                bytes,
                capacity: capacity.bytes(),
                processes: readers + 1,
            });
        }
        workload.contexts.push(Context(Kind::Fsync(fsync)));
        Ok(Self { writes: true, limit: Some(limit), ..workload })
    }
}

impl Workload {
    /// A process that goes through a page cache, where it writes 64 KiB and has them last, beside `readers` that read, for
    /// `limit`.
    ///
    /// # Errors
    ///
    /// As [`readers`](Self::readers).
    pub fn fsync_cached(
        readers: u32,
        bytes: u64,
        capacity: Sector,
        limit: Span,
    ) -> Result<Self, IoschedError> {
        let (mut workload, (start, end)) =
            Self::readers_beside(&SYNC_STAGES, readers, bytes, capacity)?;
        let who = readers as usize;
        workload.contexts.push(Context(Kind::Sync { who, at: start, start, end, wrote: false }));
        Ok(Self { writes: true, limit: Some(limit), ..workload })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_read_all_once_and_nothing_else() {
        let workload = Workload::readers(3, 10 << 20, Sector(1 << 21)).expect("it fits");
        let mut next = 0;
        for context in workload.contexts {
            for ask in context {
                assert_eq!(ask.start.0, next);
                next += u64::from(ask.sectors.0);
            }
        }
        assert_eq!(next, (10 << 20) / 512 / 3 / 256 * 256 * 3);
    }

    #[test]
    fn all_stay_within_the_disk_and_on_pages() {
        let (bytes, capacity) = (8 << 20, Sector(1 << 14));
        let limit = Span::from_millis(1);
        let all = [
            Workload::random(2, bytes, capacity, limit, 1),
            Workload::mixed(2, bytes, capacity, limit),
            Workload::fsync(2, bytes, capacity, limit, 1),
            Workload::mixed_cached(2, bytes, capacity, limit),
            Workload::fsync_cached(2, bytes, capacity, limit),
        ];
        for workload in all {
            for context in workload.expect("it fits").contexts {
                for ask in context.take(10_000) {
                    assert!(ask.start + ask.sectors <= capacity, "{ask:?}");
                    assert_eq!((ask.start.0 % 8, ask.sectors.0 % 8), (0, 0), "{ask:?}");
                }
            }
        }
    }

    #[test]
    fn an_fsync_is_five_requests_of_five_names() {
        let limit = Span::from_millis(1);
        let workload = Workload::fsync(0, 8 << 20, Sector(1 << 14), limit, 1).expect("it fits");
        let asks: Vec<Ask> = workload.contexts[0].clone().take(10).collect();
        assert_eq!(asks.iter().map(|ask| ask.who).collect::<Vec<_>>()[..5], [0, 1, 2, 3, 4]);
        assert_eq!(asks.iter().filter(|ask| ask.ends == Some(5)).count(), 2);
        assert_eq!((asks[4].direction, asks[4].ends), (None, Some(5)));
    }

    #[test]
    fn an_fsync_under_a_cache_is_a_write_and_a_flush_by_one_process() {
        let limit = Span::from_millis(1);
        let workload = Workload::fsync_cached(1, 8 << 20, Sector(1 << 14), limit).expect("it fits");
        assert_eq!(workload.names.len(), 4);
        let asks: Vec<Ask> = workload.contexts[1].clone().take(4).collect();
        assert_eq!(asks.iter().map(|ask| ask.who).collect::<Vec<_>>(), [1, 2, 1, 2]);
        assert!(asks.iter().all(|ask| ask.process == Process(1)));
        assert_eq!(asks[2].start, asks[0].start + DATA);
        assert_eq!((asks[1].direction, asks[1].ends), (None, Some(3)));
        let mixed = Workload::mixed_cached(1, 8 << 20, Sector(1 << 14), limit).expect("it fits");
        assert_eq!((mixed.contexts.len(), mixed.names.len()), (2, 2));
    }
}
