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
            /// Pages that came back soon after they had gone to make room: what Linux counts as
            /// `workingset_refault`. As far as the policy [knows](crate::evict::Evict::refaults): of those that go
            /// from its active list `TwoLists` does not, nor `S3Fifo` of those from its main queue, and `Sieve`
            /// of none.
            pub refaults: u64,
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
    /// Requests to read that failed by an error of a store, or because it came short of what it had said it has.
    /// Pages that were asked for together, in vain, are asked for again one by one. What was read ahead so, and by
    /// no thread missed, counts too. They are none of `reads`.
    read_errors
    /// Requests to write that failed: some of `writes`. Their pages are dirty still.
    write_errors
    /// Times that a store could not flush.
    flush_errors
    /// Pages that were written, and had left memory when their store could not flush them: of all files what
    /// [`File::lost_pages`](crate::File::lost_pages) says of one.
    lost
    /// Pages that were copied because they were to be written and were pinned.
    copied
}
