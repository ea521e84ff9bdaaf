//! The published numbers, one fact each.
//!
//! `zone_lock` is from Lu, "Eliminate zone->lock contention for will-it-scale/page_fault1 and
//! parallel free", RFC v2, March 2018, and from Huang, "mm: create multiple zone instances",
//! May 2023; `page_fault1_broadwell40` is what Jordan measured of the former on 40 CPUs, with
//! standard deviations. `fair_zone` is from Gorman, "Reset fair zone allocation policy when batch
//! counts are expired", June 2014, and from Weiner's review of it; `batched_irq` from Gorman,
//! "Enable/disable IRQs once when freeing a list of pages", November 2017.
//!
//! ```
//! use zonal_reproduce::facts::{self, Table};
//!
//! let facts = facts::all();
//! assert!(facts.iter().any(|fact| fact.table == Table::ZoneLock && fact.published == 80.0));
//! ```

use serde::Deserialize;

const ZONE_LOCK: &str = include_str!("../data/zone_lock.csv");
const BROADWELL: &str = include_str!("../data/published_page_fault1_broadwell40.csv");

const FAIR_ZONE: &str = include_str!("../data/fair_zone.csv");
const BATCHED_IRQ: &str = include_str!("../data/batched_irq.csv");
const TIOBENCH: &str = include_str!("../data/tiobench.csv");
const DISK_LATENCY: &str = include_str!("../data/disk_latency.csv");

/// The machine of the second table: two sockets of ten cores with two threads each.
pub const BROADWELL_MACHINE: &str = "broadwell_2s_40cpu";

/// A table of published numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Table {
    /// Waiting for the zone lock and the LRU lock, scores, huge pages, counts of bulk frees.
    ZoneLock,
    /// `page_fault1` on 1 to 40 CPUs.
    Broadwell,
    /// Where page cache is allocated on two zones, and how fast each is reclaimed.
    FairZone,
    /// Lists of pages freed with interrupts turned off once.
    BatchedIrq,
    /// Rates of reading and writing files through page cache, scheduler and disk.
    Tiobench,
    /// Queue and waiting times of the disk meanwhile.
    DiskLatency,
}

impl Table {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::ZoneLock,
        Self::Broadwell,
        Self::FairZone,
        Self::BatchedIrq,
        Self::Tiobench,
        Self::DiskLatency,
    ];

    /// Its name in results.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::ZoneLock => "zone_lock",
            Self::Broadwell => "page_fault1_broadwell40",
            Self::FairZone => "fair_zone",
            Self::BatchedIrq => "batched_irq",
            Self::Tiobench => "tiobench",
            Self::DiskLatency => "disk_latency",
        }
    }

    /// A shorter name on the command line, if it has one.
    #[must_use]
    pub const fn short(self) -> Option<&'static str> {
        match self {
            Self::Broadwell => Some("broadwell"),
            _ => None,
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
    /// A part of what was asked for, or of the mean, in percent.
    PercentRate,
    /// Nanoseconds.
    Ns,
    /// Something counted.
    Count,
    /// Page faults, over a time the source does not state with the number.
    Faults,
    /// Page faults a second.
    FaultsPerSecond,
    /// Pages allocated, over a test whose length is its own.
    Pages,
    /// A part of all pages, in percent.
    PercentShare,
    /// Pages that reclaim looked at, a second.
    PagesPerSecond,
    /// Microseconds.
    Us,
    /// Operations a second.
    OpsPerSecond,
    /// MiB a second, which the source calls MB.
    MbPerSecond,
    /// Milliseconds.
    Ms,
    /// Requests in a queue, on average.
    Requests,
}

