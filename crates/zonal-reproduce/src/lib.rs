//! `zonal reproduce`: what the sources published beside what the simulator makes of it.
//!
//! Every number of the [tables](facts) is a [row](rows), [fitted or predicted](rows::Kind);
//! a [planner](plan) finds the runs that show them, each distinct one is done once, and the rest
//! is presentation: [text], [charts], a [report](mod@report).
//!
//! ```
//! use clap::Parser;
//! use zonal_reproduce::{Cli, Command};
//!
//! let line = "zonal reproduce --quick --only parallel_free_512g";
//! let Command::Reproduce(args) = Cli::parse_from(line.split(' ')).command;
//! assert!(args.quick);
//! ```

pub mod charts;
pub mod extras;
pub mod facts;
pub mod io_runs;
pub mod plan;
pub mod report;
pub mod rows;
pub mod sections;
pub mod targets;
pub mod text;

use std::io::{self, Write};
use std::path::PathBuf;

use clap::{Args, Subcommand};

use charts::Chart;
use extras::Extras;
use facts::{Fact, Table};
use io_runs::{IoRunner, IoRuns, IoSimulator};
use plan::{Choice, Planner, Reading, Runs};
use rows::Row;
use sections::{SECTIONS, Section};
use targets::Target;
use zonal_cli::error::LabError;
use zonal_cli::interrupt;
use zonal_cli::outfile::{self, OutFile};
use zonal_cli::provenance::Provenance;
use zonal_sim::outcome::Outcome;
use zonal_simulate::runs::{Pool, Runner, Simulator};

/// The command line: the part of the `zonal` command that this program has.
pub type Cli = zonal_cli::command::Cli<Command>;

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Simulate what was published and print both, with the error of each number
    Reproduce(ReproduceArgs),
}

/// Arguments of `zonal reproduce`.
#[derive(Clone, Debug, Default, Args)]
pub struct ReproduceArgs {
    /// Shorter runs, one each where the mean of six is shown otherwise, and of the 40-CPU machine's
    /// only some numbers of tasks
    #[arg(long)]
    pub quick: bool,
    /// Only rows of these tables or sections of the report (zone-lock, broadwell, split-zones,
    /// fair-zone, batched-irq, ...), machines or workloads, separated by commas
    #[arg(long, visible_alias = "table", value_delimiter = ',', num_args = 1..,
          value_name = "NAME")]
    pub only: Vec<String>,
    /// Seed of every random choice
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Print JSON, one object a row and line, instead of tables; the summary goes to stderr
    #[arg(long)]
    pub json: bool,
    /// Also write the rows to this file as CSV
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Also write a report to this file: HTML with charts, in one piece
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// Also write the charts to this directory, as SVG and PNG
    #[arg(long, value_name = "DIR")]
    pub charts: Option<PathBuf>,
    /// Runs at a time; one for each CPU of this machine if not given
    #[arg(long, default_value_t = 0, hide_default_value = true, value_name = "N")]
    pub jobs: usize,
    /// Show no progress bar
    #[arg(long)]
    pub no_progress: bool,
}

/// Which rows `--only` leaves.
#[derive(Clone, Debug, Default)]
pub struct Only(Vec<String>);

impl Only {
    /// The rows of any of these tables, sections, machines or workloads; all of them if there is no name.
    ///
    /// # Errors
    ///
    /// [`LabError::NothingCalled`] with the names there are, if one is no such name.
    pub fn new(names: &[String], facts: &[Fact]) -> Result<Self, LabError> {
        let called = |name: &String| name.replace('-', "_");
        let known = facts.iter().flat_map(|it| [it.table.name(), &it.machine, &it.workload]);
        let short = Table::ALL.into_iter().filter_map(Table::short).map(str::to_owned);
        let known = known.map(str::to_owned).chain(short);
        let mut known: Vec<String> = known.chain(SECTIONS.iter().map(section_name)).collect();
        known.sort_unstable();
        known.dedup();
        match names.iter().find(|name| !known.contains(&called(name))) {
            Some(name) => {
                Err(LabError::NothingCalled { name: name.clone(), known: known.join(", ") })
            }
            None => Ok(Self(names.iter().map(called).collect())),
        }
    }

