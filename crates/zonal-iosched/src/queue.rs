//! A scheduler that threads share: some submit and wait, some do what it dispatches, as a device would
//! that takes as many commands at once as there are of these. What a request is for is the caller's: a job.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use zonal_cfq::counters::Counters;
use zonal_cfq::elevator::{Elevator, Next, Refused};
use zonal_cfq::policy::Policy;
use zonal_cfq::request::{Direction, Dispatched, Outcome, Request};
use zonal_cfq::units::{Process, Sector, Span, Time};

/// What the lock guards.
struct State<J> {
    elevator: Elevator<Box<dyn Policy + Send>>,
    /// Of requests that are queued, by their tags.
    jobs: BTreeMap<u64, J>,
    /// Tags of writes that are queued or under way.
    writes: BTreeSet<u64>,
    next_tag: u64,
    is_over: bool,
}

/// Why a request was not queued.
#[derive(Debug)]
pub(crate) enum NotQueued {
    /// The queue takes no more.
    Over,
    /// As the scheduler says.
    Refused(Refused),
}

/// Requests of threads for threads.
pub(crate) struct Queue<J> {
    state: Mutex<State<J>>,
    /// There may be something to dispatch.
    work: Condvar,
    /// A request has completed: there may be a place in the queue.
    done: Condvar,
    begun: Instant,
}

impl<J> Queue<J> {
    /// A queue with nothing in it, over a disk that ends before `capacity`.
    pub(crate) fn new(policy: Box<dyn Policy + Send>, capacity: Sector) -> Self {
        Self {
            state: Mutex::new(State {
                elevator: Elevator::new(policy, capacity),
                jobs: BTreeMap::new(),
                writes: BTreeSet::new(),
                next_tag: 0,
                is_over: false,
            }),
            work: Condvar::new(),
            done: Condvar::new(),
            begun: Instant::now(),
        }
    }

