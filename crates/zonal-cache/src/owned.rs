//! Lists of pages that are in no cache, because their owners find them by other means: the memory of processes, which
//! is in their page tables.
//!
//! They are the lists that a cache has for its [anonymous pages](crate::region), by themselves: the same
//! [policy](crate::evict), a lock for each, links that all lists share. The lock is a type, so that "none"
//! is one too. Which list a page is on the caller knows, and in which batches lists change.
//!
//! ```
//! use zonal_cache::TwoLists;
//! use zonal_cache::owned::OwnedLists;
//! use zonal_cache::table::SlotId;
//! use zonal_host::park_lock::ParkLock;
//! // Two nodes, eight frames.
//! let lists = OwnedLists::<TwoLists, ParkLock<_>>::new(2, 8);
//! lists.add(0, [SlotId(1), SlotId(2)]);
//! lists.add(1, [SlotId(5)]);
//! lists.remove(0, [SlotId(1)]);
//! let counts = lists.stats();
//! assert_eq!((counts[0].anon, counts[0].holds, counts[1].anon), (1, 2, 1));
//! ```

use crate::evict::Evict;
use crate::held::ListStats;
use crate::table::SlotId;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use zonal::platform::Lock;

/// What the lock of a list guards.
#[derive(Debug)]
pub struct OnList<E> {
    policy: E,
    pages: usize,
    holds: u64,
}

/// Lists of owners' pages: see the [module](self). `K` is the lock around each.
pub struct OwnedLists<E, K> {
    locks: Box<[K]>,
    beside: E,
}

impl<E: Evict, K: Lock<OnList<E>>> OwnedLists<E, K> {
    /// `count` lists, one at least, that share `slots` slots. A slot is on one of them, or on none.
    #[must_use]
    pub fn new(count: usize, slots: usize) -> Self {
        let count = count.max(1);
        let first = E::new(slots);
        let policy = || first.beside(slots, slots.div_ceil(count));
        let one = || K::new(OnList { policy: policy(), pages: 0, holds: 0 });
        let locks = (0..count).map(|_| one()).collect();
        Self { locks, beside: first }
    }

    /// The locks with what they guard, for a host that is to know where they are.
    #[must_use]
    pub const fn locks(&self) -> &[K] {
        &self.locks
    }

    /// The policy over the same slots, with no page on its lists: for what it can say of a slot without a lock.
    #[must_use]
    pub const fn policy(&self) -> &E {
        &self.beside
    }

    /// Puts pages on a list, in one hold of its lock. They are on none. O(pages).
    ///
    /// # Panics
    /// If there is no such list.
    pub fn add(&self, list: usize, pages: impl IntoIterator<Item = SlotId>) {
        self.locks[list].with(|held| {
            held.holds += 1;
            for id in pages {
                held.pages += 1;
                held.policy.insert(id, u64::from(id.0));
            }
        });
    }

    /// Takes pages off the list that they are on, in one hold of its lock. O(pages).
    ///
    /// # Panics
    /// If there is no such list.
    pub fn remove(&self, list: usize, pages: impl IntoIterator<Item = SlotId>) {
        self.locks[list].with(|held| {
            held.holds += 1;
            for id in pages {
                held.pages = held.pages.saturating_sub(1);
                held.policy.remove(id);
            }
        });
    }

    /// What is on each. Takes each lock for a moment.
    #[must_use]
    pub fn stats(&self) -> Vec<ListStats> {
        let of = |held: &mut OnList<E>| ListStats {
            file: 0,
            anon: held.pages,
            unevictable: 0,
            blocks: 0,
            holds: held.holds,
            refaults: held.policy.refaults(),
        };
        self.locks.iter().map(|lock| lock.with(of)).collect()
    }
}

impl<E, K> fmt::Debug for OwnedLists<E, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnedLists").field("lists", &self.locks.len()).finish_non_exhaustive()
    }
}
