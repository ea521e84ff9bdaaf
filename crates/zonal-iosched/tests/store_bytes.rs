//! Every byte that is read through cache, scheduler and file, beside a vector of bytes.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;
use std::thread;

use fastrand::Rng;
use zonal_cache::store::{Store, StoreError};
use zonal_cache::{Advice, Cache, CacheFile, FileStore, S3Fifo};
use zonal_cfq::units::Process;
use zonal_iosched::process::run_as;
use zonal_iosched::scheduled_store::ScheduledStore;
use zonal_iosched::scheduler::{Kind, Subject};

const PAGE: u64 = 4096;
/// Pages of the part that each thread has, and of the cache: a third of all.
const PART: u64 = 96;
const THREADS: u64 = 3;
const CACHE: usize = 96;
const STEPS: usize = 400;

/// What the store does wrong, to see that it is found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Lie {
    No,
    /// A byte of each read that has this page.
    Read,
    /// Writes of this page do not happen.
    Write,
    /// What is longer than the cache asks for at once, and so was merged, has two pages in each other's place.
    Merged,
}

/// A file, and how many requests to read it were of more than one of the cache's.
struct Liar(FileStore, Lie, Arc<AtomicU64>);

impl Store for Liar {
    fn len(&self) -> Result<u64, StoreError> {
        self.0.len()
    }
    fn read(&self, offset: u64, pages: &mut [&mut [u8]]) -> Result<u64, StoreError> {
        let got = self.0.read(offset, pages)?;
        let is_merged = pages.len() > 32;
        self.2.fetch_add(u64::from(is_merged), SeqCst);
        if self.1 == Lie::Read && offset == 40 * PAGE {
            pages[0][17] ^= 1;
        }
        if self.1 == Lie::Merged && is_merged {
            let (first, rest) = pages.split_at_mut(1);
            first[0].swap_with_slice(rest[31]);
        }
        Ok(got)
    }
    fn write(&self, offset: u64, pages: &[&[u8]]) -> Result<(), StoreError> {
        let has_it = offset <= 50 * PAGE && 50 * PAGE < offset + pages.len() as u64 * PAGE;
        if self.1 == Lie::Write && has_it {
            return Ok(());
        }
        self.0.write(offset, pages)
    }
    fn set_len(&self, len: u64) -> Result<(), StoreError> {
        self.0.set_len(len)
    }
    fn zero(&self, offset: u64, len: u64) -> Result<(), StoreError> {
        self.0.zero(offset, len)
    }
    fn flush(&self) -> Result<(), StoreError> {
        self.0.flush()
    }
}

fn differs(what: &str, at: u64, got: &[u8], expected: &[u8]) -> Result<(), String> {
    match got.iter().zip(expected).position(|(got, expected)| got != expected) {
        Some(index) => Err(format!("{what}: byte {} is {}", at + index as u64, got[index])),
        None if got.len() != expected.len() => Err(format!("{what}: {} bytes", got.len())),
        None => Ok(()),
    }
}

/// A thread's part of the file, from `start` on, and what is to be in it.
struct Part {
    file: CacheFile,
    start: u64,
    model: Vec<u8>,
    dice: Rng,
}

impl Part {
    fn step(&mut self) -> Result<(), String> {
        let all = PART * PAGE;
        let at = self.dice.u64(..all);
        let most = if self.dice.u8(..8) == 0 { 70 * PAGE } else { 3 * PAGE };
        let len = self.dice.u64(1..=most).min(all - at);
        let range = at as usize..(at + len) as usize;
        let error = |error| format!("{error:?}");
        match self.dice.u8(..20) {
            0..=8 => self.read(at, len as usize),
            9..=15 => {
                let mut bytes = vec![0; len as usize];
                self.dice.fill(&mut bytes);
                self.file.write_at(&bytes, self.start + at).map_err(error)?;
                self.model[range].copy_from_slice(&bytes);
                Ok(())
            }
            16 => self.file.sync().map_err(error),
            // Several requests that follow each other, as far as there is room.
            17 => {
                self.file.invalidate(self.start..self.start + all);
                self.file.will_need(self.start..self.start + all);
                (0..PART / 4).try_for_each(|piece| self.read(piece * 4 * PAGE, 4 * 4096))
            }
            // From front to back, with windows.
            18 => (0..PART / 4).try_for_each(|piece| self.read(piece * 4 * PAGE, 4 * 4096)),
            _ => {
                self.file.zero_range(self.start + at..self.start + at + len).map_err(error)?;
                self.model[range].fill(0);
                Ok(())
            }
        }
    }

