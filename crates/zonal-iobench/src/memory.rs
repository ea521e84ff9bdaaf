//! Memory with a page cache in its real size: two zones with their watermarks, the pages of all files
//! with their places on the lists, the walk over the zones, and reclaim. It has no clock: reclaim says
//! how many pages it looked at, and the caller what that takes.
//!
//! Pages are counted by zone, not by frame: nothing here depends on which frame a page is in.
//!
//! Left out: zone DMA, which page cache may not use (its reserve exceeds it); per-CPU lists and
//! counters, lists that pages wait on before they get to the LRU lists; memory that is not page
//! cache, but for a number of frames that are never free; refaults that 3.16 finds by shadows.
//!
//! ```
//! use zonal_iobench::kernel::Kernel;
//! use zonal_iobench::machine::MACHINES;
//! use zonal_iobench::memory::{Memory, ZoneName};
//!
//! let kernel = Kernel::named("3.0").expect("it is in the tables");
//! let mut memory = Memory::new(&MACHINES[0], &kernel, 1000);
//! assert_eq!(memory.allocate(0, false), Some(ZoneName::Normal), "first fit");
//! assert!(memory.is_cached(0) && !memory.is_cached(1));
//! ```

mod kswapd;
mod pages;
mod shrink;
mod walk;
mod zone;

pub use kswapd::{Kswapd, Step};
pub use pages::PageId;
pub use shrink::Shrunk;
pub use zone::{Zone, ZoneName};

use crate::kernel::Kernel;
use crate::machine::{DIRTY_PERCENT, Machine};
use pages::Pages;

/// Memory, and the pages of all files.
#[derive(Debug)]
pub struct Memory {
    pub(crate) pages: Pages,
    pub(crate) zones: [Zone; 2],
    kernel: Kernel,
    /// A request found no zone above its low watermark.
    wants_kswapd: bool,
    /// Pages that reclaim of 3.0 wants written one by one.
    pub(crate) pageouts: Vec<PageId>,
    /// Reclaim of 3.16 found the oldest pages dirty, and nothing under way for them.
    pub(crate) pressed: bool,
}

impl Memory {
    /// The memory of a machine with all of it free that files may have; files have this many pages.
    #[must_use]
    pub fn new(machine: &Machine, kernel: &Kernel, pages: usize) -> Self {
        Self {
            pages: Pages::new(pages),
            zones: zone::zones(machine, kernel),
            kernel: *kernel,
            wants_kswapd: false,
            pageouts: Vec::new(),
            pressed: false,
        }
    }

    /// The zone of that name.
    #[must_use]
    pub const fn zone(&self, name: ZoneName) -> &Zone {
        &self.zones[name as usize]
    }

    pub(crate) const fn zone_mut(&mut self, name: ZoneName) -> &mut Zone {
        &mut self.zones[name as usize]
    }

    /// Caches a page; the zone that it went to, or `None` if reclaim has to make room first. The
    /// page is the newest of its zone's inactive pages. O(1).
    pub fn allocate(&mut self, page: PageId, writes: bool) -> Option<ZoneName> {
        let zone = self.walk(writes)?;
        self.pages.enter(page, zone);
        let zone_of = self.zone_mut(zone);
        zone_of.free -= 1;
        zone_of.allocated += 1;
        Some(zone)
    }

    /// Whether a page is cached.
    #[must_use]
    pub fn is_cached(&self, page: PageId) -> bool {
        self.pages.get(page).zone().is_some()
    }

    /// Whether a request wanted reclaim in the background, since this was asked last.
    pub const fn takes_wish(&mut self) -> bool {
        core::mem::replace(&mut self.wants_kswapd, false)
    }

    /// A process read or wrote a page that is cached.
    pub fn touch(&mut self, page: PageId) {
        self.pages.touch(page);
    }

    /// A page is read from the disk from now on, or was.
    pub fn set_locked(&mut self, page: PageId, locked: bool) {
        if self.is_cached(page) {
            self.pages.get_mut(page).set_locked(locked);
        }
    }

    /// A process wrote to a page; whether it was clean.
    pub fn set_dirty(&mut self, page: PageId) -> bool {
        let flags = self.pages.get_mut(page);
        let Some(zone) = flags.zone().filter(|_| !flags.is_dirty()) else { return false };
        flags.set_dirty(true);
        self.zone_mut(zone).dirty += 1;
        true
    }

    /// A dirty page is on its way to the disk; whether it was dirty.
    pub fn begin_writeback(&mut self, page: PageId) -> bool {
        let flags = self.pages.get_mut(page);
        let Some(zone) = flags.zone().filter(|_| flags.is_dirty()) else { return false };
        flags.set_dirty(false);
        flags.set_writeback(true);
        let zone = self.zone_mut(zone);
        zone.dirty -= 1;
        zone.writeback += 1;
        true
    }

    /// It is there.
    pub fn end_writeback(&mut self, page: PageId) {
        let flags = self.pages.get_mut(page);
        let Some(zone) = flags.zone().filter(|_| flags.is_writeback()) else { return };
        flags.set_writeback(false);
        flags.set_wanted(false);
        self.zone_mut(zone).writeback -= 1;
    }

    /// The file of a page is cut off before it: the page is cached no more, and what was dirty of it is
    /// not written. Whether it was cached, and whether it was dirty. A page that is read or on its way to
    /// the disk has to arrive before: nothing happens.
    pub fn forget(&mut self, page: PageId) -> (bool, bool) {
        let flags = self.pages.get(page);
        if flags.is_locked() || flags.is_writeback() {
            return (false, false);
        }
        let Some(zone) = self.pages.leave(page) else { return (false, false) };
        let zone = self.zone_mut(zone);
        zone.free += 1;
        zone.dirty -= u64::from(flags.is_dirty());
        (true, flags.is_dirty())
    }

    /// Whether a page is dirty, and whether it is on its way to the disk.
    #[must_use]
    pub fn state(&self, page: PageId) -> (bool, bool) {
        let flags = self.pages.get(page);
        (flags.is_dirty(), flags.is_writeback())
    }

    /// Dirty pages, and pages on their way to the disk, of all zones.
    #[must_use]
    pub const fn dirty(&self) -> (u64, u64) {
        let [one, other] = &self.zones;
        (one.dirty + other.dirty, one.writeback + other.writeback)
    }

    /// How many pages may be dirty or on their way, and from how many dirty ones on the flusher
    /// writes.
    #[must_use]
    pub fn dirty_limits(&self) -> (u64, u64) {
        let all: u64 = self.zones.iter().map(|zone| self.dirtyable(zone)).sum();
        let (limit, background) = DIRTY_PERCENT;
        (all * limit / 100, all * background / 100)
    }

    /// Pages of a zone that could be dirty: free or cached, less what is kept free.
    pub(crate) fn dirtyable(&self, zone: &Zone) -> u64 {
        let cached: u64 = [pages::INACTIVE, pages::ACTIVE_LIST]
            .map(|which| self.pages.list(zone.name, which).len())
            .iter()
            .sum();
        (zone.free + cached).saturating_sub(zone.high + zone.reserve)
    }
}
