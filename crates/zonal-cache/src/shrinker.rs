//! Has a cache give frames back when other users of its arena are short of them.
//!
//! An arena asks its [`Pager`] from the slow path of a request that cannot be served, on the thread of the
//! request and without a lock of its own. That thread may be inside the cache, as one that wants a frame for
//! a page is: so the shrinker takes what can be had without waiting, which is clean pages that no thread has
//! pinned ([`PageCache::reclaim`]). Dirty ones go after the cache's writer has written them.
//!
//! ```
//! use std::sync::Arc;
//! use zonal::Request;
//! use zonal_cache::cache::Options;
//! use zonal_cache::threads::{OnThreads, Threads};
//! use zonal_cache::{ArenaFrames, MemoryStore, PageCache, Shrinker, TwoLists};
//! use zonal_host::Arena;
//! let shrinker = Arc::new(Shrinker::new());
//! let arena = Arc::new(Arena::builder().bytes(4 << 20).pager(shrinker.clone()).open()?);
//! let options = Options { pages: 1024, ..Options::default() };
//! let frames = ArenaFrames::new(arena.clone());
//! let cache = PageCache::<OnThreads<TwoLists>>::with_parts(Threads::new(), frames, options)?;
//! shrinker.attach(&cache);
//! let file = cache.open(MemoryStore::from(vec![1; 4 << 20]))?;
//! file.read_at(&mut vec![0; 4 << 20], 0)?;
//! let page = arena.alloc(&Request::frame())?;
//! assert!(cache.stats().used < 1024, "a page of the cache went for it");
//! # drop(page);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use crate::cache::PageCache;
use crate::inner::{Core, Setup};
use crate::reclaim::CLUSTER;
use parking_lot::Mutex;
use std::fmt;
use std::sync::{Arc, Weak};
use zonal::slow_path::Shortage;
use zonal_host::Pager;
use zonal_host::pager::FreeFrames;

/// A cache of any kind.
trait Reclaim: Send + Sync {
    fn reclaim(&self, most: usize) -> usize;
}

impl<S: Setup> Reclaim for Core<S> {
    fn reclaim(&self, most: usize) -> usize {
        Core::reclaim(self, most)
    }
}

type Caches = Arc<[Weak<dyn Reclaim>]>;

/// The pager of an arena whose frames caches have: see the [module](self).
pub struct Shrinker {
    /// Held to copy or change the pointer: never while memory is asked for.
    caches: Mutex<Caches>,
    /// Held by who adds a cache, and by no other.
    attaching: Mutex<()>,
}

impl Shrinker {
    /// Of no cache yet.
    #[must_use]
    pub fn new() -> Self {
        Self { caches: Mutex::new(Arc::new([])), attaching: Mutex::new(()) }
    }

    /// From now on `cache`, whose frames are the arena's, gives some back when they are needed. It is not
    /// kept by this. Of several caches each is asked for its share, in turn where one has too few.
    pub fn attach<S: Setup>(&self, cache: &PageCache<S>) {
        let new: Weak<dyn Reclaim> = Arc::downgrade(&(cache.core().clone() as Arc<dyn Reclaim>));
        let _alone = self.attaching.lock();
        let now = self.caches.lock().clone();
        let there = now.iter().filter(|cache| cache.strong_count() > 0).cloned();
        let caches: Caches = there.chain([new]).collect();
        let before = std::mem::replace(&mut *self.caches.lock(), caches);
        drop(before);
    }
}

impl Default for Shrinker {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Shrinker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shrinker").field("caches", &self.caches.lock().len()).finish()
    }
}

// SAFETY: it moves nothing.
unsafe impl Pager for Shrinker {
    /// A cluster of frames at least, so that the next requests need not come here.
    fn reclaim(&self, _: &dyn FreeFrames, shortage: &Shortage) -> u64 {
        let caches = self.caches.lock().clone();
        let wanted = CLUSTER.max(shortage.request.order().frames() as usize);
        let share = wanted.div_ceil(caches.len().max(1));
        let ask = |most: usize| {
            let there = caches.iter().filter_map(Weak::upgrade);
            there.map(|cache| cache.reclaim(most)).sum::<usize>()
        };
        let got = ask(share);
        (if got == 0 { ask(wanted) } else { got }) as u64
    }
}
