//! Which page goes when there has to be room: policies, a file each.
//!
//! | policy | a hit | what it knows |
//! |---|---|---|
//! | [`TwoLists`] | a bit | two lists with second chance, and how long ago an evicted page left |
//! | [`S3Fifo`] | a count to 3 | a small queue that pages used once leave quickly, a main one, ghosts |
//! | [`Sieve`] | a bit | one queue, and a hand that leaves what was used where it is |
//!
//! A hit of any of them is at most one store into the page's mark, without a lock: what it means for
//! the order of pages is found out when a page has to go. The queues are the cache's under one lock,
//! which misses take, and evictions.
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
mod queue;
mod s3_fifo;
mod sieve;
mod two_lists;

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
}

/// A policy: see the [module](self). Slots are numbers below that given to [`new`](Self::new).
pub trait Evict: Send + 'static {
    /// The name of the policy.
    const NAME: &'static str;
    /// How often a page is marked: hits beyond are not told apart. At most 127.
    const MOST: u8;

    /// The policy for that many slots, of which none is in use.
    fn new(slots: usize) -> Self;

    /// A page came to a slot. `key` is a number that the page had before, if it was here before.
    /// O(1).
    fn insert(&mut self, id: SlotId, key: u64);

    /// The page of a slot has gone, not by [`scan`](Self::scan). Nothing happens if the slot is not in
    /// use. O(1).
    fn remove(&mut self, id: SlotId);

    /// The page of a slot has moved to another. O(1).
    fn replace(&mut self, old: SlotId, new: SlotId);

    /// Offers pages to `take`, in the order in which they are to go, until it takes one: then that has
    /// gone. False if it took none, after each was offered. Marks are read and cleared by `mark`.
    fn scan<'m, B: AtomicByte + 'm>(
        &mut self,
        mark: &impl Fn(SlotId) -> &'m B,
        take: &mut impl FnMut(SlotId) -> Verdict,
    ) -> bool;
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

/// How often a page was hit.
fn hits<B: AtomicByte>(mark: &B) -> u8 {
    mark.load(Relaxed) & !UNUSED
}
