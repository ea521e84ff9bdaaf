//! Pages that are read from the store: in the index already, so that others wait for them, and not
//! there yet.

use crate::evict::UNUSED;
use crate::file::FileCore;
use crate::frames::{PAGE, bytes_mut, span};
use crate::inner::{Core, Setup};
use crate::slots::Slots;
use crate::store::StoreError;
use crate::table::{Reader, Token, Writer};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::mem;
use core::ops::Range;
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use zonal::platform::{AtomicByte, AtomicWord};

/// Pages in a row, to be filled. What is not filled when this is dropped leaves the index again.
pub(crate) struct Load<S: Setup> {
    pub(crate) core: Arc<Core<S>>,
    pub(crate) file: Arc<FileCore<S>>,
    pub(crate) first: u64,
    writers: Vec<Writer>,
    marker: Option<u64>,
}

impl<S: Setup> Load<S> {
    /// Puts pages from `first` on into the index, as many as there are slots, up to the first that is
    /// there already. `marker` is a page of these to be marked.
    pub(crate) fn begin(
        core: &Arc<Core<S>>,
        file: &Arc<FileCore<S>>,
        first: u64,
        slots: &mut Slots<'_, S>,
        marker: Option<u64>,
    ) -> Self {
        file.reach.begin_load(first + slots.len() as u64);
        let (core, file) = (core.clone(), file.clone());
        let mut load = Self { core, file, first, writers: Vec::new(), marker };
        while let Some(claimed) = slots.pop() {
            let key = load.file.key(first + load.writers.len() as u64);
            match load.core.table.insert(claimed, key) {
                Ok(writer) => load.writers.push(writer),
                Err(claimed) => {
                    slots.push(claimed);
                    break;
                }
            }
        }
        // If the policy panics, the pages are given up.
        load.core.listed(&load.writers);
        load
    }

    pub(crate) fn len(&self) -> usize {
        self.writers.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.writers.is_empty()
    }

    /// Reads them; a look at the first, or what the store said of that; `None` if it left the index meanwhile and is to
    /// be looked for anew. Where the store cannot read all,
    /// each is tried by itself, so that an error is that of its page alone.
    pub(crate) fn fill(mut self) -> Result<Option<Reader>, StoreError> {
        let pages = self.writers.len();
        let whole = self.read(0..pages);
        let results: Vec<Result<(), StoreError>> = if whole.is_ok() || pages == 1 {
            (0..pages).map(|_| whole).collect()
        } else {
            (0..pages).map(|at| self.read(at..at + 1)).collect()
        };
        let mut first = None;
        for (at, (writer, result)) in
            mem::take(&mut self.writers).into_iter().zip(results).enumerate()
        {
            match result {
                Ok(()) => {
                    let reader = self.filled(at, writer);
                    if at == 0 {
                        first = Some(Ok(Some(reader)));
                    } else {
                        self.core.release_one(self.core.table.leave(reader));
                    }
                }
                Err(StoreError::SHRUNK) if self.core.table.is_detached(&writer) => {
                    // The file was made shorter, and longer again, while the store was asked: that the bytes were not there
                    // is an error of no store.
                    let free = self.core.table.abandon(&self.core.host, writer);
                    self.core.release_one(free);
                    first = first.or(Some(Ok(None)));
                }
                Err(error) => {
                    self.core.fail(writer, error);
                    first = first.or(Some(Err(error)));
                }
            }
        }
        first.unwrap_or(Err(StoreError::IO))
    }

    /// The same for pages that no thread has asked for: what cannot be read is not there.
    pub(crate) fn fill_ahead(mut self) {
        let pages = self.writers.len();
        if self.read(0..pages).is_ok() {
            self.filled_ahead();
        }
    }

    pub(crate) fn filled_ahead(mut self) {
        let pages = self.writers.len();
        // Whether the first was asked for is not known: it counts as the others.
        self.core.counters.ahead.add(pages as u64);
        for (at, writer) in mem::take(&mut self.writers).into_iter().enumerate() {
            let reader = self.filled(at + 1, writer);
            self.core.release_one(self.core.table.leave(reader));
        }
    }

