//! What a scheduler is: the trait that noop, deadline and CFQ are behind. A policy keeps ids of
//! requests in an order of its own; the requests themselves are in the [`Table`] of the
//! [`Elevator`](crate::elevator::Elevator), which merges, counts and checks.
//!
//! Here is the simplest that there can be, last in, first out:
//!
//! ```
//! use zonal_cfq::elevator::{Elevator, Next};
//! use zonal_cfq::policy::{Choice, Finished, Policy};
//! use zonal_cfq::request::Request;
//! use zonal_cfq::table::{RequestId, Table};
//! use zonal_cfq::units::{Process, Sector, Sectors, Time};
//!
//! #[derive(Default)]
//! struct Stack(Vec<RequestId>);
//!
//! impl Policy for Stack {
//!     fn name(&self) -> &'static str {
//!         "stack"
//!     }
//!     fn insert(&mut self, _: &mut Table, id: RequestId, _: Time) {
//!         self.0.push(id);
//!     }
//!     fn withdraw(&mut self, _: &mut Table, id: RequestId, _: Time) {
//!         self.0.retain(|other| *other != id);
//!     }
//!     fn next(&mut self, _: &mut Table, _: Time) -> Choice {
//!         self.0.pop().map_or(Choice::Nothing, Choice::Go)
//!     }
//! }
//!
//! let mut elevator = Elevator::new(Stack::default(), Sector(1000));
//! for start in [0, 100, 200] {
//!     elevator.submit(Time(0), Request::read(Process(1), Sector(start), Sectors(8)))?;
//! }
//! let Next::Go(first) = elevator.dispatch(Time(1)) else { panic!("there are three") };
//! assert_eq!(first.start(), Sector(200));
//! # elevator.requeue(first).unwrap();
//! # Ok::<(), zonal_cfq::elevator::Refused>(())
//! ```

use alloc::boxed::Box;

use crate::request::{Outcome, Request};
use crate::table::{Queued, RequestId, Table};
use crate::units::{GroupId, Process, Sector, Sectors, Span, Time};

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Dispatch this request; the policy has forgotten it.
    Go(RequestId),
    /// There may be a better one soon: ask again at that time, or when one arrives.
    Wait(Time),
    /// Ask again when a request completes.
    Hold,
    /// There is none.
    Nothing,
}

/// A request that completed, as far as a policy asks.
#[derive(Clone, Copy, Debug)]
pub struct Finished {
    /// What the policy [marked](Table::mark) it with.
    pub owner: u32,
    /// Who asked first.
    pub process: Process,
    /// Its group.
    pub group: GroupId,
    /// Whether a process waited for it.
    pub sync: bool,
    /// When it was submitted.
    pub arrived: Time,
    /// Its length.
    pub sectors: Sectors,
    /// How it ended.
    pub outcome: Outcome,
}

/// An order in which requests go to a device.
pub trait Policy {
    /// Its name.
    fn name(&self) -> &'static str;

    /// Whether there is such a group; others are refused. By default the root alone.
    fn has_group(&self, group: GroupId) -> bool {
        group == GroupId::ROOT
    }

    /// Whether a request may become part of a queued one that it touches. By default those that
    /// are sync or not alike.
    fn may_join(&self, queued: &Queued, request: &Request) -> bool {
        queued.sync == request.sync
    }

    /// Whether two queued requests that touch may become one. By default as for
    /// [`may_join`](Self::may_join).
    fn may_coalesce(&self, one: &Queued, other: &Queued) -> bool {
        one.sync == other.sync
    }

    /// Whether requests grow at their front, too.
    fn merges_in_front(&self) -> bool {
        true
    }

    /// Takes a new request.
    fn insert(&mut self, table: &mut Table, id: RequestId, now: Time);

    /// Takes a request again that it had before: what is left after one of its parts was
    /// cancelled. It is no news of what its process does.
    fn restore(&mut self, table: &mut Table, id: RequestId, now: Time) {
        self.insert(table, id, now);
    }

    /// Forgets a request: it was cancelled, or became part of another.
    fn withdraw(&mut self, table: &mut Table, id: RequestId, now: Time);

    /// A request grew; it began at `old` until now, and should be done by `expires` if that is
    /// earlier than what it is marked with.
    fn grown(&mut self, table: &mut Table, id: RequestId, old: Sector, expires: Time) {
        let _ = (table, id, old, expires);
    }

    /// Chooses, and forgets what it chooses. Never [`Choice::Hold`] while the device has nothing.
    fn next(&mut self, table: &mut Table, now: Time) -> Choice;

    /// The device is done with a request.
    fn completed(&mut self, finished: &Finished, now: Time) {
        let _ = (finished, now);
    }

    /// The process will ask for nothing any more.
    fn exited(&mut self, process: Process, now: Time) {
        let _ = (process, now);
    }

    /// How long it left the device idle, waiting for a request that might come.
    fn idled(&self) -> Span {
        Span::ZERO
    }
}

impl<P: Policy + ?Sized> Policy for Box<P> {
    fn name(&self) -> &'static str {
        (**self).name()
    }

    fn has_group(&self, group: GroupId) -> bool {
        (**self).has_group(group)
    }

    fn may_join(&self, queued: &Queued, request: &Request) -> bool {
        (**self).may_join(queued, request)
    }

    fn may_coalesce(&self, one: &Queued, other: &Queued) -> bool {
        (**self).may_coalesce(one, other)
    }

    fn merges_in_front(&self) -> bool {
        (**self).merges_in_front()
    }

    fn insert(&mut self, table: &mut Table, id: RequestId, now: Time) {
        (**self).insert(table, id, now);
    }

    fn restore(&mut self, table: &mut Table, id: RequestId, now: Time) {
        (**self).restore(table, id, now);
    }

    fn withdraw(&mut self, table: &mut Table, id: RequestId, now: Time) {
        (**self).withdraw(table, id, now);
    }

    fn grown(&mut self, table: &mut Table, id: RequestId, old: Sector, expires: Time) {
        (**self).grown(table, id, old, expires);
    }

    fn next(&mut self, table: &mut Table, now: Time) -> Choice {
        (**self).next(table, now)
    }

    fn completed(&mut self, finished: &Finished, now: Time) {
        (**self).completed(finished, now);
    }

    fn exited(&mut self, process: Process, now: Time) {
        (**self).exited(process, now);
    }

    fn idled(&self) -> Span {
        (**self).idled()
    }
}
