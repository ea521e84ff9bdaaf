//! A store that fails on demand, or reads less than it was asked for.
//!
//! ```
//! use zonal_cache::faulty_store::{FaultyStore, Operation};
//! use zonal_cache::store::{Store, StoreError};
//! use zonal_cache::MemoryStore;
//! let bad = |operation| matches!(operation, Operation::Write { .. }).then_some(StoreError::NO_SPACE);
//! let store = FaultyStore::new(MemoryStore::default(), bad);
//! assert_eq!(store.write(0, &[&[1; 4096]]), Err(StoreError::NO_SPACE));
//! assert_eq!(store.inner().bytes(), []);
//!
//! use zonal_cache::faulty_store::Outcome;
//! let store = FaultyStore::new(MemoryStore::from(vec![7; 8192]), |_| Outcome::Short(5000));
//! assert_eq!(store.read(0, &mut [&mut [0; 4096], &mut [0; 4096]]), Ok(5000));
//! ```

use crate::store::{Later, LaterRead, Purpose, Store, StoreError, Write};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

/// What a store is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// Bytes from an offset on.
    Read {
        /// The offset.
        offset: u64,
        /// How many.
        len: u64,
    },
    /// To have these changed.
    Write {
        /// The offset.
        offset: u64,
        /// How many.
        len: u64,
    },
    /// To have another length.
    SetLen {
        /// The length.
        len: u64,
    },
    /// To make what was written last.
    Flush,
}

/// How an operation ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// As the store behind says.
    Whole,
    /// With this error, and it has not happened.
    Fails(StoreError),
    /// A read with this many bytes at most, and what follows them has bytes that are none of the store's. Others as
    /// `Whole`.
    Short(u64),
}

impl From<Option<StoreError>> for Outcome {
    fn from(error: Option<StoreError>) -> Self {
        error.map_or(Self::Whole, Self::Fails)
    }
}

/// A store before which a function stands: what it says, an [`Outcome`] or an error, is what the operation ends with. It
/// may also wait, as a device does that hangs. What it refuses has not happened.
///
/// Of a read that the store behind took [for later](Store::read_later) it is asked when that has ended it, on the thread
/// that says so: if it waits there, so does all that the thread has to say of other reads. An error, or too few bytes, is
/// no reader's yet: the store is asked once more by [`Store::read`], and so is the function.
pub struct FaultyStore<T, F> {
    inner: T,
    /// Shared with the reads that are on their way.
    fault: Arc<F>,
}

/// What no store has.
const JUNK: u8 = 0xA5;

/// How many bytes `operation` may have at most.
fn ask<R: Into<Outcome>>(
    fault: &impl Fn(Operation) -> R,
    operation: Operation,
) -> Result<u64, StoreError> {
    match fault(operation).into() {
        Outcome::Whole => Ok(u64::MAX),
        Outcome::Fails(error) => Err(error),
        Outcome::Short(most) => Ok(most),
    }
}

/// Of `got` bytes that were read into `pages` those that count, which are `most` at most.
fn cut(pages: &mut [&mut [u8]], got: u64, most: u64) -> u64 {
    if got > most {
        let mut rest = most as usize;
        for page in pages {
            let from = rest.min(page.len());
            page[from..].fill(JUNK);
            rest -= from;
        }
    }
    got.min(most)
}

/// A read on its way in the store behind.
struct Faulty<F> {
    later: LaterRead,
    fault: Arc<F>,
}

impl<R: Into<Outcome>, F> Later for Faulty<F>
where
    F: Fn(Operation) -> R + Send + Sync + 'static,
{
    fn offset(&self) -> u64 {
        self.later.offset()
    }

    fn pieces(&mut self) -> Vec<&mut [u8]> {
        self.later.pieces()
    }

    fn end(self: Box<Self>, got: Result<u64, StoreError>) {
        let Self { mut later, fault } = *self;
        let (offset, mut pages) = (later.offset(), later.pieces());
        let len = pages.iter().map(|page| page.len() as u64).sum();
        let most = ask(&*fault, Operation::Read { offset, len });
        let got = most.and_then(|most| Ok(cut(&mut pages, got?, most)));
        drop(pages);
        later.end(got);
    }

    fn queue(self: Box<Self>) {
        self.later.0.queue();
    }
}

