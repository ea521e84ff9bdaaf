//! A workload over a scheduler over a real file: a thread for each context, which submits and waits,
//! and some that do what the scheduler dispatches, as a device that takes that many commands at once would.
//!
//! ```
//! use zonal_iosched::scheduler::{Kind, Subject};
//! use zonal_iosched::target_file::TargetFile;
//! use zonal_iosched::threads::run;
//! use zonal_iosched::workload::Workload;
//! use zonal_cfq::units::Sector;
//!
//! let path = std::env::temp_dir().join(format!("zonal-threads-{}", std::process::id()));
//! let file = TargetFile::open(&path, 4 << 20, false, false, false)?;
//! let workload = Workload::readers(2, file.bytes(), Sector(file.bytes() / 512))?;
//! let outcome = run(&Subject::new(Kind::Deadline), &file, workload, 2)?;
//! assert_eq!(outcome.shares.iter().map(|share| share.bytes).sum::<u64>(), 4 << 20);
//! # Ok::<(), zonal_iosched::error::IoschedError>(())
//! ```

use std::io;
use std::os::unix::fs::FileExt;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, Builder};
use std::time::{Duration, Instant};

use zonal_cfq::elevator::Limits;
use zonal_cfq::request::{Direction, Dispatched, Outcome as Ended};
use zonal_cfq::units::{Sector, Sectors, Span, Time};
use zonal_cli::interrupt;

use crate::error::IoschedError;
use crate::figures::Outcome;
use crate::queue::{NotQueued, Queue};
use crate::scheduler::Subject;
use crate::simulated::request_of;
use crate::target_file::{Buffer, TargetFile};
use crate::workload::{Ask, Context, Workload};

/// To tell a context that its request ended.
type Job = Sender<()>;

/// What all threads share.
struct Shared<'file> {
    queue: Queue<Job>,
    file: &'file TargetFile,
    begun: Instant,
    limit: Option<Duration>,
    /// How many requests failed, and what the system said first.
    failed: Mutex<(u64, Option<io::Error>)>,
}

impl Shared<'_> {
    /// Does what the scheduler dispatches, until no context asks any more. What is written is never
    /// what was read: it has a buffer of its own.
    fn work_for(&self, read: &mut Buffer, written: &mut Buffer) {
        let transfer = |token: &Dispatched, _: &mut [Job]| {
            let Err(error) = self.transfer(token, read, written) else { return Ended::Done };
            let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
            failed.0 += 1;
            failed.1.get_or_insert(error);
            Ended::Failed
        };
        // A context that is gone does not wait.
        let tell = |job: Job, _| {
            let _ = job.send(());
        };
        self.queue.serve(transfer, tell);
    }

    /// Reads or writes what a token says.
    fn transfer(
        &self,
        token: &Dispatched,
        read: &mut Buffer,
        written: &mut Buffer,
    ) -> io::Result<()> {
        let bytes = token.sectors().bytes() as usize;
        let (file, at) = (self.file.file(), token.start().bytes());
        match token.direction() {
            Direction::Read => file.read_exact_at(read.bytes(bytes), at),
            Direction::Write => file.write_all_at(written.bytes(bytes), at),
        }
    }

    /// Submits what a context asks for and waits until it ended.
    fn ask(&self, ask: &Ask) -> Result<(), IoschedError> {
        let Some(direction) = ask.direction else {
            let flushed = self.file.file().sync_data();
            return flushed.map_err(|error| failed(1, &error));
        };
        let (job, ended) = channel();
        let request = || request_of(ask, direction);
        match self.queue.submit([(request, job)]) {
            Ok(()) => ended.recv().map_err(|_| IoschedError::Panicked),
            Err(NotQueued::Refused(error)) => Err(error.into()),
            // It ends after the contexts.
            Err(NotQueued::Over) => Err(IoschedError::Panicked),
        }
    }
}

/// Runs a context to its end, the limit or its first error; `ask` does what it asks for.
pub(crate) fn run_context(
    context: Context,
    names: &[String],
    (begun, limit): (Instant, Option<Duration>),
    mut ask: impl FnMut(&Ask) -> Result<(), IoschedError>,
) -> Result<Outcome, IoschedError> {
    let mut outcome = Outcome::new(names);
    let mut operation = begun;
    let mut begins = true;
    for asked in context {
        if is_late(begun, limit) {
            break;
        }
        // Shorter thoughts are those that a thread of this machine has by itself.
        if asked.think > Span::from_millis(1) {
            thread::sleep(Duration::from_nanos(asked.think.0));
        }
        let at = Instant::now();
        if begins {
            operation = at;
        }
        ask(&asked)?;
        outcome.add(asked.who, asked.sectors, span(at.elapsed()));
        if let Some(whole) = asked.ends.filter(|whole| *whole != asked.who) {
            outcome.add(whole, Sectors(0), span(operation.elapsed()));
        }
        begins = asked.ends.is_some();
    }
    Ok(outcome)
}

