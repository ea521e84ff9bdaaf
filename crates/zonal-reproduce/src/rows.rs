//! Published beside simulated, and how far apart they are.
//!
//! **Fitted, chosen in view or predicted.** The constants of the machines are fitted on rows of the
//! *base* kernels alone (`base`, `one_zone`, `3.16-rc1`): those rows are `fitted`. Where page cache is
//! allocated under `3.0`, which is not patched either, is fitted as well. So is the number of bulk frees
//! (`free_pcppages_bulk_calls`), which sets how long the run was; the counts beside it are
//! scaled to it, and predicted. Rows of an unpatched kernel that nothing was fitted on are `base`.
//!
//! Every row of a patched kernel is `predicted`, but where something of the workload was settled after a
//! look at such rows: those are `chosen in view`, and [`CHOICES`] says what was chosen.
//!
//! **Error of the change.** What a patch does is its change against the base. A row of a patched kernel
//! that has a base has the difference between the simulated change and the published one, beside what
//! predicting no change at all would be off: in parts of the base for rates, counts and times, in
//! points / 100 for shares. The *skill* is 1 − the one / the other: 1 is perfect, 0 is no better than
//! saying that the patches do nothing, below 0 is worse.
//!
//! **Wrong sign.** A predicted row has the wrong sign if it is a change and the simulated one goes
//! the other way; or if it is a rate or score of page faults whose published change against the base is
//! larger than the standard deviation of that change (where one is published), and the simulated change
//! goes the other way. Times, success rates of huge pages and what disks do (`tiobench`, bonnie,
//! `disk_latency`) have no published spread and are not judged.
//!
//! ```
//! use zonal_reproduce::rows::Summary;
//!
//! assert_eq!(Summary::of(&[]).skill, None);
//! ```

use serde::Serialize;

use super::facts::{Fact, Table, Unit};
use super::io_runs::{self, IoRuns};
use super::plan::{self, LENGTH, Measure, Planner, Runs};

/// How a simulated number came about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Constants were chosen so that it comes out.
    Fitted,
    /// Of an unpatched kernel, and nothing was chosen for it.
    Base,
    /// Of a patched kernel; something of the workload was settled after a look at such rows:
    /// [`CHOICES`].
    InView,
    /// Nothing was chosen for it.
    Predicted,
}

/// What was settled after a look at rows of patched kernels: of which, and what.
pub const CHOICES: [(&str, &str); 4] = [
    (
        "huge pages beside single ones",
        "which stretch is measured: the third and fourth million single pages. The scores of patched \
         kernels depend on it; the book has them over time",
    ),
    (
        "page_fault1 on 112 CPUs and with 16 processes",
        "the cycles of aging before the run: ten, or two where tasks are apart",
    ),
    (
        "512 GB freed in parallel",
        "`lru_delete` of the machine: the Broadwell's in nanoseconds. The base's rows allow for 52 to 64 cycles, \
         and the row of `Cluster` goes from 67 to 5 % with them",
    ),
    (
        "page_fault1 on 1 to 40 CPUs",
        "that tasks are anywhere in their cycles (`spread` of the machine), and with it the two cycles of aging",
    ),
];

impl Kind {
    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fitted => "fitted",
            Self::Base => "base",
            Self::InView => "chosen in view",
            Self::Predicted => "predicted",
        }
    }

    fn of(fact: &Fact) -> Self {
        let spread = fact.kernel == "3.0" && fact.workload == "tiobench_80_percent";
        let fitted = fact.is_base() || spread || fact.metric == LENGTH;
        match fitted {
            true if is_fitted_on(fact) => Self::Fitted,
            // Nothing of the model was chosen with these in view.
            true if matches!(fact.table, Table::Tiobench | Table::DiskLatency) => Self::Predicted,
            true => Self::Base,
            false if is_chosen_in_view(fact) => Self::InView,
            false => Self::Predicted,
        }
    }

    /// Whether it is of a patched kernel.
    #[must_use]
    pub const fn is_patched(self) -> bool {
        matches!(self, Self::InView | Self::Predicted)
    }
}

/// Whether something of the workload was settled after a look at such rows: [`CHOICES`].
fn is_chosen_in_view(fact: &Fact) -> bool {
    ["page_fault1", "thp_mix", "parallel_free"].iter().any(|name| fact.workload.starts_with(name))
}

