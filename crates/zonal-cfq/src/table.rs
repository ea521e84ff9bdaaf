//! The requests that are queued, and an index of where they begin and end.
//!
//! ```
//! use zonal_cfq::table::Table;
//!
//! let table = Table::default();
//! assert_eq!((table.len(), table.is_empty()), (0, true));
//! ```

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use crate::request::{Direction, Part, Priority, Request};
use crate::units::{GroupId, Process, Sector, Sectors, Time};

/// The place of a queued request in its [`Table`], until it leaves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub(crate) u32);

/// A queued request.
#[derive(Debug)]
pub struct Queued {
    /// The order of arrival.
    pub serial: u64,
    /// The first sector.
    pub start: Sector,
    /// How many.
    pub sectors: Sectors,
    /// The direction.
    pub direction: Direction,
    /// Whether a process waits for it.
    pub sync: bool,
    /// Whether it is of the file system's own structures.
    pub metadata: bool,
    /// Whether no further one follows soon.
    pub last: bool,
    /// Who asked first.
    pub process: Process,
    /// Its priority.
    pub priority: Priority,
    /// Its group.
    pub group: GroupId,
    /// When it was submitted; the earliest of its parts.
    pub arrived: Time,
    /// The policy's: when it is overdue.
    pub expires: Time,
    /// The policy's: which of its queues has the request.
    pub owner: u32,
    pub(crate) parts: Vec<Part>,
}

impl Queued {
    /// The sector behind its last.
    #[must_use]
    pub fn end(&self) -> Sector {
        self.start + self.sectors
    }

    /// A queued request of one part.
    pub(crate) fn new(request: &Request, serial: u64, now: Time) -> Self {
        let part = Part {
            tag: request.tag,
            process: request.process,
            start: request.start,
            sectors: request.sectors,
            arrived: now,
            serial,
        };
        Self {
            serial,
            start: request.start,
            sectors: request.sectors,
            direction: request.direction,
            sync: request.sync,
            metadata: request.metadata,
            last: request.last,
            process: request.process,
            priority: request.priority,
            group: request.group,
            arrived: now,
            expires: Time::ZERO,
            owner: 0,
            parts: alloc::vec![part],
        }
    }

    /// The same for other parts, which are by sector and without gaps.
    pub(crate) fn of_parts(&self, parts: Vec<Part>) -> Self {
        let start = parts.first().map_or(self.start, |part| part.start);
        let sectors = Sectors(parts.iter().map(|part| part.sectors.0).sum());
        let arrived = parts.iter().map(|part| part.arrived).min().unwrap_or(self.arrived);
        // The order of arrival is a key: it is that of a part, which is in no other request.
        let serial = parts.iter().map(|part| part.serial).min().unwrap_or(self.serial);
        Self { serial, start, sectors, arrived, parts, ..*self }
    }
}

/// The requests that are queued. Finding one by its id takes one step, by its place O(log n).
#[derive(Debug, Default)]
pub struct Table {
    slots: Vec<Option<Queued>>,
    free: Vec<u32>,
    /// Direction, first sector, request.
    starts: BTreeSet<(Direction, Sector, RequestId)>,
    /// Direction, sector behind the last, request.
    ends: BTreeSet<(Direction, Sector, RequestId)>,
    /// Which request has a part.
    parts: BTreeMap<u64, RequestId>,
}

impl Table {
    /// How many requests are queued.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Whether none is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A request.
    ///
    /// # Panics
    ///
    /// If it left the table: a bug of the policy.
    #[must_use]
    pub fn get(&self, id: RequestId) -> &Queued {
        match self.slots.get(id.0 as usize) {
            Some(Some(queued)) => queued,
            _ => panic!("a policy names a request that is not queued"),
        }
    }

    /// A request, for what the policy keeps in it.
    ///
    /// # Panics
    ///
    /// As [`get`](Self::get).
    pub fn mark(&mut self, id: RequestId, expires: Time, owner: u32) {
        match self.slots.get_mut(id.0 as usize) {
            Some(Some(queued)) => (queued.expires, queued.owner) = (expires, owner),
            _ => panic!("a policy names a request that is not queued"),
        }
    }

    pub(crate) fn add(&mut self, queued: Queued) -> RequestId {
        let id = RequestId(self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            // As many as fit in memory are fewer than 2^32.
            (self.slots.len() - 1) as u32
        }));
        self.starts.insert((queued.direction, queued.start, id));
        self.ends.insert((queued.direction, queued.end(), id));
        self.parts.extend(queued.parts.iter().map(|part| (part.serial, id)));
        self.slots[id.0 as usize] = Some(queued);
        id
    }

    /// Takes a request out.
    pub(crate) fn take(&mut self, id: RequestId) -> Queued {
        let Some(queued) = self.slots.get_mut(id.0 as usize).and_then(Option::take) else {
            panic!("a policy names a request that is not queued");
        };
        self.free.push(id.0);
        self.starts.remove(&(queued.direction, queued.start, id));
        self.ends.remove(&(queued.direction, queued.end(), id));
        for part in &queued.parts {
            self.parts.remove(&part.serial);
        }
        queued
    }

    /// Adds the parts of a neighbour to a request, before or behind its own. Its place changes.
    pub(crate) fn join(&mut self, id: RequestId, neighbour: Queued) {
        let Some(Some(queued)) = self.slots.get_mut(id.0 as usize) else { return };
        self.starts.remove(&(queued.direction, queued.start, id));
        self.ends.remove(&(queued.direction, queued.end(), id));
        self.parts.extend(neighbour.parts.iter().map(|part| (part.serial, id)));
        queued.arrived = queued.arrived.min(neighbour.arrived);
        queued.sectors.0 += neighbour.sectors.0;
        let mut parts = neighbour.parts;
        if neighbour.start < queued.start {
            queued.start = neighbour.start;
            parts.append(&mut queued.parts);
            queued.parts = parts;
        } else {
            queued.parts.append(&mut parts);
        }
        self.starts.insert((queued.direction, queued.start, id));
        self.ends.insert((queued.direction, queued.end(), id));
    }

    /// The requests that end where another begins.
    pub(crate) fn ending_at(
        &self,
        direction: Direction,
        sector: Sector,
    ) -> impl Iterator<Item = RequestId> + '_ {
        at(&self.ends, direction, sector)
    }

    /// The requests that begin where another ends.
    pub(crate) fn starting_at(
        &self,
        direction: Direction,
        sector: Sector,
    ) -> impl Iterator<Item = RequestId> + '_ {
        at(&self.starts, direction, sector)
    }

    /// The request that a part is in.
    pub(crate) fn with_part(&self, serial: u64) -> Option<RequestId> {
        self.parts.get(&serial).copied()
    }
}

fn at(
    index: &BTreeSet<(Direction, Sector, RequestId)>,
    direction: Direction,
    sector: Sector,
) -> impl Iterator<Item = RequestId> + '_ {
    let (first, last) = (RequestId(0), RequestId(u32::MAX));
    index.range((direction, sector, first)..=(direction, sector, last)).map(|(_, _, id)| *id)
}
