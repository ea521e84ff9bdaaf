//! A workload over a scheduler over a simulated disk, on one virtual clock.
//!
//! ```
//! use zonal_iosched::scheduler::{Kind, Subject};
//! use zonal_iosched::simulated::simulate;
//! use zonal_iosched::workload::Workload;
//!
//! let disk = zonal_disk::builtin("desktop_2014").expect("it is built in");
//! let run = |kind| {
//!     let workload = Workload::readers(4, 64 << 20, disk.capacity())?;
//!     Ok::<_, Box<dyn std::error::Error>>(simulate(&Subject::new(kind), &disk, workload)?.mib_s())
//! };
//! assert!(run(Kind::Cfq)? > run(Kind::Noop)?, "it seeks less");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::collections::{BTreeMap, VecDeque};

use zonal_cfq::elevator::{Elevator, Next, Refused};
use zonal_cfq::policy::Policy;
use zonal_cfq::request::{Direction, Dispatched, Request};
use zonal_cfq::units::{Sectors, Time};
use zonal_disk::Disk;
use zonal_disk::device::{Command, Device, Operation};

use crate::error::IoschedError;
use crate::figures::Outcome;
use crate::scheduler::Subject;
use crate::workload::{Ask, Context, Workload};

/// A context, and what it waits for.
struct Running {
    context: Context,
    /// What it asked for, and when.
    asked: Option<(Ask, Time)>,
    /// When its operation began.
    operation: Time,
}

/// What a command on the disk is for.
enum Purpose {
    Token(Dispatched),
    /// A flush that a context waits for.
    Flush(usize),
}

struct Simulation {
    now: Time,
    elevator: Elevator<Box<dyn Policy + Send>>,
    device: Box<dyn Device + Send>,
    running: Vec<Running>,
    /// What contexts ask for next: time, order, context.
    due: BTreeMap<(Time, u64), usize>,
    order: u64,
    /// Contexts whose request waits for a place in the queue, for each direction.
    waiting: [VecDeque<usize>; 2],
    /// Flushes that wait for a place at the device.
    flushes: VecDeque<usize>,
    at_device: BTreeMap<u64, Purpose>,
    commands: u64,
    /// When the scheduler is to be asked again.
    wake: Option<Time>,
    /// No request begins from then on.
    end: Time,
    outcome: Outcome,
}

/// Runs a workload to its end or its limit. What is under way at the limit is not waited for.
///
/// # Errors
///
/// [`IoschedError`]; none of them if the workload is for a disk of that capacity.
pub fn simulate(
    subject: &Subject,
    disk: &Disk,
    workload: Workload,
) -> Result<Outcome, IoschedError> {
    let subject = Subject { rotational: disk.is_rotational(), ..*subject };
    let mut simulation = Simulation::new(&subject, disk, workload);
    simulation.run().map_err(|error| match error {
        IoschedError::Stuck(_) => IoschedError::Stuck(subject.name()),
        error => error,
    })
}

impl Simulation {
    fn new(subject: &Subject, disk: &Disk, workload: Workload) -> Self {
        let outcome = Outcome::new(&workload.names);
        let run = |context| Running { context, asked: None, operation: Time::ZERO };
        let mut simulation = Self {
            now: Time::ZERO,
            elevator: Elevator::new(subject.policy(), disk.capacity()),
            device: disk.device(),
            running: workload.contexts.into_iter().map(run).collect(),
            due: BTreeMap::new(),
            order: 0,
            waiting: [VecDeque::new(), VecDeque::new()],
            flushes: VecDeque::new(),
            at_device: BTreeMap::new(),
            commands: 0,
            wake: None,
            end: workload.limit.map_or(Time(u64::MAX), |limit| Time::ZERO + limit),
            outcome,
        };
        (0..simulation.running.len()).for_each(|index| simulation.go_on(index, true));
        simulation
    }

    fn run(&mut self) -> Result<Outcome, IoschedError> {
        loop {
            let first = self.due.first_key_value().map(|((at, _), _)| *at);
            let Some(at) = [first, self.device.next_event(), self.wake].into_iter().flatten().min()
            else {
                break;
            };
            if at >= self.end {
                self.now = self.end;
                break;
            }
            self.now = self.now.max(at);
            self.poll()?;
            self.ask()?;
            self.feed()?;
            let is_over = self.running.iter().all(|running| running.asked.is_none());
            if is_over {
                break;
            }
        }
        if self.now < self.end && !self.elevator.is_idle() {
            return Err(IoschedError::Stuck(String::new()));
        }
        let mut outcome = std::mem::replace(&mut self.outcome, Outcome::new(&[]));
        outcome.elapsed = self.now.since(Time::ZERO);
        outcome.counters = *self.elevator.counters();
        outcome.idled = self.elevator.policy().idled();
        Ok(outcome)
    }

