//! Dirty pages on their way to the store: in order, joined where they are neighbours.
//!
//! What is durable: after a [`sync`](File::sync) that went well, all that was written, truncated and zeroed by calls that
//! returned before it began. Before that, any page may be in the store as it was at any moment since,
//! or not be; pages reach it one by one, and a page in whole or, if the store tears writes, in part. Truncations, and zeroes
//! for whole pages, are in the store when their call returns, before pages that were dirty earlier, and last as pages do.

use crate::error::CacheError;
use crate::file::{File, FileCore, pages_of};
use crate::frames::Frames;
use crate::gate::Inside;
use crate::host::Host;
use crate::inner::{Core, Setup};
use crate::runs::Runs;
use crate::store::{Purpose, StoreError};
use crate::table::{Hold, Writeback, Writer};
use alloc::vec::Vec;
use core::mem;
use core::ops::Range;
use core::sync::atomic::Ordering::Relaxed;
use core::time::Duration;
use zonal::page_state::PageState;
use zonal::platform::{AtomicWord, Lock};

/// Pages that are on their way at once.
const BATCH: usize = 128;
/// Pages of a piece of work that others wait for.
pub(crate) const SOME: usize = 64;

/// Pages off the list that this thread is to write. Those that are left when this is dropped are on it again, as they
/// were.
struct Taken<'a, S: Setup> {
    core: &'a Core<S>,
    file: &'a FileCore<S>,
    pages: Vec<u64>,
    begun: usize,
}

impl<S: Setup> Drop for Taken<'_, S> {
    fn drop(&mut self) {
        for &index in &self.pages[self.begun..] {
            self.file.put_back(self.core, index);
            self.file.arrived(index..index + 1);
        }
    }
}

impl<S: Setup> Core<S> {
    /// A page took this many nanoseconds to be written.
    pub(crate) fn timed(&self, nanos: u64) {
        // Relaxed, here and where it is read: a hint, of which one that is lost is as good as any.
        let before = self.page_time.load(Relaxed);
        // What was before counts for half with each request.
        self.page_time.store(before.midpoint(nanos).max(1), Relaxed);
    }

    /// Ends a writer's part, and counts a page that became dirty.
    pub(crate) fn finish(&self, writer: Writer, dirty: bool) {
        let frame = self.table.frame_of(&writer);
        let (became, free) = self.table.finish(&self.host, writer, dirty);
        if became {
            self.frames.count(frame, PageState::Dirty, 1);
        }
        self.release_one(free);
    }

    /// Takes a page out of the index, whatever it holds.
    pub(crate) fn detach(&self, hold: &Hold) {
        if self.table.detach(hold) {
            self.frames.count(self.table.frame_of(hold), PageState::Dirty, -1);
        }
    }
}

impl<S: Setup> FileCore<S> {
    /// Comes in to write pages back, beside others that do; alone where the store has to be
    /// [refreshed](Self::refresh) first.
    pub(crate) fn enter<'a>(&'a self, core: &'a Core<S>) -> Inside<'a, S::Host> {
        let inside = self.flush.share(&core.host);
        // Relaxed: the gate orders it.
        if self.stale.load(Relaxed) == 0 {
            return inside;
        }
        drop(inside);
        self.flush.close(&core.host)
    }

    /// The same if it can be done at once.
    pub(crate) fn try_enter<'a>(&'a self, core: &'a Core<S>) -> Option<Inside<'a, S::Host>> {
        let inside = self.flush.try_share(&core.host)?;
        if self.stale.load(Relaxed) == 0 {
            return Some(inside);
        }
        drop(inside);
        self.flush.try_close(&core.host)
    }

    /// A page that was to be written is on the list again, as it was.
    pub(crate) fn put_back(&self, core: &Core<S>, index: u64) {
        let since = self.state.with(|state| state.moving.get(&index).copied());
        self.set_dirty_since(core, index, since.unwrap_or(0));
    }

    /// Pages are no more on their way: after they have been marked so, lest two threads write one.
    pub(crate) fn arrived(&self, pages: Range<u64>) {
        self.state.with(|state| {
            for index in pages {
                state.moving.remove(&index);
            }
        });
    }

