//! Whose turn is next, and how a turn ends.
//!
//! Group by what it used, class by its rank, kind by the queue whose turn is longest due, queue by
//! its key: now, further back by what its slice lacks to the longest, further front by what was left
//! of its last slice. A kind has a turn, too: its queues' part of the group's turn.

use crate::request::Class;
use crate::units::{GroupId, Span, Time};

use super::queue::QueueId;
use super::slice;
use super::tree::{Kind, Place, TreeId};
use super::tunables::{FRONT, IDLE_DELAY, SHORTEST_TURN};
use super::{Cfq, Serving};

/// A point in time as a key of a tree.
fn key_of(time: Time) -> i64 {
    i64::try_from(time.0).unwrap_or(i64::MAX)
}

fn key_span(span: Span) -> i64 {
    i64::try_from(span.0).unwrap_or(i64::MAX)
}

impl Cfq {
    /// What kind of turns a queue takes.
    pub(super) fn kind(&self, id: QueueId) -> Kind {
        let queue = self.queues.get(id);
        match (queue.sync, queue.idles) {
            (false, _) => Kind::Async,
            (true, false) => Kind::NoIdle,
            (true, true) => Kind::Sync,
        }
    }

    /// Places a queue, or places it anew; before all others if it preempts.
    pub(super) fn place(&mut self, id: QueueId, preempts: bool, now: Time) {
        let kind = self.kind(id);
        let queue = self.queues.get_mut(id);
        let (group_id, class) = (queue.group, queue.class);
        let tree_id = TreeId::new(class, kind);
        let group = &mut self.groups[usize::from(group_id.0)];
        let tree = &group.trees[tree_id.index()];
        let key = if class == Class::Idle {
            tree.last_key(id).unwrap_or(key_of(now)).saturating_add(key_span(IDLE_DELAY))
        } else if preempts {
            let first = tree.first().map_or(key_of(now), |(key, _)| key);
            first.saturating_sub(key_span(FRONT))
        } else {
            let others = group.queues;
            let offset = slice::offset(&self.tunables, others, queue.sync, queue.level);
            let residual = core::mem::take(&mut queue.residual);
            key_of(now).saturating_add(key_span(offset)).saturating_sub(residual)
        };
        let was = queue.place;
        if was.is_some_and(|was| (was.tree, was.key) == (tree_id, key)) {
            return;
        }
        self.placed += 1;
        let place = Place { tree: tree_id, key, order: self.placed };
        queue.place = Some(place);
        if let Some(was) = was {
            group.trees[was.tree.index()].remove(was);
        }
        group.trees[tree_id.index()].insert(place, id);
        if was.is_none() {
            group.queues += 1;
            group.async_queues += u32::from(!queue.sync);
            self.active_groups.add(group_id, group);
        }
        self.note_position(id);
    }

    /// A queue has requests.
    pub(super) fn become_busy(&mut self, id: QueueId, now: Time) {
        let queue = self.queues.get(id);
        if queue.place.is_none() {
            self.busy += 1;
            self.busy_sync += u32::from(queue.sync);
            self.place(id, false, now);
        }
    }

    /// A queue has none, and its turn is over.
    pub(super) fn become_idle(&mut self, id: QueueId) {
        self.forget_position(id);
        let queue = self.queues.get_mut(id);
        let Some(place) = queue.place.take() else { return };
        self.busy -= 1;
        self.busy_sync -= u32::from(queue.sync);
        let group = &mut self.groups[usize::from(queue.group.0)];
        group.trees[place.tree.index()].remove(place);
        group.queues -= 1;
        group.async_queues -= u32::from(!queue.sync);
        if group.queues == 0 {
            self.active_groups.remove(queue.group, group);
            group.left = None;
        }
    }

    /// How long a slice of that queue is now.
    pub(super) fn slice_of(&mut self, id: QueueId) -> Span {
        let queue = self.queues.get(id);
        let full = slice::full(&self.tunables, queue.sync, queue.level);
        if !self.tunables.low_latency {
            return full;
        }
        let group = &mut self.groups[usize::from(queue.group.0)];
        let busy = group.average(queue.class);
        let turn = self.active_groups.turn(group, self.tunables.target_latency);
        slice::shrunk(&self.tunables, full, busy, turn)
    }