/// Whether a run is to end.
fn is_late(begun: Instant, limit: Option<Duration>) -> bool {
    limit.is_some_and(|limit| begun.elapsed() >= limit) || interrupt::is_requested()
}

pub(crate) fn span(time: Duration) -> Span {
    Span(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}

fn failed(failed: u64, first: &io::Error) -> IoschedError {
    IoschedError::Failed { failed, first: first.to_string() }
}

/// Runs a workload to its end or its limit, with `depth` requests at the file at a time.
///
/// # Errors
///
/// [`IoschedError::Failed`] if any request failed, [`IoschedError::Thread`] if the system gives no
/// threads; others only if the workload is not for a file of that length.
pub fn run(
    subject: &Subject,
    file: &TargetFile,
    workload: Workload,
    depth: usize,
) -> Result<Outcome, IoschedError> {
    run_by(subject, file, workload, depth, &mut Builder::new)
}

/// The same, by threads that are made by `thread`.
fn run_by(
    subject: &Subject,
    file: &TargetFile,
    workload: Workload,
    depth: usize,
    thread: &mut dyn FnMut() -> Builder,
) -> Result<Outcome, IoschedError> {
    let shared = Shared {
        queue: Queue::new(subject.policy(), Sector(file.bytes() / 512)),
        file,
        begun: Instant::now(),
        limit: workload.limit.map(|limit| Duration::from_nanos(limit.0)),
        failed: Mutex::default(),
    };
    let (shared, names) = (&shared, &workload.names[..]);
    let results = thread::scope(|scope| {
        let begin = || {
            for _ in 0..depth {
                let longest = Limits::default().longest.bytes() as usize;
                thread().spawn_scoped(scope, move || {
                    let (mut read, mut written) = (Buffer::new(longest), Buffer::new(longest));
                    shared.work_for(&mut read, &mut written);
                })?;
            }
            let contexts = workload.contexts.into_iter().map(|context| {
                let time = (shared.begun, shared.limit);
                let run = move || {
                    let process = context.alone();
                    let outcome = run_context(context, names, time, |ask| shared.ask(ask));
                    // The scheduler does not wait for it any more.
                    process.into_iter().for_each(|process| shared.queue.exited(process));
                    outcome
                };
                thread().spawn_scoped(scope, run)
            });
            contexts.collect::<io::Result<Vec<_>>>()
        };
        let results = begin().map(|contexts| {
            let joined =
                contexts.into_iter().map(|it| it.join().unwrap_or(Err(IoschedError::Panicked)));
            joined.collect::<Vec<_>>()
        });
        // Also if there are not all: those that began find that it is over.
        shared.queue.stop();
        results
    });
    let results = results.map_err(IoschedError::Thread)?;
    let mut outcome = Outcome::new(names);
    outcome.elapsed = shared.queue.now().since(Time::ZERO);
    for result in results {
        outcome.extend(result?);
    }
    if let (count, Some(error)) = &*shared.failed.lock().unwrap_or_else(PoisonError::into_inner) {
        return Err(failed(*count, error));
    }
    (outcome.counters, outcome.idled) = shared.queue.figures();
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduler::Kind;

    /// A new file, which goes with its directory.
    fn new_file(bytes: u64) -> (tempfile::TempDir, TargetFile, Sector) {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("file");
        let file = TargetFile::open(&path, bytes, false, false, false).expect("it is made");
        let capacity = Sector(file.bytes() / 512);
        (directory, file, capacity)
    }

    #[test]
    fn who_has_read_all_is_not_waited_for() {
        let (_directory, file, capacity) = new_file(32 << 20);
        let mut workload = Workload::readers(4, 32 << 20, capacity).expect("it fits");
        // Far from each other: near ones are served together.
        workload.contexts.remove(3);
        workload.contexts.remove(1);
        let subject =
            Subject { slice_idle_ms: 30_000, rotational: true, ..Subject::new(Kind::Cfq) };
        let outcome = run(&subject, &file, workload, 1).expect("it runs");
        assert!(outcome.elapsed < Span::from_millis(30_000), "{:?}", outcome.elapsed);
    }

    #[test]
    fn a_thread_that_is_not_given_ends_the_run() {
        let (_directory, file, capacity) = new_file(4 << 20);
        // Two that do requests and four that ask: none, the first of each kind, the last.
        for given in [0, 1, 2, 5] {
            let workload = Workload::random(4, 4 << 20, capacity, Span(u64::MAX), 1);
            let (subject, mut left) = (Subject::new(Kind::Cfq), given);
            let mut thread = || {
                // No machine has room for such a stack.
                let builder = Builder::new();
                if left == 0 {
                    builder.stack_size(1 << 60)
                } else {
                    left -= 1;
                    builder
                }
            };
            let ended = run_by(&subject, &file, workload.expect("it fits"), 2, &mut thread);
            assert!(matches!(ended, Err(IoschedError::Thread(_))), "{given}: {ended:?}");
        }
    }
}
