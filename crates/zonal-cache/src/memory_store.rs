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
use std::collections::BTreeMap;
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
    /// Where in that each page is, since the length was changed last.
    pages: BTreeMap<u64, usize>,
}

/// Bytes in memory, in two halves as those of a disk with a cache: what reads see, and what would be left
/// if the power went. [`flush`](Store::flush) makes them the same.
#[derive(Debug, Default)]
pub struct MemoryStore(Mutex<Halves>);

impl From<Vec<u8>> for MemoryStore {
    fn from(bytes: Vec<u8>) -> Self {
        let durable = bytes.clone();
        Self(Mutex::new(Halves { volatile: bytes, durable, ..Halves::default() }))
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
        halves.pages.clear();
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
}

impl Halves {
    fn set_page(&mut self, offset: u64, page: &[u8]) {
        apply(&mut self.volatile, Change::Page(offset, page.to_vec()));
        // A page is there once, however often it is written: a store that is never flushed grows no further.
        let place = self.pages.get(&offset).and_then(|&at| self.changes.get_mut(at));
        if let Some(Change::Page(_, before)) = place {
            // Of one that was longer the rest stays.
            let rest = before.get(page.len()..).unwrap_or(&[]);
            *before = [page, rest].concat();
        } else {
            self.pages.insert(offset, self.changes.len());
            self.changes.push(Change::Page(offset, page.to_vec()));
        }
    }

    fn set_len(&mut self, len: u64) {
        apply(&mut self.volatile, Change::Len(len));
        self.changes.push(Change::Len(len));
        self.pages.clear();
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
            self.0.lock().set_page(offset + (at * PAGE) as u64, page);
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> Result<(), StoreError> {
        self.0.lock().set_len(len);
        Ok(())
    }

    fn flush(&self) -> Result<(), StoreError> {
        let mut halves = self.0.lock();
        halves.durable = halves.volatile.clone();
        halves.changes.clear();
        halves.pages.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_that_is_written_often_is_one_change() {
        let store = MemoryStore::from(vec![1; 3 * PAGE]);
        (0..10_000).for_each(|turn| store.write(0, &[&[turn as u8; PAGE]]).unwrap());
        store.write(PAGE as u64, &[&[2; PAGE]]).unwrap();
        store.write(PAGE as u64, &[&[3; 100]]).unwrap();
        assert_eq!(store.0.lock().changes.len(), 2);
        store.set_len(5000).unwrap();
        store.write(0, &[&[4; PAGE]]).unwrap();
        assert_eq!(store.0.lock().changes.len(), 4, "what was before a cut is of no use after it");
        let all = store.bytes();
        store.cut_power(|_| true);
        assert_eq!(store.bytes(), all, "all of it lasts");
        store.write(0, &[&[5; PAGE]]).unwrap();
        store.write(0, &[&[6; PAGE]]).unwrap();
        store.cut_power(|_| false);
        assert_eq!(store.bytes(), all, "none of it does");
    }
}
