//! Pages that leave without being written: the file becomes shorter, goes, or is closed.

use crate::error::CacheError;
use crate::file::{File, FileCore, pages_of};
use crate::frames::{Frames, PAGE};
use crate::inner::{Core, Setup};
use crate::slots::Slots;
use crate::store::{Purpose, StoreError, zero_first};
use crate::table::{Claimed, Hold, Key, Kind, TakenOut};
use alloc::vec::Vec;
use core::ops::Range;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use zonal::page_state::PageState;
use zonal::platform::{AtomicWord, Lock};

/// Which pages leave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Which {
    /// Whatever they hold.
    All,
    /// Those that are not dirty, also if they are being read.
    Unwritten,
    /// Those that are clean and at rest.
    Clean,
}

impl Which {
    /// Takes a page out of the index, if it is such a one; whether it was.
    fn detach<S: Setup>(self, core: &Core<S>, hold: &Hold) -> bool {
        match self {
            Self::All => {
                core.detach(hold);
                true
            }
            Self::Unwritten => core.table.detach_unwritten(hold),
            Self::Clean => core.table.detach_clean(hold),
        }
    }
}

impl<S: Setup> FileCore<S> {
    /// Takes pages of a range out of the index; their slots, and how many went. Those that others are at are free when the
    /// last of these has left. Costs as [`each_cached`](Self::each_cached).
    pub(crate) fn take_out(
        &self,
        core: &Core<S>,
        range: Range<u64>,
        which: Which,
    ) -> (Vec<Claimed>, u64) {
        self.take_out_before(core, range.start..range.end.min(self.reach.get()), which)
    }

    /// The same, however far pages reach by now.
    fn take_out_before(
        &self,
        core: &Core<S>,
        range: Range<u64>,
        which: Which,
    ) -> (Vec<Claimed>, u64) {
        let (mut free, mut count) = (Vec::new(), 0);
        self.each_key(core, range, |key| match core.table.take_out(key, which == Which::All) {
            TakenOut::Claimed(claimed, dirty) => {
                if dirty {
                    let frame = core.table.frame_of(&claimed);
                    core.frames.count(frame, PageState::Dirty, -1);
                }
                free.push(claimed);
                count += 1;
            }
            TakenOut::Kept => {
                let Some(hold) = core.table.hold(key) else { return };
                count += u64::from(which.detach(core, &hold));
                free.extend(core.table.leave_hold(hold));
            }
            TakenOut::NotThere => {}
        });
        (free, count)
    }

    /// Shows `visit` a hold of each page of a range that is in memory. Costs the pages of the range, as far as any was
    /// ever in memory, or the slots of the cache, whichever are fewer.
    pub(crate) fn each_cached(
        &self,
        core: &Core<S>,
        range: Range<u64>,
        mut visit: impl FnMut(Hold),
    ) {
        let range = range.start..range.end.min(self.reach.get());
        self.each_key(core, range, |key| {
            if let Some(hold) = core.table.hold(key) {
                visit(hold);
            }
        });
    }

    fn each_key(&self, core: &Core<S>, range: Range<u64>, mut look: impl FnMut(Key)) {
        let slots = core.table.len() as u64;
        if range.end.saturating_sub(range.start) <= slots {
            range.for_each(|index| look(self.key(index)));
            return;
        }
        for slot in 0..core.table.len() {
            let key = core.table.peek(slot);
            let is_here = |key: &Key| key.file == self.number && range.contains(&key.index);
            key.filter(is_here).into_iter().for_each(&mut look);
        }
    }

    /// Takes pages out of the index, whatever they hold; the gates are closed. Their frames go back
    /// in one list.
    fn discard(&self, core: &Core<S>, range: Range<u64>) {
        self.take_dirty(core, (range.start, range.end));
        let is_rest = range.end == u64::MAX;
        // A file that is cut again and again costs the pages that came between, and not all that it ever had.
        let reach = if is_rest { self.reach.lower(range.start) } else { self.reach.get() };
        let before = range.start..range.end.min(reach);
        core.release(self.take_out_before(core, before, Which::All).0);
        self.state.with(|state| {
            let mut rest = state.unflushed.split_off(&range.start);
            if !is_rest {
                state.unflushed.append(&mut rest.split_off(&range.end));
            }
            if range == (0..u64::MAX) {
                state.forgotten = 0;
            }
        });
    }

    /// Takes pages out of the index that are not dirty, also those that are being read; the gates are closed.
    fn forget(&self, core: &Core<S>, (first, end): (u64, u64)) {
        core.release(self.take_out(core, first..end, Which::Unwritten).0);
    }

    /// The last handle has gone: what can be written is, and clean pages, which no handle can find any more,
    /// leave. A file that is not clean stays known.
    pub(crate) fn close(&self, core: &Core<S>) {
        let _alone = self.flush.close(&core.host);
        self.write_range(core, (0, u64::MAX), u64::MAX, Purpose::Behind);
        self.drop_clean(core);
    }

    /// Whether all could leave.
    pub(crate) fn drop_clean(&self, core: &Core<S>) -> bool {
        core.release(self.take_out(core, 0..u64::MAX, Which::Clean).0);
        let clean = !self.is_dirty();
        if clean {
            core.files.with(|files| files.remove(&self.number));
        }
        clean
    }

    /// A file without a handle leaves if all of it is written, and no thread is at it.
    pub(crate) fn close_if_clean(&self, core: &Core<S>) {
        if self.is_closed()
            && !self.is_dirty()
            && let Some(_alone) = self.flush.try_close(&core.host)
        {
            self.drop_clean(core);
        }
    }

    /// Whether no handle is left.
    pub(crate) fn is_closed(&self) -> bool {
        // Acquire: with the release of the last handle.
        self.handles.load(Acquire) == 0
    }

