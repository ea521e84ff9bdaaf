//! What is recorded of the lists, under the names and with the arguments of Linux's tracepoints.

use std::cell::RefCell;
use std::sync::Arc;
use zonal::policy::trace::{Event, Lru, Point, Trace};
use zonal::preset::{Traced, Zonal};
use zonal_cache::cache::Options;
use zonal_cache::lru::{LruLock, PerNode, Whole};
use zonal_cache::threads::Threads;
use zonal_cache::{Advice, ArenaFrames, File, MemoryStore, PageCache, Setup, TwoLists};
use zonal_host::Arena;

const PAGE: usize = 4096;

thread_local! {
    static TOLD: RefCell<Vec<Event>> = const { RefCell::new(Vec::new()) };
}

/// Keeps what this thread is told of lists.
struct Keep;

impl Trace for Keep {
    fn is_on(point: Point) -> bool {
        point >= Point::LruInsertion
    }
    fn record(event: &Event) {
        TOLD.with_borrow_mut(|told| told.push(*event));
    }
}

struct Recorded<L>(std::marker::PhantomData<fn() -> L>);

impl<L: LruLock> Setup for Recorded<L> {
    type Host = Threads;
    type Frames = ArenaFrames<Traced<Zonal, Keep>>;
    type Evict = TwoLists;
    type Lru = L;
}

fn cache_of<L: LruLock>(options: Options) -> PageCache<Recorded<L>> {
    let arena = Arena::builder().bytes(256 * PAGE).preset::<Traced<Zonal, Keep>>();
    let frames = ArenaFrames::new(Arc::new(arena.open().expect("an arena")));
    PageCache::with_parts(Threads::new(), frames, options).expect("a cache")
}

fn cache<L: LruLock>() -> PageCache<Recorded<L>> {
    cache_of(Options { pages: 16, window: 0, ..Options::default() })
}

fn read<S: Setup>(file: &File<S>, page: usize) {
    assert_eq!(file.read_at(&mut [0; 8], (page * PAGE) as u64), Ok(8));
}

fn told() -> Vec<Event> {
    TOLD.with_borrow_mut(std::mem::take)
}

fn lists(events: &[Event]) -> Vec<Lru> {
    let list = |event: &Event| match event {
        Event::LruInsertion { lru, .. } => Some(*lru),
        _ => None,
    };
    events.iter().filter_map(list).collect()
}

#[test]
fn pages_come_are_used_and_go() {
    let cache = cache::<Whole>();
    let file = cache.open(MemoryStore::from(vec![1; 64 * PAGE])).unwrap();
    file.advise(Advice::Random);
    (0..16).for_each(|page| read(&file, page));
    assert_eq!(lists(&told()), [Lru::InactiveFile; 16]);
    // The two oldest are used again.
    read(&file, 0);
    read(&file, 1);
    file.write_at(&[2], 2 * PAGE as u64).unwrap();
    assert_eq!(told(), [], "a hit is no event");
    read(&file, 20);
    let events = told();
    let activated = events.iter().filter(|event| event.point() == Point::LruActivate).count();
    // Page 2 has become dirty by a use, page 3 goes.
    assert_eq!(activated, 2, "{events:?}");
    let counts = |event: &Event| match *event {
        Event::VmscanLruIsolate { requested, scanned, taken, lru: Lru::InactiveFile, .. } => {
            Some([requested, scanned, taken])
        }
        Event::VmscanLruShrinkInactive { scanned, reclaimed, activate, dirty, .. } => {
            Some([scanned, reclaimed + dirty, activate])
        }
        _ => None,
    };
    let scans: Vec<_> = events.iter().filter_map(counts).collect();
    assert_eq!(scans, [[1, 4, 1], [4, 2, 2]], "{events:?}");
    assert_eq!(lists(&events), [Lru::InactiveFile]);
    assert_eq!(of_active(&events), [[0; 4]; 0], "two are active, which is not too many");
    // Page 3 comes back before as many went as are active.
    read(&file, 3);
    assert_eq!(lists(&told()), [Lru::ActiveFile]);
}

/// Looked at, stay, deactivated, used: of each hold in which active pages were looked at.
fn of_active(events: &[Event]) -> Vec<[u32; 4]> {
    let counts = |event: &Event| match *event {
        Event::VmscanLruShrinkActive { taken, active, deactivated, referenced, .. } => {
            Some([taken, active, deactivated, referenced])
        }
        _ => None,
    };
    events.iter().filter_map(counts).collect()
}

#[test]
fn active_pages_that_are_too_many_become_inactive() {
    let cache = cache::<Whole>();
    let file = cache.open(MemoryStore::from(vec![1; 64 * PAGE])).unwrap();
    file.advise(Advice::Random);
    (0..16).chain(0..16).for_each(|page| read(&file, page));
    let _ = told();
    read(&file, 20);
    // All become active, and the oldest of them go back as soon as more than half are: eight, of which page 0 leaves.
    let events = told();
    assert_eq!(of_active(&events), [[8, 0, 8, 0]], "{events:?}");
    // What is active and used stays so.
    (8..16).for_each(|page| read(&file, page));
    (1..8).chain([20]).for_each(|page| read(&file, page));
    let _ = told();
    read(&file, 30);
    let events = told();
    let [[taken, active, deactivated, referenced]] = of_active(&events)[..] else {
        panic!("{events:?}")
    };
    assert_eq!((taken, active), (active + deactivated, referenced));
    assert!(active > 0 && deactivated > 0, "{events:?}");
}

