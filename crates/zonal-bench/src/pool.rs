//! Threads that live as long as the run, one pinned to each CPU.
//!
//! They are kept rather than spawned per sample because several subjects keep a heap per thread:
//! a fresh thread would be measured setting that up.
//!
//! ```
//! use zonal_bench::pool::Pool;
//!
//! let pool = Pool::new(&zonal_bench::machine::cpus()?[..1])?;
//! assert_eq!(pool.run(1, |index| index + 41)?, [41]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::io;
use std::panic::{self, AssertUnwindSafe};
use std::sync::{Arc, mpsc};
use std::thread::{Builder, JoinHandle};

use crate::machine;

type Job = Arc<dyn Fn(usize) + Send + Sync>;

/// A worker of the pool panicked.
#[derive(Debug, thiserror::Error)]
#[error("a measuring thread panicked: {0}")]
pub struct WorkerPanic(String);

/// Pinned worker threads.
#[derive(Debug)]
pub struct Pool {
    workers: Vec<(mpsc::Sender<Job>, JoinHandle<()>)>,
}

impl Pool {
    /// Starts a thread on each of `cpus`.
    ///
    /// # Errors
    ///
    /// If a thread cannot be started or pinned.
    pub fn new(cpus: &[usize]) -> io::Result<Self> {
        let mut workers = Vec::with_capacity(cpus.len());
        for (index, &cpu) in cpus.iter().enumerate() {
            let (jobs, inbox) = mpsc::channel::<Job>();
            let (ready, pinned) = mpsc::channel();
            let thread = Builder::new().name(format!("zonal-{index}")).spawn(move || {
                let result = machine::pin(cpu);
                let stay = result.is_ok();
                if ready.send(result).is_ok() && stay {
                    while let Ok(job) = inbox.recv() {
                        job(index);
                    }
                }
            })?;
            pinned.recv().map_err(io::Error::other)??;
            workers.push((jobs, thread));
        }
        Ok(Self { workers })
    }

    /// Threads in the pool.
    #[must_use]
    pub fn len(&self) -> usize {
        self.workers.len()
    }

    /// Whether there is no thread.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.workers.is_empty()
    }

    /// Runs `job` on the first `count` threads at once and collects what it returns, in order. It is
    /// dropped here, before this comes back: what it holds is no thread's then.
    ///
    /// # Errors
    ///
    /// [`WorkerPanic`] if `job` panicked on any of them.
    ///
    /// # Panics
    ///
    /// If `count` is over [`len`](Self::len).
    pub fn run<R, F>(&self, count: usize, job: F) -> Result<Vec<R>, WorkerPanic>
    where
        R: Send + 'static,
        F: Fn(usize) -> R + Send + Sync + 'static,
    {
        let (results, inbox) = mpsc::channel();
        let job: Job = Arc::new(move |index| {
            let result = panic::catch_unwind(AssertUnwindSafe(|| job(index)));
            // The receiver is gone only if `run` itself panicked; no thread is left to tell.
            let _ = results.send((index, result));
        });
        for (jobs, _) in &self.workers[..count] {
            jobs.send(Arc::clone(&job)).map_err(|_| WorkerPanic("a thread has ended".into()))?;
        }
        let mut collected: Vec<Option<R>> = (0..count).map(|_| None).collect();
        let mut panicked = None;
        for (index, result) in inbox.iter().take(count) {
            match result {
                Ok(value) => collected[index] = Some(value),
                Err(payload) => panicked = Some(WorkerPanic(message(payload.as_ref()))),
            }
        }
        // A thread says what came of it before it lets go of it.
        while Arc::strong_count(&job) > 1 {
            std::thread::yield_now();
        }
        drop(job);
        match panicked {
            Some(panic) => Err(panic),
            None => Ok(collected.into_iter().flatten().collect()),
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        for (jobs, thread) in self.workers.drain(..) {
            drop(jobs);
            // A worker catches the panics of its jobs, so there is nothing to learn here.
            let _ = thread.join();
        }
    }
}

fn message(payload: &(dyn std::any::Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "with something that is not text".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn each_thread_runs_once_on_its_cpu() {
        let cpus = machine::cpus().expect("affinity");
        let pool = Pool::new(&cpus).expect("threads");
        let seen = pool.run(cpus.len(), |index| (index, machine::cpus().expect("affinity")));
        for (index, (said, cpu)) in seen.expect("no panic").into_iter().enumerate() {
            assert_eq!(said, index);
            assert_eq!(cpu, [cpus[index]]);
        }
    }

    /// Takes its time to be dropped.
    struct Slow(Arc<AtomicBool>);

    impl Drop for Slow {
        fn drop(&mut self) {
            std::thread::sleep(std::time::Duration::from_millis(20));
            self.0.store(true, Relaxed);
        }
    }

    #[test]
    fn what_a_job_holds_is_dropped_before_the_run_ends() {
        let pool = Pool::new(&machine::cpus().expect("affinity")).expect("threads");
        for _ in 0..5 {
            let is_dropped = Arc::new(AtomicBool::new(false));
            let slow = Slow(is_dropped.clone());
            let done = pool.run(pool.len(), move |_| {
                let _held = &slow;
            });
            assert!(done.is_ok());
            assert!(is_dropped.load(Relaxed));
        }
    }

    #[test]
    fn a_panic_is_reported_and_the_pool_lives_on() {
        let pool = Pool::new(&machine::cpus().expect("affinity")[..1]).expect("threads");
        let panic = pool.run(1, |_| -> () { panic!("planted") }).expect_err("it panics");
        assert!(panic.to_string().contains("planted"), "{panic}");
        assert_eq!(pool.run(1, |_| 3).expect("still alive"), [3]);
    }

    #[test]
    fn a_cpu_that_is_not_there_is_an_error() {
        assert!(Pool::new(&[usize::MAX]).is_err());
    }
}
