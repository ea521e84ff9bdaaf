//! The disk: it does one thing after the other. And a file on it, as a store of a page cache.

use crate::engine;
use crate::machine::Clock;
use crate::mix::page_cache::DISK;
use crate::task::idle;
use crate::ticks::Ticks;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;
use zonal_cache::frames::PAGE;
use zonal_cache::store::{Store, StoreError};

/// A disk. Its words are relaxed: all CPUs of a machine are on one thread, and this costs them nothing.
#[derive(Debug)]
pub(crate) struct Disk {
    page: Ticks,
    free_at: AtomicU64,
}

impl Disk {
    /// A disk, in time by `clock`.
    pub(crate) fn new(clock: &Clock) -> Self {
        let page = clock.of_seconds(4096.0 / DISK);
        Self { page, free_at: AtomicU64::new(0) }
    }

    /// Puts `pages` pages into its queue; when they are done.
    pub(crate) fn transfer(&self, now: Ticks, pages: usize) -> Ticks {
        let free_at = Ticks(self.free_at.load(Relaxed));
        let done = free_at.max(now) + Ticks(self.page.0 * pages as u64);
        self.free_at.store(done.0, Relaxed);
        done
    }

    /// The same, and the CPU that runs waits for it. During set-up all is done at once.
    fn wait(&self, pages: usize) {
        if engine::with_cpu(|_, _| ()).is_some() {
            let done = self.transfer(engine::now(), pages);
            idle(done.since(engine::now()));
        }
    }
}

/// A file on a disk, of which there is no more than its length. The pieces that it is given are pages without bytes. A model of
/// bytes is held against a file of this disk that has some, over frames that have some too: `cache/bytes`.
#[derive(Debug)]
pub(crate) struct DiskFile {
    disk: Arc<Disk>,
    len: AtomicU64,
}

impl DiskFile {
    /// A file of that number of pages.
    pub(crate) fn new(disk: &Arc<Disk>, pages: u64) -> Self {
        Self { disk: disk.clone(), len: AtomicU64::new(pages * PAGE as u64) }
    }
}

impl Store for DiskFile {
    fn len(&self) -> Result<u64, StoreError> {
        Ok(self.len.load(Relaxed))
    }

    fn read(&self, offset: u64, pages: &mut [&mut [u8]]) -> Result<u64, StoreError> {
        self.disk.wait(pages.len());
        let rest = self.len.load(Relaxed).saturating_sub(offset);
        Ok(rest.min((pages.len() * PAGE) as u64))
    }

    fn write(&self, offset: u64, pages: &[&[u8]]) -> Result<(), StoreError> {
        self.disk.wait(pages.len());
        // How much of its last page is meant is not said without bytes: all of it.
        self.len.fetch_max(offset + (pages.len() * PAGE) as u64, Relaxed);
        Ok(())
    }

    fn set_len(&self, len: u64) -> Result<(), StoreError> {
        self.len.store(len, Relaxed);
        Ok(())
    }

    fn zero(&self, _: u64, _: u64) -> Result<(), StoreError> {
        Ok(())
    }

    /// Waits for what is before it in the disk's queue.
    fn flush(&self) -> Result<(), StoreError> {
        self.disk.wait(0);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thing_after_the_other() {
        let disk =
            Disk::new(&Clock { nominal_ghz: 1.0, turbo_ghz: Vec::new(), sibling_share: 1.0 });
        let page = disk.transfer(Ticks(0), 1);
        assert_eq!(disk.transfer(Ticks(0), 2).0, 3 * page.0, "it waits for the first");
        let late = Ticks(100 * page.0);
        assert_eq!(disk.transfer(late, 1), late + page, "it was idle");
    }
}
