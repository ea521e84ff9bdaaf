//! A page cache on an arena: it takes what memory there is, gives up the pages that were not looked
//! at again when a request needs frames, and lets the others be moved when a request needs frames in
//! one piece. The arena and the cache's lists record what happens to one ring.
//!
//! ```text
//! cargo run --release -p zonal-host --example page_cache
//! ```

use std::collections::{BTreeMap, HashMap};
use std::error::Error;
use std::slice;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;
use zonal::policy::trace::{Event, Lru, PageFlags, Point, Trace};
use zonal::preset::{Traced, Zonal};
use zonal::slow_path::Shortage;
use zonal::units::FRAME_SIZE;
use zonal::{AllocError, CpuId, MigrateType, Order, Pfn, Request};
use zonal::{Immovable, Migration};
use zonal_host::pager::{FreeFrames, copy_block};
use zonal_host::{Arena, Page, Pager, cpu};
use zonal_trace::ring::{Reader, Ring, Sink, ToRing, words_for};

/// Pages given up at once.
const BATCH: usize = 32;

/// Pages that are looked at all the time.
const IN_USE: u64 = 1000;
/// Events kept.
const EVENTS: usize = 1 << 16;
static WORDS: [AtomicU64; words_for(EVENTS)] = [const { AtomicU64::new(0) }; words_for(EVENTS)];
static RING: Ring<'static, AtomicU64> = Ring::new(&WORDS);
static START: OnceLock<Instant> = OnceLock::new();

/// Where events go: the arena's, and those of the lists.
struct Program;

impl Sink for Program {
    type Word = AtomicU64;

    fn ring() -> Option<&'static Ring<'static, AtomicU64>> {
        Some(&RING)
    }

    fn now() -> u64 {
        START.get().map_or(0, |start| start.elapsed().as_nanos() as u64)
    }

    fn cpu() -> CpuId {
        cpu::current()
    }
}

type Events = ToRing<Program>;
type Preset = Traced<Zonal, Events>;

/// A cached page, and where it is: a list and a place in it.
#[derive(Clone, Copy)]
struct Slot {
    frame: Pfn,
    list: Lru,
    place: u64,
    /// Looked at since it came to its list.
    referenced: bool,
}

/// Which page is where. Every frame in it is a single frame of the arena, taken off its `Page`
/// by `into_raw`, and used and freed under the lock only.
///
/// As in Linux, a page begins on the inactive list and becomes active at the second look, so that
/// pages looked at once do not drive out those in use. Pages are given up from the head of the
/// inactive list; while that is the shorter one, it gets those that became active first.
#[derive(Default)]
struct Lists {
    slots: HashMap<u64, Slot>,
    keys: HashMap<Pfn, u64>,
    inactive: BTreeMap<u64, u64>,
    active: BTreeMap<u64, u64>,
    clock: u64,
    evicted: u64,
    moved: u64,
}

impl Lists {
    fn list(&mut self, list: Lru) -> &mut BTreeMap<u64, u64> {
        if list == Lru::ActiveFile { &mut self.active } else { &mut self.inactive }
    }

    /// Puts a page at the tail of a list.
    fn put(&mut self, key: u64, frame: Pfn, list: Lru) {
        self.clock += 1;
        let place = self.clock;
        self.slots.insert(key, Slot { frame, list, place, referenced: false });
        self.keys.insert(frame, key);
        self.list(list).insert(place, key);
    }

    fn remove(&mut self, key: u64) -> Option<Slot> {
        let slot = self.slots.remove(&key)?;
        self.keys.remove(&slot.frame);
        self.list(slot.list).remove(&slot.place);
        Some(slot)
    }

    fn insert(&mut self, key: u64, frame: Pfn) {
        self.put(key, frame, Lru::InactiveFile);
        inserted(frame, Lru::InactiveFile);
    }

    /// A user looks at a page: where it is.
    fn look_at(&mut self, key: u64) -> Option<Pfn> {
        let slot = self.slots.get_mut(&key)?;
        let Slot { frame, list, referenced, .. } = *slot;
        slot.referenced = true;
        if referenced && list == Lru::InactiveFile {
            self.remove(key)?;
            self.put(key, frame, Lru::ActiveFile);
            Events::emit(Point::LruActivate, || Event::LruActivate { pfn: frame });
        }
        Some(frame)
    }

