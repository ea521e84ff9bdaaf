//! Doubly linked lists of frames through the link words of the frame table.

use crate::platform::{AtomicWord, Platform};
use core::sync::atomic::Ordering::Relaxed;

/// "No frame" in a link: never a valid index, because a table spans fewer than 2^32 − 1 frames.
pub(crate) const NIL: u32 = u32::MAX;

/// One word a frame, for lists that the frame is on: the frames before and behind it.
#[derive(Debug)]
pub(crate) struct Links<'a, P: Platform>(pub(crate) &'a [P::Word]);

impl<P: Platform> Clone for Links<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: Platform> Copy for Links<'_, P> {}

impl<P: Platform> Links<'_, P> {
    /// The (previous, next) of a frame that is on a list.
    #[inline]
    pub(crate) fn link(self, index: u32) -> (u32, u32) {
        let word = self.0[index as usize].load(Relaxed);
        (word as u32, (word >> 32) as u32)
    }

    #[inline]
    pub(crate) fn set_link(self, index: u32, previous: u32, next: u32) {
        let word = u64::from(previous) | u64::from(next) << 32;
        self.0[index as usize].store(word, Relaxed);
    }
}

/// A list of block heads. The guard of the list guards the link words of its members.
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
    pub(crate) fn push_head<P: Platform>(&mut self, links: Links<'_, P>, index: u32) {
        links.set_link(index, NIL, self.head);
        if self.head == NIL {
            self.tail = index;
        } else {
            let (_, next) = links.link(self.head);
            links.set_link(self.head, index, next);
        }
        self.head = index;
        self.count += 1;
    }

    #[inline]
    pub(crate) fn push_tail<P: Platform>(&mut self, links: Links<'_, P>, index: u32) {
        links.set_link(index, self.tail, NIL);
        if self.tail == NIL {
            self.head = index;
        } else {
            let (previous, _) = links.link(self.tail);
            links.set_link(self.tail, previous, index);
        }
        self.tail = index;
        self.count += 1;
    }

    #[inline(always)]
    pub(crate) fn pop_head<P: Platform>(&mut self, links: Links<'_, P>) -> Option<u32> {
        let index = self.head()?;
        self.remove(links, index);
        Some(index)
    }

    #[inline]
    pub(crate) fn pop_tail<P: Platform>(&mut self, links: Links<'_, P>) -> Option<u32> {
        let index = (self.tail != NIL).then_some(self.tail)?;
        self.remove(links, index);
        Some(index)
    }

    /// Unlinks `index`, which must be a member.
    #[inline(always)]
    pub(crate) fn remove<P: Platform>(&mut self, links: Links<'_, P>, index: u32) {
        let (previous, next) = links.link(index);
        if previous == NIL {
            self.head = next;
        } else {
            let (before, _) = links.link(previous);
            links.set_link(previous, before, next);
        }
        if next == NIL {
            self.tail = previous;
        } else {
            let (_, after) = links.link(next);
            links.set_link(next, previous, after);
        }
        self.count -= 1;
    }

    /// The frame on the tail side.
    #[inline]
    pub(crate) fn tail(&self) -> Option<u32> {
        (self.tail != NIL).then_some(self.tail)
    }

    /// The member nearer to the head than `index`.
    pub(crate) fn before<P: Platform>(links: Links<'_, P>, index: u32) -> Option<u32> {
        let (previous, _) = links.link(index);
        (previous != NIL).then_some(previous)
    }

    /// Cuts the first `count` members off, of which `tail` is the last. O(1).
    pub(crate) fn cut<P: Platform>(&mut self, links: Links<'_, P>, tail: u32, count: u32) -> Self {
        let cut = Self { head: self.head, tail, count };
        let (previous, next) = links.link(tail);
        links.set_link(tail, previous, NIL);
        self.head = next;
        self.count -= count;
        if next == NIL {
            self.tail = NIL;
        } else {
            let (_, after) = links.link(next);
            links.set_link(next, NIL, after);
        }
        cut
    }

    /// Cuts as many members off the tail as `frames` has room for, writes them there from the tail
    /// on, and leaves them linked. O(members cut).
    pub(crate) fn cut_tail<P: Platform>(
        &mut self,
        links: Links<'_, P>,
        frames: &mut [u32],
    ) -> Self {
        let mut cut = Self { tail: self.tail, ..Self::EMPTY };
        for place in frames {
            let Some(index) = self.tail() else { break };
            *place = index;
            (cut.head, cut.count) = (index, cut.count + 1);
            self.tail = links.link(index).0;
        }
        self.count -= cut.count;
        if cut.head != NIL {
            let (_, next) = links.link(cut.head);
            links.set_link(cut.head, NIL, next);
        }
        match self.tail() {
            None => self.head = NIL,
            Some(tail) => {
                let (previous, _) = links.link(tail);
                links.set_link(tail, previous, NIL);
            }
        }
        cut
    }

    /// Puts all of `other` before the head. O(1).
    pub(crate) fn prepend<P: Platform>(&mut self, links: Links<'_, P>, mut other: Self) {
        other.append(links, *self);
        *self = other;
    }

    /// Puts all of `other` behind the tail. O(1).
    pub(crate) fn append<P: Platform>(&mut self, links: Links<'_, P>, other: Self) {
        if self.is_empty() {
            *self = other;
        } else if !other.is_empty() {
            let (previous, _) = links.link(self.tail);
            links.set_link(self.tail, previous, other.head);
            let (_, next) = links.link(other.head);
            links.set_link(other.head, self.tail, next);
            self.tail = other.tail;
            self.count += other.count;
        }
    }

    /// Members from the head on.
    pub(crate) fn iter<'a, P: Platform + 'a>(
        &self,
        links: Links<'a, P>,
    ) -> impl Iterator<Item = u32> + 'a {
        let mut at = self.head;
        core::iter::from_fn(move || {
            let here = (at != NIL).then_some(at)?;
            at = links.link(here).1;
            Some(here)
        })
    }
}
