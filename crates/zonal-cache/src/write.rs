//! Writing into pages.

use crate::error::CacheError;
use crate::file::File;
use crate::frames::{Frames, PAGE, bytes, bytes_mut, span, write};
use crate::inner::Setup;
use crate::load::fill_pages;
use crate::slots::Slots;
use crate::table::{Kind, Settled, Writer};
use core::ops::Range;
use zonal::page_state::PageState;
use zonal::platform::Platform;

/// How often a writer looks whether readers have left, before it copies the page. They copy a page
/// meanwhile, or have pinned it.
const LOOKS: u32 = 4;
/// Bytes that are written before dirty pages are looked at again: what a writer may be beyond their limit by.
const PIECE: usize = 64 * PAGE;

impl<S: Setup> File<S> {
    /// Writes `data` at `offset`, into memory; how much. The file becomes longer if need be. It reaches
    /// the store when it is written back: [`sync`](Self::sync) says that it has. Pages that are
    /// written in part are read first.
    ///
    /// A page that others have pinned is copied: they keep what they see.
    ///
    /// Where the store's length is [fixed](crate::store::Store::has_fixed_len), what begins before its end is written up to
    /// there, as `write(2)` does to a block device.
    ///
    /// From the [dirty limit](crate::cache::Options::dirty_percent) on, a writer writes pages of
    /// its file back, each time that it has written 64, until it is below; before, where the host has a writer, it may be
    /// slowed. What goes wrong there the next [`sync`](Self::sync) says. A handle that is [less throttled](Self::throttle_less) has a quarter
    /// more of both limits.
    ///
    /// # Errors
    /// [`CacheError`] where nothing was written: as [`read_at`](Self::read_at) for the first page,
    /// [`CacheError::OffsetTooLarge`], [`CacheError::BeyondStore`]. Behind that, less than all was written.
    pub fn write_at(&self, data: &[u8], offset: u64) -> Result<usize, CacheError> {
        Self::checked_end(offset, data.len())?;
        let data = self.that_fits(data, offset)?;
        let (mut done, mut put) = (0, 0_usize);
        {
            // For all of it: the file does not become shorter between two pieces.
            let _inside = self.file.size.share(&self.core.host);
            for piece in data.chunks(PIECE) {
                if done > 0 {
                    self.throttle(put.div_ceil(PAGE) as u64);
                }
                put = match self.write_piece(piece, offset + done as u64) {
                    Err(error) if done == 0 => return Err(error),
                    put => put.unwrap_or(0),
                };
                done += put;
                if put < piece.len() {
                    break;
                }
            }
        }
        self.throttle(put.div_ceil(PAGE) as u64);
        Ok(done)
    }

