//! A hard disk. The heads do one thing at a time; which one is next the disk chooses itself, by what
//! they reach first, as with native command queueing, until one has waited too long. Beside that the
//! interface moves what is cached, or goes to the write cache, one command after the other.
//!
//! What is not modelled: reading a track from wherever the head lands, defects that moved elsewhere,
//! wear, vibration, temperature, power saving.
//!
//! ```
//! use zonal_cfq::units::{Sector, Sectors, Time};
//! use zonal_disk::device::{Command, Operation};
//!
//! let disk = zonal_disk::builtin("desktop_2014").expect("it is built in");
//! let mut device = disk.device();
//! let mut read = |id, start| {
//!     let operation = Operation::Read { start: Sector(start), sectors: Sectors(256) };
//!     let now = Time(id * 1_000_000_000);
//!     device.start(now, Command { id, operation }).expect("it is at rest");
//!     let end = device.next_event().expect("it is at work");
//!     assert!(device.poll(end).is_some());
//!     end.since(now)
//! };
//! let (seek, behind) = (read(1, 1 << 28), read(2, (1 << 28) + 256));
//! assert!(behind < seek, "it had read on");
//! ```

use zonal_cfq::units::{Sector, Sectors, Span, Time};

use crate::device::{Command, Device, DeviceError, Ended, Operation, Spoiled, check};
use crate::disk_file::{HardDiskFile, Interface, millis};
use crate::geometry::{Geometry, Place};
use crate::segments::{Hit, Segments};
use crate::write_cache::WriteCache;

/// What the disk is doing.
#[derive(Clone, Copy, Debug)]
enum Job {
    /// A command.
    Serve(Command),
    /// Writing from the write cache.
    Destage,
}

/// A hard disk.
#[derive(Debug)]
pub struct HardDisk {
    geometry: Geometry,
    capacity: Sector,
    depth: usize,
    command: Span,
    /// ns for a sector over the interface.
    sector: f64,
    destage: u64,
    rest: Span,
    patience: Span,

    head: Place,
    /// The sector behind the last that it passed.
    last: Sector,
    segments: Segments,
    cache: WriteCache,
    spoiled: Spoiled,
    /// Commands by arrival.
    waiting: Vec<(Time, Command)>,
    /// What the heads do, or are waited for to read on to.
    job: Option<(Job, Time)>,
    /// What the interface moves beside that.
    wire: Option<(Command, Time)>,
    /// When it did something last.
    active: Time,
}

impl HardDisk {
    /// A disk at rest, with empty caches.
    #[must_use]
    pub fn new(file: &HardDiskFile, interface: &Interface, capacity: Sector) -> Self {
        let geometry = Geometry::new(file, capacity);
        let head = geometry.place(Sector(0));
        Self {
            geometry,
            capacity,
            depth: interface.depth,
            command: Span((interface.command_us * 1e3) as u64),
            sector: 512e9 / (interface.mib_s * f64::from(1 << 20)),
            destage: u64::from(file.destage_kib) * 2,
            rest: millis(file.rest_ms),
            patience: millis(file.patience_ms),
            head,
            last: Sector(0),
            segments: Segments::new(file.segments, u64::from(file.segment_kib) * 2),
            cache: WriteCache::new(u64::from(file.write_kib) * 2),
            spoiled: Spoiled::default(),
            waiting: Vec::new(),
            job: None,
            wire: None,
            active: Time::ZERO,
        }
    }

    /// Over the interface.
    fn wire_time(&self, sectors: Sectors) -> Span {
        self.command + Span((f64::from(sectors.0) * self.sector) as u64)
    }