    /// Writes pages back that were [taken](Self::take_to_write); inside the gate. How many, and the last error, which
    /// is told to the handles too.
    pub(crate) fn write_back(
        &self,
        core: &Core<S>,
        pages: Vec<u64>,
        purpose: Purpose,
    ) -> (usize, Option<StoreError>) {
        let (mut well, mut last) = (0, None);
        let mut taken = Taken { core, file: self, pages, begun: 0 };
        let mut runs = Runs::new(core, self, purpose);
        let mut over = |runs: &mut Runs<'_, S>| {
            let (count, error) = runs.finish();
            well += count;
            last = error.or(last);
        };
        for at in 0..taken.pages.len() {
            let index = taken.pages[at];
            if !runs.has_room_for(index) {
                over(&mut runs);
            }
            match self.start_page(core, index) {
                Some(page) => runs.push(index, page),
                None => self.arrived(index..index + 1),
            }
            taken.begun = at + 1;
        }
        over(&mut runs);
        if let Some(error) = last {
            self.tell(error);
        }
        (well, last)
    }

    fn start_page(&self, core: &Core<S>, index: u64) -> Option<Writeback> {
        // A page that was replaced by a copy is looked for anew.
        loop {
            let hold = core.table.hold(self.key(index))?;
            match core.table.start_writeback(&core.host, hold) {
                Ok(page) => {
                    let frame = core.table.frame_of(&page);
                    core.frames.count(frame, PageState::Dirty, -1);
                    core.frames.count(frame, PageState::Writeback, 1);
                    return Some(page);
                }
                Err((gone, free)) => {
                    core.release_one(free);
                    if !gone {
                        return None;
                    }
                }
            }
        }
    }

    /// The handles are told of an error by their next sync.
    fn tell(&self, error: StoreError) {
        self.state.with(|state| {
            state.errors += 1;
            state.error = Some(error);
        });
    }

    /// Writes some pages back, from `index` on or, if there are none, from the first. How many; `None` if
    /// other threads are at them.
    pub(crate) fn write_some(&self, core: &Core<S>, index: u64) -> Option<usize> {
        let _inside = self.try_enter(core)?;
        let mut pages = self.take_to_write(core, (index, u64::MAX), SOME, u64::MAX);
        if pages.is_empty() {
            pages = self.take_to_write(core, (0, index), SOME, u64::MAX);
        }
        if pages.is_empty() && self.state.with(|state| !state.moving.is_empty()) {
            return None;
        }
        Some(self.write_back(core, pages, Purpose::Behind).0)
    }

    /// Writes pages of `first..end` back that are dirty since `before` at least, and that no other thread writes; inside
    /// the gate. How many.
    pub(crate) fn write_range(
        &self,
        core: &Core<S>,
        (mut first, end): (u64, u64),
        before: u64,
        purpose: Purpose,
    ) -> usize {
        let mut count = 0;
        loop {
            let pages = self.take_to_write(core, (first, end), BATCH, before);
            let Some(last) = pages.last() else { return count };
            // Each page once, however busy the writers are.
            first = last + 1;
            count += self.write_back(core, pages, purpose).0;
        }
    }

    /// Has the store keep what was written; the gate is closed. If it cannot, pages that are still in
    /// memory are dirty again, and the others are counted.
    fn flush(&self, core: &Core<S>) {
        let (unflushed, mut lost) = self
            .state
            .with(|state| (mem::take(&mut state.unflushed), mem::take(&mut state.forgotten)));
        let Err(error) = self.store.flush() else { return };
        core.counters.flush_errors.add(1);
        self.tell(error);
        for index in unflushed {
            let Some(hold) = core.table.hold(self.key(index)) else {
                lost += 1;
                continue;
            };
            // Since ever: a sync that begins meanwhile, and knows of no error, is to write it again.
            self.set_dirty_since(core, index, 0);
            // One that was dirty is on the list already.
            if core.table.redirty(&hold) {
                core.frames.count(core.table.frame_of(&hold), PageState::Dirty, 1);
            }
            core.release_one(core.table.leave_hold(hold));
        }
        core.counters.lost.add(lost);
        self.state.with(|state| state.lost += lost);
    }

    /// Takes pages that have left memory off the list of those that a flush that fails makes dirty
    /// again; inside the gate. At most as many are left as there are frames, and so a program that
    /// never syncs has a short list, and each page costs O(1) of this.
    pub(crate) fn forget_uncached(&self, core: &Core<S>) {
        // Outside of the lock. Who flushes, and would have to find them, is outside of the gate.
        let mut unflushed = self.state.with(|state| mem::take(&mut state.unflushed));
        let before = unflushed.len();
        unflushed.retain(|&index| match core.table.hold(self.key(index)) {
            Some(hold) => {
                core.release_one(core.table.leave_hold(hold));
                true
            }
            None => false,
        });
        // Others may have put theirs there meanwhile.
        self.state.with(|state| {
            state.forgotten += (before - unflushed.len()) as u64;
            state.unflushed.append(&mut unflushed);
        });
    }

    pub(crate) fn sync(&self, core: &Core<S>, range: (u64, u64)) {
        let _alone = self.write_all(core, range, Purpose::Sync);
        self.flush(core);
    }

    /// Writes back what is dirty in a range, and waits for what others write: nothing is on its way then.
    fn write_all<'a>(
        &'a self,
        core: &'a Core<S>,
        range: (u64, u64),
        purpose: Purpose,
    ) -> Inside<'a, S::Host> {
        let start = core.host.now();
        {
            let _inside = self.enter(core);
            self.write_range(core, range, start, purpose);
        }
        let alone = self.flush.close(&core.host);
        // What was on its way, and became dirty again before this began, is left.
        self.write_range(core, range, start, purpose);
        alone
    }

    /// Whether pages are dirty.
    pub(crate) fn is_dirty(&self) -> bool {
        self.state.with(|state| !state.dirty.is_empty())
    }
}