    /// Takes the page out that is to be given up next.
    fn pop(&mut self) -> Option<Pfn> {
        while self.inactive.len() < self.active.len() {
            let (_, &key) = self.active.first_key_value()?;
            let frame = self.remove(key)?.frame;
            // Linux has no event for that.
            self.put(key, frame, Lru::InactiveFile);
        }
        let (_, &key) = self.inactive.first_key_value()?;
        self.remove(key).map(|slot| slot.frame)
    }
}

/// A frame is on a list from now on.
fn inserted(pfn: Pfn, lru: Lru) {
    let flags = PageFlags(PageFlags::FILE);
    Events::emit(Point::LruInsertion, || Event::LruInsertion { pfn, lru, flags });
}

/// The part of the cache that the arena asks.
#[derive(Default)]
struct Index(Mutex<Lists>);

impl Index {
    fn lock(&self) -> MutexGuard<'_, Lists> {
        // No step below leaves the tables half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// SAFETY: `migrate` says `Ok` only for a frame in the index, with the order they all have, and
// holds the lock without which no thread uses or frees it; then only `page.to` is in the index, and
// references into frames do not outlive the lock. It says `Immovable` before it does anything.
unsafe impl Pager for Index {
    fn reclaim(&self, frames: &dyn FreeFrames, _: &Shortage) -> u64 {
        let mut lists = self.lock();
        let mut freed = 0;
        for _ in 0..BATCH {
            let Some(frame) = lists.pop() else { break };
            // SAFETY: it was in the index and is in it no more, so it is ours alone.
            freed += u64::from(unsafe { frames.free_raw(frame, Order::ZERO) }.is_ok());
        }
        lists.evicted += freed;
        freed
    }

    unsafe fn migrate(&self, page: &Migration) -> Result<(), Immovable> {
        let lists = if page.may_wait { Some(self.lock()) } else { self.0.try_lock().ok() };
        let mut lists = lists.ok_or(Immovable)?;
        let key = *lists.keys.get(&page.from).ok_or(Immovable)?;
        // All of ours have this order; the arena may have seen what was there before.
        if page.order != Order::ZERO {
            return Err(Immovable);
        }
        // SAFETY: `from` is a single frame of the arena, written and freed only under the lock
        // that we hold; `to` is one too, and known to us alone, by the contract of `migrate`.
        unsafe { copy_block(page.from, page.to, Order::ZERO) };
        lists.keys.remove(&page.from);
        lists.keys.insert(page.to, key);
        if let Some(slot) = lists.slots.get_mut(&key) {
            slot.frame = page.to;
            inserted(page.to, slot.list);
        }
        lists.moved += 1;
        Ok(())
    }
}

/// The cache as its users see it.
struct PageCache<'a> {
    arena: &'a Arena<Preset>,
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
        let mut lists = self.index.lock();
        let frame = lists.look_at(key)?;
        let start = self.arena.address_of(frame)?;
        // SAFETY: the frame is the cache's; the lock keeps it where it is and writers out.
        Some(look(unsafe { slice::from_raw_parts(start.as_ptr(), FRAME_SIZE) }))
    }

    fn forget(&self, key: u64) {
        let slot = self.index.lock().remove(key);
        if let Some(Slot { frame, .. }) = slot {
            // SAFETY: it was in the index and is in it no more, so it is ours alone.
            let freed = unsafe { self.arena.free_raw(frame, Order::ZERO) };
            debug_assert!(freed.is_ok(), "{freed:?}");
        }
    }

    /// Pages cached, given up, moved.
    fn counts(&self) -> (usize, u64, u64) {
        let lists = self.index.lock();
        (lists.slots.len(), lists.evicted, lists.moved)
    }

    fn keys(&self) -> Vec<u64> {
        self.index.lock().slots.keys().copied().collect()
    }
}

impl Drop for PageCache<'_> {
    fn drop(&mut self) {
        self.keys().into_iter().for_each(|key| self.forget(key));
    }
}

/// Prints how many events of each kind were recorded since the last time.
fn print_events(reader: &mut Reader<'_, AtomicU64>) {
    let mut counts = [0; Point::ALL.len()];
    while let Some(record) = reader.read() {
        counts[record.event.point().index()] += 1;
    }
    for point in Point::ALL.into_iter().filter(|point| counts[point.index()] > 0) {
        println!("{:>8} {point}", counts[point.index()]);
    }
    println!("{:>8} lost so far", reader.lost());
}