    /// Page `at` is there. Those after the first came before they were asked for.
    fn filled(&self, at: usize, writer: Writer) -> Reader {
        let key = self.core.table.key_of(&writer);
        let marker = self.marker == Some(key.index);
        if at > 0 {
            self.core.table.mark(writer.id()).store(UNUSED, Relaxed);
        }
        self.core.table.filled(&self.core.host, writer, marker)
    }

    /// The bytes of some of the pages.
    pub(crate) fn pages(&mut self, which: Range<usize>) -> Vec<&mut [u8]> {
        let (core, writers) = (&*self.core, &self.writers[which]);
        let page = |writer: &Writer| {
            // SAFETY: who has a writer has the frame's bytes alone, and each is in the list once.
            unsafe { bytes_mut(&core.frames, core.table.frame_of(writer)) }
        };
        writers.iter().map(page).collect()
    }

    /// Reads some of the pages.
    fn read(&mut self, which: Range<usize>) -> Result<(), StoreError> {
        let offset = (self.first + which.start as u64) * PAGE as u64;
        let (core, file) = (self.core.clone(), self.file.clone());
        fill_pages(&core, &file, offset, &mut self.pages(which))
    }
}

impl<S: Setup> Core<S> {
    /// A page could not be read: those who wait for it are told.
    pub(crate) fn fail(&self, writer: Writer, error: StoreError) {
        // The others are counted where the store says so; this one only if it is no race with a change of the length.
        if error == StoreError::SHRUNK {
            self.counters.read_errors.add(1);
        }
        self.release_one(self.table.fail(&self.host, writer, error.code()));
    }
}

/// Reads pages from the store; what the file does not have is zero.
pub(crate) fn fill_pages<S: Setup>(
    core: &Core<S>,
    file: &FileCore<S>,
    offset: u64,
    pages: &mut [&mut [u8]],
) -> Result<(), StoreError> {
    // Acquire: with the release of who wrote to the store.
    let before = file.stored.load(Acquire);
    let got = if offset < before { read_on(core, file, (offset, before), pages)? } else { 0 };
    fill_rest(core, file, (offset, before), got, pages)
}

/// Asks the store, which had `before` bytes, for pages until it has given what of them it has; how many bytes. One that
/// stops before is asked again from the page on in which it did, as pieces are whole pages, until it goes on no more.
pub(crate) fn read_on<S: Setup>(
    core: &Core<S>,
    file: &FileCore<S>,
    (offset, before): (u64, u64),
    pages: &mut [&mut [u8]],
) -> Result<u64, StoreError> {
    let end = before.min(offset + (pages.len() * PAGE) as u64);
    let mut got = 0;
    loop {
        let whole = got / PAGE as u64 * PAGE as u64;
        let more = file.store.read(offset + whole, &mut pages[got as usize / PAGE..]);
        let more = more.inspect_err(|_| core.counters.read_errors.add(1))?;
        if whole + more <= got {
            return Ok(got);
        }
        got = whole + more;
        if offset + got >= end {
            return Ok(got);
        }
        core.counters.reads.add(1);
    }
}

/// Fills what the store did not have: of it `got` bytes from `offset` on were there, and `before` all in all when
/// it was asked.
pub(crate) fn fill_rest<S: Setup>(
    core: &Core<S>,
    file: &FileCore<S>,
    (offset, before): (u64, u64),
    got: u64,
    pages: &mut [&mut [u8]],
) -> Result<(), StoreError> {
    let end = offset + (pages.len() * PAGE) as u64;
    // Otherwise it was not asked.
    if offset < before {
        core.counters.reads.add(1);
        core.counters.read.add(pages.len() as u64);
    }
    // The store may have become longer or shorter by this cache meanwhile; the bytes that it
    // had before and after must be there.
    let stored = before.min(file.stored.load(Acquire));
    if offset + got < stored.min(end) {
        return Err(StoreError::SHRUNK);
    }
    for (at, page) in pages.iter_mut().enumerate() {
        let has = got.saturating_sub((at * PAGE) as u64).min(PAGE as u64);
        page[span::<S::Frames>(has as usize..PAGE)].fill(0);
    }
    Ok(())
}

impl<S: Setup> Drop for Load<S> {
    fn drop(&mut self) {
        for writer in mem::take(&mut self.writers) {
            let free = self.core.table.abandon(&self.core.host, writer);
            self.core.release_one(free);
        }
        self.file.reach.load_is_over();
    }
}
