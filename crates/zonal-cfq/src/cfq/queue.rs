//! The queues: one for the sync requests of each process, one for the async ones of each level.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use crate::request::{Class, Level};
use crate::table::{Queued, RequestId};
use crate::units::{GroupId, Sector, Span, Time};

use super::habit::Seeks;
use super::tree::Place;
use super::tunables::Tunables;

/// A queue's place among the queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct QueueId(pub(super) u32);

/// What is to be known of a request to choose between two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) id: RequestId,
    pub(super) start: Sector,
    pub(super) metadata: bool,
    pub(super) last: bool,
}

impl Candidate {
    pub(super) fn of(id: RequestId, queued: &Queued) -> Self {
        Self { id, start: queued.start, metadata: queued.metadata, last: queued.last }
    }

    /// The distance from `position`, a seek back counting more; `None` if too far back.
    fn distance(&self, tunables: &Tunables, position: Sector) -> Option<u64> {
        if self.start >= position {
            return Some(self.start.0 - position.0);
        }
        let back = position.0 - self.start.0;
        (back <= tunables.back_seek_max).then(|| back.saturating_mul(tunables.back_seek_penalty))
    }

    /// The better of two for a head at `position`: metadata first, then the closer one; of two that
    /// are too far back the lower, where the next sweep begins.
    pub(super) fn better(self, other: Self, tunables: &Tunables, position: Sector) -> Self {
        if self.metadata != other.metadata {
            return if self.metadata { self } else { other };
        }
        let distances = (self.distance(tunables, position), other.distance(tunables, position));
        let is_self = match distances {
            (Some(own), Some(others)) => {
                own < others || (own == others && self.start >= other.start)
            }
            (own, None) => own.is_some() || self.start <= other.start,
            (None, Some(_)) => false,
        };
        if is_self { self } else { other }
    }
}

/// A queue.
#[derive(Debug, Default)]
pub(super) struct Queue {
    pub(super) sync: bool,
    pub(super) class: Class,
    pub(super) level: Level,
    pub(super) group: GroupId,
    /// Requests by sector.
    pub(super) sorted: BTreeMap<(Sector, RequestId), Candidate>,
    /// Requests by when they are overdue, then by arrival.
    pub(super) fifo: BTreeMap<(Time, u64), RequestId>,
    /// The next in a sweep.
    pub(super) next: Option<Candidate>,
    /// How many of its requests are metadata.
    pub(super) metadata: u32,
    /// How many the device has.
    pub(super) dispatched: u32,
    pub(super) seeks: Seeks,

    /// Waiting for its next request is worth it.
    pub(super) idles: bool,
    /// It had several requests at once.
    pub(super) deep: bool,
    /// It is waited for, with the idle timer.
    pub(super) awaited: bool,
    /// The last of its group, waited for at the end of its slice.
    pub(super) awaited_at_end: bool,
    /// Its request came while it was waited for.
    pub(super) must_dispatch: bool,
    /// Its oldest request was looked at in this slice.
    pub(super) fifo_checked: bool,
    /// Its slice begins with the first completion.
    pub(super) fresh: bool,
    /// Several processes have it.
    pub(super) shared: bool,
    /// They do not cooperate any more.
    pub(super) splits: bool,

    pub(super) slice_start: Option<Time>,
    pub(super) slice_end: Time,
    /// When its turn began, before the first completion.
    pub(super) turn_start: Time,
    pub(super) allocated: Span,
    pub(super) slice_dispatched: u32,
    /// What was left of its last slice, in ns.
    pub(super) residual: i64,
    /// Where it is in the service trees; none if it is not busy.
    pub(super) place: Option<Place>,
    /// The queue that its processes are to use.
    pub(super) successor: Option<QueueId>,
    /// How many processes have it.
    pub(super) processes: u32,
    /// How many will have it, or pass through it, with their next request: it is on the way of
    /// their queue's successors.
    pub(super) joining: u32,
}

impl Queue {
    pub(super) fn new(sync: bool, class: Class, level: Level, group: GroupId) -> Self {
        // A process that was not seen to seek is waited for.
        let idles = sync && class != Class::Idle;
        Self { sync, class, level, group, idles, ..Self::default() }
    }

    /// Takes a request; true if it is the next one now.
    pub(super) fn add(
        &mut self,
        request: Candidate,
        queued: &Queued,
        tunables: &Tunables,
        position: Sector,
    ) {
        self.sorted.insert((request.start, request.id), request);
        self.fifo.insert((queued.expires, queued.serial), request.id);
        self.metadata += u32::from(request.metadata);
        self.next = Some(match self.next {
            Some(next) => next.better(request, tunables, position),
            None => request,
        });
    }

