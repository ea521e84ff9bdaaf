//! A workload through a page cache over a scheduler over a real file: a thread for each context, which reads and
//! writes a file of the cache.
//!
//! ```
//! use zonal_cfq::units::Sector;
//! use zonal_iosched::cached::run;
//! use zonal_iosched::scheduler::{Kind, Subject};
//! use zonal_iosched::workload::Workload;
//!
//! let path = std::env::temp_dir().join(format!("zonal-cached-{}", std::process::id()));
//! # std::fs::write(&path, vec![7; 4 << 20])?;
//! let workload = Workload::readers(2, 4 << 20, Sector(8192))?;
//! let outcome = run(&Subject::new(Kind::Cfq), &path, workload, 2, 8 << 20)?;
//! assert_eq!(outcome.shares.iter().map(|share| share.bytes).sum::<u64>(), 4 << 20);
//! assert_eq!(outcome.cache.expect("there is one").read, 1024);
//! # std::fs::remove_file(&path)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, Builder};
use std::time::{Duration, Instant};

use zonal_cache::store::StoreError;
use zonal_cache::{Cache, CacheError, CacheFile, FileStore, S3Fifo};
use zonal_cfq::request::Direction;
use zonal_cfq::units::Process;
use zonal_cli::interrupt;

use crate::error::IoschedError;
use crate::figures::{CacheFigures, Outcome};
use crate::process::run_as;
use crate::scheduled_store::ScheduledStore;
use crate::scheduler::Subject;
use crate::target_file::Buffer;
use crate::threads::{run_context, span};
use crate::workload::{Ask, Context, Workload};

/// How old what is dirty becomes before it is written back.
const AGE: Duration = Duration::from_secs(5);
const PAGE: u64 = 4096;

/// What a context does its work with.
struct Client<'run> {
    file: CacheFile,
    store: &'run ScheduledStore<FileStore>,
    buffer: Buffer,
    begun: Instant,
    limit: Option<Duration>,
}

impl Client<'_> {
    /// Does what a context asks for; how many pages it read.
    fn ask(&mut self, ask: &Ask) -> Result<u64, CacheError> {
        let Some(direction) = ask.direction else { return self.file.sync().map(|()| 0) };
        let (at, bytes) = (ask.start.bytes(), ask.sectors.bytes());
        let data = self.buffer.bytes(bytes as usize);
        let mut done = 0;
        while done < data.len() {
            let (rest, at) = (&mut data[done..], at + done as u64);
            let moved = match direction {
                Direction::Read => self.file.read_at(rest, at)?,
                Direction::Write => self.file.write_at(rest, at)?,
            };
            if moved == 0 {
                // It was longer when the run began.
                return Err(StoreError::SHRUNK.into());
            }
            done += moved;
        }
        Ok(if direction == Direction::Read { bytes / PAGE } else { 0 })
    }

    /// Runs a context to its end, the limit or its first error; how many pages it read.
    fn run(&mut self, context: Context, names: &[String]) -> Result<(Outcome, u64), IoschedError> {
        let (mut pages, mut process) = (0, None);
        let outcome = run_context(context, names, (self.begun, self.limit), |ask| {
            process = Some(ask.process);
            pages += run_as(ask.process, || self.ask(ask)).map_err(|error| failed(&error))?;
            Ok(())
        })?;
        // The scheduler does not wait for it any more.
        process.into_iter().for_each(|process: Process| self.store.exited(process));
        Ok((outcome, pages))
    }
}

fn failed(error: &CacheError) -> IoschedError {
    IoschedError::Failed { failed: 1, first: error.to_string() }
}

/// Runs a workload to its end or its limit, through a cache of `bytes` bytes, with `depth` requests at the file at a
/// time, around the kernel's page cache if the file system lets it. What is dirty in the end is written back before this
/// returns, and is not in the time.
///
/// # Errors
///
/// [`IoschedError::File`], [`IoschedError::Cache`], [`IoschedError::Thread`], and [`IoschedError::Failed`] with the first error of a process.
pub fn run(
    subject: &Subject,
    path: &Path,
    workload: Workload,
    depth: usize,
    bytes: usize,
) -> Result<Outcome, IoschedError> {
    let cannot = |source| IoschedError::File { what: "open", path: path.into(), source };
    let open = if workload.writes { FileStore::open } else { FileStore::open_read_only };
    let store = ScheduledStore::new(open(path).map_err(cannot)?, subject.policy(), depth);
    let store = Arc::new(store.map_err(IoschedError::Thread)?);
    // What is read ahead takes no thread: the store begins it.
    let builder = Cache::<S3Fifo>::builder().memory(bytes).io_threads(0).write_behind(AGE);
    let no_cache = |source| IoschedError::Cache { bytes: bytes as u64, source };
    let cache = builder.open().map_err(no_cache)?;
    let unread = |error: CacheError| cannot(io::Error::other(error.to_string()));
    let file = cache.open(Arc::clone(&store)).map_err(unread)?;
    let (begun, names) = (Instant::now(), &workload.names[..]);
    let limit = workload.limit.map(|limit| Duration::from_nanos(limit.0));
    let results = thread::scope(|scope| {
        let contexts = workload.contexts.into_iter().map(|context| {
            let (file, store) = (file.clone(), &*store);
            let mut buffer = Buffer::new(256 << 10);
            // What is written is not what the file has.
            fastrand::Rng::with_seed(2).fill(buffer.bytes(256 << 10));
            let mut client = Client { file, store, buffer, begun, limit };
            Builder::new().spawn_scoped(scope, move || client.run(context, names))
        });
        let contexts = contexts.collect::<io::Result<Vec<_>>>();
        if contexts.is_err() {
            // Those that began find that it is over.
            store.stop();
        }
        contexts.map(|contexts| {
            let joined =
                contexts.into_iter().map(|it| it.join().unwrap_or(Err(IoschedError::Panicked)));
            joined.collect::<Vec<_>>()
        })
    });
    let results = results.map_err(IoschedError::Thread)?;
    let mut outcome = Outcome::new(names);
    outcome.elapsed = span(begun.elapsed());
    (outcome.counters, outcome.idled) = (store.counters(), store.idled());
    let mut figures = CacheFigures::default();
    (figures.read, figures.ahead) = (cache.stats().read, cache.stats().ahead);
    let written = if interrupt::is_requested() {
        // The run is not shown: what is dirty is not waited for.
        store.stop();
        Ok(())
    } else {
        file.sync()
    };
    drop((file, cache));
    store.stop();
    for result in results {
        let (own, pages) = result?;
        outcome.extend(own);
        figures.asked += pages;
    }
    outcome.cache = Some(figures);
    written.map_err(|error| failed(&error))?;
    Ok(outcome)
}