    /// What of `data` the store can be given: a page beyond the end of one that cannot grow could never be written back.
    fn that_fits<'d>(&self, data: &'d [u8], offset: u64) -> Result<&'d [u8], CacheError> {
        if !self.file.is_fixed || data.is_empty() {
            return Ok(data);
        }
        let len = self.len();
        match len.saturating_sub(offset) {
            0 => Err(CacheError::BeyondStore { offset, len }),
            room => Ok(&data[..room.min(data.len() as u64) as usize]),
        }
    }

    /// Writes a part of what there is to write; how much, or why nothing.
    fn write_piece(&self, data: &[u8], offset: u64) -> Result<usize, CacheError> {
        let mut spare = Slots::none(&self.core);
        let mut done = 0;
        while done < data.len() {
            let at = offset + done as u64;
            let (index, from) = (at / PAGE as u64, (at % PAGE as u64) as usize);
            let part = (PAGE - from).min(data.len() - done);
            match self.write_page(index, from, &data[done..done + part], &mut spare) {
                Ok(()) => done += part,
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    /// Writes zeroes into a range within a page.
    pub(crate) fn write_zeroes(
        &self,
        range: Range<u64>,
        spare: &mut Slots<'_, S>,
    ) -> Result<(), CacheError> {
        if range.is_empty() {
            return Ok(());
        }
        let (index, from) = (range.start / PAGE as u64, (range.start % PAGE as u64) as usize);
        let zeroes = [0; PAGE];
        self.write_page(index, from, &zeroes[..(range.end - range.start) as usize], spare)
    }

    fn write_page(
        &self,
        index: u64,
        from: usize,
        data: &[u8],
        spare: &mut Slots<'_, S>,
    ) -> Result<(), CacheError> {
        let core = &*self.core;
        let key = self.file.key(index);
        loop {
            if let Some(hold) = core.table.hold(key) {
                // A load that failed is no answer to a write: it tries itself.
                self.file.read_if_queued(index);
                let settled = match core.table.write(&core.host, hold) {
                    Settled::Failed(_, free) => Settled::Gone(free),
                    other => other,
                };
                let Some(writer) = core.settled(settled) else { continue };
                let writer = Writing::new(self, writer?);
                let Some(writer) = writer.alone(spare) else {
                    // Never waited for with a page held.
                    spare.fill(self.file.number, self.is_less_throttled())?;
                    continue;
                };
                writer.put(index, from, data);
                return Ok(());
            }
            spare.fill(self.file.number, self.is_less_throttled())?;
            let Some(claimed) = spare.pop() else { continue };
            self.file.reach.extend(index + 1);
            match core.table.insert(claimed, key) {
                Ok(writer) => {
                    let mut writer = Writing::new(self, writer);
                    writer.is_new = true;
                    core.listed(writer.writer.as_slice());
                    writer.prepare(index, from..from + data.len())?;
                    writer.put(index, from, data);
                    return Ok(());
                }
                Err(claimed) => spare.push(claimed),
            }
        }
    }
}

/// A page that this thread has for itself, until dropped; by a panic too.
struct Writing<'a, S: Setup> {
    handle: &'a File<S>,
    writer: Option<Writer>,
    /// It has no bytes yet.
    is_new: bool,
    /// It took the place of a page that was dirty.
    was_dirty: bool,
}

impl<'a, S: Setup> Writing<'a, S> {
    const fn new(handle: &'a File<S>, writer: Writer) -> Self {
        Self { handle, writer: Some(writer), is_new: false, was_dirty: false }
    }

    /// The same when no reader sees what is written: they leave soon, or a copy takes the page's place.
    /// `None` if a slot is needed for it.
    fn alone(mut self, spare: &mut Slots<'_, S>) -> Option<Self> {
        let core = &*self.handle.core;
        let writer = self.writer.as_ref()?;
        for _ in 0..LOOKS {
            if !core.table.has_readers(writer) {
                return Some(self);
            }
            <S::Host as Platform>::relax();
        }
        let claimed = spare.pop()?;
        let (from, to) = (core.table.frame_of(writer), core.table.frame_of(&claimed));
        // SAFETY: readers may be there, and a writer is this thread alone.
        let source = unsafe { bytes(&core.frames, from) };
        // SAFETY: the slot is in no use and this thread's.
        let target = unsafe { bytes_mut(&core.frames, to) };
        target.copy_from_slice(source);
        // Where the policy panics, the slot is the spare one.
        spare.push(claimed);
        core.moved(writer, spare.last()?);
        let claimed = spare.pop()?;
        let old = self.writer.take()?;
        match core.table.replace(&core.host, old, claimed) {
            Ok((writer, was_dirty, free)) => {
                core.counters.copied.add(1);
                if was_dirty {
                    core.frames.count(from, PageState::Dirty, -1);
                }
                core.release_one(free);
                self.writer = Some(writer);
                // The copy is so when it is finished, whatever else is done with it.
                self.was_dirty = was_dirty;
                if was_dirty {
                    // Who writes back may have taken it off the list and find the old page gone.
                    let index = core.table.key_of(self.writer.as_ref()?).index;
                    self.handle.file.set_dirty(core, index);
                }
                Some(self)
            }
            Err((writer, claimed)) => {
                self.writer = Some(writer);
                spare.push(claimed);
                None
            }
        }
    }

    /// Fills a page that is new, as far as `part` does not: from the store, or with zeroes.
    fn prepare(&mut self, index: u64, part: Range<usize>) -> Result<(), CacheError> {
        let Some(writer) = &self.writer else { return Ok(()) };
        let core = &*self.handle.core;
        let frame = core.table.frame_of(writer);
        // SAFETY: this thread has the page for itself.
        let page = unsafe { bytes_mut(&core.frames, frame) };
        // Read with the page held: a writer that made the file longer in this page is done with it.
        let valid = self.handle.len().saturating_sub(index * PAGE as u64).min(PAGE as u64) as usize;
        if part.start == 0 && part.end >= valid {
            page[span::<S::Frames>(part.end..PAGE)].fill(0);
            return Ok(());
        }
        if valid == 0 {
            page.fill(0);
            return Ok(());
        }
        let filled = fill_pages(core, &self.handle.file, index * PAGE as u64, &mut [page]);
        if let Err(error) = filled
            && let Some(writer) = self.writer.take()
        {
            core.fail(writer, error);
        }
        Ok(filled?)
    }

    /// Puts the bytes in.
    fn put(mut self, index: u64, from: usize, data: &[u8]) {
        let Some(writer) = self.writer.take() else { return };
        let (core, file) = (&*self.handle.core, &*self.handle.file);
        let frame = core.table.frame_of(&writer);
        // SAFETY: this thread has the page for itself.
        let page = unsafe { bytes_mut(&core.frames, frame) };
        write::<S::Frames>(&mut page[span::<S::Frames>(from..from + data.len())], data);
        file.grow(index * PAGE as u64 + (from + data.len()) as u64);
        // What has no store to go to is not dirty: no policy has it, and it is detached with its region alone.
        let dirty = file.kind() != Kind::Kept;
        if dirty {
            // On the list before it is dirty, so that no dirty page is ever on none.
            file.set_dirty(core, index);
        }
        core.finish(writer, dirty);
    }
}

impl<S: Setup> Drop for Writing<'_, S> {
    fn drop(&mut self) {
        let Some(writer) = self.writer.take() else { return };
        let core = &*self.handle.core;
        if self.is_new {
            core.release_one(core.table.abandon(&core.host, writer));
        } else {
            core.finish(writer, self.was_dirty);
        }
    }
}

