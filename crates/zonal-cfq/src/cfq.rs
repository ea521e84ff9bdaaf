//! Complete fair queueing, as of Linux 3.16.
//!
//! Mechanism: each process has a queue for what it waits for (sync), each level has one for what no
//! process waits for (async). A queue has the device to itself for a slice, and is waited for, some
//! ms, when it has no request just now: the next one is likely to be close. Which queue is next
//! follows from when its last turn ended and from its level; which kind of queues (sync, sync but not
//! waited for one by one, async) from whose turn is longest due; which group from what it used for
//! its weight. So that each gets its turn within the target latency, slices shrink as more queues
//! are busy, down to a floor.
//!
//! State: one [`Cfq`], owned by its elevator; nothing is shared. Its files:
//!
//! | file | what is in it |
//! |---|---|
//! | `tunables` | what can be set, and constants that cannot |
//! | `slice` | how long slices are |
//! | `habit` | think times, seeks, whether the device orders requests itself |
//! | `queue`, `tree`, `group` | queues, service trees, groups with weights |
//! | `intake` | a request comes: to whose queue, and what it says of its process |
//! | `turn` | whose turn is next, and how a turn ends |
//! | `select` | whether the queue whose turn it is goes on, is waited for, or makes room |
//! | `preempt` | when a request ends another queue's turn |
//! | `cooperate` | queues that read the same place become one, and part again |
//! | `finish` | a request completed |
//!
//! ```
//! use zonal_cfq::cfq::{Cfq, Tunables};
//! use zonal_cfq::elevator::{Elevator, Next};
//! use zonal_cfq::request::{Outcome, Request};
//! use zonal_cfq::units::{Process, Sector, Sectors, Span, Time};
//!
//! let mut elevator = Elevator::new(Cfq::new(Tunables::default()), Sector(1 << 20));
//! elevator.submit(Time(0), Request::read(Process(1), Sector(0), Sectors(8)))?;
//! elevator.submit(Time(0), Request::read(Process(2), Sector(500_000), Sectors(8)))?;
//! let Next::Go(first) = elevator.dispatch(Time(0)) else { panic!("there are two") };
//! let now = Time(0) + Span::from_millis(1);
//! elevator.complete(now, first, Outcome::Done)?;
//! // Process 1 may ask for the next sector: process 2 has to wait, but not longer than 8 ms.
//! assert_eq!(elevator.dispatch(now), Next::Wait(now + Span::from_millis(8)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Costs: O(log n) in queued requests and busy queues for every call.

mod cooperate;
mod finish;
mod group;
mod habit;
mod intake;
mod preempt;
mod queue;
mod select;
mod slice;
mod tree;
mod tunables;
mod turn;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::fmt;

use crate::policy::{Choice, Finished, Policy};
use crate::request::{Class, Request};
use crate::table::{Queued, RequestId, Table};
use crate::units::{GroupId, Process, Sector, Span, Time};

use group::{Active, Group};
use habit::{Depth, ThinkTime};
use queue::{QueueId, Queues};
use tree::Kind;

pub use group::Weight;
pub use tunables::Tunables;

/// What a process is known for in one group.
#[derive(Debug)]
struct Member {
    queue: QueueId,
    think: ThinkTime,
}

/// Whose turn it is, above queues.
#[derive(Clone, Copy, Debug)]
struct Serving {
    group: GroupId,
    class: Class,
    kind: Kind,
    expires: Time,
}

/// What CFQ counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CfqCounters {
    /// Turns of queues that began.
    pub turns: u64,
    /// Turns ended by a request that could not wait.
    pub preemptions: u64,
    /// Queues that became part of another.
    pub merged: u64,
    /// Queues that parted again.
    pub split: u64,
    /// Times that the device was kept waiting for a queue's next request.
    pub waits: u64,
    /// Of these, those in which none came.
    pub waits_in_vain: u64,
    /// Requests dispatched because they were overdue.
    pub overdue: u64,
}

/// The scheduler CFQ.
#[derive(Debug)]
pub struct Cfq {
    tunables: Tunables,
    queues: Queues,
    groups: Vec<Group>,
    active_groups: Active,
    members: BTreeMap<(Process, GroupId), Member>,
    /// Next requests of busy queues: level, sector, queue. Who reads close to whom.
    positions: BTreeSet<(u8, Sector, QueueId)>,

    active: Option<QueueId>,
    /// The process whose request went first in this turn.
    active_member: Option<(Process, GroupId)>,
    serving: Serving,
    /// When waiting for the active queue's next request ends.
    idle_until: Option<Time>,
    /// When it began; its end once a request has come.
    idle_since: Time,
    idled: Span,