    /// Whether rows of that table, machine and workload are among them.
    #[must_use]
    pub fn takes(&self, table: &str, machine: &str, workload: &str) -> bool {
        let short = Table::ALL.into_iter().find(|it| it.name() == table).and_then(Table::short);
        let named = |name: &String| {
            // A benchmark may be called as the table of its rates is.
            if Table::ALL.iter().any(|table| table.name() == name) {
                return table == name;
            }
            [table, machine, workload].contains(&name.as_str())
                || short == Some(name)
                || SECTIONS.iter().any(|section| {
                    section_name(section) == *name && section.takes(table, machine, workload)
                })
        };
        self.0.is_empty() || self.0.iter().any(named)
    }
}

/// The name of a section, written as those of tables are.
fn section_name(section: &Section) -> String {
    section.id.replace('-', "_")
}

/// Where the cycles of a run went, in percent of those of all CPUs at work.
#[derive(Clone, Debug, PartialEq)]
pub struct Cycles {
    /// The preset.
    pub label: String,
    /// The zone lock in allocation and in free, the LRU lock, other locks, everything else.
    pub parts: [f64; 5],
    /// What was achieved.
    pub faults_per_s: Option<f64>,
}

impl Cycles {
    fn new(label: &str, outcome: &Outcome) -> Self {
        let alloc = outcome.spin_percent_during("zone", "alloc");
        let zone = outcome.spin_percent("zone");
        let lru = outcome.spin_percent("lru");
        let classes = outcome.spins.iter().filter(|spin| !matches!(spin.lock, "zone" | "lru"));
        let other: u64 = classes.map(|spin| spin.cycles).sum();
        let other = other as f64 * 100.0 / outcome.cycles.max(1) as f64;
        Self {
            label: label.into(),
            parts: [alloc, zone - alloc, lru, other, 100.0 - zone - lru - other],
            faults_per_s: outcome.figure("faults_per_s"),
        }
    }
}

/// A curve: a score at each number of tasks.
pub type Curve = Vec<(u32, f64)>;

/// All that is to be shown.
#[derive(Clone, Debug)]
pub struct Report {
    /// What held for all runs.
    pub choice: Choice,
    /// How many runs there were, all those counted that a mean is of.
    pub runs: usize,
    /// Whether there is a number that is the mean of several runs.
    pub has_means: bool,
    /// Published beside simulated.
    pub rows: Vec<Row>,
    /// What was to be shown.
    pub targets: Vec<Target>,
    /// Where the cycles go on 112 CPUs, by preset.
    pub cycles: Vec<Cycles>,
    /// Zonal's curves on Broadwell: of processes and of threads, by the workload's name.
    pub zonal: Vec<(&'static str, Curve)>,
    /// Runs that failed, and why.
    pub failures: Vec<String>,
}

/// Runs what `args` ask for and prints the results to `out`, remarks to stderr.
///
/// # Errors
///
/// [`LabError`], before anything is run where the arguments are at fault;
/// [`LabError::NoResult`], after everything is written, if a run failed.
pub fn run(args: &ReproduceArgs, out: &mut dyn Write) -> Result<(), LabError> {
    run_on(&Simulator, &IoSimulator, args, out)
}

/// [`run`] on something else than the simulators.
///
/// # Errors
///
/// As [`run`].
pub fn run_on(
    runner: &impl Runner,
    io_runner: &dyn IoRunner,
    args: &ReproduceArgs,
    out: &mut dyn Write,
) -> Result<(), LabError> {
    let facts = facts::all();
    let only = Only::new(&args.only, &facts)?;
    let csv = args.csv.as_deref().map(OutFile::open).transpose()?;
    let html = args.report.as_deref().map(OutFile::open).transpose()?;
    if let (Some(csv), Some(html)) = (&csv, &html)
        && csv.is_same(html)
    {
        return Err(LabError::SameFile { first: "--csv", second: "--report" });
    }
    if let Some(directory) = &args.charts {
        std::fs::create_dir_all(directory)
            .map_err(|source| LabError::Unwritable { path: directory.clone(), source })?;
        outfile::probe(directory)?;
    }
    let pool = Pool::new(args.jobs, args.no_progress);
    let choice = Choice { seed: args.seed, quick: args.quick };
    let io = (io_runner, (args.jobs, args.no_progress));
    let report = simulate(runner, io, &facts, &only, choice, &pool)?;
    if args.json {
        /// A row, and where it is from.
        #[derive(serde::Serialize)]
        struct Line<'a> {
            #[serde(flatten)]
            row: &'a Row,
            #[serde(flatten)]
            origin: &'a Provenance,
        }
        let origin = Provenance::of_this_run();
        for row in &report.rows {
            serde_json::to_writer(&mut *out, &Line { row, origin }).map_err(io::Error::from)?;
            writeln!(out)?;
        }
        out.flush()?;
        text::conclusion(&report, &mut io::stderr())?;
    } else {
        text::print(&report, out)?;
    }
    if interrupt::is_requested() {
        // Files with half of the rows would replace those with all.
        return Err(LabError::Interrupted);
    }
    if let Some(file) = csv {
        file.replace(&csv_of(&report.rows)?)?;
    }
    if html.is_some() || args.charts.is_some() {
        let charts = charts::all(&report)?;
        if let Some(directory) = &args.charts {
            charts.iter().try_for_each(|chart| write_chart(directory, chart))?;
        }
        if let Some(file) = html {
            file.replace(report::html(&report, &charts).as_bytes())?;
        }
    }
    if report.failures.is_empty() {
        Ok(())
    } else {
        Err(LabError::NoResult { who: report.failures.join("; ") })
    }
}

