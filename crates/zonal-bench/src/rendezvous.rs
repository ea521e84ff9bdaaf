//! Starting threads together, stopping them together, and measuring how far apart their CPUs are.
//!
//! Threads meet by spinning: each has a CPU to itself, and a parked thread would start tens of
//! microseconds late.
//!
//! ```
//! use zonal_bench::rendezvous::Rendezvous;
//!
//! let alone = Rendezvous::new(1);
//! alone.meet()?;
//! assert_eq!(alone.probe(0, 0)?, None, "one CPU has no distance");
//! # Ok::<(), zonal_bench::rendezvous::Aborted>(())
//! ```

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

/// A round trip of a cache line up to this long means that the CPUs share a cache.
pub const NEAR_NS: f64 = 200.0;

/// Round trips in a batch of the probe, and batches; the fastest batch counts, so that one
/// interruption does not make near CPUs look far.
const ROUND_TRIPS: u64 = 200;
const BATCHES: u64 = 5;

/// Spins before a waiting thread looks whether the others have given up, and yields.
const PATIENCE: u32 = 1 << 14;

/// How far apart the CPUs of a sample were.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Distance {
    /// They share a cache: at most [`NEAR_NS`] for a round trip.
    Near,
    /// They do not.
    Far,
}

impl Distance {
    /// The class of a round trip of `ns` nanoseconds.
    #[must_use]
    pub fn of(ns: f64) -> Self {
        if ns <= NEAR_NS { Self::Near } else { Self::Far }
    }

    /// `near` or `far`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Near => "near",
            Self::Far => "far",
        }
    }
}

/// Another thread of the sample gave up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("another thread of the sample gave up")]
pub struct Aborted;

/// A cache line of its own; 128 bytes because some CPUs fetch lines in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Line<T>(T);

/// The meeting point of the threads of one sample. Used for one sample only.
#[derive(Debug)]
pub struct Rendezvous {
    parties: usize,
    arrived: Line<AtomicUsize>,
    generation: Line<AtomicUsize>,
    aborted: Line<AtomicBool>,
    stopped: Line<AtomicBool>,
    /// For each probe of the sample, one line between thread 0 and each other thread.
    balls: [Vec<Line<AtomicU64>>; 2],
}

impl Rendezvous {
    /// For `parties` threads.
    #[must_use]
    pub fn new(parties: usize) -> Self {
        let balls = || (1..parties).map(|_| Line::default()).collect();
        Self {
            parties,
            arrived: Line::default(),
            generation: Line::default(),
            aborted: Line::default(),
            stopped: Line::default(),
            balls: [balls(), balls()],
        }
    }

    /// Threads that meet here.
    #[must_use]
    pub const fn parties(&self) -> usize {
        self.parties
    }

    /// Waits until all threads are here.
    ///
    /// # Errors
    ///
    /// [`Aborted`] if one of them will not come.
    pub fn meet(&self) -> Result<(), Aborted> {
        let generation = self.generation.0.load(Ordering::Acquire);
        if self.arrived.0.fetch_add(1, Ordering::AcqRel) + 1 == self.parties {
            self.arrived.0.store(0, Ordering::Relaxed);
            self.generation.0.store(generation + 1, Ordering::Release);
            return Ok(());
        }
        self.spin_until(|| self.generation.0.load(Ordering::Acquire) != generation)
    }

    /// Tells the other threads that this one will not come.
    pub fn abort(&self) {
        self.aborted.0.store(true, Ordering::Release);
    }

    /// Whether a thread has given up.
    #[must_use]
    pub fn is_aborted(&self) -> bool {
        self.aborted.0.load(Ordering::Acquire)
    }

    /// Says that the first thread is done, so that no thread is measured running alone.
    pub fn stop(&self) {
        self.stopped.0.store(true, Ordering::Relaxed);
    }

