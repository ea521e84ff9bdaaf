//! Whether the queue whose turn it is goes on, is waited for, or makes room; and how much of a queue
//! the device may have.

use crate::policy::Choice;
use crate::request::Class;
use crate::table::{RequestId, Table};
use crate::units::{Span, Time};

use super::Cfq;
use super::queue::QueueId;
use super::slice;

/// How long before the clock began a sync request is taken to have been late last.
const QUIET: Span = Span::from_millis(1000);

/// What becomes of a turn.
enum Verdict {
    /// It goes on.
    Serve,
    /// Nothing may go now: its next request is waited for, or one that the device has.
    Leave,
    /// It ends, and perhaps that of another begins.
    End(Option<QueueId>),
}

impl Cfq {
    /// The next request for the device.
    pub(super) fn choose(&mut self, table: &Table, now: Time) -> Choice {
        if self.idle_until.is_some_and(|until| until <= now) {
            self.waited_in_vain(now);
        }
        let Some(id) = self.select(now) else {
            return match self.idle_until {
                Some(until) => Choice::Wait(until),
                None if self.queued == 0 => Choice::Nothing,
                None => Choice::Hold,
            };
        };
        if !self.may_dispatch(id, now) {
            return Choice::Hold;
        }
        Choice::Go(self.send(id, table, now))
    }

    /// The queue whose turn it is.
    fn select(&mut self, now: Time) -> Option<QueueId> {
        if self.queued == 0 {
            return None;
        }
        if let Some(id) = self.active {
            match self.go_on(id, now) {
                Verdict::Serve => return Some(id),
                Verdict::Leave => return None,
                Verdict::End(next) => {
                    self.end_turn(false, now);
                    if let Some(next) = next {
                        self.begin_turn_of(next, now);
                        return Some(next);
                    }
                }
            }
        }
        self.begin_turn(now)
    }

    fn go_on(&mut self, id: QueueId, now: Time) -> Verdict {
        let queue = self.queues.get(id);
        let (is_empty, at_device) = (queue.is_empty(), queue.dispatched > 0);
        if queue.awaited_at_end && !is_empty {
            // The group has a request again: it was not forgotten over the end of the slice.
            return Verdict::End(None);
        }
        if queue.is_used_up(now) && !queue.must_dispatch {
            let is_alone = self.group(queue.group).queues == 1;
            if is_alone && is_empty && at_device && self.should_idle(id) {
                return Verdict::Leave;
            }
            return self.wait_for_group(id);
        }
        if !is_empty {
            return Verdict::Serve;
        }
        if let Some(other) = self.cooperator(id) {
            self.join(id, other);
            return Verdict::End(Some(other));
        }
        if self.idle_until.is_some() {
            return Verdict::Leave;
        }
        self.doubt(id, now);
        if at_device && self.should_idle(id) {
            return Verdict::Leave;
        }
        self.wait_for_group(id)
    }

    /// A deep queue that seeks is served faster than it asks: it is not waited for any more.
    fn doubt(&mut self, id: QueueId, now: Time) {
        let queue = self.queues.get_mut(id);
        let is_early = match queue.slice_start {
            Some(start) if !queue.fresh => queue.slice_end.since(now) > now.since(start),
            _ => true,
        };
        if queue.seeks.are_many() && queue.idles && is_early {
            (queue.deep, queue.idles) = (false, false);
        }
    }

    /// The last queue of a group is not given up while the device has a request of the group.
    fn wait_for_group(&self, id: QueueId) -> Verdict {
        let group = self.group(self.queues.get(id).group);
        let idle = self.tunables.group_idle;
        let is_last = group.queues == 1 && group.dispatched > 0;
        if idle.0 > 0 && is_last && !group.think.is_longer_than(idle) {
            return Verdict::Leave;
        }
        Verdict::End(None)
    }

    /// Whether a queue's next request is worth waiting for: its own habit, or it is the only one of
    /// its kind, and the kind's habit.
    pub(super) fn should_idle(&self, id: QueueId) -> bool {
        let queue = self.queues.get(id);
        let idle = self.tunables.slice_idle;
        if idle.0 == 0 || queue.class == Class::Idle {
            return false;
        }
        if queue.idles && (self.tunables.rotational || !self.depth.orders()) {
            return true;
        }
        let Some(place) = queue.place else { return false };
        let tree = &self.group(queue.group).trees[place.tree.index()];
        tree.len() == 1 && queue.sync && !tree.think.is_longer_than(idle)
    }

