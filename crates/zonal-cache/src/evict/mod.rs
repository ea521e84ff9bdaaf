//! Which page goes when there has to be room: policies, a file each.
//!
//! | policy | a hit | what it knows |
//! |---|---|---|
//! | [`TwoLists`] | a bit | two lists with second chance, and how long ago an evicted page left |
//! | [`S3Fifo`] | a count to 3 | a small queue that pages used once leave quickly, a main one, ghosts |
//! | [`Sieve`] | a bit | one queue, and a hand that leaves what was used where it is |
//! | [`MultiGen`] | a count to 4 | generations by age, tiers by use, and how often pages of each tier come back |
//!
//! A hit of any of them is at most one store into the page's mark, without a lock: what it means for
//! the order of pages is found out when a page has to go. The queues are the cache's under a lock, one or several
//! ([`lru`](crate::lru)), which misses take, and evictions.
//!
//! ```
//! use std::sync::atomic::AtomicU8;
//! use zonal_cache::evict::{Evict, Sieve, Verdict, touch};
//! use zonal_cache::table::SlotId;
//! let marks: Vec<AtomicU8> = (0..3).map(|_| AtomicU8::new(0)).collect();
//! let mut sieve = Sieve::new(3);
//! (0..3).for_each(|page| sieve.insert(SlotId(page), page.into()));
//! touch::<Sieve, _>(&marks[0]);
//! let mut gone = Vec::new();
//! let mut take = |id: SlotId| { gone.push(id.0); Verdict::Taken };
//! assert!(sieve.scan(&|id: SlotId| &marks[id.0 as usize], &mut take));
//! assert_eq!(gone, [1], "page 0 was used");
//! ```

mod ghost;
mod multi_gen;
mod queue;
mod s3_fifo;
mod sieve;
mod two_lists;

pub use multi_gen::MultiGen;
pub use s3_fifo::S3Fifo;
pub use sieve::Sieve;
pub use two_lists::TwoLists;

use crate::table::SlotId;
use core::sync::atomic::Ordering::Relaxed;
use zonal::platform::AtomicByte;

/// Set in the mark of a page that came before it was asked for. Its first use is what the
/// coming of other pages is, and no hit.
pub const UNUSED: u8 = 1 << 7;

/// What the cache says to a page that a policy would have go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It goes.
    Taken,
    /// It cannot go now: it is in use, or dirty. The policy looks at others.
    Kept,
    /// It is a block of which a part may go and a part may not, or was used and was not: the policy [halves](Evict::halve)
    /// it, and looks at the halves in its place. Of single pages it is not said.
    Split,
}

/// What a policy does with a page that it looks at and does not offer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Told {
    /// It was used, and goes to those that are [active](Evict::is_active).
    Activated,
    /// It is active, was used since, and stays so.
    StaysActive,
    /// It is active no more.
    Deactivated,
}