    /// Where the last dispatched request ended.
    position: Sector,
    queued: u32,
    /// With the device: async, sync.
    in_flight: [u32; 2],
    busy: u32,
    busy_sync: u32,
    depth: Depth,
    /// When a sync request completed last that was overdue, if any.
    last_delayed_sync: Option<Time>,
    /// Queues placed so far.
    placed: u64,
    counters: CfqCounters,
}

/// As many groups as there can be are there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyGroups;

impl fmt::Display for TooManyGroups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "there are {} groups already", u16::MAX)
    }
}

impl core::error::Error for TooManyGroups {}

impl Cfq {
    /// The scheduler with one group, the root, of weight 500.
    #[must_use]
    pub fn new(tunables: Tunables) -> Self {
        let serving = Serving {
            group: GroupId::ROOT,
            class: Class::BestEffort,
            kind: Kind::Sync,
            expires: Time::ZERO,
        };
        Self {
            tunables,
            queues: Queues::default(),
            groups: alloc::vec![Group::new(Weight::default())],
            active_groups: Active::default(),
            members: BTreeMap::new(),
            positions: BTreeSet::new(),
            active: None,
            active_member: None,
            serving,
            idle_until: None,
            idle_since: Time::ZERO,
            idled: Span::ZERO,
            position: Sector(0),
            queued: 0,
            in_flight: [0; 2],
            busy: 0,
            busy_sync: 0,
            depth: Depth::default(),
            last_delayed_sync: None,
            placed: 0,
            counters: CfqCounters::default(),
        }
    }

    /// Adds a group beside the root.
    ///
    /// # Errors
    ///
    /// [`TooManyGroups`], and there is none more.
    pub fn add_group(&mut self, weight: Weight) -> Result<GroupId, TooManyGroups> {
        let id = u16::try_from(self.groups.len()).map_err(|_| TooManyGroups)?;
        self.groups.push(Group::new(weight));
        Ok(GroupId(id))
    }

    /// Gives a group another weight; false if there is no such group.
    pub fn set_weight(&mut self, group: GroupId, weight: Weight) -> bool {
        let Some(group) = self.groups.get_mut(usize::from(group.0)) else { return false };
        self.active_groups.weigh(group, weight);
        true
    }

    /// What is set.
    #[must_use]
    pub const fn tunables(&self) -> &Tunables {
        &self.tunables
    }

    /// Sets other values, from the next slice on.
    pub const fn set_tunables(&mut self, tunables: Tunables) {
        self.tunables = tunables;
    }

    /// What was counted.
    #[must_use]
    pub const fn counters(&self) -> &CfqCounters {
        &self.counters
    }

    /// How many queues there are.
    #[must_use]
    pub fn queues(&self) -> usize {
        self.queues.len()
    }

    fn group(&self, id: GroupId) -> &Group {
        &self.groups[usize::from(id.0)]
    }

    fn group_mut(&mut self, id: GroupId) -> &mut Group {
        &mut self.groups[usize::from(id.0)]
    }

    /// Requests that the device has.
    fn at_device(&self) -> u32 {
        self.in_flight[0] + self.in_flight[1]
    }
}

impl Policy for Cfq {
    fn name(&self) -> &'static str {
        "cfq"
    }

    fn has_group(&self, group: GroupId) -> bool {
        usize::from(group.0) < self.groups.len()
    }

    /// Those of the process's own queue; sync ones become part of no async one.
    fn may_join(&self, queued: &Queued, request: &Request) -> bool {
        if queued.sync != request.sync {
            return false;
        }
        let owner = QueueId(queued.owner);
        if !request.sync {
            return (queued.priority.class, queued.priority.level)
                == (request.priority.class, request.priority.level);
        }
        self.members.get(&(request.process, request.group)).is_some_and(|it| it.queue == owner)
    }

    fn may_coalesce(&self, one: &Queued, other: &Queued) -> bool {
        one.sync == other.sync && one.owner == other.owner
    }

    fn insert(&mut self, table: &mut Table, id: RequestId, now: Time) {
        self.take_new(table, id, now);
    }

    fn restore(&mut self, table: &mut Table, id: RequestId, now: Time) {
        self.take_again(table, id, now);
    }

    fn withdraw(&mut self, table: &mut Table, id: RequestId, _: Time) {
        self.let_go(table, id);
    }

    fn grown(&mut self, table: &mut Table, id: RequestId, old: Sector, expires: Time) {
        self.move_in_queue(table, id, old, expires);
    }

    fn next(&mut self, table: &mut Table, now: Time) -> Choice {
        self.choose(table, now)
    }

    fn completed(&mut self, finished: &Finished, now: Time) {
        self.finish(finished, now);
    }

    fn exited(&mut self, process: Process, now: Time) {
        self.leave(process, now);
    }

    fn idled(&self) -> Span {
        self.idled
    }
}
