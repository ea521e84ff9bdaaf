//! Taking one block out of the middle of untouched memory.

use crate::buddy::{Buddy, Frontier};
use crate::frame::{FrameTable, NIL};
use crate::free_area::End;
use crate::platform::Platform;
use crate::policy::Policy;
use crate::units::Order;

impl Frontier {
    /// The run that the largest block at `head` is in: the run before it, its start, its end and
    /// the start of the next. O(runs), at most one for each range of the memory map.
    fn run_of<P: Platform>(
        &self,
        table: &FrameTable<'_, P>,
        head: u32,
    ) -> Option<(Option<u32>, u32, u32, u32)> {
        let (mut before, mut start) = (None, self.first);
        while start != NIL {
            let (end, next) = table.link(start);
            if (start..end).contains(&head) {
                return Some((before, start, end, next));
            }
            before = Some(start);
            start = next;
        }
        None
    }

    /// Whether the largest block at `head` is untouched. O(runs).
    pub(crate) fn contains<P: Platform>(&self, table: &FrameTable<'_, P>, head: u32) -> bool {
        self.run_of(table, head).is_some()
    }

    /// Takes the largest block at `head` out. O(runs).
    fn cut<P: Platform>(&mut self, table: &FrameTable<'_, P>, head: u32) -> bool {
        let Some((before, start, end, next)) = self.run_of(table, head) else { return false };
        let after = head + Order::MAX.size();
        let rest = if after < end {
            table.set_link(after, end, next);
            after
        } else {
            next
        };
        if start < head {
            table.set_link(start, head, rest);
        } else if let Some(before) = before {
            let (end, _) = table.link(before);
            table.set_link(before, end, rest);
        } else {
            self.first = rest;
        }
        self.blocks -= 1;
        true
    }
}

impl<S: Policy> Buddy<S> {
    /// Moves the largest block around `index` from the frontier to the lists, if it is there.
    pub(crate) fn grow_at<P: Platform>(&mut self, table: &FrameTable<'_, P>, index: u32) {
        let head = index & !(Order::MAX.size() - 1);
        if self.frontier.cut(table, head) {
            let migrate = table.block(head).migrate();
            self.area.add(table, head, Order::MAX, migrate, End::Head);
        }
    }
}
