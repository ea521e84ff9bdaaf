//! Memory that has been free since boot and whose table entries have not been touched.

use super::ListGuard;
use super::clusters::Clusters;
use super::free_area::End;
use super::merge::Merge;
use crate::frame::FrameState;
use crate::frame::links::{Links, NIL};
use crate::platform::Platform;
use crate::types::units::Order;

/// Runs up to which memory that comes is added to them, rather than listed.
pub(crate) const MOST_RUNS: u32 = 64;

/// Memory that has been free since boot and whose table entries have not been touched: runs
/// of whole largest blocks of movable pageblocks. A terabyte costs nothing until it is used.
///
/// A run's first frame carries, in its link word, the run's end and the first frame of the
/// next run.
#[derive(Debug)]
pub(crate) struct Untouched {
    pub(crate) first: u32,
    pub(crate) blocks: u32,
}

impl Untouched {
    pub(super) const EMPTY: Self = Self { first: NIL, blocks: 0 };

    pub(crate) fn frames(&self) -> u64 {
        u64::from(self.blocks) * Order::MAX.frames()
    }

    /// Adds the run `start..end`, both multiples of the largest block.
    pub(crate) fn push<P: Platform>(&mut self, links: Links<'_, P>, start: u32, end: u32) {
        links.set_link(start, end, self.first);
        self.first = start;
        self.blocks += (end - start) / Order::MAX.frames() as u32;
    }

    /// Calls `visit` with every untouched largest block.
    pub(crate) fn visit<P: Platform>(&self, links: Links<'_, P>, visit: &mut dyn FnMut(u32)) {
        let mut start = self.first;
        while start != NIL {
            let (end, next) = links.link(start);
            (start..end).step_by(Order::MAX.frames() as usize).for_each(&mut *visit);
            start = next;
        }
    }

    fn take<P: Platform>(&mut self, links: Links<'_, P>) -> Option<u32> {
        let index = (self.first != NIL).then_some(self.first)?;
        let (end, next) = links.link(index);
        let after = index + Order::MAX.frames() as u32;
        self.first = if after == end {
            next
        } else {
            links.set_link(after, end, next);
            after
        };
        self.blocks -= 1;
        Some(index)
    }
}

impl Untouched {
    /// The run that the largest block at `head` is in: the run before it, its start, its end and
    /// the start of the next. O(runs), at most one for each range of the memory map.
    fn run_of<P: Platform>(
        &self,
        links: Links<'_, P>,
        head: u32,
    ) -> Option<(Option<u32>, u32, u32, u32)> {
        let (mut before, mut start) = (None, self.first);
        while start != NIL {
            let (end, next) = links.link(start);
            if (start..end).contains(&head) {
                return Some((before, start, end, next));
            }
            before = Some(start);
            start = next;
        }
        None
    }

    /// Whether the largest block at `head` is untouched. O(runs).
    pub(crate) fn contains<P: Platform>(&self, links: Links<'_, P>, head: u32) -> bool {
        self.run_of(links, head).is_some()
    }

    /// Adds the run `start..end`, both multiples of the largest block, behind the others, joined
    /// with those that it touches. `false`, and nothing has changed, if there are [`MOST_RUNS`]
    /// of them: all of them are looked at.
    pub(crate) fn append<P: Platform>(
        &mut self,
        links: Links<'_, P>,
        start: u32,
        mut end: u32,
    ) -> bool {
        let (mut runs, mut at) = (0, self.first);
        while at != NIL {
            runs += 1;
            if runs == MOST_RUNS {
                return false;
            }
            at = links.link(at).1;
        }
        self.blocks += (end - start) / Order::MAX.size();
        let (mut before, mut at) = (None, self.first);
        let mut below = None;
        while at != NIL {
            let (its_end, next) = links.link(at);
            if at == end {
                // The run above becomes a part of this one.
                end = its_end;
                self.link_behind(links, before, next);
            } else {
                below = if its_end == start { Some(at) } else { below };
                before = Some(at);
            }
            at = next;
        }
        match below {
            Some(run) => links.set_link(run, end, links.link(run).1),
            None => {
                links.set_link(start, end, NIL);
                self.link_behind(links, before, start);
            }
        }
        true
    }

    /// Makes `next` the run behind `before`, or the first.
    fn link_behind<P: Platform>(&mut self, links: Links<'_, P>, before: Option<u32>, next: u32) {
        match before {
            Some(run) => links.set_link(run, links.link(run).0, next),
            None => self.first = next,
        }
    }

    /// Takes the largest block at `head` out. O(runs).
    fn cut<P: Platform>(&mut self, links: Links<'_, P>, head: u32) -> bool {
        let Some((before, start, end, next)) = self.run_of(links, head) else { return false };
        let after = head + Order::MAX.size();
        let rest = if after < end {
            links.set_link(after, end, next);
            after
        } else {
            next
        };
        if start < head {
            links.set_link(start, head, rest);
        } else if let Some(before) = before {
            let (end, _) = links.link(before);
            links.set_link(before, end, rest);
        } else {
            self.first = rest;
        }
        self.blocks -= 1;
        true
    }
}

impl<P: Platform, M: Merge, C: Clusters> ListGuard<'_, P, M, C> {
    /// Moves the largest block around `index` from the untouched to the lists, if it is there.
    pub(crate) fn grow_at(&mut self, index: u32) {
        let head = index & !(Order::MAX.size() - 1);
        let links = self.links();
        if self.untouched.cut(links, head) {
            let migrate = self.table.pageblock(head).migrate();
            self.add(head, FrameState::free(Order::MAX), migrate, End::Head);
        }
    }

    /// Takes the first untouched largest block out.
    pub(super) fn take_untouched(&mut self) -> Option<u32> {
        let links = self.links();
        self.untouched.take(links)
    }
}
