//! Blocks of a stream are one on their list as long as what happens to their pages is the same.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use zonal_cache::evict::Evict;
use zonal_cache::lru::{LruLock, PerOwner, Whole};
use zonal_cache::store::{Store, StoreError};
use zonal_cache::{Cache, CacheFile, ListStats, MultiGen, S3Fifo, Sieve, TwoLists};

const PAGE: usize = 4096;
const PAGES: u64 = 4096;

/// A store of zeroes that notes which pages were read.
#[derive(Default)]
struct Noted(Mutex<Vec<u64>>);

impl Noted {
    fn take(&self) -> BTreeSet<u64> {
        std::mem::take(&mut *self.0.lock().unwrap()).into_iter().collect()
    }
}

impl Store for Noted {
    fn len(&self) -> Result<u64, StoreError> {
        Ok(PAGES * PAGE as u64)
    }
    fn read(&self, offset: u64, pages: &mut [&mut [u8]]) -> Result<u64, StoreError> {
        let first = offset / PAGE as u64;
        self.0.lock().unwrap().extend(first..first + pages.len() as u64);
        pages.iter_mut().for_each(|page| page.fill(0));
        Ok((pages.len() * PAGE) as u64)
    }
    fn write(&self, _: u64, _: &[&[u8]]) -> Result<(), StoreError> {
        Ok(())
    }
    fn set_len(&self, _: u64) -> Result<(), StoreError> {
        Ok(())
    }
    fn flush(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

fn cache<E: Evict, L: LruLock>(pages: usize, block: u32) -> Cache<E, L> {
    let builder = Cache::<E, L>::builder().memory(pages * PAGE).block(block).io_threads(0);
    builder.open().expect("a cache")
}

fn read<E: Evict, L: LruLock>(file: &CacheFile<E, L>, pages: impl IntoIterator<Item = u64>) {
    for page in pages {
        assert_eq!(file.read_at(&mut [1; PAGE], page * PAGE as u64), Ok(PAGE));
    }
}

fn list<E: Evict, L: LruLock>(cache: &Cache<E, L>) -> (usize, usize) {
    let sum = |of: fn(&ListStats) -> usize| cache.lists().iter().map(of).sum::<usize>();
    (sum(|list| list.file), sum(|list| list.blocks))
}

/// Pages, and blocks, after a stream and after each thing that may happen to a part of it.
fn parts_differ<E: Evict, L: LruLock>() {
    let cache = cache::<E, L>(2048, 64);
    let file = cache.open(Noted::default()).expect("a file");
    read(&file, 0..512);
    let there = list(&cache);
    // Windows of 4, 8, 16, 32 and then 64 pages, which are read by 32.
    assert!(there.0 >= 512 && (16..=24).contains(&there.1), "{}: {there:?}", E::NAME);
    // Reading again what is there changes nothing.
    read(&file, 0..512);
    assert_eq!(list(&cache), there);
    // A page that is pinned is written to: the new one is by itself. Of 32 pages blocks of 16, 8, 4, 2 are left.
    let at = |page: u64| page * PAGE as u64;
    let pinned = file.pin(at(200)..at(201)).expect("pinned");
    file.write_at(&[1], at(200)).expect("written");
    let moved = list(&cache);
    assert_eq!((moved.0, moved.1 - there.1), (there.0, 3), "{}", E::NAME);
    drop(pinned);
    // Whole blocks leave as such, and pages from the middle of one.
    file.zero_range(at(256)..at(400)).expect("zeroed");
    let zeroed = list(&cache);
    assert_eq!(zeroed.0 + cache.waiting(), there.0 - 144, "{}", E::NAME);
    file.sync().expect("written back");
    file.truncate(at(100) + 9).expect("cut");
    assert_eq!(list(&cache).0 + cache.waiting(), 101, "{}", E::NAME);
    assert_eq!(cache.stats().used, 101);
    file.sync().expect("written back");
    assert_eq!(file.invalidate(0..u64::MAX), 101);
    assert_eq!((list(&cache), cache.stats().used), ((0, 0), 0), "{}", E::NAME);
}

#[test]
fn a_block_is_halved_where_a_part_of_it_differs() {
    parts_differ::<TwoLists, Whole>();
    parts_differ::<S3Fifo, Whole>();
    parts_differ::<Sieve, Whole>();
    parts_differ::<MultiGen, Whole>();
    parts_differ::<TwoLists, PerOwner<1, 4>>();
    parts_differ::<Sieve, PerOwner<4, 4>>();
}

/// Which pages of a file that was read in sequence are there after others came, of which there is room for half.
fn left<E: Evict>(block: u32, used: &[u64]) -> BTreeSet<u64> {
    let cache = cache::<E, Whole>(1024, block);
    let noted = Arc::new(Noted::default());
    let file = cache.open(noted.clone()).expect("a file");
    read(&file, 0..512);
    (0..4).for_each(|_| read(&file, used.iter().copied()));
    let other = cache.open(Noted::default()).expect("a file");
    read(&other, 0..900);
    noted.take();
    file.advise(zonal_cache::Advice::Random);
    let pinned = |page: &u64| {
        let (at, before) = (page * PAGE as u64, cache.stats().reads);
        drop(file.pin(at..at + 1).expect("pinned"));
        cache.stats().reads == before
    };
    // From the end: what is read for a page that is not there has others go.
    (0..512).rev().filter(pinned).collect()
}

fn stays<E: Evict>() {
    let used: Vec<u64> = (0..512).filter(|page| page % 19 == 7).collect();
    let (by_blocks, single) = (left::<E>(64, &used), left::<E>(1, &used));
    // A page of each block was used, and not the others: it stays, and they go.
    let of_used = |there: &BTreeSet<u64>| used.iter().filter(|page| there.contains(page)).count();
    assert!(of_used(&by_blocks) >= of_used(&single), "{}: {by_blocks:?} {single:?}", E::NAME);
    assert!(by_blocks.len() <= single.len() + 64, "{}: {by_blocks:?} {single:?}", E::NAME);
    // Blocks of which all was used stay as a whole.
    let used: Vec<u64> = (64..192).collect();
    let there = left::<E>(64, &used);
    let count = used.iter().filter(|page| there.contains(page)).count();
    assert_eq!(count, left::<E>(1, &used).intersection(&used.iter().copied().collect()).count());
}

#[test]
fn what_is_used_of_a_block_stays_and_the_rest_goes() {
    stays::<TwoLists>();
    stays::<S3Fifo>();
    stays::<Sieve>();
    stays::<MultiGen>();
}

#[test]
fn one_page_that_is_wanted_takes_one_of_a_block() {
    let cache = cache::<TwoLists, Whole>(256, 64);
    let file = cache.open(Noted::default()).expect("a file");
    file.will_need(0..128 * PAGE as u64);
    file.will_need(128 * PAGE as u64..256 * PAGE as u64);
    let before = list(&cache);
    assert_eq!((before.0, cache.stats().used), (256, 256));
    file.advise(zonal_cache::Advice::Random);
    read(&file, [1000]);
    // 16, 8, 4 and 2 pages are left of the oldest block, and two single ones: one of it, and the new one.
    assert_eq!(list(&cache), (256, before.1 + 3));
    assert_eq!(cache.stats().evicted, 1);
    read(&file, (1..32).map(|page| 1000 + 2 * page));
    assert_eq!(list(&cache), (256, before.1 - 1), "the whole block went");
    assert_eq!(cache.reclaim(40), 40);
    assert_eq!(
        list(&cache),
        (216, before.1 - 1),
        "a block, and 8 of the next, of which 8 and 16 are left"
    );
}

/// Blocks whose first page is pinned and whose others are dirty: these are written when there has to be room.
fn written_behind_a_pinned_one<E: Evict>() {
    let cache = Cache::<E>::builder().memory(16 * PAGE).block(4).dirty_percent(100);
    let cache = cache.io_threads(0).open().expect("a cache");
    let file = cache.open(Noted::default()).expect("a file");
    let at = |page: u64| page * PAGE as u64;
    file.will_need(0..at(8));
    file.will_need(at(8)..at(16));
    assert_eq!(list(&cache), (16, 4), "{}", E::NAME);
    let first = |block: u64| file.pin(at(4 * block)..at(4 * block) + 1).expect("pinned");
    let pinned: Vec<_> = (0..4).map(first).collect();
    for page in (0..16).filter(|page| page % 4 > 0) {
        assert_eq!(file.write_at(&[1; PAGE], at(page)), Ok(PAGE));
    }
    assert_eq!((list(&cache), cache.stats().dirty), ((16, 4), 12), "{}", E::NAME);
    let other = cache.open(Noted::default()).expect("a file");
    read(&other, [1000]);
    assert!(cache.stats().dirty < 12);
    drop(pinned);
}

#[test]
fn dirty_pages_of_a_block_are_written_though_another_is_pinned() {
    written_behind_a_pinned_one::<TwoLists>();
    written_behind_a_pinned_one::<S3Fifo>();
    written_behind_a_pinned_one::<Sieve>();
    written_behind_a_pinned_one::<MultiGen>();
}

#[test]
fn blocks_are_not_made_where_none_are_wanted() {
    for block in [0, 1, 3] {
        let cache = cache::<TwoLists, Whole>(1024, block);
        let file = cache.open(Noted::default()).expect("a file");
        read(&file, 0..512);
        assert_eq!(list(&cache).1, 0);
    }
    // Of its own accord a cache has no block of more than a 32nd of its pages.
    for (pages, most) in [(64, 0), (128, 4), (512, 16), (4096, 32)] {
        let cache = Cache::<TwoLists>::builder().memory(pages * PAGE).io_threads(0);
        let cache = cache.open().expect("a cache");
        let file = cache.open(Noted::default()).expect("a file");
        read(&file, 0..pages as u64 / 2);
        let (there, blocks) = list(&cache);
        assert!(blocks * most <= there + 8 * most && (blocks > 0) == (most > 0), "{pages}");
        assert!(blocks >= there.checked_div(2 * most).unwrap_or(0), "{pages}: {there} {blocks}");
    }
}