/// Does all runs and compares what they show with what was published.
///
/// # Errors
///
/// As [`Pool::carry_out`].
pub fn simulate(
    runner: &impl Runner,
    (io_runner, io_jobs): (&dyn IoRunner, (usize, bool)),
    facts: &[Fact],
    only: &Only,
    choice: Choice,
    pool: &Pool,
) -> Result<Report, LabError> {
    let planner = Planner::new(runner, facts, choice);
    let takes = |it: &&Fact| only.takes(it.table.name(), &it.machine, &it.workload);
    let chosen: Vec<&Fact> = facts.iter().filter(takes).collect();
    let extras = Extras::new(&planner, only, choice.quick);
    let of_sim = chosen.iter().filter(|fact| !io_runs::has(fact));
    let measures = of_sim.filter_map(|fact| Some((fact, planner.measure(fact).ok()?)));
    let keys = measures.flat_map(|(fact, measure)| {
        let changes = matches!(measure.reading, Reading::Change(_)) || rows::has_base(fact, facts);
        [Some(measure.key), changes.then_some(measure.base)].into_iter().flatten()
    });
    let runs = Runs::carry_out(&planner, runner, pool, keys.chain(extras.keys()))?;
    let io = IoRuns::carry_out(io_runner, &chosen, facts, choice, io_jobs);
    let rows = rows::rows(&chosen, facts, &planner, &runs, &io);
    let cycles = extras.cycles.iter();
    let cycles =
        cycles.filter_map(|(label, key)| Some(Cycles::new(label, runs.outcome(key).ok()?)));
    let curve = |name: &'static str| {
        let points = extras.curves.iter().filter(|(workload, ..)| *workload == name);
        let points = points.filter_map(|(_, tasks, key)| {
            Some((*tasks, runs.outcome(key).ok()?.figure("faults_per_s")?))
        });
        (name, points.collect())
    };
    let is_whole = |table: &Table| {
        let of = |fact: &&Fact| fact.table == *table;
        // All rows that a disk decides have an answer.
        let missing = |fact: &&Fact| !io_runs::has(fact) && planner.measure(fact).is_err();
        let unknown = facts.iter().filter(of).filter(missing).count();
        let rows = || rows.iter().filter(|row| row.table == table.name());
        !choice.quick
            && rows().count() == facts.iter().filter(of).count()
            && rows().filter(|row| row.simulated.is_none()).count() == unknown
    };
    let whole: Vec<Table> = Table::ALL.into_iter().filter(is_whole).collect();
    Ok(Report {
        choice,
        runs: runs.count() + io.count(),
        has_means: runs.has_means(),
        targets: judged(targets::targets(&rows, &whole, &extras, &runs), choice.quick),
        cycles: cycles.collect(),
        zonal: ["page_fault1_processes", "page_fault1_threads"].map(curve).into(),
        failures: runs.failures().into_iter().chain(io.failures()).collect(),
        rows,
    })
}

/// The targets; of a quick run without verdicts.
fn judged(targets: Vec<Target>, quick: bool) -> Vec<Target> {
    if quick { targets.into_iter().map(Target::unjudged).collect() } else { targets }
}

fn csv_of(rows: &[Row]) -> io::Result<Vec<u8>> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    for row in rows {
        writer.serialize(row).map_err(io::Error::from)?;
    }
    writer.into_inner().map_err(|error| io::Error::other(error.to_string()))
}

fn write_chart(directory: &std::path::Path, chart: &Chart) -> Result<(), LabError> {
    let png = chart.png()?;
    let files = [("svg", chart.svg().as_bytes()), ("png", &png)];
    files.into_iter().try_for_each(|(extension, content)| {
        let path = directory.join(format!("{}.{extension}", chart.name));
        OutFile::open(&path)?.replace(content)
    })
}
