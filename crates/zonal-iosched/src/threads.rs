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
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use zonal_cfq::elevator::{Elevator, Limits, Next, Refused};
use zonal_cfq::policy::Policy;
use zonal_cfq::request::{Direction, Dispatched, Outcome as Ended};
use zonal_cfq::units::{Sector, Sectors, Span, Time};
use zonal_cli::interrupt;

use crate::error::IoschedError;
use crate::figures::Outcome;
use crate::scheduler::Subject;
use crate::simulated::request_of;
use crate::target_file::{Buffer, TargetFile};
use crate::workload::{Ask, Context, Workload};

/// What the lock guards.
struct State {
    elevator: Elevator<Box<dyn Policy + Send>>,
    /// To tell each context that its request ended.
    contexts: Vec<Sender<Ended>>,
    /// No context will ask for anything more.
    is_over: bool,
    failed: u64,
    first_failure: Option<io::Error>,
}

/// What all threads share.
struct Shared<'file> {
    state: Mutex<State>,
    /// A request was submitted or has completed: there may be one to dispatch.
    work: Condvar,
    /// A request has completed: there may be a place in the queue.
    room: Condvar,
    file: &'file TargetFile,
    begun: Instant,
    limit: Option<Duration>,
}

impl Shared<'_> {
    fn now(&self) -> Time {
        Time(u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A thread that panicked is told of when it is joined.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_late(&self) -> bool {
        self.limit.is_some_and(|limit| self.begun.elapsed() >= limit) || interrupt::is_requested()
    }

    /// Does what the scheduler dispatches, until no context asks any more. What is written is never
    /// what was read: it has a buffer of its own.
    fn work_for(&self, read: &mut Buffer, written: &mut Buffer) {
        let mut state = self.lock();
        loop {
            let now = self.now();
            match state.elevator.dispatch(now) {
                Next::Go(token) => {
                    // Another may have more to do.
                    self.work.notify_one();
                    drop(state);
                    let done = self.transfer(&token, read, written);
                    state = self.lock();
                    self.complete(&mut state, token, done);
                }
                // Each context waited for its last request: none is left.
                _ if state.is_over => return,
                Next::Wait(until) => {
                    let wait = Duration::from_nanos(until.since(now).0);
                    let waited = self.work.wait_timeout(state, wait);
                    state = waited.unwrap_or_else(PoisonError::into_inner).0;
                }
                Next::Hold | Next::Nothing => {
                    state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
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

    fn complete(&self, state: &mut State, token: Dispatched, done: io::Result<()>) {
        let outcome = if done.is_ok() { Ended::Done } else { Ended::Failed };
        if let Err(error) = done {
            state.failed += 1;
            state.first_failure.get_or_insert(error);
        }
        let completed = state.elevator.complete(self.now(), token, outcome);
        for part in completed.into_iter().flat_map(|completed| completed.parts) {
            // A context that is gone does not wait.
            let _ = state.contexts[part.tag as usize].send(outcome);
        }
        self.work.notify_one();
        self.room.notify_all();
    }

    /// Submits what a context asks for and waits until it ended.
    fn ask(&self, ask: &Ask, index: usize, ended: &Receiver<Ended>) -> Result<(), IoschedError> {
        if ask.direction.is_none() {
            let flushed = self.file.file().sync_data();
            return flushed.map_err(|error| failed(1, &error));
        }
        let mut state = self.lock();
        loop {
            let Some(request) = request_of(ask, index as u64) else { return Ok(()) };
            match state.elevator.submit(self.now(), request) {
                Ok(_) => break,
                Err(Refused::Full { .. }) => {
                    state = self.room.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
                Err(error) => return Err(error.into()),
            }
        }
        drop(state);
        self.work.notify_one();
        ended.recv().map(|_| ()).map_err(|_| IoschedError::Panicked)
    }

    /// Runs a context to its end or the limit.
    fn run_context(
        &self,
        context: Context,
        index: usize,
        ended: &Receiver<Ended>,
        names: &[String],
    ) -> Result<Outcome, IoschedError> {
        let mut outcome = Outcome::new(names);
        let mut operation = self.begun;
        let mut begins = true;
        for ask in context {
            if self.is_late() {
                break;
            }
            // Shorter thoughts are those that a thread of this machine has by itself.
            if ask.think > Span::from_millis(1) {
                thread::sleep(Duration::from_nanos(ask.think.0));
            }
            let asked = Instant::now();
            if begins {
                operation = asked;
            }
            self.ask(&ask, index, ended)?;
            outcome.add(ask.who, ask.sectors, span(asked.elapsed()));
            if let Some(whole) = ask.ends.filter(|whole| *whole != ask.who) {
                outcome.add(whole, Sectors(0), span(operation.elapsed()));
            }
            begins = ask.ends.is_some();
        }
        Ok(outcome)
    }
}

fn span(time: Duration) -> Span {
    Span(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}

fn failed(failed: u64, first: &io::Error) -> IoschedError {
    IoschedError::Failed { failed, first: first.to_string() }
}

/// Runs a workload to its end or its limit, with `depth` requests at the file at a time.
///
/// # Errors
///
/// [`IoschedError::Failed`] if any request failed; others only if the workload is not for a file of
/// that length.
///
/// # Panics
///
/// If the system gives no threads.
pub fn run(
    subject: &Subject,
    file: &TargetFile,
    workload: Workload,
    depth: usize,
) -> Result<Outcome, IoschedError> {
    let limits = Limits::default();
    let capacity = Sector(file.bytes() / 512);
    let (senders, receivers): (Vec<_>, Vec<_>) =
        workload.contexts.iter().map(|_| channel()).unzip();
    let shared = Shared {
        state: Mutex::new(State {
            elevator: Elevator::with_limits(subject.policy(), capacity, limits),
            contexts: senders,
            is_over: false,
            failed: 0,
            first_failure: None,
        }),
        work: Condvar::new(),
        room: Condvar::new(),
        file,
        begun: Instant::now(),
        limit: workload.limit.map(|limit| Duration::from_nanos(limit.0)),
    };
    let (shared, names) = (&shared, &workload.names[..]);
    let results = thread::scope(|scope| {
        for _ in 0..depth {
            let longest = limits.longest.bytes() as usize;
            scope.spawn(move || {
                let (mut read, mut written) = (Buffer::new(longest), Buffer::new(longest));
                shared.work_for(&mut read, &mut written);
            });
        }
        let contexts = workload.contexts.into_iter().zip(receivers).enumerate();
        let contexts: Vec<_> = contexts
            .map(|(index, (context, ended))| {
                scope.spawn(move || shared.run_context(context, index, &ended, names))
            })
            .collect();
        let joined =
            contexts.into_iter().map(|it| it.join().unwrap_or(Err(IoschedError::Panicked)));
        let results: Vec<_> = joined.collect();
        shared.lock().is_over = true;
        shared.work.notify_all();
        results
    });
    let mut outcome = Outcome::new(names);
    outcome.elapsed = shared.now().since(Time::ZERO);
    for result in results {
        outcome.extend(result?);
    }
    let state = shared.lock();
    if let Some(error) = &state.first_failure {
        return Err(failed(state.failed, error));
    }
    outcome.counters = *state.elevator.counters();
    outcome.idled = state.elevator.policy().idled();
    Ok(outcome)
}