/// Of a block each page is told of where it is listed, and where it becomes active.
#[test]
fn each_page_of_a_block_is_told_of() {
    let options = Options { pages: 64, window: 0, block: Some(8), ..Options::default() };
    let cache = cache_of::<Whole>(options);
    let file = cache.open(MemoryStore::from(vec![1; 256 * PAGE])).unwrap();
    file.advise(Advice::Random);
    file.will_need(0..32 * PAGE as u64);
    file.will_need(32 * PAGE as u64..64 * PAGE as u64);
    assert_eq!(cache.lists()[0].blocks, 8);
    let frames = |events: &[Event], point: Point| -> Vec<_> {
        events.iter().filter(|event| event.point() == point).map(Event::pfn).collect()
    };
    let came = frames(&told(), Point::LruInsertion);
    assert_eq!(came.len(), 64);
    // That they are read for the first time is their coming, and no use.
    (0..16).chain(0..16).for_each(|page| read(&file, page));
    assert_eq!(told(), []);
    read(&file, 200);
    let events = told();
    assert_eq!(frames(&events, Point::LruActivate), came[..16], "two blocks, {events:?}");
    let activated = |event: &Event| match *event {
        Event::VmscanLruShrinkInactive { scanned, activate, .. } => Some([scanned, activate]),
        _ => None,
    };
    let activated: Vec<_> = events.iter().filter_map(activated).collect();
    assert_eq!(activated, [[17, 16]], "and one page of the third, {events:?}");
}

/// What scans in vain have met: scanned, skipped, dirty, by requests and for a zone that has none of the pages; and how much
/// of it is the zones'.
fn in_vain(block: u32) -> (Vec<[u32; 3]>, u64) {
    let options = Options { pages: 64, window: 0, block: Some(block), ..Options::default() };
    let cache = cache_of::<Whole>(options);
    let file = cache.open(MemoryStore::from(vec![1; 64 * PAGE])).unwrap();
    file.will_need(0..32 * PAGE as u64);
    file.will_need(32 * PAGE as u64..64 * PAGE as u64);
    assert_eq!(cache.lists()[0].blocks, if block > 1 { 64 / block as usize } else { 0 });
    let pinned = file.pin(0..40 * PAGE as u64).unwrap();
    (40..64).for_each(|page| assert_eq!(file.write_at(&[2; PAGE], page * PAGE as u64), Ok(PAGE)));
    let blocks = cache.lists()[0].blocks;
    let _ = told();
    assert_eq!((cache.reclaim(1), cache.reclaim_zone(99, 1)), (0, 0));
    assert_eq!(cache.lists()[0].blocks, blocks, "none was halved");
    drop(pinned);
    let mut skips = 0;
    let counts = |event: &Event| match *event {
        Event::VmscanLruIsolate { skipped, taken: 0, .. } => {
            skips = skipped;
            None
        }
        Event::VmscanLruShrinkInactive { scanned, reclaimed: 0, writeback: 0, dirty, .. } => {
            Some([scanned, skips, dirty])
        }
        _ => None,
    };
    let scans = told().iter().filter_map(counts).collect();
    let zones = cache.reclaim_by_zone();
    (scans, zones.iter().map(|zone| zone.direct.scanned + zone.background.scanned).sum())
}

/// A block that stays counts as its pages would.
#[test]
fn blocks_that_stay_count_all_their_pages() {
    // Each page is looked at three times.
    let single = in_vain(1);
    assert_eq!(single, (vec![[3 * 64, 0, 3 * 24], [3 * 64, 3 * 64, 0]], 3 * 64));
    assert_eq!(in_vain(8), single);
}

#[test]
fn anonymous_pages_have_lists_of_their_own() {
    let cache = cache::<Whole>();
    let kept = cache.anon(4 * PAGE as u64).unwrap();
    let swapped = cache.anon_on(4 * PAGE as u64, MemoryStore::default()).unwrap();
    kept.write_at(&[1], 0).unwrap();
    swapped.read_at(&mut [0], 0).unwrap();
    let events = told();
    assert_eq!(lists(&events), [Lru::Unevictable, Lru::InactiveAnon]);
    assert_eq!(cache.reclaim(9), 1);
    let isolated = told().into_iter().find_map(|event| match event {
        Event::VmscanLruIsolate { lru, taken, .. } => Some((lru, taken)),
        _ => None,
    });
    assert_eq!(isolated, Some((Lru::InactiveAnon, 1)));
}

#[test]
fn pages_of_a_batch_are_told_of_when_they_are_listed() {
    let cache = cache::<PerNode<4>>();
    let file = cache.open(MemoryStore::from(vec![1; 64 * PAGE])).unwrap();
    file.advise(Advice::Random);
    for page in 0..16 {
        read(&file, page);
    }
    let listed: usize = cache.lists().iter().map(|list| list.file).sum();
    let events = told();
    assert_eq!(lists(&events).len(), listed);
    assert_eq!(listed + cache.waiting(), 16);
    assert!(listed > 0);
    // A page that is pinned moves when it is written.
    let pinned = file.pin(0..1).unwrap();
    file.write_at(&[2], 0).unwrap();
    assert!(!lists(&told()).is_empty(), "it is on the list by another frame");
    drop(pinned);
}
