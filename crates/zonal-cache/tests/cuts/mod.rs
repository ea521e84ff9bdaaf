//! The store is cut off between any two of its operations, and then its process or the power: what it has, and what lasts,
//! is what was promised.
//!
//! A script is run once to count the operations of its store, where each page is one, and then again for each of them: from
//! there on the store refuses all, or some and is back. If all ends but the store, it has what it was given; if the power
//! goes, what it has not been told to keep may be lost, page by page. Both are held against a [model] with two halves. Where
//! threads of the cache write behind, other operations come before the cut each time. A store of which several requests are on
//! their way at once is cut off in [`late`], and a real file with a ring in [`ringed`].
//!
//! Bound: five scripts of 40 steps, 70 operations each, and three ways to end, for each policy and kind of store; all take
//! 9 s of a CPU.

mod late;
mod model;
mod order;
mod ringed;
mod store;
mod switch;

use model::{Model, PAGE, PAGES};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use store::{Cut, Lie};
use switch::Cuts;
use zonal_cache::evict::Evict;
use zonal_cache::{Cache, CacheFile, MultiGen, S3Fifo, Sieve, TwoLists};

const STEPS: usize = 40;
/// Where the file ends at most, but for what a write makes of it.
const MOST: u64 = (PAGES as u64 - 6) * PAGE as u64;

fn next(state: &mut u64, below: u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) % below
}

/// One step. `false` if what the file is can not be said any more.
fn step<E: Evict>(file: &CacheFile<E>, model: &mut Model, dice: &mut u64, number: usize) -> bool {
    let (what, at) = (next(dice, 16), next(dice, MOST));
    let len = 1 + next(dice, 5 * PAGE as u64);
    let (range, bytes) = (at..at + len, at as usize..(at + len) as usize);
    match what {
        0..6 => {
            let data = vec![number as u8 + 1; len as usize];
            let done = file.write_at(&data, at).unwrap_or(0);
            if done > 0 {
                model.write(at as usize, &data[..done]);
            }
        }
        6 if file.sync().is_ok() => model.all_kept(),
        7 if file.sync_range(range.clone()).is_ok() => model.kept(bytes),
        8 if file.write_back().is_ok() => model.given(),
        9 | 10 if file.truncate(at).is_ok() => model.cut(at as usize),
        11 | 12 => {
            // Whole pages, or what there is.
            let page = PAGE as u64;
            let range = if what == 11 { at / page * page..(at / page + 3) * page } else { range };
            let bytes = range.start as usize..range.end as usize;
            if file.zero_range(range).is_err() {
                model.may_be_zero(bytes);
                return false;
            }
            model.zero(bytes);
        }
        13 => {
            file.invalidate(0..u64::MAX);
            // On its way in the next steps, where reads are.
            file.will_need(range);
        }
        14 => {
            file.write_older(Duration::ZERO);
        }
        15 => {
            let _ = file.read_at(&mut vec![0; len as usize], at);
        }
        _ => {}
    }
    true
}

/// How a script is run.
#[derive(Clone, Copy)]
struct Way {
    lie: Lie,
    /// Pages that the cache has.
    pages: usize,
    /// Writes that the store has on their way at once.
    at_once: usize,
    /// How many operations it refuses before it is back; `u64::MAX` for all.
    refuses: u64,
    /// Whether threads of the cache write behind.
    threads: bool,
}

/// By one thread and one by one, until all is refused.
const PLAIN: Way = Way { lie: Lie::No, pages: 16, at_once: 1, refuses: u64::MAX, threads: false };

/// What is left of a store: all that it was given, or none, or some of what it was not told to keep.
const KEEPS: Range<u64> = 0..3;

/// What came of runs.
#[derive(Default, Debug)]
struct Ran {
    /// Operations of the store, where it was not cut off.
    asked: u64,
    /// Batches that it made in part.
    parted: usize,
    /// Writes that threads of the cache asked for.
    aside: usize,
    /// Writes of several at once that were made, and of which the store did not say so.
    unsaid: usize,
    /// Reads that were on their way while the cache went on.
    reads: usize,
}

/// Runs the script of a seed with a store that is cut off, and holds what is left of it against the model.
fn play<E: Evict, T: Cuts>(way: Way, seed: u64, keeps: u64, store: &Arc<T>) -> Result<(), String> {
    let cache =
        Cache::<E>::builder().memory(way.pages * PAGE).window(8).io_threads(way.threads.into());
    let behind = Duration::from_millis(10);
    let cache = if way.threads { cache.background_percent(10).write_behind(behind) } else { cache };
    // More for a batch, where there are such.
    let cache = cache.dirty_percent(if way.at_once > 1 { 90 } else { 40 });
    let cache = cache.open().expect("a cache");
    let file = cache.open(store.clone()).expect("a file");
    let (mut model, mut dice) = (Model::new(), seed);
    let mut number = 0;
    let switch = store.switch();
    let whole = loop {
        if switch.is_off() || number == STEPS {
            break !switch.is_off();
        }
        if !step(&file, &mut model, &mut dice, number) {
            break false;
        }
        number += 1;
    };
    if whole && way.refuses < u64::MAX {
        // Once to be told of what went wrong before.
        let _ = file.sync();
        if file.sync().is_ok() {
            model.all_kept();
        }
    } else if whole {
        // A file that is closed gives its store all.
        drop(file);
        if !switch.has_refused() {
            model.given();
        }
    }
    let mut coin = seed ^ switch.after() ^ 0x55;
    let left = store.left(&mut |_| match keeps {
        0 => true,
        1 => false,
        _ => next(&mut coin, 2) == 0,
    });
    model.check(keeps > 0, &left)
}