    /// Before the store gets bytes again: what it has from before the file was unlinked goes. The gate is closed.
    pub(crate) fn refresh(&self) -> Result<(), StoreError> {
        // Relaxed: the gate orders it.
        if self.stale.load(Relaxed) != 0 {
            if self.is_fixed {
                zero_first(&*self.store, self.len())?;
            } else {
                self.store.set_len(0)?;
            }
            self.stale.store(0, Relaxed);
        }
        Ok(())
    }

    /// Makes the store as long as the file is to be; what cannot be done leaves all as it was.
    fn set_stored(&self, len: u64) -> Result<(), StoreError> {
        self.refresh()?;
        let before = self.stored.load(Acquire);
        // Lowered first, so that a read that meets the new end does not take it for an error.
        self.stored.store(before.min(len), Release);
        let done = self.store.set_len(len);
        self.stored.store(if done.is_ok() { len } else { before }, Release);
        done
    }

    /// Whole pages of the store are zero from now on. The gates are closed.
    fn zero_stored(&self, range: Range<u64>) -> Result<(), StoreError> {
        let mut end = range.end;
        if self.kind() == Kind::File {
            // Pages that would have made the store longer are about to go.
            if self.stored.load(Acquire) < self.len() {
                self.set_stored(self.len())?;
            }
        } else {
            // A region is as long without its store, which is asked for nothing beyond what it was given.
            end = end.min(self.stored.load(Acquire));
        }
        if range.start < end { self.store.zero(range.start, end - range.start) } else { Ok(()) }
    }
}

impl<S: Setup> File<S> {
    /// Makes the file `len` bytes long, in the store too; new bytes are zero. Pages beyond leave memory
    /// in one list, without being written; readers that have pinned them keep them. The store is cut before this returns and
    /// before it is given pages that are dirty by now; that lasts after a [`sync`](Self::sync).
    ///
    /// # Errors
    /// [`CacheError::Store`] if the store cannot, [`CacheError::NoRoom`] if the page with the new end
    /// is pinned and there is no room for a copy, [`CacheError::OffsetTooLarge`], [`CacheError::FixedLen`] if it is to have
    /// another length and the store [cannot](crate::store::Store::has_fixed_len). Then all is as before.
    pub fn truncate(&self, len: u64) -> Result<(), CacheError> {
        Self::checked_end(len, 0)?;
        let (core, file) = (&*self.core, &*self.file);
        if file.is_fixed {
            let (asked, len) = (len, file.len());
            return if asked == len { Ok(()) } else { Err(CacheError::FixedLen { asked, len }) };
        }
        let tail = (len % PAGE as u64) as usize;
        let _no_writer = file.size.close(&core.host);
        let shrinks = len < file.len();
        // Before anything changes.
        let mut spare = if shrinks && tail > 0 { self.spare()? } else { Slots::none(core) };
        let _no_writeback = file.flush.close(&core.host);
        if let Err(error) = file.set_stored(len) {
            // Pages that were read in between have zeroes that are not the file's.
            file.forget(core, pages_of(len, file.len()));
            return Err(error.into());
        }
        file.len.store(len, Release);
        if shrinks {
            file.discard(core, pages_of(0, len).1..u64::MAX);
            if tail > 0 {
                self.zero_tail(len / PAGE as u64, tail, &mut spare);
            }
        }
        Ok(())
    }

    /// Makes the bytes of a range zero, as far as the file goes, which stays as long as it is. Whole pages leave
    /// memory without being written, and the store gets zeroes or a hole for them at once; of pages in
    /// part the rest stays, and they are dirty. Readers that have pinned pages keep them. All of it lasts after a
    /// [`sync`](Self::sync).
    ///
    /// # Errors
    /// [`CacheError::Store`] if the store cannot, or cannot give the rest of a page;
    /// [`CacheError::NoRoom`]. Then any part of the range may be zero, and nothing else has changed.
    pub fn zero_range(&self, range: Range<u64>) -> Result<(), CacheError> {
        let (core, file) = (&*self.core, &*self.file);
        let page = PAGE as u64;
        let _no_writer = file.size.close(&core.host);
        let (start, end) = (range.start, range.end.min(file.len()));
        if start >= end {
            return Ok(());
        }
        let mut spare = Slots::none(core);
        let (first, last) = (start.div_ceil(page), end / page);
        if first > last {
            return self.write_zeroes(start..end, &mut spare);
        }
        self.write_zeroes(start..first * page, &mut spare)?;
        self.write_zeroes(last * page..end, &mut spare)?;
        drop(spare);
        if first == last {
            return Ok(());
        }
        let _no_writeback = file.flush.close(&core.host);
        if let Err(error) = file.zero_stored(first * page..last * page) {
            // Pages that were read in between may have zeroes that are not the file's.
            file.forget(core, (first, last));
            return Err(error.into());
        }
        file.discard(core, first..last);
        // They are in no memory from which they could be written again.
        file.state.with(|state| state.forgotten += last - first);
        Ok(())
    }

    /// The file goes: its pages leave memory in one list, without being written. Other handles see an empty
    /// file. The store is left as it is, and cut to nothing before something is written to it again.
    ///
    /// Where the store's length is [fixed](crate::store::Store::has_fixed_len) the file cannot be empty: other handles see what
    /// the store has, of what was written and not yet synced any part.
    pub fn unlink(self) {
        let (core, file) = (&*self.core, &*self.file);
        let _no_writer = file.size.close(&core.host);
        let _no_writeback = file.flush.close(&core.host);
        if !file.is_fixed {
            file.len.store(0, Release);
            file.stored.store(0, Release);
            file.stale.store(1, Relaxed);
        }
        file.discard(core, 0..u64::MAX);
    }
}
