//! The cache: a bound on memory, and the files that share it.

use crate::error::CacheError;
use crate::file::File;
use crate::frames::{Frames, PAGE};
use crate::held::{ListStats, MOST_SWAPPINESS};
use crate::inner::{Core, Limits, Setup};
use crate::stats::Stats;
use crate::store::Store;
use crate::writeback::dirty;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

/// Pages that a cache needs at least.
pub const LEAST_PAGES: usize = 16;

/// How a cache is to be.
///
/// ```
/// use zonal_cache::cache::Options;
/// let options = Options { pages: 1000, ..Options::default() };
/// assert_eq!(options.dirty_percent, 40);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// Pages that there may be: the bound.
    pub pages: usize,
    /// The largest bound that may be set later; at least `pages`. What a page needs beside its frame,
    /// 120 to 190 bytes, is set aside for all of these.
    pub most_pages: usize,
    /// The longest readahead window, in pages; 0 for none, 4096 at most. Where requests are longer, it is as long as they are.
    pub window: u32,
    /// How many pages of a window may be one [block](crate::evict::Evict::insert_block) of a list, rounded down to a power of two, 64
    /// at most; fewer than 4 for none. `None`: 64, or a 32nd of the pages that a list may have if that is less.
    pub block: Option<u32>,
    /// Of 100 pages how many may be dirty before a writer has to write back; more are 100.
    pub dirty_percent: u64,
    /// Of 100 pages how many may be dirty before the host's writer is woken, if it has one; more are 100. From there on
    /// writers are slowed, the more the nearer they come to the limit above.
    pub background_percent: u64,
    /// Of 200 how much anonymous pages that have a store count for beside those of files when a page has to
    /// go; 0: while no page of a file can. Of 60 a list with as many of both gives up three anonymous pages of ten.
    pub swappiness: u8,
}

impl Default for Options {
    /// 64 MiB, windows of 256 KiB, 40 of 100 pages, 20 for the host's writer, swappiness 60.
    fn default() -> Self {
        Self {
            pages: 16_384,
            most_pages: 0,
            window: 64,
            block: None,
            dirty_percent: 40,
            background_percent: 20,
            swappiness: 60,
        }
    }
}

/// A page cache: see the [`crate`]. A clone is the same cache.
pub struct PageCache<S: Setup> {
    core: Arc<Core<S>>,
}

impl<S: Setup> PageCache<S> {
    /// A cache on a host, with frames from where they come from.
    ///
    /// # Errors
    /// [`CacheError::BoundTooSmall`] for fewer than [`LEAST_PAGES`], [`CacheError::BoundTooLarge`] for
    /// more than 2³¹.
    pub fn with_parts(
        host: S::Host,
        frames: S::Frames,
        options: Options,
    ) -> Result<Self, CacheError> {
        let Options {
            pages,
            most_pages,
            window,
            block,
            dirty_percent,
            background_percent,
            swappiness,
        } = options;
        let most = most_pages.max(pages);
        check(pages, 1 << 31)?;
        check(most, 1 << 31)?;
        let swappiness = u64::from(swappiness).min(MOST_SWAPPINESS);
        let window = window.min(4096);
        // Of 100.
        let [dirty_percent, background_percent] =
            [dirty_percent, background_percent].map(|percent| percent.min(100));
        let limits = Limits { window, block, dirty_percent, background_percent, swappiness };
        let core =
            Arc::new_cyclic(|this| Core::new(this.clone(), host, frames, (pages, most), limits));
        core.place();
        Ok(Self { core })
    }

    /// A file of the cache, whose bytes are in `store`. Open each store once: two files of one store
    /// know nothing of each other. More handles are clones.
    ///
    /// # Errors
    /// [`CacheError::Store`] if the store does not know its length.
    pub fn open(&self, store: impl Store) -> Result<File<S>, CacheError> {
        File::open(self.core.clone(), Box::new(store))
    }

