//! Dirty pages on their way: neighbours are one write, and a store that has several at once is given several.

use crate::file::{FileCore, grow};
use crate::frames::{Frames, PAGE, bytes, span};
use crate::host::Host;
use crate::inner::{Core, Setup};
use crate::store::{Purpose, StoreError, Write};
use crate::table::Writeback;
use alloc::vec::Vec;
use core::mem;
use core::ops::Range;
use zonal::page_state::PageState;
use zonal::platform::Lock;

/// Pages in a row. Those that are left when this is dropped are dirty again.
struct Run<'a, S: Setup> {
    core: &'a Core<S>,
    file: &'a FileCore<S>,
    first: u64,
    pages: Vec<Writeback>,
}

impl<S: Setup> Run<'_, S> {
    /// The index after the last.
    fn end(&self) -> u64 {
        self.first + self.pages.len() as u64
    }

    /// Where some of them are in the store, and their bytes: no more than the file has, as a page that is written back is not
    /// made shorter meanwhile.
    fn bytes(&self, which: Range<usize>) -> (u64, Vec<&[u8]>) {
        let (core, file) = (self.core, self.file);
        let first = (self.first + which.start as u64) * PAGE as u64;
        let len = file.len().saturating_sub(first);
        let page = |page: &Writeback| {
            // SAFETY: who writes back is a reader: no thread writes to the page.
            unsafe { bytes(&core.frames, core.table.frame_of(page)) }
        };
        let mut pages: Vec<&[u8]> = self.pages[which].iter().map(page).collect();
        let bytes = len.min((pages.len() * PAGE) as u64);
        if bytes == 0 {
            return (first, Vec::new());
        }
        if let Some(last) = pages.last_mut() {
            *last = &last[span::<S::Frames>(0..(bytes - 1) as usize % PAGE + 1)];
        }
        (first, pages)
    }

    /// Writes one of them.
    fn write(&self, at: usize, purpose: Purpose) -> Result<(), StoreError> {
        let (offset, pages) = self.bytes(at..at + 1);
        if pages.is_empty() {
            return Ok(());
        }
        self.file.refresh()?;
        let said = purpose.write(&*self.file.store, offset, &pages);
        self.core.said(self.file, &Write { offset, pages: &pages }, said)
    }

    /// Ends them as the store said of the whole; where it could not, each is tried by itself. How many were written, and the
    /// last error.
    fn finish(
        mut self,
        whole: Result<(), StoreError>,
        purpose: Purpose,
    ) -> (usize, Option<StoreError>) {
        let count = self.pages.len();
        let results: Vec<Result<(), StoreError>> = if whole.is_ok() || count == 1 {
            (0..count).map(|_| whole).collect()
        } else {
            (0..count).map(|at| self.write(at, purpose)).collect()
        };
        let well = results.iter().filter(|result| result.is_ok()).count();
        let first = self.first;
        let unflushed = self.file.state.with(|state| {
            let written = results.iter().enumerate().filter(|(_, result)| result.is_ok());
            state.unflushed.extend(written.map(|(at, _)| first + at as u64));
            state.unflushed.len()
        });
        let pages = mem::take(&mut self.pages).into_iter().enumerate();
        for ((at, page), result) in pages.zip(&results) {
            if result.is_err() {
                // On the list before it is dirty. If it has been replaced, the newer one is on it.
                self.file.set_dirty(self.core, first + at as u64);
            }
            self.over(page, result.is_ok());
        }
        self.file.arrived(first..first + count as u64);
        if unflushed > 2 * self.core.table.len() {
            self.file.forget_uncached(self.core);
        }
        (well, results.into_iter().filter_map(Result::err).next_back())
    }

    fn over(&self, page: Writeback, well: bool) {
        let core = self.core;
        let frame = core.table.frame_of(&page);
        core.frames.count(frame, PageState::Writeback, -1);
        let (became, free) = core.table.written(page, well);
        if became {
            core.frames.count(frame, PageState::Dirty, 1);
        }
        core.release_one(free);
    }
}