    /// Whether a thread is done.
    #[inline]
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.stopped.0.load(Ordering::Relaxed)
    }

    /// Spins until `done`, without a pause instruction: that alone costs 20 ns and more.
    ///
    /// # Errors
    ///
    /// [`Aborted`] if a thread gave up meanwhile.
    #[inline]
    pub fn spin_until(&self, mut done: impl FnMut() -> bool) -> Result<(), Aborted> {
        loop {
            for _ in 0..PATIENCE {
                if done() {
                    return Ok(());
                }
            }
            if self.is_aborted() {
                return Err(Aborted);
            }
            thread::yield_now();
        }
    }

    /// Measures the round trip of a cache line between thread 0 and each other thread; thread 0
    /// gets the longest, in nanoseconds. `which` is 0 for the probe before the sample and 1 for
    /// the one after it. All threads call this; it contains a [`meet`](Self::meet).
    ///
    /// # Errors
    ///
    /// [`Aborted`] if a thread gave up.
    ///
    /// # Panics
    ///
    /// If `which` is over 1.
    pub fn probe(&self, which: usize, thread: usize) -> Result<Option<f64>, Aborted> {
        let mut longest = None;
        for (other, ball) in self.balls[which].iter().enumerate() {
            self.meet()?;
            if thread == 0 {
                let ns = self.serve(&ball.0)?;
                longest = Some(longest.map_or(ns, |longest: f64| longest.max(ns)));
            } else if thread == other + 1 {
                self.answer(&ball.0)?;
            }
        }
        Ok(longest)
    }

    fn serve(&self, ball: &AtomicU64) -> Result<f64, Aborted> {
        let mut best = f64::INFINITY;
        let mut at = 0;
        for _ in 0..BATCHES {
            let start = Instant::now();
            for _ in 0..ROUND_TRIPS {
                ball.store(at + 1, Ordering::Release);
                at += 2;
                self.spin_until(|| ball.load(Ordering::Acquire) == at)?;
            }
            best = best.min(start.elapsed().as_nanos() as f64 / ROUND_TRIPS as f64);
        }
        Ok(best)
    }

    fn answer(&self, ball: &AtomicU64) -> Result<(), Aborted> {
        for trip in 0..BATCHES * ROUND_TRIPS {
            self.spin_until(|| ball.load(Ordering::Acquire) == 2 * trip + 1)?;
            ball.store(2 * trip + 2, Ordering::Release);
        }
        Ok(())
    }
}

/// Aborts a [`Rendezvous`] if dropped while panicking, so that the others do not wait for ever.
#[derive(Debug)]
pub struct AbortOnPanic<'a>(pub &'a Rendezvous);

impl Drop for AbortOnPanic<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn threads_meet_again_and_again() {
        let place = Arc::new(Rendezvous::new(2));
        let count = Arc::new(AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for round in 0..100 {
                        count.fetch_add(1, Ordering::Relaxed);
                        place.meet().expect("neither aborts");
                        assert_eq!(count.load(Ordering::Relaxed), 2 * (round + 1));
                        place.meet().expect("neither aborts");
                    }
                });
            }
        });
    }

    #[test]
    fn who_waits_for_a_thread_that_gave_up_is_told() {
        let place = Rendezvous::new(2);
        place.abort();
        assert_eq!(place.meet(), Err(Aborted));
    }

    #[test]
    fn a_panic_aborts() {
        let place = Rendezvous::new(2);
        let panicked = std::panic::catch_unwind(|| {
            let _guard = AbortOnPanic(&place);
            panic!("planted");
        });
        assert!(panicked.is_err() && place.is_aborted());
    }

    #[test]
    fn the_probe_measures_a_round_trip() {
        let place = Rendezvous::new(2);
        thread::scope(|scope| {
            let server = scope.spawn(|| place.probe(0, 0));
            let other = scope.spawn(|| place.probe(0, 1));
            let ns = server.join().expect("no panic").expect("no abort").expect("two threads");
            assert!(ns > 1.0 && ns.is_finite(), "{ns}");
            assert_eq!(other.join().expect("no panic"), Ok(None));
        });
    }

    #[test]
    fn the_classes_split_at_the_threshold() {
        assert_eq!(Distance::of(90.0), Distance::Near);
        assert_eq!(Distance::of(370.0), Distance::Far);
    }
}
