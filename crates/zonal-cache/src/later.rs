//! Loads that no thread waits for yet: on their way in the store, or in their file's queue.
//!
//! A thread of the host takes loads out of a queue, the oldest first. It may come late, or never: it may be in a store that hangs.
//! So who needs a page of a load that is still in the queue takes it out and reads it; it waits for no store but its file's.

use crate::file::FileCore;
use crate::frames::PAGE;
use crate::host::Host;
use crate::inner::Setup;
use crate::load::{Load, fill_rest, read_on};
use crate::store::{Later, LaterRead, StoreError};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::Acquire;
use zonal::platform::{AtomicWord, Lock};

/// A load for later; the store had `before` bytes when it began.
pub(crate) struct LoadLater<S: Setup> {
    load: Load<S>,
    before: u64,
}

impl<S: Setup> Load<S> {
    /// Fills the pages without waiting: the store begins to read, or another thread does.
    pub(crate) fn fill_later(self) {
        // Acquire: with the release of who wrote to the store.
        let before = self.file.stored.load(Acquire);
        if self.first * PAGE as u64 >= before {
            return self.fill_ahead();
        }
        let file = self.file.clone();
        let later = LaterRead(Box::new(LoadLater { load: self, before }));
        if let Err(later) = file.store.read_later(later) {
            later.0.queue();
        }
    }
}

impl<S: Setup> LoadLater<S> {
    fn has(&self, index: u64) -> bool {
        index.checked_sub(self.load.first).is_some_and(|at| at < self.load.len() as u64)
    }

    /// Has the store read it, and waits.
    fn read(mut self) {
        let (core, file) = (self.load.core.clone(), self.load.file.clone());
        let place = (self.load.first * PAGE as u64, self.before);
        let got = read_on(&core, &file, place, &mut self.load.pages(0..self.load.len()));
        if let Ok(got) = got {
            self.filled(got);
        }
    }

    /// The store had `got` bytes of it.
    fn filled(mut self, got: u64) {
        let (core, file) = (self.load.core.clone(), self.load.file.clone());
        let place = (self.load.first * PAGE as u64, self.before);
        let mut pages = self.load.pages(0..self.load.len());
        let done = fill_rest(&core, &file, place, got, &mut pages);
        drop(pages);
        if done.is_ok() {
            self.load.filled_ahead();
        }
    }
}

impl<S: Setup> Later for LoadLater<S> {
    fn offset(&self) -> u64 {
        self.load.first * PAGE as u64
    }

    fn pieces(&mut self) -> Vec<&mut [u8]> {
        self.load.pages(0..self.load.len())
    }

    fn end(self: Box<Self>, got: Result<u64, StoreError>) {
        let offset = self.offset();
        let enough = self.before.min(offset + (self.load.len() * PAGE) as u64) - offset;
        match got {
            Ok(got) if got >= enough => self.filled(got),
            // Not by this thread: others wait for what it has to say next.
            _ => self.queue(),
        }
    }

    fn queue(self: Box<Self>) {
        let (core, file) = (self.load.core.clone(), self.load.file.clone());
        file.later.with(|queue| queue.push_back(*self));
        let next = file.clone();
        if core.host.defer(Box::new(move || next.read_queued())).is_err() {
            // No thread comes for it. It is dropped outside of the lock: its pages leave the index again.
            let refused = file.later.with(VecDeque::pop_back);
            drop(refused);
        }
    }
}

impl<S: Setup> FileCore<S> {
    /// Reads the load that has been in the queue longest, if there is one.
    fn read_queued(&self) {
        if let Some(later) = self.later.with(VecDeque::pop_front) {
            later.read();
        }
    }

    /// The calling thread is about to wait for a page: reads it, if it is in the queue.
    pub(crate) fn read_if_queued(&self, index: u64) {
        let found = self.later.with(|queue| {
            let at = queue.iter().position(|later| later.has(index))?;
            queue.remove(at)
        });
        if let Some(later) = found {
            later.read();
        }
    }
}
