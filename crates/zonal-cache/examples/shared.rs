//! Readers under full load and other users of the same arena: how much of the reclaim is in the middle of requests
//! (direct), without and with a thread that reclaims in the background. Every byte that is read is looked at, and a request
//! that fails while clean pages are there ends it. The free memory is looked at all the time: it does not fall below the
//! min mark by more than what these threads may overdraw by together.
//!
//! ```text
//! cargo run --release -p zonal-cache --example shared -- 10          # seconds for each of the two
//! cargo run --release -p zonal-cache --example shared -- 10 2048     # and frames below the min mark
//! cargo run --release -p zonal-cache --example shared -- 10 256 two-lists    # or sieve, multi-gen
//! ```

#[path = "../tests/watched/mod.rs"]
mod watched;

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;
use watched::{overdraft, watch};
use zonal::watermark::{MinFree, WatermarkConfig};
use zonal::{Request, ZoneId};
use zonal_cache::cache::Options;
use zonal_cache::evict::Evict;
use zonal_cache::threads::{OnThreads, Threads};
use zonal_cache::{
    ArenaFrames, Cache, CacheFile, MemoryStore, MultiGen, PageCache, Reclaimer, S3Fifo, Shrinker,
    Sieve, TwoLists,
};
use zonal_host::Arena;

const PAGE: usize = 4096;
/// Frames of the arena: 64 MiB.
const FRAMES: usize = 16_384;
/// Pages of the file.
const PAGES: usize = 2 * FRAMES;
/// Frames that a user takes, and how many of these before it rests.
const TAKEN: usize = FRAMES / 4;
const BURST: usize = 256;
const REST: Duration = Duration::from_micros(500);

/// What is done besides.
#[derive(Default)]
struct Done {
    over: AtomicBool,
    read: AtomicU64,
    taken: AtomicU64,
}

fn reads<E: Evict>(file: &CacheFile<E>, done: &Done, start: usize) {
    let (mut at, mut page) = (start, [0; PAGE]);
    while !done.over.load(Relaxed) {
        at = (at * 5 + 13) % PAGES;
        assert_eq!(file.read_at(&mut page, (at * PAGE) as u64), Ok(PAGE));
        assert!(page.iter().all(|&byte| byte == (at % 251) as u8), "page {at} is another");
        done.read.fetch_add(1, Relaxed);
    }
}

fn takes(arena: &Arena, done: &Done) {
    while !done.over.load(Relaxed) {
        let mut pages = Vec::new();
        while pages.len() < TAKEN && !done.over.load(Relaxed) {
            for _ in 0..BURST {
                pages.push(arena.alloc(&Request::frame()).expect("clean pages are there"));
            }
            done.taken.fetch_add(BURST as u64, Relaxed);
            thread::sleep(REST);
        }
    }
}

fn run<E: Evict>(with: bool, time: Duration, min_free: u64) -> Result<(), Box<dyn Error>> {
    let shrinker = Arc::new(Shrinker::new());
    let marks =
        WatermarkConfig { min_free: MinFree::Frames(min_free), scale_factor: 500, boost_factor: 0 };
    let arena = Arena::builder().bytes(FRAMES * PAGE).watermarks(marks).pager(shrinker.clone());
    let arena = Arc::new(arena.open()?);
    let options = Options { pages: FRAMES, ..Options::default() };
    let frames = ArenaFrames::new(arena.clone());
    let cache: Cache<E> =
        PageCache::<OnThreads<E>>::with_parts(Threads::with_io_threads(1)?, frames, options)?;
    shrinker.attach(&cache);
    let reclaimer = with.then(|| Reclaimer::start(arena.clone(), shrinker.clone())).transpose()?;
    let bytes = (0..PAGES).flat_map(|page| [(page % 251) as u8; PAGE]);
    let file = cache.open(MemoryStore::from(bytes.collect::<Vec<u8>>()))?;
    file.read_at(&mut vec![0; FRAMES * PAGE], 0)?;
    let (before, zone, done) = (cache.stats(), cache.reclaim_by_zone()[0], Done::default());
    let overdraft = overdraft(&arena, ZoneId(0), 5);
    let seen = thread::scope(|scope| {
        let watcher = scope.spawn(|| watch(&arena, ZoneId(0), &done.over));
        for start in [1, 777] {
            let (file, done) = (file.clone(), &done);
            scope.spawn(move || reads(&file, done, start));
        }
        for _ in 0..2 {
            scope.spawn(|| takes(&arena, &done));
        }
        thread::sleep(time);
        done.over.store(true, Relaxed);
        watcher.join().expect("it looks only")
    });
    let (stats, after) = (cache.stats(), cache.reclaim_by_zone()[0]);
    let (direct, background) = after.velocity_since(&zone);
    println!(
        "{:<11}{:>12}{:>12}{:>12}{:>12.1}{direct:>14.0}{background:>14.0}{:>12}{:>10.3}",
        if with { "background" } else { "direct only" },
        done.read.load(Relaxed),
        done.taken.load(Relaxed),
        stats.direct - before.direct,
        (stats.direct_nanos - before.direct_nanos) as f64 / 1e6,
        seen.least,
        seen.below as f64 * 100.0 / seen.looks as f64,
    );
    assert!(seen.least < seen.low, "that is no load: {seen:?}");
    seen.assert_kept(overdraft);
    let level = arena.zone_level(ZoneId(0)).ok_or("no zone")?;
    assert!(level.0 > 0 && stats.used <= stats.bound);
    reclaimer.into_iter().for_each(Reclaimer::stop);
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let seconds = std::env::args().nth(1).map_or(Ok(10), |it| it.parse())?;
    let min_free = std::env::args().nth(2).map_or(Ok(256), |it| it.parse())?;
    let policy = std::env::args().nth(3).unwrap_or_else(|| "s3-fifo".to_owned());
    println!(
        "64 MiB, {policy}, {seconds} s each, no request failed; velocity in pages looked at a second;"
    );
    println!("the least that was free, with a min mark of {min_free}, and % of looks below that\n");
    println!(
        "reclaim    pages read      frames      direct   ms direct  vel. direct  vel. beside   least free   % below"
    );
    let run = match policy.as_str() {
        "s3-fifo" => run::<S3Fifo>,
        "two-lists" => run::<TwoLists>,
        "sieve" => run::<Sieve>,
        "multi-gen" => run::<MultiGen>,
        other => return Err(format!("{other} is no eviction policy").into()),
    };
    [false, true].into_iter().try_for_each(|with| run(with, Duration::from_secs(seconds), min_free))
}