/// Whether some constant was chosen with the row, of a kernel that constants may be fitted on, in view:
/// the machine files say which.
fn is_fitted_on(fact: &Fact) -> bool {
    match fact.table {
        // The requests with 100 ms between them were.
        Table::ZoneLock => fact.workload != "stress_highalloc_delay_1ms",
        // What a cached page takes, and what a file does besides.
        Table::BatchedIrq => matches!(&*fact.metric, "2nd-qrtle" | "SeqCreate_del"),
        // What part of both velocities is DMA32's was, neither velocity.
        Table::FairZone => !matches!(&*fact.metric, "dma32_velocity" | "normal_velocity"),
        Table::Broadwell => true,
        // The outer rate of each disk.
        Table::Tiobench => {
            let one = fact.tasks == Some(1) && fact.metric == "mean_mb_per_s";
            one && fact.workload == "tiobench_SeqRead"
        }
        // How many requests the scheduler takes.
        Table::DiskLatency => fact.metric == "max_avgqz",
    }
}

/// A published number beside the simulated one.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The table it is from.
    pub table: &'static str,
    /// The machine.
    pub machine: String,
    /// The workload and its variant.
    pub workload: String,
    /// The kernel.
    pub kernel: String,
    /// What was measured.
    pub metric: String,
    /// Tasks, where the table has a row for each number of them.
    pub tasks: Option<u32>,
    /// Of tiobench and the disk: which statistic it is, of which operation.
    pub stat: Option<String>,
    /// See [`stat`](Self::stat).
    pub operation: Option<String>,
    /// The unit.
    pub unit: &'static str,
    /// The published number.
    pub published: f64,
    /// The simulated one, if there is one.
    pub simulated: Option<f64>,
    /// How far off that is, see [`Unit::error`].
    pub error: Option<f64>,
    /// Fitted, chosen in view, predicted.
    pub kind: Kind,
    /// The published change against the base kernel, in percent.
    pub published_change: Option<f64>,
    /// The simulated one.
    pub simulated_change: Option<f64>,
    /// How far the simulated change is off the published one.
    pub change_error: Option<f64>,
    /// How far no change at all is off.
    pub no_change_error: Option<f64>,
    /// Whether a simulated change goes the other way; `None` if there is nothing to judge.
    pub wrong_sign: Option<bool>,
    /// Why there is no simulated number.
    pub reason: Option<String>,
    /// The same unit, typed.
    #[serde(skip)]
    pub kind_of_unit: Unit,
}

/// The base fact of a fact that is none itself.
fn base_of<'a>(fact: &Fact, facts: &'a [Fact]) -> Option<&'a Fact> {
    let alike = |it: &&Fact| {
        it.is_base()
            && (&it.machine, &it.workload, &it.metric, it.tasks)
                == (&fact.machine, &fact.workload, &fact.metric, fact.tasks)
    };
    if fact.is_base() { None } else { facts.iter().find(alike) }
}

/// Whether there is a fact that it is a change of.
pub(super) fn has_base(fact: &Fact, facts: &[Fact]) -> bool {
    base_of(fact, facts).is_some()
}

/// The rows of `chosen` facts, in their order; `all` has the base facts they are compared with.
#[must_use]
pub fn rows(
    chosen: &[&Fact],
    all: &[Fact],
    planner: &Planner,
    runs: &Runs,
    io: &IoRuns,
) -> Vec<Row> {
    chosen.iter().map(|fact| row(fact, all, planner, runs, io)).collect()
}

/// What the runs show of a fact, and what the base's show in its place.
fn read(
    fact: &Fact,
    planner: &Planner,
    runs: &Runs,
    io: &IoRuns,
) -> (Result<f64, String>, Option<f64>) {
    if io_runs::has(fact) {
        return (io.read(fact, false), io.read(fact, true).ok());
    }
    let measure = match planner.measure(fact) {
        Ok(measure) => measure,
        Err(why) => return (Err(why), None),
    };
    let of_base = Measure { key: measure.base.clone(), ..measure.clone() };
    (runs.read(&measure), runs.read(&of_base).ok())
}

