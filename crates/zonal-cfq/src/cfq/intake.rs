//! A request comes: to whose queue it goes, and what it says of its process. It goes, too: withdrawn
//! or dispatched.

use crate::request::Class;
use crate::table::{Queued, RequestId, Table};
use crate::units::{GroupId, Process, Sector, Time};

use super::habit::ThinkTime;
use super::queue::{Candidate, Queue, QueueId};
use super::tunables::{DEEP, ONE_PAGE};
use super::{Cfq, Member};

impl Cfq {
    /// A new request.
    pub(super) fn take_new(&mut self, table: &mut Table, id: RequestId, now: Time) {
        let owner = self.queue_for(table.get(id), now);
        self.add(table, id, owner, now);
        let queued = table.get(id);
        self.learn(owner, queued, now);
        self.after_arrival(owner, queued, now);
    }

    /// What is left of a request that was here before.
    pub(super) fn take_again(&mut self, table: &mut Table, id: RequestId, now: Time) {
        let owner = self.queue_for(table.get(id), now);
        self.add(table, id, owner, now);
    }

    fn add(&mut self, table: &mut Table, id: RequestId, owner: QueueId, now: Time) {
        let sync = table.get(id).sync;
        let expire =
            if sync { self.tunables.fifo_expire_sync } else { self.tunables.fifo_expire_async };
        let expires = table.get(id).arrived + expire;
        table.mark(id, expires, owner.0);
        let queued = table.get(id);
        self.forget_position(owner);
        let queue = self.queues.get_mut(owner);
        queue.add(Candidate::of(id, queued), queued, &self.tunables, self.position);
        self.queued += 1;
        self.become_busy(owner, now);
        self.note_position(owner);
    }

    /// The queue for a request: of its process, or of its level.
    fn queue_for(&mut self, queued: &Queued, now: Time) -> QueueId {
        let (class, level, group) = (queued.priority.class, queued.priority.level, queued.group);
        if !queued.sync {
            if let Some(id) = *self.group_mut(group).async_id(class, level) {
                return id;
            }
            let id = self.queues.add(Queue::new(false, class, level, group));
            *self.group_mut(group).async_id(class, level) = Some(id);
            return id;
        }
        let key = (queued.process, group);
        if !self.members.contains_key(&key) {
            let queue = Queue { processes: 1, ..Queue::new(true, class, level, group) };
            let queue = self.queues.add(queue);
            self.members.insert(key, Member { queue, think: ThinkTime::new(now) });
        }
        let id = self.follow(key, queued);
        let queue = self.queues.get_mut(id);
        if !queue.shared {
            queue.class = class;
            if queue.level != level {
                self.forget_position(id);
                self.queues.get_mut(id).level = level;
            }
        }
        id
    }

    /// Learns from a request how its process, its tree and its group think, and whether they seek.
    fn learn(&mut self, owner: QueueId, queued: &Queued, now: Time) {
        let queue = self.queues.get_mut(owner);
        queue.seeks.update(&self.tunables, queued.start, queued.sectors);
        let (sync, group, place) = (queue.sync, queue.group, queue.place);
        let (idle, group_idle) = (self.tunables.slice_idle, self.tunables.group_idle);
        // A group thinks with all of its requests.
        self.groups[usize::from(group.0)].think.update(now, group_idle);
        if !sync {
            return;
        }
        if let Some(member) = self.members.get_mut(&(queued.process, group)) {
            member.think.update(now, idle);
        }
        if let Some(place) = place {
            let group = &mut self.groups[usize::from(group.0)];
            group.trees[place.tree.index()].think.update(now, idle);
        }
        self.judge(owner, queued);
    }

    /// Whether waiting for this queue's next request is worth it from now on.
    fn judge(&mut self, owner: QueueId, queued: &Queued) {
        let idle = self.tunables.slice_idle;
        let member = self.members.get(&(queued.process, queued.group));
        let thinks_long = member.is_some_and(|member| member.think.is_longer_than(idle));
        let is_known = member.is_some_and(|member| member.think.mean().is_some());
        let queue = self.queues.get_mut(owner);
        if queue.class == Class::Idle {
            return;
        }
        queue.deep |= queue.sorted.len() >= DEEP;
        let is_last = queue.next.is_some_and(|next| next.last);
        if is_last || idle.0 == 0 || (!queue.deep && queue.seeks.are_many()) {
            queue.idles = false;
        } else if is_known {
            queue.idles = !thinks_long;
        }
    }

    /// What a request means for the turn under way.
    fn after_arrival(&mut self, owner: QueueId, queued: &Queued, now: Time) {
        if self.active == Some(owner) {
            let queue = self.queues.get_mut(owner);
            if queue.awaited {
                // One page alone may become more in a moment.
                if queued.sectors.0 > ONE_PAGE || self.busy > 1 {
                    queue.awaited = false;
                    self.stop_waiting(now);
                } else {
                    queue.must_dispatch = true;
                    self.answer(now);
                }
            }
        } else if self.preempts(owner, queued, now) {
            self.preempt(owner, now);
        }
    }

    /// Forgets a request, which was cancelled or became part of another.
    pub(super) fn let_go(&mut self, table: &Table, id: RequestId) {
        let owner = self.remove(table, id);
        if self.active == Some(owner) {
            // What is waited for at the end of a slice is to have a request when that ends.
            let queue = self.queues.get_mut(owner);
            queue.must_dispatch &= !queue.is_empty();
        } else if self.queues.get(owner).is_empty() {
            self.become_idle(owner);
            self.queues.reap(owner, self.active);
        }
    }

    /// Takes a request out of its queue.
    pub(super) fn remove(&mut self, table: &Table, id: RequestId) -> QueueId {
        let queued = table.get(id);
        let owner = QueueId(queued.owner);
        self.forget_position(owner);
        self.queues.get_mut(owner).remove(id, queued.start, queued, &self.tunables);
        self.note_position(owner);
        self.queued -= 1;
        owner
    }

    /// A request grew.
    pub(super) fn move_in_queue(
        &mut self,
        table: &mut Table,
        id: RequestId,
        old: Sector,
        expires: Time,
    ) {
        let queued = table.get(id);
        let (owner, serial, was) = (QueueId(queued.owner), queued.serial, queued.expires);
        let candidate = Candidate::of(id, queued);
        self.forget_position(owner);
        let queue = self.queues.get_mut(owner);
        queue.sorted.remove(&(old, id));
        queue.sorted.insert((candidate.start, id), candidate);
        if let Some(next) = queue.next.as_mut().filter(|next| next.id == id) {
            *next = candidate;
        }
        if expires < was {
            queue.fifo.remove(&(was, serial));
            queue.fifo.insert((expires, serial), id);
            table.mark(id, expires, owner.0);
        }
        self.note_position(owner);
    }

    /// A process is gone. The turn of a queue that no other has ends: nothing more comes for it.
    pub(super) fn leave(&mut self, process: Process, now: Time) {
        let all = (process, GroupId(0))..=(process, GroupId(u16::MAX));
        while let Some((&key, _)) = self.members.range(all.clone()).next() {
            let Some(member) = self.members.remove(&key) else { return };
            self.quit(member.queue);
        }
        if let Some(active) = self.active {
            let queue = self.queues.get(active);
            if queue.sync && queue.processes + queue.joining == 0 {
                self.end_turn(false, now);
            }
        }
    }
}
