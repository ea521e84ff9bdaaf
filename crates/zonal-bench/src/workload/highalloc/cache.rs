//! The page cache, the slabs and what compilers have mapped: what compaction moves and reclaim
//! drops.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use zonal::slow_path::Shortage;
use zonal::{Immovable, Migration};
use zonal::{Order, Pfn, ZoneId};
use zonal_host::pager::{FreeFrames, Pager, copy_block};

use super::{SCAN_SLABS, SWAP_CLUSTER};
use crate::pages::Book;

/// Orders above this are asked of reclaim once a request, as in Linux.
const COSTLY: Order = Order::new(3).expect("3 is an order");

/// Free frames above the high watermark with which compaction for `order` can work: twice the
/// block, as in Linux.
const fn room_for(order: Order) -> i64 {
    2 * order.frames() as i64
}

/// A block of slab objects.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slab {
    pub(super) pfn: Pfn,
    pub(super) order: Order,
    /// Whether an object in it is in use for good.
    pub(super) pinned: bool,
}

/// What is behind the lock.
#[derive(Debug)]
struct Tables {
    book: Book,
    /// What the page was filled with, by page number.
    stamps: Vec<u64>,
    /// Numbers of cache pages, oldest first.
    lru: VecDeque<u32>,
    /// Oldest first.
    slabs: VecDeque<Slab>,
}

/// See the [module](self). Made before its arena, [started](Self::start) when that is open.
#[derive(Debug, Default)]
pub(super) struct Cache {
    tables: Mutex<Option<Tables>>,
    /// Frames without an owner, by this workload's own count.
    free: AtomicI64,
    /// The high watermark, in frames.
    high: AtomicI64,
    /// Set when a zone fell below its low watermark.
    wanted: AtomicBool,
    /// What background reclaim is to free beyond the high watermark: room for compaction.
    room: AtomicI64,
    pub(super) migrated: AtomicU64,
    pub(super) reclaimed: AtomicU64,
}

