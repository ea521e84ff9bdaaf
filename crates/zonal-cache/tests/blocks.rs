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
