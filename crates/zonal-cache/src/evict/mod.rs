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

/// How often a page was hit.
fn hits<B: AtomicByte>(mark: &B) -> u8 {
    mark.load(Relaxed) & !UNUSED
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use core::sync::atomic::AtomicU8;
    use proptest::prelude::*;

    const SLOTS: u32 = 24;

    /// Pages come, are used, go, move and are asked to go, some of which cannot.
    fn steps() -> impl Strategy<Value = Vec<(u8, u32, u64)>> {
        prop::collection::vec((0_u8..11, 0..SLOTS, 0_u64..1 << SLOTS), 0..400)
    }

    /// A policy offers what there is, and all of it before it says that nothing goes.
    fn offers<E: Evict>(steps: &[(u8, u32, u64)]) -> Result<(), TestCaseError> {
        let marks: Vec<AtomicU8> = (0..SLOTS).map(|_| AtomicU8::new(0)).collect();
        let mark = |id: SlotId| &marks[id.0 as usize];
        let (mut evict, mut there) = (E::new(SLOTS as usize), Vec::new());
        for &(what, slot, number) in steps {
            match what {
                0..4 if !there.contains(&slot) => {
                    mark(SlotId(slot)).store(0, Relaxed);
                    evict.insert(SlotId(slot), number % 30 + 1);
                    there.push(slot);
                }
                4..7 => touch::<E, _>(mark(SlotId(slot))),
                7 => {
                    evict.remove(SlotId(slot));
                    there.retain(|&it| it != slot);
                }
                8 => {
                    let other = (number % u64::from(SLOTS)) as u32;
                    if there.contains(&slot) && !there.contains(&other) {
                        evict.replace(SlotId(slot), SlotId(other));
                        mark(SlotId(other)).store(mark(SlotId(slot)).load(Relaxed), Relaxed);
                        there.retain(|&it| it != slot);
                        there.push(other);
                    }
                }
                9 | 10 => {
                    // Some can go, or one, or none.
                    let stays =
                        |&it: &u32| if what == 9 { number >> it & 1 != 0 } else { it != slot };
                    let mut offered = Vec::new();
                    let mut take = |id: SlotId| {
                        offered.push(id.0);
                        if stays(&id.0) { Verdict::Kept } else { Verdict::Taken }
                    };
                    let went = evict.scan(&mark, &mut take);
                    prop_assert!(offered.iter().all(|slot| there.contains(slot)));
                    prop_assert!(offered.len() <= 7 * there.len(), "{} offers", offered.len());
                    prop_assert_eq!(went, !there.iter().all(stays), "{:?} of {:?}", offered, there);
                    if went {
                        let gone = offered[offered.len() - 1];
                        prop_assert_eq!(offered.iter().filter(|slot| !stays(slot)).count(), 1);
                        there.retain(|&it| it != gone);
                    } else {
                        let all = there.iter().all(|slot| offered.contains(slot));
                        prop_assert!(all, "{}: {:?} of {:?}", E::NAME, offered, there);
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    proptest! {
        #[test]
        fn all_that_is_there_is_offered_and_nothing_else(steps in steps()) {
            offers::<TwoLists>(&steps)?;
            offers::<S3Fifo>(&steps)?;
            offers::<Sieve>(&steps)?;
            offers::<MultiGen>(&steps)?;
        }
    }
}