impl<T: Store, R: Into<Outcome>, F: Fn(Operation) -> R> FaultyStore<T, F> {
    /// The store `inner` behind `fault`.
    pub fn new(inner: T, fault: F) -> Self {
        Self { inner, fault: Arc::new(fault) }
    }

    /// The store behind.
    #[must_use]
    pub const fn inner(&self) -> &T {
        &self.inner
    }

    fn ask(&self, operation: Operation) -> Result<u64, StoreError> {
        ask(&*self.fault, operation)
    }
}

impl<T: Store, R: Into<Outcome>, F> Store for FaultyStore<T, F>
where
    F: Fn(Operation) -> R + Send + Sync + 'static,
{
    fn len(&self) -> Result<u64, StoreError> {
        self.inner.len()
    }

    fn has_fixed_len(&self) -> bool {
        self.inner.has_fixed_len()
    }

    fn read(&self, offset: u64, pages: &mut [&mut [u8]]) -> Result<u64, StoreError> {
        let len = pages.iter().map(|page| page.len() as u64).sum();
        let most = self.ask(Operation::Read { offset, len })?;
        let got = self.inner.read(offset, pages)?;
        Ok(cut(pages, got, most))
    }

    fn read_later(&self, later: LaterRead) -> Result<(), LaterRead> {
        let fault = self.fault.clone();
        self.inner.read_later(LaterRead(Box::new(Faulty { later, fault })))
    }

    fn begin_reads(&self) {
        self.inner.begin_reads();
    }

    fn write(&self, offset: u64, pages: &[&[u8]]) -> Result<(), StoreError> {
        let len = pages.iter().map(|page| page.len() as u64).sum();
        self.ask(Operation::Write { offset, len })?;
        self.inner.write(offset, pages)
    }

    fn write_sync(&self, offset: u64, pages: &[&[u8]]) -> Result<(), StoreError> {
        let len = pages.iter().map(|page| page.len() as u64).sum();
        self.ask(Operation::Write { offset, len })?;
        self.inner.write_sync(offset, pages)
    }

    fn writes_at_once(&self) -> usize {
        self.inner.writes_at_once()
    }

    fn write_each(
        &self,
        writes: &[Write<'_>],
        purpose: Purpose,
        ended: &mut dyn FnMut(usize, Result<(), StoreError>),
    ) {
        let (mut passed, mut numbers) = (Vec::new(), Vec::new());
        for (number, write) in writes.iter().enumerate() {
            let len = write.pages.iter().map(|page| page.len() as u64).sum();
            match self.ask(Operation::Write { offset: write.offset, len }) {
                Ok(_) => {
                    passed.push(*write);
                    numbers.push(number);
                }
                Err(error) => ended(number, Err(error)),
            }
        }
        self.inner.write_each(&passed, purpose, &mut |at, result| ended(numbers[at], result));
    }

    fn set_len(&self, len: u64) -> Result<(), StoreError> {
        self.ask(Operation::SetLen { len })?;
        self.inner.set_len(len)
    }

    fn zero(&self, offset: u64, len: u64) -> Result<(), StoreError> {
        self.ask(Operation::Write { offset, len })?;
        self.inner.zero(offset, len)
    }

    fn flush(&self) -> Result<(), StoreError> {
        self.ask(Operation::Flush)?;
        self.inner.flush()
    }
}

impl<T: fmt::Debug, F> fmt::Debug for FaultyStore<T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultyStore").field("inner", &self.inner).finish_non_exhaustive()
    }
}
