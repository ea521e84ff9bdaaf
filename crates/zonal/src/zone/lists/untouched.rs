//! Taking one block out of the middle of untouched memory.

use crate::frame::FrameTable;
use crate::frame::links::NIL;
use crate::platform::Platform;
use crate::policy::Policy;
use crate::types::units::Order;
use crate::zone::lists::buddy::{Buddy, Frontier};
use crate::zone::lists::free_area::End;

/// Runs up to which memory that comes is added to them, rather than listed.
pub(crate) const MOST_RUNS: u32 = 64;

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

    /// Adds the run `start..end`, both multiples of the largest block, behind the others, joined
    /// with those that it touches. `false`, and nothing has changed, if there are [`MOST_RUNS`]
    /// of them: all of them are looked at.
    pub(crate) fn append<P: Platform>(
        &mut self,
        table: &FrameTable<'_, P>,
        start: u32,
        mut end: u32,
    ) -> bool {
        let (mut runs, mut at) = (0, self.first);
        while at != NIL {
            runs += 1;
            if runs == MOST_RUNS {
                return false;
            }
            at = table.link(at).1;
        }
        self.blocks += (end - start) / Order::MAX.size();
        let (mut before, mut at) = (None, self.first);
        let mut below = None;
        while at != NIL {
            let (its_end, next) = table.link(at);
            if at == end {
                // The run above becomes a part of this one.
                end = its_end;
                self.link_behind(table, before, next);
            } else {
                below = if its_end == start { Some(at) } else { below };
                before = Some(at);
            }
            at = next;
        }
        match below {
            Some(run) => table.set_link(run, end, table.link(run).1),
            None => {
                table.set_link(start, end, NIL);
                self.link_behind(table, before, start);
            }
        }
        true
    }

    /// Makes `next` the run behind `before`, or the first.
    fn link_behind<P: Platform>(
        &mut self,
        table: &FrameTable<'_, P>,
        before: Option<u32>,
        next: u32,
    ) {
        match before {
            Some(run) => table.set_link(run, table.link(run).0, next),
            None => self.first = next,
        }
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
            let migrate = table.pageblock(head).migrate();
            self.area.add(table, head, Order::MAX, migrate, End::Head);
        }
    }
}
