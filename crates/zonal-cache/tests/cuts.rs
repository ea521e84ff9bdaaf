//! The store is cut off between any two of its operations, and then the power: what lasts is what was promised.
//!
//! A script is run once to count the operations of its store, and then again for each of them: from there on the store
//! refuses all, and what it has not been told to keep may be lost, page by page.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use zonal_cache::evict::Evict;
use zonal_cache::store::{Store, StoreError};
use zonal_cache::{Cache, CacheFile, MemoryStore, MultiGen, S3Fifo, Sieve, TwoLists};

const PAGE: u64 = 4096;
/// Pages that the file has at most: more than the cache.
const PAGES: u64 = 30;
const STEPS: usize = 40;

/// A store that is cut off after some operations; `forgets`: it does not keep what it is told to.
struct Cut {
    memory: MemoryStore,
    left: AtomicU64,
    forgets: bool,
}

impl Cut {
    fn new(left: u64, forgets: bool) -> Arc<Self> {
        Arc::new(Self { memory: MemoryStore::default(), left: AtomicU64::new(left), forgets })
    }

    fn may(&self) -> Result<(), StoreError> {
        let one_less = self.left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1));
        one_less.map(drop).map_err(|_| StoreError::IO)
    }

    fn is_off(&self) -> bool {
        self.left.load(Relaxed) == 0
    }
}

impl Store for Cut {
    fn len(&self) -> Result<u64, StoreError> {
        self.memory.len()
    }
    fn read(&self, offset: u64, pages: &mut [&mut [u8]]) -> Result<u64, StoreError> {
        self.may()?;
        self.memory.read(offset, pages)
    }
    fn write(&self, offset: u64, pages: &[&[u8]]) -> Result<(), StoreError> {
        self.may()?;
        self.memory.write(offset, pages)
    }
    fn set_len(&self, len: u64) -> Result<(), StoreError> {
        self.may()?;
        self.memory.set_len(len)
    }
    fn flush(&self) -> Result<(), StoreError> {
        self.may()?;
        if self.forgets { Ok(()) } else { self.memory.flush() }
    }
}

/// What the file is, and all that it was since it was last made to last.
struct Model {
    now: Vec<u8>,
    was: Vec<Vec<u8>>,
}

fn byte(bytes: &[u8], at: usize) -> u8 {
    bytes.get(at).copied().unwrap_or(0)
}

impl Model {
    fn change(&mut self, change: impl FnOnce(&mut Vec<u8>)) {
        change(&mut self.now);
        self.was.push(self.now.clone());
    }

    /// A range lasts as it is now.
    fn lasts(&mut self, range: Range<usize>) {
        let end = range.end.min(self.now.len());
        for was in &mut self.was {
            was.resize(was.len().max(end), 0);
            if range.start < end {
                was[range.start..end].copy_from_slice(&self.now[range.start..end]);
            }
        }
    }

    fn check(&self, durable: &[u8]) -> Result<(), String> {
        let longest = self.was.iter().map(Vec::len).max().unwrap_or(0);
        if durable.len() > longest {
            return Err(format!(
                "{} bytes last, and it never had more than {longest}",
                durable.len()
            ));
        }
        let was_never = |&at: &usize| self.was.iter().all(|was| byte(was, at) != byte(durable, at));
        (0..longest).find(was_never).map_or(Ok(()), |at| Err(format!("byte {at} was never so")))
    }
}

fn next(state: &mut u64, below: u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) % below
}

fn step<E: Evict>(file: &CacheFile<E>, model: &mut Model, dice: &mut u64, number: usize) {
    let (what, at) = (next(dice, 12), next(dice, PAGES * PAGE));
    let len = 1 + next(dice, 5 * PAGE);
    match what {
        0..6 => {
            let data = vec![number as u8 + 1; len as usize];
            let done = file.write_at(&data, at).unwrap_or(0);
            if done > 0 {
                model.change(|bytes| {
                    let (from, to) = (at as usize, at as usize + done);
                    bytes.resize(bytes.len().max(to), 0);
                    bytes[from..to].copy_from_slice(&data[..done]);
                });
            }
        }
        6 => {
            if file.sync().is_ok() {
                model.was = vec![model.now.clone()];
            }
        }
        7 => {
            if file.sync_range(at..at + len).is_ok() {
                model.lasts(at as usize..(at + len) as usize);
            }
        }
        // It may have reached the store whether or not it went well.
        8 => {
            let _ = file.truncate(at);
            model.change(|bytes| bytes.resize(at as usize, 0));
        }
        9 => {
            let end = (at / PAGE + 3).min(file.len() / PAGE) * PAGE;
            let range = (at / PAGE * PAGE).min(end)..end;
            let _ = file.zero_range(range.clone());
            model.change(|bytes| bytes[range.start as usize..range.end as usize].fill(0));
        }
        10 => {
            file.invalidate(0..u64::MAX);
        }
        _ => {
            let _ = file.read_at(&mut vec![0; len as usize], at);
        }
    }
}

/// Runs the script of a seed with a store that is cut off after `left` operations; how many are left. `keeps` of three: none
/// of what was not flushed, all, or some.
fn run<E: Evict>(seed: u64, left: u64, keeps: u64, forgets: bool) -> Result<u64, String> {
    let cache = Cache::<E>::builder().memory(16 * PAGE as usize).io_threads(0).window(8);
    let cache = cache.open().expect("a cache");
    let store = Cut::new(left, forgets);
    let file = cache.open(store.clone()).expect("a file");
    let mut model = Model { now: Vec::new(), was: vec![Vec::new()] };
    let mut dice = seed;
    for number in 0..STEPS {
        step(&file, &mut model, &mut dice, number);
        if store.is_off() {
            break;
        }
    }
    let left = store.left.load(Relaxed);
    let mut coin = seed ^ left ^ 0x55;
    store.memory.cut_power(|_| match keeps {
        0 => false,
        1 => true,
        _ => next(&mut coin, 2) == 0,
    });
    model.check(&store.memory.durable())?;
    Ok(left)
}

fn at_every_operation<E: Evict>(forgets: bool) -> Result<u64, String> {
    let mut cuts = 0;
    for seed in 1..6 {
        let all = u64::MAX - run::<E>(seed, u64::MAX, 1, forgets)?;
        for (left, keeps) in (0..all).flat_map(|left| (0..3).map(move |keeps| (left, keeps))) {
            let context = |error| format!("seed {seed}, cut after {left}, keeps {keeps}: {error}");
            run::<E>(seed, left, keeps, forgets).map_err(context)?;
        }
        cuts += all;
    }
    Ok(cuts)
}

fn check<E: Evict>() {
    let cuts = at_every_operation::<E>(false).unwrap_or_else(|error| panic!("{error}"));
    assert!(cuts > 200, "{cuts} operations");
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

#[test]
fn canary_a_store_that_keeps_nothing_is_found() {
    assert!(at_every_operation::<S3Fifo>(true).is_err());
}
