//! Doubly linked lists of frames through the link words of the frame table.

use crate::frame::FrameTable;
use crate::platform::Platform;

/// "No frame" in a link: never a valid index, because a table spans fewer than 2^32 − 1 frames.
pub(crate) const NIL: u32 = u32::MAX;

/// A list of block heads. Whoever guards the list guards the link words of its members.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FreeList {
    head: u32,
    tail: u32,
    count: u32,
}

impl FreeList {
    pub(crate) const EMPTY: Self = Self { head: NIL, tail: NIL, count: 0 };

    #[inline]
    pub(crate) fn len(&self) -> u32 {
        self.count
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.head == NIL
    }

    /// The block that [`pop_head`](Self::pop_head) would take.
    #[inline]
    pub(crate) fn head(&self) -> Option<u32> {
        (self.head != NIL).then_some(self.head)
    }

    #[inline(always)]
    pub(crate) fn push_head<P: Platform>(&mut self, table: &FrameTable<'_, P>, index: u32) {
        table.set_link(index, NIL, self.head);
        if self.head == NIL {
            self.tail = index;
        } else {
            let (_, next) = table.link(self.head);
            table.set_link(self.head, index, next);
        }
        self.head = index;
        self.count += 1;
    }

    #[inline]
    pub(crate) fn push_tail<P: Platform>(&mut self, table: &FrameTable<'_, P>, index: u32) {
        table.set_link(index, self.tail, NIL);
        if self.tail == NIL {
            self.head = index;
        } else {
            let (previous, _) = table.link(self.tail);
            table.set_link(self.tail, previous, index);
        }
        self.tail = index;
        self.count += 1;
    }

    #[inline(always)]
    pub(crate) fn pop_head<P: Platform>(&mut self, table: &FrameTable<'_, P>) -> Option<u32> {
        let index = self.head()?;
        self.remove(table, index);
        Some(index)
    }

    #[inline]
    pub(crate) fn pop_tail<P: Platform>(&mut self, table: &FrameTable<'_, P>) -> Option<u32> {
        let index = (self.tail != NIL).then_some(self.tail)?;
        self.remove(table, index);
        Some(index)
    }

    /// Unlinks `index`, which must be a member.
    #[inline(always)]
    pub(crate) fn remove<P: Platform>(&mut self, table: &FrameTable<'_, P>, index: u32) {
        let (previous, next) = table.link(index);
        if previous == NIL {
            self.head = next;
        } else {
            let (before, _) = table.link(previous);
            table.set_link(previous, before, next);
        }
        if next == NIL {
            self.tail = previous;
        } else {
            let (_, after) = table.link(next);
            table.set_link(next, previous, after);
        }
        self.count -= 1;
    }

    /// The frame on the tail side.
    #[inline]
    pub(crate) fn tail(&self) -> Option<u32> {
        (self.tail != NIL).then_some(self.tail)
    }

    /// The member nearer to the head than `index`.
    pub(crate) fn before<P: Platform>(table: &FrameTable<'_, P>, index: u32) -> Option<u32> {
        let (previous, _) = table.link(index);
        (previous != NIL).then_some(previous)
    }

    /// Cuts the first `count` members off, of which `tail` is the last. O(1).
    pub(crate) fn cut<P: Platform>(
        &mut self,
        table: &FrameTable<'_, P>,
        tail: u32,
        count: u32,
    ) -> Self {
        let cut = Self { head: self.head, tail, count };
        let (previous, next) = table.link(tail);
        table.set_link(tail, previous, NIL);
        self.head = next;
        self.count -= count;
        if next == NIL {
            self.tail = NIL;
        } else {
            let (_, after) = table.link(next);
            table.set_link(next, NIL, after);
        }
        cut
    }

    /// Cuts as many members off the tail as `frames` has room for, writes them there from the tail
    /// on, and leaves them linked. O(members cut).
    pub(crate) fn cut_tail<P: Platform>(
        &mut self,
        table: &FrameTable<'_, P>,
        frames: &mut [u32],
    ) -> Self {
        let mut cut = Self { tail: self.tail, ..Self::EMPTY };
        for slot in frames {
            let Some(index) = self.tail() else { break };
            *slot = index;
            (cut.head, cut.count) = (index, cut.count + 1);
            self.tail = table.link(index).0;
        }
        self.count -= cut.count;
        if cut.head != NIL {
            let (_, next) = table.link(cut.head);
            table.set_link(cut.head, NIL, next);
        }
        match self.tail() {
            None => self.head = NIL,
            Some(tail) => {
                let (previous, _) = table.link(tail);
                table.set_link(tail, previous, NIL);
            }
        }
        cut
    }

    /// Puts all of `other` before the head. O(1).
    pub(crate) fn prepend<P: Platform>(&mut self, table: &FrameTable<'_, P>, mut other: Self) {
        other.append(table, *self);
        *self = other;
    }

    /// Puts all of `other` behind the tail. O(1).
    pub(crate) fn append<P: Platform>(&mut self, table: &FrameTable<'_, P>, other: Self) {
        if self.is_empty() {
            *self = other;
        } else if !other.is_empty() {
            let (previous, _) = table.link(self.tail);
            table.set_link(self.tail, previous, other.head);
            let (_, next) = table.link(other.head);
            table.set_link(other.head, self.tail, next);
            self.tail = other.tail;
            self.count += other.count;
        }
    }

    /// Members from the head on.
    pub(crate) fn iter<'a, P: Platform>(
        &self,
        table: &'a FrameTable<'_, P>,
    ) -> impl Iterator<Item = u32> + 'a {
        let mut at = self.head;
        core::iter::from_fn(move || {
            let here = (at != NIL).then_some(at)?;
            at = table.link(here).1;
            Some(here)
        })
    }
}
