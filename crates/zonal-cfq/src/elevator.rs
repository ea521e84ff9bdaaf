//! The front of every scheduler: it checks, merges, counts, and hands tokens on. It has no clock:
//! every call says what time it is. Time that goes backwards counts as time that stands still.
//!
//! The caller dispatches until it is told to stop, and again after each of: a request submitted, a
//! request completed, a process exited, the time of [`Next::Wait`] come. It does so as long as its device takes more.
//! A flush of the device's write cache is not the elevator's business: it goes to the device.
//!
//! ```
//! use zonal_cfq::elevator::{Elevator, Next};
//! use zonal_cfq::noop::Noop;
//! use zonal_cfq::request::{Outcome, Request};
//! use zonal_cfq::units::{Process, Sector, Sectors, Time};
//!
//! let mut elevator = Elevator::new(Noop::default(), Sector(1000));
//! for start in [0, 8] {
//!     elevator.submit(Time(0), Request::read(Process(1), Sector(start), Sectors(8)).tag(start))?;
//! }
//! let Next::Go(token) = elevator.dispatch(Time(10)) else { panic!("both became one") };
//! let done = elevator.complete(Time(20), token, Outcome::Done)?;
//! assert_eq!(done.parts.iter().map(|part| part.tag).collect::<Vec<_>>(), [0, 8]);
//! assert_eq!(elevator.counters().back_merges, 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::fmt;
use core::sync::atomic::{AtomicU32, Ordering};

use crate::counters::Counters;
use crate::policy::{Choice, Finished, Policy};
use crate::request::{Completed, Direction, Dispatched, Outcome, Part, Request, Submitted};
use crate::table::{Queued, RequestId, Table};
use crate::units::{GroupId, Process, Sector, Sectors, Time};

/// How large things get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The longest request, merged ones included: 1024 sectors, or 512 KiB.
    pub longest: Sectors,
    /// How many requests of one direction may be queued or with the device: 128.
    pub requests: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self { longest: Sectors(1024), requests: 128 }
    }
}

/// Why a request was not taken. Nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refused {
    /// It has no sectors.
    Empty,
    /// It has more than a request may have.
    TooLong {
        /// What it has.
        sectors: Sectors,
        /// What it may have.
        longest: Sectors,
    },
    /// The disk ends before it does.
    BeyondEnd {
        /// The sector behind its last.
        end: Sector,
        /// The sector behind the disk's last.
        capacity: Sector,
    },
    /// There is no such group.
    UnknownGroup(GroupId),
    /// As many requests of its direction are under way as there may be: submit it when one has
    /// completed.
    Full {
        /// How many.
        limit: u32,
    },
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => write!(f, "a request of no sectors"),
            Self::TooLong { sectors, longest } => {
                write!(f, "a request of {} sectors; at most {} go at once", sectors.0, longest.0)
            }
            Self::BeyondEnd { end, capacity } => {
                write!(f, "a request up to sector {} of a disk of {}", end.0, capacity.0)
            }
            Self::UnknownGroup(group) => write!(f, "there is no group {}", group.0),
            Self::Full { limit } => write!(f, "{limit} requests are under way already"),
        }
    }
}

impl core::error::Error for Refused {}

/// A token of another elevator, given back. Nothing changed.
#[derive(Debug, PartialEq, Eq)]
pub struct Foreign<T>(pub T);

impl<T> fmt::Display for Foreign<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a request of another scheduler")
    }
}

impl<T: fmt::Debug> core::error::Error for Foreign<T> {}

/// Why a request was not cancelled. Nothing changed.
#[derive(Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CancelError {
    /// It is with the device already, or done.
    Gone,
    /// It is a request of another scheduler.
    Foreign(Submitted),
}

impl fmt::Display for CancelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gone => write!(f, "the request is with the device already, or done"),
            Self::Foreign(_) => write!(f, "a request of another scheduler"),
        }
    }
}

impl core::error::Error for CancelError {}

/// What the caller does next.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub enum Next {
    /// Give this to the device.
    Go(Dispatched),
    /// Ask again at that time, or when a request was submitted or completed, or a process exited.
    Wait(Time),
    /// Ask again when a request has completed.
    Hold,
    /// Nothing is queued.
    Nothing,
}

/// Numbers of elevators. Relaxed: only that they differ matters.
static NUMBERS: AtomicU32 = AtomicU32::new(0);

/// A scheduler over one disk.
#[derive(Debug)]
pub struct Elevator<P> {
    number: u32,
    capacity: Sector,
    limits: Limits,
    clock: Time,
    serial: u64,
    table: Table,
    /// Given back by the device: they go first.
    requeued: VecDeque<Dispatched>,
    /// Queued or with the device, for each direction.
    under_way: [u32; 2],
    counters: Counters,
    policy: P,
}

