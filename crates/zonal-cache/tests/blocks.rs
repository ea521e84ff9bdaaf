//! Pages of a window are frames in a row, where such a block is free, and go one by one.

use std::sync::Arc;
use std::sync::Mutex;
use zonal::{Request, ZoneId};
use zonal_cache::cache::Options;
use zonal_cache::store::{Store, StoreError};
use zonal_cache::threads::{OnThreads, Threads};
use zonal_cache::{Advice, ArenaFrames, Cache, MemoryStore, PageCache, S3Fifo};
use zonal_host::{Arena, HugePages};

const PAGE: usize = 4096;

/// A store that notes in how many pieces of memory it was to put what it read.
#[derive(Default)]
struct Pieces(Mutex<Vec<(usize, usize)>>);

impl Store for Pieces {
    fn len(&self) -> Result<u64, StoreError> {
        Ok(1 << 24)
    }
    fn read(&self, offset: u64, pages: &mut [&mut [u8]]) -> Result<u64, StoreError> {
        let (mut pieces, mut end) = (0, 0);
        for (at, page) in pages.iter_mut().enumerate() {
            pieces += usize::from(page.as_ptr().addr() != end);
            end = page.as_ptr().addr() + page.len();
            page.fill((offset as usize / PAGE + at) as u8);
        }
        self.0.lock().unwrap().push((pages.len(), pieces));
        Ok((pages.len() * PAGE) as u64)
    }
    fn write(&self, _: u64, _: &[&[u8]]) -> Result<(), StoreError> {
        Err(StoreError::NO_SPACE)
    }
    fn set_len(&self, _: u64) -> Result<(), StoreError> {
        Err(StoreError::NO_SPACE)
    }
    fn flush(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

fn cache(frames: usize, pages: usize) -> (Arc<Arena>, Cache<S3Fifo>) {
    let arena = Arena::builder().bytes(frames * PAGE).huge(HugePages::Never).open();
    let arena = Arc::new(arena.expect("an arena"));
    let options = Options { pages, ..Options::default() };
    let frames = ArenaFrames::new(arena.clone());
    let cache = PageCache::<OnThreads<S3Fifo>>::with_parts(Threads::new(), frames, options);
    (arena, cache.expect("a cache"))
}

fn is_all_back(arena: &Arena) {
    let zone = arena.zone_info(ZoneId(0)).expect("a zone");
    assert_eq!(zone.free + zone.cached, zone.managed, "all frames are back");
}

#[test]
fn a_stream_is_read_into_blocks_and_stays_so_when_pages_go_for_others() {
    let (arena, cache) = cache(4096, 1024);
    let pieces = Arc::new(Pieces::default());
    let file = cache.open(pieces.clone()).expect("a file");
    let mut page = [0; PAGE];
    for index in 0..4096_u64 {
        assert_eq!(file.read_at(&mut page, index * PAGE as u64), Ok(PAGE));
        assert!(page.iter().all(|&byte| byte == index as u8), "page {index}");
    }
    let reads = std::mem::take(&mut *pieces.0.lock().unwrap());
    let count = |reads: &[(usize, usize)]| {
        reads.iter().fold((0, 0), |sum, read| (sum.0 + read.0, sum.1 + read.1))
    };
    let (pages, pieces) = count(&reads);
    assert_eq!(pages, 4096);
    assert!(pieces <= pages / 8, "{pieces} pieces for {pages} pages");
    // 1024 frames; a single request for each is what it was before.
    assert!(cache.stats().asked <= 1024 / 16, "{:?}", cache.stats());
    drop((file, cache));
    is_all_back(&arena);
}

#[test]
fn parts_of_a_block_go_and_stay() {
    let (arena, cache) = cache(1024, 512);
    let file = cache.open(MemoryStore::from(vec![7; 400 * PAGE])).expect("a file");
    file.will_need(0..400 * PAGE as u64);
    assert_eq!(cache.stats().used, 256, "half of the bound");
    let pinned = file.pin(3 * PAGE as u64..5 * PAGE as u64).expect("pinned");
    file.write_at(&[8; 2 * PAGE], 4 * PAGE as u64).expect("written");
    file.truncate(10 * PAGE as u64 + 5).expect("cut");
    assert_eq!(cache.stats().used, 12, "and the old page 4, which is pinned");
    assert!(pinned.pieces().flatten().all(|&byte| byte == 7));
    drop(pinned);
    assert_eq!(file.invalidate(0..u64::MAX), 9, "two are dirty");
    file.sync().expect("well");
    let mut all = vec![0; 11 * PAGE];
    assert_eq!(file.read_at(&mut all, 0), Ok(10 * PAGE + 5));
    let want = |at: usize| if (4..6).contains(&(at / PAGE)) { 8 } else { 7 };
    assert!(all[..10 * PAGE + 5].iter().enumerate().all(|(at, &byte)| byte == want(at)));
    drop((file, cache));
    is_all_back(&arena);
}

#[test]
fn where_memory_is_in_pieces_single_frames_do() {
    let (arena, cache) = cache(1024, 256);
    let all: Vec<_> = (0..1024).map(|_| arena.alloc(&Request::frame()).expect("a frame")).collect();
    // Every other frame: no two neighbours are free.
    let kept: Vec<_> = all.into_iter().filter(|page| page.pfn().get().is_multiple_of(2)).collect();
    let file = cache.open(MemoryStore::from(vec![3; 256 * PAGE])).expect("a file");
    let mut read = vec![0; 256 * PAGE];
    assert_eq!(file.read_at(&mut read, 0), Ok(read.len()));
    assert!(read.iter().all(|&byte| byte == 3));
    assert_eq!(cache.stats().used, 256);
    drop((file, cache, kept));
    is_all_back(&arena);
}

#[test]
fn what_is_used_once_goes_in_lists() {
    let (arena, cache) = cache(1024, 256);
    let file = cache.open(MemoryStore::from(vec![3; 1000 * PAGE])).expect("a file");
    file.advise(Advice::UseOnce);
    let len = 100 * PAGE + 7;
    let mut read = vec![0; len];
    for at in 0..9 {
        assert_eq!(file.read_at(&mut read, (at * len) as u64), Ok(len));
        assert!(read.iter().all(|&byte| byte == 3));
        // What is read ahead, and the page that was read in part.
        assert!(cache.stats().used <= 64 + 2, "{:?}", cache.stats());
    }
    drop((file, cache));
    is_all_back(&arena);
}

/// Bytes that tell pages and places in them apart.
fn told_apart(pages: usize) -> Vec<u8> {
    (0..pages * PAGE).map(|at| (at / 3) as u8 ^ (at >> 12) as u8).collect()
}

#[test]
fn what_was_read_in_sequence_is_pinned_in_one_piece() {
    let (arena, cache) = cache(4096, 1024);
    let all = told_apart(256);
    let file = cache.open(MemoryStore::from(all.clone())).expect("a file");
    for (from, upto) in [(0, 64), (64 * PAGE + 1, 128), (3 * 64 * PAGE + 4000, 256)] {
        for short in [0, 1, PAGE - 1] {
            let range = from..upto.max(1) * PAGE - short;
            let pinned = file.pin(range.start as u64..range.end as u64).expect("pinned");
            assert_eq!(pinned.len(), range.len());
            assert!(pinned.as_slice() == Some(&all[range.clone()]), "{range:?}");
            assert_eq!(pinned.pieces().count(), 1);
        }
    }
    // A stream of single pages, by windows.
    file.invalidate(0..u64::MAX);
    let mut page = [0; PAGE];
    (0..256).for_each(|index| assert_eq!(file.read_at(&mut page, index * PAGE as u64), Ok(PAGE)));
    let pinned = file.pin(77..all.len() as u64 - 5).expect("pinned");
    assert!(pinned.pieces().count() <= 256 / 8, "{}", pinned.pieces().count());
    assert!(pinned.pieces().flatten().eq(&all[77..all.len() - 5]));
    drop(pinned);
    drop((file, cache));
    is_all_back(&arena);
}

#[test]
fn pages_that_are_scattered_are_a_piece_each() {
    let (arena, cache) = cache(1024, 256);
    let frames: Vec<_> =
        (0..1024).map(|_| arena.alloc(&Request::frame()).expect("a frame")).collect();
    let kept: Vec<_> =
        frames.into_iter().filter(|page| page.pfn().get().is_multiple_of(2)).collect();
    let all = told_apart(100);
    let file = cache.open(MemoryStore::from(all.clone())).expect("a file");
    let pinned = file.pin(100..99 * PAGE as u64 + 7).expect("pinned");
    let lens: Vec<usize> = pinned.pieces().map(<[u8]>::len).collect();
    assert_eq!((lens[0], lens[1], lens[99]), (PAGE - 100, PAGE, 7));
    assert_eq!((lens.len(), pinned.as_slice()), (100, None));
    assert!(pinned.pieces().flatten().eq(&all[100..99 * PAGE + 7]));
    drop(pinned);
    drop((file, cache, kept));
    is_all_back(&arena);
}

/// Neighbours are one piece if the second is the later one, and not else.
#[test]
fn pieces_are_as_long_as_the_order_of_frames_lets_them() {
    let (arena, cache) = cache(1024, 256);
    let all = told_apart(64);
    let file = cache.open(MemoryStore::from(all.clone())).expect("a file");
    file.advise(Advice::Random);
    let mut page = [0; PAGE];
    for index in (0..64).map(|turn| turn * 29 % 64).chain([0]) {
        assert_eq!(file.read_at(&mut page, index * PAGE as u64), Ok(PAGE));
    }
    let pinned = file.pin(9..all.len() as u64).expect("pinned");
    assert!(pinned.pieces().flatten().eq(&all[9..]));
    let pieces: Vec<&[u8]> = pinned.pieces().collect();
    assert!(pieces.len() > 1 && pinned.as_slice().is_none());
    for pair in pieces.windows(2) {
        assert_ne!(pair[0].as_ptr_range().end, pair[1].as_ptr(), "they could be one");
    }
    drop(pinned);
    drop((file, cache));
    is_all_back(&arena);
}