impl<S: Setup> File<S> {
    /// A page of which bytes from `from` on are zero now, without being dirty for that; `spare` has a slot.
    pub(crate) fn zero_tail(&self, index: u64, from: usize, spare: &mut Slots<'_, S>) {
        let core = &*self.core;
        while let Some(hold) = core.table.hold(self.file.key(index)) {
            self.file.read_if_queued(index);
            let settled = match core.table.write(&core.host, hold) {
                Settled::Failed(_, free) => Settled::Gone(free),
                other => other,
            };
            let Some(Ok(writer)) = core.settled(settled) else { continue };
            let Some(mut writing) = Writing::new(self, writer).alone(spare) else { continue };
            let Some(writer) = writing.writer.take() else { return };
            let frame = core.table.frame_of(&writer);
            // SAFETY: this thread has the page for itself.
            let page = unsafe { bytes_mut(&core.frames, frame) };
            page[span::<S::Frames>(from..PAGE)].fill(0);
            return core.finish(writer, writing.was_dirty);
        }
    }

    /// Slots for a page that is to be zeroed in part, which are taken before anything is changed.
    pub(crate) fn spare(&self) -> Result<Slots<'_, S>, CacheError> {
        let mut spare = Slots::none(&self.core);
        spare.fill(self.file.number, self.is_less_throttled())?;
        Ok(spare)
    }
}