/// Where a store is cut off, and what is left of it then.
#[derive(Clone, Copy)]
struct End {
    after: u64,
    keeps: u64,
}

impl Way {
    /// The operations that a store refuses.
    fn off(self, end: End) -> Range<u64> {
        end.after..end.after.saturating_add(self.refuses)
    }
}

/// Runs a script with a store in memory.
fn run<E: Evict>(way: Way, seed: u64, end: End) -> Result<Ran, String> {
    let store = Cut::new(way.off(end), way.at_once, way.lie);
    play::<E, _>(way, seed, end.keeps, &store)?;
    let count = |count: &AtomicUsize| count.load(Relaxed);
    let (parted, aside) = (count(&store.parted), count(&store.aside));
    Ok(Ran { asked: store.switch().asked(), parted, aside, ..Ran::default() })
}

/// Runs scripts whose store is cut off after each number of operations, as `run` runs one.
fn at_every_operation(
    seeds: Range<u64>,
    run: impl Fn(u64, End) -> Result<Ran, String>,
) -> Result<Ran, String> {
    let mut total = Ran::default();
    for seed in seeds {
        let all = run(seed, End { after: u64::MAX, keeps: 0 })?.asked;
        for (after, keeps) in (0..all).flat_map(|after| KEEPS.map(move |keeps| (after, keeps))) {
            let context = |error| format!("seed {seed}, cut after {after}, keeps {keeps}: {error}");
            let ran = run(seed, End { after, keeps }).map_err(context)?;
            total.parted += ran.parted;
            total.aside += ran.aside;
            total.unsaid += ran.unsaid;
            total.reads += ran.reads;
        }
        total.asked += all;
    }
    Ok(total)
}

/// What came of runs in which all was as it was promised.
fn well<E: Evict>(way: Way, seeds: Range<u64>) -> Ran {
    at_every_operation(seeds, |seed, end| run::<E>(way, seed, end))
        .unwrap_or_else(|error| panic!("{error}"))
}

fn check<E: Evict>() {
    let ran = well::<E>(PLAIN, 1..6);
    assert!(ran.asked > 200, "{ran:?}");
}

#[test]
fn two_lists() {
    check::<TwoLists>();
}

#[test]
fn s3_fifo() {
    check::<S3Fifo>();
}

#[test]
fn sieve() {
    check::<Sieve>();
}

#[test]
fn multi_gen() {
    check::<MultiGen>();
}

/// Of several writes that are on their way together some are made.
#[test]
fn batches() {
    let ran = well::<S3Fifo>(Way { at_once: 3, ..PLAIN }, 1..6);
    assert!(ran.parted > 100, "{ran:?}");
}

/// The store is back after some operations, and then all is kept that was written before and after.
#[test]
fn a_store_that_comes_back() {
    let ran = well::<S3Fifo>(Way { refuses: 3, ..PLAIN }, 1..6);
    assert!(ran.asked > 200, "{ran:?}");
    let ran = well::<S3Fifo>(Way { refuses: 3, at_once: 3, ..PLAIN }, 1..6);
    assert!(ran.parted > 100, "{ran:?}");
}

/// Threads of the cache write what is dirty meanwhile: no two runs are the same.
#[test]
fn threads_that_write_behind() {
    let way = Way { at_once: 3, threads: true, ..PLAIN };
    let ran = well::<S3Fifo>(way, 1..3);
    assert!(ran.aside > 200, "{ran:?}");
    let ran = well::<S3Fifo>(Way { refuses: 3, ..way }, 3..5);
    assert!(ran.aside > 200, "{ran:?}");
}

/// What the model says of a store that lies.
fn found(way: Way) -> String {
    let error = at_every_operation(1..6, |seed, end| run::<S3Fifo>(way, seed, end)).err();
    error.unwrap_or_else(|| panic!("{:?} was not found", way.lie))
}

#[test]
fn canary_a_store_that_keeps_nothing_is_found() {
    let error = found(Way { lie: Lie::Flush, ..PLAIN });
    assert!(error.contains("it keeps"), "{error}");
}

#[test]
fn canaries_of_what_the_store_was_given() {
    for lie in [Lie::Cut, Lie::Zero, Lie::Back, Lie::Together] {
        let error = found(Way { lie, at_once: 3, ..PLAIN });
        assert!(error.contains("it was given"), "{lie:?}: {error}");
    }
}

#[test]
fn canaries_beside_threads_that_write_behind() {
    for lie in [Lie::Flush, Lie::Cut, Lie::Back, Lie::Together] {
        found(Way { lie, at_once: 3, threads: true, ..PLAIN });
    }
}