    /// Whether the device may have one more of this queue.
    fn may_dispatch(&self, id: QueueId, now: Time) -> bool {
        let queue = self.queues.get(id);
        // Async ones first come back before one is served that is waited for.
        if self.in_flight[0] > 0 && self.should_idle(id) {
            return false;
        }
        if self.in_flight[1] > 0 && !queue.sync {
            return false;
        }
        let mut most = (self.tunables.quantum / 2).max(1);
        if queue.class == Class::Idle {
            most = 1;
        }
        if queue.dispatched >= most {
            if queue.class == Class::Idle {
                return false;
            }
            let only_sync = queue.sync && self.busy_sync == 1;
            let idle = self.tunables.slice_idle;
            if self.busy > 1 && queue.is_used_up_soon(now, idle) && !only_sync {
                return false;
            }
            let is_alone = self.busy == 1 || only_sync;
            most = if is_alone { u32::MAX } else { self.tunables.quantum };
        }
        if !queue.sync && self.tunables.low_latency {
            // More and more, the longer no sync request was late.
            let quiet = match self.last_delayed_sync {
                Some(last) => now.since(last),
                None => now.since(Time::ZERO) + QUIET,
            };
            let quiet = quiet.0 / self.tunables.slice_sync.0.max(1);
            let depth = if queue.dispatched == 0 { quiet.max(1) } else { quiet };
            most = most.min(u32::try_from(depth).unwrap_or(u32::MAX));
        }
        queue.dispatched < most
    }

    /// Takes a queue's next request for the device, or its oldest if that is overdue: once a turn.
    fn send(&mut self, id: QueueId, table: &Table, now: Time) -> RequestId {
        let queue = self.queues.get_mut(id);
        let was_checked = core::mem::replace(&mut queue.fifo_checked, true);
        let oldest = queue.fifo.first_key_value().filter(|((expires, _), _)| *expires <= now);
        let overdue = oldest.map(|(_, request)| *request).filter(|_| !was_checked);
        self.counters.overdue += u64::from(overdue.is_some());
        let request = overdue.or(queue.next.map(|next| next.id));
        let Some(request) = request else {
            unreachable!("a queue is served only if it has requests")
        };
        // The sweep goes on behind it, behind an overdue one as well.
        self.forget_position(id);
        self.queues.get_mut(id).next = None;
        self.remove(table, request);
        let queued = table.get(request);
        let queue = self.queues.get_mut(id);
        queue.dispatched += 1;
        queue.slice_dispatched += 1;
        queue.must_dispatch = false;
        self.groups[usize::from(queue.group.0)].dispatched += 1;
        self.in_flight[usize::from(queue.sync)] += 1;
        self.position = queued.end();
        if self.active_member.is_none() {
            self.active_member = Some((queued.process, queued.group));
        }
        let is_spent = !queue.sync
            && queue.slice_dispatched >= slice::async_quota(&self.tunables, queue.level);
        if self.busy > 1 && (is_spent || queue.class == Class::Idle) {
            self.end_turn(false, now);
        }
        request
    }

    /// No request came for the queue that is waited for.
    fn waited_in_vain(&mut self, now: Time) {
        let is_answered = self.idle_until.is_some_and(|until| self.idle_since >= until);
        self.stop_waiting(now);
        let Some(id) = self.active else { return };
        let queue = self.queues.get_mut(id);
        if queue.must_dispatch {
            return;
        }
        if !queue.is_used_up(now) {
            if !queue.is_empty() {
                return;
            }
            queue.deep = false;
        }
        self.counters.waits_in_vain += u64::from(!is_answered);
        self.end_turn(false, now);
    }

    /// Waits for the active queue's next request.
    pub(super) fn start_waiting(&mut self, idle: Span, now: Time) {
        self.counters.waits += 1;
        (self.idle_until, self.idle_since) = (Some(now + idle), now);
    }

    /// A request came that may go, while the wait goes on: the device has no more of it.
    pub(super) fn answer(&mut self, now: Time) {
        if let Some(until) = self.idle_until {
            self.idled += now.min(until).since(self.idle_since);
            self.idle_since = until;
        }
    }

    /// Waits no longer.
    pub(super) fn stop_waiting(&mut self, now: Time) {
        self.answer(now);
        self.idle_until = None;
    }
}