    /// Sets the bound, in pages. More is at once; for less, pages go, dirty ones after they were
    /// written back, and memory is given back to the system as far as whole blocks of it are free.
    ///
    /// # Errors
    /// [`CacheError::InUse`] if pages that would have to go cannot: the bound is as low as it came.
    /// [`CacheError::BoundTooSmall`] and [`CacheError::BoundTooLarge`] change nothing.
    pub fn set_bound(&self, pages: usize) -> Result<(), CacheError> {
        check(pages, self.core.table.len())?;
        let less = pages < self.core.bound().0;
        let done = self.core.set_bound(pages);
        if less {
            self.core.frames.give_back();
        }
        done
    }

    /// What has happened, and what there is. Takes the lock of each list for a moment.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let ((bound, used), refaults) = (self.core.bound(), self.core.lists.refaults());
        Stats { bound, used, dirty: dirty(&self.core), refaults, ..self.core.counters.read() }
    }

    /// The lists of the cache, one for each [lock](crate::lru). Takes each lock for a moment.
    #[must_use]
    pub fn lists(&self) -> Vec<ListStats> {
        self.core.lists.stats()
    }

    /// Pages that wait in batches to be listed. O(slots).
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.core.waiting()
    }

    /// Has the stores keep what was written of files that have a handle, and of those that had pages which could not
    /// be written when their last handle went. Of other files that were closed the cache knows nothing any more:
    /// their stores have all that was written, and were not flushed. To have it last, call [`File::sync`]
    /// before the last handle goes.
    ///
    /// Of several files it has one after the other synced by a [spare](crate::host::Host::spare) thread of the host, and by one more each
    /// time that none is over for 20 ms: it waits for all of them, but a store that hangs holds up its own file alone, and one that
    /// fails or panics none. It does what is left itself where the host has no more such threads.
    ///
    /// # Errors
    /// [`CacheError::Store`], that of the file which was opened last. The handles of that file are told too. What that leaves undone:
    /// [`File::sync`].
    pub fn sync(&self) -> Result<(), CacheError> {
        self.core.sync_all().map_or(Ok(()), |error| Err(error.into()))
    }

    /// Writes back what has been dirty for `age`, and then, while more is dirty than the
    /// [background limit](Options::background_percent), of each file in turn. The host's writer
    /// does this; without one, a thread may call it now and then. Each file's pages are a [job](crate::host::Host::defer) for
    /// the host, or the caller's where the host does not begin it. A file whose store takes longer than a second is not waited
    /// for, and is let be until that is over. Errors are told by the next [`sync`](File::sync) of each handle.
    pub fn write_behind(&self, age: Duration) {
        self.core.write_behind(u64::try_from(age.as_nanos()).unwrap_or(u64::MAX));
    }

    pub(crate) const fn core(&self) -> &Arc<Core<S>> {
        &self.core
    }

    #[cfg(feature = "std")]
    pub(crate) const fn from_core(core: Arc<Core<S>>) -> Self {
        Self { core }
    }

    /// Where frames come from.
    #[must_use]
    pub fn frames(&self) -> &S::Frames {
        &self.core.frames
    }

    /// Bytes of memory that pages may take.
    #[must_use]
    pub fn bound_bytes(&self) -> usize {
        self.core.bound().0 * PAGE
    }
}

pub(crate) fn check(pages: usize, most: usize) -> Result<(), CacheError> {
    if pages < LEAST_PAGES {
        return Err(CacheError::BoundTooSmall { asked: pages, least: LEAST_PAGES });
    }
    if pages > most {
        return Err(CacheError::BoundTooLarge { asked: pages, most });
    }
    Ok(())
}

impl<S: Setup> Clone for PageCache<S> {
    fn clone(&self) -> Self {
        Self { core: self.core.clone() }
    }
}

impl<S: Setup> fmt::Debug for PageCache<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PageCache").field("stats", &self.stats()).finish_non_exhaustive()
    }
}
