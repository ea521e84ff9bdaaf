//! By sector, in batches of one direction, unless a request is overdue. Source: Linux 3.16.
//!
//! Mechanism: each direction has its requests by sector and by age. A batch goes on at the next
//! higher sector, for at most [`batch`](Tunables::batch) requests. Then reads are next, if there are
//! any, but writes when reads went first [`writes_starved`](Tunables::writes_starved) times while
//! writes waited. A new batch begins where the last one ended; at the oldest request if that is
//! overdue, none is further up, or the last batch was of the other direction.
//!
//! ```
//! use zonal_cfq::deadline::{Deadline, Tunables};
//! use zonal_cfq::elevator::{Elevator, Next};
//! use zonal_cfq::request::Request;
//! use zonal_cfq::units::{Process, Sector, Sectors, Time};
//!
//! let mut elevator = Elevator::new(Deadline::new(Tunables::default()), Sector(1000));
//! elevator.submit(Time(0), Request::write(Process(1), Sector(0), Sectors(8)))?;
//! elevator.submit(Time(0), Request::read(Process(2), Sector(500), Sectors(8)))?;
//! let Next::Go(first) = elevator.dispatch(Time(1)) else { panic!("there are two") };
//! assert_eq!(first.start(), Sector(500), "the read");
//! # elevator.requeue(first).unwrap();
//! # Ok::<(), zonal_cfq::elevator::Refused>(())
//! ```

use alloc::collections::{BTreeMap, BTreeSet};

use crate::policy::{Choice, Policy};
use crate::request::Direction;
use crate::table::{RequestId, Table};
use crate::units::{Sector, Span, Time};

/// What can be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tunables {
    /// When a read is overdue: 500 ms.
    pub read_expire: Span,
    /// When a write is overdue: 5 s.
    pub write_expire: Span,
    /// How often reads go before writes that wait: 2.
    pub writes_starved: u32,
    /// Requests in a batch: 16.
    pub batch: u32,
    /// Whether requests grow at their front: yes.
    pub front_merges: bool,
}

impl Default for Tunables {
    fn default() -> Self {
        Self {
            read_expire: Span::from_millis(500),
            write_expire: Span::from_millis(5000),
            writes_starved: 2,
            batch: 16,
            front_merges: true,
        }
    }
}

/// The requests of one direction.
#[derive(Debug, Default)]
struct Lane {
    sorted: BTreeSet<(Sector, RequestId)>,
    fifo: BTreeMap<(Time, u64), RequestId>,
    /// Where the last of this direction ended.
    position: Sector,
}

impl Lane {
    fn remove(&mut self, table: &Table, id: RequestId) {
        let queued = table.get(id);
        self.sorted.remove(&(queued.start, id));
        self.fifo.remove(&(queued.expires, queued.serial));
    }

    /// The next further up.
    fn further(&self) -> Option<RequestId> {
        self.sorted.range((self.position, RequestId(0))..).next().map(|(_, id)| *id)
    }

    /// Where a new batch begins, behind the last one if that was of this direction.
    fn begin(&self, now: Time, is_same: bool) -> Option<RequestId> {
        let (&(expires, _), &oldest) = self.fifo.first_key_value()?;
        let further = if is_same && expires > now { self.further() } else { None };
        further.or(Some(oldest))
    }
}

/// The scheduler deadline.
#[derive(Debug)]
pub struct Deadline {
    tunables: Tunables,
    reads: Lane,
    writes: Lane,
    /// The direction of the batch under way, and how many of it went.
    batch: Option<(Direction, u32)>,
    /// How often reads went before writes that waited.
    starved: u32,
}

impl Deadline {
    /// The scheduler.
    #[must_use]
    pub fn new(tunables: Tunables) -> Self {
        let (reads, writes) = (Lane::default(), Lane::default());
        Self { tunables, reads, writes, batch: None, starved: 0 }
    }

    fn lane(&mut self, direction: Direction) -> &mut Lane {
        match direction {
            Direction::Read => &mut self.reads,
            Direction::Write => &mut self.writes,
        }
    }

    /// The direction of a new batch.
    fn turn(&mut self) -> Option<Direction> {
        let (reads, writes) = (!self.reads.sorted.is_empty(), !self.writes.sorted.is_empty());
        if reads && (!writes || self.starved < self.tunables.writes_starved) {
            self.starved += u32::from(writes);
            return Some(Direction::Read);
        }
        self.starved = 0;
        writes.then_some(Direction::Write)
    }
}

impl Policy for Deadline {
    fn name(&self) -> &'static str {
        "deadline"
    }

    fn may_join(&self, _: &crate::table::Queued, _: &crate::request::Request) -> bool {
        true
    }

    fn may_coalesce(&self, _: &crate::table::Queued, _: &crate::table::Queued) -> bool {
        true
    }

    fn merges_in_front(&self) -> bool {
        self.tunables.front_merges
    }

    fn insert(&mut self, table: &mut Table, id: RequestId, _: Time) {
        let queued = table.get(id);
        let (start, serial, direction) = (queued.start, queued.serial, queued.direction);
        let expire = match direction {
            Direction::Read => self.tunables.read_expire,
            Direction::Write => self.tunables.write_expire,
        };
        let expires = queued.arrived + expire;
        table.mark(id, expires, 0);
        let lane = self.lane(direction);
        lane.sorted.insert((start, id));
        lane.fifo.insert((expires, serial), id);
    }

    fn withdraw(&mut self, table: &mut Table, id: RequestId, _: Time) {
        self.lane(table.get(id).direction).remove(table, id);
    }

    fn grown(&mut self, table: &mut Table, id: RequestId, old: Sector, expires: Time) {
        let queued = table.get(id);
        let (start, serial, was) = (queued.start, queued.serial, queued.expires);
        let lane = self.lane(queued.direction);
        lane.sorted.remove(&(old, id));
        lane.sorted.insert((start, id));
        if expires < was {
            lane.fifo.remove(&(was, serial));
            lane.fifo.insert((expires, serial), id);
            table.mark(id, expires, 0);
        }
    }

    fn next(&mut self, table: &mut Table, now: Time) -> Choice {
        let limit = self.tunables.batch;
        let under_way = self.batch.filter(|(_, gone)| *gone < limit);
        let on = under_way.and_then(|(way, gone)| Some((way, gone, self.lane(way).further()?)));
        let chosen = on.or_else(|| {
            let way = self.turn()?;
            let is_same = self.batch.is_some_and(|(last, _)| last == way);
            Some((way, 0, self.lane(way).begin(now, is_same)?))
        });
        let Some((way, gone, id)) = chosen else { return Choice::Nothing };
        self.batch = Some((way, gone + 1));
        let lane = self.lane(way);
        lane.remove(table, id);
        lane.position = table.get(id).end();
        Choice::Go(id)
    }
}