    /// A context thinks of what it asks for next.
    fn go_on(&mut self, index: usize, begins: bool) {
        let running = &mut self.running[index];
        running.asked = running.context.next().map(|ask| (ask, self.now + ask.think));
        if begins {
            running.operation = self.now;
        }
        if let Some((_, at)) = running.asked {
            self.order += 1;
            self.due.insert((at, self.order), index);
        } else if let Some(process) = running.context.alone() {
            // It is not waited for any more.
            self.elevator.exited(self.now, process);
        }
    }

    /// What a context waited for has ended.
    fn ended(&mut self, index: usize) {
        let Some((ask, asked)) = self.running[index].asked else { return };
        self.outcome.add(ask.who, ask.sectors, self.now.since(asked));
        if let Some(whole) = ask.ends.filter(|whole| *whole != ask.who) {
            let latency = self.now.since(self.running[index].operation);
            self.outcome.add(whole, Sectors(0), latency);
        }
        self.go_on(index, ask.ends.is_some());
    }

    /// Takes what the disk has done.
    fn poll(&mut self) -> Result<(), IoschedError> {
        while let Some(ended) = self.device.poll(self.now) {
            match self.at_device.remove(&ended.id) {
                Some(Purpose::Flush(index)) => self.ended(index),
                Some(Purpose::Token(token)) => {
                    let way = token.direction() as usize;
                    let done = self.elevator.complete(ended.at, token, ended.outcome);
                    for part in done.into_iter().flat_map(|done| done.parts) {
                        self.ended(part.tag as usize);
                    }
                    while let Some(index) = self.waiting[way].pop_front() {
                        if !self.submit(index)? {
                            self.waiting[way].rotate_right(1);
                            break;
                        }
                    }
                }
                None => {}
            }
        }
        Ok(())
    }

    /// Submits what contexts ask for now.
    fn ask(&mut self) -> Result<(), IoschedError> {
        while let Some(entry) = self.due.first_entry().filter(|it| it.key().0 <= self.now) {
            let index = entry.remove();
            self.submit(index)?;
        }
        Ok(())
    }

    /// Submits what a context asks for; false if there is no place, and then it waits for one.
    fn submit(&mut self, index: usize) -> Result<bool, IoschedError> {
        let Some((ask, _)) = self.running[index].asked else { return Ok(true) };
        let Some(direction) = ask.direction else {
            self.flushes.push_back(index);
            return Ok(true);
        };
        let request = request_of(&ask, direction).tag(index as u64);
        let way = direction as usize;
        match self.elevator.submit(self.now, request) {
            Ok(_) => Ok(true),
            Err(Refused::Full { .. }) => {
                self.waiting[way].push_back(index);
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Gives the disk what it has room for.
    fn feed(&mut self) -> Result<(), IoschedError> {
        self.wake = None;
        while self.at_device.len() < self.device.depth() {
            let (purpose, operation) = if let Some(index) = self.flushes.pop_front() {
                (Purpose::Flush(index), Operation::Flush)
            } else {
                match self.elevator.dispatch(self.now) {
                    Next::Go(token) => {
                        let operation = operation_of(&token);
                        (Purpose::Token(token), operation)
                    }
                    Next::Wait(until) => {
                        self.wake = Some(until);
                        return Ok(());
                    }
                    Next::Hold | Next::Nothing => return Ok(()),
                }
            };
            self.commands += 1;
            let id = self.commands;
            self.device.start(self.now, Command { id, operation })?;
            self.at_device.insert(id, purpose);
        }
        Ok(())
    }
}

fn operation_of(token: &Dispatched) -> Operation {
    let (start, sectors) = (token.start(), token.sectors());
    match token.direction() {
        Direction::Read => Operation::Read { start, sectors },
        Direction::Write => Operation::Write { start, sectors },
    }
}

/// The request of a context that does not flush.
pub(crate) fn request_of(ask: &Ask, direction: Direction) -> Request {
    let request = match direction {
        Direction::Read => Request::read(ask.process, ask.start, ask.sectors),
        Direction::Write => Request::write(ask.process, ask.start, ask.sectors),
    };
    let request = if ask.sync { request.sync() } else { request };
    if ask.last { request.last() } else { request }
}
