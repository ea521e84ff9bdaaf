//! What a store does wrong.

use super::{Lie, PAGE};
use std::collections::BTreeSet;
use zonal_cache::faulty_store::{Operation, Outcome};
use zonal_cache::store::{LaterRead, Purpose, Store, StoreError, Write};

/// What the store refuses now.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    pub(crate) reads: BTreeSet<u64>,
    /// A read stops after this many bytes: a page at least, so that the next goes on.
    pub(crate) short: Option<u64>,
    pub(crate) writes: BTreeSet<u64>,
    pub(crate) flush: bool,
    pub(crate) len: bool,
}

impl Faults {
    pub(crate) fn fault(&self, operation: Operation) -> Outcome {
        let hits = |pages: &BTreeSet<u64>, offset: u64, len: u64| {
            pages.range(offset / PAGE..(offset + len).div_ceil(PAGE)).next().is_some()
        };
        let (bad, error) = match operation {
            Operation::Read { offset, len } => (hits(&self.reads, offset, len), StoreError::IO),
            Operation::Write { offset, len } => {
                (hits(&self.writes, offset, len), StoreError::NO_SPACE)
            }
            Operation::SetLen { .. } => (self.len, StoreError::NO_SPACE),
            Operation::Flush => (self.flush, StoreError::IO),
        };
        match (operation, self.short) {
            _ if bad => Outcome::Fails(error),
            (Operation::Read { .. }, Some(most)) => Outcome::Short(most),
            _ => Outcome::Whole,
        }
    }
}

/// A store that does what it says, or not.
pub(crate) struct Liar<T>(pub(crate) T, pub(crate) Lie);

impl<T: Store> Store for Liar<T> {
    fn len(&self) -> Result<u64, StoreError> {
        self.0.len()
    }
    fn read(&self, offset: u64, pages: &mut [&mut [u8]]) -> Result<u64, StoreError> {
        let got = self.0.read(offset, pages)?;
        if self.1 == Lie::Read && offset == 3 * PAGE && got > 0 {
            pages[0][0] ^= 1;
        }
        Ok(got)
    }
    fn read_later(&self, mut later: LaterRead) -> Result<(), LaterRead> {
        match self.1 {
            Lie::Later => {
                // No byte that is written is one of these.
                later.pieces().iter_mut().for_each(|page| page.fill(0x5A));
                let len = later.pieces().iter().map(|page| page.len() as u64).sum();
                later.end(Ok(len));
                Ok(())
            }
            // Another thread's bytes are not to be had: so `read` is asked.
            Lie::Read if later.offset() == 3 * PAGE => Err(later),
            _ => self.0.read_later(later),
        }
    }
    fn begin_reads(&self) {
        self.0.begin_reads();
    }
    fn write(&self, offset: u64, pages: &[&[u8]]) -> Result<(), StoreError> {
        if self.1 == Lie::Write && pages.len() == 1 { Ok(()) } else { self.0.write(offset, pages) }
    }
    fn writes_at_once(&self) -> usize {
        self.0.writes_at_once()
    }
    fn write_each(
        &self,
        writes: &[Write<'_>],
        purpose: Purpose,
        ended: &mut dyn FnMut(usize, Result<(), StoreError>),
    ) {
        match (self.1, writes) {
            (Lie::Write, _) => {
                for (number, write) in writes.iter().enumerate() {
                    ended(number, self.write(write.offset, write.pages));
                }
            }
            (Lie::Together, [first @ .., _]) if !first.is_empty() => {
                self.0.write_each(first, purpose, ended);
                ended(first.len(), Ok(()));
            }
            _ => self.0.write_each(writes, purpose, ended),
        }
    }
    fn set_len(&self, len: u64) -> Result<(), StoreError> {
        self.0.set_len(len)
    }
    fn flush(&self) -> Result<(), StoreError> {
        if self.1 == Lie::Flush { Ok(()) } else { self.0.flush() }
    }
}