fn row(fact: &Fact, all: &[Fact], planner: &Planner, runs: &Runs, io: &IoRuns) -> Row {
    let (simulated, of_base) = read(fact, planner, runs, io);
    let base = base_of(fact, all).filter(|_| fact.unit.has_ratio());
    let published_change = base.and_then(|base| plan::change(fact.published, base.published).ok());
    let simulated_change =
        base.and(of_base).and_then(|of_base| plan::change(*simulated.as_ref().ok()?, of_base).ok());
    let is_of_disk = matches!(fact.table, Table::Tiobench | Table::DiskLatency);
    let stat = fact.metric.split_once('_').filter(|_| is_of_disk).map(|(stat, _)| stat.into());
    let mut row = Row {
        table: fact.table.name(),
        machine: fact.machine.clone(),
        workload: fact.workload.clone(),
        kernel: fact.kernel.clone(),
        metric: fact.metric.clone(),
        tasks: fact.tasks,
        stat,
        operation: fact.workload.strip_prefix("tiobench_").filter(|_| is_of_disk).map(Into::into),
        unit: fact.unit.name(),
        published: fact.published,
        error: simulated.as_ref().ok().map(|it| fact.unit.error(*it, fact.published)),
        reason: simulated.as_ref().err().cloned(),
        simulated: simulated.ok(),
        kind: Kind::of(fact),
        published_change,
        simulated_change,
        change_error: None,
        no_change_error: None,
        wrong_sign: None,
        kind_of_unit: fact.unit,
    };
    if row.kind.is_patched() {
        let errors = change_errors(base_of(fact, all), of_base, &row);
        (row.change_error, row.no_change_error) = errors.unzip();
    }
    row.wrong_sign = wrong_sign(fact, base, &row);
    row
}

/// How far the simulated change is off, and how far no change is; `of_base` is what the base's run
/// shows.
fn change_errors(base: Option<&Fact>, of_base: Option<f64>, row: &Row) -> Option<(f64, f64)> {
    let (published, simulated) = match row.kind_of_unit {
        Unit::PercentChange => (row.published, row.simulated?),
        Unit::PercentCycles | Unit::PercentCyclesAtMost | Unit::PercentShare => {
            (row.published - base?.published, row.simulated? - of_base?)
        }
        _ => (row.published_change?, row.simulated_change?),
    };
    if row.kind_of_unit == Unit::PercentCyclesAtMost {
        // What falls further is as published.
        return Some(((simulated - published).max(0.0) / 100.0, (-published).max(0.0) / 100.0));
    }
    Some(((simulated - published).abs() / 100.0, published.abs() / 100.0))
}

fn wrong_sign(fact: &Fact, base: Option<&Fact>, row: &Row) -> Option<bool> {
    let opposite = |published: f64, simulated: f64| published * simulated <= 0.0;
    match fact.unit {
        Unit::PercentChange => Some(opposite(fact.published, row.simulated?)),
        Unit::FaultsPerSecond | Unit::Faults => {
            let base = base?;
            let spread = fact.stddev.unwrap_or(0.0).hypot(base.stddev.unwrap_or(0.0));
            let clear = (fact.published - base.published).abs() > spread;
            if clear { Some(opposite(row.published_change?, row.simulated_change?)) } else { None }
        }
        _ => None,
    }
}

/// How well changes are predicted, over some rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Skill {
    /// Rows that have a change.
    pub rows: usize,
    /// Of them, those that something was chosen in view of.
    pub in_view: usize,
    /// The mean error of the simulated changes.
    pub error: f64,
    /// The mean error of predicting no change.
    pub no_change: f64,
}

impl Skill {
    /// That of `rows`; `None` if none has a change.
    #[must_use]
    pub fn of<'a>(rows: impl IntoIterator<Item = &'a Row>) -> Option<Self> {
        let mut all = Self { rows: 0, in_view: 0, error: 0.0, no_change: 0.0 };
        for row in rows {
            let Some((error, no_change)) = row.change_error.zip(row.no_change_error) else {
                continue;
            };
            all.rows += 1;
            all.in_view += usize::from(row.kind == Kind::InView);
            all.error += error;
            all.no_change += no_change;
        }
        let mean = |sum: f64| sum / all.rows as f64;
        (all.rows > 0).then(|| Self {
            error: mean(all.error),
            no_change: mean(all.no_change),
            ..all
        })
    }

    /// 1 less the quotient of the two; `None` if nothing changes.
    #[must_use]
    pub fn over_no_change(&self) -> Option<f64> {
        (self.no_change > 0.0).then(|| 1.0 - self.error / self.no_change)
    }
}

