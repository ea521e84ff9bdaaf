//! Requests, and the tokens that they become: [`Request`], asked for; [`Submitted`], queued;
//! [`Dispatched`], with the device; [`Completed`], done. A token is moved on, never copied, so that
//! a request cannot complete twice.
//!
//! ```
//! use zonal_cfq::request::{Direction, Request};
//! use zonal_cfq::units::{Process, Sector, Sectors};
//!
//! let read = Request::read(Process(1), Sector(0), Sectors(256)).tag(7);
//! assert!(read.is_sync());
//! let write = Request::write(Process(1), Sector(256), Sectors(8));
//! assert_eq!((write.direction(), write.is_sync()), (Direction::Write, false));
//! ```

use alloc::vec::Vec;

use crate::units::{GroupId, Process, Sector, Sectors, Span, Time};

/// Which way data goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// From the disk.
    Read,
    /// To the disk.
    Write,
}

/// The three classes, in the order in which they are served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Before all others.
    RealTime,
    /// What processes are in by themselves.
    #[default]
    BestEffort,
    /// When no other has anything to do.
    Idle,
}

/// A priority within a class: 0, the highest, to 7.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Level(u8);

impl Level {
    /// How many there are.
    pub const COUNT: u8 = 8;

    /// That level, if it is below 8.
    #[must_use]
    pub const fn new(level: u8) -> Option<Self> {
        if level < Self::COUNT { Some(Self(level)) } else { None }
    }

    /// As a number.
    #[must_use]
    pub const fn get(self) -> u8 {
        self.0
    }
}

impl Default for Level {
    /// That of processes which did not ask for one: 4.
    fn default() -> Self {
        Self(4)
    }
}

/// Class and level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Priority {
    /// The class.
    pub class: Class,
    /// The level in it; class [`Idle`](Class::Idle) has none and ignores it.
    pub level: Level,
}

/// What a process asks for: sectors to read or write.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub struct Request {
    pub(crate) start: Sector,
    pub(crate) sectors: Sectors,
    pub(crate) direction: Direction,
    pub(crate) sync: bool,
    pub(crate) metadata: bool,
    pub(crate) last: bool,
    pub(crate) process: Process,
    pub(crate) priority: Priority,
    pub(crate) group: GroupId,
    pub(crate) tag: u64,
}

impl Request {
    const fn new(process: Process, start: Sector, sectors: Sectors, direction: Direction) -> Self {
        let priority = Priority { class: Class::BestEffort, level: Level(4) };
        Self {
            start,
            sectors,
            direction,
            sync: matches!(direction, Direction::Read),
            metadata: false,
            last: false,
            process,
            priority,
            group: GroupId::ROOT,
            tag: 0,
        }
    }

    /// A read. A process waits for it: it is sync.
    pub const fn read(process: Process, start: Sector, sectors: Sectors) -> Self {
        Self::new(process, start, sectors, Direction::Read)
    }

    /// A write that no process waits for, unless it is made [sync](Self::sync).
    pub const fn write(process: Process, start: Sector, sectors: Sectors) -> Self {
        Self::new(process, start, sectors, Direction::Write)
    }

    /// A process waits for it.
    pub const fn sync(mut self) -> Self {
        self.sync = true;
        self
    }

    /// It comes before others: of the file system's own structures, as ext3 and ext4 ask for them
    /// (XFS does not ask for that).
    pub const fn metadata(mut self) -> Self {
        self.metadata = true;
        self
    }

    /// No further one follows soon: the scheduler need not wait for it (a sync write of a log).
    pub const fn last(mut self) -> Self {
        self.last = true;
        self
    }

    /// With a priority.
    pub const fn priority(mut self, priority: Priority) -> Self {
        self.priority = priority;
        self
    }

    /// Of a group.
    pub const fn group(mut self, group: GroupId) -> Self {
        self.group = group;
        self
    }

    /// With a number of the caller's, which comes back with it.
    pub const fn tag(mut self, tag: u64) -> Self {
        self.tag = tag;
        self
    }

    /// The direction.
    #[must_use]
    pub const fn direction(&self) -> Direction {
        self.direction
    }

    /// Whether a process waits for it.
    #[must_use]
    pub const fn is_sync(&self) -> bool {
        self.sync
    }

    /// The sector behind its last.
    #[must_use]
    pub fn end(&self) -> Sector {
        self.start + self.sectors
    }
}

/// One request as it was submitted; several become one for the device where they touch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The caller's number.
    pub tag: u64,
    /// Who asked.
    pub process: Process,
    /// Its first sector.
    pub start: Sector,
    /// How many.
    pub sectors: Sectors,
    /// When it was submitted.
    pub arrived: Time,
    pub(crate) serial: u64,
}

impl Part {
    /// The sector behind its last.
    #[must_use]
    pub fn end(&self) -> Sector {
        self.start + self.sectors
    }
}

/// A request that is queued: what [`Elevator::cancel`](crate::elevator::Elevator::cancel) takes.
#[derive(Debug, PartialEq, Eq)]
pub struct Submitted {
    pub(crate) elevator: u32,
    pub(crate) serial: u64,
}

/// A request that the device has: to be completed, or given back.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "the scheduler waits for it to be completed or requeued"]
pub struct Dispatched {
    pub(crate) elevator: u32,
    pub(crate) start: Sector,
    pub(crate) sectors: Sectors,
    pub(crate) direction: Direction,
    pub(crate) sync: bool,
    pub(crate) owner: u32,
    pub(crate) process: Process,
    pub(crate) group: GroupId,
    pub(crate) arrived: Time,
    pub(crate) dispatched: Time,
    pub(crate) parts: Vec<Part>,
}

impl Dispatched {
    /// The first sector.
    #[must_use]
    pub const fn start(&self) -> Sector {
        self.start
    }

    /// How many sectors.
    #[must_use]
    pub const fn sectors(&self) -> Sectors {
        self.sectors
    }

    /// The direction.
    #[must_use]
    pub const fn direction(&self) -> Direction {
        self.direction
    }

    /// The requests that it is made of, by sector, without gaps.
    #[must_use]
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }
}

/// How the device ended a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Data was moved.
    Done,
    /// The device could not; all parts of the request failed, and can be submitted one by one.
    Failed,
}

/// What is left of a request that the device is done with.
#[derive(Debug, PartialEq, Eq)]
pub struct Completed {
    /// How it ended.
    pub outcome: Outcome,
    /// The direction.
    pub direction: Direction,
    /// The requests that it was made of.
    pub parts: Vec<Part>,
    /// When it ended.
    pub at: Time,
    /// How long the device had it.
    pub service: Span,
}