/// A policy: see the [module](self). Slots are numbers below that given to [`new`](Self::new).
pub trait Evict: Send + 'static {
    /// The name of the policy.
    const NAME: &'static str;
    /// How often a page is marked: hits beyond are not told apart. At most 127.
    const MOST: u8;
    /// Whether pages may come as a [block](Self::insert_block). Else each comes by itself.
    const BLOCKS: bool = false;

    /// The policy for that many slots, of which none is in use.
    fn new(slots: usize) -> Self;

    /// Another of the policy over the same slots, where pages are split between several: about `pages` will be
    /// its. A slot is in one of them, or in none. The default shares nothing.
    fn beside(&self, slots: usize, pages: usize) -> Self
    where
        Self: Sized,
    {
        let _ = pages;
        Self::new(slots)
    }

    /// There is room for about `pages` to begin with, no more than it was made for; the bound may be raised later. Said before
    /// a page comes. The default does not look.
    fn begin_with(&mut self, pages: usize) {
        let _ = pages;
    }

    /// Bytes that `lists` of the policy take which share `slots`, each for as many pages as any other. The default says 64 for
    /// each slot of each.
    #[must_use]
    fn table_bytes(slots: usize, lists: usize) -> usize {
        64 * slots * lists
    }

    /// A page came to a slot. `key` is a number that the page had before, if it was here before.
    /// O(1).
    fn insert(&mut self, id: SlotId, key: u64);

    /// As many pages as 2 to the power of `order`, more than one, came together to slots in a row from `first` on, each with
    /// a `key`. They are one to the policy from now on, by the name of `first`: as long as many pages, offered once, and gone
    /// together, unless [`halve`](Self::halve) says that they are two. The mark of a block is what each of its pages has; if
    /// they differ it is 0, and what is written to it is lost, so that the block is offered and its halves are looked at. O(pages).
    fn insert_block(&mut self, first: SlotId, order: u32, key: &dyn Fn(SlotId) -> u64) {
        block_at(first, order).for_each(|id| self.insert(id, key(id)));
    }

    /// A block is two from now on, each of half its pages, the first before the other in the order in which they go. Also the
    /// policy's own part of [`Verdict::Split`]. O(1).
    fn halve(&mut self, first: SlotId) {
        let _ = first;
    }

    /// The page of a slot has gone, or the block that begins there, not by [`scan`](Self::scan). Nothing happens if the slot is
    /// not in use. O(1).
    fn remove(&mut self, id: SlotId);

    /// The page of a slot, in no block, has moved to another. O(1).
    fn replace(&mut self, old: SlotId, new: SlotId);

    /// Offers pages to `take`, in the order in which they are to go, until it takes one: then that has
    /// gone. False if it took none, after each was offered. Marks are read and cleared by `mark`.
    fn scan<'m, B: AtomicByte + 'm>(
        &mut self,
        mark: &impl Fn(SlotId) -> &'m B,
        take: &mut impl FnMut(SlotId) -> Verdict,
    ) -> bool {
        self.scan_told(mark, take, &mut |_, _| ())
    }

    /// As [`scan`](Self::scan); tells of each page that becomes [active](Self::is_active), stays so for its use, or becomes
    /// inactive, if the policy has such.
    fn scan_told<'m, B: AtomicByte + 'm>(
        &mut self,
        mark: &impl Fn(SlotId) -> &'m B,
        take: &mut impl FnMut(SlotId) -> Verdict,
        told: &mut impl FnMut(Told, SlotId),
    ) -> bool;

    /// Whether a page is among those that were used, and go after the others. Asked where events are recorded. The
    /// default has no such.
    fn is_active(&self, id: SlotId) -> bool {
        let _ = id;
        false
    }

    /// How many pages came back while the policy remembered that they had gone: what Linux counts as
    /// `workingset_refault`. It knows those of whose going it keeps a ghost, the latest, and two pages may look the
    /// same. O(1). The default remembers none.
    fn refaults(&self) -> u64 {
        0
    }
}

/// A hit. Takes no lock; stores only where that changes something. Of two at once one may be lost.
#[inline(always)]
pub fn touch<E: Evict, B: AtomicByte>(mark: &B) {
    // Relaxed, here and in the policies: a hint that orders nothing.
    let seen = mark.load(Relaxed);
    if seen & UNUSED != 0 {
        mark.store(seen & !UNUSED, Relaxed);
    } else if seen < E::MOST {
        mark.store(seen + 1, Relaxed);
    }
}

/// The slots of a block.
pub(crate) fn block_at(first: SlotId, order: u32) -> impl DoubleEndedIterator<Item = SlotId> {
    (first.0..first.0 + (1 << order)).map(SlotId)
}

/// How often a page was hit.
pub(crate) fn hits<B: AtomicByte>(mark: &B) -> u8 {
    mark.load(Relaxed) & !UNUSED
}

#[cfg(test)]
mod tests;