    /// Begins what is next, if there is anything: now, or when it came, which is later if `now` is an
    /// end that was not polled until then.
    fn begin(&mut self, now: Time) {
        // A flush is no queued command: those before it go first, those behind it wait.
        let is_flush = |(_, command): &(Time, Command)| command.operation == Operation::Flush;
        let before = self.waiting.iter().position(is_flush).unwrap_or(self.waiting.len());
        if self.wire.is_none()
            && let Some((command, end, needs_heads)) = self.quick(before, now)
        {
            self.waiting.retain(|(_, other)| other.id != command.id);
            if needs_heads {
                self.job = Some((Job::Serve(command), end));
            } else {
                self.wire = Some((command, end));
            }
            return self.begin(now);
        }
        if self.job.is_some() {
            return;
        }
        self.job = match self.waiting.first() {
            None => return,
            Some((came, flush)) if before == 0 => {
                let flush = *flush;
                if self.wire.is_some() {
                    return;
                }
                let now = now.max(*came);
                self.destage(now).or(Some((Job::Serve(flush), now + self.command)))
            }
            Some(_) => self.moved(before, now),
        };
        if let Some((Job::Serve(command), _)) = self.job {
            self.waiting.retain(|(_, other)| other.id != command.id);
        }
    }

    /// A command that needs no heads: what is cached, or goes to the write cache; and if they are
    /// free one that they come to as they read on. When it ends, and whether it needs them.
    fn quick(&mut self, before: usize, now: Time) -> Option<(Command, Time, bool)> {
        for at in 0..before {
            let (came, command) = self.waiting[at];
            let now = now.max(came);
            match command.operation {
                Operation::Read { start, sectors } => {
                    let end = start + sectors;
                    if self.cache.holds(start, end) {
                        return Some((command, now + self.wire_time(sectors), false));
                    }
                    let Hit::At(there) = self.segments.find(start, end, now, &self.geometry) else {
                        continue;
                    };
                    let needs_heads = there > now;
                    if needs_heads && self.job.is_some() {
                        continue;
                    }
                    self.segments.served(end, self.capacity);
                    // The wire moves what is there while the rest is read.
                    let done = there.max(now + self.wire_time(sectors));
                    return Some((command, done, needs_heads));
                }
                Operation::Write { start, sectors } if self.cache.has_room(sectors.0.into()) => {
                    let end = start + sectors;
                    self.cache.add(start, end);
                    self.segments.forget(start, end);
                    return Some((command, now + self.wire_time(sectors), false));
                }
                Operation::Write { .. } | Operation::Flush => {}
            }
        }
        None
    }

    /// Whether the interface will see to a command as soon as it can.
    fn is_quick(&self, command: &Command) -> bool {
        match command.operation {
            Operation::Read { start, sectors } => {
                let end = start + sectors;
                self.cache.holds(start, end) || self.segments.holds(start, end)
            }
            Operation::Write { sectors, .. } => self.cache.has_room(sectors.0.into()),
            Operation::Flush => false,
        }
    }

    /// The command whose place the heads reach first, or the one that waited too long.
    fn moved(&mut self, before: usize, now: Time) -> Option<(Job, Time)> {
        let waiting = self.waiting[..before].iter().filter(|(_, command)| !self.is_quick(command));
        let (since, oldest) = waiting.clone().next()?;
        // What came meanwhile is not known before.
        let now = now.max(*since);
        let waiting = waiting.filter(|(came, _)| *came <= now);
        let chosen = if now.since(*since) > self.patience {
            *oldest
        } else {
            let head = self.head;
            let begin = now + self.command;
            let cost = |command: &Command| match command.operation {
                Operation::Read { start, .. } => self.geometry.reach(head, begin, start, false),
                // One that waits for room in the write cache waits for what is in it.
                Operation::Write { start, .. } => self.best_destage(now).map_or_else(
                    || self.geometry.reach(head, begin, start, true),
                    |(_, cost)| cost,
                ),
                Operation::Flush => Span(u64::MAX),
            };
            waiting.map(|(_, command)| *command).min_by_key(cost)?
        };
        match chosen.operation {
            Operation::Read { start, sectors } => {
                let end = self.transfer(start, start + sectors, false, now + self.command);
                self.segments.keep(start, start + sectors, end, self.capacity);
                Some((Job::Serve(chosen), end))
            }
            Operation::Write { start, sectors } => self.destage(now).or_else(|| {
                let end = self.transfer(start, start + sectors, true, now + self.command);
                self.segments.forget(start, start + sectors);
                Some((Job::Serve(chosen), end))
            }),
            Operation::Flush => None,
        }
    }