impl<P: Policy> Elevator<P> {
    /// A scheduler over a disk that ends before `capacity`.
    pub fn new(policy: P, capacity: Sector) -> Self {
        Self::with_limits(policy, capacity, Limits::default())
    }

    /// The same, with other limits.
    pub fn with_limits(policy: P, capacity: Sector, limits: Limits) -> Self {
        Self {
            number: NUMBERS.fetch_add(1, Ordering::Relaxed),
            capacity,
            limits,
            clock: Time::ZERO,
            serial: 0,
            table: Table::default(),
            requeued: VecDeque::new(),
            under_way: [0; 2],
            counters: Counters::default(),
            policy,
        }
    }

    /// The policy.
    pub const fn policy(&self) -> &P {
        &self.policy
    }

    /// The policy, to be set otherwise.
    pub const fn policy_mut(&mut self) -> &mut P {
        &mut self.policy
    }

    /// What was counted.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// How many requests are queued, after merging.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.table.len() + self.requeued.len()
    }

    /// Whether no request is queued or with the device.
    #[must_use]
    pub const fn is_idle(&self) -> bool {
        self.under_way[0] + self.under_way[1] == 0
    }

    fn tick(&mut self, now: Time) -> Time {
        let now = now.max(self.clock);
        self.counters.pass(now.since(self.clock), self.under_way[0] + self.under_way[1]);
        self.clock = now;
        now
    }

    fn check(&self, request: &Request) -> Result<(), Refused> {
        let (sectors, longest) = (request.sectors, self.limits.longest);
        if sectors.0 == 0 {
            return Err(Refused::Empty);
        }
        if sectors > longest {
            return Err(Refused::TooLong { sectors, longest });
        }
        let end = request.start.0.checked_add(u64::from(sectors.0)).map(Sector);
        match end {
            Some(end) if end <= self.capacity => {}
            _ => {
                let (end, capacity) = (end.unwrap_or(Sector(u64::MAX)), self.capacity);
                return Err(Refused::BeyondEnd { end, capacity });
            }
        }
        if !self.policy.has_group(request.group) {
            return Err(Refused::UnknownGroup(request.group));
        }
        Ok(())
    }

    /// Queues a request, or makes it part of one that is queued. O(log n) but for what the policy
    /// does.
    ///
    /// # Errors
    ///
    /// [`Refused`], and nothing has changed.
    #[allow(clippy::needless_pass_by_value, reason = "the token moves on")]
    pub fn submit(&mut self, now: Time, request: Request) -> Result<Submitted, Refused> {
        self.check(&request)?;
        let way = request.direction as usize;
        let merge = self.partner(&request);
        if merge.is_none() && self.under_way[way] >= self.limits.requests {
            return Err(Refused::Full { limit: self.limits.requests });
        }
        let now = self.tick(now);
        self.serial += 1;
        let serial = self.serial;
        self.counters.submitted += 1;
        let queued = Queued::new(&request, serial, now);
        if let Some((id, is_back)) = merge {
            self.grow(id, queued, is_back, now);
        } else {
            self.under_way[way] += 1;
            let id = self.table.add(queued);
            self.policy.insert(&mut self.table, id, now);
        }
        Ok(Submitted { elevator: self.number, serial })
    }

    /// The queued request that a new one may become part of, and whether at its back.
    fn partner(&self, request: &Request) -> Option<(RequestId, bool)> {
        let room = self.limits.longest.0 - request.sectors.0;
        let fits = |id: &RequestId| {
            let queued = self.table.get(*id);
            queued.sectors.0 <= room
                && queued.group == request.group
                && self.policy.may_join(queued, request)
        };
        let back = self.table.ending_at(request.direction, request.start).find(fits);
        let front = || {
            let mut all = self.table.starting_at(request.direction, request.end());
            all.find(fits).filter(|_| self.policy.merges_in_front())
        };
        back.map(|id| (id, true)).or_else(|| front().map(|id| (id, false)))
    }

    /// Makes a request part of a queued one, and that part of one that it now touches.
    fn grow(&mut self, id: RequestId, queued: Queued, is_back: bool, now: Time) {
        let old = self.table.get(id).start;
        self.table.join(id, queued);
        *if is_back { &mut self.counters.back_merges } else { &mut self.counters.front_merges } +=
            1;
        self.policy.grown(&mut self.table, id, old, Time(u64::MAX));
        let one = self.table.get(id);
        let room = self.limits.longest.0 - one.sectors.0;
        let fits = |other: &RequestId| {
            let other = self.table.get(*other);
            other.sectors.0 <= room
                && other.group == one.group
                && self.policy.may_coalesce(one, other)
        };
        let (way, start, end) = (one.direction, one.start, one.end());
        let neighbour = if is_back {
            self.table.starting_at(way, end).find(fits)
        } else {
            self.table.ending_at(way, start).find(fits)
        };
        let Some(other) = neighbour else { return };
        self.policy.withdraw(&mut self.table, other, now);
        let other = self.table.take(other);
        let expires = other.expires;
        self.under_way[way as usize] -= 1;
        self.counters.coalesced += 1;
        self.table.join(id, other);
        self.policy.grown(&mut self.table, id, start, expires);
    }

    /// The next request for the device.
    pub fn dispatch(&mut self, now: Time) -> Next {
        let now = self.tick(now);
        if let Some(token) = self.requeued.pop_front() {
            return Next::Go(token);
        }
        let id = match self.policy.next(&mut self.table, now) {
            Choice::Go(id) => id,
            Choice::Wait(until) => return Next::Wait(until),
            Choice::Hold => return Next::Hold,
            Choice::Nothing => return Next::Nothing,
        };
        let queued = self.table.take(id);
        self.counters.dispatch(queued.direction, queued.sectors);
        Next::Go(Dispatched {
            elevator: self.number,
            start: queued.start,
            sectors: queued.sectors,
            direction: queued.direction,
            sync: queued.sync,
            owner: queued.owner,
            process: queued.process,
            group: queued.group,
            arrived: queued.arrived,
            dispatched: now,
            parts: queued.parts,
        })
    }

    /// Takes back what the device did, or could not do.
    ///
    /// # Errors
    ///
    /// [`Foreign`] with the token if another elevator dispatched it; nothing has changed.
    pub fn complete(
        &mut self,
        now: Time,
        token: Dispatched,
        outcome: Outcome,
    ) -> Result<Completed, Foreign<Dispatched>> {
        if token.elevator != self.number {
            return Err(Foreign(token));
        }
        let now = self.tick(now);
        let Dispatched { direction, arrived, dispatched, sync, sectors, .. } = token;
        let Dispatched { owner, process, group, .. } = token;
        self.under_way[direction as usize] -= 1;
        self.counters.complete(direction, outcome, now.since(arrived), now.since(dispatched));
        let finished = Finished { owner, process, group, sync, arrived, sectors, outcome };
        self.policy.completed(&finished, now);
        let service = now.since(dispatched);
        Ok(Completed { outcome, direction, parts: token.parts, at: now, service })
    }

    /// Takes back what the device had no room for. It is the next to be dispatched.
    ///
    /// # Errors
    ///
    /// As [`complete`](Self::complete).
    pub fn requeue(&mut self, token: Dispatched) -> Result<(), Foreign<Dispatched>> {
        if token.elevator != self.number {
            return Err(Foreign(token));
        }
        self.counters.requeued += 1;
        self.requeued.push_front(token);
        Ok(())
    }

    /// Takes back a request that is queued. One that it was merged with stays, as one or two.
    ///
    /// # Errors
    ///
    /// [`CancelError`], and nothing has changed.
    pub fn cancel(&mut self, now: Time, token: Submitted) -> Result<Part, CancelError> {
        if token.elevator != self.number {
            return Err(CancelError::Foreign(token));
        }
        let id = self.table.with_part(token.serial).ok_or(CancelError::Gone)?;
        let now = self.tick(now);
        self.policy.withdraw(&mut self.table, id, now);
        let mut queued = self.table.take(id);
        let way = queued.direction as usize;
        self.under_way[way] -= 1;
        self.counters.cancelled += 1;
        let mut parts = core::mem::take(&mut queued.parts);
        let at = parts.iter().position(|part| part.serial == token.serial);
        let mut behind = at.map_or(Vec::new(), |at| parts.split_off(at)).into_iter();
        let cut = behind.next().ok_or(CancelError::Gone)?;
        for rest in [parts, behind.collect()] {
            if rest.is_empty() {
                continue;
            }
            self.under_way[way] += 1;
            let id = self.table.add(queued.of_parts(rest));
            self.policy.restore(&mut self.table, id, now);
        }
        Ok(cut)
    }

    /// How many requests of a direction are queued or with the device.
    #[must_use]
    pub const fn under_way(&self, direction: Direction) -> u32 {
        self.under_way[direction as usize]
    }

    /// The process will ask for nothing any more: what was kept about it can go, and it is not waited
    /// for.
    pub fn exited(&mut self, now: Time, process: Process) {
        let now = self.tick(now);
        self.policy.exited(process, now);
    }
}
