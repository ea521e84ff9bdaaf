//! What a run showed: for each process or operation its latencies, for the queue what iostat says.
//!
//! ```
//! use zonal_cfq::units::Span;
//! use zonal_iosched::figures::Latencies;
//!
//! let mut latencies = Latencies::default();
//! (1..=100).for_each(|ms| latencies.add(Span::from_millis(ms)));
//! assert_eq!(latencies.percentile(0.5), Span::from_millis(50));
//! assert_eq!(latencies.percentile(0.99), Span::from_millis(99));
//! ```

use zonal_cfq::counters::Counters;
use zonal_cfq::units::{Sectors, Span};

/// Latencies of one process or operation.
#[derive(Clone, Debug, Default)]
pub struct Latencies {
    all: Vec<Span>,
    is_sorted: bool,
}

impl Latencies {
    /// Adds one.
    pub fn add(&mut self, latency: Span) {
        self.all.push(latency);
        self.is_sorted = false;
    }

    /// How many there are.
    #[must_use]
    pub const fn count(&self) -> usize {
        self.all.len()
    }

    /// The least that this part of all are not above: `0.5` is the median, `1.0` the longest. Zero if
    /// there is none.
    pub fn percentile(&mut self, part: f64) -> Span {
        if !self.is_sorted {
            self.all.sort_unstable();
            self.is_sorted = true;
        }
        let at = (self.all.len() as f64 * part).ceil() as usize;
        self.all.get(at.max(1) - 1).copied().unwrap_or_default()
    }

    /// Takes those of another in.
    pub fn extend(&mut self, other: Self) {
        self.all.extend(other.all);
        self.is_sorted = false;
    }
}

/// What one process or operation did.
#[derive(Clone, Debug, Default)]
pub struct Share {
    /// Its name.
    pub name: String,
    /// Bytes moved.
    pub bytes: u64,
    /// Requests, or whole operations.
    pub latencies: Latencies,
}

/// What a run showed.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// How long it took.
    pub elapsed: Span,
    /// Each process and operation.
    pub shares: Vec<Share>,
    /// The elevator's counters.
    pub counters: Counters,
    /// How long the scheduler kept the device waiting for a request that might come.
    pub idled: Span,
    /// What the page cache did, if the processes go through one of ours.
    pub cache: Option<CacheFigures>,
}

/// What a page cache did, in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheFigures {
    /// That processes read.
    pub asked: u64,
    /// That were read from the file.
    pub read: u64,
    /// That were read from it before a process asked for them.
    pub ahead: u64,
}

impl CacheFigures {
    /// Of the pages that processes read, the part that had not to be read from the file; one that was read ahead had to.
    #[must_use]
    pub fn hit_share(&self) -> f64 {
        self.asked.saturating_sub(self.read) as f64 / self.asked.max(1) as f64
    }

    /// Of the pages that were read from the file, the part that was read ahead.
    #[must_use]
    pub fn ahead_share(&self) -> f64 {
        self.ahead as f64 / self.read.max(1) as f64
    }
}

impl Outcome {
    /// What a run begins with.
    #[must_use]
    pub fn new(names: &[String]) -> Self {
        let share = |name: &String| Share { name: name.clone(), ..Share::default() };
        Self {
            elapsed: Span::ZERO,
            shares: names.iter().map(share).collect(),
            counters: Counters::default(),
            idled: Span::ZERO,
            cache: None,
        }
    }

    /// A request ended.
    pub fn add(&mut self, who: usize, sectors: Sectors, latency: Span) {
        if let Some(share) = self.shares.get_mut(who) {
            share.bytes += sectors.bytes();
            share.latencies.add(latency);
        }
    }

    /// All bytes, over the time.
    #[must_use]
    pub fn mib_s(&self) -> f64 {
        let bytes: u64 = self.shares.iter().map(|share| share.bytes).sum();
        self.rate(bytes) / f64::from(1 << 20)
    }

    /// A number over the time, for a second.
    #[must_use]
    pub fn rate(&self, count: u64) -> f64 {
        count as f64 * 1e9 / self.elapsed.0.max(1) as f64
    }

    /// Puts what another context's thread saw with this.
    pub fn extend(&mut self, other: Self) {
        for (own, others) in self.shares.iter_mut().zip(other.shares) {
            own.bytes += others.bytes;
            own.latencies.extend(others.latencies);
        }
    }
}
