//! What a run showed.
//!
//! ```
//! use zonal_sim::outcome::{Outcome, Spin};
//! let outcome = Outcome { cycles: 1000, spins: vec![Spin::new("zone", "alloc", 420)], ..Outcome::default() };
//! assert_eq!(outcome.spin_percent("zone"), 42.0);
//! ```

mod mean;

use core::time::Duration;
use serde::Serialize;

/// What a run showed, within the measured stretch of virtual time.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Outcome {
    /// The machine's name.
    pub machine: String,
    /// The workload's name.
    pub workload: String,
    /// The preset's name.
    pub preset: String,
    /// Tasks, each on a CPU of its own.
    pub tasks: u32,
    /// The seed.
    pub seed: u64,
    /// Cycles of all CPUs with a task, together.
    pub cycles: u64,
    /// Virtual seconds measured.
    pub seconds: f64,
    /// Scores, in the order of their names: what was done in that time, per second (`faults_per_s`) or counted.
    pub figures: Vec<Figure>,
    /// Cycles spent waiting for locks, by lock class (`zone`, `lru`, `space`, ...) and by what the CPU was doing.
    pub spins: Vec<Spin>,
    /// Each lock.
    pub locks: Vec<LockProfile>,
    /// Each class of cache lines.
    pub lines: Vec<LineProfile>,
    /// Mechanisms of the preset that memory was too small for, a sentence each.
    pub off: Vec<String>,
}

/// Classes of lines that are not the allocator's: of the kernel around it, with its page cache.
pub(crate) const AROUND: [&str; 8] =
    ["pages", "lru", "space", "socket", "index", "index locks", "lru batches", "cache"];

/// How fast a run was simulated: real time, of the virtual CPUs' work alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Blocks allocated and freed by the tasks, warm-up included.
    pub page_operations: u64,
    /// The time it took, without setting memory up.
    pub took: Duration,
}

impl Pace {
    /// Page operations a second of real time.
    #[must_use]
    pub fn per_second(&self) -> f64 {
        self.page_operations as f64 / self.took.as_secs_f64()
    }
}

/// A number with a name.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// Its name, as in the tables of published numbers.
    pub name: String,
    /// The number.
    pub value: f64,
    /// Its unit.
    pub unit: &'static str,
}

impl Figure {
    pub(crate) fn new(name: &str, value: f64, unit: &'static str) -> Self {
        Self { name: name.to_owned(), value, unit }
    }
}

/// Cycles spent waiting for a class of locks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Spin {
    /// The class of the locks.
    pub lock: &'static str,
    /// What the CPU was doing: `alloc`, `free`, `other`.
    pub during: &'static str,
    /// The cycles.
    pub cycles: u64,
}

impl Spin {
    /// A count.
    #[must_use]
    pub const fn new(lock: &'static str, during: &'static str, cycles: u64) -> Self {
        Self { lock, during, cycles }
    }
}

/// Where the time of one lock went.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LockProfile {
    /// Its class.
    pub class: &'static str,
    /// Which of its class.
    pub index: u32,
    /// How often it was taken.
    pub taken: u64,
    /// How often it was not free.
    pub contended: u64,
    /// Cycles waited for it, the transfer of its line included.
    pub waited: u64,
    /// Cycles it was held.
    pub held: u64,
    /// Of the cycles waited or held, those in which its line and the first lines of what it guards came from
    /// another cache or from memory.
    pub transferred: u64,
}

/// Where accesses to one class of cache lines were served from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LineProfile {
    /// The class: `frames`, `zones`, `caches`, ...
    pub class: &'static str,
    /// From the core's own cache.
    pub private: u64,
    /// From the socket's shared cache.
    pub shared: u64,
    /// From another core of the socket.
    pub near: u64,
    /// From another socket's cache.
    pub far: u64,
    /// From memory.
    pub memory: u64,
    /// By the prefetcher.
    pub streamed: u64,
    /// Cycles waited while the line was on its way to another core.
    pub queued: u64,
    /// Cycles of all of them, those waited included.
    pub cycles: u64,
}

impl Outcome {
    /// Waiting for the locks of a class, in percent of all cycles.
    #[must_use]
    pub fn spin_percent(&self, lock: &str) -> f64 {
        self.percent(self.spins.iter().filter(|spin| spin.lock == lock))
    }

    /// Waiting for the locks of a class while doing one thing, in percent of all cycles.
    #[must_use]
    pub fn spin_percent_during(&self, lock: &str, during: &str) -> f64 {
        self.percent(self.spins.iter().filter(|spin| spin.lock == lock && spin.during == during))
    }

    /// Waiting for lines of the allocator that were on their way to another core, in percent of all
    /// cycles.
    ///
    /// ```
    /// use zonal_sim::outcome::{LineProfile, Outcome};
    /// let line = |class, queued| LineProfile { class, queued, ..LineProfile::default() };
    /// let lines = vec![line("map lines", 3), line("map hints", 2), line("pages", 9)];
    /// let outcome = Outcome { cycles: 1000, lines, ..Outcome::default() };
    /// assert_eq!(outcome.line_percent(), 0.5);
    /// ```
    #[must_use]
    pub fn line_percent(&self) -> f64 {
        let own = self.lines.iter().filter(|line| !AROUND.contains(&line.class));
        let queued: u64 = own.map(|line| line.queued).sum();
        queued as f64 * 100.0 / self.cycles.max(1) as f64
    }

    /// The figure of that name.
    #[must_use]
    pub fn figure(&self, name: &str) -> Option<f64> {
        self.figures.iter().find(|figure| figure.name == name).map(|figure| figure.value)
    }

    fn percent<'a>(&self, spins: impl Iterator<Item = &'a Spin>) -> f64 {
        let spun: u64 = spins.map(|spin| spin.cycles).sum();
        if self.cycles == 0 { 0.0 } else { spun as f64 * 100.0 / self.cycles as f64 }
    }
}