impl<S: Setup> Core<S> {
    /// Counts what the store said of a write.
    fn said(
        &self,
        file: &FileCore<S>,
        write: &Write<'_>,
        said: Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        self.counters.writes.add(1);
        said.inspect_err(|_| self.counters.write_errors.add(1))?;
        self.counters.written.add(write.pages.len() as u64);
        let bytes: usize = write.pages.iter().map(|page| page.len()).sum();
        grow(&file.stored, write.offset + bytes as u64);
        Ok(())
    }
}

impl<S: Setup> Drop for Run<'_, S> {
    fn drop(&mut self) {
        let pages = self.first..self.end();
        for (index, page) in pages.clone().zip(mem::take(&mut self.pages)) {
            self.file.put_back(self.core, index);
            self.over(page, false);
        }
        if !pages.is_empty() {
            self.file.arrived(pages);
        }
    }
}

/// Runs that the store is given together.
pub(crate) struct Runs<'a, S: Setup> {
    core: &'a Core<S>,
    file: &'a FileCore<S>,
    purpose: Purpose,
    runs: Vec<Run<'a, S>>,
    most: usize,
}

impl<'a, S: Setup> Runs<'a, S> {
    pub(crate) fn new(core: &'a Core<S>, file: &'a FileCore<S>, purpose: Purpose) -> Self {
        let most = file.store.writes_at_once().max(1);
        Self { core, file, purpose, runs: Vec::new(), most }
    }

    fn goes_on(&self, index: u64) -> bool {
        self.runs.last().is_some_and(|run| run.end() == index)
    }

    /// Whether a page can be among them before the others are written.
    pub(crate) fn has_room_for(&self, index: u64) -> bool {
        self.runs.len() < self.most || self.goes_on(index)
    }

    pub(crate) fn push(&mut self, index: u64, page: Writeback) {
        if !self.goes_on(index) {
            let (core, file) = (self.core, self.file);
            self.runs.push(Run { core, file, first: index, pages: Vec::new() });
        }
        if let Some(run) = self.runs.last_mut() {
            run.pages.push(page);
        }
    }

    /// Writes them all, and is empty then. How many were written, and the last error.
    pub(crate) fn finish(&mut self) -> (usize, Option<StoreError>) {
        let runs = mem::take(&mut self.runs);
        let (mut well, mut last) = (0, None);
        for (whole, run) in self.write(&runs).into_iter().zip(runs) {
            let (count, error) = run.finish(whole, self.purpose);
            well += count;
            last = error.or(last);
        }
        (well, last)
    }

    /// What the store says of each.
    fn write(&self, runs: &[Run<'_, S>]) -> Vec<Result<(), StoreError>> {
        let (core, start) = (self.core, self.core.host.now());
        let parts: Vec<(u64, Vec<&[u8]>)> =
            runs.iter().map(|run| run.bytes(0..run.pages.len())).collect();
        // Of a file that has become shorter nothing may be left to write.
        let asked: Vec<usize> = (0..runs.len()).filter(|&at| !parts[at].1.is_empty()).collect();
        let mut said = Vec::new();
        said.resize(runs.len(), Ok(()));
        if asked.is_empty() {
            return said;
        }
        let writes: Vec<Write<'_>> =
            asked.iter().map(|&at| Write { offset: parts[at].0, pages: &parts[at].1 }).collect();
        if let Err(error) = self.file.refresh() {
            asked.iter().for_each(|&at| said[at] = Err(error));
            return said;
        }
        // What it does not speak of is not written.
        asked.iter().for_each(|&at| said[at] = Err(StoreError::IO));
        let mut ended = |number: usize, result| {
            said[asked[number]] = core.said(self.file, &writes[number], result);
        };
        self.file.store.write_each(&writes, self.purpose, &mut ended);
        if said.iter().all(Result::is_ok) {
            let pages: usize = runs.iter().map(|run| run.pages.len()).sum();
            core.timed(core.host.now().saturating_sub(start) / pages as u64);
        }
        said
    }
}