    /// Forgets a request that begins at `start`.
    pub(super) fn remove(
        &mut self,
        id: RequestId,
        start: Sector,
        queued: &Queued,
        tunables: &Tunables,
    ) {
        self.sorted.remove(&(start, id));
        self.fifo.remove(&(queued.expires, queued.serial));
        self.metadata -= u32::from(queued.metadata);
        if self.next.is_none_or(|next| next.id == id) {
            let key = (start, id);
            let above = self.sorted.range(key..).next();
            let above = above.or_else(|| self.sorted.first_key_value());
            let below = self.sorted.range(..key).next_back();
            let (above, below) = (above.map(|it| *it.1), below.map(|it| *it.1));
            self.next = match (above, below) {
                (Some(above), Some(below)) => Some(above.better(below, tunables, queued.end())),
                (one, other) => one.or(other),
            };
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.sorted.is_empty()
    }

    /// Whether the slice is over.
    pub(super) fn is_used_up(&self, now: Time) -> bool {
        !self.fresh && now >= self.slice_end
    }

    /// Whether it will be over when what is with the device is done.
    pub(super) fn is_used_up_soon(&self, now: Time, idle: Span) -> bool {
        self.fresh || now + idle.scaled(self.dispatched.into(), 1) > self.slice_end
    }

    /// Begins a turn.
    pub(super) fn begin(&mut self, now: Time) {
        (self.slice_start, self.turn_start) = (None, now);
        (self.slice_end, self.allocated) = (Time::ZERO, Span::ZERO);
        self.slice_dispatched = 0;
        (self.awaited, self.must_dispatch, self.fifo_checked) = (false, false, false);
        self.fresh = true;
    }

    /// How much of the device's time this turn took, of its slice.
    pub(super) fn used(&self, now: Time) -> Span {
        match self.slice_start {
            Some(start) if start < now => now.since(start).min(self.allocated),
            // Nothing completed yet: all of the turn, but not nothing.
            _ => now.since(self.turn_start).max(Span::from_millis(1)),
        }
    }
}

/// All queues. A place is used again when its queue is gone.
#[derive(Debug, Default)]
pub(super) struct Queues {
    slots: Vec<Option<Queue>>,
    free: BTreeSet<u32>,
}

impl Queues {
    pub(super) fn add(&mut self, queue: Queue) -> QueueId {
        let slot = self.free.pop_first().unwrap_or_else(|| {
            self.slots.push(None);
            (self.slots.len() - 1) as u32
        });
        self.slots[slot as usize] = Some(queue);
        QueueId(slot)
    }

    pub(super) fn get(&self, id: QueueId) -> &Queue {
        match self.slots.get(id.0 as usize) {
            Some(Some(queue)) => queue,
            _ => unreachable!("a queue is kept while anything names it"),
        }
    }

    pub(super) fn get_mut(&mut self, id: QueueId) -> &mut Queue {
        match self.slots.get_mut(id.0 as usize) {
            Some(Some(queue)) => queue,
            _ => unreachable!("a queue is kept while anything names it"),
        }
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Lets a sync queue go that has no process, no request, and no turn.
    /// It may be gone already.
    pub(super) fn reap(&mut self, id: QueueId, active: Option<QueueId>) {
        let Some(Some(queue)) = self.slots.get(id.0 as usize) else { return };
        let is_idle = queue.is_empty() && queue.dispatched == 0 && queue.place.is_none();
        if queue.sync && queue.processes + queue.joining == 0 && is_idle && active != Some(id) {
            self.slots[id.0 as usize] = None;
            self.free.insert(id.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(start: u64) -> Candidate {
        Candidate {
            id: RequestId(start as u32),
            start: Sector(start),
            metadata: false,
            last: false,
        }
    }

    #[test]
    fn a_seek_back_counts_twice_and_ends_at_sixteen_mebibytes() {
        let tunables = Tunables::default();
        let position = Sector(100_000);
        let better = |one, other| at(one).better(at(other), &tunables, position).start.0;
        assert_eq!(better(100_100, 99_900), 100_100);
        assert_eq!(better(100_201, 99_900), 99_900);
        assert_eq!(better(100_200, 99_900), 100_200, "as far: the higher");
        assert_eq!(better(100_000 - 32_769, 9_000_000), 9_000_000, "too far back");
        assert_eq!(better(5, 10), 5, "both are: where the next sweep begins");
        let metadata = Candidate { metadata: true, ..at(5) };
        assert_eq!(metadata.better(at(100_000), &tunables, position), metadata);
    }
}