impl<S: Setup> File<S> {
    /// Has the store keep all that was written, truncated and zeroed in the file by calls that returned before. Until then
    /// any page may be in the store as it was at any moment since the last sync that went well, or not
    /// be; no order among pages is promised. Of a page in which the file ended meanwhile that holds for each part.
    ///
    /// [`truncate`](Self::truncate), and [`zero_range`](Self::zero_range) for whole pages, change the store before they
    /// return: before it is given pages that were dirty earlier, and it is never given what they took away. If only the process
    /// ends, the store is so, and may lack what was written before; if the power goes, that may be lost as a page may.
    ///
    /// # Errors
    /// [`CacheError::Store`] if a page could not be written or the store not flushed since this handle
    /// was told last, by this call or by another thread's. Each handle is told once. Pages that are in
    /// memory still are dirty, and the next call tries them again. Others, which had been written and
    /// had left it before the flush that failed, may be lost, and are [counted](Self::lost_pages): the next
    /// call says nothing of them.
    pub fn sync(&self) -> Result<(), CacheError> {
        self.sync_range(0..u64::MAX)
    }

    /// The same for the pages that a range of bytes touches, and for all else that the store was given.
    ///
    /// # Errors
    /// As [`sync`](Self::sync), also for an error of another range.
    pub fn sync_range(&self, range: Range<u64>) -> Result<(), CacheError> {
        self.file.sync(&self.core, pages_of(range.start, range.end));
        self.new_error().map_or(Ok(()), |error| Err(CacheError::Store(error)))
    }

    /// Writes pages back that have been dirty for `age`, without a flush; how many. For a thread that
    /// does this now and then, so that little is lost and less is left for `sync`. Errors are told by
    /// the next [`sync`](Self::sync).
    pub fn write_older(&self, age: Duration) -> usize {
        let core = &*self.core;
        let age = u64::try_from(age.as_nanos()).unwrap_or(u64::MAX);
        let Some(before) = core.host.now().checked_sub(age) else { return 0 };
        let _inside = self.file.enter(core);
        self.file.write_range(core, (0, u64::MAX), before, Purpose::Behind)
    }

    /// Has the store be given all that was written to the file by calls that returned before, without a flush, and waits for
    /// what other threads write: for who is to look at the store by other means.
    ///
    /// # Errors
    /// [`CacheError::Store`] if a page could not be written meanwhile, of this call or of another. It is dirty still,
    /// and the next [`sync`](Self::sync) tells it too.
    pub fn write_back(&self) -> Result<(), CacheError> {
        let errors = || self.file.state.with(|state| (state.errors, state.error));
        let (before, _) = errors();
        drop(self.file.write_all(&self.core, (0, u64::MAX), Purpose::Behind));
        match errors() {
            (after, Some(error)) if after != before => Err(CacheError::Store(error)),
            _ => Ok(()),
        }
    }

    /// Pages of the file that the store has not been given yet: dirty, or on their way.
    #[must_use]
    pub fn unwritten_pages(&self) -> usize {
        self.file.state.with(|state| {
            let moving = state.moving.keys().filter(|index| !state.dirty.contains_key(index));
            state.dirty.len() + moving.count()
        })
    }

    /// Pages of the file that are dirty, but for those on their way to the store.
    #[must_use]
    pub fn dirty_pages(&self) -> usize {
        self.file.state.with(|state| state.dirty.len())
    }

    /// Pages of the file that were written to its store, and were not in memory any more when it failed to
    /// flush them: what they had may be lost, whatever a later [`sync`](Self::sync) says. So are whole pages that were
    /// [zeroed](Self::zero_range). Since the file was opened, by all handles; a page may be counted once for each time it was
    /// written.
    #[must_use]
    pub fn lost_pages(&self) -> u64 {
        self.file.state.with(|state| state.lost)
    }

    /// Pages of the file that were written to its store and may not be durable yet: a flush that fails
    /// makes those that are cached dirty again. Some that are cached no longer are counted too; at
    /// most twice the frames of the cache, and what was written last, are.
    #[must_use]
    pub fn unflushed_pages(&self) -> usize {
        self.file.state.with(|state| state.unflushed.len())
    }
}

/// Pages of all files that are dirty.
pub(crate) fn dirty<S: Setup>(core: &Core<S>) -> u64 {
    core.dirty.load(Relaxed)
}
