//! Pages of an owner without a file: the memory of a guest, of a process, of a buffer pool.
//!
//! They are zero until they are written, count for the bound as pages of files do, and are on lists of their own.
//! Without a store they stay in memory until they are [discarded](AnonRegion::discard) or the region goes
//! (`unevictable`); with one they go there when a page has to go, and come back when they are asked for.
//!
//! Which kind gives a page up, where a list has both: anonymous pages count
//! [`swappiness`](crate::cache::Options::swappiness) of 200, pages of files the rest, times how many there are. Unlike Linux, which
//! weighs in how many pages of each kind were found used of late, that is all.
//!
//! ```
//! use zonal_cache::{Cache, MemoryStore, TwoLists};
//! let cache = Cache::<TwoLists>::builder().memory(1 << 20).open()?;
//! let snapshot = cache.open(MemoryStore::from(vec![7; 1 << 20]))?;
//! // What a guest has changed of it.
//! let changed = cache.anon(1 << 20)?;
//! let page = snapshot.pin(8192..12_288)?;
//! changed.write_at(page.as_slice().unwrap(), 8192)?;
//! changed.write_at(&[1], 8200)?;
//! let seen = changed.pin(8192..12_288)?;
//! assert_eq!((seen.as_slice().unwrap()[8], changed.resident()), (1, 1));
//! assert_eq!(cache.lists()[0].unevictable, 1);
//! drop(seen);
//! changed.discard(0..1 << 20)?;
//! assert_eq!(cache.lists()[0].unevictable, 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use crate::cache::PageCache;
use crate::error::CacheError;
use crate::file::{Advice, File, pages_of};
use crate::frames::PAGE;
use crate::inner::Setup;
use crate::pinned::Pinned;
use crate::store::{Store, StoreError};
use crate::table::Kind;
use alloc::boxed::Box;
use core::fmt;
use core::ops::Range;

/// Where pages go that have nowhere to go.
struct Nowhere;

impl Store for Nowhere {
    fn len(&self) -> Result<u64, StoreError> {
        Ok(0)
    }
    fn read(&self, _: u64, pages: &mut [&mut [u8]]) -> Result<u64, StoreError> {
        pages.iter_mut().for_each(|page| page.fill(0));
        Ok((pages.len() * PAGE) as u64)
    }
    fn write(&self, _: u64, _: &[&[u8]]) -> Result<(), StoreError> {
        Err(StoreError::NO_SPACE)
    }
    fn set_len(&self, _: u64) -> Result<(), StoreError> {
        Ok(())
    }
    fn zero(&self, _: u64, _: u64) -> Result<(), StoreError> {
        Ok(())
    }
    fn flush(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

/// Anonymous pages of one owner: see the [module](self). Dropped, they go.
pub struct AnonRegion<S: Setup> {
    file: File<S>,
}

impl<S: Setup> PageCache<S> {
    /// A region of `len` bytes, all zero, whose pages stay in memory once they were touched. O(1).
    ///
    /// # Errors
    /// [`CacheError::OffsetTooLarge`] beyond 2⁶³ − 1 bytes.
    pub fn anon(&self, len: u64) -> Result<AnonRegion<S>, CacheError> {
        self.region(len, Kind::Kept, Box::new(Nowhere))
    }

    /// The same with a store, to which pages go when there has to be room. What the store has is not the region's,
    /// and is cut before the first page goes there; one whose length is [fixed](Store::has_fixed_len) is made zero then, as far as the
    /// region goes. What is dirty of the region counts as of a file.
    ///
    /// # Errors
    /// As [`anon`](Self::anon); [`CacheError::FixedLen`] if the store is shorter and cannot grow, or [`CacheError::Store`] if
    /// it cannot say.
    pub fn anon_on(&self, len: u64, store: impl Store) -> Result<AnonRegion<S>, CacheError> {
        if store.has_fixed_len() {
            let (asked, len) = (len, store.len()?);
            if asked > len {
                return Err(CacheError::FixedLen { asked, len });
            }
        }
        self.region(len, Kind::Anon, Box::new(store))
    }

    fn region(
        &self,
        len: u64,
        kind: Kind,
        store: Box<dyn Store>,
    ) -> Result<AnonRegion<S>, CacheError> {
        File::<S>::checked_end(len, 0)?;
        let file = File::with(self.core().clone(), store, kind, (len, 0));
        // Nothing to read ahead: what was not touched is zero.
        file.advise(Advice::Random);
        Ok(AnonRegion { file })
    }
}

impl<S: Setup> AnonRegion<S> {
    /// Bytes in it.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.file.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn within(&self, offset: u64, len: u64) -> Result<(), CacheError> {
        let end = offset.checked_add(len).filter(|&end| end <= self.len());
        end.map(drop).ok_or(CacheError::BeyondRegion { offset, len: self.len() })
    }

    /// Copies bytes from `offset` on into `into`.
    ///
    /// # Errors
    /// [`CacheError::BeyondRegion`]; [`CacheError::NoRoom`] where pages were not touched, or have gone to the store, and
    /// there is no room for them; [`CacheError::Store`] as the store said.
    pub fn read_at(&self, into: &mut [u8], offset: u64) -> Result<(), CacheError> {
        self.within(offset, into.len() as u64)?;
        let mut done = 0;
        while done < into.len() {
            done += self.file.read_at(&mut into[done..], offset + done as u64)?;
        }
        Ok(())
    }

    /// Writes `data` at `offset`. A page that is pinned is copied, as of a [file](File::write_at).
    ///
    /// # Errors
    /// As [`read_at`](Self::read_at); a part may have been written then.
    pub fn write_at(&self, data: &[u8], offset: u64) -> Result<(), CacheError> {
        self.within(offset, data.len() as u64)?;
        let mut done = 0;
        while done < data.len() {
            done += self.file.write_at(&data[done..], offset + done as u64)?;
        }
        Ok(())
    }

    /// The bytes of a range without a copy, as they are now, until this is dropped.
    ///
    /// # Errors
    /// As [`read_at`](Self::read_at).
    pub fn pin(&self, range: Range<u64>) -> Result<Pinned<'_, S>, CacheError> {
        let len = range.end.checked_sub(range.start);
        let error = CacheError::BeyondRegion { offset: range.start, len: self.len() };
        self.within(range.start, len.ok_or(error)?)?;
        self.file.pin(range)
    }

    /// Makes a range zero; whole pages of it leave memory, those that are pinned when they are not.
    ///
    /// # Errors
    /// As [`read_at`](Self::read_at), for the pages in part at its ends; any part may be zero then.
    pub fn discard(&self, range: Range<u64>) -> Result<(), CacheError> {
        let len = range.end.saturating_sub(range.start);
        self.within(range.start, len)?;
        self.file.zero_range(range)
    }

    /// Pages of it that are in memory. O(pages), or O(cache) if that is less.
    #[must_use]
    pub fn resident(&self) -> usize {
        let (core, mut count) = (&*self.file.core, 0);
        let (first, end) = pages_of(0, self.len());
        self.file.file.each_cached(core, first..end, |hold| {
            count += 1;
            core.release_one(core.table.leave_hold(hold));
        });
        count
    }
}

impl<S: Setup> Drop for AnonRegion<S> {
    fn drop(&mut self) {
        // Not written to its store for the last time, as a file that is closed would be.
        self.file.clone().unlink();
    }
}

impl<S: Setup> fmt::Debug for AnonRegion<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnonRegion").field("len", &self.len()).finish_non_exhaustive()
    }
}
