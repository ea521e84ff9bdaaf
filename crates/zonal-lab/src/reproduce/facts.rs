//! The published numbers, one fact each.
//!
//! `zone_lock` is from Lu, "Eliminate zone->lock contention for will-it-scale/page_fault1 and
//! parallel free", RFC v2, March 2018, and from Huang, "mm: create multiple zone instances",
//! May 2023; `page_fault1_broadwell40` is what Jordan measured of the former on 40 CPUs, with
//! standard deviations.
//!
//! ```
//! use zonal_lab::reproduce::facts::{self, Table};
//!
//! let facts = facts::all();
//! assert!(facts.iter().any(|fact| fact.table == Table::ZoneLock && fact.published == 80.0));
//! ```

use serde::Deserialize;

const ZONE_LOCK: &str = include_str!("../../data/zone_lock.csv");
const BROADWELL: &str = include_str!("../../data/published_page_fault1_broadwell40.csv");

/// The machine of the second table: two sockets of ten cores with two threads each.
pub const BROADWELL_MACHINE: &str = "broadwell_2s_40cpu";

/// A table of published numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Table {
    /// Waiting for the zone lock and the LRU lock, scores, huge pages, counts of bulk frees.
    ZoneLock,
    /// `page_fault1` on 1 to 40 CPUs.
    Broadwell,
}

impl Table {
    /// Both.
    pub const ALL: [Self; 2] = [Self::ZoneLock, Self::Broadwell];

    /// Its name in results.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::ZoneLock => "zone_lock",
            Self::Broadwell => "page_fault1_broadwell40",
        }
    }
}

/// What a number is of, which says what the error of a simulated one is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A share of all cycles, in percent.
    PercentCycles,
    /// The same, known to be no more than that.
    PercentCyclesAtMost,
    /// A change against the base kernel, in percent.
    PercentChange,
    /// A part of what was asked for, in percent.
    PercentRate,
    /// Nanoseconds.
    Ns,
    /// Something counted.
    Count,
    /// Page faults, over a time the source does not state with the number.
    Faults,
    /// Page faults a second.
    FaultsPerSecond,
}

impl Unit {
    /// Its name in results.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::PercentCycles => "percent_cycles",
            Self::PercentCyclesAtMost => "percent_cycles_upper_bound",
            Self::PercentChange | Self::PercentRate => "percent",
            Self::Ns => "ns",
            Self::Count => "count",
            Self::Faults => "faults",
            Self::FaultsPerSecond => "faults_per_s",
        }
    }

    fn of(unit: &str, metric: &str) -> Option<Self> {
        Some(match (unit, metric) {
            ("percent_cycles", _) => Self::PercentCycles,
            ("percent_cycles_upper_bound", _) => Self::PercentCyclesAtMost,
            ("percent", "score_change") => Self::PercentChange,
            ("percent", _) => Self::PercentRate,
            ("ns", _) => Self::Ns,
            ("count", _) => Self::Count,
            ("faults", _) => Self::Faults,
            _ => return None,
        })
    }

    /// The error of `simulated`: as a part of `published` for counts, rates and times; the
    /// difference in points / 100 for shares of cycles and for changes; above a bound, what
    /// is above it, and 0 at or below.
    ///
    /// ```
    /// use zonal_lab::reproduce::facts::Unit;
    ///
    /// assert_eq!(Unit::Count.error(110.0, 100.0), 110.0 / 100.0 - 1.0);
    /// assert_eq!(Unit::PercentCycles.error(78.0, 80.0), -0.02);
    /// assert_eq!(Unit::PercentCyclesAtMost.error(0.4, 1.6), 0.0);
    /// ```
    #[must_use]
    pub fn error(self, simulated: f64, published: f64) -> f64 {
        match self {
            Self::PercentCycles | Self::PercentChange => (simulated - published) / 100.0,
            Self::PercentCyclesAtMost => ((simulated - published) / 100.0).max(0.0),
            Self::PercentRate | Self::Ns | Self::Count | Self::Faults | Self::FaultsPerSecond => {
                simulated / published - 1.0
            }
        }
    }

    /// Whether a change of such a number is told as a ratio.
    #[must_use]
    pub const fn has_ratio(self) -> bool {
        matches!(
            self,
            Self::PercentRate | Self::Ns | Self::Count | Self::Faults | Self::FaultsPerSecond
        )
    }
}

