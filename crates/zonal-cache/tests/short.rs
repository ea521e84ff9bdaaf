//! A store that reads less than it was asked for: it is asked for the rest, and a reader is told of what is not there.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use zonal_cache::faulty_store::{Operation, Outcome};
use zonal_cache::store::StoreError;
use zonal_cache::{Cache, CacheError, CacheFile, FaultyStore, MemoryStore, S3Fifo};

const PAGE: usize = 4096;
const PAGES: usize = 20;
/// The last page is one in part.
const LEN: usize = PAGES * PAGE - 300;

fn bytes() -> Vec<u8> {
    (0..LEN).map(|at| (at / 7) as u8 ^ (at >> 12) as u8).collect()
}

/// A file whose store answers requests to read as `reads` says, which is given how many came before and the offset.
fn open(
    cache: &Cache<S3Fifo>,
    reads: impl Fn(u64, u64) -> Outcome + Send + Sync + 'static,
) -> CacheFile<S3Fifo> {
    let before = AtomicU64::new(0);
    let outcome = move |operation| match operation {
        Operation::Read { offset, .. } => reads(before.fetch_add(1, SeqCst), offset),
        _ => Outcome::Whole,
    };
    cache.open(FaultyStore::new(MemoryStore::from(bytes()), outcome)).expect("a file")
}

fn cache() -> Cache<S3Fifo> {
    // All of the file is one request.
    Cache::builder().memory(256 * PAGE).io_threads(0).open().expect("a cache")
}

#[test]
fn a_read_that_stops_in_the_middle_is_read_on() {
    for most in [1, 100, PAGE - 1, PAGE, PAGE + 1, 5000, 7 * PAGE, LEN - 1] {
        for ahead in [false, true] {
            let cache = cache();
            let file = open(&cache, move |before, _| match before {
                0 => Outcome::Short(most as u64),
                _ => Outcome::Whole,
            });
            if ahead {
                file.will_need(0..LEN as u64);
                assert_eq!((cache.stats().reads, cache.stats().used), (2, PAGES), "{most}");
            }
            let mut got = vec![0; LEN + 1];
            assert_eq!(file.read_at(&mut got, 0), Ok(LEN), "{most}");
            assert!(got[..LEN] == bytes(), "{most}");
            let stats = cache.stats();
            assert_eq!(
                (stats.reads, stats.read),
                (2, PAGES as u64),
                "{most}: once more, for the rest"
            );
        }
    }
}

#[test]
fn a_store_that_has_a_piece_at_a_time_is_read_to_the_end() {
    let cache = cache();
    let file = open(&cache, |_, _| Outcome::Short(3 * PAGE as u64 + 100));
    let pinned = file.pin(0..LEN as u64).expect("pinned");
    assert!(pinned.pieces().flatten().eq(&bytes()));
    assert_eq!(cache.stats().reads, PAGES.div_ceil(3) as u64);
}

#[test]
fn the_rest_of_a_page_that_is_written_in_part_is_read_on() {
    let file = open(&cache(), |before, _| match before {
        0 => Outcome::Short(2000),
        _ => Outcome::Whole,
    });
    assert_eq!(file.write_at(&[1; 10], 3 * PAGE as u64 + 50), Ok(10));
    let mut want = bytes();
    want[3 * PAGE + 50..][..10].fill(1);
    let mut got = vec![0; LEN];
    assert_eq!(file.read_at(&mut got, 0), Ok(LEN));
    assert!(got == want);
}

#[test]
fn a_read_that_gets_no_further_is_an_error_of_its_range() {
    const BAD: u64 = 5 * PAGE as u64;
    // At the begin of a page, and in the middle of one, of which a read begins anew.
    for part in [0, 700] {
        let bad = Arc::new(AtomicBool::new(true));
        let cache = cache();
        let file = open(&cache, {
            let bad = bad.clone();
            move |_, offset| match (BAD + part).checked_sub(offset) {
                Some(there) if bad.load(SeqCst) => Outcome::Short(there),
                _ => Outcome::Whole,
            }
        });
        let mut got = vec![0; LEN];
        let want = bytes();
        assert_eq!(file.read_at(&mut got, 0), Ok(BAD as usize), "up to the bad page");
        assert!(got[..BAD as usize] == want[..BAD as usize]);
        let shrunk = CacheError::Store(StoreError::SHRUNK);
        for _ in 0..2 {
            assert_eq!(file.read_at(&mut got, BAD + 1), Err(shrunk));
            assert_eq!(file.pin(BAD..BAD + 1).err(), Some(shrunk));
            assert_eq!(file.write_at(&[1], BAD), Err(shrunk));
            let next = BAD as usize + PAGE;
            assert_eq!(file.read_at(&mut got, next as u64), Ok(LEN - next));
            assert!(got[..LEN - next] == want[next..]);
        }
        bad.store(false, SeqCst);
        assert_eq!(file.read_at(&mut got, 0), Ok(LEN));
        assert!(got == want, "it is there again");
    }
}
