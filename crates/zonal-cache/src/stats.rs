//! What has happened, in numbers.

use core::sync::atomic::Ordering::Relaxed;
use zonal::platform::{AtomicWord, Platform};

pub(crate) struct Counter<P: Platform>(P::Word);

impl<P: Platform> Counter<P> {
    fn new() -> Self {
        Self(AtomicWord::new(0))
    }
    pub(crate) fn add(&self, count: u64) {
        // Relaxed: it orders nothing.
        let _ = self.0.fetch_add(count, Relaxed);
    }
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

macro_rules! counters {
    ($($(#[$doc:meta])+ $name:ident)+) => {
        pub(crate) struct Counters<P: Platform> {
            $(pub(crate) $name: Counter<P>,)+
        }

        impl<P: Platform> Counters<P> {
            pub(crate) fn new() -> Self {
                Self { $($name: Counter::new(),)+ }
            }
            pub(crate) fn read(&self) -> Stats {
                Stats { $($name: self.$name.get(),)+ ..Stats::default() }
            }
        }

        /// What a cache has done since it was made, and has now: see
        /// [`PageCache::stats`](crate::PageCache::stats). Hits are not counted: a counter that all
        /// readers share would cost more than the hit.
        ///
        /// ```
        /// let cache = zonal_cache::Cache::<zonal_cache::S3Fifo>::builder().memory(1 << 20).open()?;
        /// assert_eq!((cache.stats().bound, cache.stats().used), (256, 0));
        /// # Ok::<(), zonal_cache::threads::OpenError>(())
        /// ```
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        #[non_exhaustive]
        pub struct Stats {
            /// Pages that there may be.
            pub bound: usize,
            /// Pages that there are.
            pub used: usize,
            /// Pages of these that are to be written back.
            pub dirty: u64,
            $($(#[$doc])+ pub $name: u64,)+
        }
    };
}

counters! {
    /// Pages read from stores.
    read
    /// Requests to stores to read.
    reads
    /// Pages written to stores.
    written
    /// Requests to stores to write.
    writes
    /// Pages that were read before they were asked for.
    ahead
    /// Pages that went to make room, for a page of this cache.
    evicted
    /// Pages that went because other users of the frames needed some.
    reclaimed
    /// Times that reclaim came from the middle of a request of another user (direct reclaim).
    direct
    /// Nanoseconds that it took there.
    direct_nanos
    /// Times that frames were asked for where they come from, of which one may have given several.
    asked
    /// Frames given back to where they came from.
    freed
    /// Pages that were copied because they were to be written and were pinned.
    copied
}
