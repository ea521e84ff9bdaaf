//! What `iostat -x` says of each interval, and the means and largest values over all of them that the
//! tables have. An interval in which nothing of a kind completed counts as 0, as iostat prints it.
//!
//! ```
//! use zonal_cfq::counters::Counters;
//! use zonal_cfq::units::Span;
//! use zonal_iobench::iostat::{Iostat, Metric};
//!
//! let mut iostat = Iostat::default();
//! let mut counters = Counters::default();
//! counters.elapsed = Span::from_millis(1000);
//! counters.reads.completed = 10;
//! counters.reads.waited = Span::from_millis(50);
//! iostat.sample(&counters);
//! assert_eq!(iostat.mean(Metric::ReadAwait), 5.0);
//! ```

use zonal_cfq::counters::{Counters, Way};
use zonal_cfq::units::Span;

/// What is told of an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    /// Requests under way, on average.
    QueueLength,
    /// From arrival to completion, in ms.
    Await,
    /// The same of reads.
    ReadAwait,
    /// The same of writes.
    WriteAwait,
}

impl Metric {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::QueueLength, Self::Await, Self::ReadAwait, Self::WriteAwait];

    /// Its name in the tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::QueueLength => "avgqz",
            Self::Await => "await",
            Self::ReadAwait => "r_await",
            Self::WriteAwait => "w_await",
        }
    }
}

/// How long an interval is: what the tables' own is, is not published.
pub const INTERVAL: Span = Span::from_millis(10_000);

/// Samples of all intervals.
#[derive(Clone, Debug, Default)]
pub struct Iostat {
    last: Counters,
    samples: Vec<[f64; 4]>,
}

/// Completed requests and the time they waited, since `before`.
fn since(way: &Way, before: &Way) -> (u64, f64) {
    let waited = Span(way.waited.0.saturating_sub(before.waited.0));
    (way.completed.saturating_sub(before.completed), waited.as_millis())
}

impl Iostat {
    /// An interval ends.
    pub fn sample(&mut self, counters: &Counters) {
        let (reads, read_ms) = since(&counters.reads, &self.last.reads);
        let (writes, write_ms) = since(&counters.writes, &self.last.writes);
        let elapsed = counters.elapsed.0.saturating_sub(self.last.elapsed.0).max(1);
        let weighted = counters.weighted.saturating_sub(self.last.weighted);
        let each = |ms: f64, count: u64| if count == 0 { 0.0 } else { ms / count as f64 };
        self.samples.push([
            weighted as f64 / elapsed as f64,
            each(read_ms + write_ms, reads + writes),
            each(read_ms, reads),
            each(write_ms, writes),
        ]);
        self.last = *counters;
    }

    /// Another scheduler's counters come next: they begin at nothing.
    pub fn restart(&mut self) {
        self.last = Counters::default();
    }

    /// Takes the intervals of another in.
    pub fn append(&mut self, other: &Self) {
        self.samples.extend_from_slice(&other.samples);
    }

    /// Intervals.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.samples.len()
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.samples.is_empty()
    }

    /// The mean over all intervals; nothing if there is none.
    #[must_use]
    pub fn mean(&self, metric: Metric) -> f64 {
        let sum: f64 = self.samples.iter().map(|sample| sample[metric as usize]).sum();
        sum / self.samples.len().max(1) as f64
    }

    /// The largest.
    #[must_use]
    pub fn max(&self, metric: Metric) -> f64 {
        self.samples.iter().map(|sample| sample[metric as usize]).fold(0.0, f64::max)
    }
}
