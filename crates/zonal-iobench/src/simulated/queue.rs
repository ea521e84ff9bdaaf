//! The scheduler and the disk, and who waits for a place.

use std::collections::{HashMap, VecDeque};

use zonal_cfq::cfq::{Cfq, Tunables};
use zonal_cfq::counters::Counters;
use zonal_cfq::elevator::{Elevator, Limits, Next, Refused};
use zonal_cfq::request::{Direction, Dispatched, Request};
use zonal_cfq::units::{Process, Sector, Sectors, Span, Time};
use zonal_disk::Disk;
use zonal_disk::device::{Command, Device, Operation};

use crate::error::IobenchError;
use crate::machine::REQUESTS;

/// What a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Pages from there on are read.
    Read,
    /// Pages from there on are written.
    Write,
    /// A record of the log.
    Log,
}

/// A request of a thread.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ask {
    pub(super) purpose: Purpose,
    /// The thread that waits for it, or that it is done for.
    pub(super) thread: u32,
    pub(super) process: Process,
    /// The first page, over all files.
    pub(super) page: u32,
    pub(super) pages: u32,
    pub(super) start: Sector,
    /// A write that a process waits for.
    pub(super) sync: bool,
}

/// What completed.
#[derive(Clone, Copy, Debug)]
pub(super) enum Done {
    Pages { purpose: Purpose, thread: u32, page: u32, pages: u32 },
    Flush(usize),
}

/// Who waits for a place in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waiter {
    Thread(usize),
    Flusher,
}

enum AtDevice {
    Token(Dispatched),
    Flush(usize),
}

pub(super) struct Queue {
    elevator: Elevator<Cfq>,
    device: Box<dyn Device + Send>,
    at_device: HashMap<u64, AtDevice>,
    flushes: VecDeque<usize>,
    waiting: [VecDeque<Waiter>; 2],
    commands: u64,
    /// When the scheduler is to be asked again.
    wake: Option<Time>,
}

impl Queue {
    pub(super) fn new(disk: &Disk, target_ms: u64) -> Self {
        let tunables = Tunables {
            target_latency: Span::from_millis(target_ms),
            rotational: disk.is_rotational(),
            ..Tunables::default()
        };
        let limits = Limits { requests: REQUESTS, ..Limits::default() };
        Self {
            elevator: Elevator::with_limits(Cfq::new(tunables), disk.capacity(), limits),
            device: disk.device(),
            at_device: HashMap::new(),
            flushes: VecDeque::new(),
            waiting: [VecDeque::new(), VecDeque::new()],
            commands: 0,
            wake: None,
        }
    }

    pub(super) const fn counters(&self) -> &Counters {
        self.elevator.counters()
    }

    pub(super) fn next_event(&self) -> Option<Time> {
        self.device.next_event().into_iter().chain(self.wake).min()
    }

    /// Submits a request; false if there is no place, and then `waiter` is told when there is one.
    pub(super) fn submit(
        &mut self,
        now: Time,
        ask: &Ask,
        waiter: Option<Waiter>,
    ) -> Result<bool, IobenchError> {
        let sectors = Sectors(ask.pages * 8);
        let request = match ask.purpose {
            Purpose::Read => Request::read(ask.process, ask.start, sectors),
            _ => Request::write(ask.process, ask.start, sectors),
        };
        let request = if ask.sync { request.sync() } else { request };
        let tag = (ask.purpose as u64) << 60 | u64::from(ask.thread) << 32 | u64::from(ask.page);
        let way = request.direction() as usize;
        match self.elevator.submit(now, request.tag(tag)) {
            Ok(_) => Ok(true),
            Err(Refused::Full { .. }) => {
                self.waiting[way].extend(waiter);
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// A process has ended: the scheduler waits for no more requests of it.
    pub(super) fn exited(&mut self, now: Time, process: Process) {
        self.elevator.exited(now, process);
    }

    /// A thread waits until all that was written before is on the medium.
    pub(super) fn flush(&mut self, thread: usize) {
        self.flushes.push_back(thread);
    }

    /// Takes what the disk has done, and who has a place now.
    pub(super) fn poll(&mut self, now: Time, done: &mut Vec<Done>, woken: &mut Vec<Waiter>) {
        while let Some(ended) = self.device.poll(now) {
            match self.at_device.remove(&ended.id) {
                Some(AtDevice::Flush(thread)) => done.push(Done::Flush(thread)),
                Some(AtDevice::Token(token)) => {
                    let way = token.direction() as usize;
                    let completed = self.elevator.complete(ended.at, token, ended.outcome);
                    for part in completed.into_iter().flat_map(|completed| completed.parts) {
                        let purpose = match part.tag >> 60 {
                            0 => Purpose::Read,
                            1 => Purpose::Write,
                            _ => Purpose::Log,
                        };
                        let thread = (part.tag >> 32) as u32 & 0x0fff_ffff;
                        let (page, pages) = (part.tag as u32, part.sectors.0 / 8);
                        done.push(Done::Pages { purpose, thread, page, pages });
                    }
                    woken.extend(self.waiting[way].pop_front());
                }
                None => {}
            }
        }
    }

    /// Gives the disk what it has room for.
    pub(super) fn feed(&mut self, now: Time) -> Result<(), IobenchError> {
        self.wake = None;
        while self.at_device.len() < self.device.depth() {
            let (held, operation) = if let Some(thread) = self.flushes.pop_front() {
                (AtDevice::Flush(thread), Operation::Flush)
            } else {
                match self.elevator.dispatch(now) {
                    Next::Go(token) => {
                        let (start, sectors) = (token.start(), token.sectors());
                        let operation = match token.direction() {
                            Direction::Read => Operation::Read { start, sectors },
                            Direction::Write => Operation::Write { start, sectors },
                        };
                        (AtDevice::Token(token), operation)
                    }
                    Next::Wait(until) => {
                        self.wake = Some(until);
                        return Ok(());
                    }
                    Next::Hold | Next::Nothing => return Ok(()),
                }
            };
            self.commands += 1;
            self.device.start(now, Command { id: self.commands, operation })?;
            self.at_device.insert(self.commands, held);
        }
        Ok(())
    }
}