    fn read(&self, at: u64, len: usize) -> Result<(), String> {
        let mut bytes = vec![0xee; len];
        let got = self.file.read_at(&mut bytes, self.start + at);
        let got = got.map_err(|error| format!("{error:?}"))?;
        differs("read", self.start + at, &bytes[..got], &self.model[at as usize..][..len])
    }
}

/// Random reads and writes by several threads; how many requests were merged, or what was wrong.
fn run(kind: Kind, lie: Lie, seed: u64, path: &Path) -> Result<u64, String> {
    let content: Vec<u8> = (0..THREADS * PART * PAGE).map(|at| (at / 509) as u8).collect();
    std::fs::write(path, &content).map_err(|error| error.to_string())?;
    let merged = Arc::default();
    let inner = Liar(FileStore::open(path).expect("it is there"), lie, Arc::clone(&merged));
    let store = ScheduledStore::new(inner, Subject::new(kind).policy(), 3).expect("threads");
    let builder = Cache::<S3Fifo>::builder().memory(CACHE << 12).window(96).io_threads(0);
    let cache = builder.open().expect("a cache");
    let file = cache.open(store).expect("a file");
    file.advise(Advice::Sequential);
    let part = |number: u64| Part {
        file: file.clone(),
        start: number * PART * PAGE,
        model: content[(number * PART * PAGE) as usize..][..(PART * PAGE) as usize].to_vec(),
        dice: Rng::with_seed(seed + number),
    };
    let work = |number: u64| {
        let mut part = part(number);
        run_as(Process(number as u32), || (0..STEPS).try_for_each(|_| part.step()))?;
        Ok(part.model)
    };
    let models: Vec<Result<Vec<u8>, String>> = thread::scope(|scope| {
        let threads: Vec<_> =
            (0..THREADS).map(|number| scope.spawn(move || work(number))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    let models = models.into_iter().collect::<Result<Vec<_>, _>>()?.concat();
    file.sync().map_err(|error| format!("{error:?}"))?;
    differs("file", 0, &std::fs::read(path).expect("it is there"), &models)?;
    Ok(merged.load(SeqCst))
}

const KINDS: [Kind; 3] = [Kind::Cfq, Kind::Deadline, Kind::Noop];

#[test]
fn every_byte_is_what_was_written_with_each_scheduler() {
    let directory = tempfile::tempdir().expect("a directory");
    for kind in KINDS {
        let merged: u64 = (1..=3)
            .map(|seed| run(kind, Lie::No, seed * 100, &directory.path().join("file")))
            .map(|result| result.unwrap_or_else(|wrong| panic!("{kind:?}: {wrong}")))
            .sum();
        assert!(merged > 0, "{kind:?}: the run is to have merged requests");
    }
}

/// The canary: a store that lies is found, whatever it lies about, within three runs.
#[test]
fn a_store_that_lies_is_found() {
    let directory = tempfile::tempdir().expect("a directory");
    for lie in [Lie::Read, Lie::Write, Lie::Merged] {
        let file = directory.path().join("file");
        let found = (1..=3).any(|seed| run(Kind::Deadline, lie, seed * 100, &file).is_err());
        assert!(found, "{lie:?}");
    }
}
