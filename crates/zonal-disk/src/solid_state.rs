//! A solid-state disk: pages on channels that work at once, behind one interface, with a write
//! buffer. What is not modelled: garbage collection, wear, a mapping that is not in memory.
//!
//! ```
//! use zonal_cfq::units::{Sector, Sectors, Time};
//! use zonal_disk::device::{Command, Operation};
//!
//! let disk = zonal_disk::builtin("sata_ssd").expect("it is built in");
//! let mut device = disk.device();
//! for id in 0..8 {
//!     let operation = Operation::Read { start: Sector(id * 1000), sectors: Sectors(8) };
//!     device.start(Time::ZERO, Command { id, operation })?;
//! }
//! assert_eq!((0..8).filter_map(|_| device.poll(Time(1_000_000_000))).count(), 8);
//! # Ok::<(), zonal_disk::device::DeviceError>(())
//! ```

use std::collections::{BTreeMap, VecDeque};

use zonal_cfq::units::{Sector, Sectors, Span, Time};

use crate::device::{Command, Device, DeviceError, Ended, Operation, Spoiled, check};
use crate::disk_file::{Interface, SolidStateFile};

/// A solid-state disk.
#[derive(Debug)]
pub struct SolidState {
    capacity: Sector,
    depth: usize,
    command: Span,
    /// ns for a sector over the interface.
    sector: f64,
    /// Sectors of a page.
    page: u64,
    read: Span,
    program: Span,
    flush: Span,
    /// Sectors of the write buffer.
    buffer: u64,

    /// When each channel has done what it was given.
    channels: Vec<Time>,
    /// When the interface has.
    wire: Time,
    /// When pages of the buffer are programmed, by time, and their sectors.
    programming: VecDeque<(Time, u64)>,
    buffered: u64,
    /// When all that was written is on the medium.
    written: Time,
    /// Commands by when they end, then by when they came.
    ends: BTreeMap<(Time, u64), Command>,
    started: u64,
    spoiled: Spoiled,
    clock: Time,
}

impl SolidState {
    /// A disk at rest.
    #[must_use]
    pub fn new(file: &SolidStateFile, interface: &Interface, capacity: Sector) -> Self {
        let micros = |us: f64| Span((us * 1e3) as u64);
        Self {
            capacity,
            depth: interface.depth,
            command: micros(interface.command_us),
            sector: 512e9 / (interface.mib_s * f64::from(1 << 20)),
            page: u64::from(file.page_kib) * 2,
            read: micros(file.read_us),
            program: micros(file.program_us),
            flush: micros(file.flush_us),
            buffer: u64::from(file.write_kib) * 2,
            channels: vec![Time::ZERO; file.channels],
            wire: Time::ZERO,
            programming: VecDeque::new(),
            buffered: 0,
            written: Time::ZERO,
            ends: BTreeMap::new(),
            started: 0,
            spoiled: Spoiled::default(),
            clock: Time::ZERO,
        }
    }

    /// Gives each page of a range to its channel; the time of the last to be done.
    fn pages(&mut self, start: Sector, end: Sector, begin: Time, each: Span) -> Time {
        let mut done = begin;
        for page in start.0 / self.page..end.0.div_ceil(self.page) {
            let at = (page % self.channels.len() as u64) as usize;
            self.channels[at] = self.channels[at].max(begin) + each;
            done = done.max(self.channels[at]);
        }
        done
    }

    /// Moves data over the interface, not before `begin`.
    fn moved(&mut self, sectors: Sectors, begin: Time) -> Time {
        self.wire = self.wire.max(begin) + Span((f64::from(sectors.0) * self.sector) as u64);
        self.wire
    }

    /// When the buffer has room for `sectors` more.
    fn room(&mut self, sectors: u64, now: Time) -> Time {
        let mut at = now;
        while let Some((done, page)) = self.programming.front().copied() {
            let is_needed = self.buffered + sectors > self.buffer;
            if done > at && !is_needed {
                break;
            }
            self.programming.pop_front();
            self.buffered -= page;
            at = at.max(done);
        }
        at
    }

    fn end_of(&mut self, operation: Operation, now: Time) -> Time {
        let begin = now + self.command;
        match operation {
            Operation::Read { start, sectors } => {
                let there = self.pages(start, start + sectors, begin, self.read);
                self.moved(sectors, there)
            }
            Operation::Write { start, sectors } => {
                let begin = self.room(sectors.0.into(), begin);
                let moved = self.moved(sectors, begin);
                let done = self.pages(start, start + sectors, moved, self.program);
                self.written = self.written.max(done);
                if u64::from(sectors.0) > self.buffer {
                    return done;
                }
                self.buffered += u64::from(sectors.0);
                let last = self.programming.back().map_or(done, |(last, _)| done.max(*last));
                self.programming.push_back((last, sectors.0.into()));
                moved
            }
            Operation::Flush => begin.max(self.written) + self.flush,
        }
    }
}

impl Device for SolidState {
    fn capacity(&self) -> Sector {
        self.capacity
    }

    fn depth(&self) -> usize {
        self.depth
    }

    fn start(&mut self, now: Time, command: Command) -> Result<(), DeviceError> {
        let under_way = self.ends.values().map(|command| command.id);
        check(command, self.capacity, self.depth, under_way)?;
        self.clock = self.clock.max(now);
        let end = self.end_of(command.operation, self.clock);
        self.started += 1;
        self.ends.insert((end, self.started), command);
        Ok(())
    }

    fn next_event(&self) -> Option<Time> {
        self.ends.first_key_value().map(|((end, _), _)| *end)
    }

    fn poll(&mut self, now: Time) -> Option<Ended> {
        let first = self.ends.first_entry().filter(|first| first.key().0 <= now)?;
        let ((at, _), command) = first.remove_entry();
        self.clock = self.clock.max(at);
        let outcome = self.spoiled.outcome(command.operation);
        Some(Ended { id: command.id, at, outcome })
    }

    fn spoil(&mut self, start: Sector, end: Sector) {
        self.spoiled.add(start, end);
    }
}
