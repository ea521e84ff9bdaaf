//! Service trees: the busy queues of one kind of a group, in the order of their turns.

use alloc::collections::BTreeMap;

use crate::request::Class;
use crate::units::Time;

use super::habit::ThinkTime;
use super::queue::QueueId;

/// What kind of turns queues take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// Async requests.
    Async,
    /// Sync ones of queues that are not waited for one by one.
    NoIdle,
    /// Sync ones of queues that are.
    Sync,
}

impl Kind {
    pub(super) const ALL: [Self; 3] = [Self::Async, Self::NoIdle, Self::Sync];
}

/// Which tree of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TreeId(u8);

impl TreeId {
    /// How many a group has.
    pub(super) const COUNT: usize = 7;

    /// Class idle has one for all kinds.
    pub(super) fn new(class: Class, kind: Kind) -> Self {
        Self(match class {
            Class::RealTime => kind as u8,
            Class::BestEffort => 3 + kind as u8,
            Class::Idle => 6,
        })
    }

    pub(super) fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// A queue's place in a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) tree: TreeId,
    /// Since the clock began, in ns; queues that preempt may be before it.
    pub(super) key: i64,
    /// Queues with one key take turns as they came.
    pub(super) order: u64,
}

/// A service tree.
#[derive(Debug)]
pub(super) struct Tree {
    queues: BTreeMap<(i64, u64), QueueId>,
    /// How long its queues leave it empty.
    pub(super) think: ThinkTime,
}

impl Tree {
    pub(super) fn new() -> Self {
        Self { queues: BTreeMap::new(), think: ThinkTime::new(Time::ZERO) }
    }

    pub(super) fn len(&self) -> u32 {
        // There are fewer queues than 2^32.
        self.queues.len() as u32
    }

    pub(super) fn insert(&mut self, place: Place, queue: QueueId) {
        self.queues.insert((place.key, place.order), queue);
    }

    pub(super) fn remove(&mut self, place: Place) {
        self.queues.remove(&(place.key, place.order));
    }

    pub(super) fn first(&self) -> Option<(i64, QueueId)> {
        self.queues.first_key_value().map(|((key, _), queue)| (*key, *queue))
    }

    /// The last key but that of `queue`.
    pub(super) fn last_key(&self, queue: QueueId) -> Option<i64> {
        let mut others = self.queues.iter().rev().filter(|(_, other)| **other != queue);
        others.next().map(|((key, _), _)| *key)
    }
}