    /// The active queue's turn ends; what is left of its slice is kept for it if it `keeps`.
    pub(super) fn end_turn(&mut self, keeps: bool, now: Time) {
        let Some(id) = self.active else { return };
        self.stop_waiting(now);
        let queue = self.queues.get_mut(id);
        (queue.awaited, queue.awaited_at_end) = (false, false);
        queue.splits |= queue.shared && queue.seeks.are_many();
        if keeps {
            let left = if queue.fresh {
                key_span(self.slice_of(id))
            } else {
                key_of(queue.slice_end).saturating_sub(key_of(now))
            };
            self.queues.get_mut(id).residual = left;
        }
        self.charge(id, now);
        let queue = self.queues.get(id);
        if queue.is_empty() {
            self.become_idle(id);
        } else {
            self.place(id, false, now);
        }
        (self.active, self.active_member) = (None, None);
        self.queues.reap(id, None);
    }

    /// Charges a queue's group for its turn.
    fn charge(&mut self, id: QueueId, now: Time) {
        let queue = self.queues.get(id);
        let group = &mut self.groups[usize::from(queue.group.0)];
        let in_requests = self.tunables.slice_idle == Span::ZERO && self.depth.orders();
        let sync_queues = group.queues - group.async_queues;
        let time = if in_requests {
            Span::from_millis(u64::from(queue.slice_dispatched))
        } else if !queue.sync && sync_queues == 0 && queue.allocated > Span::ZERO {
            // Async requests lie in the device's cache: their time says little.
            queue.allocated
        } else {
            queue.used(now)
        };
        self.active_groups.charge(queue.group, group, time);
        if group.queues > 0 && self.serving.group == queue.group {
            let left = self.serving.expires.since(now);
            group.left =
                (left > Span::ZERO).then_some((left, self.serving.class, self.serving.kind));
        }
    }

    /// Gives the queue whose turn it is next the device.
    pub(super) fn begin_turn(&mut self, now: Time) -> Option<QueueId> {
        let group = self.active_groups.first()?;
        self.serving.group = group;
        match self.group(group).left {
            Some((left, class, kind)) => {
                let expires = now + left;
                self.serving = Serving { group, class, kind, expires };
            }
            None => self.serving.expires = Time::ZERO,
        }
        self.choose_kind(group, now);
        let tree = self.group(group).tree(self.serving.class, self.serving.kind);
        let (_, id) = tree.first()?;
        self.begin_turn_of(id, now);
        Some(id)
    }

    pub(super) fn begin_turn_of(&mut self, id: QueueId, now: Time) {
        self.counters.turns += 1;
        self.queues.get_mut(id).begin(now);
        self.stop_waiting(now);
        (self.active, self.active_member) = (Some(id), None);
    }

    /// Chooses class and kind, unless the kind's turn goes on.
    fn choose_kind(&mut self, group_id: GroupId, now: Time) {
        let was = self.serving;
        let group = &self.groups[usize::from(group_id.0)];
        let class = [Class::RealTime, Class::BestEffort, Class::Idle]
            .into_iter()
            .find(|class| group.busy(*class) > 0)
            .unwrap_or(Class::Idle);
        self.serving.class = class;
        if class == Class::Idle {
            (self.serving.kind, self.serving.expires) = (Kind::Sync, now + Span::from_millis(1));
            return;
        }
        if class == was.class && group.tree(class, was.kind).len() > 0 && now < was.expires {
            return;
        }
        let due = |kind: &Kind| group.tree(class, *kind).first().map(|(key, _)| key);
        let kinds = Kind::ALL.into_iter().filter(|kind| due(kind).is_some());
        let kind = kinds.min_by_key(due).unwrap_or(Kind::Sync);
        self.serving.kind = kind;
        self.serving.expires = now + self.turn_of(group_id, class, kind);
    }

    /// How long a kind's turn is: its queues' part of the group's.
    fn turn_of(&self, group_id: GroupId, class: Class, kind: Kind) -> Span {
        let group = self.group(group_id);
        let target = self.tunables.target_latency;
        let average = group.averages[usize::from(class != Class::RealTime)].get();
        let all = u64::from(average.max(group.busy(class)));
        let own = u64::from(group.tree(class, kind).len());
        let part = self.active_groups.turn(group, target).scaled(own, all);
        let part = if kind == Kind::Async {
            let of_async = u64::from(group.async_queues);
            let most = target.scaled(of_async, u64::from(self.busy.max(1)));
            part.min(most).scaled(self.tunables.slice_async.0, self.tunables.slice_sync.0)
        } else {
            part.max(self.tunables.slice_idle.scaled(2, 1))
        };
        part.max(SHORTEST_TURN)
    }
}
