//! A store in memory that can lose what was not flushed.
//!
//! ```
//! use zonal_cache::MemoryStore;
//! use zonal_cache::store::Store;
//! let store = MemoryStore::from(vec![1; 4096]);
//! store.write(0, &[&[2; 4096]])?;
//! store.cut_power(|_| false);
//! assert_eq!(store.bytes(), [1; 4096]);
//! # Ok::<(), zonal_cache::store::StoreError>(())
//! ```

use crate::frames::PAGE;
use crate::store::{Store, StoreError};
use parking_lot::Mutex;
use std::mem;

/// What happened to a store since the last flush.
#[derive(Clone, Debug)]
enum Change {
    Page(u64, Vec<u8>),
    Len(u64),
}

#[derive(Debug, Default)]
struct Halves {
    /// What reads see.
    volatile: Vec<u8>,
    /// What lasts.
    durable: Vec<u8>,
    /// What makes the second into the first.
    changes: Vec<Change>,
}

/// Bytes in memory, in two halves as those of a disk with a cache: what reads see, and what would be left
/// if the power went. [`flush`](Store::flush) makes them the same.
#[derive(Debug, Default)]
pub struct MemoryStore(Mutex<Halves>);

impl From<Vec<u8>> for MemoryStore {
    fn from(bytes: Vec<u8>) -> Self {
        let durable = bytes.clone();
        Self(Mutex::new(Halves { volatile: bytes, durable, changes: Vec::new() }))
    }
}

fn apply(bytes: &mut Vec<u8>, change: Change) {
    match change {
        Change::Len(len) => bytes.resize(len as usize, 0),
        Change::Page(offset, page) => {
            let (at, end) = (offset as usize, offset as usize + page.len());
            if bytes.len() < end {
                bytes.resize(end, 0);
            }
            bytes[at..end].copy_from_slice(&page);
        }
    }
}

impl MemoryStore {
    /// The power goes and comes back: of each page that was written since the last flush, and each change
    /// of length, `keeps` says whether it lasted; it is given the offset.
    pub fn cut_power(&self, mut keeps: impl FnMut(u64) -> bool) {
        let mut halves = self.0.lock();
        let mut bytes = mem::take(&mut halves.durable);
        for change in mem::take(&mut halves.changes) {
            let offset = match change {
                Change::Page(offset, _) | Change::Len(offset) => offset,
            };
            if keeps(offset) {
                apply(&mut bytes, change);
            }
        }
        halves.volatile.clone_from(&bytes);
        halves.durable = bytes;
    }

    /// What reads see.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        self.0.lock().volatile.clone()
    }

    /// What lasts.
    #[must_use]
    pub fn durable(&self) -> Vec<u8> {
        self.0.lock().durable.clone()
    }

    fn change(&self, change: Change) {
        let mut halves = self.0.lock();
        apply(&mut halves.volatile, change.clone());
        halves.changes.push(change);
    }
}

impl Store for MemoryStore {
    fn len(&self) -> Result<u64, StoreError> {
        Ok(self.0.lock().volatile.len() as u64)
    }

    fn read(&self, offset: u64, pages: &mut [&mut [u8]]) -> Result<u64, StoreError> {
        let halves = self.0.lock();
        let mut rest = halves.volatile.get(offset as usize..).unwrap_or(&[]);
        let mut done = 0;
        for page in pages {
            let part = rest.len().min(page.len());
            page[..part].copy_from_slice(&rest[..part]);
            rest = &rest[part..];
            done += part as u64;
        }
        Ok(done)
    }

    fn write(&self, offset: u64, pages: &[&[u8]]) -> Result<(), StoreError> {
        for (at, page) in pages.iter().enumerate() {
            self.change(Change::Page(offset + (at * PAGE) as u64, page.to_vec()));
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> Result<(), StoreError> {
        self.change(Change::Len(len));
        Ok(())
    }

    fn flush(&self) -> Result<(), StoreError> {
        let mut halves = self.0.lock();
        halves.durable = halves.volatile.clone();
        halves.changes.clear();
        Ok(())
    }
}