    /// Moves the head over sectors, from `begin` on; gives the end.
    fn transfer(&mut self, start: Sector, end: Sector, writes: bool, begin: Time) -> Time {
        if let Some(reached) = self.segments.stop(begin, &self.geometry) {
            self.head = self.geometry.place(reached);
        }
        let reach = self.geometry.reach(self.head, begin, start, writes);
        let done = begin + reach + self.geometry.pass(start, end);
        self.head = self.geometry.place(Sector(end.0.saturating_sub(1)));
        self.last = end;
        done
    }

    /// What of the write cache is reached first, and when.
    fn best_destage(&self, now: Time) -> Option<((Sector, Sector), Span)> {
        // From the head on, so that what lies in a row is written in a row.
        let near = self.cache.near(self.last, self.destage);
        let cost = |range: (Sector, Sector)| self.geometry.reach(self.head, now, range.0, true);
        near.map(|range| (range, cost(range))).min_by_key(|(_, cost)| *cost)
    }

    /// Writes something of the write cache, if there is anything.
    fn destage(&mut self, now: Time) -> Option<(Job, Time)> {
        let ((start, end), _) = self.best_destage(now)?;
        let done = self.transfer(start, end, true, now);
        self.cache.take(start, end);
        Some((Job::Destage, done))
    }

    const fn is_at_rest(&self) -> bool {
        self.job.is_none() && self.wire.is_none()
    }

    /// When it begins to write its cache, if no command comes.
    fn rest_ends(&self) -> Option<Time> {
        (!self.cache.is_empty()).then(|| self.active + self.rest)
    }
}

impl Device for HardDisk {
    fn capacity(&self) -> Sector {
        self.capacity
    }

    fn depth(&self) -> usize {
        self.depth
    }

    fn start(&mut self, now: Time, command: Command) -> Result<(), DeviceError> {
        let serving = match self.job {
            Some((Job::Serve(command), _)) => Some(command.id),
            _ => None,
        };
        let moving = self.wire.map(|(command, _)| command.id);
        let mut ids: Vec<u64> = self.waiting.iter().map(|(_, command)| command.id).collect();
        ids.extend(serving.into_iter().chain(moving));
        check(command, self.capacity, self.depth, ids.into_iter())?;
        let now = now.max(self.active);
        if self.is_at_rest() {
            self.active = now;
        }
        self.waiting.push((now, command));
        self.begin(now);
        Ok(())
    }

    fn next_event(&self) -> Option<Time> {
        let ends = [self.job.map(|(_, end)| end), self.wire.map(|(_, end)| end)];
        ends.into_iter().flatten().min().or_else(|| self.rest_ends())
    }

    fn poll(&mut self, now: Time) -> Option<Ended> {
        loop {
            if self.is_at_rest() {
                let rested = self.rest_ends().filter(|at| *at <= now)?;
                self.job = self.destage(rested);
                continue;
            }
            let end = self.next_event().filter(|end| *end <= now)?;
            self.active = end;
            let ended = match self.wire.take_if(|(_, at)| *at == end) {
                Some((command, _)) => Some(command),
                None => match self.job.take() {
                    Some((Job::Serve(command), _)) => Some(command),
                    _ => None,
                },
            };
            self.begin(end);
            if let Some(command) = ended {
                let outcome = self.spoiled.outcome(command.operation);
                return Some(Ended { id: command.id, at: end, outcome });
            }
            // With a rest behind it, the cache is written to its end.
            if self.is_at_rest() {
                self.job = self.destage(end);
            }
        }
    }

    fn spoil(&mut self, start: Sector, end: Sector) {
        self.spoiled.add(start, end);
    }
}