    /// Since the queue began.
    pub(crate) fn now(&self) -> Time {
        Time(u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    fn lock(&self) -> MutexGuard<'_, State<J>> {
        // What is done under the lock is done in whole, or not at all.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Submits requests, of which none is dispatched before all are queued as far as there is room, so that
    /// neighbours become one. Waits for room.
    ///
    /// # Errors
    ///
    /// [`NotQueued`] for the first that is not queued. Its job and those behind it are dropped.
    pub(crate) fn submit<R: Fn() -> Request>(
        &self,
        batch: impl IntoIterator<Item = (R, J)>,
    ) -> Result<(), NotQueued> {
        let mut result = Ok(());
        let mut state = self.lock();
        let mut batch = batch.into_iter();
        // Of the last, what was not queued: dropped when the lock is not held, as the rest of the batch is.
        let mut left = None;
        for (request, job) in batch.by_ref() {
            let queued = loop {
                if state.is_over {
                    break Err(NotQueued::Over);
                }
                let request = request().tag(state.next_tag);
                let direction = request.direction();
                match state.elevator.submit(self.now(), request) {
                    Ok(_) => break Ok(direction),
                    Err(Refused::Full { .. }) => {
                        self.work.notify_all();
                        state = self.done.wait(state).unwrap_or_else(PoisonError::into_inner);
                    }
                    Err(error) => break Err(NotQueued::Refused(error)),
                }
            };
            match queued {
                Ok(direction) => state.add(direction, job),
                Err(error) => {
                    left = Some(job);
                    result = Err(error);
                    break;
                }
            }
        }
        drop(state);
        drop(left);
        self.work.notify_one();
        result
    }

    /// Does what the scheduler dispatches until the queue is [stopped](Self::stop) and empty: `transfer` is
    /// given the jobs of the request's parts, by sector. When the scheduler knows how it went, `end` is called for each.
    /// Neither may panic.
    pub(crate) fn serve(
        &self,
        mut transfer: impl FnMut(&Dispatched, &mut [J]) -> Outcome,
        mut end: impl FnMut(J, Outcome),
    ) {
        let mut state = self.lock();
        loop {
            let now = self.now();
            match state.elevator.dispatch(now) {
                Next::Go(token) => {
                    let mut jobs = state.take(&token);
                    // Another may have more to do.
                    self.work.notify_one();
                    drop(state);
                    let outcome = transfer(&token, &mut jobs);
                    self.complete(token, outcome);
                    jobs.into_iter().for_each(|job| end(job, outcome));
                    state = self.lock();
                }
                _ if state.is_over && state.elevator.queued() == 0 => return,
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

    fn complete(&self, token: Dispatched, outcome: Outcome) {
        let mut state = self.lock();
        // A token of this elevator: it cannot be refused.
        if let Ok(completed) = state.elevator.complete(self.now(), token, outcome) {
            for part in completed.parts {
                state.writes.remove(&part.tag);
            }
        }
        if state.is_over {
            // Those who serve leave when nothing is queued.
            self.work.notify_all();
        } else {
            self.work.notify_one();
        }
        self.done.notify_all();
    }

    /// Waits until the writes that were submitted before have completed, however they ended.
    pub(crate) fn wait_for_writes(&self) {
        let mut state = self.lock();
        let mark = state.next_tag;
        while state.writes.range(..mark).next().is_some() {
            state = self.done.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// From now on nothing is taken. What is queued is still done.
    pub(crate) fn stop(&self) {
        self.lock().is_over = true;
        self.work.notify_all();
        self.done.notify_all();
    }

    /// Whether it was stopped.
    pub(crate) fn is_over(&self) -> bool {
        self.lock().is_over
    }

    /// The elevator's counters, and how long the scheduler kept those who serve waiting.
    pub(crate) fn figures(&self) -> (Counters, Span) {
        let state = self.lock();
        (*state.elevator.counters(), state.elevator.policy().idled())
    }

    /// The process will ask for nothing any more.
    pub(crate) fn exited(&self, process: Process) {
        self.lock().elevator.exited(self.now(), process);
        // It may have been waited for.
        self.work.notify_one();
    }
}

impl<J> State<J> {
    fn add(&mut self, direction: Direction, job: J) {
        let tag = self.next_tag;
        self.next_tag += 1;
        if direction == Direction::Write {
            self.writes.insert(tag);
        }
        self.jobs.insert(tag, job);
    }

    fn take(&mut self, token: &Dispatched) -> Vec<J> {
        token.parts().iter().filter_map(|part| self.jobs.remove(&part.tag)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Sender, channel};
    use std::sync::{Arc, Barrier};
    use std::thread;
    use zonal_cfq::noop::Noop;
    use zonal_cfq::policy::{Choice, Finished};
    use zonal_cfq::table::{RequestId, Table};
    use zonal_cfq::units::Sectors;

    /// noop for a device that does one thing at a time, and is kept waiting for some time before each.
    #[derive(Default)]
    struct Slow {
        noop: Noop,
        busy: bool,
        patience: Span,
        until: Option<Time>,
    }

    impl Policy for Slow {
        fn name(&self) -> &'static str {
            "slow"
        }
        fn insert(&mut self, table: &mut Table, id: RequestId, now: Time) {
            self.noop.insert(table, id, now);
        }
        fn withdraw(&mut self, table: &mut Table, id: RequestId, now: Time) {
            self.noop.withdraw(table, id, now);
        }
        fn next(&mut self, table: &mut Table, now: Time) -> Choice {
            if self.busy {
                return Choice::Hold;
            }
            let until = *self.until.get_or_insert(now + self.patience);
            if now < until {
                return Choice::Wait(until);
            }
            let next = self.noop.next(table, now);
            if next != Choice::Nothing {
                (self.busy, self.until) = (true, None);
            }
            next
        }
        fn completed(&mut self, _: &Finished, _: Time) {
            self.busy = false;
        }
    }

    /// Sixteen serve four requests, of which the first is under way when the queue is stopped.
    fn stop_under_way(patience: Span) {
        let policy = Box::new(Slow { patience, ..Slow::default() });
        let queue = Arc::new(Queue::<Sender<u64>>::new(policy, Sector(10_000)));
        let (sender, ended) = channel();
        let request =
            |number: u64| move || Request::read(Process(1), Sector(number * 16), Sectors(8));
        let batch = (0..4).map(|number| (request(number), sender.clone()));
        queue.submit(batch).expect("there is room");
        // The one who has the first, and the test: before and after it is stopped.
        let begin = Arc::new(Barrier::new(2));
        for _ in 0..16 {
            let (queue, begin, left) = (Arc::clone(&queue), Arc::clone(&begin), sender.clone());
            thread::spawn(move || {
                let transfer = |token: &Dispatched, _: &mut [_]| {
                    if token.start() == Sector(0) {
                        begin.wait();
                        begin.wait();
                    }
                    Outcome::Done
                };
                queue.serve(transfer, |job, _| job.send(1).expect("it is heard"));
                left.send(1000).expect("it is heard");
            });
        }
        begin.wait();
        // For the others to find out that they have to wait, before and after.
        thread::sleep(Duration::from_millis(20));
        queue.stop();
        thread::sleep(Duration::from_millis(20));
        begin.wait();
        let refused = queue.submit([(request(9), sender)]);
        assert!(matches!(refused, Err(NotQueued::Over)));
        let heard = (0..20).map(|_| ended.recv_timeout(Duration::from_secs(60)).expect("it hangs"));
        assert_eq!(heard.sum::<u64>(), 16_004);
        assert_eq!(queue.figures().0.reads.completed, 4);
    }

    #[test]
    fn what_is_queued_when_it_is_stopped_is_done_and_all_who_serve_leave() {
        stop_under_way(Span::ZERO);
        stop_under_way(Span::from_millis(5));
    }
}
