//! A page cache on an arena: it takes what memory there is, gives the least recently used pages
//! up when somebody needs frames, and lets the others be moved when somebody needs them in one
//! piece.
//!
//! ```text
//! cargo run --release -p zonal-host --example page_cache
//! ```

use std::collections::{BTreeMap, HashMap};
use std::error::Error;
use std::slice;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use zonal::platform::{Immovable, Migration};
use zonal::slowpath::Shortage;
use zonal::units::FRAME_SIZE;
use zonal::{AllocError, MigrateType, Order, Pfn, Request};
use zonal_host::pager::{FreeFrames, copy_block};
use zonal_host::{Arena, Page, Pager};

/// Pages given up at once.
const BATCH: usize = 32;

/// A cached page.
#[derive(Clone, Copy)]
struct Slot {
    frame: Pfn,
    used: u64,
}

/// Which page is where. Every frame in it is a single frame of the arena, taken off its `Page`
/// by `into_raw`, and used and freed under the lock only.
#[derive(Default)]
struct Lru {
    pages: HashMap<u64, Slot>,
    keys: HashMap<Pfn, u64>,
    by_use: BTreeMap<u64, u64>,
    clock: u64,
    evicted: u64,
    moved: u64,
}

impl Lru {
    fn insert(&mut self, key: u64, frame: Pfn) {
        self.clock += 1;
        self.pages.insert(key, Slot { frame, used: self.clock });
        self.keys.insert(frame, key);
        self.by_use.insert(self.clock, key);
    }

    fn remove(&mut self, key: u64) -> Option<Pfn> {
        let Slot { frame, used } = self.pages.remove(&key)?;
        self.keys.remove(&frame);
        self.by_use.remove(&used);
        Some(frame)
    }

    fn oldest(&self) -> Option<u64> {
        self.by_use.first_key_value().map(|(_, &key)| key)
    }
}

/// The part of the cache that the arena asks.
#[derive(Default)]
struct Index(Mutex<Lru>);

impl Index {
    fn lock(&self) -> MutexGuard<'_, Lru> {
        // No step below leaves the tables half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// SAFETY: `migrate` says `Ok` only for a frame in the index, with the order they all have, and
// holds the lock without which nobody uses or frees it; then only `page.to` is in the index, and
// references into frames do not outlive the lock. It says `Immovable` before it does anything.
unsafe impl Pager for Index {
    fn reclaim(&self, frames: &dyn FreeFrames, _: &Shortage) -> u64 {
        let mut lru = self.lock();
        let mut freed = 0;
        for _ in 0..BATCH {
            let Some(frame) = lru.oldest().and_then(|key| lru.remove(key)) else { break };
            // SAFETY: it was in the index and is in it no more, so it is ours alone.
            freed += u64::from(unsafe { frames.free_raw(frame, Order::ZERO) }.is_ok());
        }
        lru.evicted += freed;
        freed
    }

    unsafe fn migrate(&self, page: &Migration) -> Result<(), Immovable> {
        let lru = if page.may_wait { Some(self.lock()) } else { self.0.try_lock().ok() };
        let mut lru = lru.ok_or(Immovable)?;
        let key = *lru.keys.get(&page.from).ok_or(Immovable)?;
        if page.order != Order::ZERO {
            return Err(Immovable);
        }
        // SAFETY: `from` is a single frame of the arena, written and freed only under the lock
        // that we hold; `to` is one too, and nobody else's, by the contract of `migrate`.
        unsafe { copy_block(page.from, page.to, Order::ZERO) };
        lru.keys.remove(&page.from);
        lru.keys.insert(page.to, key);
        if let Some(slot) = lru.pages.get_mut(&key) {
            slot.frame = page.to;
        }
        lru.moved += 1;
        Ok(())
    }
}

/// The cache as its users see it.
struct PageCache<'a> {
    arena: &'a Arena,
    index: Arc<Index>,
}

impl PageCache<'_> {
    /// Keeps a page. Never called with the index locked: the arena may ask the index for frames.
    fn insert(&self, key: u64, fill: impl FnOnce(&mut [u8])) -> Result<(), AllocError> {
        let mut page = self.arena.alloc(&Request::frame().migrate(MigrateType::Movable))?;
        fill(&mut page);
        self.forget(key);
        let (frame, _) = page.into_raw();
        self.index.lock().insert(key, frame);
        Ok(())
    }

    /// Looks at a page, if it is still there.
    fn with<R>(&self, key: u64, look: impl FnOnce(&[u8]) -> R) -> Option<R> {
        let mut lru = self.index.lock();
        let frame = lru.remove(key)?;
        lru.insert(key, frame);
        let start = self.arena.address_of(frame)?;
        // SAFETY: the frame is the cache's; the lock keeps it where it is and writers out.
        Some(look(unsafe { slice::from_raw_parts(start.as_ptr(), FRAME_SIZE) }))
    }

    fn forget(&self, key: u64) {
        let frame = self.index.lock().remove(key);
        if let Some(frame) = frame {
            // SAFETY: it was in the index and is in it no more, so it is ours alone.
            let freed = unsafe { self.arena.free_raw(frame, Order::ZERO) };
            debug_assert!(freed.is_ok(), "{freed:?}");
        }
    }

    /// Pages cached, given up, moved.
    fn counts(&self) -> (usize, u64, u64) {
        let lru = self.index.lock();
        (lru.pages.len(), lru.evicted, lru.moved)
    }

    fn keys(&self) -> Vec<u64> {
        self.index.lock().pages.keys().copied().collect()
    }
}

impl Drop for PageCache<'_> {
    fn drop(&mut self) {
        self.keys().into_iter().for_each(|key| self.forget(key));
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let index = Arc::new(Index::default());
    let arena = Arena::builder().bytes(64 << 20).pager(index.clone()).open()?;
    let cache = PageCache { arena: &arena, index };
    let frames = (arena.len() / FRAME_SIZE) as u64;

    // Half as many pages again as there are frames: the oldest go.
    for key in 0..frames * 3 / 2 {
        cache.insert(key, |page| page.fill(key as u8))?;
    }
    let (cached, evicted, _) = cache.counts();
    println!("{cached} pages cached, {evicted} given up");

    // Free frames everywhere, but hardly two of them side by side.
    for key in cache.keys().into_iter().filter(|key| key % 2 == 0) {
        cache.forget(key);
    }
    let huge = Request::new(Order::HUGE).migrate(MigrateType::Movable);
    let blocks: Vec<Page<'_>> = (0..8).map_while(|_| arena.alloc(&huge).ok()).collect();
    let (left, evicted_now, moved) = cache.counts();
    let (huge, given_up) = (blocks.len(), evicted_now - evicted);
    println!("{huge} huge pages: {moved} pages moved, {given_up} given up");

    for key in cache.keys() {
        let whole = cache.with(key, |page| page.iter().all(|&byte| byte == key as u8));
        assert_ne!(whole, Some(false), "page {key} has lost its contents");
    }
    println!("{left} pages are as they were written");
    Ok(())
}