fn main() -> Result<(), Box<dyn Error>> {
    START.get_or_init(Instant::now);
    RING.enable(&[Point::Alloc, Point::Free, Point::LruInsertion, Point::LruActivate]);
    let mut reader = RING.reader();
    let index = Arc::new(Index::default());
    let arena = Arena::builder().preset::<Preset>().bytes(64 << 20).pager(index.clone()).open()?;
    let cache = PageCache { arena: &arena, index };
    let frames = (arena.len() / FRAME_SIZE) as u64;

    // Half as many pages again as there are frames: the oldest go, but for those in use.
    for key in 0..frames * 3 / 2 {
        cache.insert(key, |page| page.fill(key as u8))?;
        cache.with(key % IN_USE, |_| ());
    }
    let (cached, evicted, _) = cache.counts();
    println!("{cached} pages cached, {evicted} given up");
    assert!((0..IN_USE).all(|key| cache.with(key, |_| ()).is_some()), "pages in use stay");
    print_events(&mut reader);

    // Free frames everywhere, but hardly two of them side by side.
    for key in cache.keys().into_iter().filter(|key| key % 2 == 0) {
        cache.forget(key);
    }
    let huge = Request::new(Order::HUGE).migrate(MigrateType::Movable);
    let blocks: Vec<Page<'_, Preset>> = (0..8).map_while(|_| arena.alloc(&huge).ok()).collect();
    let (left, evicted_now, moved) = cache.counts();
    let (huge, given_up) = (blocks.len(), evicted_now - evicted);
    println!("{huge} huge pages: {moved} pages moved, {given_up} given up");
    print_events(&mut reader);

    for key in cache.keys() {
        let whole = cache.with(key, |page| page.iter().all(|&byte| byte == key as u8));
        assert_ne!(whole, Some(false), "page {key} has lost its contents");
    }
    println!("{left} pages are as they were written");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    // The only one: all would share the ring.
    #[test]
    fn the_trace_says_which_frame_is_on_which_list() {
        let index = Arc::new(Index::default());
        let arena = Arena::builder().preset::<Preset>().bytes(16 << 20).pager(index.clone());
        let arena = arena.open().expect("an arena");
        let cache = PageCache { arena: &arena, index };
        let mut reader = RING.reader();
        RING.enable(&[Point::LruInsertion, Point::LruActivate]);
        let mut told = || -> Vec<_> {
            std::iter::from_fn(|| reader.read()).map(|record| record.event).collect()
        };

        cache.insert(0, |page| page.fill(1)).expect("memory");
        let frame = |key| cache.index.lock().slots.get(&key).map(|slot| slot.frame);
        let pfn = frame(0).expect("it is there");
        let flags = PageFlags(PageFlags::FILE);
        let insertion = Event::LruInsertion { pfn, lru: Lru::InactiveFile, flags };
        assert_eq!(told(), [insertion]);
        cache.with(0, |_| ());
        assert_eq!(told(), [], "one look is not enough");
        cache.with(0, |_| ());
        cache.with(0, |_| ());
        assert_eq!(told(), [Event::LruActivate { pfn }]);

        // Pages come, some become active, the oldest go: events in the order of the steps.
        let mut listed = Vec::new();
        for key in 1..5_000 {
            cache.insert(key, |_| ()).expect("the oldest go");
            let pfn = cache.with(key, |_| ()).and_then(|()| frame(key)).expect("the newest stays");
            listed.push(Event::LruInsertion { pfn, lru: Lru::InactiveFile, flags });
            if key % 8 == 1 {
                cache.with(key, |_| ());
                listed.push(Event::LruActivate { pfn });
            }
        }
        assert_eq!(told(), listed);
        assert!(cache.counts().1 > 0, "some went");

        // Pages are moved: on the same list with another frame.
        cache.keys().into_iter().filter(|key| key % 2 == 0).for_each(|key| cache.forget(key));
        let before = cache.index.lock().slots.clone();
        let huge = Request::new(Order::HUGE).migrate(MigrateType::Movable);
        let block = arena.alloc(&huge).expect("pages are moved for it");
        let slots = cache.index.lock().slots.clone();
        let moved = slots.iter().filter(|(key, slot)| before[key].frame != slot.frame);
        let moved: HashMap<_, _> = moved.map(|(_, slot)| (slot.frame, slot.list)).collect();
        for list in [Lru::InactiveFile, Lru::ActiveFile] {
            assert!(moved.values().any(|&other| other == list), "some are {list:?}");
        }
        let events = told();
        assert_eq!(events.len(), moved.len());
        for (&pfn, &lru) in &moved {
            let insertion = Event::LruInsertion { pfn, lru, flags };
            assert!(events.contains(&insertion), "no {insertion:?}");
        }
        drop(block);
    }
}
