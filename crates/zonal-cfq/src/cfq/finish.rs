//! A request completed: the slice begins or ends, or the next request of its queue is waited for.

use crate::policy::Finished;
use crate::request::Class;
use crate::units::{Span, Time};

use super::Cfq;
use super::queue::QueueId;
use super::tree::TreeId;
use super::tunables::DEVICE_DEPTH;

/// What is left of a slice that is as good as nothing.
const NEARLY_OVER: Span = Span::from_millis(1);

impl Cfq {
    /// The device is done with a request.
    pub(super) fn finish(&mut self, finished: &Finished, now: Time) {
        let id = QueueId(finished.owner);
        self.note_depth();
        self.note_end(finished, id, now);
        if self.active == Some(id) {
            self.after_completion(id, now);
        }
        self.queues.reap(id, self.active);
    }

    fn note_depth(&mut self) {
        // With so few requests it cannot show.
        let is_loaded = self.queued > DEVICE_DEPTH || self.at_device() > DEVICE_DEPTH;
        let starved = self.active.is_some_and(|active| {
            let queue = self.queues.get(active);
            queue.idles && queue.dispatched as usize + queue.sorted.len() < DEVICE_DEPTH as usize
        });
        self.depth.update(self.at_device(), is_loaded, !starved);
    }

    fn note_end(&mut self, finished: &Finished, id: QueueId, now: Time) {
        let kind = self.kind(id);
        let queue = self.queues.get_mut(id);
        queue.dispatched -= 1;
        let sync = queue.sync;
        let tree = queue.place.map_or(TreeId::new(queue.class, kind), |place| place.tree);
        self.in_flight[usize::from(sync)] -= 1;
        let group = &mut self.groups[usize::from(queue.group.0)];
        group.dispatched -= 1;
        group.think.last_end = now;
        if sync {
            group.trees[tree.index()].think.last_end = now;
            if let Some(member) = self.members.get_mut(&(finished.process, finished.group)) {
                member.think.last_end = now;
            }
            if finished.arrived + self.tunables.fifo_expire_sync <= now {
                self.last_delayed_sync = Some(now);
            }
        }
    }

    fn after_completion(&mut self, id: QueueId, now: Time) {
        if self.queues.get(id).fresh {
            let slice = self.slice_of(id);
            let queue = self.queues.get_mut(id);
            (queue.slice_start, queue.slice_end) = (Some(now), now + slice);
            (queue.allocated, queue.fresh) = (slice, false);
        }
        if self.waits_at_end(id, now) {
            let idle = match self.tunables.slice_idle {
                Span::ZERO => self.tunables.group_idle,
                idle => idle,
            };
            let queue = self.queues.get_mut(id);
            queue.slice_end = now + idle;
            queue.awaited_at_end = true;
        }
        let queue = self.queues.get(id);
        if queue.is_used_up(now) || queue.class == Class::Idle {
            self.end_turn(true, now);
        } else if queue.sync && queue.is_empty() && self.cooperator(id).is_none() {
            self.wait_for_next(id, now);
        }
    }

    /// How long the process thinks whose request went first in this turn.
    fn thinks(&self) -> Option<Span> {
        self.members.get(&self.active_member?)?.think.mean()
    }

    /// Whether the last queue of a group gets some time more: else its group would lose its place
    /// each time that the slice ends before the next request comes.
    fn waits_at_end(&self, id: QueueId, now: Time) -> bool {
        let queue = self.queues.get(id);
        let group = self.group(queue.group);
        if !queue.is_empty() || group.queues > 1 {
            return false;
        }
        if group.think.is_longer_than(self.tunables.group_idle) {
            return false;
        }
        let left = queue.slice_end.since(now);
        left <= NEARLY_OVER || self.thinks().is_some_and(|mean| left < mean)
    }

    /// Waits for the active queue's next request, or its group's, if that is worth it.
    fn wait_for_next(&mut self, id: QueueId, now: Time) {
        if !self.tunables.rotational && self.depth.orders() {
            return;
        }
        let queue = self.queues.get(id);
        let for_queue = self.should_idle(id);
        let idle = if for_queue { self.tunables.slice_idle } else { self.tunables.group_idle };
        // One that is gone asks no more.
        let is_there = self.active_member.is_some_and(|member| self.members.contains_key(&member));
        if idle.0 == 0 || queue.dispatched > 0 || !is_there {
            return;
        }
        if self.thinks().is_some_and(|mean| queue.slice_end.since(now) < mean) {
            return;
        }
        if !for_queue && self.group(queue.group).queues > 1 {
            return;
        }
        self.queues.get_mut(id).awaited = true;
        self.start_waiting(idle, now);
    }
}
