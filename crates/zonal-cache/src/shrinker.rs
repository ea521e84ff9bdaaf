//! Has a cache give frames back when other users of its arena are short of them.
//!
//! An arena asks its [`Pager`] from the slow path of a request that cannot be served, on the thread of the
//! request and without a lock of its own. That thread may be inside the cache, as one that wants a frame for
//! a page is: so the shrinker takes what can be had without waiting, which is clean pages that no thread has
//! pinned ([`PageCache::reclaim`]). Dirty ones go after the cache's writer has written them. A
//! [`Reclaimer`](crate::Reclaimer) does the same ahead of requests, where the arena has watermarks.
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
use crate::writer::Bell;
use parking_lot::Mutex;
use std::fmt;
use std::sync::{Arc, Weak};
use zonal::ZoneId;
use zonal::slow_path::Shortage;
use zonal_host::Pager;
use zonal_host::pager::FreeFrames;

/// How often what a request asks for doubles, if it comes again.
const MOST_SHIFT: u32 = 6;

/// A cache of any kind.
trait Reclaim: Send + Sync {
    fn reclaim(&self, most: usize) -> usize;
    fn reclaim_zone(&self, zone: usize, most: usize) -> usize;
}

impl<S: Setup> Reclaim for Core<S> {
    fn reclaim(&self, most: usize) -> usize {
        Core::reclaim(self, most)
    }
    fn reclaim_zone(&self, zone: usize, most: usize) -> usize {
        Core::reclaim_zone(self, zone, most)
    }
}

type Caches = Arc<[Weak<dyn Reclaim>]>;

/// The pager of an arena whose frames caches have: see the [module](self).
pub struct Shrinker {
    /// Held to copy or change the pointer: never while memory is asked for.
    caches: Mutex<Caches>,
    /// Held by who adds a cache, and by no other.
    attaching: Mutex<()>,
    /// Rung when a zone is below its low mark; heard by the [`Reclaimer`](crate::Reclaimer), if there is one.
    pub(crate) bell: Arc<Bell>,
}

impl Shrinker {
    /// Of no cache yet.
    #[must_use]
    pub fn new() -> Self {
        let caches = Mutex::new(Arc::new([]) as Caches);
        Self { caches, attaching: Mutex::new(()), bell: Arc::default() }
    }

    /// Has each cache give its share of `wanted`, by `ask`; where they have none, each as much as it has.
    fn share(&self, wanted: usize, ask: impl Fn(&dyn Reclaim, usize) -> usize) -> usize {
        let caches = self.caches.lock().clone();
        let all = |most: usize| {
            let there = caches.iter().filter_map(Weak::upgrade);
            there.map(|cache| ask(&*cache, most)).sum::<usize>()
        };
        let got = all(wanted.div_ceil(caches.len().max(1)));
        if got == 0 && caches.len() > 1 { all(wanted) } else { got }
    }

    /// Has pages of a zone go, without being asked by a request. How many.
    pub(crate) fn reclaim_zone(&self, zone: usize, most: usize) -> usize {
        self.share(most, |cache, most| cache.reclaim_zone(zone, most))
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
    /// A cluster of frames at least, so that the next requests need not come here; twice as much each time that one
    /// request comes again.
    fn reclaim(&self, _: &dyn FreeFrames, shortage: &Shortage) -> u64 {
        // Other requests may take what goes, and the zone may be far below its mark.
        let cluster = CLUSTER << shortage.attempt.min(MOST_SHIFT);
        let wanted = cluster.max(shortage.request.order().frames() as usize);
        self.share(wanted, |cache, most| cache.reclaim(most)) as u64
    }

    fn wake_reclaim(&self, _: ZoneId) {
        self.bell.ring();
    }
}
