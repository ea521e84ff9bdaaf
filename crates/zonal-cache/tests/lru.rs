//! Where the locks of the lists are, and how often they are held.

use std::sync::Arc;
use zonal::preset::{Linux316, SplitZones};
use zonal_cache::cache::Options;
use zonal_cache::lru::{LruLock, OfPreset, PerNode, PerOwner, Whole};
use zonal_cache::threads::Threads;
use zonal_cache::{
    Advice, ArenaFrames, Cache, File, MemoryStore, MultiGen, PageCache, S3Fifo, Setup, Sieve,
    TwoLists,
};
use zonal_host::Arena;

const PAGE: usize = 4096;

fn read<S: Setup>(file: &File<S>, pages: std::ops::Range<u64>) {
    for page in pages {
        let got = file.read_at(&mut [0; PAGE], page * PAGE as u64);
        assert_eq!(got, Ok(PAGE));
    }
}

/// Holds of all locks for 300 pages that come one by one, and for as many that leave together.
fn holds<L: LruLock>() -> (u64, u64) {
    let cache = Cache::<TwoLists, L>::builder().memory(4 << 20).io_threads(0).open().unwrap();
    let file = cache.open(MemoryStore::from(vec![1; 300 * PAGE])).unwrap();
    file.advise(Advice::Random);
    let held = || cache.lists().iter().map(|list| list.holds).sum::<u64>();
    read(&file, 0..300);
    let listed = held();
    assert_eq!(cache.lists().iter().map(|it| it.file).sum::<usize>() + cache.waiting(), 300);
    file.truncate(0).unwrap();
    assert_eq!(cache.stats().used, 0);
    assert_eq!(cache.waiting(), 0);
    (listed, held() - listed)
}

#[test]
fn batches_save_holds() {
    assert_eq!(holds::<Whole>(), (300, 1));
    // Threads may be on another CPU half-way, whose batch begins anew.
    let (come, leave) = holds::<PerNode<15>>();
    assert!((10..25).contains(&come) && (19..25).contains(&leave), "{come}, {leave}");
    let (come, leave) = holds::<PerOwner<15, 4>>();
    assert!((10..32).contains(&come) && (19..32).contains(&leave), "{come}, {leave}");
}

struct InZones;

impl Setup for InZones {
    type Host = Threads;
    type Frames = ArenaFrames<SplitZones>;
    type Evict = TwoLists;
    type Lru = <Linux316 as OfPreset>::Lru;
}

#[test]
fn each_zone_has_its_pages() {
    let arena = Arena::builder().bytes(64 << 20).preset::<SplitZones>().open().unwrap();
    let arena = Arc::new(arena);
    let zones = arena.zone_count();
    let options = Options { pages: 16_000, ..Options::default() };
    let frames = ArenaFrames::new(arena.clone());
    let cache = PageCache::<InZones>::with_parts(Threads::new(), frames, options).unwrap();
    let file = cache.open(MemoryStore::from(vec![1; 16_000 * PAGE])).unwrap();
    read(&file, 0..16_000);
    let lists = cache.lists();
    assert_eq!(lists.len(), zones);
    // SAFETY: it is only asked.
    let plan = unsafe { arena.allocator() }.plan();
    for (list, zone) in lists.iter().zip(plan.zones()) {
        assert_eq!(list.file > 0, zone.managed > 0, "{lists:?}");
    }
    // Each gives up its share.
    cache.reclaim(8000);
    for (before, after) in lists.iter().zip(cache.lists()) {
        assert!(after.file.abs_diff(before.file / 2) <= before.file / 10 + 64, "{lists:?}");
    }
}

/// Owners do not take each other's lock, and all give pages up.
#[test]
fn owners_have_lists_of_their_own() {
    let cache = Cache::<TwoLists, PerOwner<1, 4>>::builder().memory(100 * PAGE).window(0);
    let cache = cache.io_threads(0).open().unwrap();
    let files: Vec<_> =
        (0..3).map(|_| cache.open(MemoryStore::from(vec![1; 30 * PAGE])).unwrap()).collect();
    for (number, file) in files.iter().enumerate() {
        let before = cache.lists();
        read(file, 0..30);
        let after = cache.lists();
        let changed = before.iter().zip(&after).filter(|(before, after)| before.file != after.file);
        assert_eq!(changed.count(), 1, "file {number}: {before:?} {after:?}");
    }
    let more = cache.open(MemoryStore::from(vec![1; 60 * PAGE])).unwrap();
    read(&more, 0..60);
    assert!(cache.lists().iter().all(|list| (5..60).contains(&list.file)), "{:?}", cache.lists());
}

/// Several lists find nearly as much as one.
#[test]
fn split_lists_keep_what_is_used() {
    fn misses<E: zonal_cache::evict::Evict, L: LruLock>() -> u64 {
        let cache = Cache::<E, L>::builder().memory(64 * PAGE).window(0).io_threads(0);
        let cache = cache.open().unwrap();
        let files: Vec<_> =
            (0..4).map(|_| cache.open(MemoryStore::from(vec![1; 200 * PAGE])).unwrap()).collect();
        for turn in 0..2000_u64 {
            // Eight pages of each file are used again and again, others once.
            let file = &files[turn as usize % 4];
            read(file, turn / 4 % 8..turn / 4 % 8 + 1);
            let once = 8 + turn / 4 % 192;
            read(file, once..once + 1);
        }
        cache.stats().read
    }
    let each = [
        (misses::<TwoLists, Whole>(), misses::<TwoLists, PerOwner<4, 4>>()),
        (misses::<S3Fifo, Whole>(), misses::<S3Fifo, PerOwner<4, 4>>()),
        (misses::<Sieve, Whole>(), misses::<Sieve, PerOwner<4, 4>>()),
        (misses::<MultiGen, Whole>(), misses::<MultiGen, PerOwner<4, 4>>()),
    ];
    for (one, several) in each {
        assert!(several < one + one / 10, "{each:?}");
        assert!(several < 3000, "{each:?}");
    }
}
