//! What a disk does, on a clock of the caller's: commands start, and end later.
//!
//! ```
//! use zonal_cfq::units::{Sector, Sectors, Time};
//! use zonal_disk::device::{Command, Device, Operation};
//!
//! let disk = zonal_disk::builtin("desktop_2014").expect("it is built in");
//! let mut device = disk.device();
//! let operation = Operation::Read { start: Sector(1 << 24), sectors: Sectors(256) };
//! device.start(Time::ZERO, Command { id: 7, operation })?;
//! let end = device.next_event().expect("it is at work");
//! assert_eq!(device.poll(end).map(|ended| ended.id), Some(7));
//! # Ok::<(), zonal_disk::device::DeviceError>(())
//! ```

use zonal_cfq::request::Outcome;
use zonal_cfq::units::{Sector, Sectors, Time};

/// What is asked of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Sectors are read.
    Read {
        /// The first.
        start: Sector,
        /// How many.
        sectors: Sectors,
    },
    /// Sectors are written: to the write cache, if there is room in it.
    Write {
        /// The first.
        start: Sector,
        /// How many.
        sectors: Sectors,
    },
    /// All that was written before is to be on the medium.
    Flush,
}

impl Operation {
    /// The first sector and the one behind the last.
    #[must_use]
    pub fn range(self) -> Option<(Sector, Sector)> {
        match self {
            Self::Read { start, sectors } | Self::Write { start, sectors } => {
                Some((start, start + sectors))
            }
            Self::Flush => None,
        }
    }
}

/// An operation with a number of the caller's, by which its end is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    /// The number; two commands under way may not have the same.
    pub id: u64,
    /// What is to be done.
    pub operation: Operation,
}

/// A command that ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// The command's number.
    pub id: u64,
    /// When.
    pub at: Time,
    /// How.
    pub outcome: Outcome,
}

/// Why a command was not taken. Nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// It has no sectors.
    #[error("a command of no sectors")]
    Empty,
    /// The disk ends before it does.
    #[error("a command up to sector {} of a disk of {}", end.0, capacity.0)]
    BeyondEnd {
        /// The sector behind its last.
        end: Sector,
        /// The sector behind the disk's last.
        capacity: Sector,
    },
    /// As many commands are under way as there may be.
    #[error("{0} commands are under way already")]
    Full(usize),
    /// A command under way has that number.
    #[error("a command with number {0} is under way already")]
    Taken(u64),
}

/// A disk. Time does not go backwards from call to call; if it does, it counts as standing still.
pub trait Device {
    /// The sector behind the last.
    fn capacity(&self) -> Sector;

    /// How many commands may be under way.
    fn depth(&self) -> usize;

    /// Starts a command.
    ///
    /// # Errors
    ///
    /// [`DeviceError`], and nothing has changed.
    fn start(&mut self, now: Time, command: Command) -> Result<(), DeviceError>;

    /// When the disk does something next; `None` if it is at rest.
    fn next_event(&self) -> Option<Time>;

    /// The next command that ended by `now`, by time.
    fn poll(&mut self, now: Time) -> Option<Ended>;

    /// From now on, commands that touch these sectors fail.
    fn spoil(&mut self, start: Sector, end: Sector);
}

/// Checks what every disk asks of a command.
pub(crate) fn check(
    command: Command,
    capacity: Sector,
    depth: usize,
    mut under_way: impl ExactSizeIterator<Item = u64>,
) -> Result<(), DeviceError> {
    if let Some((start, end)) = command.operation.range() {
        if start == end {
            return Err(DeviceError::Empty);
        }
        // An end that does not fit in 64 bits saturates, and is no disk's.
        if end > capacity || end == Sector(u64::MAX) {
            return Err(DeviceError::BeyondEnd { end, capacity });
        }
    }
    if under_way.len() >= depth {
        return Err(DeviceError::Full(depth));
    }
    if under_way.any(|id| id == command.id) {
        return Err(DeviceError::Taken(command.id));
    }
    Ok(())
}

/// Sectors that cannot be read or written.
#[derive(Clone, Debug, Default)]
pub(crate) struct Spoiled(Vec<(Sector, Sector)>);

impl Spoiled {
    pub(crate) fn add(&mut self, start: Sector, end: Sector) {
        self.0.push((start, end));
    }

    pub(crate) fn outcome(&self, operation: Operation) -> Outcome {
        let touches = |(first, last): (Sector, Sector)| {
            self.0.iter().any(|(start, end)| *start < last && first < *end)
        };
        if operation.range().is_some_and(touches) { Outcome::Failed } else { Outcome::Done }
    }
}