/// What rows come to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    /// Rows.
    pub rows: usize,
    /// Of them, those without a simulated number.
    pub missing: usize,
    /// The mean absolute error of the fitted rows.
    pub mean_error_fitted: Option<f64>,
    /// How well changes are predicted.
    pub skill: Option<Skill>,
    /// Rows with a sign to judge.
    pub signs: usize,
    /// Of them, those that have it wrong.
    pub wrong_signs: usize,
}

impl Summary {
    /// The summary of `rows`.
    #[must_use]
    pub fn of<'a>(rows: impl IntoIterator<Item = &'a Row>) -> Self {
        let rows: Vec<&Row> = rows.into_iter().collect();
        let fitted = rows.iter().filter(|row| row.kind == Kind::Fitted);
        let fitted: Vec<f64> = fitted.filter_map(|row| row.error).map(f64::abs).collect();
        let mean = fitted.iter().sum::<f64>() / fitted.len() as f64;
        Self {
            rows: rows.len(),
            missing: rows.iter().filter(|row| row.simulated.is_none()).count(),
            mean_error_fitted: (!fitted.is_empty()).then_some(mean),
            skill: Skill::of(rows.iter().copied()),
            signs: rows.iter().filter(|row| row.wrong_sign.is_some()).count(),
            wrong_signs: rows.iter().filter(|row| row.wrong_sign == Some(true)).count(),
        }
    }

    /// The summaries of each table that has rows.
    #[must_use]
    pub fn by_table(rows: &[Row]) -> Vec<(&'static str, Self)> {
        let of = |table: Table| {
            let rows = rows.iter().filter(|row| row.table == table.name());
            (table.name(), Self::of(rows))
        };
        Table::ALL.into_iter().map(of).filter(|(_, summary)| summary.rows > 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(kind: Kind, error: Option<f64>) -> Row {
        Row {
            table: "zone_lock",
            machine: String::new(),
            workload: String::new(),
            kernel: String::new(),
            metric: String::new(),
            tasks: None,
            stat: None,
            operation: None,
            unit: "count",
            published: 1.0,
            simulated: error.map(|error| error + 1.0),
            error,
            kind,
            published_change: None,
            simulated_change: None,
            change_error: None,
            no_change_error: None,
            wrong_sign: None,
            reason: None,
            kind_of_unit: Unit::Count,
        }
    }

    #[test]
    fn skill_is_over_predicting_no_change() {
        let with = |error, no_change| Row {
            change_error: Some(error),
            no_change_error: Some(no_change),
            ..row(Kind::Predicted, Some(0.0))
        };
        let rows = [with(0.01, 0.04), with(0.03, 0.04), row(Kind::Predicted, Some(2.0))];
        let skill = Skill::of(&rows).expect("two rows have a change");
        assert_eq!((skill.rows, skill.error, skill.no_change), (2, 0.02, 0.04));
        assert_eq!(skill.in_view, 0);
        let seen = Row { kind: Kind::InView, ..with(0.01, 0.04) };
        let skill_seen = Skill::of(&[seen, with(0.01, 0.04)]).expect("two rows");
        assert_eq!((skill_seen.rows, skill_seen.in_view), (2, 1), "they count, and are told");
        assert_eq!(skill.over_no_change(), Some(0.5));
        assert_eq!(Skill::of(&rows[2..]), None);
        let worse = Skill::of(&[with(0.09, 0.045)]).and_then(|it| it.over_no_change());
        assert_eq!(worse, Some(-1.0), "twice as far off as saying nothing");
    }

    #[test]
    fn the_only_mean_of_errors_is_that_of_fitted_rows() {
        let rows = [
            row(Kind::Predicted, Some(-0.5)),
            row(Kind::InView, Some(0.1)),
            row(Kind::Predicted, None),
            row(Kind::Fitted, Some(4.0)),
        ];
        let summary = Summary::of(&rows);
        assert_eq!(summary.mean_error_fitted, Some(4.0));
        assert_eq!((summary.rows, summary.missing), (4, 1));
    }
}
