//! Groups: each has a share of the device by its weight. The next turn is that of the group which
//! used least for its weight.

use alloc::collections::BTreeSet;

use crate::request::{Class, Level};
use crate::units::{GroupId, Span, Time};

use super::habit::ThinkTime;
use super::queue::QueueId;
use super::slice::Average;
use super::tree::{Kind, Tree, TreeId};

/// A weight, 10 to 1000. That of a group with 1000 is a share twice that of one with 500.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Weight(u16);

impl Weight {
    /// That weight, if it is 10 to 1000.
    ///
    /// ```
    /// use zonal_cfq::cfq::Weight;
    /// assert!(Weight::new(9).is_none() && Weight::new(1001).is_none());
    /// assert_eq!(Weight::new(500), Some(Weight::default()));
    /// ```
    #[must_use]
    pub const fn new(weight: u16) -> Option<Self> {
        if weight >= 10 && weight <= 1000 { Some(Self(weight)) } else { None }
    }

    /// As a number.
    #[must_use]
    pub const fn get(self) -> u16 {
        self.0
    }
}

impl Default for Weight {
    fn default() -> Self {
        Self(500)
    }
}

/// A group.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) weight: Weight,
    /// Time used, over the weight.
    pub(super) used: u64,
    /// Whether it has busy queues, and so is one of the active groups.
    is_active: bool,
    /// Its busy queues.
    pub(super) queues: u32,
    pub(super) async_queues: u32,
    pub(super) trees: [Tree; TreeId::COUNT],
    /// The mean number of busy queues of class real-time, and of class best-effort.
    pub(super) averages: [Average; 2],
    /// What was left of its turn, and whose it was.
    pub(super) left: Option<(Span, Class, Kind)>,
    /// Requests that the device has.
    pub(super) dispatched: u32,
    pub(super) think: ThinkTime,
    /// One for each level of real-time and best-effort, one for class idle.
    async_ids: [Option<QueueId>; 17],
}

impl Group {
    pub(super) fn new(weight: Weight) -> Self {
        Self {
            weight,
            used: 0,
            is_active: false,
            queues: 0,
            async_queues: 0,
            trees: core::array::from_fn(|_| Tree::new()),
            averages: [Average::default(), Average::default()],
            left: None,
            dispatched: 0,
            think: ThinkTime::new(Time::ZERO),
            async_ids: [None; 17],
        }
    }

    /// The queue for async requests.
    pub(super) fn async_id(&mut self, class: Class, level: Level) -> &mut Option<QueueId> {
        let level = usize::from(level.get());
        &mut self.async_ids[match class {
            Class::RealTime => level,
            Class::BestEffort => 8 + level,
            Class::Idle => 16,
        }]
    }

    pub(super) fn tree(&self, class: Class, kind: Kind) -> &Tree {
        &self.trees[TreeId::new(class, kind).index()]
    }

    /// How many queues of a class are busy.
    pub(super) fn busy(&self, class: Class) -> u32 {
        if class == Class::Idle {
            return self.tree(class, Kind::Sync).len();
        }
        Kind::ALL.iter().map(|kind| self.tree(class, *kind).len()).sum()
    }

    /// The mean number of busy queues of a class, updated by the number there are now. Of class idle
    /// none is kept: its slices are those of best-effort.
    pub(super) fn average(&mut self, class: Class) -> u32 {
        let at = usize::from(class != Class::RealTime);
        let busy = self.busy([Class::RealTime, Class::BestEffort][at]);
        self.averages[at].update(busy)
    }
}

/// The groups that have busy queues, by what they used.
#[derive(Debug, Default)]
pub(super) struct Active {
    order: BTreeSet<(u64, GroupId)>,
    /// The sum of their weights.
    weight: u64,
    /// What the next group used that was last chosen: time does not go back before it.
    least: u64,
}

/// What a group used is time × this over its weight.
const SCALE: u64 = 1 << 10;

impl Active {
    /// A group has busy queues: its turn is after that of all others.
    pub(super) fn add(&mut self, id: GroupId, group: &mut Group) {
        if !group.is_active {
            group.is_active = true;
            group.used = self.order.last().map_or(self.least, |(used, _)| used.saturating_add(1));
            self.weight += u64::from(group.weight.get());
            self.order.insert((group.used, id));
        }
    }

    /// A group has no busy queues any more.
    pub(super) fn remove(&mut self, id: GroupId, group: &mut Group) {
        if group.is_active {
            group.is_active = false;
            self.order.remove(&(group.used, id));
            self.weight -= u64::from(group.weight.get());
        }
    }

    /// A group used the device.
    pub(super) fn charge(&mut self, id: GroupId, group: &mut Group, time: Span) {
        let was = self.order.remove(&(group.used, id));
        let charge = time.scaled(SCALE, u64::from(group.weight.get()));
        group.used = group.used.saturating_add(charge.0);
        if was {
            self.order.insert((group.used, id));
        }
    }

    /// A group has another weight from now on.
    pub(super) fn weigh(&mut self, group: &mut Group, weight: Weight) {
        if group.is_active {
            self.weight = self.weight - u64::from(group.weight.get()) + u64::from(weight.get());
        }
        group.weight = weight;
    }

    /// The group whose turn is next.
    pub(super) fn first(&mut self) -> Option<GroupId> {
        let (used, id) = self.order.first().copied()?;
        self.least = self.least.max(used);
        Some(id)
    }

    /// A group's share of the target.
    pub(super) fn turn(&self, group: &Group, target: Span) -> Span {
        target.scaled(u64::from(group.weight.get()), self.weight)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cfq::tree::Place;

    #[test]
    fn queues_of_class_idle_do_not_count_as_best_effort() {
        let mut group = Group::new(Weight::default());
        let tree = TreeId::new(Class::Idle, Kind::Sync);
        for order in 0..8 {
            group.trees[tree.index()].insert(Place { tree, key: 0, order }, QueueId(order as u32));
        }
        assert_eq!(group.average(Class::Idle), 0);
        assert_eq!(group.average(Class::BestEffort), 0);
    }
}
