//! What the cache asks of its host, beyond the [`Platform`] that the allocator knows: to wait and
//! to wake, the time, and another thread for what need not be done at once.
//!
//! ```
//! use zonal_cache::host::Host;
//! use zonal_cache::Threads;
//! let host = Threads::new();
//! let before = host.now();
//! host.wait(0, &|| false);
//! assert!(host.now() >= before);
//! ```

use crate::table::SlotId;
use alloc::boxed::Box;
use zonal::Pfn;
use zonal::platform::{Lock, Platform};

/// Work for another thread.
pub type Job = Box<dyn FnOnce() + Send>;

/// What a piece of a cache's memory is for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Part {
    /// The slots, one for each page that there may be, in the order of their numbers.
    Slots,
    /// The first slot of each chain of the index.
    Chains,
    /// The locks of the chains.
    ChainLocks,
    /// The lists, each with its lock.
    Lists,
    /// The batches of pages that wait to be listed, each with its lock.
    Batches,
    /// The rest: the free slots and their lock, the files and theirs, counts.
    Common,
}

/// A host of the cache. Of the platform it uses the atomics and the short wait.
///
/// # Safety
/// The platform's atomics are atomics: a load gives what was stored last, or before that as its ordering
/// allows, and of two exchanges one sees the other. [`Mutex`](Self::Mutex) lets one thread in at a time.
/// On that rests which frame a page has and who may write to it.
pub unsafe trait Host: Platform + Send + Sync + 'static {
    /// The lock. It is held for a few steps at a time and never during a call to the host, to a store or to the
    /// frames. That of a batch of pages may be taken outside that of a list, and that outside that of a chain of the
    /// index, no other inside another. With those of the index and of the free slots the heap is not asked either: it
    /// may be on the same frames, and have pages [go](crate::PageCache::reclaim) from inside.
    type Mutex<T: Send>: Lock<T> + Send + Sync;

    /// Whether the index guesses where a page is whose neighbours have slots and frames in a row, before it looks it up. The
    /// words that it guesses by are no atomics of the host, so one that counts accesses to memory leaves it off. The default
    /// does not guess.
    const GUESSES: bool = false;

    /// Waits while `pending` says so. The host asks at least once, and again after each
    /// [`wake`](Self::wake) of the same `place`; what makes `pending` say no has happened before
    /// that wake. `pending` does not wait and calls nothing of the host.
    fn wait(&self, place: usize, pending: &dyn Fn() -> bool);

    /// By how many counts, each on lines of its own, readers of a page that several CPUs look at count themselves in:
    /// about as many as there are CPUs, and no more than some, as who takes such a page away asks all. The default, 0, has them
    /// count at the page.
    fn lanes(&self) -> u32 {
        0
    }

    /// Has those who wait at `place` ask again. Others that wait elsewhere may ask too.
    fn wake(&self, place: usize);

    /// Nanoseconds since some moment; never less than before.
    fn now(&self) -> u64;

    /// More is dirty than the background limit: wakes the thread that calls
    /// [`write_behind`](crate::PageCache::write_behind), if there is one; whether there is, and it can be expected to get
    /// on. The default has none.
    fn nudge(&self) -> bool {
        false
    }

    /// Lets about this many nanoseconds pass: a writer is to be slower. The default waits shortly.
    fn pause(&self, _nanos: u64) {
        Self::relax();
    }

    /// Here is `part` of a cache, which stays there, before a second thread knows of the cache: for a host that
    /// counts accesses to memory. The default does not look.
    fn placed<T>(&self, _part: Part, _memory: &[T]) {}

    /// The page of this slot will be in that frame: for a host that counts accesses to a slot as those to what a
    /// kernel has of the frame. Not called for a hit. The default does not look.
    fn framed(&self, _slot: SlotId, _frame: Pfn) {}

    /// Does `job` soon, on another thread if there is one: pages are read ahead, or written back so that others have
    /// room, or because they are old. It may be in a store that hangs for as long as that does. The default does it at once.
    ///
    /// # Errors
    /// The job, if it cannot be taken now. It is not needed then: the caller drops it.
    fn defer(&self, job: Job) -> Result<(), Job> {
        job();
        Ok(())
    }

    /// Does `job` at once on a thread that does nothing else: those that do what is [deferred](Self::defer) come to none,
    /// and may all be in stores that hang. As this one may, the host has a bound on how many there are. The default has
    /// none.
    ///
    /// # Errors
    /// The job, if there is no thread for it. The caller does it.
    fn spare(&self, job: Job) -> Result<(), Job> {
        Err(job)
    }
}