/// One published number.
#[derive(Clone, Debug, PartialEq)]
pub struct Fact {
    /// Where it is published.
    pub table: Table,
    /// The machine.
    pub machine: String,
    /// The workload and its variant.
    pub workload: String,
    /// The kernel: `base`, a patch, `one_zone`, ...
    pub kernel: String,
    /// What was measured.
    pub metric: String,
    /// Tasks, where the table has a row for each number of them.
    pub tasks: Option<u32>,
    /// The number.
    pub published: f64,
    /// Its standard deviation, where published.
    pub stddev: Option<f64>,
    /// Its unit.
    pub unit: Unit,
}

impl Fact {
    /// Whether it is of the kernel that others are compared with.
    #[must_use]
    pub fn is_base(&self) -> bool {
        matches!(&*self.kernel, "base" | "one_zone")
    }
}

#[derive(Deserialize)]
struct ZoneLockLine {
    machine: String,
    workload: String,
    kernel: String,
    metric: String,
    value: f64,
    unit: String,
}

#[derive(Deserialize)]
struct BroadwellLine {
    ntask: u32,
    kernel: String,
    processes_faults_per_s: f64,
    processes_stddev: f64,
    threads_faults_per_s: f64,
    threads_stddev: f64,
}

fn lines<T: for<'a> Deserialize<'a>>(text: &'static str) -> impl Iterator<Item = T> {
    // Both tables are part of the program, and a test reads every line of them.
    csv::Reader::from_reader(text.as_bytes()).into_deserialize().filter_map(Result::ok)
}

/// Every published number, in the order of the tables; of `page_fault1_broadwell40` first those
/// of processes, then those of threads.
#[must_use]
pub fn all() -> Vec<Fact> {
    let zone_lock = lines(ZONE_LOCK).filter_map(|line: ZoneLockLine| {
        Some(Fact {
            table: Table::ZoneLock,
            unit: Unit::of(&line.unit, &line.metric)?,
            machine: line.machine,
            workload: line.workload,
            kernel: line.kernel,
            metric: line.metric,
            tasks: None,
            published: line.value,
            stddev: None,
        })
    });
    let mode = |line: &BroadwellLine, mode: &str, published: f64, stddev: f64| Fact {
        table: Table::Broadwell,
        machine: BROADWELL_MACHINE.into(),
        workload: format!("page_fault1_{mode}"),
        kernel: line.kernel.clone(),
        metric: format!("{mode}_faults_per_s"),
        tasks: Some(line.ntask),
        published,
        stddev: Some(stddev),
        unit: Unit::FaultsPerSecond,
    };
    let broadwell: Vec<BroadwellLine> = lines(BROADWELL).collect();
    let processes = broadwell
        .iter()
        .map(|line| mode(line, "processes", line.processes_faults_per_s, line.processes_stddev));
    let threads = broadwell
        .iter()
        .map(|line| mode(line, "threads", line.threads_faults_per_s, line.threads_stddev));
    zone_lock.chain(processes).chain(threads).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_a_fact() {
        let facts = all();
        let of = |table| facts.iter().filter(|fact| fact.table == table).count();
        assert_eq!(of(Table::ZoneLock), ZONE_LOCK.lines().count() - 1);
        assert_eq!(of(Table::Broadwell), 2 * (BROADWELL.lines().count() - 1));
    }

    #[test]
    fn the_rows_beside_measurements_are_among_them() {
        let beside = include_str!("../../data/published_zone_lock.csv");
        for line in beside.lines() {
            assert!(ZONE_LOCK.lines().any(|it| it == line), "{line}");
        }
    }

    #[test]
    fn only_bounds_forgive_what_is_below() {
        assert_eq!(Unit::PercentCyclesAtMost.error(2.6, 1.6), 0.01);
        assert_eq!(Unit::PercentCycles.error(0.6, 1.6), -0.01);
        assert_eq!(Unit::PercentRate.error(29.0, 58.0), -0.5);
        assert_eq!(Unit::PercentChange.error(-3.0, 8.0), -0.11);
        assert_eq!(Unit::Ns.error(30.0, 20.0), 0.5);
    }
}
