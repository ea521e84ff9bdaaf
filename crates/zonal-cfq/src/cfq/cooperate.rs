//! Processes that read close to each other share a queue, so that one does not wait while the other
//! is waited for. They part again when their requests are far from each other.

use crate::request::Class;
use crate::table::Queued;
use crate::units::{GroupId, Process, Sector};

use super::Cfq;
use super::queue::{Queue, QueueId};
use super::tunables::CLOSE;

impl Cfq {
    /// Notes where a busy queue's next request is.
    pub(super) fn note_position(&mut self, id: QueueId) {
        let queue = self.queues.get(id);
        if queue.class == Class::Idle {
            return;
        }
        if let (Some(next), Some(_)) = (queue.next, queue.place) {
            self.positions.insert((queue.level.get(), next.start, id));
        }
    }

    /// Before its next request, or its level, changes.
    pub(super) fn forget_position(&mut self, id: QueueId) {
        let queue = self.queues.get(id);
        if let Some(next) = queue.next {
            self.positions.remove(&(queue.level.get(), next.start, id));
        }
    }

    /// Whether a sector is close to where the last request ended.
    pub(super) fn is_close(&self, sector: Sector) -> bool {
        self.position.distance(sector) <= CLOSE
    }

    /// Another queue whose next request is close to where the last one ended.
    pub(super) fn cooperator(&self, id: QueueId) -> Option<QueueId> {
        let own = self.queues.get(id);
        if own.class == Class::Idle || !own.sync || own.seeks.are_many() {
            return None;
        }
        if self.group(own.group).queues <= 1 {
            return None;
        }
        let level = own.level.get();
        let (first, last) = (QueueId(0), QueueId(u32::MAX));
        let from = (level, self.position, first);
        let above = self.positions.range(from..=(level, Sector(u64::MAX), last)).next();
        let below = self.positions.range((level, Sector(0), first)..from).next_back();
        let near = above.into_iter().chain(below).find(|(_, at, _)| self.is_close(*at));
        let other = near.map(|(_, _, other)| *other).filter(|other| *other != id)?;
        let found = self.queues.get(other);
        let alike = found.group == own.group && found.sync && found.class == own.class;
        (alike && !found.seeks.are_many()).then_some(other)
    }

    /// From the next request on, the processes of one of two queues use the other: those of the one
    /// that has fewer.
    pub(super) fn join(&mut self, id: QueueId, other: QueueId) {
        if self.queues.get(id).successor.is_some() {
            return;
        }
        // A queue that no process is to use may have a successor that is gone.
        let users = |id| {
            let queue = self.queues.get(id);
            queue.processes + queue.joining
        };
        if users(id) == 0 || users(other) == 0 {
            return;
        }
        let Some(other) = self.end_of(other, id) else { return };
        let (own, others) = (users(id), users(other));
        let (from, to) = if others >= own { (id, other) } else { (other, id) };
        let queue = self.queues.get_mut(from);
        queue.successor = Some(to);
        let coming = queue.processes + queue.joining;
        self.queues.get_mut(to).joining += coming;
    }

    /// A process has nothing to do with a queue any more, nor with its successors. Those go that no
    /// process is left for.
    pub(super) fn quit(&mut self, id: QueueId) {
        let queue = self.queues.get_mut(id);
        queue.processes -= 1;
        let mut next = queue.successor;
        self.queues.reap(id, self.active);
        while let Some(to) = next {
            let queue = self.queues.get_mut(to);
            queue.joining -= 1;
            next = queue.successor;
            self.queues.reap(to, self.active);
        }
    }

    /// The last of the successors of a queue; `None` if `id` is among them.
    fn end_of(&self, mut queue: QueueId, id: QueueId) -> Option<QueueId> {
        while queue != id {
            match self.queues.get(queue).successor {
                Some(next) => queue = next,
                None => return Some(queue),
            }
        }
        None
    }

    /// The queue that a process uses now: another one if its own was joined, one of its own if the
    /// shared one is to be split.
    pub(super) fn follow(&mut self, key: (Process, GroupId), queued: &Queued) -> QueueId {
        let Some(member) = self.members.get(&key) else {
            unreachable!("a process has a queue before it is asked for")
        };
        let mut id = member.queue;
        let queue = self.queues.get(id);
        if queue.shared && queue.splits {
            id = self.part(id, queued);
        }
        if self.queues.get(id).successor.is_some() {
            id = self.move_to_successor(id);
        }
        if let Some(member) = self.members.get_mut(&key) {
            member.queue = id;
        }
        id
    }

    /// A process leaves a shared queue, whose last one keeps it.
    fn part(&mut self, id: QueueId, queued: &Queued) -> QueueId {
        self.counters.split += 1;
        let queue = self.queues.get_mut(id);
        if queue.processes <= 1 {
            (queue.shared, queue.splits) = (false, false);
            return id;
        }
        self.quit(id);
        let priority = queued.priority;
        let own = Queue::new(true, priority.class, priority.level, queued.group);
        self.queues.add(Queue { processes: 1, ..own })
    }

    /// One process of a joined queue goes over to the last of its successors.
    fn move_to_successor(&mut self, id: QueueId) -> QueueId {
        self.counters.merged += 1;
        let mut to = id;
        while let Some(next) = self.queues.get(to).successor {
            to = next;
        }
        let new = self.queues.get_mut(to);
        new.processes += 1;
        new.shared = true;
        self.quit(id);
        to
    }
}