impl Cache {
    pub(super) fn start(&self, first: Pfn, frames: usize, high: u64) {
        let book = Book::new(first, frames);
        let tables =
            Tables { book, stamps: Vec::new(), lru: VecDeque::new(), slabs: VecDeque::new() };
        *self.lock() = Some(tables);
        self.free.store(frames as i64, Ordering::Relaxed);
        self.high.store(high as i64, Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, Option<Tables>> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts frames as allocated (negative: as freed).
    pub(super) fn count(&self, frames: i64) {
        self.free.fetch_sub(frames, Ordering::Relaxed);
    }

    /// Enters a page that was filled with `stamp`, on the LRU list if `cached`. `None` if the
    /// allocator handed out a frame of another page.
    pub(super) fn insert(&self, pfn: Pfn, stamp: u64, cached: bool) -> Option<u32> {
        let mut guard = self.lock();
        let tables = guard.as_mut()?;
        let page = tables.book.insert(pfn)?;
        let at = page as usize;
        if tables.stamps.len() <= at {
            tables.stamps.resize(at + 1, 0);
        }
        tables.stamps[at] = stamp;
        if cached {
            tables.lru.push_back(page);
        }
        Some(page)
    }

    /// Takes a mapped page out: its frame, and what must be in it.
    pub(super) fn remove(&self, page: u32) -> Option<(Pfn, u64)> {
        let mut guard = self.lock();
        let tables = guard.as_mut()?;
        Some((tables.book.remove(page)?, tables.stamps[page as usize]))
    }

    /// Takes the oldest cache page out.
    pub(super) fn remove_oldest(&self) -> Option<(Pfn, u64)> {
        let page = self.lock().as_mut()?.lru.pop_front()?;
        self.remove(page)
    }

    pub(super) fn insert_slab(&self, slab: Slab) {
        if let Some(tables) = self.lock().as_mut() {
            tables.slabs.push_back(slab);
        }
    }

    pub(super) fn remove_slab(&self) -> Option<Slab> {
        self.lock().as_mut()?.slabs.pop_front()
    }

    /// Frees up to `wanted` of the oldest cache pages, and looks at a slab for every
    /// [`SCAN_SLABS`] of them. Returns the frames freed.
    fn shrink(&self, frames: &dyn FreeFrames, wanted: usize) -> u64 {
        let mut dropped = Vec::new();
        if let Some(tables) = self.lock().as_mut() {
            for _ in 0..wanted {
                let Some(page) = tables.lru.pop_front() else { break };
                dropped.extend(tables.book.remove(page).map(|pfn| (pfn, Order::ZERO)));
            }
            for _ in 0..wanted.div_ceil(SCAN_SLABS) {
                match tables.slabs.pop_front() {
                    Some(slab) if slab.pinned => tables.slabs.push_back(slab),
                    Some(slab) => dropped.push((slab.pfn, slab.order)),
                    None => break,
                }
            }
        }
        let mut freed = 0;
        for (pfn, order) in dropped {
            // SAFETY: allocated with this order from the arena that asks (a cache has one only),
            // in the tables until just now, and so no other thread's.
            if unsafe { frames.free_raw(pfn, order) }.is_ok() {
                freed += order.frames();
            }
        }
        self.count(-(freed as i64));
        self.reclaimed.fetch_add(freed, Ordering::Relaxed);
        freed
    }

    /// What a background thread does when it was woken: reclaims up to the high watermark, and
    /// beyond it as far as compaction needs. Says whether it did that for compaction, which can
    /// begin now.
    pub(super) fn balance(&self, frames: &dyn FreeFrames) -> bool {
        if !self.wanted.swap(false, Ordering::Relaxed) {
            return false;
        }
        let room = self.room.swap(0, Ordering::Relaxed);
        let target = self.high.load(Ordering::Relaxed) + room;
        while self.free.load(Ordering::Relaxed) < target && self.shrink(frames, SWAP_CLUSTER) > 0 {}
        room > 0
    }
}

// SAFETY: a page is copied and re-entered under the lock that `remove`, `remove_oldest` and
// `shrink` take to find a page's frame before they use or free it. So while `migrate` runs, a
// `from` that is in the book is ours alone; after `Ok` only `to` is named. A
// refusal has kept nothing of `to`.
unsafe impl Pager for Cache {
    fn reclaim(&self, frames: &dyn FreeFrames, shortage: &Shortage) -> u64 {
        let order = shortage.request.order();
        if order <= COSTLY {
            return self.shrink(frames, SWAP_CLUSTER);
        }
        let room = room_for(order);
        let target = self.high.load(Ordering::Relaxed) + room;
        let short = (target - self.free.load(Ordering::Relaxed)).min(room);
        if shortage.attempt > 0 || short <= 0 {
            return 0;
        }
        self.shrink(frames, short as usize)
    }

    unsafe fn migrate(&self, page: &Migration) -> Result<(), Immovable> {
        let mut guard = self.lock();
        let tables = guard.as_mut().ok_or(Immovable)?;
        let known = page.order == Order::ZERO && tables.book.page_in(page.from).is_some();
        if !known || tables.book.page_in(page.to).is_some() {
            return Err(Immovable);
        }
        // SAFETY: `from` is a page of ours, which others read or write only after they took it
        // out of the book, under this lock; `to` is ours until this call ends, by the contract
        // of `migrate`. The arena is open: it is asking.
        unsafe { copy_block(page.from, page.to, page.order) };
        if !tables.book.relocate(page.from, page.to) {
            return Err(Immovable);
        }
        self.migrated.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn wake_reclaim(&self, _zone: ZoneId) {
        self.wanted.store(true, Ordering::Relaxed);
    }

    fn wake_compaction(&self, _zone: ZoneId, order: Order) {
        self.room.fetch_max(room_for(order), Ordering::Relaxed);
        self.wanted.store(true, Ordering::Relaxed);
    }
}