impl Unit {
    /// Its name in results.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::PercentCycles => "percent_cycles",
            Self::PercentCyclesAtMost => "percent_cycles_upper_bound",
            Self::PercentChange | Self::PercentRate | Self::PercentShare => "percent",
            Self::Ns => "ns",
            Self::Count => "count",
            Self::Faults => "faults",
            Self::FaultsPerSecond => "faults_per_s",
            Self::Pages => "pages",
            Self::PagesPerSecond => "pages_scanned_per_s",
            Self::Us => "us",
            Self::OpsPerSecond => "ops_per_s",
            Self::MbPerSecond => "mb_per_s",
            Self::Ms => "ms",
            Self::Requests => "requests",
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
            ("pages", _) => Self::Pages,
            ("pages_scanned_per_s", _) => Self::PagesPerSecond,
            // The source prints the coefficient of variation among times, and the table has it so.
            ("us", "Coeff") => Self::PercentRate,
            ("us", _) => Self::Us,
            ("ops_per_s", _) => Self::OpsPerSecond,
            ("ms", _) => Self::Ms,
            ("requests", _) => Self::Requests,
            _ => return None,
        })
    }

    /// The error of `simulated`: as a part of `published` for counts, rates and times; the
    /// difference in points / 100 for shares and for changes; above a bound, what
    /// is above it, and 0 at or below.
    ///
    /// ```
    /// use zonal_reproduce::facts::Unit;
    ///
    /// assert_eq!(Unit::Count.error(110.0, 100.0), 110.0 / 100.0 - 1.0);
    /// assert_eq!(Unit::PercentCycles.error(78.0, 80.0), -0.02);
    /// assert_eq!(Unit::PercentCyclesAtMost.error(0.4, 1.6), 0.0);
    /// ```
    #[must_use]
    pub fn error(self, simulated: f64, published: f64) -> f64 {
        match self {
            Self::PercentCycles | Self::PercentChange | Self::PercentShare => {
                (simulated - published) / 100.0
            }
            Self::PercentCyclesAtMost => ((simulated - published) / 100.0).max(0.0),
            _ => simulated / published - 1.0,
        }
    }

    /// Whether a change of such a number is told as a ratio.
    #[must_use]
    pub const fn has_ratio(self) -> bool {
        matches!(
            self,
            Self::PercentRate
                | Self::Ns
                | Self::Count
                | Self::Faults
                | Self::FaultsPerSecond
                | Self::PagesPerSecond
                | Self::Us
                | Self::OpsPerSecond
                | Self::MbPerSecond
                | Self::Ms
                | Self::Requests
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
        matches!(&*self.kernel, "base" | "one_zone" | "3.16-rc1")
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
struct FairZoneLine {
    machine: String,
    kernel: String,
    metric: String,
    value: f64,
    unit: String,
}

#[derive(Deserialize)]
struct BatchedIrqLine {
    workload: String,
    kernel: String,
    metric: String,
    value: f64,
    unit: String,
}

#[derive(Deserialize)]
struct TiobenchLine {
    machine: String,
    stat: String,
    operation: String,
    threads: u32,
    kernel: String,
    mb_per_s: f64,
}

#[derive(Deserialize)]
struct DiskLatencyLine {
    machine: String,
    kernel: String,
    stat: String,
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
    // The tables are part of the program, and a test reads every line of them.
    csv::Reader::from_reader(text.as_bytes()).into_deserialize().filter_map(Result::ok)
}

/// Every published number, in the order of the tables; of `page_fault1_broadwell40` first those
/// of processes, then those of threads; of `fair_zone` the shares that follow from two numbers
/// after these.
#[must_use]
pub fn all() -> Vec<Fact> {
    let mut all = zone_lock();
    all.extend(broadwell());
    all.extend(fair_zone());
    all.extend(batched_irq());
    all.extend(tiobench());
    all.extend(disk_latency());
    all
}

fn zone_lock() -> Vec<Fact> {
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
    zone_lock.collect()
}

fn broadwell() -> Vec<Fact> {
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
    processes.chain(threads).collect()
}

/// The numbers of each zone, and after those of the second zone what part of both is DMA32's.
fn fair_zone() -> Vec<Fact> {
    let mut facts: Vec<Fact> = Vec::new();
    for line in lines::<FairZoneLine>(FAIR_ZONE) {
        let Some(unit) = Unit::of(&line.unit, &line.metric) else { continue };
        let spread = unit == Unit::Pages;
        let share = if spread { "dma32_share" } else { "dma32_velocity_share" };
        let fact = Fact {
            table: Table::FairZone,
            machine: line.machine,
            workload: if spread { "tiobench_80_percent" } else { "tiobench" }.into(),
            kernel: line.kernel,
            metric: line.metric,
            tasks: None,
            published: line.value,
            stddev: None,
            unit,
        };
        let other = facts
            .last()
            .filter(|it| (&it.machine, &it.kernel, it.unit) == (&fact.machine, &fact.kernel, unit));
        let share = other.map(|other| {
            let both = [other, &fact];
            let dma32 = both.iter().find(|it| it.metric.starts_with("dma32"));
            let part = dma32.map_or(0.0, |it| it.published) * 100.0;
            let published = part / (other.published + fact.published);
            Fact { metric: share.into(), published, unit: Unit::PercentShare, ..fact.clone() }
        });
        facts.push(fact);
        facts.extend(share);
    }
    facts
}

fn batched_irq() -> Vec<Fact> {
    let each = lines(BATCHED_IRQ).filter_map(|line: BatchedIrqLine| {
        Some(Fact {
            table: Table::BatchedIrq,
            unit: Unit::of(&line.unit, &line.metric)?,
            machine: "desktop".into(),
            workload: line.workload,
            kernel: line.kernel,
            metric: line.metric,
            tasks: None,
            published: line.value,
            stddev: None,
        })
    });
    each.collect()
}

/// The statistic, mean, min or max, is part of the metric, the operation of the workload.
fn tiobench() -> impl Iterator<Item = Fact> {
    lines(TIOBENCH).map(|line: TiobenchLine| Fact {
        table: Table::Tiobench,
        machine: line.machine,
        workload: format!("tiobench_{}", line.operation),
        kernel: line.kernel,
        metric: format!("{}_mb_per_s", line.stat),
        tasks: Some(line.threads),
        published: line.mb_per_s,
        stddev: None,
        unit: Unit::MbPerSecond,
    })
}

fn disk_latency() -> impl Iterator<Item = Fact> {
    lines(DISK_LATENCY).filter_map(|line: DiskLatencyLine| {
        Some(Fact {
            table: Table::DiskLatency,
            unit: Unit::of(&line.unit, &line.metric)?,
            machine: line.machine,
            workload: "tiobench".into(),
            kernel: line.kernel,
            metric: format!("{}_{}", line.stat, line.metric),
            tasks: None,
            published: line.value,
            stddev: None,
        })
    })
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
        // Every two are followed by their share.
        assert_eq!(2 * of(Table::FairZone), 3 * (FAIR_ZONE.lines().count() - 1));
        assert_eq!(of(Table::BatchedIrq), BATCHED_IRQ.lines().count() - 1);
        assert_eq!((of(Table::Tiobench), of(Table::DiskLatency)), (370, 32));
    }

    #[test]
    fn shares_are_those_of_the_review() {
        let facts = all();
        let share = |kernel: &str| {
            let mut of = facts.iter().filter(|fact| fact.metric == "dma32_share");
            let fact = of.find(|fact| fact.kernel == kernel).expect("each kernel has one");
            format!("{:.1}", fact.published)
        };
        let shares = ["3.16-rc1", "cfq600", "fairzone", "3.0"].map(share);
        assert_eq!(shares, ["37.1", "37.0", "31.6", "29.1"]);
    }

    #[test]
    fn coefficients_of_variation_are_percentages() {
        let facts = all();
        let value = |kernel: &str, metric: &str| {
            let mut of = facts.iter().filter(|it| it.table == Table::BatchedIrq);
            let fact = of.find(|it| it.kernel == kernel && it.metric == metric);
            fact.expect("it is published")
        };
        for kernel in ["base", "one_irq"] {
            let (mean, deviation) = (value(kernel, "Amean"), value(kernel, "Stddev"));
            assert_eq!((mean.unit, deviation.unit), (Unit::Us, Unit::Us));
            let coefficient = value(kernel, "Coeff");
            assert_eq!(coefficient.unit, Unit::PercentRate);
            let percent = deviation.published * 100.0 / mean.published;
            assert!((coefficient.published - percent).abs() < 0.01, "{percent} %");
        }
    }

    #[test]
    fn the_rows_beside_measurements_are_among_them() {
        let beside = include_str!("../../zonal-bench/data/published_zone_lock.csv");
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
