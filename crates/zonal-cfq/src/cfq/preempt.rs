//! When a request ends another queue's turn.

use crate::request::Class;
use crate::table::Queued;
use crate::units::Time;

use super::Cfq;
use super::queue::QueueId;
use super::tree::Kind;

impl Cfq {
    /// Whether a new request of a queue ends the turn under way.
    pub(super) fn preempts(&self, new_id: QueueId, queued: &Queued, now: Time) -> bool {
        let Some(active_id) = self.active else { return false };
        let (new, active) = (self.queues.get(new_id), self.queues.get(active_id));
        if new.class == Class::Idle {
            return false;
        }
        if active.class == Class::Idle {
            return true;
        }
        if active.class == Class::RealTime && new.class != Class::RealTime {
            return false;
        }
        if queued.sync && !active.sync {
            return true;
        }
        if new.group != active.group {
            return false;
        }
        if active.is_used_up(now) {
            return true;
        }
        // Queues that are waited for together: the second has a request where the first has none.
        let kind = self.kind(new_id);
        if self.serving.kind == Kind::NoIdle
            && kind == Kind::NoIdle
            && self.group(new.group).tree(new.class, kind).len() == 2
            && active.is_empty()
        {
            return true;
        }
        if queued.metadata && active.metadata == 0 {
            return true;
        }
        if new.class == Class::RealTime && active.class != Class::RealTime {
            return true;
        }
        if active.is_empty() && !self.should_idle(active_id) {
            return true;
        }
        // As good as the one that is waited for.
        self.active_member.is_some() && active.awaited && self.is_close(queued.start)
    }

    /// Ends the turn under way; the next is that of this queue.
    pub(super) fn preempt(&mut self, id: QueueId, now: Time) {
        let was = self.active.map(|active| self.kind(active));
        self.counters.preemptions += 1;
        self.end_turn(true, now);
        let kind = self.kind(id);
        let queue = self.queues.get(id);
        if was != Some(kind) {
            // What is left of the other kind's turn is none of this queue's.
            let group = queue.group;
            self.group_mut(group).left = None;
        }
        self.place(id, true, now);
        let queue = self.queues.get_mut(id);
        (queue.slice_end, queue.fresh) = (Time::ZERO, true);
    }
}
